//! OpenSHMEM's C interface: `shmem.h`, `pshmem.h` and `shmemx.h` on top of longarm.
//!
//! ```text
//!   shmem_int_put (weak) ─ pshmem_int_put ─ rma ─ job: PE and address → mapped memory ─ a copy
//!                                                              └ on another node → window and offset ─ longarm::ffi
//! ```
//!
//! The functions that C sees are written by the build script from the table in `table/`; the headers come from the same
//! table. Each of them calls one of the modules here with its own name, by which errors speak of it.
//!
//! Memory of PEs of this node, heap and statics alike, is mapped here, and is read, written and updated in place. What is
//! wrong with a call ends the job with one line that names the PE, the call and the reason.
//!
//! No panic crosses: a function that C calls cannot unwind, so a panic, which only our own bug can cause, ends the process
//! with its message.
#![deny(unsafe_op_in_unsafe_fn)]

mod across;
mod amo;
mod away;
mod between_nodes;
mod boundary;
mod by_puts;
mod collective;
mod context;
mod contexts;
mod exports;
mod fork;
mod heap;
mod hold;
mod info;
mod job;
mod lock;
mod members;
mod nodes;
mod operator;
mod order;
mod pages;
mod process;
mod reduce;
mod rma;
mod segment;
mod setup;
mod shares;
mod signal;
mod size;
mod statics;
mod strided;
mod symmetric_heap;
mod sync_area;
mod team;
mod teams;
mod wait;
mod who;
mod word;
