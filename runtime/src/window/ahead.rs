//! Windows of the world that are made in one collective call.
//!
//! ```text
//!   making window 5:  "the next is called 6"
//!   making window 6:  each node's lowest rank serves it already, in memory that a window had before ──► all meet, and hear that all nodes do
//! ```
//!
//! Before ranks have met nobody knows how large the parts of the others are. The lowest rank of a node guesses that they have as much room as
//! its own. When they meet all learn whether every guess was right. If one was not, or a node has no such memory, what was served ahead is
//! withdrawn, and the window is made as any other.

use longarm_client::WindowIdentity;
use longarm_proto::{Generation, NodeId, Rank, WindowId};
use longarm_server::door::DoorRequest;
use longarm_shm::NodeWindow;

use super::name::{FreshName, Name};
use super::proposal::{Made, Outcomes, Proposals};
use crate::group::Group;

/// The memory of a window of the world, by the window that each node's was made for. Another window in the same memory has all its parts
/// where this one has them, in every process that has it mapped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemoryOfNodes(Memory);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Memory {
    /// That of every node was made for the same window, as it is unless one was late.
    Alike(Name),
    /// By node.
    Each(Box<[Name]>),
}

impl MemoryOfNodes {
    fn of(names: Box<[Name]>) -> MemoryOfNodes {
        let alike = names.iter().all(|name| *name == names[0]);
        MemoryOfNodes(if alike { Memory::Alike(names[0]) } else { Memory::Each(names) })
    }
}

impl Group {
    /// The lowest rank of the node has the announced window of the world served. Gives the window that the memory was made for.
    pub(super) fn serve_ahead(&self, announced: FreshName, bytes: u64) -> Option<Name> {
        let ranks = self.inner.client.layout().ranks_of(self.inner.client.layout().my_node());
        if self.inner.is_simulated || ranks[0] != self.inner.client.layout().me() {
            return None;
        }
        let room = NodeWindow::room_for(&vec![bytes; ranks.len()])?;
        let made_for = self.inner.node.serve_ahead(announced.identity(Rank(0)), ranks, room)?;
        Some(Name::of(made_for.0, made_for.1))
    }

    /// What was served ahead is not any more.
    pub(super) fn withdraw(&self, announced: FreshName) {
        let WindowIdentity { window, generation, .. } = announced.identity(Rank(0));
        let request = DoorRequest::Free { window: window.0, generation: generation.0 };
        if let Err(error) = self.inner.node.ask(&request) {
            tracing::debug!(%error, "a window that was served ahead stays");
        }
    }

    /// The memory that all nodes serve already for the announced window, if they do, every part has room in it, and all members know the
    /// window's name. All members see the same.
    pub(super) fn memory_served_ahead(&self, proposals: &Proposals) -> Option<MemoryOfNodes> {
        proposals.announced()?;
        match proposals {
            // As much room as each node's lowest rank has guessed.
            Proposals::Alike(all) => all.made_for.map(|name| MemoryOfNodes(Memory::Alike(name))),
            Proposals::Each(all) => self.on_nodes(|ranks| {
                let lowest = all[ranks[0].0 as usize];
                let guess = NodeWindow::room_for(&vec![lowest.bytes; ranks.len()])?;
                (room_of(ranks, proposals)? == guess).then_some(lowest.made_for?)
            }),
        }
    }

    /// The memory of a window of the world that was made together, if it is such that other windows have it afterwards on all nodes.
    pub(super) fn memory_of_nodes(&self, proposals: &Proposals, outcomes: &Outcomes) -> Option<MemoryOfNodes> {
        // Memory without room has no other window afterwards.
        let has_room = |ranks: &[Rank]| room_of(ranks, proposals).is_some();
        match outcomes {
            Outcomes::Alike(all) => {
                let name = all.made_for?;
                self.on_nodes(|ranks| has_room(ranks).then_some(name))
            }
            Outcomes::Each(all) => self.on_nodes(|ranks| match all[ranks[0].0 as usize].made {
                Made::Memory((window, generation), _) => has_room(ranks).then(|| Name::of(window, generation)),
                Made::Failed | Made::Nothing => None,
            }),
        }
    }

    /// That of this node.
    pub(super) fn memory_here(&self, memory: &MemoryOfNodes) -> (WindowId, Generation) {
        let name = match &memory.0 {
            Memory::Alike(name) => *name,
            Memory::Each(names) => names[self.inner.client.layout().my_node().0 as usize],
        };
        // Rank 0 has named all windows of the world.
        name.window(Rank(0))
    }

    /// What each node of the world gives, if all do.
    fn on_nodes(&self, of_ranks: impl Fn(&[Rank]) -> Option<Name>) -> Option<MemoryOfNodes> {
        let layout = self.inner.client.layout();
        let nodes = (0..layout.node_count()).map(NodeId);
        nodes.map(|node| of_ranks(layout.ranks_of(node))).collect::<Option<_>>().map(MemoryOfNodes::of)
    }
}

/// The room of each part of these ranks of a node.
fn room_of(ranks: &[Rank], proposals: &Proposals) -> Option<u64> {
    let bytes: Vec<u64> = ranks.iter().map(|rank| proposals.bytes_at(rank.0)).collect();
    NodeWindow::room_for(&bytes)
}
