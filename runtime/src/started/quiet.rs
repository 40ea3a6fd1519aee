//! Quiets that are started: each runs on a worker, behind those before it.

use std::sync::Arc;

use longarm_client::{Client, TransferError};
use longarm_proto::Rank;
use longarm_shm::sync::{Ordering, fence};

use super::{Started, promise};
use crate::world::World;

impl World {
    /// Starts [`World::quiet`], of what this rank has issued by now: awaited, or waited for, it says that all of it is visible.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u64>(1)?;
    /// window.put_one(0, 0, 7)?;
    /// # futures_lite::future::block_on(async {
    /// world.start_quiet().await?; // at all ranks
    /// world.start_quiet_rank(0).await?; // at one
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// assert_eq!(window.get_one(0, 0)?, 7);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future yields what [`World::quiet`] returns.
    pub fn start_quiet(&self) -> Started<(), TransferError> {
        self.start_quieting(|client| client.quiet())
    }

    /// Starts [`World::quiet_rank`], as [`World::start_quiet`].
    ///
    /// # Errors
    /// The future yields what [`World::quiet_rank`] returns.
    pub fn start_quiet_rank(&self, rank: u32) -> Started<(), TransferError> {
        self.start_quieting(move |client| client.quiet_rank(Rank(rank)))
    }

    fn start_quieting(
        &self,
        quiet: impl FnOnce(&Client) -> Result<(), TransferError> + Send + 'static,
    ) -> Started<(), TransferError> {
        let (started, promised) = promise();
        let inner = Arc::clone(&self.inner);
        // SeqCst fence: as in a quiet, for what this thread has stored on this node; the worker's own comes later.
        fence(Ordering::SeqCst);
        self.inner.workers.start(&self.inner.quiets, move || promised.keep(quiet(&inner.client)));
        started
    }
}
