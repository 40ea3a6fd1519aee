//! On which node each rank runs. Fixed from init to finalize.

use std::sync::{Arc, OnceLock};

use longarm_proto::{NodeId, Rank};

/// The ranks of the world by node: 16 bytes a rank where each has a node of its own, 12 where nodes are large.
#[derive(Clone, Debug)]
pub struct Layout {
    me: Rank,
    node_of_rank: Arc<[NodeId]>,
    local_of_rank: Arc<[u32]>,
    /// Node by node, ascending in each.
    ranks: Arc<[Rank]>,
    /// Where in `ranks` each node begins, and where the last one ends.
    starts: Arc<[u32]>,
    /// `ranks` as plain numbers, which are their places in a group of all, from the first time on that they are asked for.
    places: Arc<OnceLock<Arc<[u32]>>>,
}

impl Layout {
    /// From the node of every rank. Nodes are numbered from 0 without gaps, each with a rank at least.
    ///
    /// # Panics
    /// If `me` is no rank of it or a node is empty: whoever starts the job made it up.
    pub fn new(me: Rank, node_of_rank: &[NodeId]) -> Layout {
        assert!((me.0 as usize) < node_of_rank.len(), "rank {} of {}", me.0, node_of_rank.len());
        let node_count = node_of_rank.iter().map(|node| node.0 as usize + 1).max().unwrap_or(0);
        let mut counts = vec![0_u32; node_count];
        let local_of_rank = node_of_rank.iter().map(|node| {
            let count = &mut counts[node.0 as usize];
            *count += 1;
            *count - 1
        });
        let local_of_rank: Arc<[u32]> = local_of_rank.collect();
        assert!(counts.iter().all(|count| *count > 0), "a node without ranks");
        let mut starts = vec![0];
        starts.extend(counts.iter().scan(0, |end, count| {
            *end += count;
            Some(*end)
        }));
        let mut ranks = vec![Rank(0); node_of_rank.len()];
        for ((rank, node), local) in (0..).map(Rank).zip(node_of_rank).zip(&*local_of_rank) {
            ranks[(starts[node.0 as usize] + local) as usize] = rank;
        }
        Layout {
            me,
            node_of_rank: node_of_rank.into(),
            local_of_rank,
            ranks: ranks.into(),
            starts: starts.into(),
            places: Arc::default(),
        }
    }

    /// The same for another rank. They share what they know.
    ///
    /// # Panics
    /// If it is no rank of it.
    pub fn of(&self, me: Rank) -> Layout {
        assert!(self.contains(me), "rank {} of {}", me.0, self.rank_count());
        Layout { me, ..self.clone() }
    }

    /// The rank of this process.
    #[inline]
    pub fn me(&self) -> Rank {
        self.me
    }

    /// How many ranks the world has.
    pub fn rank_count(&self) -> u32 {
        self.node_of_rank.len() as u32
    }

    /// How many nodes the world has.
    pub fn node_count(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// The node of this process.
    pub fn my_node(&self) -> NodeId {
        self.node_of(self.me)
    }

    /// The node of a rank of the world.
    #[inline]
    pub fn node_of(&self, rank: Rank) -> NodeId {
        self.node_of_rank[rank.0 as usize]
    }

    /// The number of a rank among the ranks of its node.
    #[inline]
    pub fn local_of(&self, rank: Rank) -> u32 {
        self.local_of_rank[rank.0 as usize]
    }

    /// The ranks of a node, ascending.
    pub fn ranks_of(&self, node: NodeId) -> &[Rank] {
        let node = node.0 as usize;
        &self.ranks[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// How many ranks the largest node has.
    pub fn ranks_per_node_max(&self) -> u32 {
        self.starts.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0)
    }

    /// All ranks, ascending.
    pub fn all_ranks(&self) -> Arc<[Rank]> {
        if self.ranks.is_sorted() { Arc::clone(&self.ranks) } else { (0..self.rank_count()).map(Rank).collect() }
    }

    /// Where each node begins in the ranks by node, and where the last one ends.
    pub fn starts(&self) -> &Arc<[u32]> {
        &self.starts
    }

    /// The places of all ranks in a group of all of them, node by node. `None`: the nodes are not numbered in the order of their first
    /// ranks.
    pub fn places(&self) -> Option<&Arc<[u32]>> {
        let leading = self.starts[..self.starts.len() - 1].iter().map(|start| self.ranks[*start as usize]);
        let as_places = || self.ranks.iter().map(|rank| rank.0).collect();
        leading.is_sorted().then(|| self.places.get_or_init(as_places))
    }

    /// The rank that hosts the server of a node: its lowest.
    pub fn server_host(&self, node: NodeId) -> Rank {
        self.ranks_of(node)[0]
    }

    /// Whether a number is a rank of the world.
    pub fn contains(&self, rank: Rank) -> bool {
        rank.0 < self.rank_count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_found_by_node_however_they_are_dealt_out() {
        let node_of_rank = [1, 0, 1, 2, 0, 1].map(NodeId);
        let layout = Layout::new(Rank(3), &node_of_rank);
        assert_eq!((layout.rank_count(), layout.node_count(), layout.my_node()), (6, 3, NodeId(2)));
        let ranks: Vec<&[Rank]> = (0..3).map(|node| layout.ranks_of(NodeId(node))).collect();
        assert_eq!(ranks, [&[Rank(1), Rank(4)][..], &[Rank(0), Rank(2), Rank(5)], &[Rank(3)]]);
        for (rank, node) in (0..).map(Rank).zip(node_of_rank) {
            assert_eq!(layout.node_of(rank), node);
            assert_eq!(layout.ranks_of(node)[layout.local_of(rank) as usize], rank);
        }
        assert_eq!(layout.server_host(NodeId(1)), Rank(0));
        assert_eq!(layout.ranks_per_node_max(), 3);
        assert_eq!(*layout.all_ranks(), [0, 1, 2, 3, 4, 5].map(Rank));
        assert_eq!(layout.places(), None, "node 1 has the first rank");
        let dealt_out = Layout::new(Rank(1), &[0, 1, 0, 1].map(NodeId));
        let places = dealt_out.places().expect("node 0 has the first rank");
        assert_eq!((&places[..], &dealt_out.starts()[..]), (&[0, 2, 1, 3][..], &[0, 2, 4][..]));
        assert!(Arc::ptr_eq(places, dealt_out.of(Rank(2)).places().expect("the same")), "they are kept once");
        assert!(layout.contains(Rank(5)) && !layout.contains(Rank(6)));
    }

    #[test]
    #[should_panic(expected = "a node without ranks")]
    fn a_node_without_ranks_is_a_mistake() {
        Layout::new(Rank(0), &[NodeId(0), NodeId(2)]);
    }
}
