//! What a process keeps of notices.

use longarm::ffi::sync::{AtomicU64, Ordering};
use longarm::{Window, World};
use parking_lot::RwLock;

use crate::refusal::{Done, Refusal};

/// See the module.
pub(crate) struct Notices {
    /// One word for every process, raised by it.
    pub(crate) window: RwLock<Option<Window<u64>>>,
    /// How many notices this process has sent to each one.
    pub(crate) sent: Box<[AtomicU64]>,
    /// How many it has waited for from each one.
    pub(crate) awaited: Box<[AtomicU64]>,
}

impl Notices {
    pub(crate) fn new(ranks: u32) -> Notices {
        let zeros = || (0..ranks).map(|_| AtomicU64::new(0)).collect();
        Notices { window: RwLock::new(None), sent: zeros(), awaited: zeros() }
    }

    /// Makes the counters. Collective.
    pub(crate) fn prepare(&self, world: &World) -> Done {
        let window = world.allocate_collective::<u64>(self.sent.len())?;
        self.sent.iter().chain(&self.awaited).for_each(|count| count.store(0, Ordering::Relaxed));
        *self.window.write() = Some(window);
        Ok(())
    }

    /// Frees the counters. Collective.
    pub(crate) fn free(&self) -> Done {
        // Not under the lock: while this process waits for the others, its handlers may still ask for the window.
        let window = self.window.write().take();
        window.map_or(Ok(()), |window| Ok(window.free_collective()?))
    }

    pub(crate) fn window(&self) -> Done<Window<u64>> {
        self.window.read().clone().ok_or_else(|| Refusal::fatal("notices are ready between init and finalize"))
    }
}
