//! Collectives on much data, over PEs that do not have each other's memory mapped, most often because they are on several
//! nodes. It is symmetric, so each gets what it needs straight from where it is, between barriers, and no message is copied
//! on its way.

use longarm::Group;

use crate::boundary::or_end;
use crate::contexts::DEFAULT;
use crate::operator::Operator;
use crate::order;
use crate::process::Process;
use crate::rma;
use crate::shares::share;
use crate::teams::Team;

/// From how many bytes on: below, the barriers take longer than what they save.
pub(crate) const BYTES_MIN: usize = 64 << 10;
/// How many members may get from one at the same time: of more, a tree of messages is quicker.
const TAKERS_MAX: usize = 8;

/// Who takes part: a team, or the leaders of its nodes.
pub(crate) struct Participants<'a> {
    /// World numbers.
    pes: &'a [u32],
    me: usize,
    meet: Box<dyn Fn() + 'a>,
}

impl<'a> Participants<'a> {
    pub(crate) fn of_team(name: &'static str, process: &'a Process, team: &'a Team) -> Participants<'a> {
        Participants { pes: &team.members, me: team.me, meet: Box::new(move || team.meet(name, process)) }
    }

    /// `pes` are the members of the group.
    pub(crate) fn of_group(name: &'static str, group: &'a Group, pes: &'a [u32]) -> Participants<'a> {
        Participants { pes, me: group.rank() as usize, meet: Box::new(move || or_end(name, group.sync_collective())) }
    }

    fn meet(&self) {
        (self.meet)();
    }
}

/// Whether as many PEs are to have the root's elements by [`broadcast`].
pub(crate) fn suits_broadcast(pes: usize, bytes: usize) -> bool {
    bytes >= BYTES_MIN && pes <= TAKERS_MAX
}

/// Each gets the elements from the root, a number of the world.
///
/// # Safety
/// As many bytes are writable at `dest`, if it takes them, and symmetric and readable at `source`.
pub(crate) unsafe fn broadcast(
    name: &'static str,
    participants: &Participants<'_>,
    root: u32,
    (dest, source, bytes): (*mut u8, *const u8, usize),
    takes: bool,
) {
    // The source is ready.
    participants.meet();
    if takes {
        // SAFETY: this function's own contract.
        unsafe { rma::get(name, DEFAULT, dest, source, bytes as u64, root as i32) };
    }
    // It may be used again.
    participants.meet();
}

/// Each combines a share for all, and gets the others' shares when they are there.
///
/// # Safety
/// The elements are readable at `source` and writable at `dest`, at all members, and both are symmetric.
pub(crate) unsafe fn reduce<O: Operator<T>, T>(
    name: &'static str,
    participants: &Participants<'_>,
    (dest, source, count): (*mut T, *const T, usize),
) {
    let size = participants.pes.len();
    let (from, to) = share(count, (participants.me, size));
    let most = to - from;
    // A row for each other member, aligned for any element.
    let row_words = (most * size_of::<T>()).div_ceil(size_of::<u128>());
    let mut rows = vec![0u128; row_words * size];
    let start = rows.as_mut_ptr();
    let row = |place: usize| -> *mut T { start.wrapping_add(place * row_words).cast() };
    // All sources are there.
    participants.meet();
    if most > 0 {
        for (place, pe) in participants.pes.iter().enumerate() {
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
    participants.meet();
    for turn in 1..size {
        let place = (participants.me + turn) % size;
        let (from, to) = share(count, (place, size));
        let at = dest.wrapping_add(from);
        // SAFETY: this function's own contract.
        unsafe { rma::get_nbi(name, DEFAULT, at, at.cast_const(), (to - from) as u64, participants.pes[place] as i32) };
    }
    order::quiet(name, DEFAULT);
    // Nobody reads them any more.
    participants.meet();
}
