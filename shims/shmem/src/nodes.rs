//! How broadcasts, and reductions of more than a little, go in a team that has members on several nodes, and on some of them more than one:
//! those of a node meet in an area, and their leader speaks with the leaders of the other nodes. To meet, and to reduce little, the team uses
//! its group of longarm.
//!
//! ```text
//!   node 0:  0 1 2 ── area ── leader: 0 ┐
//!   node 1:  3 4 5 ── area ── leader: 3 ┴ messages, or gets where there is much
//! ```
//!
//! So every node is told once what it has to know.

use longarm::{Group, World};

use crate::sync_area::SyncArea;

/// The place of the leader in the area.
pub(crate) const LEADER: usize = 0;

/// See the module.
pub(crate) struct Nodes {
    pub(crate) area: SyncArea,
    /// Places in the team of those in the area.
    pub(crate) here: Box<[usize]>,
    /// Of each node, its leader: the place in the team, and the PE.
    pub(crate) leaders: Box<[usize]>,
    pub(crate) leader_pes: Box<[u32]>,
    /// Which of them is of this node.
    pub(crate) mine: usize,
    /// By place in the team, which of them is of that one's node.
    pub(crate) node_of: Box<[usize]>,
    /// The leaders; `None` at the others.
    pub(crate) group: Option<Group>,
}

/// Who of a team is where.
pub(crate) struct Layout {
    leaders: Vec<usize>,
    node_of: Vec<usize>,
}

impl Layout {
    /// `None` if all are on one node, or each is on another one.
    pub(crate) fn of(world: &World, members: &[u32]) -> Option<Layout> {
        let mut leaders: Vec<usize> = Vec::new();
        let mut node_of = Vec::with_capacity(members.len());
        let node = |place: usize| world.node_of(members[place]);
        for place in 0..members.len() {
            let known = leaders.iter().position(|leader| node(*leader) == node(place));
            node_of.push(known.unwrap_or_else(|| {
                leaders.push(place);
                leaders.len() - 1
            }));
        }
        (leaders.len() > 1 && leaders.len() < members.len()).then_some(Layout { leaders, node_of })
    }

    /// The places of those on the node of `me`.
    pub(crate) fn here(&self, me: usize) -> Vec<usize> {
        (0..self.node_of.len()).filter(|place| self.node_of[*place] == self.node_of[me]).collect()
    }
}

impl Nodes {
    /// `area` is that of [`Layout::here`]. `tag` as for [`World::group_among`].
    pub(crate) fn new(
        world: &World,
        layout: Layout,
        (members, me): (&[u32], usize),
        area: SyncArea,
        tag: u64,
    ) -> Nodes {
        let here = layout.here(me).into();
        let mine = layout.node_of[me];
        let leader_pes: Box<[u32]> = layout.leaders.iter().map(|place| members[*place]).collect();
        let group = world.group_among(&leader_pes, tag);
        Nodes { area, here, leaders: layout.leaders.into(), leader_pes, mine, node_of: layout.node_of.into(), group }
    }

    /// How many barriers there were in the area.
    pub(crate) fn met(&self) -> u64 {
        self.area.met()
    }

    /// The place in the area of a member of the team, if it is here.
    #[inline]
    pub(crate) fn place_here(&self, member: usize) -> Option<usize> {
        self.here.iter().position(|place| *place == member)
    }

    /// The place in the team of the leader here.
    #[inline]
    pub(crate) fn leader(&self) -> usize {
        self.leaders[self.mine]
    }
}
