//! The binomial tree by which reductions combine, and what of it lies on one node.
//!
//! Members are numbered by turns, from the root on. Those of a node combine what of the tree lies among them: so the order is the same in
//! every layout, and comes to the same bits.

use std::ops::Range;
use std::sync::Arc;

use zerocopy::IntoBytes;

use super::elements::from_bytes;
use super::nodes::Nodes;
use crate::element::{Number, Reduction};

/// Combines what parts of the tree have, equally many bytes each, one's behind the other's, given the turns at which the parts begin, to
/// what all of them come to.
pub(crate) type Combine = Arc<dyn Fn(&[u8], &[u32]) -> Vec<u8> + Send + Sync>;

/// Members of one node that are a whole subtree, and no part of a larger one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Subtree {
    pub(super) turns: Range<u32>,
    pub(super) node: u32,
    /// Which of its node's it is.
    pub(super) number: usize,
}

/// All subtrees of the nodes, in the order of their turns.
pub(super) fn subtrees(nodes: &Nodes, (root, size): (u32, u32)) -> Vec<Subtree> {
    let mut node_of = vec![0; size as usize];
    for node in 0..nodes.count() {
        for place in nodes.on(node) {
            node_of[((place + size - root) % size) as usize] = node;
        }
    }
    let mut found = Vec::new();
    split(&node_of, 0..size.next_power_of_two(), &mut found);
    let mut counts = vec![0; nodes.count() as usize];
    found.sort_unstable_by_key(|(turns, _)| turns.start);
    let numbered = found.into_iter().map(|(turns, node)| {
        let count = &mut counts[node as usize];
        *count += 1;
        Subtree { turns, node, number: *count - 1 }
    });
    numbered.collect()
}

/// Where the subtrees of each node begin, in the tree whose root is the first member: turns are places there.
#[derive(Debug)]
pub(crate) struct SubtreesByNode {
    /// Turns, node by node, ascending in each.
    turns: Box<[u32]>,
    /// Where in `turns` each node begins, and where the last one ends.
    starts: Box<[u32]>,
}

impl SubtreesByNode {
    pub(crate) fn new(nodes: &Nodes) -> SubtreesByNode {
        let mut trees = subtrees(nodes, (0, nodes.places().len() as u32));
        trees.sort_by_key(|tree| tree.node);
        let starts = (0..=nodes.count()).map(|node| trees.partition_point(|tree| tree.node < node) as u32).collect();
        SubtreesByNode { turns: trees.iter().map(|tree| tree.turns.start).collect(), starts }
    }

    /// The turns at which the subtrees of a node begin.
    pub(super) fn on(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.turns[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// What the subtrees of a rank's node come to, one behind the other, from what each member there has.
    pub(super) fn combine_here(&self, nodes: &Nodes, pieces: &[u8], combine: &Combine) -> Vec<u8> {
        let (here, trees) = (nodes.here(), self.on(nodes.mine()));
        let piece_bytes = pieces.len() / here.len();
        let ends = trees[1..].iter().copied().chain([u32::MAX]);
        let of_tree = |(turn, end): (&u32, u32)| {
            let range = here.partition_point(|place| place < turn)..here.partition_point(|place| *place < end);
            combine(&pieces[range.start * piece_bytes..range.end * piece_bytes], &here[range])
        };
        trees.iter().zip(ends).flat_map(of_tree).collect()
    }

    /// What all come to, from what the subtrees of a rank's node have, those of the node before it, and so on around.
    pub(super) fn combine_all(&self, nodes: &Nodes, pieces: &[u8], combine: &Combine) -> Vec<u8> {
        let (mine, count) = (nodes.mine(), nodes.count());
        let around = (0..count).map(|back| (mine + count - back) % count);
        let turns = around.flat_map(|node| self.on(node).iter().copied());
        let mut found: Vec<(u32, &[u8])> = turns.zip(pieces.chunks_exact(pieces.len() / self.turns.len())).collect();
        found.sort_unstable_by_key(|(turn, _)| *turn);
        let (turns, pieces): (Vec<u32>, Vec<&[u8]>) = found.into_iter().unzip();
        combine(&pieces.concat(), &turns)
    }
}

/// A [`Combine`] of numbers.
pub(super) fn combine_with<T: Number>(reduction: Reduction) -> Combine {
    Arc::new(move |pieces, turns| {
        let mut all: Vec<T> = from_bytes(pieces);
        let count = all.len() / turns.len();
        combine_pieces(turns.iter().copied().zip(all.chunks_exact_mut(count)).collect(), reduction);
        all[..count].as_bytes().to_vec()
    })
}

/// Finds the subtrees of a part of the tree.
fn split(node_of: &[u32], turns: Range<u32>, found: &mut Vec<(Range<u32>, u32)>) {
    let there = turns.start..turns.end.min(node_of.len() as u32);
    if there.is_empty() {
        return;
    }
    let nodes = &node_of[there.start as usize..there.end as usize];
    if nodes.iter().all(|node| *node == nodes[0]) {
        return found.push((there, nodes[0]));
    }
    let middle = turns.start + turns.len() as u32 / 2;
    split(node_of, turns.start..middle, found);
    split(node_of, middle..turns.end, found);
}

/// Combines pieces of `count` elements into the first, in the order of the tree: as many members, one piece each. What [`combine_pieces`] does, without
/// a list of the pieces.
pub(super) fn combine<T: Number>(all: &mut [T], count: usize, reduction: Reduction) {
    let members = all.len() / count;
    let mut distance = 1;
    while distance < members {
        for place in (0..members - distance).step_by(2 * distance) {
            let (before, behind) = all.split_at_mut((place + distance) * count);
            combine_two(&mut before[place * count..][..count], &behind[..count], reduction);
        }
        distance *= 2;
    }
}

/// The same of a piece for each subtree.
pub(super) fn combine_subtrees<T: Number>(all: &mut [T], count: usize, trees: &[Subtree], reduction: Reduction) {
    let starts = trees.iter().map(|tree| tree.turns.start);
    combine_pieces(starts.zip(all.chunks_exact_mut(count)).collect(), reduction);
}

/// Combines pieces into the first, in the order of the tree. `left`: each with the turn at which it begins, ascending.
pub(super) fn combine_pieces<T: Number>(mut left: Vec<(u32, &mut [T])>, reduction: Reduction) {
    let mut distance = 1;
    while left.len() > 1 {
        left.dedup_by(|behind, before| {
            let are_one = before.0 % (2 * distance) == 0 && before.0 + distance == behind.0;
            if are_one {
                combine_two(before.1, behind.1, reduction);
            }
            are_one
        });
        distance *= 2;
    }
}

/// A function of its own, so that the compiler knows that the two do not overlap, and takes several elements at once.
#[inline(never)]
fn combine_two<T: Number>(mine: &mut [T], theirs: &[T], reduction: Reduction) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine = mine.combine(*theirs, reduction).expect("checked before the call");
    }
}

#[cfg(test)]
mod tests {
    use longarm_client::Layout;
    use longarm_proto::{NodeId, Rank};

    use super::*;

    fn nodes(node_of: &[u32]) -> Nodes {
        let node_of: Vec<NodeId> = node_of.iter().copied().map(NodeId).collect();
        let members: Vec<Rank> = (0..node_of.len() as u32).map(Rank).collect();
        Nodes::new(&Layout::new(Rank(0), &node_of), &members, 0)
    }

    fn found(node_of: &[u32], root: u32) -> Vec<(Range<u32>, u32, usize)> {
        let all = subtrees(&nodes(node_of), (root, node_of.len() as u32));
        all.into_iter().map(|subtree| (subtree.turns, subtree.node, subtree.number)).collect()
    }

    #[test]
    fn what_lies_on_a_node_is_whole_subtrees() {
        assert_eq!(found(&[0, 0, 1, 1], 0), [(0..2, 0, 0), (2..4, 1, 0)]);
        assert_eq!(found(&[0, 0, 0, 0, 1], 0), [(0..4, 0, 0), (4..5, 1, 0)]);
        assert_eq!(found(&[0, 0, 0, 1, 1, 1], 0), [(0..2, 0, 0), (2..3, 0, 1), (3..4, 1, 0), (4..6, 1, 1)]);
        assert_eq!(found(&[0, 0, 1, 1], 1), [(0..1, 0, 0), (1..2, 1, 0), (2..3, 1, 1), (3..4, 0, 1)]);
        assert_eq!(found(&[0, 0, 0], 0), [(0..3, 0, 0)]);
    }

    /// What member `place` of the tree has after combining what its children sent: those 1, 2, 4 and so on places
    /// behind it, as long as its own bit of the distance is not set.
    fn by_tree(values: &[f64], place: usize) -> f64 {
        let distances = std::iter::successors(Some(1), |distance| Some(distance * 2));
        let children = distances.take_while(|distance| *distance < values.len() && place & distance == 0);
        let present = children.map(|distance| place + distance).filter(|child| *child < values.len());
        present.fold(values[place], |sum, child| sum + by_tree(values, child))
    }

    /// Sums of these depend on the order in their last bits.
    fn values(size: u32) -> Vec<f64> {
        (0..size as i32).map(|place| 10_f64.powi(place * 7 % 31 - 15) / 3.0).collect()
    }

    #[test]
    fn little_data_is_combined_in_the_order_of_the_tree() {
        for size in 1..=40 {
            let values = values(size);
            let mut all: Vec<f64> = values.iter().flat_map(|value| [*value, 1.0, -*value]).collect();
            combine(&mut all, 3, Reduction::Sum);
            let expected = by_tree(&values, 0);
            assert_eq!(all[..3], [expected, f64::from(size), -expected], "{size} members");
        }
    }

    #[test]
    fn what_nodes_have_combined_comes_to_the_same_bits_in_every_layout() {
        for size in 1..=24_u32 {
            let values = values(size);
            for layout in 0..60_u32 {
                // Blocks, turns, and mixtures of both, without a node that has no rank.
                let node_count = (layout % 5 + 1).min(size);
                let mixed = |rank: u32| rank.wrapping_mul(2_654_435_761).rotate_left(layout) % node_count;
                let node_of = |rank: u32| match layout / 20 {
                    0 => rank * node_count / size,
                    1 => rank % node_count,
                    _ => {
                        if rank < node_count {
                            rank
                        } else {
                            mixed(rank)
                        }
                    }
                };
                let nodes = nodes(&(0..size).map(node_of).collect::<Vec<u32>>());
                let all = subtrees(&nodes, (0, size));
                let mut pieces: Vec<f64> = Vec::new();
                for subtree in &all {
                    let mut piece = values[subtree.turns.start as usize..subtree.turns.end as usize].to_vec();
                    combine(&mut piece, 1, Reduction::Sum);
                    pieces.push(piece[0]);
                }
                combine_subtrees(&mut pieces, 1, &all, Reduction::Sum);
                assert_eq!(pieces[0].to_bits(), by_tree(&values, 0).to_bits(), "{size} in {layout}");
                assert_eq!(by_leaders(&nodes, &values), [by_tree(&values, 0), f64::from(size)], "{size} in {layout}");
            }
        }
    }

    /// The sum of what all members have, and their number, as leaders come to it; all to the same.
    fn by_leaders(all: &Nodes, values: &[f64]) -> [f64; 2] {
        let combine = combine_with::<f64>(Reduction::Sum);
        let layout: Vec<u32> = (0..values.len() as u32).map(|place| all.node_of(place)).collect();
        let node_of: Vec<NodeId> = layout.iter().copied().map(NodeId).collect();
        let members: Vec<Rank> = (0..values.len() as u32).map(Rank).collect();
        let seen = |leader: u32| Nodes::new(&Layout::new(Rank(leader), &node_of), &members, leader);
        let leaders: Vec<Nodes> = (0..all.count()).map(|node| seen(all.leader(node))).collect();
        let of_node = |nodes: &Nodes| {
            let pieces: Vec<f64> = nodes.here().iter().flat_map(|place| [values[*place as usize], 1.0]).collect();
            SubtreesByNode::new(nodes).combine_here(nodes, pieces.as_bytes(), &combine)
        };
        let told: Vec<Vec<u8>> = leaders.iter().map(of_node).collect();
        let come_to = leaders.iter().map(|nodes| {
            let count = nodes.count();
            let around = (0..count).map(|back| &told[((nodes.mine() + count - back) % count) as usize][..]);
            let found = SubtreesByNode::new(nodes).combine_all(nodes, &around.collect::<Vec<_>>().concat(), &combine);
            from_bytes::<f64>(&found).try_into().expect("one of each")
        });
        let come_to: Vec<[f64; 2]> = come_to.collect();
        assert!(come_to.iter().all(|sums| *sums == come_to[0]), "{come_to:?}");
        come_to[0]
    }
}
