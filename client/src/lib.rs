//! The calls a rank makes.
//!
//! ```text
//!                      ┌─ mapped: loads, stores, CPU atomics on the window (same node)
//!   put/get/... ─ path ┼─ by the network's device
//!                      └─ served: endpoint ─ initiator ─ link ⇢ the target node's server
//! ```
//!
//! [`Client`] is one rank's side of everything. It has three parts, each of which knows only those before it:
//!
//! ```text
//!   local      where ranks run, which are dead, this node's memory
//!   progress   the connections, the threads that sleep in a call, the helper that drives while the program computes
//!   mail       what has come from other ranks and was not asked for yet
//! ```
//!
//! The calls stand above all three, and so does waiting (`progress::waiting`): a thread that waits drives the connections and takes in
//! mail. Every call here works on bytes; the typed interfaces stand above.
//!
//! What this crate refuses to do: send a request that the target would refuse, wait without a bound on the
//! processor, or wait for a rank that is known to be dead.
#![deny(unsafe_code)]

mod accumulate;
mod client;
mod combined;
mod completion;
mod device_rmw;
mod endpoint;
mod error;
mod exposed;
mod flag_barrier;
mod get;
mod local;
mod lock;
pub mod mail;
#[cfg(test)]
mod mock;
mod mutex_line;
mod order;
mod origin_bytes;
mod path;
mod progress;
mod put;
mod rmw;
mod shapes;
mod signal;
mod wakers;
mod window;

pub use client::{Client, ClientOptions};
pub use completion::{Completion, CompletionPart, Outcome, RmwFate};
pub use endpoint::{Endpoint, EndpointOptions};
pub use error::{DeviceRmwError, Lost, LostHow, MutexError, Operation, RmwError, TransferError, WaitError};
pub use exposed::{ExposedMemory, ExposedParts, Notice, Where};
pub use flag_barrier::{NodeBarriers, ShownWords};
pub use local::Local;
pub use local::failures::{Death, Failures};
pub use local::flag_barriers::FlagBarriers;
pub use local::layout::Layout;
pub use lock::{LockBegun, MutexHere, MutexHome, Taken};
pub use origin_bytes::{IssuedBuffer, Lender, LenderMut, Lent, OriginBuffer, OriginBytes, OriginBytesMut, lend};
pub use progress::answers::AnswerDue;
pub use progress::assist::{Assist, AssistTurn, Expecting};
pub use progress::dialing::{Dial, DialStep, Dialing};
pub use progress::processors::use_processors;
pub use progress::time::{RestOn, Time};
pub use progress::waits::{Awaited, COLLECTIVE_NAME_BYTES, Wait, WaitingCall, Whom, unseen, waits_begun};
pub use shapes::Shapes;
pub use signal::{Compare, WordWidth};
pub use window::{AttachError, ClientWindow, Parts, WindowIdentity};
