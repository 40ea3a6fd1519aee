//! Collectives of teams on several nodes, by puts straight into the targets, when all have met: a member that still reads what an
//! earlier collective brought would else find what the next one brings. All meet at the end.
//!
//! ```text
//!   all-to-all   all meet; each puts its blocks to all; all meet
//!   fcollect     all meet; each puts its elements to one member on each other node; all meet
//!                each copies what its neighbours have got, and what they have themselves; those of a node meet
//! ```

use std::ffi::c_int;

use crate::contexts::DEFAULT;
use crate::job::Job;
use crate::members::of_member;
use crate::nodes::Nodes;
use crate::order;
use crate::rma;
use crate::teams::Team;

/// From how many bytes of each for each on, in teams in which each member has a node of its own, and in those where some share one: below, the
/// collectives of longarm's groups are quicker, which meet once.
const ALLTOALL_BYTES_MIN: [usize; 2] = [32 << 10, 64 << 10];
/// The same of each member for all.
const FCOLLECT_BYTES_MIN: [usize; 2] = [16 << 10, 128 << 10];

/// To how many members, each taken for one on a node of its own, the same is put. More get it by messages.
const TARGETS_MAX: usize = 8;

/// Whether so many bytes for each member are put: not where the targets are a part of what is still to be put.
pub(crate) fn suits_alltoall(team: &Team, (dest, source, bytes): (*mut u8, *const u8, usize)) -> bool {
    let all = bytes.saturating_mul(team.size());
    let bytes_min = ALLTOALL_BYTES_MIN[usize::from(team.nodes.is_some())];
    bytes >= bytes_min && (dest.addr() + all <= source.addr() || source.addr() + all <= dest.addr())
}

/// Whether so many bytes of each member are put.
pub(crate) fn suits_fcollect(team: &Team, nodes: Option<&Nodes>, bytes: usize) -> bool {
    let bytes_min = FCOLLECT_BYTES_MIN[usize::from(nodes.is_some())];
    bytes >= bytes_min && (nodes.is_some() || team.size() <= TARGETS_MAX)
}

/// Puts so many bytes to a member, where they have this address. They are there after quiet.
///
/// # Safety
/// They are readable at `from` until then; those of the target belong to nobody's reference.
unsafe fn put_to(name: &'static str, team: &Team, place: usize, (to, from, bytes): (*mut u8, *const u8, usize)) {
    // SAFETY: this function's own contract.
    unsafe { rma::put_nbi(name, DEFAULT, to, from, bytes as u64, team.members[place] as c_int) };
}

/// Each member gets `bytes` bytes of each.
///
/// # Safety
/// The bytes for all are readable at `source`, and those of all writable at `dest`, at all members; both are symmetric.
pub(crate) unsafe fn alltoall(
    name: &'static str,
    job: &Job,
    team: &Team,
    (dest, source, bytes): (*mut u8, *const u8, usize),
) {
    let mine = dest.wrapping_add(team.me * bytes);
    // All targets are ready.
    team.meet(name, &job.process);
    for turn in 0..team.size() {
        let place = (team.me + turn) % team.size();
        // SAFETY: this function's own contract.
        unsafe { put_to(name, team, place, (mine, source.wrapping_add(place * bytes), bytes)) };
    }
    order::quiet(name, DEFAULT);
    team.meet(name, &job.process);
}

/// All members get the bytes of all. `nodes` are theirs, if some share one and have each other's memory mapped.
///
/// # Safety
/// `bytes` bytes are readable at `source`, and as many of each member writable at `dest`, at all members; both are symmetric.
pub(crate) unsafe fn fcollect(
    name: &'static str,
    job: &Job,
    (team, nodes): (&Team, Option<&Nodes>),
    (dest, source, bytes): (*mut u8, *const u8, usize),
) {
    let at = |place: usize| dest.wrapping_add(place * bytes);
    // All targets are ready.
    team.meet(name, &job.process);
    let receivers = Receivers::new(team, nodes);
    for turn in 1..team.size() {
        let place = (team.me + turn) % team.size();
        if receivers.is_put(team.me, place) {
            // SAFETY: this function's own contract.
            unsafe { put_to(name, team, place, (at(team.me), source, bytes)) };
        }
    }
    if at(team.me).cast_const() != source {
        // SAFETY: this function's own contract.
        unsafe { rma::copy(at(team.me), source, bytes) };
    }
    order::quiet(name, DEFAULT);
    team.meet(name, &job.process);
    let Some(nodes) = nodes else { return };
    for place in (0..team.size()).filter(|place| *place != team.me && !receivers.is_put(*place, team.me)) {
        let (owner, address) = match nodes.place_here(place) {
            Some(_) => (place, source.addr()),
            None => (receivers.on_node(nodes.mine, place), at(place).addr()),
        };
        // SAFETY: this function's own contract, and `of_member` has looked at theirs.
        unsafe { rma::copy(at(place), of_member(name, job, team, owner, address, bytes), bytes) };
    }
    // The neighbours' may be used again.
    nodes.area.meet(name, &job.process);
}

/// On each node, the elements of a member of another node are put to one member only, the receiver. This says which member that is.
struct Receivers {
    /// By place, which node it is on, and its number there.
    node_and_number: Vec<(usize, usize)>,
    places_on_node: Vec<Vec<usize>>,
}

impl Receivers {
    /// Without `nodes` each member is taken for one on a node of its own.
    fn new(team: &Team, nodes: Option<&Nodes>) -> Receivers {
        let node_of = |place: usize| nodes.map_or(place, |nodes| nodes.node_of[place]);
        let mut receivers = Receivers { node_and_number: Vec::with_capacity(team.size()), places_on_node: Vec::new() };
        for place in 0..team.size() {
            let node = node_of(place);
            let places = &mut receivers.places_on_node;
            places.resize_with(places.len().max(node + 1), Vec::new);
            receivers.node_and_number.push((node, places[node].len()));
            places[node].push(place);
        }
        receivers
    }

    /// The member of a node that gets what the member at `origin`, on another node, has.
    fn on_node(&self, node: usize, origin: usize) -> usize {
        let places = &self.places_on_node[node];
        places[self.node_and_number[origin].1 % places.len()]
    }

    /// Whether the member at `origin` puts to the one at `target`, which else copies from a neighbour.
    fn is_put(&self, origin: usize, target: usize) -> bool {
        let node = self.node_and_number[target].0;
        node != self.node_and_number[origin].0 && self.on_node(node, origin) == target
    }
}
