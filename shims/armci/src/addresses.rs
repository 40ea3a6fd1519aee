//! Which window is behind an address of another process.
//!
//! An ARMCI program names remote memory by its address in the owner's process. Every process tells the others where its
//! part of a window is mapped, once, when the window is made; from then on a lookup is local:
//!
//! ```text
//!   recent     the last four parts that this thread has used, plain words: what a put on the node looks at
//!   tables     all parts, sorted by address, for each process
//! ```
//!
//! PAIR epoch: the store after a part was removed (Release) and the loads before a lookup (Acquire). Who sees the new epoch
//! no longer finds the part, and uses nothing that was remembered before.
//!
//! What a thread remembers is kept alive by the thread itself (`OWNERS`) and is used only while the table is in the
//! state in which it was found, which the epoch tells.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;

use longarm::Window;
use longarm::ffi::sync::{AtomicU64, Ordering};
use longarm::ffi::{CounterKind, Kernel, Part as MappedPart, Rank, Region, Scale, ThisNode};
use parking_lot::RwLock;

/// Parts that each thread remembers.
const REMEMBERED: usize = 4;

/// The parts of all windows, by rank and address.
pub(crate) struct Addresses {
    /// Tells the tables of a process apart, and how often this one has lost an entry.
    epoch: AtomicU64,
    ranks: Box<[RwLock<Vec<Part>>]>,
}

/// Whether a part is one that messages speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// A segment that the program has asked for.
    InMessages,
    /// Nothing that it knows of.
    Never,
}

#[derive(Clone)]
struct Part {
    start: usize,
    bytes: u64,
    window: Window<u8>,
    shown: Shown,
}

/// A part that this thread has used.
#[derive(Clone, Copy)]
struct RecentPart {
    epoch: u64,
    rank: u32,
    start: usize,
    bytes: u64,
    /// As it is mapped here; `None` if it is on another node, or could not be mapped.
    mapped: Option<MappedPart<'static>>,
    /// Kept alive by the place of the same number in `OWNERS`.
    window: *const Window<u8>,
    /// The window's: [`Window::this_node`].
    node: *const ThisNode,
}

const NOTHING: RecentPart = RecentPart {
    epoch: 0,
    rank: 0,
    start: 0,
    bytes: 0,
    mapped: None,
    window: std::ptr::null(),
    node: std::ptr::null(),
};

thread_local! {
    // Plain words without a destructor: found without asking whether they are initialised.
    static RECENT: [Cell<RecentPart>; REMEMBERED] = const { [const { Cell::new(NOTHING) }; REMEMBERED] };
    static OWNERS: RefCell<Owners> = const { RefCell::new(Owners([const { None }; REMEMBERED])) };
}

/// The windows that `RECENT` points to. When a thread ends they go, and what pointed to them first.
struct Owners([Option<Box<Window<u8>>>; REMEMBERED]);

impl Drop for Owners {
    fn drop(&mut self) {
        let _ = RECENT.try_with(|recent| recent.iter().for_each(|known| known.set(NOTHING)));
    }
}

/// Never the same for two states of any table of this process, and never that of [`NOTHING`].
static EPOCHS: AtomicU64 = AtomicU64::new(1);

fn next_epoch() -> u64 {
    EPOCHS.fetch_add(1, Ordering::Relaxed)
}

/// Bytes of a part, for a call that neither waits nor looks up another address.
#[derive(Clone, Copy)]
pub(crate) struct RecentBytes<'a> {
    /// Where the address is mapped; null if it is not.
    pub(crate) start: *mut u8,
    /// Bytes from the start of the part to the address.
    pub(crate) offset: u64,
    part: &'a RecentPart,
}

impl<'a> RecentBytes<'a> {
    /// Whose part it is: a rank that there is.
    #[inline(always)]
    pub(crate) fn rank(&self) -> u32 {
        self.part.rank
    }

    #[inline(always)]
    pub(crate) fn window(&self) -> &'a Window<u8> {
        // SAFETY: the box in `OWNERS` keeps the window, and only this thread takes it out: by a lookup that misses or by a
        // removal, which the contract of `recent` excludes while this is used.
        unsafe { &*self.part.window }
    }

    #[inline(always)]
    fn node(&self) -> &'a ThisNode {
        // SAFETY: as for the window, as long as which it stays.
        unsafe { &*self.part.node }
    }

    /// Whether an operation may go to the bytes at once: they are mapped here, and their owner is not known to be dead.
    #[inline(always)]
    pub(crate) fn may_be_touched(&self) -> bool {
        !self.start.is_null() && !self.node().is_dead(Rank(self.rank()))
    }

    /// Accumulates here. False: nothing was touched, and the long way finds out what is wrong.
    #[inline(always)]
    pub(crate) fn accumulate(&self, operator: (Kernel, &Scale), source: Region<'_>) -> bool {
        let target = (Rank(self.rank()), self.offset);
        self.part.mapped.is_some_and(|part| self.node().accumulate(part, target, operator, source))
    }

    /// Wakes the owner, if it sleeps until its windows change: after a read-modify-write.
    #[inline(always)]
    pub(crate) fn ring(&self) {
        self.node().ring_window(Rank(self.rank()));
    }

    /// Counts an operation that was done on them here.
    #[inline(always)]
    pub(crate) fn count(&self, kind: CounterKind, bytes: usize) {
        self.node().count(Rank(self.rank()), kind, bytes as u64);
    }
}

impl Addresses {
    /// Without any window.
    pub(crate) fn new(ranks: u32) -> Addresses {
        let ranks = (0..ranks).map(|_| RwLock::new(Vec::new())).collect();
        Addresses { epoch: AtomicU64::new(next_epoch()), ranks }
    }

    /// The part of a rank starts at this address. Parts without bytes are not kept.
    pub(crate) fn insert(&self, rank: u32, start: usize, window: &Window<u8>, shown: Shown) {
        let Some(bytes) = window.len_at(rank).filter(|bytes| *bytes > 0) else { return };
        let mut parts = self.ranks[rank as usize].write();
        let at = parts.partition_point(|part| part.start < start);
        parts.insert(at, Part { start, bytes: bytes as u64, window: window.clone(), shown });
    }

    /// The part of a rank that starts at this address is gone; gives its window.
    pub(crate) fn remove(&self, rank: u32, start: usize) -> Option<Window<u8>> {
        let mut parts = self.ranks.get(rank as usize)?.write();
        let at = parts.binary_search_by_key(&start, |part| part.start).ok()?;
        let part = parts.remove(at);
        // PAIR epoch. Under the lock: who looks it up after this sees the new epoch first.
        self.epoch.store(next_epoch(), Ordering::Release);
        drop(parts);
        forget_recent();
        Some(part.window)
    }

    /// The bytes, if this thread has used their part before, it is mapped here, they are inside, and nothing keeps an operation from
    /// going there at once.
    ///
    /// # Safety
    /// As [`Addresses::recent`].
    #[inline(always)]
    pub(crate) unsafe fn direct<'a>(&self, proc: c_int, address: usize, bytes: usize) -> Option<RecentBytes<'a>> {
        // SAFETY: this function's own contract.
        unsafe { self.recent(proc, address, bytes) }.filter(|known| known.may_be_touched())
    }

    /// The bytes, if this thread has used their part before and they are inside; no start if the part is not mapped here. `proc` needs
    /// no check before: only parts of processes that there are are remembered.
    ///
    /// # Safety
    /// The window of the result is not used after this thread has looked up another address or removed a part: the
    /// caller neither does so nor waits, because handlers of messages run while a thread waits.
    #[inline(always)]
    pub(crate) unsafe fn recent<'a>(&self, proc: c_int, address: usize, bytes: usize) -> Option<RecentBytes<'a>> {
        let rank = proc.cast_unsigned();
        // PAIR epoch.
        let epoch = self.epoch.load(Ordering::Acquire);
        let recent: *const [Cell<RecentPart>; REMEMBERED] = RECENT.with(std::ptr::from_ref);
        // SAFETY: the place of a living thread lives as long as its thread, which is running this.
        let recent = unsafe { &*recent };
        for place in recent {
            // SAFETY: only a lookup that misses or a removal writes there, which this function's contract excludes while it is used.
            let part = unsafe { &*place.as_ptr() };
            let offset = address.wrapping_sub(part.start) as u64;
            let inside = offset < part.bytes && bytes as u64 <= part.bytes - offset;
            if inside && part.rank == rank && part.epoch == epoch {
                let at = |part: &MappedPart<'_>| part.start_pointer().wrapping_add(offset as usize);
                let start = part.mapped.as_ref().map_or(std::ptr::null_mut(), at);
                return Some(RecentBytes { start, offset, part });
            }
        }
        None
    }

    /// The window behind an address, and the bytes from the start of the part to it. From now on this thread remembers
    /// the part.
    pub(crate) fn find(&self, rank: u32, address: usize) -> Option<(Window<u8>, u64)> {
        // PAIR epoch. Before the lookup: a removal in between makes what is remembered worthless.
        let epoch = self.epoch.load(Ordering::Acquire);
        let parts = self.ranks.get(rank as usize)?.read();
        let at = parts.partition_point(|part| part.start <= address).checked_sub(1)?;
        let part = parts[at].clone();
        drop(parts);
        let offset = (address - part.start) as u64;
        if offset >= part.bytes {
            return None;
        }
        remember(epoch, rank, &part);
        Some((part.window, offset))
    }

    /// The part of a rank that is nearest to an address, for messages: its start and size.
    pub(crate) fn nearest(&self, rank: u32, address: usize) -> Option<(usize, u64)> {
        let parts = self.ranks.get(rank as usize)?.read();
        let distance = |part: &&Part| match address {
            before if before < part.start => part.start - before,
            behind => behind - part.start.saturating_add(part.bytes as usize).min(behind),
        };
        let shown = parts.iter().filter(|part| part.shown == Shown::InMessages);
        shown.min_by_key(distance).map(|part| (part.start, part.bytes))
    }
}

/// Puts a part in front of those that this thread remembers.
fn remember(epoch: u64, rank: u32, part: &Part) {
    // A thread that is ending remembers nothing.
    let _ = OWNERS.try_with(|owners| {
        let Ok(mut owners) = owners.try_borrow_mut() else { return };
        RECENT.with(|recent| {
            let is_it = |known: &RecentPart| known.epoch == epoch && known.rank == rank && known.start == part.start;
            if recent.iter().any(|known| is_it(&known.get())) {
                return;
            }
            let window = Box::new(part.window.clone());
            let pointer: *const Window<u8> = &raw const *window;
            // SAFETY: `OWNERS` keeps the box for as long as `RECENT` has the pointer, and `recent` says how long what comes of it is used.
            let kept: &'static Window<u8> = unsafe { &*pointer };
            // A part that cannot be mapped is not reached directly.
            let mapped = kept.part_at(rank).ok().flatten();
            recent.iter().rev().zip(recent.iter().rev().skip(1)).for_each(|(to, from)| to.set(from.get()));
            owners.0.rotate_right(1);
            recent[0].set(RecentPart {
                epoch,
                rank,
                start: part.start,
                bytes: part.bytes,
                mapped,
                window: pointer,
                node: kept.this_node(),
            });
            owners.0[0] = Some(window);
        });
    });
}

fn forget_recent() {
    RECENT.with(|recent| recent.iter().for_each(|known| known.set(NOTHING)));
    let _ = OWNERS.try_with(|owners| {
        if let Ok(mut owners) = owners.try_borrow_mut() {
            owners.0 = [const { None }; REMEMBERED];
        }
    });
}
