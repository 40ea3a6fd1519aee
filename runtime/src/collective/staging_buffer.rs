//! The memory that a rank lays things out in for the others, as its world keeps it.

use std::sync::OnceLock;

use longarm_client::ClientWindow;
use longarm_proto::{AccessKey, Secret};
use parking_lot::Mutex;

/// A staging buffer has two halves: one may be read while the other is written.
pub(super) const HALF_BYTES: usize = 1 << 20;
/// And room for the elements by which slices of one half are larger than even ones, in reductions.
const SLICES_BYTES: usize = 64 << 10;
/// Where the two slots begin in which loads of the world are laid out (`laid_out.rs`).
pub(super) const WORLD_SLOTS_OFFSET: usize = 2 * HALF_BYTES + SLICES_BYTES;
/// Of one of them.
pub(super) const WORLD_SLOT_BYTES: usize = 64 << 10;
pub(super) const PART_BYTES: u64 = (WORLD_SLOTS_OFFSET + 2 * WORLD_SLOT_BYTES) as u64;

/// The staging buffer of this rank, and its way to those of the others.
pub(crate) struct StagingBuffer {
    pub(super) key: AccessKey,
    pub(super) state: Mutex<State>,
    /// `None` inside: it could not be made.
    pub(super) window: OnceLock<Option<ClientWindow>>,
}

pub(super) enum State {
    Free,
    /// By a collective; nothing else may be written.
    Taken,
    /// Somebody may get from it for ever.
    Spoilt,
}

impl StagingBuffer {
    /// The staging buffer of a job with this secret.
    pub(crate) fn new(secret: &Secret) -> StagingBuffer {
        let key = secret.access_key("longarm staging buffer of collectives v1");
        StagingBuffer { key, state: Mutex::new(State::Free), window: OnceLock::new() }
    }
}
