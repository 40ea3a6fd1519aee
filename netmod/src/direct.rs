//! Reaching memory of the other node with no server involved: what a network that can do that offers besides its links.
//!
//! ```text
//!   target                                      origin
//!   server ──► RemoteMemory::publish            Link::direct ──► reach ──► put, get ──► take_outcome
//! ```
//!
//! Outcomes come in order, unless the link breaks. What was under way then is resolved by the next link to the same peer: it
//! knows what was done, and the rest is for the owner to do again, before anything else goes over that link.

use longarm_memory::{Region, RegionMut};
use longarm_proto::{Run, WindowRef};

use crate::link_error::LinkError;

/// Why the read-modify-writes of an RDMA device cannot be used by a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoDeviceRmw {
    /// It has a world of its own, in which nothing goes over a network.
    #[error("is alone in its world, where nothing goes over a network")]
    Alone,
    /// The network between the nodes has no devices.
    #[error("uses a network without RDMA devices (LONGARM_NETMOD, and a build with the feature verbs)")]
    Network,
    /// Nodes have routers.
    #[error("is routed: not every rank has a connection to every node (LONGARM_CONNECTIONS_MAX)")]
    Routed,
    /// What goes over the network is encrypted, which devices are not.
    #[error("encrypts what it sends (LONGARM_ENCRYPT), which its device cannot")]
    Encrypted,
    /// No device can be used.
    #[error("has no RDMA device that can be used; see `longarm info`")]
    NoDevice,
    /// The device is one of iWARP.
    #[error("has an RDMA device of iWARP, which has no read-modify-writes")]
    Iwarp,
    /// The device says that it has none, or that it answers no reads.
    #[error("has an RDMA device without read-modify-writes")]
    Device,
    /// No window is to be reached by devices.
    #[error("lets devices reach no window (LONGARM_VERBS_DIRECT, LONGARM_VERBS_PINNED_BYTES_MAX)")]
    Served,
}

impl NoDeviceRmw {
    /// All of them. Each is told by its place.
    pub const ALL: [NoDeviceRmw; 8] = [
        NoDeviceRmw::Alone,
        NoDeviceRmw::Network,
        NoDeviceRmw::Routed,
        NoDeviceRmw::Encrypted,
        NoDeviceRmw::NoDevice,
        NoDeviceRmw::Iwarp,
        NoDeviceRmw::Device,
        NoDeviceRmw::Served,
    ];
}

/// Where a node's server says what peers may reach.
pub trait RemoteMemory: Send + Sync {
    /// Lets peers that know the key read and write a part of a window. Dropping what is returned ends that, before the
    /// memory goes away.
    fn publish(&self, part: WindowRef, memory: RegionMut<'_>) -> Box<dyn Send + Sync>;

    /// Says that this process has some memory of a window mapped, and that until what is returned is dropped it stays there, with
    /// the pages that it has: transfers of which it is the near end can rely on that.
    fn hold(&self, memory: RegionMut<'_>) -> Box<dyn Send + Sync> {
        let _ = memory;
        Box::new(())
    }

    /// The program's word that from now on one thread alone maps and unmaps memory, and communicates; threads of longarm's own
    /// apart.
    fn rely_on_one_thread(&self) {}
}

/// Whether memory can be reached directly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// It can, now.
    Yes,
    /// The peer was asked, and has not answered yet.
    Asked,
    /// It can, when there is room again.
    Full,
    /// It cannot.
    No,
}

/// What is to be done with memory that may be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// A put of so many bytes that are copied before the call returns.
    PutCopied(usize),
    /// A put of lent memory.
    PutLent,
    /// A get.
    Get,
    /// A read-modify-write by the device.
    Rmw,
}

/// A read-modify-write of an aligned word of 64 bits, as RDMA devices do them. The old value is what comes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceRmw {
    /// Adds, wrapping around.
    FetchAdd(u64),
    /// Replaces the word if it has the value that is expected.
    CompareSwap {
        /// What it is compared with.
        expected: u64,
        /// What it becomes if it is the same.
        new: u64,
    },
}

/// Bytes of the words that devices update.
pub const DEVICE_WORD_BYTES: u64 = 8;

/// What came of a get that is looked for at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InlinePoll {
    /// Its bytes are there.
    Done,
    /// It takes longer, or will not end well.
    UnderWay,
    /// It has to go another way.
    NotBegun,
}

/// What became of a direct transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectOutcome {
    /// A put is in the target's memory, and visible to all who look there; a get's bytes have arrived.
    Done,
    /// A read-modify-write is done, and this was there before.
    Value(u64),
    /// The link broke when a read-modify-write was done, and the old value is lost with the answer. To begin it again would do it
    /// twice.
    ValueLost,
    /// The link broke, and nobody knows any more whether a put or a read-modify-write was done. To begin it again could do it
    /// twice.
    Unknown,
    /// The link broke before it was done. Nothing, or a part of it, was.
    NotDone,
    /// The peer's device refused: the window is gone, or was never as large.
    Refused,
}

/// Memory of this process, kept until it is dropped.
pub trait Loan: Send + Sync {
    /// All of it. It stays where it is, and nobody holds an exclusive reference to it. Where there are pieces, what lies between
    /// them need not exist.
    fn memory(&self) -> RegionMut<'_>;

    /// The pieces of it that make up the transfer's bytes, one after the other. None: all of it does.
    fn pieces(&self) -> &[Run] {
        &[]
    }
}

impl dyn Loan + '_ {
    /// How many bytes the transfer moves.
    pub fn bytes(&self) -> usize {
        match self.pieces() {
            [] => self.memory().len(),
            pieces => pieces.iter().map(|piece| piece.bytes as usize).sum(),
        }
    }

    /// Calls with each piece that holds bytes of the transfer from `at` on, `bytes` in all, and where these begin behind `at`.
    pub fn each<'a>(&'a self, at: usize, bytes: usize, mut with: impl FnMut(RegionMut<'a>, usize)) {
        let memory = self.memory();
        if self.pieces().is_empty() {
            with(memory.slice(at, bytes), 0);
            return;
        }
        let (mut behind, mut done) = (0, 0);
        for piece in self.pieces() {
            let (start, length) = (piece.offset as usize, piece.bytes as usize);
            let skipped = (at + done).saturating_sub(behind).min(length);
            behind += length;
            let taken = (length - skipped).min(bytes - done);
            if taken > 0 {
                with(memory.slice(start + skipped, taken), done);
                done += taken;
            }
            if done == bytes {
                return;
            }
        }
    }
}

/// Where the bytes of a put are.
pub enum DirectSource<'a> {
    /// They are copied before the call returns.
    Copied(Region<'a>),
    /// They are read until the outcome.
    Lent(Box<dyn Loan>),
}

/// Direct transfers over a link, in the order in which they are begun: also with what the link sends.
pub trait DirectAccess {
    /// Whether a part of a window can be reached for this, now; asks the peer if that is not known.
    fn reach(&mut self, target: &WindowRef, wish: Wish) -> Reach;

    /// What is begun from now on may be kept back until [`DirectAccess::post_batch`], so that the device is told of several at a time.
    fn begin_batch(&mut self) {}

    /// See [`DirectAccess::begin_batch`].
    ///
    /// # Errors
    /// As for puts.
    fn post_batch(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    /// Begins to write to memory that can be reached.
    ///
    /// # Errors
    /// As `Link::send`: an error is final for the link, and the next one knows the outcome.
    fn put(&mut self, ticket: u64, target: &WindowRef, run: Run, source: DirectSource<'_>) -> Result<(), LinkError>;

    /// Begins to read memory that can be reached.
    ///
    /// # Errors
    /// As for puts.
    fn get(&mut self, ticket: u64, target: &WindowRef, run: Run, into: Box<dyn Loan>) -> Result<(), LinkError>;

    /// Begins to update an aligned word that can be reached for that, `offset` bytes behind the beginning of the part. What is
    /// begun behind it sees it done.
    ///
    /// # Errors
    /// As for puts; where the link cannot do that at all, which [`DirectAccess::reach`] has said.
    fn rmw(&mut self, ticket: u64, target: &WindowRef, offset: u64, rmw: DeviceRmw) -> Result<(), LinkError> {
        let _ = (ticket, target, offset, rmw);
        Err(LinkError::Device("it does no read-modify-writes"))
    }

    /// Reads a few bytes and looks so many times whether they are there, and at nothing else meanwhile. Nothing is lent for that:
    /// of what has not come by then [`DirectAccess::lend_polled`] tells where it goes.
    fn get_polling(&mut self, target: &WindowRef, run: Run, into: RegionMut<'_>, looks: u32) -> InlinePoll {
        let _ = (target, run, into, looks);
        InlinePoll::NotBegun
    }

    /// Right behind a [`DirectAccess::get_polling`] that is under way: from now on it is a get of this number. Without this, nobody
    /// hears of its end.
    fn lend_polled(&mut self, ticket: u64, into: Box<dyn Loan>) {
        let _ = (ticket, into);
    }

    /// Looks so many times whether all that was begun is over, and at nothing else meanwhile. Whether it is: then all outcomes
    /// can be taken.
    fn look_for_ends(&mut self, looks: u32) -> bool {
        let _ = looks;
        false
    }

    /// Whether the device has all that was begun: it comes to its end without another call.
    fn is_all_posted(&self) -> bool {
        true
    }

    /// The next transfer that is over, by the number that it was begun with.
    fn take_outcome(&mut self) -> Option<(u64, DirectOutcome)>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct_conformance::InPieces;

    fn found(pieces: &[(u64, u64)], at: usize, bytes: usize) -> Vec<(usize, usize, usize)> {
        let memory = RegionMut::from_slice(Box::leak(vec![0; 1000].into_boxed_slice()));
        let pieces = pieces.iter().map(|(offset, bytes)| Run { offset: *offset, bytes: *bytes }).collect();
        let loan: Box<dyn Loan> = Box::new(InPieces(memory, pieces));
        let start = memory.as_mut_ptr().addr();
        let mut all = Vec::new();
        loan.each(at, bytes, |piece, done| all.push((piece.as_mut_ptr().addr() - start, piece.len(), done)));
        assert!(at + bytes <= loan.bytes());
        all
    }

    #[test]
    fn bytes_are_found_in_the_order_of_the_pieces() {
        assert_eq!(found(&[], 10, 20), [(10, 20, 0)]);
        let spread = [(100, 10), (50, 10), (300, 10)];
        assert_eq!(found(&spread, 0, 30), [(100, 10, 0), (50, 10, 10), (300, 10, 20)]);
        assert_eq!(found(&spread, 5, 10), [(105, 5, 0), (50, 5, 5)]);
        assert_eq!(found(&spread, 10, 1), [(50, 1, 0)]);
        assert_eq!(found(&spread, 29, 1), [(309, 1, 0)]);
    }
}
