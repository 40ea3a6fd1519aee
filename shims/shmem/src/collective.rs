//! Collectives that move elements: broadcast, collect, fcollect, alltoall.
//!
//! Where all members are on one node, little is shown at one barrier. Of much, each takes what it needs out of the others'
//! memory, between two barriers: all sources are ready after the first, and may be used again after the second. Else the
//! elements go as messages of longarm's groups, or by gets or puts where [`across`] or [`by_puts`] is quicker.

use std::ffi::c_int;

use longarm::Group;
use longarm::ffi::{Grid, Region, RegionMut, Step};

use crate::across::{self, Participants};
use crate::between_nodes;
use crate::boundary::{end, or_end};
use crate::by_puts;
use crate::job::{self, Job};
use crate::members::{area_to_read, given, nodes_to_read, of_member, taken};
use crate::rma::{self, bytes_of};
use crate::sync_area::{SLOT_BYTES, SyncArea};
use crate::teams::Team;
use crate::who::Who;

/// The place of the root. In an active set old programs also name it by its number in the world, which is taken where it cannot
/// be a place.
fn root_of(name: &'static str, who: Who, team: &Team, root: c_int) -> usize {
    let place = usize::try_from(root).ok().filter(|root| *root < team.size());
    let by_number = || {
        let number = u32::try_from(root).ok().filter(|_| who.is_set())?;
        team.members.iter().position(|member| *member == number)
    };
    place.or_else(by_number).unwrap_or_else(|| team.no_such_pe(name, root))
}

/// # Safety
/// The elements are readable at `source` and writable at `dest`, at all members.
pub(crate) unsafe fn broadcast<T>(
    name: &'static str,
    who: Who,
    dest: *mut T,
    source: *const T,
    count: u64,
    root: c_int,
) -> c_int {
    let job = job::get(name);
    let Some(team) = who.team(name, job) else { return -1 };
    let bytes = bytes_of::<T>(count);
    let root = root_of(name, who, team, root);
    // The root of an active set keeps its own target as it is.
    let takes = team.me != root || !(who.is_set() || dest.cast_const() == source);
    let (dest, source): (*mut u8, *const u8) = (dest.cast(), source.cast());
    let nodes = nodes_to_read(job, team, source.addr()).and(nodes_to_read(job, team, dest.addr()));
    match area_to_read(job, team, source.addr()) {
        Some(area) if bytes <= SLOT_BYTES => {
            // SAFETY: this function's own contract; only the root's is read.
            let theirs = area.hear(name, &job.process, root, unsafe { Region::from_raw(source, bytes) });
            if takes {
                // SAFETY: this function's own contract; the root shows as many bytes.
                unsafe { rma::copy(dest, theirs, bytes) };
            }
        }
        Some(area) => {
            area.meet(name, &job.process);
            if takes {
                let from = of_member(name, job, team, root, source.addr(), bytes);
                // SAFETY: this function's own contract, and `of_member` has looked at the root's.
                unsafe { rma::copy(dest, from, bytes) };
            }
            area.meet(name, &job.process);
        }
        None if let Some(nodes) = nodes => {
            // SAFETY: this function's own contract.
            unsafe { between_nodes::broadcast(name, job, (team, nodes, root), (dest, source, bytes), takes) };
        }
        None if across::suits_broadcast(team.size(), bytes) => {
            let participants = Participants::of_team(name, &job.process, team);
            // SAFETY: this function's own contract.
            unsafe { across::broadcast(name, &participants, team.members[root], (dest, source, bytes), takes) };
        }
        None => {
            // SAFETY: this function's own contract.
            let mut elements = if team.me == root { unsafe { taken(source, bytes) } } else { vec![0; bytes] };
            or_end(name, team.group.broadcast_collective(root as u32, &mut elements));
            if takes {
                // SAFETY: this function's own contract.
                unsafe { given(dest, &elements) };
            }
        }
    }
    0
}

/// # Safety
/// As [`broadcast`]; `dest` has room for the elements of all.
pub(crate) unsafe fn fcollect<T>(name: &'static str, who: Who, dest: *mut T, source: *const T, count: u64) -> c_int {
    let job = job::get(name);
    let Some(team) = who.team(name, job) else { return -1 };
    let bytes = bytes_of::<T>(count);
    let (dest, source): (*mut u8, *const u8) = (dest.cast(), source.cast());
    // Neighbours' sources and targets are both read.
    let nodes = nodes_to_read(job, team, source.addr()).and(nodes_to_read(job, team, dest.addr()));
    match area_to_read(job, team, source.addr()) {
        Some(area) if bytes <= SLOT_BYTES => {
            // SAFETY: this function's own contract.
            let slots = area.show(name, &job.process, unsafe { Region::from_raw(source, bytes) });
            for place in 0..if bytes > 0 { team.size() } else { 0 } {
                // SAFETY: this function's own contract; each slot has as many bytes.
                unsafe { rma::copy(dest.wrapping_add(place * bytes), slots(place), bytes) };
            }
        }
        Some(area) => {
            let sizes = vec![bytes; team.size()];
            area.meet(name, &job.process);
            // SAFETY: this function's own contract; all have shown that they are here.
            unsafe { gather(name, job, (team, area), dest, source, &sizes) };
        }
        None if by_puts::suits_fcollect(team, nodes, bytes) => {
            // SAFETY: this function's own contract.
            unsafe { by_puts::fcollect(name, job, (team, nodes), (dest, source, bytes)) };
        }
        None => {
            // SAFETY: this function's own contract.
            let mine = unsafe { taken(source, bytes) };
            let all: Vec<u8> = or_end(name, team.group.allgather_collective(&mine));
            // SAFETY: this function's own contract.
            unsafe { given(dest, &all) };
        }
    }
    0
}

/// Each member's elements behind those of the members before it, when all have met once; then they meet again.
///
/// # Safety
/// As [`collect`].
unsafe fn gather(
    name: &'static str,
    job: &Job,
    (team, area): (&Team, &SyncArea),
    dest: *mut u8,
    source: *const u8,
    sizes: &[usize],
) {
    let starts: Vec<usize> = sizes
        .iter()
        .scan(0, |at, size| {
            *at += size;
            Some(*at - size)
        })
        .collect();
    // Each begins with itself, so that not all read the same memory at once.
    for turn in 0..team.size() {
        let place = (team.me + turn) % team.size();
        let (to, bytes) = (dest.wrapping_add(starts[place]), sizes[place]);
        let from = if place == team.me {
            source.cast_mut()
        } else if bytes == 0 {
            continue;
        } else {
            of_member(name, job, team, place, source.addr(), bytes)
        };
        if bytes > 0 && from != to {
            // SAFETY: this function's own contract, and `of_member` has looked at theirs.
            unsafe { rma::copy(to, from, bytes) };
        }
    }
    area.meet(name, &job.process);
}

/// # Safety
/// As [`fcollect`], with any number of elements from each.
pub(crate) unsafe fn collect<T>(name: &'static str, who: Who, dest: *mut T, source: *const T, count: u64) -> c_int {
    let job = job::get(name);
    let Some(team) = who.team(name, job) else { return -1 };
    let bytes = bytes_of::<T>(count);
    let (dest, source): (*mut u8, *const u8) = (dest.cast(), source.cast());
    if let Some(area) = area_to_read(job, team, source.addr()) {
        let slots = area.show(name, &job.process, Region::from_slice(&bytes.to_ne_bytes()));
        // SAFETY: each slot begins with the word that its member has shown.
        let sizes: Vec<usize> = (0..team.size()).map(|place| unsafe { slots(place).cast::<usize>().read() }).collect();
        // SAFETY: this function's own contract.
        unsafe { gather(name, job, (team, area), dest, source, &sizes) };
        return 0;
    }
    // SAFETY: this function's own contract.
    let mine = unsafe { taken(source, bytes) };
    let all: Vec<Vec<u8>> = or_end(name, team.group.allgatherv_collective(&mine));
    // SAFETY: this function's own contract.
    unsafe { given(dest, &all.concat()) };
    0
}

/// Rows of elements with a stride between them, of the same number on both sides.
struct Rows {
    element: usize,
    count: usize,
    to_stride: usize,
    from_stride: usize,
}

impl Rows {
    /// Bytes from the start of one row to that of the next.
    fn row_bytes(&self, stride: usize) -> usize {
        self.count * stride
    }

    /// From the first byte of a row to its last.
    fn span(&self, stride: usize) -> usize {
        (self.count - 1) * stride + self.element
    }

    /// Nothing is between the elements.
    fn are_close(&self) -> bool {
        self.to_stride == self.element && self.from_stride == self.element
    }

    /// # Safety
    /// The row is readable at `from` and writable at `to`.
    unsafe fn copy(&self, to: *mut u8, from: *const u8) {
        let mut grid = Grid::new(self.element, 0, 0);
        let (target_stride, source_stride) = (self.to_stride as isize, self.from_stride as isize);
        grid.repeat(Step { count: self.count, target_stride, source_stride });
        // SAFETY: this function's own contract.
        let to = unsafe { RegionMut::from_raw(to, self.span(self.to_stride)) };
        // SAFETY: this function's own contract.
        grid.copy(to, unsafe { Region::from_raw(from, self.span(self.from_stride)) });
    }
}

/// Also with strides: `dest_stride` and `source_stride` count elements, and are 1 where they lie close.
///
/// # Safety
/// The elements for all are readable at `source`, and those of all writable at `dest`, at all members.
pub(crate) unsafe fn alltoall<T>(
    name: &'static str,
    who: Who,
    dest: *mut T,
    source: *const T,
    (dest_stride, source_stride, count): (i64, i64, u64),
) -> c_int {
    let job = job::get(name);
    let Some(team) = who.team(name, job) else { return -1 };
    if dest_stride < 1 || source_stride < 1 {
        end(name, format_args!("the strides are {dest_stride} and {source_stride}; they have to be 1 or more"));
    }
    if count == 0 {
        team.meet(name, &job.process);
        return 0;
    }
    let element = size_of::<T>();
    let rows = Rows {
        element,
        count: count as usize,
        to_stride: dest_stride as usize * element,
        from_stride: source_stride as usize * element,
    };
    let (dest, source): (*mut u8, *const u8) = (dest.cast(), source.cast());
    match area_to_read(job, team, source.addr()) {
        Some(area) if rows.are_close() && rows.count.saturating_mul(element * team.size()) <= SLOT_BYTES => {
            let bytes = rows.count * element;
            // SAFETY: this function's own contract.
            let theirs = area.show(name, &job.process, unsafe { Region::from_raw(source, bytes * team.size()) });
            for place in 0..team.size() {
                let from = theirs(place).wrapping_add(team.me * bytes);
                // SAFETY: this function's own contract; each shows as many bytes for everybody.
                unsafe { rma::copy(dest.wrapping_add(place * bytes), from, bytes) };
            }
        }
        Some(area) => {
            area.meet(name, &job.process);
            let (to_bytes, from_bytes) = (rows.row_bytes(rows.to_stride), rows.row_bytes(rows.from_stride));
            for turn in 0..team.size() {
                let place = (team.me + turn) % team.size();
                let theirs = source.addr() + team.me * from_bytes;
                let from = of_member(name, job, team, place, theirs, rows.span(rows.from_stride));
                // SAFETY: this function's own contract, and `of_member` has looked at theirs.
                unsafe { rows.copy(dest.wrapping_add(place * to_bytes), from) };
            }
            area.meet(name, &job.process);
        }
        None if rows.are_close() && by_puts::suits_alltoall(team, (dest, source, rows.count * element)) => {
            // SAFETY: this function's own contract.
            unsafe { by_puts::alltoall(name, job, team, (dest, source, rows.count * element)) };
        }
        // SAFETY: this function's own contract.
        None => unsafe { alltoall_by_messages(name, &team.group, dest, source, &rows) },
    }
    0
}

/// # Safety
/// As [`alltoall`].
unsafe fn alltoall_by_messages(name: &'static str, group: &Group, dest: *mut u8, source: *const u8, rows: &Rows) {
    let row_bytes = rows.count * rows.element;
    let mut mine = vec![0u8; row_bytes * group.size() as usize];
    let packing = Rows { to_stride: rows.element, ..*rows };
    for (place, row) in mine.chunks_mut(row_bytes).enumerate() {
        // SAFETY: this function's own contract; the row of the vector is as long.
        unsafe { packing.copy(row.as_mut_ptr(), source.wrapping_add(place * rows.row_bytes(rows.from_stride))) };
    }
    let theirs = or_end(name, group.alltoall_collective(&mine));
    let unpacking = Rows { from_stride: rows.element, ..*rows };
    for (place, row) in theirs.chunks(row_bytes).enumerate() {
        // SAFETY: this function's own contract; the row of the vector is as long.
        unsafe { unpacking.copy(dest.wrapping_add(place * rows.row_bytes(rows.to_stride)), row.as_ptr()) };
    }
}
