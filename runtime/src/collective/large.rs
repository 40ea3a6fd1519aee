//! Collectives on much data: from staging buffers where all members have one (`staged.rs`), else by messages (`data.rs`).

use zerocopy::IntoBytes;

use super::agree::Load;
use super::call::Call;
use super::elements::{fill_lists, from_bytes, joined};
use super::signature::Signature;
use super::staged::{GatherLayout, block_bytes, lay_out_all, lay_out_piece, lay_out_shares};
use super::staged_reduction::lay_out_first_round;
use super::staging_buffer::Extent;
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
        let mut call = self.call(signature);
        let laid_out: &[u8] = if self.rank() == root { bytes } else { &[] };
        let extent = call.extent(bytes.len(), Extent::bytes);
        let staged = call.stage(extent, |staged| lay_out_all(staged, laid_out, 0));
        match call.agree_staged(&mut Load::Empty, staged)? {
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
        let mut call = self.call(signature);
        let staged = call.stage(Extent::Halves, |staged| lay_out_first_round(staged, self.nodes(), elements));
        match call.agree_staged(&mut Load::Empty, staged)? {
            Some(staged) => call.reduce_staged(staged, (root, for_all), reduction, elements),
            None if for_all => call.allreduce(reduction, elements),
            None => call.reduce(root, reduction, elements),
        }
    }

    /// `room` gives the memory for what comes, when all have agreed.
    pub(super) fn allgather_large<T: Element, R: AsMut<[T]>>(
        &self,
        signature: Signature,
        elements: &[T],
        room: impl FnOnce(&Call<'_>) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        let mut call = self.call(signature);
        let mine = elements.as_bytes();
        let layout_in = |extent| GatherLayout::of(self.nodes(), self.size(), extent);
        let extent = call.extent(mine.len(), |extent| layout_in(extent).piece());
        let staged = call.stage(extent, |staged| lay_out_piece(staged, &layout_in(extent), mine, 0));
        let Some(staged) = call.agree_staged(&mut Load::Empty, staged)? else {
            return Ok(joined(&call.allgather_exactly(mine)?, room(&call)?));
        };
        let mut all = room(&call)?;
        let pieces = all.as_mut().chunks_mut(elements.len());
        let mut places: Vec<&mut [u8]> = pieces.map(|piece| piece.as_mut_bytes()).collect();
        call.allgather_staged(staged, mine, &mut places)?;
        Ok(all)
    }

    /// The members tell each other how much they have; little goes by messages all the same.
    pub(super) fn allgatherv_large<T: Element>(
        &self,
        signature: Signature,
        elements: &[T],
    ) -> Result<Vec<Vec<T>>, CollectiveError> {
        let mut call = self.call(signature);
        // How much the others have is not known yet.
        let layout = GatherLayout::of(self.nodes(), self.size(), Extent::Halves);
        let staged = call.stage(Extent::Halves, |staged| lay_out_piece(staged, &layout, elements.as_bytes(), 0));
        let mut load = Load::OfAll(bytes_of(&[elements.len() as u64]).into());
        let staged = call.agree_staged(&mut load, staged)?;
        let lengths: Vec<u64> = from_bytes(&self.in_order(&load));
        let most = lengths.iter().max().map_or(0, |most| (*most as usize).saturating_mul(size_of::<T>()));
        let Some(staged) = self.if_suited(staged, self.suits_stages(most) && layout.suit()) else {
            return Ok(call.allgather(elements.as_bytes())?.iter().map(|body| from_bytes(body)).collect());
        };
        let places = (0..).zip(lengths);
        let mut all = places.map(|(place, length)| call.zeroed(place, length)).collect::<Result<Vec<Vec<T>>, _>>()?;
        let mut places: Vec<&mut [u8]> = all.iter_mut().map(|piece| piece.as_mut_bytes()).collect();
        call.allgather_staged(staged, elements.as_bytes(), &mut places)?;
        Ok(all)
    }

    /// `room` as for [`Group::allgather_large`].
    pub(super) fn alltoall_large<T: Element, R: AsMut<[T]>>(
        &self,
        signature: Signature,
        shares: &[&[u8]],
        room: impl FnOnce(&Call<'_>) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        let mut call = self.call(signature);
        let extent = call.extent(shares[0].len(), |extent| block_bytes(extent, self.size()));
        let staged = call.stage(extent, |staged| lay_out_shares(staged, (self.rank(), self.size()), shares, 0));
        let Some(staged) = call.agree_staged(&mut Load::Empty, staged)? else {
            return Ok(joined(&call.alltoall_exactly(shares)?, room(&call)?));
        };
        let share = shares[0].len();
        let mut all = room(&call)?;
        let mut places: Vec<&mut [u8]> = all.as_mut().as_mut_bytes().chunks_mut(share).collect();
        call.alltoall_staged(staged, shares, &mut places, share)?;
        Ok(all)
    }

    /// The members tell each other how much they have for each; little goes by messages all the same. `all` becomes what each has for this
    /// one.
    pub(super) fn alltoallv_large<T: Element>(
        &self,
        signature: Signature,
        shares: &[&[u8]],
        all: &mut Vec<Vec<T>>,
    ) -> Result<(), CollectiveError> {
        let mut call = self.call(signature);
        let staged = call.stage(Extent::Halves, |staged| lay_out_shares(staged, (self.rank(), self.size()), shares, 0));
        let lengths: Vec<u64> = shares.iter().map(|share| share.len() as u64).collect();
        let mut load = Load::OfAll(bytes_of(&lengths).into());
        let staged = call.agree_staged(&mut load, staged)?;
        // What each has for each, by place.
        let lengths: Vec<u64> = from_bytes(&self.in_order(&load));
        let most = lengths.iter().max().map_or(0, |most| *most as usize);
        let Some(staged) = self.if_suited(staged, self.suits_stages(most)) else {
            fill_lists(all, &call.alltoall(shares)?);
            return Ok(());
        };
        let for_me = (0..).zip(lengths.iter().skip(self.rank() as usize).step_by(shares.len()));
        let count = |length: u64| length / size_of::<T>() as u64;
        all.resize_with(shares.len(), Vec::new);
        for (list, (place, length)) in all.iter_mut().zip(for_me) {
            call.fit(list, place, count(*length))?;
        }
        let mut places: Vec<&mut [u8]> = all.iter_mut().map(|piece| piece.as_mut_bytes()).collect();
        call.alltoall_staged(staged, shares, &mut places, most)
    }
}
