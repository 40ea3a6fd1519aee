//! Memory that is in no window and is read and written by the other ranks of its node all the same.

use std::os::unix::fs::MetadataExt;

use longarm_client::{ExposedMemory, Notice, OriginBytes, OriginBytesMut, Where};
use longarm_proto::Rank;
use rustix::process::{PTracer, set_ptracer};
use zerocopy::{FromBytes, IntoBytes};

use crate::collective::Signature;
use crate::element::{Element, length_of};
use crate::error::{CollectiveError, TransferError};
use crate::group::Group;
use crate::started::Started;

/// Vectors of the members of a group that the ranks of each node read and write, although they were not allocated as a
/// [`Window`](crate::Window): the kernel copies between the processes (cross-memory attach), and the owner takes no part in
/// it. Each call is a system call, so a window is quicker for what is small; accumulates, atomics and ranks of other nodes
/// need one.
///
/// The system has to allow it: `longarm info` says whether it does.
///
/// ```
/// let world = longarm::init()?;
/// let field = vec![world.rank() as f64; 1000];
/// let exposed = world.expose_collective(field)?;
/// assert_eq!(exposed.len_at(world.rank()), Some(1000));
/// let mut value = [0.0];
/// exposed.get(0, 999, &mut value)?;
/// assert_eq!(value, [0.0]);
/// exposed.put(world.rank(), 3, &[2.5])?;
/// let field = exposed.withdraw_collective()?; // Ours again.
/// assert_eq!(field[3], 2.5);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub struct Exposed<T: Element> {
    group: Group,
    memory: ExposedMemory<T>,
}

impl Group {
    /// Lets the members on this rank's node read and write a vector, which may have another length at each. Collective.
    /// It is given back by [`Exposed::withdraw_collective`]; without that it is leaked, because others may still write to
    /// it.
    ///
    /// Where the kernel allows attaching to descendants only (yama's `ptrace_scope` of 1), this process permits it to
    /// all of the same user from now on.
    ///
    /// # Errors
    /// [`CollectiveError::BrokenNotice`]; else as [`Group::sync_collective`]. The vector is leaked.
    pub fn expose_collective<T: Element>(&self, memory: Vec<T>) -> Result<Exposed<T>, CollectiveError> {
        let exposed = ExposedMemory::expose(memory, permit_attaching(), |mine| self.exchange_notices::<T>(mine))?;
        let memory = exposed.ok_or(CollectiveError::BrokenNotice)?;
        Ok(Exposed { group: self.clone(), memory })
    }

    /// Starts [`Group::expose_collective`], behind the collectives of this group that were started before.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// # futures_lite::future::block_on(async {
    /// let exposed = world.start_expose_collective(vec![7_u64; 100]).await?;
    /// exposed.put(world.rank(), 3, &[8])?;
    /// let mine = exposed.start_withdraw_collective().await?;
    /// assert_eq!(mine[2..4], [7, 8]);
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future yields what [`Group::expose_collective`] returns.
    pub fn start_expose_collective<T: Element>(&self, memory: Vec<T>) -> Started<Exposed<T>, CollectiveError> {
        self.start(move |group| group.expose_collective(memory))
    }

    /// The notices of all members, by rank of the world.
    pub(crate) fn exchange_notices<T: Element>(
        &self,
        mine: Notice,
    ) -> Result<Vec<Option<(Notice, Where)>>, CollectiveError> {
        let all = self.run(Signature::of::<T>("expose", 0, 0), |call| call.allgather(mine.as_bytes()))?;
        let mut notices = vec![None; self.inner.client.layout().rank_count() as usize];
        for (place, body) in (0..).zip(&all) {
            let rank = self.world_rank(place).expect("every body is a member's");
            let near = self.inner.client.same_node(Rank(rank));
            let place = if near { Where::ThisNode } else { Where::OtherNode };
            notices[rank as usize] = Notice::read_from_bytes(body).ok().map(|notice| (notice, place));
        }
        Ok(notices)
    }
}

/// Lets other processes of the user attach to this one. Gives the namespace of its process number; 0 if it is not known.
pub(crate) fn permit_attaching() -> u64 {
    // Where there is no yama nothing has to be permitted, and the kernel does not know the call.
    let _ = set_ptracer(PTracer::Any);
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |space| space.ino())
}

impl<T: Element> Exposed<T> {
    /// How many elements a rank has exposed; `None` if it is no member.
    pub fn len_at(&self, rank: u32) -> Option<usize> {
        length_of::<T>(self.memory.parts().bytes_of(Rank(rank)))
    }

    /// Writes elements to what a rank has exposed, from `index` on. They are there on return.
    ///
    /// # Errors
    /// [`TransferError`]: the rank does not exist, is on another node, is lost, has not exposed so much, or the system does
    /// not reach its memory.
    pub fn put(&self, rank: u32, index: usize, source: &[T]) -> Result<(), TransferError> {
        let source = OriginBytes::from(source.as_bytes());
        self.group.inner.client.put_exposed(self.memory.parts(), Rank(rank), offset::<T>(index), source)
    }

    /// Reads elements of what a rank has exposed, from `index` on.
    ///
    /// # Errors
    /// As [`Exposed::put`].
    pub fn get(&self, rank: u32, index: usize, target: &mut [T]) -> Result<(), TransferError> {
        let target = OriginBytesMut::from(target.as_mut_bytes());
        self.group.inner.client.get_exposed(self.memory.parts(), Rank(rank), offset::<T>(index), target)
    }

    /// Takes this rank's vector back when no member can reach it any more. Collective.
    ///
    /// # Errors
    /// As [`Group::sync_collective`]. The vector is leaked: somebody may still write to it.
    pub fn withdraw_collective(self) -> Result<Vec<T>, CollectiveError> {
        let Exposed { group, memory } = self;
        memory.withdraw(|| group.run(Signature::plain("withdraw"), |_| Ok(())))
    }

    /// Starts [`Exposed::withdraw_collective`], behind the collectives of its group that were started before.
    ///
    /// # Errors
    /// The future yields what [`Exposed::withdraw_collective`] returns.
    pub fn start_withdraw_collective(self) -> Started<Vec<T>, CollectiveError> {
        let group = self.group.clone();
        group.start(move |_| self.withdraw_collective())
    }
}

/// Bytes from the start. What does not fit is outside of any memory.
fn offset<T>(index: usize) -> u64 {
    (index as u64).saturating_mul(size_of::<T>() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_comes_back_and_anything_else_is_none() {
        let notice: Notice = [1, u64::MAX, 0, 77];
        let body = notice.as_bytes();
        let decode = |body| Notice::read_from_bytes(body).ok();
        assert_eq!(decode(body), Some(notice));
        assert_eq!((decode(&body[1..]), decode(&body[8..]), decode(&[])), (None, None, None));
    }
}
