//! Counters: operations and bytes by kind and by peer, and waits by kind, of every rank of the node.
//!
//! They lie in shared memory, so that anybody on the node can read them while the job runs, and after a rank has died.
//! They are always on: one relaxed addition each.
//!
//! Each rank has two sets. The main thread's is written by that one thread, with a load and a store; all other threads
//! add to the second one. Who reads adds the two. A reader may see an operation before its bytes.
//!
//! No pairs: nobody concludes from a counter that anything else happened.
//!
//! Beside them lies on which processor the rank waits. It is a hint: whoever reads it may move in vain, and nothing else depends on it.
//!
//! If a process dies, its counters and that hint stay as they are.

use longarm_proto::Rank;

use crate::segment::Shareable;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// What is counted.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum CounterKind {
    /// Puts, strided ones too.
    Put,
    /// Gets, strided ones too.
    Get,
    /// Accumulates.
    Accumulate,
    /// Read-modify-writes.
    Rmw,
    /// Locks taken.
    Lock,
    /// Active messages.
    Message,
    /// Collective operations; the peer is the rank itself.
    Collective,
    /// Signals that came with puts.
    Signal,
}

impl CounterKind {
    /// How many kinds there are.
    pub const COUNT: usize = 8;

    /// All kinds, in their order.
    pub const ALL: [CounterKind; Self::COUNT] = [
        CounterKind::Put,
        CounterKind::Get,
        CounterKind::Accumulate,
        CounterKind::Rmw,
        CounterKind::Lock,
        CounterKind::Message,
        CounterKind::Collective,
        CounterKind::Signal,
    ];
}

/// Operations and bytes of one kind.
#[repr(C)]
#[derive(Debug, Default)]
struct Pair {
    operations: AtomicU64,
    bytes: AtomicU64,
}

/// What one rank did with one peer, by one set of threads.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct PeerCounters {
    kinds: [Pair; CounterKind::COUNT],
}

/// How often one rank waited, by one set of threads.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct WaitCounters {
    kinds: [AtomicU64; CounterKind::COUNT],
}

/// On which processor a thread of the rank waits, plus one. A hint. 0: none does.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct WaitsOn {
    processor: AtomicU32,
    reserved: [AtomicU32; 15],
}

const _: () = assert!(size_of::<PeerCounters>() == 128);
const _: () = assert!(size_of::<WaitCounters>() == 64);
const _: () = assert!(size_of::<WaitsOn>() == 64);

// SAFETY: `repr(C)`, atomics only, no padding.
unsafe impl Shareable for PeerCounters {}
// SAFETY: `repr(C)`, atomics only, no padding.
unsafe impl Shareable for WaitCounters {}
// SAFETY: `repr(C)`, atomics only, no padding.
unsafe impl Shareable for WaitsOn {}

/// Sets of counters a rank has: the main thread's and that of all other threads.
pub(crate) const SETS: usize = 2;

/// Which one.
#[inline]
pub(crate) const fn set_of(main_thread: bool) -> usize {
    if main_thread { 0 } else { 1 }
}

impl PeerCounters {
    /// Counts one operation, in the set of who says so.
    #[inline]
    pub(crate) fn add(&self, kind: CounterKind, bytes: u64, main_thread: bool) {
        let pair = &self.kinds[kind as usize];
        increase(&pair.operations, 1, main_thread);
        increase(&pair.bytes, bytes, main_thread);
    }
}

/// The counters of one rank of the node.
#[derive(Clone, Copy, Debug)]
pub struct Counters<'a> {
    /// By set; one for each rank of the world.
    pub(crate) peers: [&'a [PeerCounters]; SETS],
    /// By set.
    pub(crate) waits: &'a [WaitCounters],
    pub(crate) waits_on: &'a WaitsOn,
}

impl Counters<'_> {
    /// Counts one operation of `bytes` bytes with `peer`. `main_thread` only by the one thread that it is said by.
    ///
    /// # Panics
    ///
    /// If there is no such rank in the world.
    #[inline]
    pub fn add(&self, peer: Rank, kind: CounterKind, bytes: u64, main_thread: bool) {
        self.peers[set_of(main_thread)][peer.0 as usize].add(kind, bytes, main_thread);
    }

    /// Counts that the rank had to wait in an operation of this kind.
    #[inline]
    pub fn add_wait(&self, kind: CounterKind, main_thread: bool) {
        increase(&self.waits[set_of(main_thread)].kinds[kind as usize], 1, main_thread);
    }

    /// Operations and bytes of a kind with a peer so far.
    ///
    /// # Panics
    ///
    /// If there is no such rank in the world.
    pub fn read(&self, peer: Rank, kind: CounterKind) -> (u64, u64) {
        let pairs = self.peers.map(|peers| &peers[peer.0 as usize].kinds[kind as usize]);
        let operations = pairs.iter().map(|pair| pair.operations.load(Ordering::Relaxed));
        let bytes = pairs.iter().map(|pair| pair.bytes.load(Ordering::Relaxed));
        (operations.fold(0, u64::wrapping_add), bytes.fold(0, u64::wrapping_add))
    }

    /// A thread of the rank waits, and is on this processor; or it waits no more.
    pub fn note_waits_on(&self, processor: Option<u32>) {
        self.waits_on.processor.store(processor.map_or(0, |processor| processor.wrapping_add(1)), Ordering::Relaxed);
    }

    /// The processor that a thread of the rank waits on, if one waits. It may be elsewhere by now.
    pub fn waits_on(&self) -> Option<u32> {
        self.waits_on.processor.load(Ordering::Relaxed).checked_sub(1)
    }

    /// How often the rank had to wait in operations of a kind so far.
    pub fn waits(&self, kind: CounterKind) -> u64 {
        let waits = self.waits.iter().map(|waits| waits.kinds[kind as usize].load(Ordering::Relaxed));
        waits.fold(0, u64::wrapping_add)
    }
}

#[inline]
fn increase(counter: &AtomicU64, by: u64, alone: bool) {
    if alone {
        // One writer: a load and a store lose nothing, and cost a third of an atomic addition.
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    } else {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sets_are_added_up_by_kind_and_by_peer() {
        let sets: Vec<Vec<PeerCounters>> =
            (0..SETS).map(|_| std::iter::repeat_with(PeerCounters::default).take(3).collect()).collect();
        let waits: Vec<WaitCounters> = std::iter::repeat_with(WaitCounters::default).take(SETS).collect();
        let waits_on = WaitsOn::default();
        let counters = Counters { peers: [&sets[0], &sets[1]], waits: &waits, waits_on: &waits_on };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    for _ in 0..100 {
                        counters.add(Rank(2), CounterKind::Get, 10, thread == 0);
                        counters.add_wait(CounterKind::Lock, thread == 0);
                    }
                });
            }
        });
        counters.add(Rank(0), CounterKind::Signal, 8, true);
        assert_eq!(counters.read(Rank(2), CounterKind::Get), (300, 3000));
        assert_eq!(counters.read(Rank(0), CounterKind::Signal), (1, 8));
        assert_eq!(counters.read(Rank(2), CounterKind::Put), (0, 0));
        assert_eq!(counters.read(Rank(1), CounterKind::Get), (0, 0));
        assert_eq!((counters.waits(CounterKind::Lock), counters.waits(CounterKind::Put)), (300, 0));
        assert_eq!(counters.waits_on(), None);
        counters.note_waits_on(Some(0));
        assert_eq!(counters.waits_on(), Some(0));
        counters.note_waits_on(None);
        assert_eq!(counters.waits_on(), None);
    }

    #[test]
    fn kinds_are_numbered_in_their_order() {
        assert!(CounterKind::ALL.iter().enumerate().all(|(index, &kind)| kind as usize == index));
    }
}
