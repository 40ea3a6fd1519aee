//! Memory that others may write at any moment: regions, copies, scattered sends and receives.
//!
//! A window of another rank is never Rust memory: no reference, no slice, no value lives in it. What this crate
//! offers instead is a [`Region`] (a pointer and a length) with two things to do: copy bytes in or out by machine
//! code that the compiler cannot look into ([`copy`](copy::copy)), or hand the region to the kernel ([`send`],
//! [`receive`]).
//!
//! It refuses to know what the bytes mean, who else writes them, or when: those are the callers' matters.

pub mod add;
mod attach;
pub mod copy;
mod descriptor;
pub mod grid;
mod huge;
pub mod io;
mod ranges;
pub mod region;
mod signal;
mod unshared;
#[cfg(all(target_arch = "x86_64", not(any(miri, longarm_portable))))]
#[path = "vector_x86_64.rs"]
mod vector;
#[cfg(any(test, all(target_arch = "x86_64", not(any(miri, longarm_portable)))))]
mod walk;

pub use add::{Adder, add_one_f64};
pub use attach::Attached;
pub use copy::{nontemporal_bytes_min, set_nontemporal_bytes_min};
pub use descriptor::adopt_descriptor;
pub use grid::{Grid, Rows, Step};
pub use huge::TakenHugePages;
pub use io::{CALL_BYTES_MAX, REGIONS_MAX, receive, round_trip_us, send};
pub use ranges::{NotTaken, Ranges};
pub use region::{Region, RegionMut};
pub use signal::outlive_signal;
pub use unshared::Unshared;
