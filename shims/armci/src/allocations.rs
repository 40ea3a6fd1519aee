//! The segments that calls have made in this process.

use std::collections::HashMap;
use std::sync::Arc;

use longarm::ffi::MemoryOfNodes;
use longarm::{Group, Window};
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

    /// Whether each segment of the group has bytes at every process, so that each process can name it by its own address. All see the same.
    pub(crate) fn have_no_empty_part(&self, group: &Group) -> bool {
        let segments = self.0.lock();
        let mut of_group = segments.iter().filter(|segment| segment.window.is_of(group));
        of_group.all(|segment| segment.parts.len() == group.size() as usize)
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

/// Where the parts of all processes are in memory that windows have one after the other: told once for the first of them.
pub(crate) struct Starts(Mutex<HashMap<MemoryOfNodes, Arc<[usize]>>>);

impl Starts {
    /// Memories kept at most. A job has about as many as it had windows at one time.
    const ENTRIES_MAX: usize = 4096;

    pub(crate) fn new() -> Starts {
        Starts(Mutex::new(HashMap::new()))
    }

    pub(crate) fn of(&self, memory: &MemoryOfNodes) -> Option<Arc<[usize]>> {
        self.0.lock().get(memory).map(Arc::clone)
    }

    /// All processes keep the same ones, and drop them at the same call: a process that asked alone would wait for ever.
    pub(crate) fn keep(&self, memory: &MemoryOfNodes, starts: &Arc<[usize]>) {
        let mut kept = self.0.lock();
        if kept.len() == Starts::ENTRIES_MAX {
            kept.clear();
        }
        kept.insert(memory.clone(), Arc::clone(starts));
    }
}
