//! ARMCI's C interface: `armci.h`, `message.h` and `parmci.h` on top of longarm.
//!
//! ```text
//!   ARMCI_Put (weak) ─ PARMCI_Put ─ boundary ─ job: rank and address → window and offset ─ longarm::ffi
//! ```
//!
//! The headers in `include/` are the contract. The functions here only translate: what C gives as pointers, counts and
//! codes becomes a window, a shape and bytes. What ARMCI remembers from call to call (the groups by number, handles,
//! the mutex set, addresses) stands behind `job`; what does not is named in decision 0012.
//!
//! Return codes are the classic ones for wrong arguments. What no code exists for, an address in no segment above all,
//! ends the job with one line that names the rank, the call and the address.
//!
//! No panic crosses: a function that C calls cannot unwind, so a panic, which only our own bug can cause, ends the
//! process with its message.
#![deny(unsafe_op_in_unsafe_fn)]

mod addresses;
mod allocations;
pub mod alone;
mod arguments;
mod boundary;
mod job;
mod join;
mod names;

pub mod checkpoint;
pub mod data;
pub mod domains;
mod ending;
pub mod gpc;
mod group_table;
pub mod groups;
pub mod memory;
pub mod message;
mod mpi_side;
mod mutex_sets;
pub mod mutexes;
mod notices;
pub mod notify;
mod pools;
mod refusal;
pub mod start;
pub mod stride_iterator;
