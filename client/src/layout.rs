//! Which rank stands where. Fixed from init to finalize.

use std::sync::Arc;

use longarm_proto::{NodeId, Rank};

/// The ranks of the world by node.
#[derive(Clone, Debug)]
pub struct Layout {
    me: Rank,
    node_of_rank: Arc<[NodeId]>,
    local_of_rank: Arc<[u32]>,
    ranks_of_node: Arc<[Box<[Rank]>]>,
}

impl Layout {
    /// From the node of every rank. Nodes are numbered from 0 without gaps, each with a rank at least.
    ///
    /// # Panics
    /// If `me` is no rank of it or a node is empty: whoever starts the job made it up.
    pub fn new(me: Rank, node_of_rank: &[NodeId]) -> Layout {
        assert!((me.0 as usize) < node_of_rank.len(), "rank {} of {}", me.0, node_of_rank.len());
        let node_count = node_of_rank.iter().map(|node| node.0 as usize + 1).max().unwrap_or(0);
        let mut ranks_of_node: Vec<Vec<Rank>> = vec![Vec::new(); node_count];
        let mut local_of_rank = Vec::with_capacity(node_of_rank.len());
        for (rank, node) in (0..).map(Rank).zip(node_of_rank) {
            let ranks = &mut ranks_of_node[node.0 as usize];
            local_of_rank.push(ranks.len() as u32);
            ranks.push(rank);
        }
        assert!(ranks_of_node.iter().all(|ranks| !ranks.is_empty()), "a node without ranks");
        Layout {
            me,
            node_of_rank: node_of_rank.into(),
            local_of_rank: local_of_rank.into(),
            ranks_of_node: ranks_of_node.into_iter().map(Vec::into_boxed_slice).collect(),
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
        self.ranks_of_node.len() as u32
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
        &self.ranks_of_node[node.0 as usize]
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
