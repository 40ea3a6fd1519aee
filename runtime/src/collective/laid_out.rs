//! Loads that are too long for the lines of a barrier, in groups that are on one node: each member lays its own out before it comes to the
//! barrier, and when all have come reads what it wants of those of the others. So they take one barrier, as loads do that fit into a line.
//!
//! Each member has two slots for them, used in turn by the number of the barrier: behind its staging buffer in the world, in the sync area of the group in other groups. A member writes the slot of barrier b only if it knows that all have come
//! to b - 1, or b is the group's first, before which all who had the slot have let go of it. Whoever has come to b - 1 has read what it wanted of b - 2, whose slot it was before: it reads under the lock of its rank's
//! barriers, which it gives back then, so that holds for all its threads, and whatever collectives they make. A member that does not
//! know it, because a death has ended its wait, lays out nothing. Then, and where it has no memory for it, all see so in its line, and send messages.
//!
//! What is written before the barrier is seen behind it, as the words of the lines are (`longarm_shm::flag_barrier`).

use longarm_client::Operation;
use longarm_memory::{Region, RegionMut};
use longarm_shm::SLOT_BYTES;

use super::agree::Load;
use super::call::Call;
use super::elements::LoadBytes;
use super::staging::staging_window;
use super::staging_buffer::{WORLD_SLOT_BYTES, WORLD_SLOTS_OFFSET};
use crate::group::Group;

/// The most that one member gives to all: beyond, it is got from the staging buffer straight to where it belongs.
const ONE_BYTES_MAX: usize = 16 << 10;
/// The most that all give to each, together.
const ALL_BYTES_MAX: usize = 64 << 10;

impl Group {
    /// Whether so many bytes of one member are laid out for all.
    pub(super) fn is_laid_out_for_all(&self, bytes: usize) -> bool {
        (1..=ONE_BYTES_MAX.min(self.room_to_lay_out())).contains(&bytes)
    }

    /// Whether so many bytes of each are laid out for all.
    pub(super) fn is_laid_out_by_all(&self, bytes: usize) -> bool {
        self.is_laid_out_for_all(bytes) && bytes * self.size() as usize <= ALL_BYTES_MAX
    }

    /// Whether shares of so many bytes are laid out, for each member one.
    pub(super) fn is_laid_out_for_each(&self, share_bytes: usize) -> bool {
        (1..=self.room_to_lay_out() / self.size() as usize).contains(&share_bytes)
    }

    /// Bytes that a member can lay out for one barrier.
    fn room_to_lay_out(&self) -> usize {
        match self.can_meet() {
            false => 0,
            true if self.is_world() => WORLD_SLOT_BYTES,
            true => SLOT_BYTES,
        }
    }
}

impl Call<'_> {
    /// Lays this member's load out for the barrier with this number. False: it cannot, or not read those of others.
    pub(super) fn lay_out_load(&self, barrier: u64, load: &Load) -> bool {
        let bytes = load.laid_out();
        let room = self.laid_out_by(self.me(), barrier).filter(|room| bytes.len() <= room.len());
        room.inspect(|room| room.slice(0, bytes.len()).copy_from(Region::from_slice(bytes))).is_some()
    }

    /// What the load is of all members, read from the slots of a barrier to which all have come; `members` have laid it out. Empty if it
    /// cannot be read.
    pub(super) fn read_loads(&self, barrier: u64, load: &Load, members: impl Iterator<Item = u32>) -> LoadBytes {
        let (from, each) = load.wanted(self.me() as usize);
        let most = if matches!(load, Load::OfOne { .. }) { 1 } else { self.size() as usize };
        let mut all = Vec::with_capacity(most * each);
        for member in members {
            let laid_out = self.laid_out_by(member, barrier).filter(|room| from + each <= room.len());
            let Some(laid_out) = laid_out else { return LoadBytes::new() };
            laid_out.slice(from, each).as_region().append_to(&mut all);
        }
        all.into()
    }

    /// Where a member lays its load out for a barrier. `None`: this rank does not reach it.
    fn laid_out_by(&self, member: u32, barrier: u64) -> Option<RegionMut<'_>> {
        if !self.group.is_world() {
            // All members are on this node: their places there are those in the group.
            return self.group.barriers()?.slot(member, barrier);
        }
        let part = staging_window(self.group)?.part_here(Operation::Put, self.member(member)).ok().flatten()?;
        let offset = WORLD_SLOTS_OFFSET + (barrier % 2) as usize * WORLD_SLOT_BYTES;
        part.region_mut(offset as u64, WORLD_SLOT_BYTES as u64).ok()
    }
}
