//! The groups of this process by number.

use std::ffi::c_int;

use longarm::ffi::sync::{AtomicU32, AtomicU64, Ordering};
use longarm::{Group, World};
use longarm_mpi::Communicator;
use parking_lot::RwLock;

use crate::mpi_side::MpiSide;
use crate::refusal::{Done, Refusal};

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) group: Group,
    pub(crate) communicator: Option<Communicator>,
    /// How many groups this process had made before. Two groups with common members have been made in the same order by
    /// all of these, which the numbers, used again after a group is freed, do not tell.
    pub(crate) made: u64,
}

/// What stands behind a number.
#[derive(Clone)]
pub(crate) enum Kept {
    /// A group that this process is in.
    Member(Entry),
    /// One that it is not in: the members, which it has listed.
    Foreign(Vec<u32>),
}

/// The groups of this process. The number of the default one is a number alone, and needs no order: the group behind it is
/// found under the lock.
pub(crate) struct Groups {
    pub(crate) entries: RwLock<Vec<Option<Kept>>>,
    pub(crate) default: AtomicU32,
    pub(crate) made: AtomicU64,
}

impl Groups {
    pub(crate) fn new(world: &World) -> Groups {
        let everybody = Entry { group: world.group().clone(), communicator: None, made: 0 };
        Groups {
            entries: RwLock::new(vec![Some(Kept::Member(everybody))]),
            default: AtomicU32::new(0),
            made: AtomicU64::new(1),
        }
    }

    /// A group by its number.
    pub(crate) fn get(&self, number: c_int) -> Done<Group> {
        Ok(self.entry(number)?.group)
    }

    pub(crate) fn default_number(&self) -> c_int {
        self.default.load(Ordering::Relaxed) as c_int
    }

    fn entry(&self, number: c_int) -> Done<Entry> {
        match self.kept(number)? {
            Kept::Member(entry) => Ok(entry),
            Kept::Foreign(_) => Err(Refusal::fatal(format!("this process is not in group {number}"))),
        }
    }

    pub(crate) fn kept(&self, number: c_int) -> Done<Kept> {
        let entries = self.entries.read();
        let kept = usize::try_from(number).ok().and_then(|index| entries.get(index)?.clone());
        kept.ok_or_else(|| Refusal::fatal(format!("there is no group {number} here; was it freed?")))
    }

    pub(crate) fn insert(&self, kept: Kept) -> c_int {
        let mut entries = self.entries.write();
        let free = entries.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            entries.push(None);
            entries.len() - 1
        });
        entries[index] = Some(kept);
        index as c_int
    }

    /// Calls without a group mean all processes again.
    pub(crate) fn reset_default(&self) {
        self.default.store(0, Ordering::Relaxed);
    }

    /// Gives all communicators back, when the job ends. Freeing one is collective, so in the order in which they were
    /// made.
    pub(crate) fn free_communicators(&self, mpi: Option<&MpiSide>) {
        let mut entries = self.entries.write();
        let mut members: Vec<&mut Entry> = entries
            .iter_mut()
            .flatten()
            .filter_map(|kept| match kept {
                Kept::Member(entry) => Some(entry),
                Kept::Foreign(_) => None,
            })
            .collect();
        members.sort_by_key(|entry| entry.made);
        members.into_iter().for_each(|entry| free_communicator(mpi, entry.communicator.take()));
    }
}

pub(crate) fn free_communicator(mpi: Option<&MpiSide>, communicator: Option<Communicator>) {
    if let (Some(side), Some(communicator)) = (mpi, communicator)
        && !side.mpi.is_finalized()
        && let Err(error) = side.mpi.free(communicator)
    {
        tracing::warn!("a communicator could not be freed: {error}");
    }
}
