//! What longarm knows of those who start jobs: clients of process managers, and readers of what batch systems say.
//!
//! ```text
//!   who has started this process      pmi1   pmix   slurm::Step   kubernetes   (munge: who a peer is)
//!   which hosts there are             allocation ── slurm  pbs  lsf  grid_engine  flux
//!   how people write hosts            hostlist   hostfile
//! ```
//!
//! The environment is an argument everywhere ([`Environment`]), and so are the texts of files, so that nothing here depends on
//! where it runs. Clients block; they hold no clock and start no thread. Everything that comes from outside is bounded before memory
//! is made for it: a list of a few bytes does not become gigabytes of names.
//!
//! The crate refuses to choose: which of these is asked first, and what is said where none works, is the caller's.
#![deny(unsafe_code)]

pub mod allocation;
mod environment;
pub mod flux;
pub mod grid_engine;
mod host;
pub mod hostfile;
pub mod hostlist;
pub mod kubernetes;
pub mod lsf;
pub mod munge;
pub mod pbs;
pub mod pmi1;
pub mod pmix;
pub mod slurm;

pub use environment::{Environment, EnvironmentError};
pub use host::{HOSTS_MAX, Host, NAME_BYTES_MAX, SLOTS_MAX};
