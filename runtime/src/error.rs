//! Why a call failed: an enum for each kind of call, and the numbers that its variants name.
//!
//! A variant says whose fault it is and what the target may have seen. Every error here becomes [`Error`](crate::Error)
//! by `?`. What can be wrong with a single transfer stands in [`TransferError`].
//!
//! ```
//! use longarm::error::{Rank, TransferError};
//! let world = longarm::init()?;
//! let window = world.allocate_collective::<u8>(16)?;
//! match window.put(0, 10, &[0; 10]) {
//!     Err(TransferError::OutsideWindow { rank, end, window_bytes, .. }) => {
//!         assert_eq!((rank, end, window_bytes), (Rank(0), 20, 16));
//!     }
//!     other => panic!("{other:?}"),
//! }
//! # world.finalize()?;
//! # Ok::<(), longarm::Error>(())
//! ```

use std::fmt;
use std::io;

pub use longarm_client::{DeviceRmwError, Lost, LostHow, MutexError, Operation, RmwError, TransferError, WaitError};
pub use longarm_netmod::NoDeviceRmw;
pub use longarm_proto::{Generation, NodeId, Rank, Refusal, ShapeError, WindowId};
use longarm_server::door::DoorError;

pub use crate::collective::signature::Signature;
pub use crate::config::ConfigError;

longarm_client::debug_as_display!(InitError, CollectiveError, WindowError, MessageError, HeapError);

/// Why [`init`](crate::init) failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// There is a world in this process already; [`init_shared`](crate::init_shared) gives it to another part of the program.
    #[error("longarm was initialised in this process before; longarm::init_shared gives the world that is there")]
    Twice,
    /// A configuration variable cannot be used.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The environment says that this process is one of several, and no way leads to the others: each of them would be a world of
    /// its own.
    #[error(
        "this process is one of several, and no way leads to the others. Start the program with `longarm run`, or have an MPI join \
         them (longarm::init_inside; what is linked with ARMCI's or OpenSHMEM's interface does that by itself). \
         LONGARM_ALONE=yes makes each of them a job of its own.\n{launch}"
    )]
    NoWay {
        /// What was seen and tried.
        launch: Box<crate::bootstrap::launch::Launch>,
    },
    /// Rank 0 cannot listen where the others look for it.
    #[error("rank 0 cannot listen at LONGARM_ROOT={at}: {source}")]
    CoordinatorListen {
        /// Where.
        at: String,
        /// What the system says.
        source: io::Error,
    },
    /// The file with the job's secret cannot be read.
    #[error("LONGARM_SECRET_FILE={path} cannot be read: {source}")]
    SecretFile {
        /// The file.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// The file with the job's secret holds none.
    #[error("LONGARM_SECRET_FILE={path} has {found} bytes, and a secret has {min} to {max} random ones")]
    SecretLength {
        /// The file.
        path: String,
        /// What it has.
        found: usize,
        /// The least.
        min: usize,
        /// The most.
        max: usize,
    },
    /// Rank 0, at which the ranks meet, did not answer in time.
    #[error("rank 0 cannot be reached at {coordinator} within {seconds} s (LONGARM_MEET_TIMEOUT_S): {reason}")]
    Unreached {
        /// Where.
        coordinator: String,
        /// For how long it was tried.
        seconds: u64,
        /// What happened the last time.
        reason: String,
    },
    /// What listens where rank 0 should be does not let this rank in, or is not rank 0.
    #[error("rank 0 at {coordinator} and this rank do not get together: {reason}")]
    NotLetIn {
        /// Where.
        coordinator: String,
        /// Why not.
        reason: String,
    },
    /// Some ranks did not come, or two came as one.
    #[error("the ranks did not come together: {reason}")]
    NotTogether {
        /// Which ranks are missing, or what else is wrong.
        reason: String,
    },
    /// The connection over which the ranks meet cannot be used.
    #[error("the ranks meet at rank 0, and the connection to it fails: {0}")]
    Coordinator(io::Error),
    /// The launcher's variable names no descriptor.
    #[error("LONGARM_CONTROL_FD names no open descriptor; start the program with `longarm run`, or unset it")]
    BadControlVariable,
    /// The connection to the launcher was used before in this process, by another copy of longarm: several libraries in one
    /// program may each have brought one along.
    #[error(
        "this process has joined its job before, perhaps by another copy of longarm: a program that uses several of its \
         interfaces links -llongarm, which has them all, in place of their own libraries"
    )]
    JoinedBefore,
    /// The launcher cannot be talked to.
    #[error("the launcher cannot be reached: {0}")]
    Launcher(io::Error),
    /// The launcher speaks another version.
    #[error("the launcher speaks version {found} of the control messages; use the longarm command of this release")]
    LauncherVersion {
        /// What it speaks.
        found: u32,
    },
    /// The launcher said something that is no message.
    #[error("the launcher said something that is not a message")]
    LauncherGarbled,
    /// A rank died before the world was complete.
    #[error("rank {rank} {how} before the world was complete")]
    Died {
        /// The rank.
        rank: u32,
        /// How it ended.
        how: String,
    },
    /// The job that longarm was to join could not exchange what the ranks have to know.
    #[error("the ranks could not tell each other where they are: {reason}")]
    Exchange {
        /// What it said.
        reason: String,
    },
    /// The ranks are on several machines, and no address of this one leads to others.
    #[error(
        "this machine has no address that other machines reach; set LONGARM_INTERFACE to one of what it has: {there}"
    )]
    NoInterface {
        /// Its interfaces and their addresses.
        there: String,
    },
    /// LONGARM_INTERFACE asks for what this machine does not have, or what leads to no other machine.
    #[error(
        "LONGARM_INTERFACE asks for {asked}, and this machine has no such interface that is up and that the others of the job \
         could reach; it has {there}"
    )]
    NoSuchInterface {
        /// What is asked for.
        asked: String,
        /// The interfaces that there are, and their addresses.
        there: String,
    },
    /// The server cannot listen.
    #[error("the server of this node cannot listen (LONGARM_INTERFACE says where): {0}")]
    Listen(longarm_netmod::LinkError),
    /// The network that LONGARM_NETMOD asks for cannot be used.
    #[error("the network that LONGARM_NETMOD asks for cannot be used: {reason}")]
    Network {
        /// Why, and what to do.
        reason: String,
    },
    /// The server of this node cannot be made.
    #[error(transparent)]
    Engine(#[from] longarm_server::EngineError),
    /// The server of this node cannot be reached.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// The shared memory of this node cannot be made or mapped.
    #[error("the shared segment of this node: {0}")]
    Segment(#[from] longarm_shm::SegmentError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// No random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// The first barrier failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

/// Why a collective failed.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// The members did not all make the same call. Every member gets this error, and no data has moved.
    #[error("{mine} was called here, but rank {rank} called {theirs}")]
    Mismatch {
        /// What this rank called.
        mine: Signature,
        /// A rank that called something else.
        rank: Rank,
        /// What that one called.
        theirs: Signature,
    },
    /// This process is a child of the one that joined the job, which goes on there.
    #[error("this process is a child of a fork: the world is that of its parent, and only the parent can finalize it")]
    ForkedCopy,
    /// What a member said of the memory that it exposes is not so: the exchange mixed something up.
    #[error("a member's notice of its exposed memory is broken")]
    BrokenNotice,
    /// A member sent something else than this collective sends. The call has failed here; what the others make of it is unknown,
    /// and the group is to be used no more.
    #[error(
        "rank {rank} (node {node}) sent {found} bytes in {operation}, where {due} were due: it does not do what the others do"
    )]
    BadMessage {
        /// The rank that sent it, or passed it on.
        rank: Rank,
        /// Its node.
        node: NodeId,
        /// What this rank called.
        operation: String,
        /// How many bytes came.
        found: u64,
        /// How many were due.
        due: String,
    },
    /// A member says that it has more than there is memory for.
    #[error("rank {rank} (node {node}) has {bytes} bytes for {operation}, for which there is no memory here")]
    NoRoom {
        /// The rank that said so.
        rank: Rank,
        /// Its node.
        node: NodeId,
        /// What this rank called.
        operation: String,
        /// How many bytes.
        bytes: u64,
    },
    /// The rank that leads this node in this collective failed, and its own call says for what reason: it is of no other rank.
    #[error("rank {rank} (node {node}), which speaks for this node in {operation}, failed, and says itself why")]
    LeaderFailed {
        /// The rank.
        rank: Rank,
        /// Its node, which is this rank's too.
        node: NodeId,
        /// What this rank called.
        operation: String,
    },
    /// An argument makes no sense for this group.
    #[error("{what} is {found}, but the group has {members} members")]
    BadArgument {
        /// Which argument.
        what: &'static str,
        /// Its value.
        found: u64,
        /// Members of the group.
        members: u32,
    },
    /// The memory given for the result is too long or too short. This member sent nothing.
    #[error("the memory has room for {found} elements, but {due} come")]
    WrongRoom {
        /// Elements there is room for.
        found: u64,
        /// Elements of the result.
        due: u64,
    },
    /// This rank is no member of the group.
    #[error("rank {rank} is not in the list of members")]
    NotMember {
        /// This rank.
        rank: Rank,
    },
    /// A list of members names a rank twice or one that does not exist.
    #[error("the list of members names rank {rank} twice, or it does not exist")]
    BadMember {
        /// The rank.
        rank: Rank,
    },
    /// A message could not be sent, or what was issued before could not be completed.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// A member died.
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl CollectiveError {
    /// The rank that is gone, if that is the reason.
    pub(crate) fn lost(&self) -> Option<&Lost> {
        match self {
            CollectiveError::Lost(lost) | CollectiveError::Transfer(TransferError::Lost(lost)) => Some(lost),
            _ => None,
        }
    }
}

/// Why a window could not be allocated or freed. Every member of the group gets an error.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// More than may be asked for.
    #[error("rank {rank} asks for {bytes} bytes, more than LONGARM_WINDOW_BYTES_MAX allows ({bytes_max})")]
    TooLarge {
        /// The rank that asked.
        rank: Rank,
        /// How much.
        bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// The memory of a node could not be made.
    #[error("out of memory: node memory for the window cannot be made by rank {rank}: {reason}")]
    OutOfMemory {
        /// The rank that tried, for all ranks of its node.
        rank: Rank,
        /// What the system said; where another rank tried, a hint to look at the error of that rank.
        reason: String,
    },
    /// The window was freed before.
    #[error("window {window} was freed before")]
    FreedWindow {
        /// The window.
        window: WindowId,
    },
    /// Words that devices update were asked for, and this member's device cannot be used for that. The first such member is told,
    /// to all.
    #[error(
        "device_words_collective failed: rank {rank} (node {node}) {reason}; fetch_add and compare_swap of a window work everywhere"
    )]
    NoDeviceRmw {
        /// The member.
        rank: Rank,
        /// Its node.
        node: NodeId,
        /// Why not.
        reason: NoDeviceRmw,
    },
    /// The node's server cannot be reached or refused.
    #[error("the server of this node: {reason}")]
    Door {
        /// What it said.
        reason: String,
    },
    /// The collective itself failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

/// Why an active message failed.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// More argument words than a message carries.
    #[error("a message carries up to 16 words, not {found}")]
    TooManyArguments {
        /// How many there were.
        found: usize,
    },
    /// There is a handler of this number already.
    #[error("handler {handler} is registered already")]
    HandlerExists {
        /// Its number.
        handler: u32,
    },
    /// The world is finalized: no handler runs any more.
    #[error("handler {handler} cannot be registered: the world is finalized, and no message comes any more")]
    Finalized {
        /// Its number.
        handler: u32,
    },
    /// A reply cannot be replied to.
    #[error("the message is a reply, which cannot be replied to")]
    ReplyToReply,
    /// The message could not be sent.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

/// Why [`World::ask`](crate::World::ask) brought no answer. `E` is the error of the question.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum AskError<E> {
    /// The target has answered with an error.
    #[error("the question was answered with an error")]
    Answered(E),
    /// The question cannot be written as bytes.
    #[error("the question cannot be written as bytes: {reason}")]
    Unwritable {
        /// Why.
        reason: String,
    },
    /// The target could not read the question, or not write its answer: the two ranks do not mean the same by it.
    #[error("rank {rank} could not read the question, or not write the answer: {reason}")]
    UnreadableQuestion {
        /// The target.
        rank: Rank,
        /// What it said.
        reason: String,
    },
    /// The target has sent bytes that are no answer.
    #[error("the answer of rank {rank} cannot be read: {reason}")]
    UnreadableAnswer {
        /// The target.
        rank: Rank,
        /// Why.
        reason: String,
    },
    /// The target has died, or the world has ended, before the answer came. The question may have been answered.
    #[error(transparent)]
    Lost(Lost),
    /// The question was not sent.
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// As its `Display`, and what the target has answered with.
impl<E: fmt::Debug> fmt::Debug for AskError<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::Answered(error) => write!(formatter, "{self}: {error:?}"),
            _ => fmt::Display::fmt(self, formatter),
        }
    }
}

/// Why the heap gave no block.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// No room for it.
    #[error("the symmetric heap has no room for {bytes} bytes (LONGARM_HEAP_BYTES is {heap_bytes})")]
    Exhausted {
        /// What was asked for.
        bytes: usize,
        /// Size of the heap.
        heap_bytes: u64,
    },
    /// Not a power of two.
    #[error("an alignment of {alignment} bytes is not a power of two")]
    BadAlignment {
        /// What was asked for.
        alignment: usize,
    },
    /// The block is not one of this heap, or was freed before.
    #[error("there is no block at offset {offset} of the symmetric heap; was it freed before?")]
    NoSuchBlock {
        /// Where it was said to be.
        offset: usize,
    },
    /// Another rank could not move the contents of a block; its own error says why.
    #[error(
        "rank {rank} could not move the contents of the block, so no rank has; the error that it was given says why"
    )]
    NotMoved {
        /// That rank, their leader.
        rank: Rank,
    },
    /// The ranks did not all make the same call, or one died.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The old contents could not be moved.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}
