//! Updates of words by the node's device: read-modify-writes that no server can do, because a device's are atomic with each other
//! alone.
//!
//! They are begun as other direct transfers are, but wait until they can be posted, and what comes behind them waits too. When the link
//! breaks, one that was not done is begun anew, and one that was done is over: its old value was on its way.
//!
//! Tests: `device_rmw_tests.rs`, with the links of `transfers_tests.rs`.

use longarm_netmod::DeviceRmw;
use longarm_proto::WindowRef;

use super::Endpoint;
use super::begun_rmw::BegunRmw;
use super::request::Driven;
use crate::completion::CompletionPart;
use crate::error::LostHow;

impl Endpoint {
    /// Begins to update a word of the node by its device. The old value ends the part.
    ///
    /// # Errors
    /// Why nothing goes through any more; then nothing was begun.
    pub(crate) fn device_rmw(
        &self,
        target: &WindowRef,
        offset: u64,
        rmw: DeviceRmw,
        part: CompletionPart,
    ) -> Result<Driven, LostHow> {
        let mut state = self.lock();
        if let Some(how) = self.published.broken.get() {
            return Err(how.clone());
        }
        state.transfers.rmw(*target, offset, BegunRmw { rmw, part });
        Ok(self.drive_locked(&mut state, false))
    }

    /// Whether the server may still have to apply what was issued, or to answer it.
    pub(crate) fn has_served(&self) -> bool {
        let state = self.lock();
        // A get was answered when its header came: the server reads the bytes while it sends them.
        state.is_unconfirmed() || !state.is_idle() || state.awaits_data()
    }
}
