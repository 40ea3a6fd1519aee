//! Collectives on much data: each member lays out what it has in its staging buffer (`staging.rs`), and gets
//! what it needs from those of the others. What all members on a node need from other nodes comes there once: their leader gets it and
//! lays it out for the others. What is more than a staging buffer holds goes in rounds, in one part of it after the other;
//! before a part is used again all members have met, after getting what was there. At the end they meet as well: no message is
//! left behind for a rank that goes on to compute, and a staging buffer that is given back is read by nobody.
//!
//! In the world they do not meet behind broadcasts, gatherings and all-to-alls of equal lengths that go in one round. Two slots are used in
//! turn: collective s lays out in slot s % 2. A member writes there only if it knows that all have come to s - 1. A member comes to s - 1 after
//! it has got all that it wanted of s - 2, the last user of that slot, because a rank makes one collective of the world after the other; s - 1
//! itself uses the other slot. A member that does not know it, because s - 1 ended with an error, lays out nothing, and all send messages.

use longarm_client::TransferError;

use super::agree::Load;
use super::call::Call;
use super::elements::copy;
use super::nodes::Nodes;
use super::staging::{Buffers, Staged, Want, take};
use super::staging_buffer::Extent;
use crate::error::CollectiveError;
use crate::group::Group;

/// From how many bytes on, in a group on one node, between nodes of one member each, and between those that members share: below, messages
/// are quicker. What is light (`light.rs`) is asked for first. The bytes are as many at all members, or all are told the largest.
const BYTES_MIN: [usize; 3] = [8 << 10, 32 << 10, 4 << 10];
/// The same for reductions, which meet more often.
const REDUCED_BYTES_MIN: [usize; 3] = [8 << 10, 160 << 10, 160 << 10];
/// How small a member's share of a reduction may become.
const SHARE_BYTES_MIN: usize = 4 << 10;
/// How small the piece of each other member may become in a gathering or an all-to-all.
const BLOCK_BYTES_MIN: usize = 4 << 10;
/// Blocks of a staging buffer begin at such bounds.
const LINE_BYTES: usize = 64;

impl Group {
    /// Of these bounds the one that holds for this group: on one node, between nodes of one member each, or between those that members share.
    pub(super) fn bound(&self, [here, elsewhere, shared]: [usize; 3]) -> usize {
        match self.nodes().count() {
            1 => here,
            _ if self.nodes().are_shared() => shared,
            _ => elsewhere,
        }
    }

    pub(super) fn suits_stages(&self, bytes: usize) -> bool {
        self.size() > 1 && bytes >= self.bound(BYTES_MIN)
    }

    pub(super) fn suits_staged_gather(&self, bytes: usize) -> bool {
        self.suits_stages(bytes) && GatherLayout::of(self.nodes(), self.size(), Extent::Halves).suit()
    }

    pub(super) fn suits_staged_alltoall(&self, bytes: usize) -> bool {
        self.suits_stages(bytes) && block_bytes(Extent::Halves, self.size()) >= BLOCK_BYTES_MIN
    }

    pub(super) fn suits_staged_reduction(&self, bytes: usize) -> bool {
        // Those that combine at the same time: the leaders of the nodes, or all where there is one node.
        let shares = if self.nodes().count() > 1 { self.nodes().count() } else { self.size() };
        self.size() > 1 && bytes >= self.bound(REDUCED_BYTES_MIN) && bytes / shares as usize >= SHARE_BYTES_MIN
    }

    /// The staging buffer, unless messages are quicker. All members find the same.
    pub(super) fn if_suited<'a>(&self, staged: Option<Staged<'a>>, is_suited: bool) -> Option<Staged<'a>> {
        if is_suited {
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

/// How many bytes for each other member fit into a round.
pub(super) fn block_bytes(extent: Extent, size: u32) -> usize {
    extent.bytes() / (size as usize - 1) / LINE_BYTES * LINE_BYTES
}

/// Lays out a round of an all-to-all.
pub(super) fn lay_out_shares(
    staged: &Staged<'_>,
    (me, size): (u32, u32),
    shares: &[&[u8]],
    round: usize,
) -> Result<(), TransferError> {
    let block = block_bytes(staged.extent(), size);
    (0..size).filter(|to| *to != me).try_for_each(|to| {
        let share = shares[to as usize];
        staged.lay_out(
            staged.extent().start(round) + block_of(me, to, size) * block,
            &share[part(round, block, share.len())],
        )
    })
}

/// Where a gathering has what in the staging buffers, in pieces of how many bytes.
pub(super) struct GatherLayout {
    piece: usize,
    /// Where that of the first round is.
    own: usize,
    /// How far behind it that of the second one is.
    to_second: usize,
    /// Where a leader lays out what comes from other nodes.
    far: usize,
}

impl GatherLayout {
    pub(super) fn of(nodes: &Nodes, size: u32, extent: Extent) -> GatherLayout {
        let (start, bytes) = (extent.start(0), extent.bytes());
        if !nodes.are_shared() {
            return GatherLayout { piece: bytes, own: start, to_second: bytes, far: start };
        }
        let far = (0..nodes.count()).map(|node| nodes.on(node).len()).filter(|here| *here > 1);
        let far = far.map(|here| size as usize - here).max().unwrap_or(1);
        let whole_lines = |bytes: usize| bytes / LINE_BYTES * LINE_BYTES;
        match extent {
            // The upper half of the leader's is for a piece of each member on another node.
            Extent::Halves => {
                let piece = whole_lines(bytes / far.max(2));
                GatherLayout { piece, own: start, to_second: bytes / 2, far: start + bytes }
            }
            Extent::Slot { .. } => {
                let piece = whole_lines(bytes / (far + 1));
                GatherLayout { piece, own: start, to_second: 0, far: start + piece }
            }
        }
    }

    /// How long the piece of a round is at most.
    pub(super) fn piece(&self) -> usize {
        self.piece
    }

    /// Whether the pieces are not so small that messages are quicker.
    pub(super) fn suit(&self) -> bool {
        self.piece >= BLOCK_BYTES_MIN
    }

    /// Where the piece of a round begins: one may be read while the next is written.
    fn own(&self, round: usize) -> usize {
        self.own + round % 2 * self.to_second
    }

    /// Where a leader lays out a piece that came from another node.
    fn far(&self, at: usize) -> usize {
        self.far + at * self.piece
    }
}

/// Lays out a round of what all gather.
pub(super) fn lay_out_piece(
    staged: &Staged<'_>,
    layout: &GatherLayout,
    bytes: &[u8],
    round: usize,
) -> Result<(), TransferError> {
    staged.lay_out(layout.own(round), &bytes[part(round, layout.piece, bytes.len())])
}

/// Lays out a round of bytes that all get.
pub(super) fn lay_out_all(staged: &Staged<'_>, bytes: &[u8], round: usize) -> Result<(), TransferError> {
    let extent = staged.extent();
    staged.lay_out(extent.start(round), &bytes[part(round, extent.bytes(), bytes.len())])
}

/// Which block of a member's staging buffer is for which other one.
fn block_of(from: u32, to: u32, size: u32) -> usize {
    ((to + size - from - 1) % size) as usize
}

impl<'a> Call<'a> {
    /// Where something is laid out that goes in one round if it has at most so many bytes: what `one_round` says for the slot of this collective.
    pub(super) fn extent(&self, bytes: usize, one_round: impl FnOnce(Extent) -> usize) -> Extent {
        let slot = Extent::slot_of(self.slot.sequence);
        if self.group.is_world() && bytes <= one_round(slot) { slot } else { Extent::Halves }
    }

    /// The staging buffer of this rank, with the first round laid out, if it is to be had.
    pub(super) fn stage(
        &self,
        extent: Extent,
        lay_out: impl FnOnce(&Staged<'a>) -> Result<(), TransferError>,
    ) -> Option<Staged<'a>> {
        if extent != Extent::Halves && !self.all_came_to_the_one_before() {
            return None;
        }
        take(self.group, extent).filter(|staged| lay_out(staged).is_ok())
    }

    /// As [`Call::begin`]. `Some`: all members have laid out their first round.
    pub(super) fn agree_staged(
        &mut self,
        load: &mut Load,
        staged: Option<Staged<'a>>,
    ) -> Result<Option<Staged<'a>>, CollectiveError> {
        let agreed = self.begin(load, staged.is_some());
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
    pub(super) fn meet_again(&mut self) -> Result<(), CollectiveError> {
        self.begin(&mut Load::Empty, false).map(drop)
    }

    /// All have got what they wanted, or will have before that place is written again.
    pub(super) fn finish(&mut self, staged: Staged<'_>) -> Result<(), CollectiveError> {
        if staged.extent() == Extent::Halves {
            self.meet_again()?;
        }
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
        let (me, nodes) = (self.me(), self.group.nodes());
        let root_node = nodes.node_of(root);
        let extent = staged.extent();
        for round in 0..bytes.len().div_ceil(extent.bytes()) {
            if round > 0 {
                self.meet_again()?;
            }
            if me == root {
                // The others get this round from the other half meanwhile.
                lay_out_all(&staged, bytes, round + 1)?;
                self.without_leader();
                continue;
            }
            let part = part(round, extent.bytes(), bytes.len());
            let (target, offset) = (&mut bytes[part], extent.start(round));
            if nodes.mine() == root_node {
                staged.fetch(vec![Want { place: root, offset, target }])?;
                self.without_leader();
                continue;
            }
            self.speak_as_leader(|call| call.pass_on(&staged, (root, root_node), (offset, target)))?;
            if !nodes.is_leader() {
                staged.fetch(vec![Want { place: nodes.my_leader(), offset, target }])?;
            }
        }
        self.finish(staged)
    }

    /// The leader of a node gets what the root has laid out, from where the binomial tree of the nodes brings it, and lays it out in
    /// the same place.
    fn pass_on(
        &mut self,
        staged: &Staged<'_>,
        (root, root_node): (u32, u32),
        (offset, target): (usize, &mut [u8]),
    ) -> Result<(), CollectiveError> {
        let nodes = self.group.nodes();
        let count = nodes.count();
        let leader = |turn: u32| nodes.leader((root_node + turn) % count);
        let turn = (nodes.mine() + count - root_node) % count;
        let distance = 1 << turn.trailing_zeros();
        let before = turn - distance;
        // All have agreed that the root's is there.
        let from = if before == 0 { root } else { leader(before) };
        if before > 0 {
            self.receive_exactly(from, 0)?;
        }
        staged.fetch(vec![Want { place: from, offset, target: &mut *target }])?;
        let behind = std::iter::successors(Some(distance / 2), |distance| Some(distance / 2));
        let behind: Vec<u32> = behind.take_while(|distance| *distance > 0).map(|distance| turn + distance).collect();
        if behind.iter().any(|turn| *turn < count) || nodes.here().len() > 1 {
            staged.lay_out(offset, target)?;
        }
        behind.into_iter().filter(|turn| *turn < count).try_for_each(|turn| self.send(leader(turn), &[]))
    }

    /// All get what all have, whose first round is laid out. `all`: where that of each member goes.
    pub(super) fn allgather_staged(
        &mut self,
        staged: Staged<'_>,
        mine: &[u8],
        all: &mut [&mut [u8]],
    ) -> Result<(), CollectiveError> {
        let (me, nodes) = (self.me(), self.group.nodes());
        let layout = GatherLayout::of(nodes, self.size(), staged.extent());
        copy(all[me as usize], mine);
        let most = all.iter().map(|bytes| bytes.len()).max().unwrap_or(0);
        for round in 0..most.div_ceil(layout.piece) {
            if round > 0 {
                lay_out_piece(&staged, &layout, mine, round)?;
                self.meet_again()?;
            }
            let (mut near, mut far) = (Vec::new(), Vec::new());
            for (place, bytes) in (0..).zip(all.iter_mut()).filter(|(place, _)| *place != me) {
                let part = part(round, layout.piece, bytes.len());
                let want = Want { place, offset: layout.own(round), target: &mut bytes[part] };
                if nodes.here().contains(&place) { near.push(want) } else { far.push(want) }
            }
            if nodes.here().len() == 1 || far.is_empty() {
                near.append(&mut far);
                staged.fetch(near)?;
                self.without_leader();
            } else {
                self.gather_by_leader(&staged, &layout, near, far)?;
            }
        }
        self.finish(staged)
    }

    /// The leader of a node gets what all here want from other nodes, and lays it out for them.
    fn gather_by_leader(
        &mut self,
        staged: &Staged<'_>,
        layout: &GatherLayout,
        near: Vec<Want<'_>>,
        mut far: Vec<Want<'_>>,
    ) -> Result<(), CollectiveError> {
        let nodes = self.group.nodes();
        if !nodes.is_leader() {
            // An error does not keep this one from the step of all.
            let near = staged.fetch(near);
            self.speak_as_leader(|_| Ok(()))?;
            near?;
            for (at, want) in far.iter_mut().enumerate() {
                (want.place, want.offset) = (nodes.my_leader(), layout.far(at));
            }
            return staged.fetch(far);
        }
        self.speak_as_leader(|_| {
            let wants = far.iter_mut().map(|want| Want { target: &mut *want.target, ..*want });
            staged.fetch(near.into_iter().map(|want| Want { target: want.target, ..want }).chain(wants).collect())?;
            let mut laid_out = far.iter().enumerate();
            Ok(laid_out.try_for_each(|(at, want)| staged.lay_out(layout.far(at), want.target))?)
        })
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
        let (extent, block) = (staged.extent(), block_bytes(staged.extent(), size));
        copy(all[me as usize], shares[me as usize]);
        for round in 0..most.div_ceil(block) {
            if round > 0 {
                lay_out_shares(&staged, (me, size), shares, round)?;
                self.meet_again()?;
            }
            let places = (0..).zip(all.iter_mut()).filter(|(place, _)| *place != me);
            let wants = places.map(|(place, bytes)| {
                let part = part(round, block, bytes.len());
                Want {
                    place,
                    offset: extent.start(round) + block_of(place, me, size) * block,
                    target: &mut bytes[part],
                }
            });
            staged.fetch(wants.collect())?;
        }
        self.finish(staged)
    }
}
