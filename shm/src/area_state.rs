//! Who has a sync area.

use crate::holders::Holders;
use crate::segment::Shareable;
use crate::sync::AtomicU64;

/// See the module.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct AreaState {
    pub(crate) holders: Holders,
    /// Keeps the next field aligned.
    reserved: u32,
    /// No line of the area has a larger number, once all have let go of it.
    pub(crate) base: AtomicU64,
}

// SAFETY: `repr(C)`: two atomics, a number that nobody touches between them, and padding that nobody reads.
unsafe impl Shareable for AreaState {}
