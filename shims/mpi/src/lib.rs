//! The MPI that is already in the process.
//!
//! ```text
//!   program ── links ──▶ libmpi (one of three ABIs)
//!      │                    ▲ dlsym, at run time
//!   libarmci ── Mpi::find ──┘
//! ```
//!
//! longarm is compiled against no MPI. What MPI the program brings is looked up among the loaded libraries, so that one
//! build serves all of them:
//!
//! | ABI | implementations | handles in C |
//! |---|---|---|
//! | [`Abi::Mpich`] | MPICH, Intel MPI, MVAPICH, Cray MPICH | `int` |
//! | [`Abi::OpenMpi`] | Open MPI | pointers to exported objects |
//! | [`Abi::Standard`] | `libmpi_abi.so` of MPI 5 | pointer-sized, small fixed values |
//!
//! An MPI that is linked into the executable as an archive is found only if the executable exports its symbols
//! (`-rdynamic`).
//!
//! # Threads
//!
//! A program may use MPI below `MPI_THREAD_MULTIPLE`. So every call happens on the thread that calls this crate, and
//! longarm calls it where it joins and leaves the job, in the creation of groups, and to ask for rank and size before there
//! is a job. These are calls that the program makes itself, from a thread where it may call MPI. No thread of longarm's own
//! ever does, but for the abort that ends the job.
//!
//! # Errors
//!
//! No error handler of the program's communicators is touched. [`Mpi::duplicate`] makes a communicator whose errors are
//! returned; work on that one, and leave the program's own to the program.
#![deny(unsafe_op_in_unsafe_fn)]

mod abi;
mod calls;
mod environment;
mod error;
mod join;
mod locate;
mod mpi;
mod operations;
mod scope;

pub use abi::Abi;
pub use environment::{started_by_process_manager, told_by_manager};
pub use error::MpiError;
pub use join::{Joined, finalize_own, join, leave, owns_mpi};
pub use mpi::{Communicator, Mpi};
