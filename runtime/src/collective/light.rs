//! Collectives on little data: all of it travels with the agreement, in as many rounds as a barrier has.
//!
//! Whether data is little depends on what all members agree on, so all take the same way, or hear of a mismatch.

use longarm_shm::CELL_PAYLOAD_BYTES;

use super::agree::Load;
use super::elements::from_bytes;
use super::signature::Signature;
use super::tree::combine;
use crate::element::{Number, Reduction};
use crate::error::CollectiveError;
use crate::group::Group;

/// Bytes of one member that are little. With the head and the digest they fit into one cell.
const ONE_BYTES_MAX: usize = CELL_PAYLOAD_BYTES / 2;
/// Bytes of all members together that are little. The last round, which is the longest, carries half of them.
const ALL_BYTES_MAX: usize = CELL_PAYLOAD_BYTES;

impl Group {
    pub(super) fn is_light_for_one(&self, bytes: usize) -> bool {
        (1..=ONE_BYTES_MAX).contains(&bytes)
    }

    pub(super) fn is_light_for_all(&self, bytes: usize) -> bool {
        (1..=ALL_BYTES_MAX / self.size() as usize).contains(&bytes)
    }

    /// The bytes of the root get to all.
    pub(super) fn broadcast_light(
        &self,
        signature: Signature,
        root: u32,
        bytes: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let is_root = self.rank() == root;
        let mut load = Load::OfOne { bytes: is_root.then(|| bytes.to_vec()), due: bytes.len() };
        let mut call = self.call(&signature);
        call.begin(signature, &mut load, false)?;
        let heard: &[u8] = if let Load::OfOne { bytes: Some(heard), .. } = &load { heard } else { &[] };
        // Whoever passed it on may have left it out.
        call.check_bytes(root, heard.len() as u64, bytes.len())?;
        bytes.copy_from_slice(heard);
        Ok(())
    }

    /// The bytes of all members, in the order of their places.
    pub(super) fn gather_light(&self, signature: Signature, bytes: &[u8]) -> Result<Vec<u8>, CollectiveError> {
        let mut load = Load::OfAll(bytes.to_vec());
        self.run_loaded(signature, &mut load, |_| Ok(()))?;
        Ok(self.in_order(&load))
    }

    /// What a load brought from all members, in the order of their places.
    pub(super) fn in_order(&self, load: &Load) -> Vec<u8> {
        let Load::OfAll(around) = load else { unreachable!("a load stays of its kind") };
        // They lie in the order of places going down from this member's.
        let (size, me) = (self.size() as usize, self.rank() as usize);
        let piece_bytes = around.len() / size;
        let mut pieces = Vec::with_capacity(around.len());
        for place in 0..size {
            let at = (me + size - place) % size * piece_bytes;
            pieces.extend_from_slice(&around[at..at + piece_bytes]);
        }
        pieces
    }

    /// Few bytes of each member, as many of each, in the order of their places.
    pub(crate) fn gather_few(&self, signature: Signature, bytes: &[u8]) -> Result<Vec<u8>, CollectiveError> {
        if self.is_light_for_all(bytes.len()) {
            return self.gather_light(signature, bytes);
        }
        Ok(self.run(signature, |call| call.allgather_exactly(bytes))?.concat())
    }

    /// Combines what [`Group::gather_light`] gave, as a reduction to the root does.
    pub(super) fn combine_light<T: Number>(&self, pieces: &[u8], root: u32, reduction: Reduction, elements: &mut [T]) {
        let mut all: Vec<T> = from_bytes(pieces);
        all.rotate_left(root as usize * elements.len());
        combine(&mut all, elements.len(), reduction);
        elements.copy_from_slice(&all[..elements.len()]);
    }
}
