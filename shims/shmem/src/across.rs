//! Collectives on much data, over a team whose members do not have each other's memory mapped, most often because they are
//! on several nodes. It is symmetric, so each gets what it needs straight from where it is, between meetings, and no message
//! is copied on its way.

use crate::context::DEFAULT;
use crate::job::Job;
use crate::operator::Operator;
use crate::order;
use crate::rma;
use crate::team::Team;

/// From how many bytes on: below, the meetings take longer than what they save.
pub(crate) const BYTES_MIN: usize = 64 << 10;
/// How many members may get from one at the same time: of more, a tree of messages is quicker.
const TAKERS_MAX: usize = 8;

/// Whether the root's elements are to be had by [`broadcast`].
pub(crate) fn suits_broadcast(team: &Team, bytes: usize) -> bool {
    bytes >= BYTES_MIN && team.size() <= TAKERS_MAX
}

/// Each gets the elements from the root.
///
/// # Safety
/// As many bytes are writable at `dest`, if it takes them, and symmetric and readable at `source`.
pub(crate) unsafe fn broadcast(
    name: &'static str,
    job: &Job,
    (team, root): (&Team, usize),
    (dest, source, bytes): (*mut u8, *const u8, usize),
    takes: bool,
) {
    // The source is ready.
    team.meet(name, job);
    if takes {
        // SAFETY: this function's own contract.
        unsafe { rma::get(name, DEFAULT, dest, source, bytes as u64, team.members[root] as i32) };
    }
    // It may be used again.
    team.meet(name, job);
}

/// Each combines a share for all, and gets the others' shares when they are there.
///
/// # Safety
/// The elements are readable at `source` and writable at `dest`, at all members, and both are symmetric.
pub(crate) unsafe fn reduce<O: Operator<T>, T>(
    name: &'static str,
    job: &Job,
    team: &Team,
    (dest, source, count): (*mut T, *const T, usize),
) {
    let size = team.size();
    let share = |place: usize| (count * place / size, count * (place + 1) / size);
    let (from, to) = share(team.me);
    let most = to - from;
    // A row for each other member, aligned for any element.
    let row_words = (most * size_of::<T>()).div_ceil(size_of::<u128>());
    let mut rows = vec![0u128; row_words * size];
    let start = rows.as_mut_ptr();
    let row = |place: usize| -> *mut T { start.wrapping_add(place * row_words).cast() };
    // All sources are there.
    team.meet(name, job);
    if most > 0 {
        for (place, pe) in team.members.iter().enumerate() {
            let to = row(place);
            // SAFETY: this function's own contract; the row has room, and lives until quiet below.
            unsafe { rma::get_nbi(name, DEFAULT, to, source.wrapping_add(from), most as u64, *pe as i32) };
        }
        order::quiet(name, DEFAULT);
        let first = row(0);
        for place in 1..size {
            let theirs = row(place);
            // SAFETY: two rows of as many elements.
            unsafe { O::combine(first, theirs, most) };
        }
        // Where source and target are the same, nobody else reads this share of this member's source.
        // SAFETY: this function's own contract.
        unsafe { rma::copy(dest.wrapping_add(from).cast(), first.cast(), most * size_of::<T>()) };
    }
    // All shares are there.
    team.meet(name, job);
    for turn in 1..size {
        let place = (team.me + turn) % size;
        let (from, to) = share(place);
        let at = dest.wrapping_add(from);
        // SAFETY: this function's own contract.
        unsafe { rma::get_nbi(name, DEFAULT, at, at.cast_const(), (to - from) as u64, team.members[place] as i32) };
    }
    order::quiet(name, DEFAULT);
    // Nobody reads them any more.
    team.meet(name, job);
}
