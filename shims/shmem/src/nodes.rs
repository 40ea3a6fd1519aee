//! Collectives of a team that has members on several nodes, and on some of them more than one: those of a node meet in a
//! room, and the first of them speaks with the first ones of the other nodes.
//!
//! ```text
//!   node 0:  0 1 2 ── room ── first: 0 ┐
//!   node 1:  3 4 5 ── room ── first: 3 ┴ messages, or gets where there is much
//! ```
//!
//! So every node is told once what it has to know. Little goes through the lines and slots of the room; much is read where it is,
//! and the first of a node takes in its own target what the others of the node then copy.

use longarm::ffi::Region;
use longarm::{Group, World};

use crate::across::{self, Circle};
use crate::boundary::or_end;
use crate::collective::{given, of_member, taken};
use crate::job::Job;
use crate::operator::Operator;
use crate::reduce;
use crate::rma;
use crate::room::{Room, SLOT_BYTES};
use crate::team::Team;

/// The place of the first in the room.
const FIRST: usize = 0;

/// See the module.
pub(crate) struct Nodes {
    room: Room,
    /// Places in the team of those in the room.
    here: Box<[usize]>,
    /// Of each node, its first one: the place in the team, and the PE.
    firsts: Box<[usize]>,
    first_pes: Box<[u32]>,
    /// Which of them is of this node.
    mine: usize,
    /// By place in the team, which of them is of that one's node.
    node_of: Box<[usize]>,
    /// The first ones; `None` at the others.
    group: Option<Group>,
}

/// Who of a team is where.
pub(crate) struct Layout {
    firsts: Vec<usize>,
    node_of: Vec<usize>,
}

impl Layout {
    /// `None` if all are on one node, or each is on another one.
    pub(crate) fn of(world: &World, members: &[u32]) -> Option<Layout> {
        let mut firsts: Vec<usize> = Vec::new();
        let mut node_of = Vec::with_capacity(members.len());
        let node = |place: usize| world.node_of(members[place]);
        for place in 0..members.len() {
            let known = firsts.iter().position(|first| node(*first) == node(place));
            node_of.push(known.unwrap_or_else(|| {
                firsts.push(place);
                firsts.len() - 1
            }));
        }
        (firsts.len() > 1 && firsts.len() < members.len()).then_some(Layout { firsts, node_of })
    }

    /// The places of those on the node of `me`.
    pub(crate) fn here(&self, me: usize) -> Vec<usize> {
        (0..self.node_of.len()).filter(|place| self.node_of[*place] == self.node_of[me]).collect()
    }
}

impl Nodes {
    /// `room` is that of [`Layout::here`]. `tag` as for [`World::group_among`].
    pub(crate) fn new(world: &World, layout: Layout, (members, me): (&[u32], usize), room: Room, tag: u64) -> Nodes {
        let here = layout.here(me).into();
        let mine = layout.node_of[me];
        let first_pes: Box<[u32]> = layout.firsts.iter().map(|place| members[*place]).collect();
        let group = world.group_among(&first_pes, tag);
        Nodes { room, here, firsts: layout.firsts.into(), first_pes, mine, node_of: layout.node_of.into(), group }
    }

    /// How many barriers there were in the room.
    pub(crate) fn met(&self) -> u64 {
        self.room.met()
    }

    /// The place in the room of a member of the team, if it is here.
    fn place_here(&self, member: usize) -> Option<usize> {
        self.here.iter().position(|place| *place == member)
    }

    /// The place in the team of the first one here.
    fn first(&self) -> usize {
        self.firsts[self.mine]
    }

    /// All members meet.
    pub(crate) fn meet(&self, name: &'static str, job: &Job) {
        self.room.tell(name, &job.process, FIRST);
        if let Some(group) = &self.group {
            or_end(name, group.sync_collective());
        }
        self.room.hear(name, &job.process, FIRST, Region::from_slice(&[]));
    }

    /// The root's elements, to all.
    ///
    /// # Safety
    /// As many bytes are writable at `dest`, at who takes them, and symmetric and readable at `source`; all that are not on the
    /// root's node take them.
    pub(crate) unsafe fn broadcast(
        &self,
        name: &'static str,
        job: &Job,
        (team, root): (&Team, usize),
        (dest, source, bytes): (*mut u8, *const u8, usize),
        takes: bool,
    ) {
        if bytes <= SLOT_BYTES {
            // SAFETY: this function's own contract.
            unsafe { self.broadcast_little(name, job, root, (dest, source, bytes), takes) };
        } else {
            // SAFETY: this function's own contract.
            unsafe { self.broadcast_much(name, job, (team, root), (dest, source, bytes), takes) };
        }
    }

    /// # Safety
    /// As [`Nodes::broadcast`].
    unsafe fn broadcast_little(
        &self,
        name: &'static str,
        job: &Job,
        root: usize,
        (dest, source, bytes): (*mut u8, *const u8, usize),
        takes: bool,
    ) {
        let root_node = self.node_of[root];
        let speak = |group: &Group, elements: &mut [u8]| {
            or_end(name, group.broadcast_collective(root_node as u32, elements));
        };
        // SAFETY: this function's own contract; only the root's is read.
        let own = unsafe { Region::from_raw(source, bytes) };
        let from_root = self.place_here(root);
        let shown = match (&self.group, from_root) {
            (Some(group), None) => {
                let mut elements = vec![0; bytes];
                speak(group, &mut elements);
                self.room.hear(name, &job.process, FIRST, Region::from_slice(&elements))
            }
            (None, None) => self.room.hear(name, &job.process, FIRST, own),
            (group, Some(root)) => {
                let shown = self.room.hear(name, &job.process, root, own);
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
    /// As [`Nodes::broadcast`].
    unsafe fn broadcast_much(
        &self,
        name: &'static str,
        job: &Job,
        (team, root): (&Team, usize),
        (dest, source, bytes): (*mut u8, *const u8, usize),
        takes: bool,
    ) {
        let root_node = self.node_of[root];
        let is_here = self.mine == root_node;
        let theirs = || of_member(name, job, team, root, source.addr(), bytes);
        if is_here {
            // The source is ready.
            self.room.meet(name, &job.process);
        }
        if let Some(group) = &self.group {
            if across::suits_broadcast(self.firsts.len(), bytes) {
                let circle = Circle::of_group(name, group, &self.first_pes);
                let pe = team.members[root];
                // SAFETY: this function's own contract.
                unsafe { across::broadcast(name, &circle, pe, (dest, source, bytes), !is_here) };
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
            // The first one's target is there.
            self.room.hear(name, &job.process, FIRST, Region::from_slice(&[]));
            of_member(name, job, team, self.first(), dest.addr(), bytes)
        };
        if takes && from != dest {
            // SAFETY: this function's own contract, and `of_member` has looked at theirs.
            unsafe { rma::copy(dest, from, bytes) };
        }
        // What the others here have copied may be used again.
        self.room.tell(name, &job.process, self.place_here(root).unwrap_or(FIRST));
    }

    /// Combines the elements of all, for all: those of each node in the team's order, and then the nodes' in the order of their
    /// first ones.
    ///
    /// # Safety
    /// The elements are readable at `source` and writable at `dest`, at all members, and both are symmetric.
    pub(crate) unsafe fn reduce<O: Operator<T>, T>(
        &self,
        name: &'static str,
        job: &Job,
        team: &Team,
        (dest, source, count): (*mut T, *const T, usize),
    ) {
        if rma::bytes_of::<T>(count as u64) <= SLOT_BYTES {
            // SAFETY: this function's own contract.
            unsafe { self.reduce_little::<O, T>(name, job, (dest, source, count)) };
        } else {
            // SAFETY: this function's own contract.
            unsafe { self.reduce_much::<O, T>(name, job, team, (dest, source, count)) };
        }
    }

    /// # Safety
    /// As [`Nodes::reduce`].
    unsafe fn reduce_little<O: Operator<T>, T>(
        &self,
        name: &'static str,
        job: &Job,
        (dest, source, count): (*mut T, *const T, usize),
    ) {
        let bytes = rma::bytes_of::<T>(count as u64);
        // SAFETY: this function's own contract.
        let shown = self.room.show_to(name, &job.process, FIRST, unsafe { Region::from_raw(source.cast(), bytes) });
        if let Some(group) = &self.group {
            // SAFETY: this function's own contract; every one here shows as many bytes.
            unsafe { rma::copy(dest.cast(), shown(FIRST), bytes) };
            for place in 1..self.here.len() {
                // SAFETY: as above, and what is shown is aligned.
                unsafe { O::combine(dest, shown(place).cast(), count) };
            }
            // SAFETY: this function's own contract.
            unsafe { between::<O, T>(name, group, (dest, count)) };
        }
        // SAFETY: this function's own contract; the first one has written its own.
        let all =
            self.room.hear(name, &job.process, FIRST, unsafe { Region::from_raw(dest.cast_const().cast(), bytes) });
        if self.group.is_none() {
            // SAFETY: this function's own contract; the first one shows as many bytes.
            unsafe { rma::copy(dest.cast(), all, bytes) };
        }
    }

    /// # Safety
    /// As [`Nodes::reduce`].
    unsafe fn reduce_much<O: Operator<T>, T>(
        &self,
        name: &'static str,
        job: &Job,
        team: &Team,
        (dest, source, count): (*mut T, *const T, usize),
    ) {
        let bytes = rma::bytes_of::<T>(count as u64);
        // All sources are there.
        self.room.meet(name, &job.process);
        let at_first: *mut T = of_member(name, job, team, self.first(), dest.addr(), bytes).cast();
        let of = |place: &usize| of_member(name, job, team, *place, source.addr(), bytes).cast_const().cast();
        let sources: Vec<*const T> = self.here.iter().map(of).collect();
        let share = reduce::share(count, (self.room.me(), self.here.len()));
        // Where source and target are the same, nobody else reads this share of the first one's source.
        // SAFETY: this function's own contract, and `of_member` has looked at theirs.
        unsafe { reduce::combine_share::<O, T>(at_first, &sources, share) };
        // The node's elements are in the first one's target.
        self.room.tell(name, &job.process, FIRST);
        if let Some(group) = &self.group {
            if bytes >= across::BYTES_MIN {
                let circle = Circle::of_group(name, group, &self.first_pes);
                // SAFETY: this function's own contract.
                unsafe { across::reduce::<O, T>(name, &circle, (dest, dest, count)) };
            } else {
                // SAFETY: this function's own contract.
                unsafe { between::<O, T>(name, group, (dest, count)) };
            }
        }
        // All elements are there.
        self.room.hear(name, &job.process, FIRST, Region::from_slice(&[]));
        if self.group.is_none() {
            // SAFETY: this function's own contract, and `of_member` has looked at theirs.
            unsafe { rma::copy(dest.cast(), at_first.cast(), bytes) };
        }
        // The first one's target may be used again.
        self.room.tell(name, &job.process, FIRST);
    }
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
