//! What a run is made of: how many ranks, how they stand, who talks to whom, where what lies in the windows. All of it
//! follows from the seed and a few numbers.

use longarm_proto::{NodeId, Rank};

use crate::dice::Dice;
use crate::fault::FaultSet;

/// What is asked of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// How many ranks the job has.
    pub ranks: u32,
    /// Operations of each rank, about.
    pub ops: u32,
    /// Which faults may happen.
    pub faults: FaultSet,
    /// Whether nodes have routers.
    pub routed: bool,
}

/// Words for fetch-and-add at each rank, for each half of the rounds.
pub const COUNTERS: u64 = 3;
/// Words for swap and compare-and-swap, likewise.
pub const CHAINS: u64 = 2;
/// Words that ranks raise or lower to the largest or smallest of their values, likewise: one for each [`Peak`](crate::book::Peak).
pub const PEAKS: u64 = 3;
/// Elements for accumulates of each of two types, likewise.
pub const SUMS: u64 = 16;
/// Mutexes at each rank, each with a word that it guards.
pub const MUTEXES: u64 = 2;
/// Words with one writer each, for each rank that writes here.
pub const REGISTERS: u64 = 4;
/// Places for bytes that come with a signal, likewise.
pub const SLOTS: u64 = 4;
/// Bytes of such a place.
pub const SLOT_BYTES: u64 = 256;
/// Pairs of a rank and a node in a program with routers, at most: a rank keeps two descriptors for each node that it has called.
const ROUTED_PAIRS_MAX: u32 = 4096;

const FIXED_WORDS: u64 = 2 * (COUNTERS + CHAINS + 2 * SUMS + PEAKS) + MUTEXES;

/// Who stands where and talks to whom.
#[derive(Debug)]
pub struct Shape {
    /// The plan that it follows from.
    pub plan: Plan,
    /// The node of each rank.
    pub node_of_rank: Vec<NodeId>,
    /// The first rank of each node, and one past the last rank of all.
    pub first_of_node: Vec<u32>,
    /// To whom each rank goes.
    pub targets: Vec<Vec<Rank>>,
    /// Who goes to each rank, ascending.
    pub callers: Vec<Vec<Rank>>,
    /// The number of the first pair of each target: its callers follow.
    pub first_pair: Vec<u32>,
    /// Bytes of the part of a window in which one caller alone writes.
    pub block_bytes: u64,
    /// Rounds of a run.
    pub rounds: u32,
    /// Operations of a rank in a round.
    pub round_ops: u32,
    /// What is sent is encrypted, so that a bit that changes on its way is noticed.
    pub encrypted: bool,
    /// Ranks reach memory of other nodes with no server involved.
    pub direct: bool,
    /// Nodes that a rank has connections of its own to, past its router, at most. 0 in half of the seeds.
    pub own_nodes_max: usize,
    /// Such connections that a server takes in at a time, at most.
    pub own_links_max: usize,
}

/// `own_nodes_max` and `own_links_max` of a seed.
fn own_connections(seed: u64) -> (usize, usize) {
    let mut dice = Dice::of(seed, 14, 0);
    if dice.one_in(2) { (0, 0) } else { (dice.between(1, 3) as usize, dice.between(1, 6) as usize) }
}

impl Shape {
    /// From a plan.
    pub fn new(plan: Plan) -> Shape {
        let mut dice = Dice::of(plan.seed, 10, 0);
        let per_node = match plan.ranks {
            0..=2 => dice.between(1, 2),
            3..=63 => dice.between(1, 4),
            64..=4095 => dice.between(4, 12),
            // A node takes descriptors, of which a process has no more than so many.
            _ => dice.between(24, 48),
        };
        let per_node = (per_node as u32).min(plan.ranks);
        let node_of_rank: Vec<NodeId> = (0..plan.ranks).map(|rank| NodeId(rank / per_node)).collect();
        let nodes = plan.ranks.div_ceil(per_node);
        let first_of_node: Vec<u32> = (0..=nodes).map(|node| (node * per_node).min(plan.ranks)).collect();
        let distances: Vec<u32> = (0..3).map(|_| 1 + dice.below(7) as u32).collect();
        let mut targets = Vec::new();
        for rank in 0..plan.ranks {
            let node = rank / per_node;
            let mut mine = Vec::new();
            for distance in distances.iter().take(if plan.ranks < 8 { 1 } else { 3 }).chain(&[0]) {
                let there = ((node + distance) % nodes) as usize;
                let (first, end) = (first_of_node[there], first_of_node[there + 1]);
                let target = Rank(first + dice.below(u64::from(end - first)) as u32);
                if !mine.contains(&target) {
                    mine.push(target);
                }
            }
            targets.push(mine);
        }
        let mut callers: Vec<Vec<Rank>> = vec![Vec::new(); plan.ranks as usize];
        for (rank, mine) in (0..).map(Rank).zip(&targets) {
            for target in mine {
                callers[target.0 as usize].push(rank);
            }
        }
        let mut pairs = 0;
        let first_pair = callers.iter().map(|callers| {
            pairs += callers.len() as u32;
            pairs - callers.len() as u32
        });
        let first_pair = first_pair.collect();
        let rounds = plan.ops.div_ceil(400).max(2);
        let encrypted = dice.one_in(4);
        let (own_nodes_max, own_links_max) = own_connections(plan.seed);
        Shape {
            plan,
            node_of_rank,
            first_of_node,
            targets,
            callers,
            first_pair,
            block_bytes: if plan.ranks <= 64 { 16 << 10 } else { 1 << 10 },
            rounds,
            round_ops: plan.ops.div_ceil(rounds).max(1),
            encrypted,
            // What is encrypted goes as bytes only.
            direct: !encrypted && !plan.routed && Dice::of(plan.seed, 12, 0).one_in(2),
            own_nodes_max,
            own_links_max,
        }
    }

    /// Of a program that is not ours: so many nodes, each with as many ranks as the others or one more. In one of four seeds they have routers.
    pub fn of_program(seed: u64, ranks: u32, nodes: u32, faults: FaultSet) -> Shape {
        let (each, more) = (ranks / nodes, ranks % nodes);
        let first_of_node: Vec<u32> = (0..=nodes).map(|node| node * each + node.min(more)).collect();
        let node_of = |rank: u32| first_of_node.partition_point(|first| *first <= rank) as u32 - 1;
        let node_of_rank = (0..ranks).map(|rank| NodeId(node_of(rank))).collect();
        let (targets, callers, first_pair) = (Vec::new(), Vec::new(), Vec::new());
        let encrypted = Dice::of(seed, 11, 0).one_in(4);
        let may_be_routed = nodes > 1 && ranks.saturating_mul(nodes) <= ROUTED_PAIRS_MAX;
        let plan = Plan { seed, ranks, ops: 0, faults, routed: may_be_routed && Dice::of(seed, 13, 0).one_in(4) };
        let (block_bytes, rounds, round_ops, direct) = (0, 0, 0, false);
        let (own_nodes_max, own_links_max) = own_connections(seed);
        Shape {
            plan,
            node_of_rank,
            first_of_node,
            targets,
            callers,
            first_pair,
            block_bytes,
            rounds,
            round_ops,
            encrypted,
            direct,
            own_nodes_max,
            own_links_max,
        }
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> u32 {
        self.first_of_node.len() as u32 - 1
    }

    /// The node of a rank.
    pub fn node_of(&self, rank: u32) -> u32 {
        self.node_of_rank[rank as usize].0
    }

    /// The rank that hosts the server of a node.
    pub fn host_of(&self, node: u32) -> u32 {
        self.ranks_of(node).start
    }

    /// The ranks of a node.
    pub fn ranks_of(&self, node: u32) -> std::ops::Range<u32> {
        self.first_of_node[node as usize]..self.first_of_node[node as usize + 1]
    }

    /// How many pairs of a caller and a target there are.
    pub fn pairs(&self) -> u32 {
        self.callers.iter().map(|callers| callers.len() as u32).sum()
    }

    /// The number of a caller among those of a target.
    pub fn place_of(&self, target: Rank, caller: Rank) -> u64 {
        let callers = &self.callers[target.0 as usize];
        callers.binary_search(&caller).expect("only callers are asked for") as u64
    }

    /// The number of a pair among all.
    pub fn pair(&self, target: Rank, caller: Rank) -> usize {
        self.first_pair[target.0 as usize] as usize + self.place_of(target, caller) as usize
    }

    /// The target of a pair.
    pub fn target_of_pair(&self, pair: usize) -> Rank {
        let after = self.first_pair.partition_point(|first| *first as usize <= pair);
        // Ranks without callers have the same first pair as the one behind them.
        Rank(after as u32 - 1)
    }

    /// Bytes of a rank's part of the window.
    pub fn part_bytes(&self, rank: u32) -> u64 {
        8 * FIXED_WORDS + self.callers[rank as usize].len() as u64 * self.pair_bytes()
    }

    /// Bytes that belong to one caller.
    fn pair_bytes(&self) -> u64 {
        8 * (REGISTERS + 2) + SLOTS * SLOT_BYTES + self.block_bytes
    }

    /// Where a word for fetch-and-add is.
    pub fn counter_at(half: u64, number: u64) -> u64 {
        8 * (half * COUNTERS + number)
    }

    /// Where a word for swaps is.
    pub fn chain_at(half: u64, number: u64) -> u64 {
        8 * (2 * COUNTERS + half * CHAINS + number)
    }

    /// Where an element for accumulates is.
    pub fn sum_at(half: u64, float: bool, number: u64) -> u64 {
        8 * (2 * (COUNTERS + CHAINS) + (2 * half + u64::from(float)) * SUMS + number)
    }

    /// Where a word for minima and maxima is.
    pub fn peak_at(half: u64, number: u64) -> u64 {
        8 * (2 * (COUNTERS + CHAINS + 2 * SUMS) + half * PEAKS + number)
    }

    /// Where the word is that a mutex guards.
    pub fn guarded_at(number: u64) -> u64 {
        8 * (2 * (COUNTERS + CHAINS + 2 * SUMS + PEAKS) + number)
    }

    /// Where the words of a caller are.
    pub fn register_at(&self, place: u64, number: u64) -> u64 {
        8 * FIXED_WORDS + place * self.pair_bytes() + 8 * number
    }

    /// Where the signal of a caller is.
    pub fn signal_at(&self, place: u64) -> u64 {
        self.register_at(place, REGISTERS)
    }

    /// Where the bytes that come with a caller's signal are.
    pub fn slot_at(&self, place: u64, slot: u64) -> u64 {
        self.register_at(place, REGISTERS + 2) + slot * SLOT_BYTES
    }

    /// Where the bytes are in which only a caller writes.
    pub fn block_at(&self, place: u64) -> u64 {
        self.slot_at(place, SLOTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_program_fill_its_nodes_evenly_and_in_their_order() {
        let shape = Shape::of_program(1, 7, 3, FaultSet::NONE);
        let nodes: Vec<u32> = shape.node_of_rank.iter().map(|node| node.0).collect();
        assert_eq!((nodes, shape.ranks_of(1)), (vec![0, 0, 0, 1, 1, 2, 2], 3..5));
    }

    #[test]
    fn every_rank_has_a_node_and_targets_and_nothing_overlaps() {
        for (seed, ranks) in [(1, 1), (2, 2), (3, 7), (4, 100), (5, 1024)] {
            let plan = Plan { seed, ranks, ops: 100, faults: FaultSet::NONE, routed: false };
            let shape = Shape::new(plan);
            assert_eq!(shape.node_of_rank.len(), ranks as usize);
            assert!(shape.targets.iter().all(|targets| !targets.is_empty()));
            assert_eq!(shape.pairs() as usize, shape.targets.iter().map(Vec::len).sum::<usize>());
            assert!(Shape::guarded_at(MUTEXES - 1) < shape.register_at(0, 0));
            assert!(shape.signal_at(0) < shape.slot_at(0, 0));
            assert_eq!(shape.block_at(0) + shape.block_bytes, shape.register_at(1, 0));
            for rank in 0..ranks {
                let end = shape.register_at(shape.callers[rank as usize].len() as u64, 0);
                assert_eq!(end, shape.part_bytes(rank));
            }
        }
    }
}
