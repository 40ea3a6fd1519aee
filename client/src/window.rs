//! What a rank knows of a window: which ranks have a part, how large it is, and where this node's parts are mapped.

use std::io;
use std::sync::{Arc, OnceLock};

use longarm_memory::RegionMut;
use longarm_netmod::RemoteMemory;
use longarm_proto::{AccessKey, Generation, NodeId, Rank, Run, WindowId, WindowRef};
use longarm_shm::sync::{AtomicBool, Ordering};
use longarm_shm::{NodeWindow, Window};
use parking_lot::Mutex;

use crate::error::{Lost, LostHow, Operation, TransferError};
use crate::local::failures::Failures;
use crate::local::layout::Layout;
use crate::progress::time::Time;
use crate::progress::waits;

const NO_MEMBER: u64 = u64::MAX;
const NOT_HERE: u32 = u32::MAX;

/// What tells one window from every other, and what requests for it have to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowIdentity {
    /// Number of the window.
    pub window: WindowId,
    /// How often the number was used before.
    pub generation: Generation,
    /// Every request has to carry it.
    pub key: AccessKey,
}

/// Why the memory of this node's parts could not be mapped.
#[derive(Clone, Debug)]
pub enum AttachError {
    /// The process that hosts this node's server is gone: who was lost, its node, and how.
    Lost(Rank, NodeId, LostHow),
    /// The system or the server said no, and why.
    Refused(String),
}

/// Which ranks have a part of a window, and how large it is.
#[derive(Clone, Copy, Debug)]
pub enum Parts<'a> {
    /// Every rank of the world, of so many bytes: nothing has to be kept of each.
    Alike(u64),
    /// These ranks, each of so many bytes.
    Each(&'a [(Rank, u64)]),
}

/// Fetches the memory of this node's parts when it is first needed.
type Attach = Box<dyn Fn() -> Result<NodeWindow, AttachError> + Send + Sync>;

/// See the module.
pub struct ClientWindow {
    identity: WindowIdentity,
    /// Ranks of the world.
    rank_count: u32,
    /// Bytes of each world rank's part; [`NO_MEMBER`] for ranks without one. Of parts that are alike: those of one.
    part_bytes: Box<[u64]>,
    /// The bits of a rank's number that say where in `part_bytes` it is: none, where the parts are alike.
    rank_mask: u32,
    /// Number of each part in this node's memory, from the lowest rank of the node to the highest; [`NOT_HERE`] for those of other nodes
    /// between them, and for ranks without a part.
    index_here: Box<[u32]>,
    /// The rank that it begins with.
    first_here: Rank,
    /// A network's devices rely on the memory while these are there. First, so that they go before it does. `None`: let go of, for good;
    /// what is mapped later is not held.
    held: Mutex<Option<Vec<Box<dyn Send + Sync>>>>,
    remote: Option<Arc<dyn RemoteMemory>>,
    memory: OnceLock<NodeWindow>,
    /// Who sees every access to the memory, and where that is mapped then: `memory` stays empty, so that all accesses go the way of the
    /// first one, and those that nobody sees cost nothing.
    seen: Option<(Arc<dyn Time>, OnceLock<NodeWindow>)>,
    /// Held while it is mapped.
    attaching: Mutex<()>,
    attach: Attach,
    freed: AtomicBool,
    /// No device is to keep the pages of its parts in memory.
    unpinned: AtomicBool,
}

impl ClientWindow {
    /// A window over ranks that have these parts. `attach` is called at the first access to a part of this node, and again at the
    /// next one where it has failed.
    pub fn new(
        layout: &Layout,
        identity: WindowIdentity,
        parts: Parts<'_>,
        attach: impl Fn() -> Result<NodeWindow, AttachError> + Send + Sync + 'static,
    ) -> ClientWindow {
        let rank_count = layout.rank_count();
        let (part_bytes, rank_mask) = match parts {
            Parts::Alike(bytes) => (vec![bytes], 0),
            Parts::Each(members) => {
                let mut part_bytes = vec![NO_MEMBER; rank_count as usize];
                for (rank, bytes) in members {
                    part_bytes[rank.0 as usize] = *bytes;
                }
                (part_bytes, u32::MAX)
            }
        };
        let here = layout.ranks_of(layout.my_node());
        let (first, last) = (here[0], here[here.len() - 1]);
        let mut index_here = vec![NOT_HERE; (last.0 - first.0) as usize + 1];
        let members = here.iter().filter(|rank| part_bytes[(rank.0 & rank_mask) as usize] != NO_MEMBER);
        for (index, rank) in (0..).zip(members) {
            index_here[(rank.0 - first.0) as usize] = index;
        }
        ClientWindow {
            identity,
            rank_count,
            part_bytes: part_bytes.into(),
            rank_mask,
            index_here: index_here.into(),
            first_here: first,
            held: Mutex::new(Some(Vec::new())),
            remote: None,
            memory: OnceLock::new(),
            seen: None,
            attaching: Mutex::new(()),
            attach: Box::new(attach),
            freed: AtomicBool::new(false),
            unpinned: AtomicBool::new(false),
        }
    }

    /// Tells a network that can do more with memory that stays what of it this process maps, and when it goes.
    #[must_use]
    pub fn held_by(self, remote: Option<Arc<dyn RemoteMemory>>) -> ClientWindow {
        ClientWindow { remote, ..self }
    }

    /// A simulator hears of every access of this process to the memory ([`Time::touch`]), those through a part that was taken before
    /// apart.
    #[must_use]
    pub fn seen_by(self, time: Arc<dyn Time>) -> ClientWindow {
        ClientWindow { seen: Some((time, OnceLock::new())), ..self }
    }

    /// Call before the memory may be given back or mapped anew: no device relies on it from now on. It can still be used.
    pub fn let_go(&self) {
        // Dropped without the lock: a device takes its time.
        let held = self.held.lock().take();
        drop(held);
    }

    fn memory(&self) -> Result<&NodeWindow, AttachError> {
        let _one_at_a_time = self.attaching.lock();
        let place = self.seen.as_ref().map_or(&self.memory, |(_, place)| place);
        if place.get().is_none() {
            let memory = (self.attach)()?;
            if let Some(remote) = self.remote.as_deref().filter(|_| self.held.lock().is_some()) {
                let parts = (0..memory.part_count()).map(|index| memory.part(index).whole());
                let mut holds = parts.filter(|part| !part.is_empty()).map(|part| remote.hold(part)).collect();
                // Unless it was let go of meanwhile, for good.
                if let Some(held) = &mut *self.held.lock() {
                    std::mem::swap(held, &mut holds);
                }
            }
            let _ = place.set(memory);
        }
        Ok(place.get().expect("it is mapped"))
    }

    /// What tells it from others.
    pub fn identity(&self) -> WindowIdentity {
        self.identity
    }

    /// Bytes of a rank's part; `None` for ranks without one.
    pub fn bytes_of(&self, rank: Rank) -> Option<u64> {
        self.bytes_or_no_member(rank).filter(|bytes| *bytes != NO_MEMBER)
    }

    /// Bytes of a rank's part, or [`NO_MEMBER`]; `None` for what is no rank.
    #[inline]
    fn bytes_or_no_member(&self, rank: Rank) -> Option<u64> {
        if rank.0 >= self.rank_count {
            return None;
        }
        self.part_bytes.get((rank.0 & self.rank_mask) as usize).copied()
    }

    /// The number of a rank's part in this node's memory, or [`NOT_HERE`].
    #[inline]
    fn index_of(&self, rank: Rank) -> u32 {
        self.index_here.get(rank.0.wrapping_sub(self.first_here.0) as usize).copied().unwrap_or(NOT_HERE)
    }

    /// From now on every operation is refused. False if it was freed before.
    pub fn mark_freed(&self) -> bool {
        !self.freed.swap(true, Ordering::AcqRel)
    }

    /// Leaves this node's parts out of a core dump of this process.
    pub fn leave_out_of_dumps(&self) {
        if let Ok(memory) = self.memory() {
            memory.leave_out_of_dumps();
        }
    }

    /// From now on the servers do all that this process asks of parts on other nodes, so that no device keeps their pages: for
    /// windows of which few pages are used at a time, and for those whose pages are given back while they live, for a
    /// device would go on with the old ones. Every process of the window says so, before it first uses such a part.
    pub fn leave_unpinned(&self) {
        // Relaxed: what one thread of a process says before others use the window they see.
        self.unpinned.store(true, Ordering::Relaxed);
        self.let_go();
    }

    /// Whether a device may keep the pages of its parts.
    #[inline]
    pub(crate) fn may_be_pinned(&self) -> bool {
        !self.unpinned.load(Ordering::Relaxed)
    }

    /// Gives the memory of this node's parts back to the system, though others may have it mapped for a while yet; not if other windows
    /// follow in it, which the server sees to. For a freed window, by the rank that had it made.
    ///
    /// # Errors
    ///
    /// What the system says. The memory then goes with the last mapping.
    pub fn give_back(&self) -> io::Result<()> {
        match self.memory() {
            Ok(memory) if memory.room().is_none() => memory.give_back(),
            _ => Ok(()),
        }
    }

    /// Whether the window was freed.
    #[inline]
    pub fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Relaxed)
    }

    /// How a request names a rank's part.
    pub(crate) fn target(&self, rank: Rank) -> WindowRef {
        let WindowIdentity { window, generation, key } = self.identity;
        WindowRef { rank, window, generation, key }
    }

    /// Everything that can be wrong with bytes up to `end` at a rank, without asking anybody.
    #[inline]
    pub fn check(&self, operation: Operation, rank: Rank, offset: u64, end: u64) -> Result<(), TransferError> {
        match self.bytes_or_no_member(rank) {
            Some(window_bytes) if window_bytes != NO_MEMBER && end <= window_bytes && !self.is_freed() => Ok(()),
            _ => Err(self.explain(operation, rank, offset, end)),
        }
    }

    #[cold]
    fn explain(&self, operation: Operation, rank: Rank, offset: u64, end: u64) -> TransferError {
        let WindowIdentity { window, generation, .. } = self.identity;
        match self.bytes_or_no_member(rank) {
            None => TransferError::NoSuchRank { operation, rank, ranks: self.rank_count },
            Some(_) if self.is_freed() => TransferError::FreedWindow { operation, rank, window, generation },
            Some(NO_MEMBER) => TransferError::NotMember { operation, rank, window },
            Some(window_bytes) => TransferError::OutsideWindow { operation, rank, window, offset, end, window_bytes },
        }
    }

    /// The end of a run, or the error that it lies outside every window.
    #[inline]
    pub(crate) fn end_of(&self, operation: Operation, rank: Rank, run: Run) -> Result<u64, TransferError> {
        run.offset.checked_add(run.bytes).ok_or_else(|| self.explain(operation, rank, run.offset, u64::MAX))
    }

    /// The part of a rank of this node, if it is mapped already and the window is not freed.
    #[inline]
    pub(crate) fn mapped_part(&self, rank: Rank) -> Option<Window<'_>> {
        let index = self.index_of(rank);
        if index == NOT_HERE || self.is_freed() {
            return None;
        }
        self.memory.get().map(|memory| memory.part(index as usize))
    }

    /// [`ClientWindow::mapped_part`] of a living rank: the shortest way. `None`: the long way, `Client::path`, maps it, or finds
    /// out what is wrong.
    #[inline]
    pub(crate) fn at_once(&self, failures: &Failures, rank: Rank) -> Option<Window<'_>> {
        if failures.is_dead(rank) {
            return None;
        }
        self.mapped_part(rank)
    }

    /// Bytes of it, if they are all inside.
    #[inline]
    pub(crate) fn bytes_at_once(&self, failures: &Failures, rank: Rank, run: Run) -> Option<RegionMut<'_>> {
        self.at_once(failures, rank)?.region_mut(run.offset, run.bytes).ok()
    }

    /// Whether a rank's part is in this node's memory: what is started there is done on return.
    #[inline]
    pub fn is_here(&self, rank: Rank) -> bool {
        self.index_of(rank) != NOT_HERE
    }

    /// The part of a rank of this node, mapped; `None` for ranks of other nodes.
    #[inline]
    pub fn part_here(&self, operation: Operation, rank: Rank) -> Result<Option<Window<'_>>, TransferError> {
        let index = self.index_of(rank);
        if index == NOT_HERE {
            return Ok(None);
        }
        match self.memory.get() {
            Some(memory) => Ok(Some(memory.part(index as usize))),
            None => self.attach_now(operation, rank, index),
        }
    }

    #[cold]
    fn attach_now(&self, operation: Operation, rank: Rank, index: u32) -> Result<Option<Window<'_>>, TransferError> {
        if let Some((time, _)) = self.seen.as_ref().filter(|_| !waits::am_waiting()) {
            time.touch();
        }
        match self.memory() {
            Ok(memory) => Ok(Some(memory.part(index as usize))),
            Err(AttachError::Lost(rank, node, how)) => Err(Lost { rank, node, operation, how }.into()),
            Err(AttachError::Refused(reason)) => {
                Err(TransferError::Unmappable { operation, rank, window: self.identity.window, reason })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use longarm_shm::sync::AtomicU32;

    use super::*;

    #[test]
    fn what_could_not_be_mapped_is_mapped_by_who_asks_again() {
        let layout = Layout::new(Rank(0), &[NodeId(0)]);
        let identity = WindowIdentity { window: WindowId(1), generation: Generation(1), key: AccessKey(2) };
        let asked = Arc::new(AtomicU32::new(0));
        let times = Arc::clone(&asked);
        let attach = move || match times.fetch_add(1, Ordering::Relaxed) {
            0 => Err(AttachError::Refused("too many files are open".into())),
            _ => NodeWindow::create("a test", &[64]).map_err(|error| AttachError::Refused(error.to_string())),
        };
        let window = ClientWindow::new(&layout, identity, Parts::Alike(64), attach);
        let here = || window.part_here(Operation::Put, Rank(0));
        assert!(matches!(here(), Err(TransferError::Unmappable { .. })) && window.mapped_part(Rank(0)).is_none());
        assert!(here().is_ok_and(|part| part.is_some()) && window.mapped_part(Rank(0)).is_some());
        assert!(here().is_ok_and(|part| part.is_some()));
        assert_eq!(asked.load(Ordering::Relaxed), 2, "once it is mapped nobody is asked any more");
    }
}
