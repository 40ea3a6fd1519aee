//! Collectives on much data: each member lays out what it has in its staging buffer (`staging.rs`), and gets
//! what it needs from those of the others. What is more than a staging buffer holds goes in rounds, in one half of it after the other;
//! before a half is used again all members have met, after getting what was there. At the end they meet as well: no message is
//! left behind for a rank that goes on to compute, and a staging buffer that is given back is read by nobody.

use longarm_client::TransferError;
use zerocopy::IntoBytes;

use super::agree::Load;
use super::call::Call;
use super::light::combine;
use super::signature::Signature;
use super::staging::{Staged, Want, take};
use super::staging_buffer::HALF_BYTES;
use crate::element::{Number, Reduction};
use crate::error::CollectiveError;
use crate::group::Group;

/// From how many bytes on, in a world of one node and of several: below, messages are quicker. The bytes are as many at all
/// members, or all are told the largest.
const BYTES_MIN: [usize; 2] = [8 << 10, 32 << 10];
/// The same for reductions, which have another barrier.
const REDUCED_BYTES_MIN: [usize; 2] = [8 << 10, 128 << 10];
/// How many members may get all bytes from one: for more, a tree of messages is quicker.
const TAKERS_MAX: u32 = 8;
/// How small a member's share of a reduction may become.
const SHARE_BYTES_MIN: usize = 4 << 10;
/// How small the block for each other member may become in an all-to-all.
const BLOCK_BYTES_MIN: usize = 4 << 10;
/// Blocks of a staging buffer begin at such bounds.
const LINE_BYTES: usize = 64;

impl Group {
    /// Of two bounds the one that holds in this world.
    fn bound(&self, [here, elsewhere]: [usize; 2]) -> usize {
        if self.inner.client.layout().node_count() == 1 { here } else { elsewhere }
    }

    pub(super) fn suits_stages(&self, bytes: usize) -> bool {
        self.size() > 1 && bytes >= self.bound(BYTES_MIN)
    }

    pub(super) fn suits_staged_broadcast(&self, bytes: usize) -> bool {
        self.suits_stages(bytes) && self.size() <= TAKERS_MAX
    }

    pub(super) fn suits_staged_alltoall(&self, bytes: usize) -> bool {
        self.suits_stages(bytes) && block_bytes(self.size()) >= BLOCK_BYTES_MIN
    }

    pub(super) fn suits_staged_reduction(&self, bytes: usize) -> bool {
        self.size() > 1 && bytes >= self.bound(REDUCED_BYTES_MIN) && bytes / self.size() as usize >= SHARE_BYTES_MIN
    }

    /// The staging buffer, unless so little is to be moved at most that messages are quicker.
    pub(super) fn unless_little<'a>(&self, staged: Option<Staged<'a>>, most: usize) -> Option<Staged<'a>> {
        if self.suits_stages(most) {
            return staged;
        }
        staged.into_iter().for_each(Staged::give_back);
        None
    }

    /// Whether the members can tell each other so many lengths with the agreement.
    pub(super) fn tells_lengths(&self, lengths: usize) -> bool {
        self.size() > 1 && self.is_light_for_all(lengths * size_of::<u64>())
    }
}

/// The part of so many bytes that a round of pieces of `piece` bytes takes.
fn part(round: usize, piece: usize, bytes: usize) -> std::ops::Range<usize> {
    (round * piece).min(bytes)..((round + 1) * piece).min(bytes)
}

/// Where the half of a round begins.
fn half(round: usize) -> usize {
    round % 2 * HALF_BYTES
}

/// How many bytes for each other member fit into a half.
fn block_bytes(size: u32) -> usize {
    HALF_BYTES / (size as usize - 1) / LINE_BYTES * LINE_BYTES
}

/// Lays out a round of an all-to-all.
pub(super) fn lay_out_shares(
    staged: &Staged<'_>,
    (me, size): (u32, u32),
    shares: &[&[u8]],
    round: usize,
) -> Result<(), TransferError> {
    let block = block_bytes(size);
    (0..size).filter(|to| *to != me).try_for_each(|to| {
        let share = shares[to as usize];
        staged.lay_out(half(round) + block_of(me, to, size) * block, &share[part(round, block, share.len())])
    })
}

/// Lays out a round of bytes that all get.
pub(super) fn lay_out_all(staged: &Staged<'_>, bytes: &[u8], round: usize) -> Result<(), TransferError> {
    staged.lay_out(half(round), &bytes[part(round, HALF_BYTES, bytes.len())])
}

/// Which block of a member's staging buffer is for which other one.
fn block_of(from: u32, to: u32, size: u32) -> usize {
    ((to + size - from - 1) % size) as usize
}

/// Lays out the first round of a reduction.
pub(super) fn lay_out_elements<T: Number>(staged: &Staged<'_>, elements: &[T]) -> Result<(), TransferError> {
    let most = elements.len().min(HALF_BYTES / size_of::<T>());
    staged.lay_out(0, elements[..most].as_bytes())
}

impl<'a> Call<'a> {
    /// The staging buffer of this rank, with the first round laid out, if it is to be had.
    pub(super) fn stage(&self, lay_out: impl FnOnce(&Staged<'a>) -> Result<(), TransferError>) -> Option<Staged<'a>> {
        take(self.group).filter(|staged| lay_out(staged).is_ok())
    }

    /// As [`Call::begin`]. `Some`: all members have laid out their first round.
    pub(super) fn agree_staged(
        &mut self,
        mine: Signature,
        load: &mut Load,
        staged: Option<Staged<'a>>,
    ) -> Result<Option<Staged<'a>>, CollectiveError> {
        let agreed = self.begin(mine, load, staged.is_some());
        match (agreed, staged) {
            (Ok(true), staged) => Ok(staged),
            (Ok(false), staged) => {
                staged.into_iter().for_each(Staged::give_back);
                Ok(None)
            }
            (Err(mismatch @ CollectiveError::Mismatch { .. }), staged) => {
                staged.into_iter().for_each(Staged::give_back);
                Err(mismatch)
            }
            // Others may have agreed, and get from it.
            (Err(error), _) => Err(error),
        }
    }

    /// All members meet.
    fn meet_again(&mut self) -> Result<(), CollectiveError> {
        let mut distance = 1;
        while distance < self.size() {
            let from = (self.me() + self.size() - distance) % self.size();
            let _expecting = self.expect(from);
            self.send((self.me() + distance) % self.size(), &[])?;
            self.receive_exactly(from, 0)?;
            distance *= 2;
            self.next_step();
        }
        Ok(())
    }

    /// All have got what they wanted.
    fn finish(&mut self, staged: Staged<'_>) -> Result<(), CollectiveError> {
        self.meet_again()?;
        staged.give_back();
        Ok(())
    }

    /// All get the bytes of the root, whose first round is laid out.
    pub(super) fn broadcast_staged(
        &mut self,
        staged: Staged<'_>,
        root: u32,
        bytes: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let is_root = self.me() == root;
        for round in 0..bytes.len().div_ceil(HALF_BYTES) {
            if round > 0 {
                self.meet_again()?;
            }
            if is_root {
                // The others get this round from the other half meanwhile.
                lay_out_all(&staged, bytes, round + 1)?;
            } else {
                let part = part(round, HALF_BYTES, bytes.len());
                let target = &mut bytes[part];
                staged.fetch(vec![Want { place: root, offset: half(round), target }])?;
            }
        }
        self.finish(staged)
    }

    /// All get what all have, whose first round is laid out. `all`: where that of each member goes.
    pub(super) fn allgather_staged(
        &mut self,
        staged: Staged<'_>,
        mine: &[u8],
        all: &mut [&mut [u8]],
    ) -> Result<(), CollectiveError> {
        let me = self.me();
        all[me as usize].copy_from_slice(mine);
        let most = all.iter().map(|bytes| bytes.len()).max().unwrap_or(0);
        for round in 0..most.div_ceil(HALF_BYTES) {
            if round > 0 {
                lay_out_all(&staged, mine, round)?;
                self.meet_again()?;
            }
            let places = (0..).zip(all.iter_mut()).filter(|(place, _)| *place != me);
            let wants = places.map(|(place, bytes)| {
                let part = part(round, HALF_BYTES, bytes.len());
                Want { place, offset: half(round), target: &mut bytes[part] }
            });
            staged.fetch(wants.collect())?;
        }
        self.finish(staged)
    }

    /// Each gets from all what they have for it, the first round of which is laid out. `all`: where that of each goes.
    pub(super) fn alltoall_staged(
        &mut self,
        staged: Staged<'_>,
        shares: &[&[u8]],
        all: &mut [&mut [u8]],
        most: usize,
    ) -> Result<(), CollectiveError> {
        let (me, size) = (self.me(), self.size());
        let block = block_bytes(size);
        all[me as usize].copy_from_slice(shares[me as usize]);
        for round in 0..most.div_ceil(block) {
            if round > 0 {
                lay_out_shares(&staged, (me, size), shares, round)?;
                self.meet_again()?;
            }
            let places = (0..).zip(all.iter_mut()).filter(|(place, _)| *place != me);
            let wants = places.map(|(place, bytes)| {
                let part = part(round, block, bytes.len());
                Want { place, offset: half(round) + block_of(place, me, size) * block, target: &mut bytes[part] }
            });
            staged.fetch(wants.collect())?;
        }
        self.finish(staged)
    }

    /// Each combines a share of every round for all, in the order of the tree from `root`, and lays it out in the other
    /// half; then all get the shares, or the root only. The first round is laid out.
    pub(super) fn reduce_staged<T: Number>(
        &mut self,
        staged: Staged<'_>,
        (root, for_all): (u32, bool),
        reduction: Reduction,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        let round_elements = HALF_BYTES / size_of::<T>();
        let mut pieces = Vec::new();
        for (round, elements) in elements.chunks_mut(round_elements).enumerate() {
            if round > 0 {
                staged.lay_out(0, elements.as_bytes())?;
                self.meet_again()?;
            }
            self.combine_share(&staged, root, reduction, (&mut pieces, elements))?;
            self.meet_again()?;
            if for_all || self.me() == root {
                self.fetch_shares(&staged, elements)?;
            }
        }
        self.finish(staged)
    }

    /// The share of a member in so many elements.
    fn share(&self, count: usize, place: u32) -> std::ops::Range<usize> {
        let (place, size) = (place as usize, self.size() as usize);
        count * place / size..count * (place + 1) / size
    }

    fn combine_share<T: Number>(
        &self,
        staged: &Staged<'_>,
        root: u32,
        reduction: Reduction,
        (pieces, elements): (&mut Vec<T>, &mut [T]),
    ) -> Result<(), CollectiveError> {
        let (me, size) = (self.me(), self.size());
        let share = self.share(elements.len(), me);
        let offset = share.start * size_of::<T>();
        let mine = &mut elements[share];
        pieces.resize(mine.len() * size as usize, T::default());
        let mut wants = Vec::new();
        // The first is the root's.
        for (turn, piece) in (0..).zip(pieces.chunks_exact_mut(mine.len().max(1))) {
            let place = (root + turn) % size;
            if place == me {
                piece.copy_from_slice(mine);
            } else {
                wants.push(Want { place, offset, target: piece.as_mut_bytes() });
            }
        }
        staged.fetch(wants)?;
        if !mine.is_empty() {
            combine(pieces, mine.len(), reduction);
            mine.copy_from_slice(&pieces[..mine.len()]);
        }
        Ok(staged.lay_out(HALF_BYTES + offset, mine.as_bytes())?)
    }

    fn fetch_shares<T: Number>(&self, staged: &Staged<'_>, elements: &mut [T]) -> Result<(), CollectiveError> {
        let (me, count) = (self.me(), elements.len());
        let (mut wants, mut rest, mut offset) = (Vec::new(), elements, HALF_BYTES);
        for place in 0..self.size() {
            let (share, behind) = rest.split_at_mut(self.share(count, place).len());
            let bytes = size_of_val(share);
            if place != me {
                wants.push(Want { place, offset, target: share.as_mut_bytes() });
            }
            (rest, offset) = (behind, offset + bytes);
        }
        staged.fetch(wants)
    }
}
