//! Reductions of much data, by staging buffers: the members of a node combine what of the tree lies among them (`tree.rs`), each a slice
//! of the elements; then the leaders combine what the nodes have come to, each a share, and give the others of their node the result.
//!
//! ```text
//!   staging buffer      lower half                          upper half
//!   several on a node   own elements; then the result       what of the tree lies here, of this member's slice
//!   alone on a node     own elements                        the result
//! ```

use std::ops::Range;

use longarm_client::TransferError;
use zerocopy::IntoBytes;

use super::agree::Known;
use super::call::Call;
use super::nodes::Nodes;
use super::rounds::Participants;
use super::staging::{Staged, Want};
use super::staging_buffer::HALF_BYTES;
use super::tree::{Subtree, combine, combine_subtrees, subtrees};
use crate::element::{Number, Reduction};
use crate::error::CollectiveError;

/// Lays out the first round of a reduction.
pub(super) fn lay_out_elements<T: Number>(staged: &Staged<'_>, elements: &[T]) -> Result<(), TransferError> {
    let most = elements.len().min(HALF_BYTES / size_of::<T>());
    staged.lay_out(0, elements[..most].as_bytes())
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
        target.copy_from_slice(mine);
    } else {
        wants.push(Want { place, offset, target: target.as_mut_bytes() });
    }
}

/// Gets the shares of all but `except`. `of`: how many there are, and where each is: with which member, and at which offset.
fn fetch_by_share<T: Number>(
    staged: &Staged<'_>,
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

impl Call<'_> {
    /// To the root, or from the first member on to all. The first round is laid out.
    pub(super) fn reduce_staged<T: Number>(
        &mut self,
        staged: Staged<'_>,
        (root, for_all): (u32, bool),
        reduction: Reduction,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        let nodes = self.group.nodes();
        let plan = Plan { root, for_all, reduction, trees: subtrees(nodes, (root, self.size())) };
        for (round, elements) in elements.chunks_mut(HALF_BYTES / size_of::<T>()).enumerate() {
            if round > 0 {
                if nodes.are_shared() {
                    // The results of the round before are where elements go.
                    self.meet_again()?;
                }
                staged.lay_out(0, elements.as_bytes())?;
                self.meet_again()?;
            }
            let here = self.combine_here(&staged, &plan, elements);
            if nodes.count() == 1 {
                here?;
                self.meet_again()?;
                self.fetch_slices(&staged, &plan, elements)?;
                continue;
            }
            self.through_leader(
                &[],
                |_| (),
                |call, ()| {
                    // The others of the node hear of it.
                    here.clone()?;
                    call.combine_between(&staged, &plan, elements).map(|()| Known::NOTHING)
                },
            )?;
            here?;
            self.fetch_result(&staged, &plan, elements)?;
        }
        self.finish(staged)
    }

    /// Combines this member's slice of what of the tree lies on this node, and lays it out. It is the result if that is the whole tree.
    fn combine_here<T: Number>(
        &self,
        staged: &Staged<'_>,
        plan: &Plan,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        let (nodes, me, size) = (self.group.nodes(), self.me(), self.size());
        if nodes.here().len() == 1 {
            return Ok(());
        }
        let slice = share(elements.len(), nodes.local() as usize, nodes.here().len());
        let offset = slice.start * size_of::<T>();
        let mine = &mut elements[slice];
        if mine.is_empty() {
            return Ok(());
        }
        for tree in plan.trees.iter().filter(|tree| tree.node == nodes.mine()) {
            let mut pieces = vec![T::default(); mine.len() * tree.turns.len()];
            let mut wants = Vec::new();
            for (turn, piece) in tree.turns.clone().zip(pieces.chunks_exact_mut(mine.len())) {
                copy_or_want(((plan.root + turn) % size, offset), (me, mine), piece, &mut wants);
            }
            staged.fetch(wants)?;
            combine(&mut pieces, mine.len(), plan.reduction);
            let combined = &pieces[..mine.len()];
            staged.lay_out(HALF_BYTES + tree.number * size_of_val(combined), combined.as_bytes())?;
            if nodes.count() == 1 {
                mine.copy_from_slice(combined);
            }
        }
        Ok(())
    }

    /// In a group on one node all slices are whole when all members have met.
    fn fetch_slices<T: Number>(
        &self,
        staged: &Staged<'_>,
        plan: &Plan,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        if !plan.for_all && self.me() != plan.root {
            return Ok(());
        }
        let nodes = self.group.nodes();
        let (here, own) = (nodes.here(), nodes.local() as usize);
        fetch_by_share(staged, elements, (here.len(), Some(own)), |local, _| (here[local], HALF_BYTES))
    }

    /// The leaders combine what the nodes have come to, and lay the result out for their nodes.
    fn combine_between<T: Number>(
        &mut self,
        staged: &Staged<'_>,
        plan: &Plan,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        let nodes = self.group.nodes();
        if nodes.are_shared() {
            self.meet_leaders()?;
        }
        let mine = share(elements.len(), nodes.mine() as usize, nodes.count() as usize);
        self.combine_share(staged, plan, (mine.clone(), elements))?;
        let result = result_of(nodes, nodes.mine());
        staged.lay_out(result + mine.start * size_of::<T>(), elements[mine.clone()].as_bytes())?;
        self.meet_leaders()?;
        if !plan.for_all {
            return Ok(());
        }
        self.fetch_shares(staged, elements, Some(nodes.mine()))?;
        if nodes.here().len() > 1 {
            // The others here get it all from one place; the own share is there.
            staged.lay_out(result, elements[..mine.start].as_bytes())?;
            staged.lay_out(result + mine.end * size_of::<T>(), elements[mine.end..].as_bytes())?;
        }
        Ok(())
    }

    /// The leaders meet.
    fn meet_leaders(&mut self) -> Result<(), CollectiveError> {
        self.disseminate(&Participants::of_leaders(self.group.nodes()), |call, round| {
            call.send(round.to, &[])?;
            call.receive_exactly(round.from, 0).map(drop)
        })
    }

    /// Combines a share of what all nodes have come to.
    fn combine_share<T: Number>(
        &self,
        staged: &Staged<'_>,
        plan: &Plan,
        (mine, elements): (Range<usize>, &mut [T]),
    ) -> Result<(), CollectiveError> {
        if mine.is_empty() {
            return Ok(());
        }
        let (nodes, me, count) = (self.group.nodes(), self.me(), elements.len());
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
        elements[mine].copy_from_slice(&pieces);
        Ok(())
    }

    /// Gets the shares of the result from the leaders, but for that of `except`.
    fn fetch_shares<T: Number>(
        &self,
        staged: &Staged<'_>,
        elements: &mut [T],
        except: Option<u32>,
    ) -> Result<(), CollectiveError> {
        let nodes = self.group.nodes();
        let of = (nodes.count() as usize, except.map(|node| node as usize));
        fetch_by_share(staged, elements, of, |node, range| {
            let node = node as u32;
            (nodes.leader(node), result_of(nodes, node) + range.start * size_of::<T>())
        })
    }

    /// When the leaders are done.
    fn fetch_result<T: Number>(
        &self,
        staged: &Staged<'_>,
        plan: &Plan,
        elements: &mut [T],
    ) -> Result<(), CollectiveError> {
        let nodes = self.group.nodes();
        if !plan.for_all {
            let except = nodes.is_leader().then(|| nodes.mine());
            return if self.me() == plan.root { self.fetch_shares(staged, elements, except) } else { Ok(()) };
        }
        if nodes.is_leader() {
            return Ok(());
        }
        let (place, offset) = (nodes.my_leader(), result_of(nodes, nodes.mine()));
        staged.fetch(vec![Want { place, offset, target: elements.as_mut_bytes() }])
    }
}
