//! What the fuzzer's targets do with their bytes.
//!
//! A target is a function of bytes that panics when something is wrong. The programs in `runner/` hand it what libFuzzer
//! chooses; a plain test runs it over everything in `corpus/` and `regressions/`. All bytes that others can send have a
//! target: frames, handshakes, what RDMA devices are agreed on with, a server's whole conversation, a hostile server's answers, what launcher, agents and ranks say
//! to each other, what process managers and batch systems say, the door, configuration.
//!
//! The crate refuses to look inside of what it feeds: it stands where the bytes come in.
#![forbid(unsafe_code)]

mod agents;
mod bodies;
mod bootstrap;
mod choices;
mod config;
mod coordinator;
mod decode;
mod door;
mod handshake;
mod hostile_server;
mod inputs;
#[doc(hidden)]
pub mod mail;
mod managers;
mod node;
mod rdma;
mod relays;
mod rendezvous;
mod responder;
mod router;
mod seeds;
mod trunk;
mod wire;

pub use agents::agent_frames;
pub use bodies::{collective_bodies, collective_claims};
pub use bootstrap::control;
pub use config::config;
pub use coordinator::{coordinator, invitation};
pub use decode::{reply_decode, request_decode};
pub use door::door;
pub use handshake::{handshake_bytes, handshake_edits};
pub use hostile_server::hostile_server;
pub use inputs::Seeds;
pub use mail::mail_head;
pub use managers::{host_file, host_list, manager_environment, pmi1_conversation, process_mapping};
pub use rdma::{rdma_note, rdma_record, rdma_stream};
pub use relays::relay;
pub use rendezvous::rendezvous;
pub use responder::responder;
pub use router::router;
pub use seeds::{TARGETS, Target};
pub use trunk::trunk_record;
