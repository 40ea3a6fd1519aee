//! Reductions and scans.
//!
//! All members get the same bits: each combines in the order of the team, and, where nodes have several members and all together have more
//! than [`SHOWN_BYTES_MAX`], those of each node first ([`crate::nodes`]). Little goes through the area, a slot at a time. Of
//! much, on one node, each member combines a share for all, straight out of the others' memory, and then takes the shares of
//! the others.

use std::ffi::c_int;

use longarm::ffi::Region;

use crate::across::{self, Participants};
use crate::between_nodes;
use crate::boundary::end;
use crate::job::{self, Job};
use crate::members::{area_to_read, nodes_to_read, of_member};
use crate::operator::Operator;
use crate::rma::{self, bytes_of};
use crate::shares::{combine_share, share};
use crate::sync_area::{SLOT_BYTES, SyncArea};
use crate::teams::Team;
use crate::who::Who;

/// Where few bytes end: above, each member combines a share.
const LITTLE_BYTES: usize = 2 * SLOT_BYTES;
/// What is shown at once where members are on several nodes, by all together.
const MESSAGE_BYTES: usize = 1 << 20;
/// In a team on several nodes, several of it on one: up to so many bytes of all together, each member shows its elements to all, which takes as
/// long as to meet.
const SHOWN_BYTES_MAX: usize = 8 << 10;

/// # Safety
/// The elements are readable at `source` and writable at `dest`, at all members.
pub(crate) unsafe fn all<O: Operator<T>, T>(
    name: &'static str,
    who: Who,
    dest: *mut T,
    source: *const T,
    count: u64,
) -> c_int {
    let job = job::get(name);
    let Some(team) = who.team(name, job) else { return -1 };
    // Both sides are read by others.
    let area = area_to_read(job, team, source.addr()).and(area_to_read(job, team, dest.addr()));
    let nodes = nodes_to_read(job, team, source.addr()).and(nodes_to_read(job, team, dest.addr()));
    let is_shown = bytes_of::<T>(count).saturating_mul(team.size()) <= SHOWN_BYTES_MAX;
    match area {
        None if let Some(nodes) = nodes.filter(|_| !is_shown) => {
            // SAFETY: this function's own contract.
            unsafe { between_nodes::reduce::<O, T>(name, job, (team, nodes), (dest, source, count as usize)) };
        }
        Some(area) if bytes_of::<T>(count) > LITTLE_BYTES && team.size() > 1 => {
            // SAFETY: this function's own contract.
            unsafe { by_shares::<O, T>(name, job, (team, area), dest, source, count as usize) };
        }
        None if bytes_of::<T>(count) >= across::BYTES_MIN => {
            // SAFETY: this function's own contract.
            unsafe {
                across::reduce::<O, T>(
                    name,
                    &Participants::of_team(name, &job.process, team),
                    (dest, source, count as usize),
                )
            };
        }
        _ => {
            // SAFETY: this function's own contract.
            unsafe { by_pieces::<O, T>(name, job, team, (dest, source, count as usize), &|_| (0, team.size())) };
        }
    }
    0
}

/// A deprecated one, over an active set.
///
/// # Safety
/// As [`all`].
pub(crate) unsafe fn to_all<O: Operator<T>, T>(
    name: &'static str,
    who: Who,
    dest: *mut T,
    source: *const T,
    count: c_int,
) {
    let Ok(count) = u64::try_from(count) else { end(name, format_args!("{count} elements")) };
    // SAFETY: this function's own contract.
    unsafe { all::<O, T>(name, who, dest, source, count) };
}

/// Each member gets the combination of those up to itself, itself included or not. Nothing combined is 0.
///
/// # Safety
/// As [`all`].
pub(crate) unsafe fn scan<O: Operator<T>, T>(
    name: &'static str,
    who: Who,
    dest: *mut T,
    source: *const T,
    (count, with_own): (u64, bool),
) -> c_int {
    let job = job::get(name);
    let Some(team) = who.team(name, job) else { return -1 };
    // SAFETY: this function's own contract.
    unsafe {
        by_pieces::<O, T>(name, job, team, (dest, source, count as usize), &|me| (0, me + usize::from(with_own)))
    };
    0
}

/// Shows the elements piece by piece, and combines those of the members that `which` says for this one.
///
/// # Safety
/// As [`all`].
unsafe fn by_pieces<O: Operator<T>, T>(
    name: &'static str,
    job: &Job,
    team: &Team,
    (dest, source, count): (*mut T, *const T, usize),
    which: &dyn Fn(usize) -> (usize, usize),
) {
    let piece_bytes = if team.area.is_some() { SLOT_BYTES } else { (MESSAGE_BYTES / team.size()).max(1024) };
    let most = piece_bytes / size_of::<T>();
    let (first, end) = which(team.me);
    let mut at = 0;
    loop {
        let piece = (count - at).min(most);
        let (to, from) = (dest.wrapping_add(at), source.wrapping_add(at));
        // SAFETY: this function's own contract.
        let shown = unsafe { Region::from_raw(from.cast(), piece * size_of::<T>()) };
        team.show(name, &job.process, shown, |place| {
            if first == end {
                // SAFETY: this function's own contract. All types are 0 where their bytes are.
                unsafe { to.write_bytes(0, piece) };
                return;
            }
            // SAFETY: this function's own contract; every member shows as many bytes.
            unsafe { rma::copy(to.cast(), place(first), piece * size_of::<T>()) };
            for member in first + 1..end {
                // SAFETY: as above, and what is shown is aligned.
                unsafe { O::combine(to, place(member).cast(), piece) };
            }
        });
        at += piece;
        if at >= count {
            return;
        }
    }
}

/// # Safety
/// As [`all`].
unsafe fn by_shares<O: Operator<T>, T>(
    name: &'static str,
    job: &Job,
    (team, area): (&Team, &SyncArea),
    dest: *mut T,
    source: *const T,
    count: usize,
) {
    let size = team.size();
    // All sources are there.
    area.meet(name, &job.process);
    let bytes = count * size_of::<T>();
    let sources: Vec<*const T> =
        (0..size).map(|place| of_member(name, job, team, place, source.addr(), bytes).cast_const().cast()).collect();
    // Where source and target are the same, nobody else reads this share of this member's source.
    // SAFETY: this function's own contract.
    unsafe { combine_share::<O, T>(dest, &sources, share(count, (team.me, size))) };
    // All shares are there.
    area.meet(name, &job.process);
    for turn in 1..size {
        let place = (team.me + turn) % size;
        let (from, to) = share(count, (place, size));
        let (at, bytes) = (dest.wrapping_add(from), (to - from) * size_of::<T>());
        if bytes > 0 {
            let theirs = of_member(name, job, team, place, at.addr(), bytes);
            // SAFETY: this function's own contract, and `of_member` has looked at theirs.
            unsafe { rma::copy(at.cast(), theirs, bytes) };
        }
    }
    // Nobody reads them any more.
    area.meet(name, &job.process);
}
