//! Broadcasts and reductions of a team that has several members on some of its nodes ([`crate::nodes`]): who speaks with whom, and when.
//!
//! Little goes through the lines and slots of the areas; much is read where it is, and the leader of a node takes in its own target
//! what the others of the node then copy.

use longarm::Group;
use longarm::ffi::Region;

use crate::across::{self, Participants};
use crate::boundary::or_end;
use crate::job::Job;
use crate::members::{given, of_member, taken};
use crate::nodes::{LEADER, Nodes};
use crate::operator::Operator;
use crate::process::Process;
use crate::rma;
use crate::shares::{combine_share, share};
use crate::sync_area::SLOT_BYTES;
use crate::teams::Team;

/// The root's elements, to all.
///
/// # Safety
/// As many bytes are writable at `dest`, at who takes them, and symmetric and readable at `source`; all that are not on the
/// root's node take them.
pub(crate) unsafe fn broadcast(
    name: &'static str,
    job: &Job,
    (team, nodes, root): (&Team, &Nodes, usize),
    (dest, source, bytes): (*mut u8, *const u8, usize),
    takes: bool,
) {
    if bytes <= SLOT_BYTES {
        // SAFETY: this function's own contract.
        unsafe { broadcast_little(name, &job.process, (nodes, root), (dest, source, bytes), takes) };
    } else {
        // SAFETY: this function's own contract.
        unsafe { broadcast_much(name, job, (team, nodes, root), (dest, source, bytes), takes) };
    }
}

/// # Safety
/// As [`broadcast`].
unsafe fn broadcast_little(
    name: &'static str,
    process: &Process,
    (nodes, root): (&Nodes, usize),
    (dest, source, bytes): (*mut u8, *const u8, usize),
    takes: bool,
) {
    let root_node = nodes.node_of[root];
    let speak = |group: &Group, elements: &mut [u8]| {
        or_end(name, group.broadcast_collective(root_node as u32, elements));
    };
    // SAFETY: this function's own contract; only the root's is read.
    let own = unsafe { Region::from_raw(source, bytes) };
    let from_root = nodes.place_here(root);
    let shown = match (&nodes.group, from_root) {
        (Some(group), None) => {
            let mut elements = vec![0; bytes];
            speak(group, &mut elements);
            nodes.area.hear(name, process, LEADER, Region::from_slice(&elements))
        }
        (None, None) => nodes.area.hear(name, process, LEADER, own),
        (group, Some(root)) => {
            let shown = nodes.area.hear(name, process, root, own);
            if let Some(group) = group {
                // SAFETY: the root shows as many bytes.
                speak(group, &mut unsafe { taken(shown, bytes) });
            }
            shown
        }
    };
    if takes {
        // SAFETY: this function's own contract; as many bytes are shown until the next barrier.
        unsafe { rma::copy(dest, shown, bytes) };
    }
}

/// # Safety
/// As [`broadcast`].
unsafe fn broadcast_much(
    name: &'static str,
    job: &Job,
    (team, nodes, root): (&Team, &Nodes, usize),
    (dest, source, bytes): (*mut u8, *const u8, usize),
    takes: bool,
) {
    let root_node = nodes.node_of[root];
    let is_here = nodes.mine == root_node;
    let theirs = || of_member(name, job, team, root, source.addr(), bytes);
    if is_here {
        // The source is ready.
        nodes.area.meet(name, &job.process);
    }
    if let Some(group) = &nodes.group {
        if across::suits_broadcast(nodes.leaders.len(), bytes) {
            let participants = Participants::of_group(name, group, &nodes.leader_pes);
            let pe = team.members[root];
            // SAFETY: this function's own contract.
            unsafe { across::broadcast(name, &participants, pe, (dest, source, bytes), !is_here) };
        } else {
            // SAFETY: this function's own contract, and `of_member` has looked at the root's.
            let mut elements = if is_here { unsafe { taken(theirs(), bytes) } } else { vec![0; bytes] };
            or_end(name, group.broadcast_collective(root_node as u32, &mut elements));
            if !is_here {
                // SAFETY: this function's own contract.
                unsafe { given(dest, &elements) };
            }
        }
    }
    let from = if is_here {
        theirs()
    } else {
        // The leader's target is there.
        nodes.area.hear(name, &job.process, LEADER, Region::from_slice(&[]));
        of_member(name, job, team, nodes.leader(), dest.addr(), bytes)
    };
    if takes && from != dest {
        // SAFETY: this function's own contract, and `of_member` has looked at theirs.
        unsafe { rma::copy(dest, from, bytes) };
    }
    // What the others here have copied may be used again.
    nodes.area.tell(name, &job.process, nodes.place_here(root).unwrap_or(LEADER));
}

/// Combines the elements of all, for all: those of each node in the team's order, and then the nodes' in the order of their
/// leaders.
///
/// # Safety
/// The elements are readable at `source` and writable at `dest`, at all members, and both are symmetric.
pub(crate) unsafe fn reduce<O: Operator<T>, T>(
    name: &'static str,
    job: &Job,
    (team, nodes): (&Team, &Nodes),
    (dest, source, count): (*mut T, *const T, usize),
) {
    if rma::bytes_of::<T>(count as u64) <= SLOT_BYTES {
        // SAFETY: this function's own contract.
        unsafe { reduce_little::<O, T>(name, (&job.process, nodes), (dest, source, count)) };
    } else {
        // SAFETY: this function's own contract.
        unsafe { reduce_much::<O, T>(name, job, (team, nodes), (dest, source, count)) };
    }
}

/// # Safety
/// As [`reduce`].
unsafe fn reduce_little<O: Operator<T>, T>(
    name: &'static str,
    (process, nodes): (&Process, &Nodes),
    (dest, source, count): (*mut T, *const T, usize),
) {
    let bytes = rma::bytes_of::<T>(count as u64);
    // SAFETY: this function's own contract.
    let shown = nodes.area.show_to(name, process, LEADER, unsafe { Region::from_raw(source.cast(), bytes) });
    if let Some(group) = &nodes.group {
        // SAFETY: this function's own contract; every one here shows as many bytes.
        unsafe { rma::copy(dest.cast(), shown(LEADER), bytes) };
        for place in 1..nodes.here.len() {
            // SAFETY: as above, and what is shown is aligned.
            unsafe { O::combine(dest, shown(place).cast(), count) };
        }
        // SAFETY: this function's own contract.
        unsafe { between::<O, T>(name, group, (dest, count)) };
    }
    // SAFETY: this function's own contract; the leader has written its own.
    let all = nodes.area.hear(name, process, LEADER, unsafe { Region::from_raw(dest.cast_const().cast(), bytes) });
    if nodes.group.is_none() {
        // SAFETY: this function's own contract; the leader shows as many bytes.
        unsafe { rma::copy(dest.cast(), all, bytes) };
    }
}

/// # Safety
/// As [`reduce`].
unsafe fn reduce_much<O: Operator<T>, T>(
    name: &'static str,
    job: &Job,
    (team, nodes): (&Team, &Nodes),
    (dest, source, count): (*mut T, *const T, usize),
) {
    let bytes = rma::bytes_of::<T>(count as u64);
    // All sources are there.
    nodes.area.meet(name, &job.process);
    let at_leader: *mut T = of_member(name, job, team, nodes.leader(), dest.addr(), bytes).cast();
    let of = |place: &usize| of_member(name, job, team, *place, source.addr(), bytes).cast_const().cast();
    let sources: Vec<*const T> = nodes.here.iter().map(of).collect();
    let share = share(count, (nodes.area.me(), nodes.here.len()));
    // Where source and target are the same, nobody else reads this share of the leader's source.
    // SAFETY: this function's own contract, and `of_member` has looked at theirs.
    unsafe { combine_share::<O, T>(at_leader, &sources, share) };
    // The node's elements are in the leader's target.
    nodes.area.tell(name, &job.process, LEADER);
    if let Some(group) = &nodes.group {
        if bytes >= across::BYTES_MIN {
            let participants = Participants::of_group(name, group, &nodes.leader_pes);
            // SAFETY: this function's own contract.
            unsafe { across::reduce::<O, T>(name, &participants, (dest, dest, count)) };
        } else {
            // SAFETY: this function's own contract.
            unsafe { between::<O, T>(name, group, (dest, count)) };
        }
    }
    // All elements are there.
    nodes.area.hear(name, &job.process, LEADER, Region::from_slice(&[]));
    if nodes.group.is_none() {
        // SAFETY: this function's own contract, and `of_member` has looked at theirs.
        unsafe { rma::copy(dest.cast(), at_leader.cast(), bytes) };
    }
    // The leader's target may be used again.
    nodes.area.tell(name, &job.process, LEADER);
}

/// Combines the elements of the members of a group, at all of them, by messages.
///
/// # Safety
/// The elements are readable and writable at `dest`.
unsafe fn between<O: Operator<T>, T>(name: &'static str, group: &Group, (dest, count): (*mut T, usize)) {
    let bytes = rma::bytes_of::<T>(count as u64);
    // SAFETY: this function's own contract.
    let mine = unsafe { taken(dest.cast_const().cast(), bytes) };
    let all = or_end(name, group.allgather_collective(&mine));
    // Aligned for any element.
    let mut row = vec![0u128; bytes.div_ceil(size_of::<u128>())];
    let row: *mut T = row.as_mut_ptr().cast();
    for (node, theirs) in all.chunks(bytes.max(1)).enumerate() {
        let to = if node == 0 { dest } else { row };
        // SAFETY: this function's own contract; the row is as long, and each member has sent as many bytes.
        unsafe { given(to.cast(), theirs) };
        if node > 0 {
            // SAFETY: as above, and both are aligned.
            unsafe { O::combine(dest, row, count) };
        }
    }
}
