//! PMI-1: the process managers of MPICH (hydra, versions 3 to 5), Intel, Slurm (`srun --mpi=pmi2`) and Flux.
//!
//! ```text
//!   PMI_FD, PMI_RANK, PMI_SIZE   an inherited descriptor       ┐
//!   PMI_PORT, PMI_ID             an address to connect to      ┴─▶ Client ── put, barrier, get, abort, finalize
//! ```
//!
//! One line each way for each request, never two in flight: Slurm reads a command with a single read of 1,024 bytes. Replies are
//! pairs of key and value in any order. Values are bytes: they go as hexadecimal digits, cut into pieces that every manager takes.
//! The store keeps what was put until the job ends, and a key that is put again may not be seen: each exchange has keys of its own.
//!
//! What there is besides (spawning, publishing names, PMI-2's own lines) is not needed and not spoken. A process that has
//! PMI_RANK and neither of the two (`srun --mpi=cray_shasta`) is not one of PMI-1.

mod client;
mod error;
mod limits;
mod line;
mod mapping;
mod value;

pub use client::{Aborter, Client, Maxes, VARIABLES};
pub use error::Pmi1Error;
pub use limits::{LINE_BYTES_MAX, RANKS_MAX, VALUE_BYTES_MAX};
pub use mapping::{MappingError, nodes_of_ranks};
