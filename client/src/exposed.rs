//! Memory of a process that is in no window and that the other ranks of its node reach all the same, by cross-memory attach.
//!
//! ```text
//!   expose: each rank says where its memory is ── collected from all ──► everybody knows (process, address, bytes)
//!   put, get: one system call; the kernel copies between the two processes
//!   withdraw: a barrier, after which nobody knows any more ──► the memory is its owner's again
//! ```
//!
//! The memory belongs to the exposure from the first to the last of these steps. An exposure that is dropped without the
//! last one leaks it: others may still write there. Memory that stays as long as its process may be exposed for good.
#![allow(unsafe_code)]

use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use longarm_memory::{Attached, RegionMut};
use longarm_proto::Rank;
use longarm_shm::CounterKind;
use zerocopy::{FromBytes, IntoBytes};

use crate::client::Client;
use crate::error::{Lost, LostHow, Operation, TransferError};
use crate::origin_bytes::{OriginBytes, OriginBytesMut};

/// What a rank says of the memory that it exposes: its process, among which processes that number counts, the address,
/// the bytes.
pub type Notice = [u64; 4];

/// Whether a rank that exposes memory is on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// It is: its memory is reached.
    ThisNode,
    /// It is not.
    OtherNode,
}

/// Memory of this rank that others reach, and theirs.
pub struct ExposedMemory<T> {
    start: NonNull<T>,
    length: usize,
    capacity: usize,
    parts: ExposedParts,
}

/// What the ranks have exposed, by rank.
pub struct ExposedParts(Box<[Part]>);

/// What one rank has exposed.
struct Part {
    /// It takes part, if with nothing.
    is_member: bool,
    bytes: u64,
    /// `None`: it cannot be reached from here.
    attached: Option<Attached>,
}

// SAFETY: the elements are reached by the kernel only, which takes them for bytes, until `withdraw` gives them back whole;
// so the value may move between threads as they may.
unsafe impl<T: Send> Send for ExposedMemory<T> {}
// SAFETY: as above; a shared reference gives no access to the elements but as bytes, by system calls.
unsafe impl<T: Send> Sync for ExposedMemory<T> {}

impl<T: FromBytes + IntoBytes + Send + 'static> ExposedMemory<T> {
    /// Exposes a vector. `process_space` tells the namespace of process numbers; 0 if it is not known. `allgather` takes this rank's notice to all others and gives theirs, by rank; none for those that do
    /// not take part. `Ok(None)`: a notice names this very process but other memory, so what was exchanged is broken.
    ///
    /// # Errors
    /// Those of `allgather`. The memory is leaked: others may know of it.
    pub fn expose<E>(
        memory: Vec<T>,
        process_space: u64,
        allgather: impl FnOnce(Notice) -> Result<Vec<Option<(Notice, Where)>>, E>,
    ) -> Result<Option<ExposedMemory<T>>, E> {
        let mut memory = ManuallyDrop::new(memory);
        let start = NonNull::new(memory.as_mut_ptr()).expect("a vector's pointer is never null");
        let (length, capacity) = (memory.len(), memory.capacity());
        let region = (start.as_ptr().expose_provenance() as u64, (length * size_of::<T>()) as u64);
        let parts = ExposedParts::meet(region, process_space, allgather)?;
        Ok(parts.map(|parts| ExposedMemory { start, length, capacity, parts }))
    }

    /// Gives the memory back after a barrier of all ranks, each of which comes there by this call.
    ///
    /// # Errors
    /// Those of `meet`. The memory is leaked: others may still copy to it.
    pub fn withdraw<E>(self, meet: impl FnOnce() -> Result<(), E>) -> Result<Vec<T>, E> {
        meet()?;
        // SAFETY: the parts come from one vector, which is given back once because `self` is gone. All ranks have given
        // their exposures away and met, so no process copies to it any more; any bytes are an element (`FromBytes`).
        Ok(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.length, self.capacity) })
    }
}

impl ExposedParts {
    /// Exposes memory that stays as long as the process, which the caller's region vouches for: it is never withdrawn. The
    /// rest as [`ExposedMemory::expose`].
    ///
    /// # Errors
    /// Those of `allgather`.
    pub fn expose_for_good<E>(
        memory: RegionMut<'static>,
        process_space: u64,
        allgather: impl FnOnce(Notice) -> Result<Vec<Option<(Notice, Where)>>, E>,
    ) -> Result<Option<ExposedParts>, E> {
        let region = (memory.as_mut_ptr().expose_provenance() as u64, memory.len() as u64);
        ExposedParts::meet(region, process_space, allgather)
    }

    /// What all have exposed. The memory of this rank is the caller's to keep.
    fn meet<E>(
        (address, bytes): (u64, u64),
        process_space: u64,
        allgather: impl FnOnce(Notice) -> Result<Vec<Option<(Notice, Where)>>, E>,
    ) -> Result<Option<ExposedParts>, E> {
        let mine: Notice = [std::process::id().into(), process_space, address, bytes];
        let notices = allgather(mine)?;
        // What others say of their own memory is believed, as what they say of windows is. A notice with our own process
        // number would make the kernel write into our memory, so it has to be the one that we gave.
        // Other machines have processes of the same number, in a namespace of the same number.
        let is_lie = |(notice, place): &(Notice, Where)| {
            *place == Where::ThisNode && notice[..2] == mine[..2] && *notice != mine
        };
        if notices.iter().flatten().any(is_lie) {
            return Ok(None);
        }
        let parts = notices.into_iter().map(|notice| {
            let is_member = notice.is_some();
            let (notice, place) = notice.unwrap_or(([0; 4], Where::OtherNode));
            let [process, space, address, bytes] = notice;
            let same_space = notice == mine || (space == process_space && space != 0);
            let process = u32::try_from(process).ok().filter(|_| place == Where::ThisNode && same_space);
            // SAFETY: the notice was made from an exposure like this one, which keeps its memory, refers to nothing in it,
            // and is withdrawn by all ranks together, when nobody can use this any more. If that process dies,
            // `Client::alive` refuses it once the death is known; until then its number goes to nobody before the kernel has
            // given out all others.
            let attached = process.and_then(|process| unsafe { Attached::new(process, address, bytes) });
            Part { is_member, bytes, attached }
        });
        Ok(Some(ExposedParts(parts.collect())))
    }

    /// Bytes that a rank has exposed; `None` for one that does not take part.
    pub fn bytes_of(&self, rank: Rank) -> Option<u64> {
        self.0.get(rank.0 as usize).filter(|part| part.is_member).map(|part| part.bytes)
    }
}

impl<T> ExposedMemory<T> {
    /// What the ranks have exposed.
    pub fn parts(&self) -> &ExposedParts {
        &self.parts
    }
}

impl Client {
    /// Writes bytes to what a rank of this node has exposed. They are there on return.
    pub fn put_exposed(
        &self,
        exposed: &ExposedParts,
        rank: Rank,
        offset: u64,
        source: OriginBytes<'_>,
    ) -> Result<(), TransferError> {
        let bytes = source.len() as u64;
        let attached = self.attached(exposed, (Operation::Put, rank), offset, bytes)?;
        let done = attached.write(offset as usize, source.region());
        done.map_err(|error| self.unattachable(Operation::Put, rank, &error))?;
        self.local.count(rank, CounterKind::Put, bytes);
        Ok(())
    }

    /// Reads bytes of what a rank of this node has exposed.
    pub fn get_exposed(
        &self,
        exposed: &ExposedParts,
        rank: Rank,
        offset: u64,
        target: OriginBytesMut<'_>,
    ) -> Result<(), TransferError> {
        let bytes = target.len() as u64;
        let attached = self.attached(exposed, (Operation::Get, rank), offset, bytes)?;
        let done = attached.read(offset as usize, target.region());
        done.map_err(|error| self.unattachable(Operation::Get, rank, &error))?;
        self.local.count(rank, CounterKind::Get, bytes);
        Ok(())
    }

    /// Everything that can be wrong with a target before the system is asked.
    fn attached<'a>(
        &self,
        exposed: &'a ExposedParts,
        (operation, rank): (Operation, Rank),
        offset: u64,
        bytes: u64,
    ) -> Result<&'a Attached, TransferError> {
        let ranks = self.local.layout.rank_count();
        if rank.0 >= ranks {
            return Err(TransferError::NoSuchRank { operation, rank, ranks });
        }
        self.local.alive(operation, rank)?;
        if !self.local.same_node(rank) {
            return Err(TransferError::OtherNode { operation, rank });
        }
        let part = &exposed.0[rank.0 as usize];
        let end = offset.saturating_add(bytes);
        if end > part.bytes {
            let exposed_bytes = part.bytes;
            return Err(TransferError::OutsideExposed { operation, rank, offset, end, exposed_bytes });
        }
        let reason = || "its process is in another PID namespace; start all ranks of a node in the same one".to_owned();
        part.attached.as_ref().ok_or_else(|| TransferError::Unattachable { operation, rank, reason: reason() })
    }

    #[cold]
    fn unattachable(&self, operation: Operation, rank: Rank, error: &io::Error) -> TransferError {
        if let Err(lost) = self.local.alive(operation, rank) {
            return lost.into();
        }
        if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) {
            let node = self.local.layout.node_of(rank);
            return Lost { rank, node, operation, how: LostHow::Gone }.into();
        }
        let reason = match error.kind() {
            io::ErrorKind::PermissionDenied => format!(
                "{error}; kernel.yama.ptrace_scope has to be 0 or 1, and in a container the calls process_vm_readv and \
                 process_vm_writev allowed"
            ),
            _ => error.to_string(),
        };
        TransferError::Unattachable { operation, rank, reason }
    }
}
