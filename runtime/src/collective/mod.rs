//! Collectives over a group.
//!
//! Every collective begins with an agreement, by which every member learns whether all have called the same thing with matching arguments. If
//! not, all get the same error and no data has moved. The agreement is also the barrier of sync and barrier. Little data travels
//! with it and needs no further rounds. How the members agree depends on where they are:
//!
//! - on one node, by a barrier in shared memory (`flag_barrier.rs`), behind which they read what little data the others have laid out (`laid_out.rs`);
//! - on several nodes, several on one of them, by their leaders (`by_node.rs`), who carry what little data all have (`light.rs`), and small shares of all-to-alls
//!   (`alltoall_by_node.rs`); the members of a node tell their leader (`through_leader.rs`);
//! - else by messages between all (`agree.rs`), in as many rounds as the group's size has bits.
//!
//! Much data is got from staging buffers (`staged.rs`, `staging.rs`); where that does not suit, it goes by messages (`data.rs`, `tree.rs`).

mod agree;
mod alltoall_by_node;
mod by_node;
mod call;
mod conclusion;
mod data;
mod elements;
mod flag_barrier;
mod laid_out;
mod large;
mod light;
pub(crate) mod nodes;
mod rounds;
mod run;
pub(crate) mod signature;
mod staged;
mod staged_reduction;
mod staging;
pub(crate) mod staging_buffer;
mod started;
mod subgroups;
mod through_leader;
pub(crate) mod tree;

use zerocopy::IntoBytes;

pub use agree::respell_claims;
pub use data::unpack;
pub use signature::Signature;

use call::Call;
pub(crate) use call::LETTER_BYTES_MAX;
use elements::fill_lists;
pub(crate) use elements::from_bytes;
use elements::joined;

use crate::element::{Element, Number, Reduction};
use crate::error::CollectiveError;
use crate::group::Group;

impl Group {
    /// All members meet. Nothing is completed; see [`Group::barrier_collective`]. `shmem_team_sync`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// world.sync_collective()?; // all ranks have come here
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`], as for all collectives: a mismatch, or a member that died.
    pub fn sync_collective(&self) -> Result<(), CollectiveError> {
        self.run(Signature::plain("sync"), |_| Ok(()))
    }

    /// Completes everything that every member has issued, then all meet. `ARMCI_Barrier`, `shmem_barrier`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u32>(1)?;
    /// window.put((world.rank() + 1) % world.size(), 0, &[7])?;
    /// world.barrier_collective()?; // the puts of all ranks are visible
    /// assert_eq!(window.get_one(world.rank(), 0)?, 7);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// What quiet said, after the barrier, so that no member waits for one with an error; else as
    /// [`Group::sync_collective`].
    pub fn barrier_collective(&self) -> Result<(), CollectiveError> {
        let quiet = self.inner.client.quiet();
        self.run(Signature::plain("barrier"), |_| Ok(()))?;
        Ok(quiet?)
    }

    /// The elements of member `root` get to all. `shmem_broadcast`, `armci_msg_bcast`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mut seed = [if world.rank() == 0 { 42_u32 } else { 0 }];
    /// world.broadcast_collective(0, &mut seed)?;
    /// assert_eq!(seed, [42]);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::BadArgument`] for a root that does not exist; else as [`Group::sync_collective`].
    pub fn broadcast_collective<T: Element>(&self, root: u32, elements: &mut [T]) -> Result<(), CollectiveError> {
        self.check_place("root", root)?;
        let signature = Signature::of::<T>("broadcast", root, elements.len());
        if self.is_light_for_one(size_of_val(elements)) {
            return self.broadcast_light(signature, root, elements.as_mut_bytes());
        }
        if self.suits_stages(size_of_val(elements)) {
            return self.broadcast_large(signature, root, elements.as_mut_bytes());
        }
        self.run(signature, |call| call.broadcast(root, elements.as_mut_bytes()))
    }

    /// Member `root` gets the element-wise reduction over all members; the others' elements are used up.
    /// The order of the reduction depends on the number of members only.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mut highest = [f64::from(world.rank())];
    /// world.reduce_collective(0, longarm::Reduction::Max, &mut highest)?;
    /// assert!(world.rank() != 0 || highest == [f64::from(world.size() - 1)]);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Group::broadcast_collective`], and for a reduction that the element type does not have.
    pub fn reduce_collective<T: Number>(
        &self,
        root: u32,
        reduction: Reduction,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        self.check_place("root", root)?;
        check_reduction::<T>(reduction, self.size())?;
        let signature = Signature::reduction::<T>("reduce", root, elements.len(), reduction);
        if self.is_light_to_reduce(root, size_of_val(elements)) {
            return self.reduce_light(signature, (root, false), reduction, elements);
        }
        if self.suits_staged_reduction(size_of_val(elements)) {
            return self.reduce_large(signature, (root, false), reduction, elements);
        }
        self.run(signature, |call| call.reduce(root, reduction, elements))
    }

    /// All members get the element-wise reduction over all. The same bits for all, and for the same number of members
    /// whatever the layout. `shmem_sum_reduce` and its like, `armci_msg_gop`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mut sum = [1_u32, world.rank()];
    /// world.allreduce_collective(longarm::Reduction::Sum, &mut sum)?;
    /// assert_eq!(sum[0], world.size());
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Group::reduce_collective`].
    pub fn allreduce_collective<T: Number>(
        &self,
        reduction: Reduction,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        check_reduction::<T>(reduction, self.size())?;
        let signature = Signature::reduction::<T>("allreduce", 0, elements.len(), reduction);
        if self.is_light_to_reduce(0, size_of_val(elements)) {
            return self.reduce_light(signature, (0, true), reduction, elements);
        }
        if self.suits_staged_reduction(size_of_val(elements)) {
            return self.reduce_large(signature, (0, true), reduction, elements);
        }
        self.run(signature, |call| call.allreduce(reduction, elements))
    }

    /// All members get the elements of all, in the order of their places. `shmem_fcollect`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let ranks = world.allgather_collective(&[world.rank()])?;
    /// assert_eq!(ranks, (0..world.size()).collect::<Vec<_>>());
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Group::sync_collective`].
    pub fn allgather_collective<T: Element>(&self, elements: &[T]) -> Result<Vec<T>, CollectiveError> {
        self.gather(elements, |call| call.zeroed(self.rank(), elements.len() as u64 * u64::from(self.size())))
    }

    /// As [`Group::allgather_collective`], into the caller's memory: a program that repeats it makes no new vector each time. `all` has
    /// `elements.len() * size()` elements, and gets those of all members in the order of their places. After an error its contents are
    /// unspecified. `shmem_fcollect`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mut ranks = vec![0; world.size() as usize];
    /// world.allgather_into_collective(&[world.rank()], &mut ranks)?;
    /// assert_eq!(ranks, (0..world.size()).collect::<Vec<_>>());
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::WrongRoom`] if `all` has another length, while the others wait for this member; else as [`Group::sync_collective`].
    pub fn allgather_into_collective<T: Element>(&self, elements: &[T], all: &mut [T]) -> Result<(), CollectiveError> {
        self.check_room(all.len(), elements.len() as u64 * u64::from(self.size()))?;
        self.gather(elements, |_| Ok(all)).map(drop)
    }

    /// As [`Group::allgather_collective`] with any number of elements from each. `shmem_collect`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let lists = world.allgatherv_collective(&vec![7_u8; world.rank() as usize])?;
    /// assert_eq!(lists.last().map(Vec::len), Some(world.size() as usize - 1));
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Group::sync_collective`].
    pub fn allgatherv_collective<T: Element>(&self, elements: &[T]) -> Result<Vec<Vec<T>>, CollectiveError> {
        let signature = Signature::of::<T>("allgatherv", 0, 0);
        if self.tells_lengths(1) {
            return self.allgatherv_large(signature, elements);
        }
        let all = self.run(signature, |call| call.allgather(elements.as_bytes()))?;
        Ok(all.iter().map(|body| from_bytes(body)).collect())
    }

    /// Every member gives each other member equally many elements, packed by place, and gets theirs.
    /// `shmem_alltoall`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let to_each: Vec<u32> = (0..world.size()).map(|to| 100 * world.rank() + to).collect();
    /// let from_each = world.alltoall_collective(&to_each)?;
    /// assert_eq!(from_each[0], world.rank());
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::BadArgument`] if the elements cannot be shared out evenly; else as
    /// [`Group::sync_collective`].
    pub fn alltoall_collective<T: Element>(&self, elements: &[T]) -> Result<Vec<T>, CollectiveError> {
        let shares = self.shares(elements)?;
        self.give_to_all((elements.len(), &shares), |call| call.zeroed(self.rank(), elements.len() as u64))
    }

    /// As [`Group::alltoall_collective`], into the caller's memory: a program that repeats it makes no new vector each time. `all` has as
    /// many elements as `elements`. After an error its contents are unspecified. `shmem_alltoall`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let to_each: Vec<u32> = (0..world.size()).map(|to| 100 * world.rank() + to).collect();
    /// let mut from_each = vec![0; to_each.len()];
    /// world.alltoall_into_collective(&to_each, &mut from_each)?;
    /// assert_eq!(from_each[0], world.rank());
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::BadArgument`] if the elements cannot be shared out evenly, [`CollectiveError::WrongRoom`] if `all` has another
    /// length, while the others wait for this member; else as [`Group::sync_collective`].
    pub fn alltoall_into_collective<T: Element>(&self, elements: &[T], all: &mut [T]) -> Result<(), CollectiveError> {
        let shares = self.shares(elements)?;
        self.check_room(all.len(), elements.len() as u64)?;
        self.give_to_all((elements.len(), &shares), |_| Ok(all)).map(drop)
    }

    /// As [`Group::alltoall_collective`] with any number of elements for each member.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let to_each: Vec<Vec<u32>> = (0..world.size()).map(|to| vec![world.rank(); to as usize]).collect();
    /// let from_each = world.alltoallv_collective(&to_each)?;
    /// assert_eq!(from_each[0], vec![0; world.rank() as usize]);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::BadArgument`] if there is not one list a member; else as [`Group::sync_collective`].
    pub fn alltoallv_collective<T: Element>(&self, shares: &[Vec<T>]) -> Result<Vec<Vec<T>>, CollectiveError> {
        let mut all = Vec::new();
        self.alltoallv_into_collective(shares, &mut all)?;
        Ok(all)
    }

    /// As [`Group::alltoallv_collective`], into lists of the caller, which keep their memory: a program that repeats it makes no new ones
    /// each time. `all` becomes one list a member, as long as what comes from it. After an error its contents are unspecified.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let to_each: Vec<Vec<u32>> = (0..world.size()).map(|to| vec![world.rank(); to as usize]).collect();
    /// let mut from_each = Vec::new();
    /// for _ in 0..3 {
    ///     world.alltoallv_into_collective(&to_each, &mut from_each)?;
    ///     assert_eq!(from_each[0], vec![0; world.rank() as usize]);
    /// }
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Group::alltoallv_collective`].
    pub fn alltoallv_into_collective<T: Element>(
        &self,
        shares: &[Vec<T>],
        all: &mut Vec<Vec<T>>,
    ) -> Result<(), CollectiveError> {
        if shares.len() != self.size() as usize {
            let (what, found) = ("number of shares", shares.len() as u64);
            return Err(CollectiveError::BadArgument { what, found, members: self.size() });
        }
        let shares: Vec<&[u8]> = shares.iter().map(|share| share.as_bytes()).collect();
        let signature = Signature::of::<T>("alltoallv", 0, 0);
        if self.tells_lengths(shares.len()) {
            return self.alltoallv_large(signature, &shares, all);
        }
        fill_lists(all, &self.run(signature, |call| call.alltoall(&shares))?);
        Ok(())
    }

    /// The elements of all members. `room` gives the memory for them, when all have agreed.
    fn gather<T: Element, R: AsMut<[T]>>(
        &self,
        elements: &[T],
        room: impl FnOnce(&Call<'_>) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        let signature = Signature::of::<T>("allgather", 0, elements.len());
        if self.is_light_to_gather(size_of_val(elements)) {
            return self.gather_light(signature, elements.as_bytes(), room);
        }
        if self.suits_staged_gather(size_of_val(elements)) {
            return self.allgather_large(signature, elements, room);
        }
        self.run(signature, |call| Ok(joined(&call.allgather_exactly(elements.as_bytes())?, room(call)?)))
    }

    /// Each member gets its share of the elements of each; this one has so many in its shares. `room` as for [`Group::gather`].
    fn give_to_all<T: Element, R: AsMut<[T]>>(
        &self,
        (count, shares): (usize, &[&[u8]]),
        room: impl FnOnce(&Call<'_>) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        let signature = Signature::of::<T>("alltoall", 0, count);
        if self.is_laid_out_for_each(shares[0].len()) {
            return self.alltoall_laid_out(signature, shares, room);
        }
        if self.suits_staged_alltoall(shares[0].len()) {
            return self.alltoall_large(signature, shares, room);
        }
        if self.suits_alltoall_by_node(shares[0].len()) {
            return self.alltoall_small(signature, shares, room);
        }
        self.run(signature, |call| Ok(joined(&call.alltoall_exactly(shares)?, room(call)?)))
    }

    /// What goes to each member, by place.
    fn shares<'a, T: Element>(&self, elements: &'a [T]) -> Result<Vec<&'a [u8]>, CollectiveError> {
        let members = self.size() as usize;
        if !elements.len().is_multiple_of(members) {
            let (what, found) = ("number of elements", elements.len() as u64);
            return Err(CollectiveError::BadArgument { what, found, members: self.size() });
        }
        let share = elements.len() / members;
        Ok((0..members).map(|place| elements[place * share..(place + 1) * share].as_bytes()).collect())
    }

    fn check_room(&self, room: usize, due: u64) -> Result<(), CollectiveError> {
        if room as u64 == due {
            return Ok(());
        }
        Err(CollectiveError::WrongRoom { found: room as u64, due })
    }

    fn check_place(&self, what: &'static str, place: u32) -> Result<(), CollectiveError> {
        if place < self.size() {
            return Ok(());
        }
        Err(CollectiveError::BadArgument { what, found: u64::from(place), members: self.size() })
    }
}

/// An error if the type has no such reduction.
fn check_reduction<T: Number>(reduction: Reduction, members: u32) -> Result<(), CollectiveError> {
    if T::default().combine(T::default(), reduction).is_some() {
        return Ok(());
    }
    Err(CollectiveError::BadArgument { what: "reduction of this element type", found: reduction as u64, members })
}
