//! ARMCI and OpenSHMEM in one library.
//!
//! A program that uses both links this one and not the two of their own: these hold a copy of longarm each, and a process is
//! a rank of one job once. Here both are on the same copy, and share one world, whichever is started first.
#![forbid(unsafe_code)]

pub use {longarm_armci as armci, longarm_shmem as shmem};
