//! Collectives on much data: from stages where all members have one (`staged.rs`), else by messages (`data.rs`).

use zerocopy::IntoBytes;

use super::staged::{lay_out_all, lay_out_elements, lay_out_shares};
use super::{Load, Signature, from_bytes, joined};
use crate::element::{Element, Number, Reduction};
use crate::error::CollectiveError;
use crate::group::{Group, bytes_of};

impl Group {
    pub(super) fn broadcast_large(
        &self,
        signature: Signature,
        root: u32,
        bytes: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let mut call = self.call(&signature);
        let laid_out: &[u8] = if self.rank() == root { bytes } else { &[] };
        let staged = call.stage(|staged| lay_out_all(staged, laid_out, 0));
        match call.agree_staged(signature, &mut Load::Empty, staged)? {
            Some(staged) => call.broadcast_staged(staged, root, bytes),
            None => call.broadcast(root, bytes),
        }
    }

    /// To the root, or from the first member on to all.
    pub(super) fn reduce_large<T: Number>(
        &self,
        signature: Signature,
        (root, for_all): (u32, bool),
        reduction: Reduction,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        let mut call = self.call(&signature);
        let staged = call.stage(|staged| lay_out_elements(staged, elements));
        match call.agree_staged(signature, &mut Load::Empty, staged)? {
            Some(staged) => call.reduce_staged(staged, (root, for_all), reduction, elements),
            None if for_all => call.allreduce(reduction, elements),
            None => call.reduce(root, reduction, elements),
        }
    }

    pub(super) fn allgather_large<T: Element>(
        &self,
        signature: Signature,
        elements: &[T],
    ) -> Result<Vec<T>, CollectiveError> {
        let mut call = self.call(&signature);
        let staged = call.stage(|staged| lay_out_all(staged, elements.as_bytes(), 0));
        let Some(staged) = call.agree_staged(signature, &mut Load::Empty, staged)? else {
            return Ok(joined(&call.allgather(elements.as_bytes())?));
        };
        let mut all = zeroed(elements.len() * self.size() as usize);
        let mut places: Vec<&mut [u8]> = all.chunks_mut(elements.len()).map(|piece| piece.as_mut_bytes()).collect();
        call.allgather_staged(staged, elements.as_bytes(), &mut places)?;
        Ok(all)
    }

    /// The members tell each other how much they have; little goes by messages all the same.
    pub(super) fn allgatherv_large<T: Element>(
        &self,
        signature: Signature,
        elements: &[T],
    ) -> Result<Vec<Vec<T>>, CollectiveError> {
        let mut call = self.call(&signature);
        let staged = call.stage(|staged| lay_out_all(staged, elements.as_bytes(), 0));
        let mut load = Load::OfAll(bytes_of(&[elements.len() as u64]));
        let staged = call.agree_staged(signature, &mut load, staged)?;
        let lengths: Vec<u64> = from_bytes(&self.in_order(&load));
        let most = lengths.iter().max().map_or(0, |most| *most as usize * size_of::<T>());
        let Some(staged) = self.unless_little(staged, most) else {
            return Ok(call.allgather(elements.as_bytes())?.iter().map(|body| from_bytes(body)).collect());
        };
        let mut all: Vec<Vec<T>> = lengths.iter().map(|length| zeroed(*length as usize)).collect();
        let mut places: Vec<&mut [u8]> = all.iter_mut().map(|piece| piece.as_mut_bytes()).collect();
        call.allgather_staged(staged, elements.as_bytes(), &mut places)?;
        Ok(all)
    }

    pub(super) fn alltoall_large<T: Element>(
        &self,
        signature: Signature,
        shares: &[&[u8]],
    ) -> Result<Vec<T>, CollectiveError> {
        let mut call = self.call(&signature);
        let staged = call.stage(|staged| lay_out_shares(staged, (self.rank(), self.size()), shares, 0));
        let Some(staged) = call.agree_staged(signature, &mut Load::Empty, staged)? else {
            return Ok(joined(&call.alltoall(shares)?));
        };
        let share = shares[0].len();
        let mut all: Vec<T> = zeroed(share * shares.len() / size_of::<T>());
        let mut places: Vec<&mut [u8]> = all.as_mut_bytes().chunks_mut(share).collect();
        call.alltoall_staged(staged, shares, &mut places, share)?;
        Ok(all)
    }

    /// The members tell each other how much they have for each; little goes by messages all the same.
    pub(super) fn alltoallv_large<T: Element>(
        &self,
        signature: Signature,
        shares: &[&[u8]],
    ) -> Result<Vec<Vec<T>>, CollectiveError> {
        let mut call = self.call(&signature);
        let staged = call.stage(|staged| lay_out_shares(staged, (self.rank(), self.size()), shares, 0));
        let lengths: Vec<u64> = shares.iter().map(|share| share.len() as u64).collect();
        let mut load = Load::OfAll(bytes_of(&lengths));
        let staged = call.agree_staged(signature, &mut load, staged)?;
        // What each has for each, by place.
        let lengths: Vec<u64> = from_bytes(&self.in_order(&load));
        let most = lengths.iter().max().map_or(0, |most| *most as usize);
        let Some(staged) = self.unless_little(staged, most) else {
            return Ok(call.alltoall(shares)?.iter().map(|body| from_bytes(body)).collect());
        };
        let for_me = lengths.iter().skip(self.rank() as usize).step_by(shares.len());
        let mut all: Vec<Vec<T>> = for_me.map(|length| zeroed(*length as usize / size_of::<T>())).collect();
        let mut places: Vec<&mut [u8]> = all.iter_mut().map(|piece| piece.as_mut_bytes()).collect();
        call.alltoall_staged(staged, shares, &mut places, most)?;
        Ok(all)
    }
}

/// Elements that are about to be overwritten.
fn zeroed<T: Element>(count: usize) -> Vec<T> {
    vec![T::new_zeroed(); count]
}
