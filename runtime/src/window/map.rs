//! Memory of a node that its server hands over.

use std::os::fd::OwnedFd;
use std::sync::Once;

use longarm_shm::{NodeWindow, SegmentError};

use crate::stage;

/// Maps a window of this node where its ranks have agreed to, or anywhere where that cannot be.
pub(crate) fn map(
    file: OwnedFd,
    address: Option<u64>,
    part_bytes: &[u64],
    room: Option<u64>,
) -> Result<NodeWindow, SegmentError> {
    static WARNED: Once = Once::new();
    let memory = NodeWindow::attach_at(file, part_bytes, room, address)?;
    // All ranks of a simulation are in one process, where one of them alone can have a window at that address.
    if memory.bytes() > 0 && stage::here().is_none() && !address.is_some_and(|address| memory.is_at(address)) {
        WARNED.call_once(|| {
            tracing::warn!(
                bytes = memory.bytes(),
                address = address.map(|address| format!("{address:#x}")),
                "a window is not mapped where the other ranks of this node map it: calls work as ever, but a program \
                 that uses the addresses of its neighbours directly must not"
            );
        });
    }
    Ok(memory)
}
