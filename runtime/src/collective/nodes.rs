//! Which members of a group share a node: who speaks for whom.

use std::sync::Arc;

use longarm_client::Layout;
use longarm_proto::Rank;

/// The members of a group by node. Nodes are numbered in the order of their first members.
#[derive(PartialEq, Debug)]
pub(crate) struct Nodes {
    /// The places of the members, node by node, ascending in each.
    places: Arc<[u32]>,
    /// Where in `places` each node begins, and where the last one ends.
    starts: Arc<[u32]>,
    /// Which of them is this rank's.
    mine: u32,
    /// Which of the members here this rank is.
    local: u32,
    /// The places of each node's members follow each other, and those of the nodes.
    in_blocks: bool,
}

impl Nodes {
    /// Of all ranks: what the layout knows already, if it has the nodes in the same order.
    pub(crate) fn of_world(layout: &Layout) -> Nodes {
        let Some(places) = layout.places() else { return Nodes::new(layout, &layout.all_ranks(), layout.me().0) };
        let (places, starts) = (Arc::clone(places), Arc::clone(layout.starts()));
        let in_blocks = places.is_sorted();
        Nodes { places, starts, mine: layout.my_node().0, local: layout.local_of(layout.me()), in_blocks }
    }

    /// `me`: the place of this rank.
    pub(crate) fn new(layout: &Layout, members: &[Rank], me: u32) -> Nodes {
        let mut number_of = vec![u32::MAX; layout.node_count() as usize];
        let mut counts: Vec<u32> = Vec::new();
        for member in members {
            let number = &mut number_of[layout.node_of(*member).0 as usize];
            if *number == u32::MAX {
                *number = counts.len() as u32;
                counts.push(0);
            }
            counts[*number as usize] += 1;
        }
        let ends = counts.iter().scan(0, |end, count| {
            *end += count;
            Some(*end)
        });
        let starts: Arc<[u32]> = std::iter::once(0).chain(ends).collect();
        let number = |member: &Rank| number_of[layout.node_of(*member).0 as usize];
        let mut next = starts.to_vec();
        let mut places = vec![0; members.len()];
        for (place, member) in (0..).zip(members) {
            let at = &mut next[number(member) as usize];
            places[*at as usize] = place;
            *at += 1;
        }
        let mine = number(&members[me as usize]);
        let in_blocks = places.is_sorted();
        let mut nodes = Nodes { places: places.into(), starts, mine, local: 0, in_blocks };
        nodes.local = nodes.here().iter().position(|place| *place == me).expect("this rank is on its node") as u32;
        nodes
    }

    pub(crate) fn count(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    pub(super) fn mine(&self) -> u32 {
        self.mine
    }

    pub(super) fn local(&self) -> u32 {
        self.local
    }

    /// The places of all members, node by node.
    pub(super) fn places(&self) -> &[u32] {
        &self.places
    }

    /// Where in [`Nodes::places`] those of a node begin.
    pub(super) fn start(&self, node: u32) -> usize {
        self.starts[node as usize] as usize
    }

    /// How many members the node has that has most.
    pub(super) fn most(&self) -> usize {
        (0..self.count()).map(|node| self.on(node).len()).max().unwrap_or(0)
    }

    /// The places of the members on a node, ascending.
    pub(super) fn on(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.places[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// The places of the members on this rank's node.
    pub(crate) fn here(&self) -> &[u32] {
        self.on(self.mine)
    }

    /// The place of the leader of a node: the first member there, which speaks for the others.
    pub(crate) fn leader(&self, node: u32) -> u32 {
        self.on(node)[0]
    }

    /// The place of the leader of this rank's node.
    pub(super) fn my_leader(&self) -> u32 {
        self.here()[0]
    }

    /// Whether this rank leads its node.
    pub(super) fn is_leader(&self) -> bool {
        self.local == 0
    }

    /// The node of the member at a place.
    pub(super) fn node_of(&self, place: u32) -> u32 {
        (0..self.count()).find(|node| self.on(*node).contains(&place)).expect("every member is on a node")
    }

    /// Whether the places of each node's members follow each other, and those of the nodes.
    pub(super) fn are_in_blocks(&self) -> bool {
        self.in_blocks
    }

    /// Whether there are several nodes, on some of which there are several members.
    pub(crate) fn are_shared(&self) -> bool {
        self.count() > 1 && (self.count() as usize) < self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use longarm_proto::NodeId;

    use super::*;

    #[test]
    fn members_are_found_by_node_wherever_they_are_in_the_group() {
        let layout = Layout::new(Rank(1), &[0, 0, 1, 2, 2, 2].map(NodeId));
        // Places 0 to 4; node 2 comes first, and nobody of node 1.
        let members = [5, 0, 3, 1, 4].map(Rank);
        let nodes = Nodes::new(&layout, &members, 3);
        assert_eq!((nodes.count(), nodes.mine(), nodes.local()), (2, 1, 1));
        assert_eq!((nodes.on(0), nodes.on(1), nodes.here()), (&[0, 2, 4][..], &[1, 3][..], &[1, 3][..]));
        assert_eq!([nodes.leader(0), nodes.leader(1)], [0, 1]);
        assert_eq!([0, 1, 2, 3, 4].map(|place| nodes.node_of(place)), [0, 1, 0, 1, 0]);
        assert!(nodes.are_shared() && !nodes.is_leader());
    }

    #[test]
    fn the_layouts_nodes_of_the_world_are_those_found_from_its_ranks() {
        for node_of in [&[0, 0, 1, 1, 2][..], &[0, 1, 0, 2, 1], &[1, 0, 1, 2], &[0; 4], &[0, 1, 2]] {
            let node_of: Vec<NodeId> = node_of.iter().copied().map(NodeId).collect();
            for me in (0..node_of.len() as u32).map(Rank) {
                let layout = Layout::new(me, &node_of);
                assert_eq!(Nodes::of_world(&layout), Nodes::new(&layout, &layout.all_ranks(), me.0), "{node_of:?}");
            }
        }
    }

    #[test]
    fn a_node_of_its_own_for_each_and_one_for_all_are_not_shared_nodes() {
        let layout = Layout::new(Rank(0), &[0, 0, 1].map(NodeId));
        assert!(!Nodes::new(&layout, &[0, 1].map(Rank), 0).are_shared());
        assert!(!Nodes::new(&layout, &[0, 2].map(Rank), 1).are_shared());
        assert!(Nodes::new(&layout, &[0, 1, 2].map(Rank), 0).are_shared());
    }

    #[test]
    fn every_member_sees_the_same_nodes_and_leaders_and_finds_itself_among_its_own() {
        let node_of = [3, 0, 0, 3, 1, 3, 0, 2, 3].map(NodeId);
        let layout = Layout::new(Rank(0), &node_of);
        for members in [&[0, 1, 2, 3, 4, 5, 6, 7, 8][..], &[8, 7, 6, 1, 0], &[4, 2, 6], &[5], &[7, 0, 3, 5, 8]] {
            let members: Vec<Rank> = members.iter().copied().map(Rank).collect();
            let node = |place: u32| layout.node_of(members[place as usize]);
            for me in 0..members.len() as u32 {
                let nodes = Nodes::new(&layout, &members, me);
                let on: Vec<&[u32]> = (0..nodes.count()).map(|number| nodes.on(number)).collect();
                let mut places: Vec<u32> = on.concat();
                places.sort_unstable();
                assert!(places.into_iter().eq(0..members.len() as u32), "each member is on one node: {on:?}");
                for (number, here) in (0..).zip(&on) {
                    assert!(here.is_sorted() && here.iter().all(|place| node(*place) == node(here[0])), "{on:?}");
                    assert_eq!(nodes.leader(number), here[0]);
                    assert!(here.iter().all(|place| nodes.node_of(*place) == number), "{on:?}");
                }
                assert!(on.is_sorted_by(|one, next| one[0] < next[0] && node(one[0]) != node(next[0])), "{on:?}");
                assert_eq!((nodes.here()[nodes.local() as usize], nodes.here()), (me, on[nodes.mine() as usize]));
                assert_eq!(nodes.is_leader(), nodes.my_leader() == me);
                assert_eq!(nodes.are_shared(), on.len() > 1 && on.iter().any(|here| here.len() > 1));
            }
        }
    }
}
