//! Collectives on little data: all of it travels with the agreement, in as many rounds as a barrier has.
//!
//! Whether data is little depends on what all members agree on, so all take the same way, or hear of a mismatch.

use longarm_shm::CELL_PAYLOAD_BYTES;
use smallvec::{SmallVec, smallvec};
use zerocopy::IntoBytes;

use super::agree::{Load, Merge};
use super::call::Call;
use super::elements::{concatenated, copied, copy, joined};
use super::signature::Signature;
use super::tree::{combine, combine_with};
use crate::element::{Element, Number, Reduction};
use crate::error::CollectiveError;
use crate::group::Group;

/// So many bytes of each are little, as long as all together have no more than `all`.
struct Bound {
    each: usize,
    all: usize,
}

/// Bytes of one member to all, in a group on one node, between nodes of one member each, and between those that members share. On one node
/// they fit into one cell, with the head and the digest; between nodes a message takes so long that more is little, as long as it is sent
/// without an answer (`LONGARM_EAGER_BYTES`).
const ONE_BYTES_MAX: [usize; 3] = [CELL_PAYLOAD_BYTES / 2, 8 << 10, (16 << 10) - 64];
/// Bytes of all members together, anywhere. The last round, which is the longest, carries half of them.
const ALL_BYTES_MAX: usize = CELL_PAYLOAD_BYTES;
/// Gatherings and reductions between nodes of one member each.
const ALONE_TO_GATHER: Bound = Bound { each: 8 << 10, all: 128 << 10 };
const ALONE_TO_REDUCE: Bound = Bound { each: 8 << 10, all: 32 << 10 };
/// Gatherings where members share nodes, so that only the leaders carry them.
const CARRIED: [Bound; 2] = [Bound { each: 2 << 10, all: 1 << 20 }, Bound { each: 8 << 10, all: 64 << 10 }];
/// Reductions there in which each member combines what all have.
const CARRIED_TO_REDUCE: Bound = Bound { each: 2 << 10, all: 8 << 10 };
/// Reductions there in which leaders combine what their nodes have: each node counts as one member.
const COMBINED_BY_NODE: [Bound; 2] = [Bound { each: 2 << 10, all: 64 << 10 }, Bound { each: 8 << 10, all: 16 << 10 }];

impl Bound {
    /// Whether so many bytes of each are little, of so many members, or nodes where each counts as one member.
    fn allows(&self, bytes: usize, count: u32) -> bool {
        (1..=self.each.min(self.all / count as usize)).contains(&bytes)
    }
}

impl Group {
    pub(super) fn is_light_for_one(&self, bytes: usize) -> bool {
        (1..=self.bound(ONE_BYTES_MAX)).contains(&bytes) || self.is_laid_out_for_all(bytes)
    }

    pub(super) fn is_light_for_all(&self, bytes: usize) -> bool {
        (1..=ALL_BYTES_MAX / self.size() as usize).contains(&bytes)
    }

    pub(super) fn is_light_to_gather(&self, bytes: usize) -> bool {
        self.is_light_for_all(bytes)
            || self.is_laid_out_by_all(bytes)
            || self.is_little_alone(bytes, &ALONE_TO_GATHER)
            || self.is_carried(bytes, &CARRIED)
    }

    pub(super) fn is_light_to_reduce(&self, root: u32, bytes: usize) -> bool {
        self.is_light_for_all(bytes)
            || self.is_laid_out_by_all(bytes)
            || self.is_little_alone(bytes, &ALONE_TO_REDUCE)
            || self.is_carried(bytes, &[CARRIED_TO_REDUCE])
            || self.is_combined_by_node(root, bytes)
    }

    /// Whether each of several nodes has one member, and so many bytes of each are little.
    fn is_little_alone(&self, bytes: usize, bound: &Bound) -> bool {
        let is_alone = self.nodes().count() > 1 && !self.nodes().are_shared();
        is_alone && bound.allows(bytes, self.size())
    }

    /// Whether the leaders of nodes combine the elements. Only to the first member, for [`Group::subtrees`] are those with that root; and only
    /// where members of a node follow each other, so that it has few of them.
    fn is_combined_by_node(&self, root: u32, bytes: usize) -> bool {
        let nodes = self.nodes();
        let are_few = COMBINED_BY_NODE.iter().any(|bound| bound.allows(bytes, nodes.count()));
        root == 0 && nodes.are_shared() && are_few && nodes.are_in_blocks()
    }

    fn is_carried(&self, bytes: usize, bounds: &[Bound]) -> bool {
        self.nodes().are_shared() && bounds.iter().any(|bound| bound.allows(bytes, self.size()))
    }

    /// The bytes of the root get to all.
    pub(super) fn broadcast_light(
        &self,
        signature: Signature,
        root: u32,
        bytes: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let is_root = self.rank() == root;
        let mut load = Load::OfOne { bytes: is_root.then(|| copied(bytes)), due: bytes.len() };
        let mut call = self.call(signature);
        call.begin(&mut load, false)?;
        let heard: &[u8] = if let Load::OfOne { bytes: Some(heard), .. } = &load { heard } else { &[] };
        // Whoever passed it on may have left it out.
        call.check_bytes(root, heard.len() as u64, bytes.len())?;
        copy(bytes, heard);
        Ok(())
    }

    /// The bytes of all members, in the order of their places. `room` gives the memory for them, when all have agreed.
    pub(super) fn gather_light<T: Element, R: AsMut<[T]>>(
        &self,
        signature: Signature,
        bytes: &[u8],
        room: impl FnOnce(&Call<'_>) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        let mut load = Load::OfAll(copied(bytes));
        let mut all = self.run_loaded(signature, &mut load, |call| room(call))?;
        self.lay_in_order(load.bytes(), 0, all.as_mut().as_mut_bytes());
        Ok(all)
    }

    /// What a load brought from all members, in the order of their places.
    pub(super) fn in_order(&self, load: &Load) -> Vec<u8> {
        let mut pieces = vec![0; load.bytes().len()];
        self.lay_in_order(load.bytes(), 0, &mut pieces);
        pieces
    }

    /// Copies into `pieces` what came from all members, around from this one: first that of place `first`, then those of the places after it, and after
    /// the last place those from 0 on.
    fn lay_in_order(&self, around: &[u8], first: u32, pieces: &mut [u8]) {
        assert_eq!(pieces.len(), around.len(), "the caller has room for the pieces of all members");
        // The piece of place p lies (me - p) mod size pieces from the start.
        let (size, me, first) = (self.size() as usize, self.rank() as usize, first as usize);
        let piece_bytes = around.len() / size;
        let mut back = (me + size - first) % size;
        for turn in 0..size {
            copy(&mut pieces[turn * piece_bytes..][..piece_bytes], &around[back * piece_bytes..][..piece_bytes]);
            back = if back == 0 { size - 1 } else { back - 1 };
        }
    }

    /// An all-to-all of shares that are laid out, unless a member could not. `room` as for [`Group::gather_light`].
    pub(super) fn alltoall_laid_out<T: Element, R: AsMut<[T]>>(
        &self,
        signature: Signature,
        shares: &[&[u8]],
        room: impl FnOnce(&Call<'_>) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        let mut call = self.call(signature);
        let mut load = Load::ToEach { share_bytes: shares[0].len(), shares: concatenated(shares), got: None };
        call.begin(&mut load, false)?;
        let Load::ToEach { got: Some(got), .. } = load else {
            return Ok(joined(&call.alltoall_exactly(shares)?, room(&call)?));
        };
        let mut all = room(&call)?;
        self.lay_in_order(&got, 0, all.as_mut().as_mut_bytes());
        Ok(all)
    }

    /// Few bytes of each member, as many of each, in the order of their places.
    pub(crate) fn gather_few(&self, signature: Signature, bytes: &[u8]) -> Result<Vec<u8>, CollectiveError> {
        if self.is_light_to_gather(bytes.len()) {
            return self.gather_light(signature, bytes, |_| Ok(vec![0; bytes.len() * self.size() as usize]));
        }
        Ok(self.run(signature, |call| call.allgather_exactly(bytes))?.concat())
    }

    /// What all members come to ([`Load::Merged`]). `bytes`: what this one says, at least 1, as many at each. Takes as long as a barrier.
    pub(crate) fn merge_few(
        &self,
        signature: Signature,
        bytes: Vec<u8>,
        merge: Merge,
    ) -> Result<Vec<u8>, CollectiveError> {
        let mut load = Load::Merged { bytes: bytes.into(), merge };
        self.run_loaded(signature, &mut load, |_| Ok(()))?;
        Ok(load.bytes().to_vec())
    }

    /// Reduces little to the root, or with `for_all` to all members. Both combine from the root on, as the tree does, so the results are
    /// the same.
    pub(super) fn reduce_light<T: Number>(
        &self,
        signature: Signature,
        (root, for_all): (u32, bool),
        reduction: Reduction,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        if self.is_combined_by_node(root, size_of_val(elements)) {
            let mut load = Load::Reduced { bytes: copied(elements.as_bytes()), combine: combine_with::<T>(reduction) };
            self.run_loaded(signature, &mut load, |_| Ok(()))?;
            if for_all || self.rank() == root {
                copy(elements.as_mut_bytes(), load.bytes());
            }
            return Ok(());
        }
        let mut load = Load::OfAll(copied(elements.as_bytes()));
        self.run_loaded(signature, &mut load, |_| Ok(()))?;
        if for_all || self.rank() == root {
            // Of few members with one element each without an allocation.
            let mut all: SmallVec<[T; 4]> = smallvec![T::new_zeroed(); elements.len() * self.size() as usize];
            self.lay_in_order(load.bytes(), root, all.as_mut_bytes());
            combine(&mut all, elements.len(), reduction);
            let result = &all.as_bytes()[..size_of_val(elements)];
            copy(elements.as_mut_bytes(), result);
        }
        Ok(())
    }
}
