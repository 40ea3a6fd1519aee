//! What registers memory with a device, as the cache calls it.

use crate::error::RegisterError;

/// Registers memory with a device.
///
/// It is called without any lock that a hit needs, one call at a time for each cache. Neither it nor the drop of its
/// handles may call the cache.
pub trait Registrar: Send + Sync + 'static {
    /// A registration. Dropping it deregisters.
    type Handle: Send + Sync + 'static;

    /// Registers whole pages.
    ///
    /// # Errors
    /// [`RegisterError::Limit`] has the cache let go of what is unused and ask again.
    fn register(&self, start: usize, bytes: usize) -> Result<Self::Handle, RegisterError>;
}
