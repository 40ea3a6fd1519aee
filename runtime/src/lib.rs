//! One-sided communication: a rank reads, writes and updates the memory of another rank while that rank computes.
//!
//! ```
//! use longarm::prelude::*;
//!
//! let world = longarm::init()?; // a rank of `longarm run -n P`, or a world of one
//! let window = world.allocate_collective::<f64>(100)?; // 100 elements at every rank
//! for rank in 0..world.size() {
//!     window.accumulate(rank, 0, Update::Sum, &[1.0])?; // nobody has to help
//! }
//! world.barrier_collective()?;
//! assert_eq!(window.get_one(world.rank(), 0)?, f64::from(world.size()));
//! world.finalize()?;
//! # Ok::<(), longarm::Error>(())
//! ```
//!
//! What ends in `_collective` is called by all members of a group, in the same order; everything else is one rank's own affair.
//!
//! - [`World`] and [`Group`]: the ranks that take part; collectives, quiet and fence.
//! - [`Window`]: memory of all ranks; put, get, accumulate, read-modify-write, signals.
//! - [`Selection`]: which elements a transfer means: an index, a range, a [`Patch`], a list of [`Segment`]s.
//! - [`Window::put_many`], [`Window::update_many`], [`Window::get_many`]: single elements of many ranks in one call.
//! - [`OwnPart`]: a rank's own part, worked on in place.
//! - [`Handle`], [`ManyHandle`], [`World::scope`]: the same without waiting.
//! - [`Started`]: collectives, quiet, waits and locks that are awaited.
//! - [`Mutexes`], [`Heap`], [`Message`], [`Question`]: locks, symmetric memory, code that runs elsewhere.
//! - [`DeviceWords`]: words that RDMA devices update, and nobody else touches.
//! - [`Exposed`]: vectors that are no windows, for the ranks of the node.
//! - [`init_inside`], [`init_shared`]: inside an MPI program, or beside an interface in C.
//! - [`Error`]: what every error becomes by `?`; the module [`error`] has an enum for each kind of call.
//! - [`config`]: what the environment says, or the program by [`init_with`].
//!
//! Ranks of one node share memory: a put is a store. Ranks of other nodes are reached through the server thread of
//! their node. Nothing in a program depends on which it is.
#![forbid(unsafe_code)]

mod any_error;
#[doc(hidden)] // The launcher's half of the start is built on it.
pub mod bootstrap;
mod collective;
pub mod config;
mod device_words;
mod element;
pub mod error;
mod exposed;
#[doc(hidden)] // The interfaces in C are built on it.
pub mod ffi;
mod group;
mod group_area;
mod handle;
mod heap;
mod inner;
mod logging;
mod message;
mod mutex;
#[doc(hidden)] // `longarm info` shows it.
pub mod network;
mod panics;
mod patch;
pub mod prelude;
mod question;
mod scope;
mod selection;
#[doc(hidden)] // The simulator's ranks are made by it.
pub mod simulated;
mod stage;
mod started;
#[doc(hidden)] // `longarm info` shows it.
pub mod topology;
mod window;
mod world;

pub use any_error::Error;
pub use bootstrap::Exchange;
pub use bootstrap::control::{KindTraffic, PeerTraffic};
#[doc(hidden)] // It is fuzzed: other ranks send what it takes apart.
pub use collective::{respell_claims, unpack as unpack_bodies};
pub use device_words::DeviceWords;
pub use element::{Complex32, Complex64, Element, Number, Reduction, Word};
pub use exposed::Exposed;
pub use group::Group;
pub use handle::{Handle, wait_all, wait_any, wait_some};
pub use heap::{HEAP_ALIGNMENT, Heap, HeapBlock};
pub use logging::log_to_stderr;
pub use message::Message;
pub use mutex::{MutexGuard, Mutexes};
pub use patch::{DIMENSIONS_MAX, Patch, PatchPair, Segment};
pub use question::Question;
pub use scope::Scope;
pub use selection::{Extent, Selection};
pub use started::{Started, lock::Locking, try_lock::TryLocking};
pub use window::{Compare, ManyHandle, OwnPart, Update, Window};
pub use world::start::{init, init_inside, init_inside_shared, init_shared, init_with, is_initialized, is_launched};
pub use world::{Death, World};

/// What calls of several kinds give.
///
/// ```
/// fn main() -> longarm::Result<()> {
///     let world = longarm::init()?;
///     world.barrier_collective()?;
///     Ok(world.finalize()?)
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The program of this crate's README, compiled and run. Those of the other pages are tests of `docs/programs`.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmePage;
