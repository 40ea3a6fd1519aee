//! Private memory that both sides of a comparison use alike.

use memmap2::{Advice, MmapMut};

use crate::Failure;

/// Zeroed bytes that start on a page. Small pages, as shared memory has them on most machines: what is compared with
/// copies to and from a window may not have an easier time with the address translation.
pub(crate) fn private(bytes: usize) -> Result<MmapMut, Failure> {
    let mut buffer = MmapMut::map_anon(bytes)?;
    // Kernels without huge pages do not know the advice, and do not need it.
    let _ = buffer.advise(Advice::NoHugePage);
    // Touched, so that no page fault falls into a measurement.
    buffer.fill(1);
    Ok(buffer)
}
