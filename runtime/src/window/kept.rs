//! Memory of this node that windows have one after the other, as this process has it mapped.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use longarm_proto::{Generation, WindowId};
use longarm_shm::{NodeWindow, SegmentError};
use parking_lot::Mutex;

use super::map::map;

/// Sizes of a node's parts, and how much room each has in memory that other windows follow in.
pub(super) struct PartsHere {
    pub(super) bytes: Vec<u64>,
    pub(super) room: Option<u64>,
}

/// Once mapped, such memory stays mapped while the world lasts. It is told apart by the window that it was made for.
pub(crate) struct KeptMemory(Mutex<HashMap<(WindowId, Generation), NodeWindow>>);

impl KeptMemory {
    pub(crate) fn new() -> KeptMemory {
        KeptMemory(Mutex::new(HashMap::new()))
    }

    /// A window in memory that this process has mapped. `None`: it has not.
    pub(super) fn window(&self, made_for: (WindowId, Generation), parts: &PartsHere) -> Option<NodeWindow> {
        self.0.lock().get(&made_for)?.again(&parts.bytes)
    }

    /// Maps a window's memory, and keeps it mapped if others follow in it.
    pub(super) fn map(
        &self,
        made_for: (WindowId, Generation),
        parts: &PartsHere,
        (file, address): (OwnedFd, Option<u64>),
    ) -> Result<NodeWindow, SegmentError> {
        let memory = map(file, address, &parts.bytes, parts.room)?;
        if let Some(kept) = memory.again(&parts.bytes) {
            self.0.lock().insert(made_for, kept);
        }
        Ok(memory)
    }
}
