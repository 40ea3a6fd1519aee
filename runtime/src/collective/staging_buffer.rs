//! The memory that a rank lays things out in for the others, as its world keeps it.

use std::sync::OnceLock;

use longarm_client::ClientWindow;
use longarm_proto::{AccessKey, Secret};
use parking_lot::Mutex;

/// A staging buffer has two halves: one may be read while the other is written. Each has a page more than a MiB: blocks begin at whole lines, and up
/// to 64 of them that fill a MiB go in one round. (`tools/launch/tests/jobs/large_collectives.rs` tests sizes around it.)
pub(super) const HALF_BYTES: usize = (1 << 20) + (4 << 10);
/// And room for the elements by which slices of one half are larger than even ones, in reductions.
const SLICES_BYTES: usize = 64 << 10;
/// Where the two slots begin in which loads of the world are laid out (`laid_out.rs`).
pub(super) const WORLD_SLOTS_OFFSET: usize = 2 * HALF_BYTES + SLICES_BYTES;
/// Of one of them.
pub(super) const WORLD_SLOT_BYTES: usize = 64 << 10;
/// Where the two slots begin in which the world lays out what goes in one round (`staged.rs`).
const ROUND_SLOTS_OFFSET: usize = WORLD_SLOTS_OFFSET + 2 * WORLD_SLOT_BYTES;
/// Of one of them.
const ROUND_SLOT_BYTES: usize = 512 << 10;
pub(super) const PART_BYTES: u64 = (ROUND_SLOTS_OFFSET + 2 * ROUND_SLOT_BYTES) as u64;

/// Which part of a staging buffer a collective lays out in, round by round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Extent {
    /// One half after the other. Before a half is used again all members meet, and at the end as well.
    Halves,
    /// The slot of this one collective of the world: there is one round, and members do not meet behind it.
    Slot { start: usize },
}

impl Extent {
    /// The slot of a collective of the world, by its number.
    pub(super) fn slot_of(sequence: u64) -> Extent {
        Extent::Slot { start: ROUND_SLOTS_OFFSET + (sequence % 2) as usize * ROUND_SLOT_BYTES }
    }

    /// What a round has at most.
    pub(super) fn bytes(self) -> usize {
        match self {
            Extent::Halves => HALF_BYTES,
            Extent::Slot { .. } => ROUND_SLOT_BYTES,
        }
    }

    /// Where a round begins.
    pub(super) fn start(self, round: usize) -> usize {
        match self {
            Extent::Halves => round % 2 * HALF_BYTES,
            Extent::Slot { start } => start,
        }
    }
}

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
