//! Reductions of much data, by staging buffers: the members of a node combine what of the tree lies among them (`tree.rs`), each a slice
//! of the elements; then the leaders combine what the nodes have come to, each a share, and give the others of their node the result.
//!
//! ```text
//!   staging buffer      lower half                          upper half
//!   several on a node   own, but for its slice; the result  what of the tree lies here, of this member's slice
//!   alone on a node     own elements                        the result
//! ```

use std::ops::Range;

use longarm_client::TransferError;
use zerocopy::IntoBytes;

use super::agree::Known;
use super::call::Call;
use super::elements::copy;
use super::nodes::Nodes;
use super::rounds::Participants;
use super::staging::{Buffers, Staged, Want};
use super::staging_buffer::HALF_BYTES;
use super::tree::{Subtree, combine_pieces, combine_subtrees, subtrees};
use crate::element::{Number, Reduction};
use crate::error::CollectiveError;

/// Lays out the first round of a reduction.
pub(super) fn lay_out_first_round<T: Number>(
    staged: &impl Buffers,
    nodes: &Nodes,
    elements: &[T],
) -> Result<(), TransferError> {
    lay_out_round(staged, nodes, &elements[..elements.len().min(HALF_BYTES / size_of::<T>())])
}

/// Lays out what others get of a round: where others are on the node, all but this member's slice.
fn lay_out_round<T: Number>(staged: &impl Buffers, nodes: &Nodes, elements: &[T]) -> Result<(), TransferError> {
    let own = if nodes.here().len() > 1 { own_slice(nodes, elements.len()) } else { 0..0 };
    staged.lay_out(0, elements[..own.start].as_bytes())?;
    staged.lay_out(own.end * size_of::<T>(), elements[own.end..].as_bytes())
}

/// The slice of the elements that this member combines for its node.
fn own_slice(nodes: &Nodes, count: usize) -> Range<usize> {
    share(count, nodes.local() as usize, nodes.here().len())
}

/// What one of so many has of the elements.
fn share(count: usize, one: usize, of: usize) -> Range<usize> {
    count * one / of..count * (one + 1) / of
}

/// Gets a piece of what the member at `place` has. This one's own, which is `mine`, is copied.
fn copy_or_want<'a, T: Number>(
    (place, offset): (u32, usize),
    (me, mine): (u32, &[T]),
    target: &'a mut [T],
    wants: &mut Vec<Want<'a>>,
) {
    if place == me {
        copy(target.as_mut_bytes(), mine.as_bytes());
    } else {
        wants.push(Want { place, offset, target: target.as_mut_bytes() });
    }
}

/// Gets the shares of all but `except`. `of`: how many there are, and where each is: with which member, and at which offset.
fn fetch_by_share<T: Number>(
    staged: &impl Buffers,
    mut elements: &mut [T],
    (of, except): (usize, Option<usize>),
    place_of: impl Fn(usize, Range<usize>) -> (u32, usize),
) -> Result<(), CollectiveError> {
    let (count, mut wants) = (elements.len(), Vec::new());
    for one in 0..of {
        let range = share(count, one, of);
        let (target, behind) = elements.split_at_mut(range.len());
        elements = behind;
        if Some(one) != except {
            let (place, offset) = place_of(one, range);
            wants.push(Want { place, offset, target: target.as_mut_bytes() });
        }
    }
    staged.fetch(wants)
}

/// Where a node's share of the result is.
fn result_of(nodes: &Nodes, node: u32) -> usize {
    if nodes.on(node).len() > 1 { 0 } else { HALF_BYTES }
}

/// What a reduction does, the same in all rounds.
struct Plan {
    root: u32,
    for_all: bool,
    reduction: Reduction,
    trees: Vec<Subtree>,
}

/// What one member does with its staging buffer and those of the others, between two exchanges of messages.
#[derive(Clone, Copy)]
struct Share<'a> {
    nodes: &'a Nodes,
    me: u32,
    size: u32,
}

impl Plan {
    fn of(nodes: &Nodes, size: u32, (root, for_all): (u32, bool), reduction: Reduction) -> Plan {
        Plan { root, for_all, reduction, trees: subtrees(nodes, (root, size)) }
    }
}

impl<'a> Call<'a> {
    /// To the root, or from the first member on to all. The first round is laid out.
    pub(super) fn reduce_staged<T: Number>(
        &mut self,
        staged: Staged<'_>,
        whom: (u32, bool),
        reduction: Reduction,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        let member = Share { nodes: self.group.nodes(), me: self.me(), size: self.size() };
        let (nodes, plan) = (member.nodes, Plan::of(member.nodes, member.size, whom, reduction));
        for (round, elements) in elements.chunks_mut(HALF_BYTES / size_of::<T>()).enumerate() {
            if round > 0 {
                if nodes.are_shared() {
                    // The results of the round before are where elements go.
                    self.meet_again()?;
                }
                lay_out_round(&staged, nodes, elements)?;
                self.meet_again()?;
            }
            let here = member.combine_here(&staged, &plan, elements);
            if nodes.count() == 1 {
                here?;
                self.meet_again()?;
                member.fetch_slices(&staged, &plan, elements)?;
                continue;
            }
            self.through_leader(
                &[],
                |_| (),
                |call, ()| {
                    // The others of the node hear of it.
                    here.clone()?;
                    call.combine_between(member, &staged, &plan, elements).map(|()| Known::NOTHING)
                },
            )?;
            here?;
            member.fetch_result(&staged, &plan, elements)?;
        }
        self.finish(staged)
    }

    /// The leaders combine what the nodes have come to, and lay the result out for their nodes.
    fn combine_between<T: Number>(
        &mut self,
        member: Share<'a>,
        staged: &Staged<'_>,
        plan: &Plan,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        if member.nodes.are_shared() {
            self.meet_leaders()?;
        }
        member.lay_out_share(staged, plan, elements)?;
        self.meet_leaders()?;
        if plan.for_all { member.lay_out_result(staged, elements) } else { Ok(()) }
    }

    /// The leaders meet.
    fn meet_leaders(&mut self) -> Result<(), CollectiveError> {
        self.disseminate(&Participants::of_leaders(self.group.nodes()), |call, round| {
            call.send(round.to, &[])?;
            call.receive_exactly(round.from, 0).map(drop)
        })
    }
}

impl Share<'_> {
    /// Combines this member's slice of what of the tree lies on this node, and lays it out. It is the result if that is the whole tree.
    fn combine_here<T: Number>(
        &self,
        staged: &impl Buffers,
        plan: &Plan,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        let Share { nodes, me, size } = *self;
        if nodes.here().len() == 1 {
            return Ok(());
        }
        let slice = own_slice(nodes, elements.len());
        let offset = slice.start * size_of::<T>();
        let mine = &mut elements[slice];
        if mine.is_empty() {
            return Ok(());
        }
        // This member's own is combined where it is; nobody wants it as it was.
        let own = (me + size - plan.root) % size;
        for tree in plan.trees.iter().filter(|tree| tree.node == nodes.mine()) {
            let others = tree.turns.clone().filter(|turn| *turn != own);
            let mut got = vec![T::default(); mine.len() * others.clone().count()];
            let wants = others.clone().zip(got.chunks_exact_mut(mine.len())).map(|(turn, piece)| {
                let place = (plan.root + turn) % size;
                Want { place, offset, target: piece.as_mut_bytes() }
            });
            staged.fetch(wants.collect())?;
            let mut pieces: Vec<(u32, &mut [T])> = others.zip(got.chunks_exact_mut(mine.len())).collect();
            if tree.turns.contains(&own) {
                pieces.insert((own - tree.turns.start) as usize, (own, &mut *mine));
            }
            combine_pieces(pieces, plan.reduction);
            let begins_with_own = tree.turns.start == own;
            let is_result = nodes.count() == 1;
            let count = mine.len();
            if is_result && !begins_with_own {
                copy(mine.as_mut_bytes(), got[..count].as_bytes());
            }
            let combined = if is_result || begins_with_own { &*mine } else { &got[..count] };
            staged.lay_out(HALF_BYTES + tree.number * size_of_val(combined), combined.as_bytes())?;
        }
        Ok(())
    }

    /// In a group on one node all slices are whole when all members have met.
    fn fetch_slices<T: Number>(
        &self,
        staged: &impl Buffers,
        plan: &Plan,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        if !plan.for_all && self.me != plan.root {
            return Ok(());
        }
        let (here, own) = (self.nodes.here(), self.nodes.local() as usize);
        fetch_by_share(staged, elements, (here.len(), Some(own)), |local, _| (here[local], HALF_BYTES))
    }

    /// What a leader has of the elements.
    fn own(&self, count: usize) -> Range<usize> {
        share(count, self.nodes.mine() as usize, self.nodes.count() as usize)
    }

    /// A leader combines its share of what all nodes have come to, once all of them have, and lays it out.
    fn lay_out_share<T: Number>(
        &self,
        staged: &impl Buffers,
        plan: &Plan,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        let mine = self.own(elements.len());
        self.combine_share(staged, plan, (mine.clone(), elements))?;
        let result = result_of(self.nodes, self.nodes.mine());
        Ok(staged.lay_out(result + mine.start * size_of::<T>(), elements[mine].as_bytes())?)
    }

    /// It gets the shares of the others, once all are laid out, and lays them out for its node.
    fn lay_out_result<T: Number>(&self, staged: &impl Buffers, elements: &mut [T]) -> Result<(), CollectiveError> {
        let (nodes, mine) = (self.nodes, self.own(elements.len()));
        self.fetch_shares(staged, elements, Some(nodes.mine()))?;
        if nodes.here().len() > 1 {
            let result = result_of(nodes, nodes.mine());
            // The others here get it all from one place; the own share is there.
            staged.lay_out(result, elements[..mine.start].as_bytes())?;
            staged.lay_out(result + mine.end * size_of::<T>(), elements[mine.end..].as_bytes())?;
        }
        Ok(())
    }

    /// Combines a share of what all nodes have come to.
    fn combine_share<T: Number>(
        &self,
        staged: &impl Buffers,
        plan: &Plan,
        (mine, elements): (Range<usize>, &mut [T]),
    ) -> Result<(), CollectiveError> {
        if mine.is_empty() {
            return Ok(());
        }
        let (nodes, me, count) = (self.nodes, self.me, elements.len());
        let mut pieces = vec![T::default(); mine.len() * plan.trees.len()];
        let mut wants = Vec::new();
        for (tree, piece) in plan.trees.iter().zip(pieces.chunks_exact_mut(mine.len())) {
            let there = nodes.on(tree.node);
            if let [alone] = there {
                let offset = mine.start * size_of::<T>();
                copy_or_want((*alone, offset), (me, &elements[mine.clone()]), piece, &mut wants);
                continue;
            }
            let mut rest = piece;
            for (local, place) in there.iter().enumerate() {
                let slice = share(count, local, there.len());
                let both = slice.start.max(mine.start)..slice.end.min(mine.end);
                if both.is_empty() {
                    continue;
                }
                let (target, behind) = rest.split_at_mut(both.len());
                let before = tree.number * slice.len() + both.start - slice.start;
                let offset = HALF_BYTES + before * size_of::<T>();
                wants.push(Want { place: *place, offset, target: target.as_mut_bytes() });
                rest = behind;
            }
        }
        staged.fetch(wants)?;
        combine_subtrees(&mut pieces, mine.len(), &plan.trees, plan.reduction);
        pieces.truncate(mine.len());
        copy(elements[mine].as_mut_bytes(), pieces.as_bytes());
        Ok(())
    }

    /// Gets the shares of the result from the leaders, but for that of `except`.
    fn fetch_shares<T: Number>(
        &self,
        staged: &impl Buffers,
        elements: &mut [T],
        except: Option<u32>,
    ) -> Result<(), CollectiveError> {
        let nodes = self.nodes;
        let of = (nodes.count() as usize, except.map(|node| node as usize));
        fetch_by_share(staged, elements, of, |node, range| {
            let node = node as u32;
            (nodes.leader(node), result_of(nodes, node) + range.start * size_of::<T>())
        })
    }

    /// When the leaders are done.
    fn fetch_result<T: Number>(
        &self,
        staged: &impl Buffers,
        plan: &Plan,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        let nodes = self.nodes;
        if !plan.for_all {
            let except = nodes.is_leader().then(|| nodes.mine());
            return if self.me == plan.root { self.fetch_shares(staged, elements, except) } else { Ok(()) };
        }
        if nodes.is_leader() {
            return Ok(());
        }
        let (place, offset) = (nodes.my_leader(), result_of(nodes, nodes.mine()));
        staged.fetch(vec![Want { place, offset, target: elements.as_mut_bytes() }])
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use longarm_client::Layout;
    use longarm_proto::{NodeId, Rank};

    use super::super::staging_buffer::PART_BYTES;
    use super::*;

    /// The staging buffers of all members, as one of them reaches them.
    struct MockBuffers<'a> {
        all: &'a RefCell<Vec<Vec<u8>>>,
        me: u32,
        /// From whom it may get something now.
        reaches: &'a dyn Fn(u32) -> bool,
    }

    impl Buffers for MockBuffers<'_> {
        fn lay_out(&self, offset: usize, bytes: &[u8]) -> Result<(), TransferError> {
            self.all.borrow_mut()[self.me as usize][offset..offset + bytes.len()].copy_from_slice(bytes);
            Ok(())
        }

        fn fetch(&self, wants: Vec<Want<'_>>) -> Result<(), CollectiveError> {
            for want in wants {
                assert!(want.target.is_empty() || (self.reaches)(want.place), "{} gets from {}", self.me, want.place);
                let all = self.all.borrow();
                want.target.copy_from_slice(&all[want.place as usize][want.offset..][..want.target.len()]);
            }
            Ok(())
        }
    }

    /// Sixteen to the power of the place, so that a sum tells who is in it, and how often; and of which element.
    fn element(place: u32, index: usize) -> u64 {
        (1 + index as u64 % 13) << (4 * place)
    }

    /// One group, and the memory of its members.
    struct Members {
        nodes: Vec<Nodes>,
        all: RefCell<Vec<Vec<u8>>>,
    }

    impl Members {
        /// `node_of`: the node of the member at each place.
        fn on(node_of: &[u32]) -> Members {
            let layout = Layout::new(Rank(0), &node_of.iter().copied().map(NodeId).collect::<Vec<_>>());
            let members: Vec<Rank> = (0..node_of.len() as u32).map(Rank).collect();
            let nodes = (0..members.len() as u32).map(|me| Nodes::new(&layout, &members, me)).collect();
            Members { nodes, all: RefCell::new(vec![vec![0; PART_BYTES as usize]; members.len()]) }
        }

        /// Each of those that do it does something, with its elements.
        fn each(
            &self,
            elements: &mut [Vec<u64>],
            does_it: impl Fn(&Nodes) -> bool,
            reaches: impl Fn(&Nodes, u32) -> bool,
            what: impl Fn(Share<'_>, &MockBuffers<'_>, &mut [u64]) -> Result<(), CollectiveError>,
        ) {
            let size = self.nodes.len() as u32;
            for ((me, nodes), elements) in (0..).zip(&self.nodes).zip(elements).filter(|((_, nodes), _)| does_it(nodes))
            {
                let buffers = MockBuffers { all: &self.all, me, reaches: &|place| reaches(nodes, place) };
                what(Share { nodes, me, size }, &buffers, elements).expect("the mock refuses nothing");
            }
        }

        /// What the members have in the end, in the steps of `reduce_staged`.
        fn reduce(&self, count: usize, whom: (u32, bool)) -> Vec<Vec<u64>> {
            let (size, (root, for_all)) = (self.nodes.len() as u32, whom);
            // What an earlier round has left.
            for buffer in &mut *self.all.borrow_mut() {
                for half in [0, HALF_BYTES] {
                    buffer[half..half + (64 << 10)].fill(0xee);
                }
            }
            let plan = Plan::of(&self.nodes[0], size, whom, Reduction::Sum);
            let own = |place| (0..count).map(|index| element(place, index)).collect();
            let mut elements: Vec<Vec<u64>> = (0..size).map(own).collect();
            let all = |_: &Nodes| true;
            let is_here = |nodes: &Nodes, place: u32| nodes.here().contains(&place);
            self.each(
                &mut elements,
                all,
                |_, _| false,
                |me, staged, elements| Ok(lay_out_first_round(staged, me.nodes, elements)?),
            );
            self.each(&mut elements, all, is_here, |me, staged, elements| me.combine_here(staged, &plan, elements));
            if self.nodes[0].count() == 1 {
                self.each(&mut elements, all, is_here, |me, staged, elements| me.fetch_slices(staged, &plan, elements));
                return elements;
            }
            let anywhere = |_: &Nodes, _| true;
            let leader = |nodes: &Nodes, place: u32| nodes.leader(nodes.node_of(place)) == place;
            self.each(&mut elements, Nodes::is_leader, anywhere, |me, staged, elements| {
                me.lay_out_share(staged, &plan, elements)
            });
            if for_all {
                self.each(&mut elements, Nodes::is_leader, leader, |me, staged, elements| {
                    me.lay_out_result(staged, elements)
                });
            }
            let from_leaders = |nodes: &Nodes, place| {
                let is_root = nodes.here().get(nodes.local() as usize) == Some(&root);
                if for_all { place == nodes.my_leader() } else { is_root && leader(nodes, place) }
            };
            self.each(&mut elements, all, from_leaders, |me, staged, elements| {
                me.fetch_result(staged, &plan, elements)
            });
            elements
        }
    }

    #[test]
    fn each_element_of_each_member_is_in_the_result_once_wherever_the_members_are() {
        let layouts: [&[u32]; 9] = [
            &[0, 0],
            &[0, 0, 0, 0, 0],
            &[0, 1, 2],
            &[0, 0, 1],
            &[0, 1, 1, 1, 1],
            &[0, 1, 1, 2, 2, 2],
            // Members of a node that are no neighbours.
            &[0, 1, 0, 1, 1],
            &[2, 0, 1, 2, 0, 1, 2],
            &[1, 1, 0, 2, 1, 0, 1, 3, 1, 0, 1, 1],
        ];
        for node_of in layouts {
            let (members, size) = (Members::on(node_of), node_of.len() as u32);
            // Fewer elements than members, as many, and shares and slices that are no multiples of each other.
            for count in [1, 2, size as usize, 13, 100, 257] {
                let due: Vec<u64> =
                    (0..count).map(|index| (0..size).map(|place| element(place, index)).sum()).collect();
                for root in 0..size {
                    let found = members.reduce(count, (root, false));
                    assert_eq!(found[root as usize], due, "{count} elements to {root} on {node_of:?}");
                }
                let found = members.reduce(count, (0, true));
                for (place, found) in found.iter().enumerate() {
                    assert_eq!(*found, due, "{count} elements at {place} on {node_of:?}");
                }
            }
        }
    }

    #[test]
    fn shares_follow_each_other_without_a_gap_and_differ_by_one_at_most() {
        for (count, of) in [(0, 1), (1, 3), (7, 3), (9, 3), (100, 7), (3, 100)] {
            let shares: Vec<Range<usize>> = (0..of).map(|one| share(count, one, of)).collect();
            let ends = shares.windows(2).all(|pair| pair[0].end == pair[1].start);
            assert!(ends && shares[0].start == 0 && shares[of - 1].end == count, "{count} for {of}: {shares:?}");
            assert!(shares.iter().all(|share| (count / of..=count.div_ceil(of)).contains(&share.len())), "{shares:?}");
        }
    }
}
