//! What longarm asks of an MPI, written once for both widths of handle.
//!
//! All of it expects an MPI between initialisation and finalization, which [`crate::Mpi`] has checked, and handles that
//! are alive, which the callers vouch for as in C.

use std::ffi::c_int;

use crate::calls::{Calls, Handle, UNDEFINED, read_text};
use crate::error::MpiError;

/// How many bytes of one broadcast go at a time: `MPI_Bcast` counts in `int`.
const BROADCAST_BYTES_MAX: usize = 1 << 30;
/// What an exchanged length takes.
const LENGTH_BYTES: usize = size_of::<u64>();

impl<H: Handle> Calls<H> {
    pub(crate) fn is_initialized(&self) -> bool {
        let mut flag: c_int = 0;
        // SAFETY: `flag` is writable, and MPI may be asked this at any time.
        unsafe { self.initialized(&raw mut flag) }.is_ok() && flag != 0
    }

    pub(crate) fn is_finalized(&self) -> bool {
        let mut flag: c_int = 0;
        // SAFETY: `flag` is writable, and MPI may be asked this at any time.
        unsafe { self.finalized(&raw mut flag) }.is_ok() && flag != 0
    }

    pub(crate) fn init_thread_multiple(&self) -> Result<(), MpiError> {
        let mut provided: c_int = 0;
        let required = self.constants.thread_multiple;
        // SAFETY: MPI takes null for the arguments of main, and `provided` is writable.
        unsafe { self.init_thread(std::ptr::null_mut(), std::ptr::null_mut(), required, &raw mut provided) }
    }

    pub(crate) fn end(&self) -> Result<(), MpiError> {
        // SAFETY: MPI runs, see the module's head.
        unsafe { self.finalize() }
    }

    /// Ends the job. Returns only if MPI could not.
    pub(crate) fn end_all(&self, communicator: H, status: i32) {
        // SAFETY: MPI runs and the communicator is alive, see the module's head.
        let ended = unsafe { self.abort(communicator, status) };
        // The caller ends the process whatever MPI said.
        drop(ended);
    }

    /// The first line of what the library says of itself.
    pub(crate) fn library(&self) -> String {
        let text = read_text(|text, bytes| {
            // SAFETY: `read_text` gives room for the longest text, and MPI may be asked this at any time.
            let asked = unsafe { self.get_library_version(text, bytes) };
            if asked.is_ok() { crate::calls::SUCCESS } else { !crate::calls::SUCCESS }
        });
        let words: Vec<&str> = text.lines().next().unwrap_or_default().split_whitespace().collect();
        words.join(" ")
    }

    pub(crate) fn rank(&self, communicator: H) -> Result<u32, MpiError> {
        let mut rank: c_int = 0;
        // SAFETY: MPI runs and the communicator is alive, see the module's head; `rank` is writable.
        unsafe { self.comm_rank(communicator, &raw mut rank) }?;
        Ok(rank.unsigned_abs()) // MPI counts ranks from 0.
    }

    pub(crate) fn size(&self, communicator: H) -> Result<u32, MpiError> {
        let mut size: c_int = 0;
        // SAFETY: MPI runs and the communicator is alive, see the module's head; `size` is writable.
        unsafe { self.comm_size(communicator, &raw mut size) }?;
        Ok(size.unsigned_abs())
    }

    /// A duplicate, which has the error handler of the original.
    pub(crate) fn plain_duplicate(&self, communicator: H) -> Result<H, MpiError> {
        let mut duplicate = H::BLANK;
        // SAFETY: MPI runs and the communicator is alive, see the module's head; `duplicate` is writable.
        unsafe { self.comm_dup(communicator, &raw mut duplicate) }?;
        Ok(duplicate)
    }

    /// A duplicate whose errors are returned.
    pub(crate) fn duplicate(&self, communicator: H) -> Result<H, MpiError> {
        let duplicate = self.plain_duplicate(communicator)?;
        // SAFETY: the duplicate was just made, and the handler is one of MPI's own.
        unsafe { self.comm_set_errhandler(duplicate, self.constants.errors_return) }?;
        Ok(duplicate)
    }

    pub(crate) fn free(&self, mut communicator: H) -> Result<(), MpiError> {
        if communicator.to_word() == self.constants.null.to_word() {
            return Ok(());
        }
        // SAFETY: MPI runs and the communicator is alive, see the module's head; the handle is writable.
        unsafe { self.comm_free(&raw mut communicator) }
    }

    pub(crate) fn wait_for_all(&self, communicator: H) -> Result<(), MpiError> {
        // SAFETY: MPI runs and the communicator is alive, see the module's head.
        unsafe { self.barrier(communicator) }
    }

    /// Everybody's bytes, by rank. The lengths go first, so they may differ.
    pub(crate) fn gather_all(&self, communicator: H, mine: &[u8]) -> Result<Vec<Vec<u8>>, MpiError> {
        let lengths = self.gather_lengths(communicator, mine.len() as u64)?;
        let total: u64 = lengths.iter().fold(0, |sum, length| sum.saturating_add(*length));
        // All ranks see the same lengths, so they refuse together and none waits for another.
        if c_int::try_from(total).is_err() {
            return Err(MpiError::TooLong { bytes: total });
        }
        if total == 0 {
            // Open MPI takes two empty buffers for one and the same, which it refuses.
            return Ok(vec![Vec::new(); lengths.len()]);
        }
        let counts: Vec<c_int> = lengths.iter().map(|length| *length as c_int).collect();
        let places: Vec<c_int> = counts
            .iter()
            .scan(0, |next, count| {
                let place = *next;
                *next += count;
                Some(place)
            })
            .collect();
        let mut all = vec![0_u8; total as usize];
        // SAFETY: MPI runs and the communicator is alive, see the module's head. `mine` has as many bytes as this rank
        // told the others, the lists have a number for each rank, and `all` has room for the sum of the counts.
        unsafe {
            self.allgatherv(
                mine.as_ptr().cast(),
                mine.len() as c_int,
                self.constants.byte,
                all.as_mut_ptr().cast(),
                counts.as_ptr(),
                places.as_ptr(),
                self.constants.byte,
                communicator,
            )
        }?;
        let mut rest = all.as_slice();
        let parts = counts.iter().map(|count| {
            let (part, others) = rest.split_at(*count as usize);
            rest = others;
            part.to_vec()
        });
        Ok(parts.collect())
    }

    fn gather_lengths(&self, communicator: H, mine: u64) -> Result<Vec<u64>, MpiError> {
        let mine = mine.to_ne_bytes();
        let mut all = vec![0_u8; LENGTH_BYTES * self.size(communicator)? as usize];
        // SAFETY: MPI runs and the communicator is alive, see the module's head. `mine` has `LENGTH_BYTES`, and `all`
        // as many for each rank.
        unsafe {
            self.allgather(
                mine.as_ptr().cast(),
                LENGTH_BYTES as c_int,
                self.constants.byte,
                all.as_mut_ptr().cast(),
                LENGTH_BYTES as c_int,
                self.constants.byte,
                communicator,
            )
        }?;
        let (lengths, _) = all.as_chunks::<LENGTH_BYTES>();
        Ok(lengths.iter().map(|length| u64::from_ne_bytes(*length)).collect())
    }

    /// The root's bytes to all. What the others have is replaced.
    pub(crate) fn broadcast(&self, communicator: H, root: u32, bytes: &mut Vec<u8>) -> Result<(), MpiError> {
        let root = self.existing_rank(root, self.size(communicator)?)?;
        let mut length = (bytes.len() as u64).to_ne_bytes();
        self.broadcast_slice(communicator, root, &mut length)?;
        bytes.resize(u64::from_ne_bytes(length) as usize, 0);
        bytes.chunks_mut(BROADCAST_BYTES_MAX).try_for_each(|chunk| self.broadcast_slice(communicator, root, chunk))
    }

    fn broadcast_slice(&self, communicator: H, root: c_int, bytes: &mut [u8]) -> Result<(), MpiError> {
        let count = bytes.len() as c_int; // At most `BROADCAST_BYTES_MAX`.
        // SAFETY: MPI runs and the communicator is alive, see the module's head; the bytes are readable and writable.
        unsafe { self.bcast(bytes.as_mut_ptr().cast(), count, self.constants.byte, root, communicator) }
    }

    /// The communicator of some ranks of `parent`, in this order. Called by these ranks alone.
    pub(crate) fn create_group(&self, parent: H, members: &[u32], tag: i32) -> Result<H, MpiError> {
        let size = self.size(parent)?;
        let ranks: Vec<c_int> = members.iter().map(|rank| self.existing_rank(*rank, size)).collect::<Result<_, _>>()?;
        if !members.contains(&self.rank(parent)?) {
            return Ok(self.constants.null);
        }
        let all = self.group_of(parent)?;
        let mut chosen = H::BLANK;
        // SAFETY: the group was just made, the list has so many ranks, and `chosen` is writable.
        let included = unsafe { self.group_incl(all, ranks.len() as c_int, ranks.as_ptr(), &raw mut chosen) };
        let created = included.and_then(|()| {
            let created = self.create_of(parent, chosen, tag);
            self.free_group(chosen).and(created)
        });
        let created = self.free_group(all).and(created)?;
        self.take_handler_of_world(created)?;
        Ok(created)
    }

    fn create_of(&self, parent: H, group: H, tag: i32) -> Result<H, MpiError> {
        let mut created = H::BLANK;
        // SAFETY: MPI runs and the parent is alive, see the module's head; the group is alive, `created` writable.
        unsafe { self.comm_create_group(parent, group, tag, &raw mut created) }?;
        Ok(created)
    }

    /// Gives a communicator the program's error handler, as it would have if the program had made it: the parent may be
    /// a duplicate of ours, whose errors are returned, and the program may get the group's communicator in its hands.
    fn take_handler_of_world(&self, communicator: H) -> Result<(), MpiError> {
        let mut handler = H::BLANK;
        // SAFETY: MPI runs, so its world is there; `handler` is writable.
        unsafe { self.comm_get_errhandler(self.constants.world, &raw mut handler) }?;
        // SAFETY: the communicator was just made, and the handler is one that MPI gave.
        let taken = unsafe { self.comm_set_errhandler(communicator, handler) };
        // SAFETY: what `comm_get_errhandler` gives is to be freed; the communicators keep theirs.
        unsafe { self.errhandler_free(&raw mut handler) }.and(taken)
    }

    fn group_of(&self, communicator: H) -> Result<H, MpiError> {
        let mut group = H::BLANK;
        // SAFETY: MPI runs and the communicator is alive, see the module's head; `group` is writable.
        unsafe { self.comm_group(communicator, &raw mut group) }?;
        Ok(group)
    }

    fn free_group(&self, mut group: H) -> Result<(), MpiError> {
        // SAFETY: only groups made here come here, each once; the handle is writable.
        unsafe { self.group_free(&raw mut group) }
    }

    /// What ranks of one communicator are in another.
    pub(crate) fn translate(&self, from: H, ranks: &[u32], to: H) -> Result<Vec<Option<u32>>, MpiError> {
        let size = self.size(from)?;
        let ranks: Vec<c_int> = ranks.iter().map(|rank| self.existing_rank(*rank, size)).collect::<Result<_, _>>()?;
        let mut translated: Vec<c_int> = vec![UNDEFINED; ranks.len()];
        let from = self.group_of(from)?;
        let done = self.group_of(to).and_then(|to| {
            let count = ranks.len() as c_int;
            // SAFETY: both groups were just made; both lists have so many numbers.
            let done = unsafe { self.group_translate_ranks(from, count, ranks.as_ptr(), to, translated.as_mut_ptr()) };
            self.free_group(to).and(done)
        });
        self.free_group(from).and(done)?;
        Ok(translated.into_iter().map(|rank| u32::try_from(rank).ok()).collect())
    }

    /// Refuses what is no rank, so that the program's error handler never sees it.
    fn existing_rank(&self, rank: u32, size: u32) -> Result<c_int, MpiError> {
        c_int::try_from(rank).ok().filter(|_| rank < size).ok_or(MpiError::NoSuchRank { rank, size })
    }
}
