//! How longarm nodes reach each other: three traits, one folder a network, one suite that every network passes.
//!
//! ```text
//!  origin                                               target
//!  Caller ──► Netmod::connect ──► Link ⇢ ⇢ Link ◄── Listener::accept ──► Entrance (a Acceptor each)
//!                                │            │
//!                             handshake    handshake        then the caller owns the link
//! ```
//!
//! A [`Link`] moves bytes and knows nothing of what they mean; frames are `proto`'s. [`Caller`] and
//! [`Acceptor`] are the two ends of the only conversation this crate holds itself: the proof that both sides belong
//! to the job; they put encryption around the link where it is asked for. [`Poller`] and [`Waker`] are what a loop sleeps on.
//!
//! The crate refuses to read a clock (deadlines are timer descriptors, or numbers that the caller gives), to retry
//! what failed, and to look at what it carries.
#![forbid(unsafe_code)]

mod accept;
mod alarm;
mod beacon;
mod calls;
mod clock;
mod conformance;
mod dial;
mod direct;
mod direct_conformance;
mod encrypted;
mod entrance;
mod exchange;
pub mod flow;
mod interest;
mod link_conformance;
mod link_error;
mod own_user;
mod poller;
mod refusals;
mod routed;
mod sim;
mod tcp;
mod traits;
mod waker;
mod watching;

pub use accept::{Acceptor, AcceptorStep, Admission, AdmissionError};
pub use beacon::Beacon;
pub use calls::{Call, Calls, Guest, WAY_PATIENCE_MS};
pub use clock::CoarseClock;
pub use conformance::conformance;
pub use dial::{Caller, CallerStep, DialError, Introduction, connect_authenticated};
pub use direct::{
    DEVICE_WORD_BYTES, DeviceRmw, DirectAccess, DirectOutcome, DirectSource, InlinePoll, Loan, NoDeviceRmw, Reach,
    RemoteMemory, Wish,
};
pub use direct_conformance::InPieces;
pub use encrypted::KeyError;
pub use entrance::{Entrance, EntranceOptions, EntranceStep, EntranceTokens, PATIENCE_MS};
pub use interest::{Interest, Ready};
pub use link_error::LinkError;
pub use own_user::is_of_own_user;
pub use poller::Poller;
pub use refusals::Refusals;
pub use routed::{ROUTER_TICK_MS, Routed, RoutedOptions, TRUNK_SESSION};
pub use sim::Sim;
pub use tcp::{Congestion, Interface, SocketBuffers, Tcp, TcpOptions};
pub use traits::{Capabilities, Intake, Link, Listener, Netmod};
pub use waker::Waker;
