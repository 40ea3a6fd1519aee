//! Who has a sync area.

use crate::holders::Holders;
use crate::segment::Shareable;
use crate::sync::AtomicU64;

/// See the module.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct AreaState {
    pub(crate) holders: Holders,
    /// No line of the area has a larger number, once all have let go of it.
    pub(crate) base: AtomicU64,
}

const _: () = assert!(size_of::<AreaState>() == 64, "one line each");

// SAFETY: `repr(C)`: two atomics, and padding that nobody reads.
unsafe impl Shareable for AreaState {}
