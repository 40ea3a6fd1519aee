//! Why a call failed. Every variant tells whose fault it is and what the target may have seen.

use longarm_proto::{BadMail, Generation, NodeId, Rank, Refusal, WindowId};

/// The operation that an error speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Write to a window.
    Put,
    /// Read from a window.
    Get,
    /// Update elements of a window.
    Accumulate,
    /// Read, modify and write one word.
    Rmw,
    /// The same by an RDMA device.
    DeviceRmw,
    /// Wait for the remote completion of what was issued.
    Quiet,
    /// Take a mutex.
    Lock,
    /// Give a mutex back.
    Unlock,
    /// Send an active message or a part of a collective.
    Message,
    /// Wait for a word to change.
    Wait,
    /// A collective over a group.
    Collective,
    /// Make or free a window.
    Window,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Accumulate => "accumulate",
            Operation::Rmw => "rmw",
            Operation::DeviceRmw => "rmw by the device",
            Operation::Quiet => "quiet",
            Operation::Lock => "lock",
            Operation::Unlock => "unlock",
            Operation::Message => "message",
            Operation::Wait => "wait",
            Operation::Collective => "collective",
            Operation::Window => "window allocation",
        })
    }
}

/// Has the `Debug` of errors read as their `Display`: it is what people see of an error that `main` returns, or that is unwrapped.
#[macro_export]
macro_rules! debug_as_display {
    ($($error:ty),+) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, formatter)
            }
        }
    )+};
}

debug_as_display!(Lost, LostHow, TransferError, RmwError, DeviceRmwError, MutexError, WaitError);

/// A rank or the server of a node is gone.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} failed: rank {rank} (node {node}) {how}")]
pub struct Lost {
    /// The rank that is gone, or the one that hosts the server of a node that no longer answers.
    pub rank: Rank,
    /// Its node.
    pub node: NodeId,
    /// What the caller was doing.
    pub operation: Operation,
    /// What is known of the end.
    pub how: LostHow,
}

/// How a rank or node was lost.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostHow {
    /// The launcher saw the process end.
    #[error("{0}")]
    Died(String),
    /// The server of its node knows it to be dead; how it died has not been heard here yet.
    #[error("is dead, as the server of its node says")]
    Gone,
    /// Its node's server, hosted by this rank, closed the connection.
    #[error("hosts the server of its node, which closed the connection")]
    Closed,
    /// The connection to its node's server, hosted by this rank, failed.
    #[error("hosts the server of its node, and the connection to it failed: {0}")]
    Failed(String),
    /// It has sent what is no message, and its mail is not taken any more.
    #[error("has sent what is no message, so its mail is not taken any more: {0}")]
    BrokenMail(BadMail),
    /// It lives, and has lost this node: what it is to answer or to send does not come.
    #[error("cannot reach this node any more: {0}")]
    OutOfReach(String),
    /// This rank has left the job.
    #[error("can no longer be reached: this rank has finalized its world")]
    Finalized,
    /// This rank, which speaks for its node in collectives, says so.
    #[error("cannot be reached, says rank {0}, which speaks for this node")]
    SaidBy(Rank),
    /// Its node's server could not be reached.
    #[error("hosts the server of its node, which cannot be reached: {0}")]
    Unreachable(String),
}

impl LostHow {
    /// Whether a connection may have ended so although no rank is known to have died, and this one goes on.
    pub(crate) fn lacks_a_death(&self) -> bool {
        !matches!(self, LostHow::Died(_) | LostHow::Finalized)
    }
}

/// Why a put, get or accumulate failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// There is no such rank. Nothing was sent.
    #[error("{operation} to rank {rank}: the world has {ranks} ranks")]
    NoSuchRank {
        /// What the caller was doing.
        operation: Operation,
        /// The rank asked for.
        rank: Rank,
        /// How many there are.
        ranks: u32,
    },
    /// The rank is no member of the group over which the window was allocated. Nothing was sent.
    #[error("{operation} to rank {rank}: it has no part in window {window}")]
    NotMember {
        /// What the caller was doing.
        operation: Operation,
        /// The rank asked for.
        rank: Rank,
        /// The window.
        window: WindowId,
    },
    /// The bytes do not lie in the target's part of the window. Nothing was sent.
    #[error(
        "{operation} to rank {rank}, window {window}: bytes {offset}..{end} are outside, its part has {window_bytes} bytes"
    )]
    OutsideWindow {
        /// What the caller was doing.
        operation: Operation,
        /// The target.
        rank: Rank,
        /// The window.
        window: WindowId,
        /// First byte asked for.
        offset: u64,
        /// One past the last byte asked for.
        end: u64,
        /// Bytes of the target's part.
        window_bytes: u64,
    },
    /// The window was freed. Nothing was sent.
    #[error("{operation} to rank {rank}: window {window} (generation {generation}) was freed")]
    FreedWindow {
        /// What the caller was doing.
        operation: Operation,
        /// The target.
        rank: Rank,
        /// The window.
        window: WindowId,
        /// Which use of its identity was meant.
        generation: Generation,
    },
    /// The two sides do not have the same number of bytes, or the local side is not that long. Nothing was sent.
    #[error("{operation} to rank {rank}: the local side has {local_bytes} bytes, the remote side {remote_bytes}")]
    LengthMismatch {
        /// What the caller was doing.
        operation: Operation,
        /// The target.
        rank: Rank,
        /// Bytes of the local side.
        local_bytes: u64,
        /// Bytes of the remote side.
        remote_bytes: u64,
    },
    /// A strided or vector description makes no sense. Nothing was sent.
    #[error("{operation} to rank {rank}: {reason}")]
    BadShape {
        /// What the caller was doing.
        operation: Operation,
        /// The target.
        rank: Rank,
        /// What is wrong with it.
        reason: longarm_proto::ShapeError,
    },
    /// The element type has no such operation (a minimum of complex numbers, say). Nothing was sent.
    #[error("accumulate to rank {rank}: this operation does not exist for this element type")]
    NoSuchKernel {
        /// The target.
        rank: Rank,
    },
    /// The target refused a request, which may be an earlier one without a reply of its own. If its server did, nothing of the
    /// operation was applied; if its RDMA device did, the first pieces of a long transfer may have been.
    #[error("{operation} to rank {rank} was refused by the server of node {node}: {refusal} (detail {detail})")]
    Refused {
        /// What the caller was doing.
        operation: Operation,
        /// The target.
        rank: Rank,
        /// The node that refused.
        node: NodeId,
        /// Why.
        refusal: Refusal,
        /// A number that explains it.
        detail: u64,
    },
    /// The connection to the node's RDMA device broke under a put, which may be an earlier one that nobody waited for, and nobody knows
    /// any more whether it was done. Any part of its bytes may have arrived. It is not repeated: that could undo what others wrote
    /// there meanwhile.
    #[error(
        "{operation} to rank {rank}: the connection to the RDMA device of node {node} broke, and nobody knows whether a put \
         was done, as that device does not say what it has taken; read what is there, and put it again if that is right"
    )]
    Doubtful {
        /// What the caller was doing.
        operation: Operation,
        /// The target.
        rank: Rank,
        /// Its node.
        node: NodeId,
    },
    /// This node's part of the window could not be mapped. Nothing was sent.
    #[error("{operation} to rank {rank}: window {window} cannot be mapped: {reason}")]
    Unmappable {
        /// What the caller was doing.
        operation: Operation,
        /// The target.
        rank: Rank,
        /// The window.
        window: WindowId,
        /// What the system or the node's server said.
        reason: String,
    },
    /// Memory that is in no window is reached by ranks of the same node only. Nothing was sent.
    #[error(
        "{operation} to rank {rank}: it is on another node, and exposed memory is reached only from its own node; use a window"
    )]
    OtherNode {
        /// What the caller was doing.
        operation: Operation,
        /// The target.
        rank: Rank,
    },
    /// The bytes do not lie in what the target has exposed. Nothing was sent.
    #[error(
        "{operation} to rank {rank}: bytes {offset}..{end} are outside the {exposed_bytes} bytes that it has exposed"
    )]
    OutsideExposed {
        /// What the caller was doing.
        operation: Operation,
        /// The target.
        rank: Rank,
        /// First byte asked for.
        offset: u64,
        /// One past the last byte asked for.
        end: u64,
        /// Bytes that the target has exposed.
        exposed_bytes: u64,
    },
    /// The system does not let this process reach memory of the target's process. Some of the bytes may have arrived.
    #[error("{operation} to rank {rank}: the system does not reach its memory: {reason}")]
    Unattachable {
        /// What the caller was doing.
        operation: Operation,
        /// The target.
        rank: Rank,
        /// What it said, and what to do.
        reason: String,
    },
    /// The target is gone. Any part of the bytes may have arrived.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// Why a read-modify-write failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RmwError {
    /// The offset is no multiple of the word's size. Nothing was sent.
    #[error("rmw at rank {rank}, window {window}: offset {offset} is not a multiple of {word_bytes}")]
    Misaligned {
        /// The target.
        rank: Rank,
        /// The window.
        window: WindowId,
        /// Where the word was said to be.
        offset: u64,
        /// Size of the word in bytes.
        word_bytes: u64,
    },
    /// Anything that can be wrong with the target.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

impl From<Lost> for RmwError {
    fn from(lost: Lost) -> RmwError {
        RmwError::Transfer(lost.into())
    }
}

/// Why a read-modify-write by an RDMA device failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceRmwError {
    /// Nothing was done. The connection to the node is none between devices, because one of them has failed too often, or the
    /// node's server could not register the words, which it has said.
    #[error(
        "{operation} to rank {rank} (node {node}): nothing was done: no device reaches its words, because the connection has fallen back to TCP or the server could not register them, which a warning has said"
    )]
    NotReached {
        /// What the caller was doing.
        operation: Operation,
        /// The target.
        rank: Rank,
        /// Its node.
        node: NodeId,
    },
    /// It was done, and is not done again. The connection broke while the old value was on its way.
    #[error(
        "{operation} to rank {rank} (node {node}): the connection broke; it was done, but the old value is lost: do not repeat it, load the word"
    )]
    ValueLost {
        /// What the caller was doing.
        operation: Operation,
        /// The target.
        rank: Rank,
        /// Its node.
        node: NodeId,
    },
    /// The connection broke, and the node has forgotten how far it went: it was done once or not at all.
    #[error(
        "{operation} to rank {rank} (node {node}): the connection broke, and the node has forgotten how far it went: it was done once or not at all"
    )]
    Unknown {
        /// What the caller was doing.
        operation: Operation,
        /// The target.
        rank: Rank,
        /// Its node.
        node: NodeId,
    },
    /// Anything that can be wrong with the target. If it is lost it was done once or not at all.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

impl From<Lost> for DeviceRmwError {
    fn from(lost: Lost) -> DeviceRmwError {
        DeviceRmwError::Transfer(lost.into())
    }
}

/// Why a mutex call failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MutexError {
    /// The host has no mutex of this number.
    #[error("rank {host} hosts {count} mutexes, there is no number {number}")]
    UnknownMutex {
        /// The rank that was said to host it.
        host: Rank,
        /// The number asked for.
        number: u64,
        /// How many the host has.
        count: u64,
    },
    /// The caller does not hold the mutex that it unlocks. Nothing changed.
    #[error("mutex {number} of rank {host} is not held by this rank")]
    NotHeld {
        /// The host.
        host: Rank,
        /// The mutex.
        number: u64,
    },
    /// The caller holds the mutex already; mutexes are not recursive. Nothing changed.
    #[error("mutex {number} of rank {host} is held by this rank already")]
    HeldAlready {
        /// The host.
        host: Rank,
        /// The mutex.
        number: u64,
    },
    /// Anything that can be wrong with the target.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

impl From<Lost> for MutexError {
    fn from(lost: Lost) -> MutexError {
        MutexError::Transfer(lost.into())
    }
}

/// Why waiting for a word failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The word does not lie in this rank's part of the window.
    #[error("wait: word at {offset} is outside this rank's part of window {window}, which has {window_bytes} bytes")]
    OutsideWindow {
        /// The window.
        window: WindowId,
        /// Where the word was said to be.
        offset: u64,
        /// Bytes of this rank's part.
        window_bytes: u64,
    },
    /// The offset is no multiple of the word's size.
    #[error("wait: offset {offset} in window {window} is not a multiple of {word_bytes}")]
    Misaligned {
        /// The window.
        window: WindowId,
        /// Where the word was said to be.
        offset: u64,
        /// Size of the word in bytes.
        word_bytes: u64,
    },
    /// Anything that can be wrong with the window.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// A rank of the job died; it may have been the one that was to change the word.
    #[error(transparent)]
    Lost(#[from] Lost),
}
