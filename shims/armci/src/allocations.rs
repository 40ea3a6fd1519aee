//! The segments that calls have made in this process.

use longarm::Window;
use parking_lot::Mutex;

use crate::addresses::Addresses;

/// Where each process has its part of a segment; no entry for parts without bytes.
pub(crate) struct Allocation {
    pub(crate) window: Window<u8>,
    pub(crate) parts: Vec<(u32, usize)>,
}

/// All segments that calls have made in this process.
pub(crate) struct Allocations(pub(crate) Mutex<Vec<Allocation>>);

impl Allocations {
    pub(crate) fn new() -> Allocations {
        Allocations(Mutex::new(Vec::new()))
    }

    /// Forgets all that were not freed, when the job ends: their memory goes with the server.
    pub(crate) fn forget(&self, addresses: &Addresses) {
        for segment in std::mem::take(&mut *self.0.lock()) {
            for (rank, start) in segment.parts {
                addresses.remove(rank, start);
            }
        }
    }
}
