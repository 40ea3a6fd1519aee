//! The launcher's own source: a program has no library, and its half of the control messages is pure.

#[path = "../../launch/src/run/plan.rs"]
pub mod plan;
#[path = "../../launch/src/run/rendezvous.rs"]
pub mod rendezvous;
#[path = "../../launch/src/run/said.rs"]
pub mod said;
