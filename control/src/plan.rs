//! Which rank runs on which node, and which node on which machine.
//!
//! Ranks are mapped in blocks: the first ranks on node 0, the next ones on node 1, and so on.

/// Which rank runs on which node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Node of each rank, ascending.
    pub node_of_rank: Vec<u32>,
    /// How many nodes there are.
    pub nodes: u32,
    /// Machine of each node, indexed by node. Emulated nodes share one.
    pub machine_of_node: Vec<u32>,
}

/// The numbers on the command line contradict each other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A node would have no rank.
    #[error("{nodes} nodes cannot be made of {ranks} ranks: every node has at least one")]
    EmptyNode {
        /// Nodes asked for.
        nodes: u32,
        /// Ranks asked for.
        ranks: u32,
    },
    /// `--nodes` and `--ppn` say different things.
    #[error(
        "--nodes {nodes} and --ppn {ppn} contradict each other: {ranks} ranks in nodes of {ppn} make {made} {}",
        if *made == 1 { "node" } else { "nodes" }
    )]
    Contradiction {
        /// Nodes asked for.
        nodes: u32,
        /// Ranks in a node asked for.
        ppn: u32,
        /// Ranks asked for.
        ranks: u32,
        /// How many nodes `--ppn` leads to.
        made: u32,
    },
}

impl Plan {
    /// Spreads ranks over nodes: in blocks of `ppn`, the last one possibly smaller, or else over `nodes` (one, if not
    /// given) as evenly as possible, the first ones getting one more.
    ///
    /// # Errors
    /// When the numbers contradict each other.
    pub fn new(ranks: u32, nodes: Option<u32>, ppn: Option<u32>) -> Result<Plan, PlanError> {
        assert!(ranks > 0 && nodes != Some(0) && ppn != Some(0), "the command line accepts no zero");
        if let Some(ppn) = ppn {
            let made = ranks.div_ceil(ppn);
            return match nodes {
                Some(nodes) if nodes != made => Err(PlanError::Contradiction { nodes, ppn, ranks, made }),
                _ => Ok(Plan::on_one_machine((0..ranks).map(|rank| rank / ppn).collect(), made)),
            };
        }
        let nodes = nodes.unwrap_or(1);
        if nodes > ranks {
            return Err(PlanError::EmptyNode { nodes, ranks });
        }
        let (each, larger) = (ranks / nodes, ranks % nodes);
        let blocks = (0..nodes).map(|node| (node, each + u32::from(node < larger)));
        let node_of_rank = blocks.flat_map(|(node, size)| std::iter::repeat_n(node, size as usize)).collect();
        Ok(Plan::on_one_machine(node_of_rank, nodes))
    }

    /// Spreads ranks over machines in blocks, each of which has this many, and those of a machine over nodes as
    /// [`Plan::new`] does: `nodes` is how many a machine has, where it has the ranks for them.
    ///
    /// # Errors
    /// When the numbers contradict each other.
    pub fn on_machines(ranks_on: &[u32], nodes: Option<u32>, ppn: Option<u32>) -> Result<Plan, PlanError> {
        let mut plan = Plan { node_of_rank: Vec::new(), nodes: 0, machine_of_node: Vec::new() };
        for (ranks, machine) in ranks_on.iter().zip(0..) {
            let nodes = nodes.map(|nodes| nodes.min(ppn.map_or(*ranks, |ppn| ranks.div_ceil(ppn))));
            let own = Plan::new(*ranks, nodes, ppn)?;
            plan.node_of_rank.extend(own.node_of_rank.iter().map(|node| plan.nodes + node));
            plan.machine_of_node.extend(std::iter::repeat_n(machine, own.nodes as usize));
            plan.nodes += own.nodes;
        }
        Ok(plan)
    }

    fn on_one_machine(node_of_rank: Vec<u32>, nodes: u32) -> Plan {
        Plan { node_of_rank, nodes, machine_of_node: vec![0; nodes as usize] }
    }

    /// The machine that a rank runs on.
    pub fn machine_of(&self, rank: u32) -> u32 {
        self.machine_of_node[self.node_of_rank[rank as usize] as usize]
    }

    /// How many ranks run on each machine.
    pub fn ranks_on_machines(&self) -> Vec<u32> {
        let machines = self.machine_of_node.iter().max().map_or(0, |last| *last as usize + 1);
        let mut ranks = vec![0; machines];
        (0..self.ranks()).for_each(|rank| ranks[self.machine_of(rank) as usize] += 1);
        ranks
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.node_of_rank.len() as u32
    }

    /// The lowest rank of each node, which leads it.
    pub fn leaders(&self) -> Vec<u32> {
        let mut leaders = vec![u32::MAX; self.nodes as usize];
        for (rank, node) in (0..).zip(&self.node_of_rank) {
            let leader = &mut leaders[*node as usize];
            *leader = rank.min(*leader);
        }
        leaders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(ranks: u32, nodes: Option<u32>, ppn: Option<u32>) -> Vec<usize> {
        let plan = Plan::new(ranks, nodes, ppn).unwrap();
        assert!(plan.node_of_rank.is_sorted());
        (0..plan.nodes).map(|node| plan.node_of_rank.iter().filter(|own| **own == node).count()).collect()
    }

    #[test]
    fn without_options_there_is_one_node() {
        assert_eq!(sizes(5, None, None), [5]);
    }

    #[test]
    fn ranks_are_spread_evenly_and_the_first_nodes_get_one_more() {
        assert_eq!(sizes(4, Some(2), None), [2, 2]);
        assert_eq!(sizes(7, Some(3), None), [3, 2, 2]);
        assert_eq!(sizes(8, Some(3), None), [3, 3, 2]);
        assert_eq!(sizes(4, Some(4), None), [1, 1, 1, 1]);
    }

    #[test]
    fn ranks_in_a_node_make_blocks_and_the_last_may_be_smaller() {
        assert_eq!(sizes(6, None, Some(2)), [2, 2, 2]);
        assert_eq!(sizes(5, None, Some(2)), [2, 2, 1]);
        assert_eq!(sizes(2, None, Some(8)), [2]);
        assert_eq!(sizes(5, Some(3), Some(2)), [2, 2, 1]);
    }

    #[test]
    fn machines_have_nodes_of_their_own_and_blocks_of_ranks() {
        let plan = Plan::on_machines(&[3, 1], None, None).unwrap();
        assert_eq!((&plan.node_of_rank[..], &plan.machine_of_node[..]), (&[0, 0, 0, 1][..], &[0, 1][..]));
        let plan = Plan::on_machines(&[3, 1], Some(2), None).unwrap();
        assert_eq!((&plan.node_of_rank[..], &plan.machine_of_node[..]), (&[0, 0, 1, 2][..], &[0, 0, 1][..]));
        assert_eq!(plan.ranks_on_machines(), [3, 1]);
        let plan = Plan::on_machines(&[4, 2], Some(2), Some(2)).unwrap();
        assert_eq!((&plan.node_of_rank[..], plan.nodes), (&[0, 0, 1, 1, 2, 2][..], 3));
    }

    #[test]
    fn contradictions_are_refused_with_the_numbers() {
        let error = Plan::new(4, Some(3), Some(2)).unwrap_err();
        assert_eq!(error, PlanError::Contradiction { nodes: 3, ppn: 2, ranks: 4, made: 2 });
        assert!(error.to_string().contains("--nodes 3 and --ppn 2"));
        assert_eq!(Plan::new(2, Some(3), None), Err(PlanError::EmptyNode { nodes: 3, ranks: 2 }));
    }

    #[test]
    fn the_leader_of_a_node_is_its_lowest_rank() {
        let plan = Plan::new(7, Some(3), None).unwrap();
        assert_eq!(plan.leaders(), [0, 3, 5]);
    }
}
