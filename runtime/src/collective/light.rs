//! Collectives on little data: all of it travels with the agreement, in as many rounds as a barrier has.
//!
//! Whether data is little depends on what all members agree on, so all take the same way, or hear of a mismatch.

use longarm_shm::CELL_PAYLOAD_BYTES;
use zerocopy::IntoBytes;

use super::agree::{Load, Merge};
use super::call::Call;
use super::elements::{concatenated, copy, joined};
use super::signature::Signature;
use super::tree::{combine, combine_with};
use crate::element::{Element, Number, Reduction};
use crate::error::CollectiveError;
use crate::group::Group;

/// Bytes of one member that are little. With the head and the digest they fit into one cell.
const ONE_BYTES_MAX: usize = CELL_PAYLOAD_BYTES / 2;
/// Bytes of all members together that are little. The last round, which is the longest, carries half of them.
const ALL_BYTES_MAX: usize = CELL_PAYLOAD_BYTES;

/// Between several nodes a message takes so long that more is little. Of one member to all, where each node has one member, and where members
/// share nodes, so that only the leaders of nodes carry it.
const ONE_BETWEEN_NODES_BYTES_MAX: [usize; 2] = [8 << 10, 16 << 10];
/// Of each member where each node has one; and of all together, to gather and to reduce.
const EACH_ALONE_BYTES_MAX: usize = 8 << 10;
const ALL_ALONE_TO_GATHER_BYTES_MAX: usize = 128 << 10;
const ALL_ALONE_TO_REDUCE_BYTES_MAX: usize = 32 << 10;
/// Where members share nodes: so many of each as long as all are together no more than so many.
const CARRIED_BYTES_MAX: [(usize, usize); 2] = [(2 << 10, 1 << 20), (8 << 10, 64 << 10)];
/// The same of a reduction in which each member combines what all have.
const COMBINED_BYTES_MAX: [(usize, usize); 1] = [(2 << 10, 8 << 10)];
/// And of one in which leaders combine what their nodes have, as if each node had one member.
const NODES_COMBINED_BYTES_MAX: [(usize, usize); 2] = [(2 << 10, 64 << 10), (8 << 10, 16 << 10)];

/// Whether one of the bounds allows so many bytes of each of so many.
fn allows(bounds: &[(usize, usize)], bytes: usize, count: u32) -> bool {
    let is_within = |(each, all): &(usize, usize)| (1..=(all / count as usize).min(*each)).contains(&bytes);
    bounds.iter().any(is_within)
}

impl Group {
    pub(super) fn is_light_for_one(&self, bytes: usize) -> bool {
        let most = match self.nodes().count() {
            1 => ONE_BYTES_MAX,
            _ => ONE_BETWEEN_NODES_BYTES_MAX[usize::from(self.nodes().are_shared())],
        };
        (1..=most).contains(&bytes) || self.is_laid_out_for_all(bytes)
    }

    pub(super) fn is_light_for_all(&self, bytes: usize) -> bool {
        (1..=ALL_BYTES_MAX / self.size() as usize).contains(&bytes)
    }

    pub(super) fn is_light_to_gather(&self, bytes: usize) -> bool {
        self.is_light_for_all(bytes)
            || self.is_laid_out_by_all(bytes)
            || self.is_little_alone(bytes, ALL_ALONE_TO_GATHER_BYTES_MAX)
            || self.is_carried(bytes, &CARRIED_BYTES_MAX)
    }

    pub(super) fn is_light_to_reduce(&self, root: u32, bytes: usize) -> bool {
        self.is_light_for_all(bytes)
            || self.is_laid_out_by_all(bytes)
            || self.is_little_alone(bytes, ALL_ALONE_TO_REDUCE_BYTES_MAX)
            || self.is_carried(bytes, &COMBINED_BYTES_MAX)
            || self.is_combined_by_node(root, bytes)
    }

    /// Whether each of several nodes has one member, and so many bytes of each are little.
    fn is_little_alone(&self, bytes: usize, all_bytes_max: usize) -> bool {
        let is_alone = self.size() > 1 && self.nodes().count() == self.size();
        is_alone && allows(&[(EACH_ALONE_BYTES_MAX, all_bytes_max)], bytes, self.size())
    }

    /// Whether the leaders of nodes combine the elements. Only to the first member, for [`Group::subtrees`] are those with that root; and only
    /// where members of a node follow each other, so that it has few of them.
    fn is_combined_by_node(&self, root: u32, bytes: usize) -> bool {
        let nodes = self.nodes();
        let are_few = allows(&NODES_COMBINED_BYTES_MAX, bytes, nodes.count());
        root == 0 && nodes.are_shared() && are_few && nodes.are_in_blocks()
    }

    fn is_carried(&self, bytes: usize, bounds: &[(usize, usize)]) -> bool {
        self.nodes().are_shared() && allows(bounds, bytes, self.size())
    }

    /// The bytes of the root get to all.
    pub(super) fn broadcast_light(
        &self,
        signature: Signature,
        root: u32,
        bytes: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let is_root = self.rank() == root;
        let mut load = Load::OfOne { bytes: is_root.then(|| concatenated(&[bytes])), due: bytes.len() };
        let mut call = self.call(&signature);
        call.begin(signature, &mut load, false)?;
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
        let mut load = Load::OfAll(concatenated(&[bytes]));
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
        // The piece of place p lies (me - p) mod size pieces from the start; 2 * size keeps the difference positive.
        let (size, me, first) = (self.size() as usize, self.rank() as usize, first as usize);
        let piece_bytes = around.len() / size;
        for turn in 0..size {
            let at = (me + 2 * size - first - turn) % size * piece_bytes;
            copy(&mut pieces[turn * piece_bytes..][..piece_bytes], &around[at..at + piece_bytes]);
        }
    }

    /// An all-to-all of shares that are laid out, unless a member could not. `room` as for [`Group::gather_light`].
    pub(super) fn alltoall_laid_out<T: Element, R: AsMut<[T]>>(
        &self,
        signature: Signature,
        shares: &[&[u8]],
        room: impl FnOnce(&Call<'_>) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        let mut call = self.call(&signature);
        let mut load = Load::ToEach { share_bytes: shares[0].len(), shares: concatenated(shares), got: None };
        call.begin(signature, &mut load, false)?;
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
        let mut load = Load::Merged { bytes, merge };
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
            let mut load =
                Load::Reduced { bytes: concatenated(&[elements.as_bytes()]), combine: combine_with::<T>(reduction) };
            self.run_loaded(signature, &mut load, |_| Ok(()))?;
            if for_all || self.rank() == root {
                copy(elements.as_mut_bytes(), load.bytes());
            }
            return Ok(());
        }
        let mut load = Load::OfAll(concatenated(&[elements.as_bytes()]));
        self.run_loaded(signature, &mut load, |_| Ok(()))?;
        if for_all || self.rank() == root {
            let mut all = vec![T::new_zeroed(); elements.len() * self.size() as usize];
            self.lay_in_order(load.bytes(), root, all.as_mut_bytes());
            combine(&mut all, elements.len(), reduction);
            let result = &all.as_bytes()[..size_of_val(elements)];
            copy(elements.as_mut_bytes(), result);
        }
        Ok(())
    }
}
