//! All-to-alls of small shares where nodes have several members: the leader of each node has what its members give to the members of
//! another node, and sends it there as one message. Known as a hierarchical all-to-all; between leaders it is a pairwise exchange.
//!
//! ```text
//!   member ── shares, node by node ──► leader ══ one block ══► leader of each other node ── what is for it ──► member
//! ```
//!
//! So a node sends as many messages as there are other nodes, whatever the number of ranks, and needs connections for these only.
//! A leader moves, and keeps meanwhile, what all of its node give and get. Large shares go directly, each once.

use zerocopy::IntoBytes;

use super::call::Call;
use super::nodes::Nodes;
use super::signature::Signature;
use crate::element::Element;
use crate::error::CollectiveError;
use crate::group::Group;

/// Larger shares go from member to member.
const SHARE_BYTES_MAX: usize = 2 << 10;
/// What a leader keeps of what its node gives, at most, and as much of what it gets.
const NODE_BYTES_MAX: usize = 16 << 20;

// Steps after that of what the leader tells in the end. All rounds between nodes share one: two leaders exchange once.
const GIVEN: u32 = 1;
const BETWEEN_NODES: u32 = 2;
const TAKEN: u32 = 3;

impl Group {
    /// All members find the same.
    pub(super) fn suits_alltoall_by_node(&self, share_bytes: usize) -> bool {
        let nodes = self.nodes();
        let node_bytes = nodes.most() * self.size() as usize * share_bytes;
        nodes.are_shared() && (1..=SHARE_BYTES_MAX).contains(&share_bytes) && node_bytes <= NODE_BYTES_MAX
    }

    /// `room` gives the memory for what comes, when all has come.
    pub(super) fn alltoall_small<T: Element, R: AsMut<[T]>>(
        &self,
        signature: Signature,
        shares: &[&[u8]],
        room: impl FnOnce(&Call<'_>) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        self.run(signature, |call| {
            let by_node = call.alltoall_by_node(shares)?;
            let mut all = room(call)?;
            lay_by_place(&by_node, self.nodes(), all.as_mut().as_mut_bytes());
            Ok(all)
        })
    }
}

impl Call<'_> {
    /// Each member gets its share of `shares`, which are all of one length. Gives what the members have for this one, in the order of
    /// [`Nodes::places`].
    fn alltoall_by_node(&mut self, shares: &[&[u8]]) -> Result<Vec<u8>, CollectiveError> {
        let (nodes, begin, share_bytes) = (self.group.nodes(), self.slot.step, shares[0].len());
        let (my_leader, all_bytes) = (nodes.my_leader(), shares.len() * share_bytes);
        let mut mine = Vec::with_capacity(all_bytes);
        nodes.places().iter().for_each(|place| mine.extend_from_slice(shares[*place as usize]));
        if !nodes.is_leader() {
            self.in_step(begin + GIVEN, |call| call.send(my_leader, &mine))?;
        }
        self.speak_as_leader(|call| {
            mine = call.exchange_for_node(&mine, share_bytes)?;
            Ok(())
        })?;
        if nodes.is_leader() {
            return Ok(mine);
        }
        self.in_step(begin + TAKEN, |call| call.receive_exactly(my_leader, all_bytes))
    }

    /// The leader takes what those here give, exchanges it with the other leaders, and gives them theirs. Gives its own. What a member
    /// gives or gets is in the order of [`Nodes::places`].
    fn exchange_for_node(&mut self, mine: &[u8], share_bytes: usize) -> Result<Vec<u8>, CollectiveError> {
        let (nodes, begin, all_bytes) = (self.group.nodes(), self.slot.step, mine.len());
        // Whoever sends a wrong length spoils this collective for its own node and for whom it sent it to, and keeps no other node waiting.
        let mut wrong = None;
        let mut sound = |call: &Self, from: u32, heard: Vec<u8>, due: usize| {
            let Err(error) = call.check_bytes(from, heard.len() as u64, due) else { return heard };
            wrong.get_or_insert(error);
            vec![0; due]
        };
        let mut others = Vec::new();
        for place in &nodes.here()[1..] {
            let heard = self.in_step(begin + GIVEN, |call| call.receive(*place))?;
            others.push(sound(self, *place, heard, all_bytes));
        }
        let given: Vec<&[u8]> = std::iter::once(mine).chain(others.iter().map(Vec::as_slice)).collect();
        let mut taken = vec![vec![0; all_bytes]; given.len()];
        let (count, me) = (nodes.count(), nodes.mine());
        lay_block(&mut taken, &block_for(me, &given, nodes, share_bytes), (nodes, me), share_bytes);
        for distance in 1..count {
            let (to, from) = ((me + distance) % count, (me + count - distance) % count);
            let block = block_for(to, &given, nodes, share_bytes);
            let (to, from_leader) = (nodes.leader(to), nodes.leader(from));
            let heard = self.in_step(begin + BETWEEN_NODES, |call| call.exchange(to, &block, from_leader))?;
            let heard = sound(self, from_leader, heard, nodes.on(from).len() * given.len() * share_bytes);
            lay_block(&mut taken, &heard, (nodes, from), share_bytes);
        }
        if let Some(error) = wrong {
            return Err(error); // The members here hear of it, and wait for nothing else.
        }
        let mut theirs = nodes.here().iter().zip(&taken).skip(1);
        self.in_step(begin + TAKEN, |call| theirs.try_for_each(|(place, bytes)| call.send(*place, bytes)))?;
        Ok(taken.swap_remove(0))
    }
}

/// What those who have given this have for the members on a node: all of the first of them, then all of the next one.
fn block_for(node: u32, given: &[&[u8]], nodes: &Nodes, share_bytes: usize) -> Vec<u8> {
    let start = nodes.start(node) * share_bytes;
    given.iter().flat_map(|bytes| &bytes[start..start + nodes.on(node).len() * share_bytes]).copied().collect()
}

/// Lays out by place what lies in the order of [`Nodes::places`].
fn lay_by_place(by_node: &[u8], nodes: &Nodes, all: &mut [u8]) {
    let share_bytes = by_node.len() / nodes.places().len();
    for (place, piece) in nodes.places().iter().zip(by_node.chunks_exact(share_bytes)) {
        all[*place as usize * share_bytes..][..share_bytes].copy_from_slice(piece);
    }
}

/// Lays out such a block that comes from a node for those who take it.
fn lay_block(taken: &mut [Vec<u8>], block: &[u8], (nodes, node): (&Nodes, u32), share_bytes: usize) {
    let start = nodes.start(node) * share_bytes;
    let by_giver = block.chunks_exact(taken.len() * share_bytes);
    for (at, of_giver) in by_giver.enumerate() {
        for (taken, piece) in taken.iter_mut().zip(of_giver.chunks_exact(share_bytes)) {
            taken[start + at * share_bytes..][..share_bytes].copy_from_slice(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use longarm_client::Layout;
    use longarm_proto::{NodeId, Rank};

    use super::*;

    #[test]
    fn blocks_of_all_nodes_bring_each_member_what_the_others_have_for_it() {
        // Places 0 to 4 on nodes 0, 1, 0, 2, 1: node by node these are 0, 2, 1, 4, 3.
        let layout = Layout::new(Rank(0), &[0, 1, 0, 2, 1].map(NodeId));
        let members = [0, 1, 2, 3, 4].map(Rank);
        let nodes = Nodes::new(&layout, &members, 0);
        let given = |from: u32| nodes.places().iter().flat_map(|to| [from as u8, *to as u8]).collect::<Vec<u8>>();
        for there in 0..nodes.count() {
            let mut taken = vec![vec![0; 10]; nodes.on(there).len()];
            for here in 0..nodes.count() {
                let all: Vec<Vec<u8>> = nodes.on(here).iter().map(|from| given(*from)).collect();
                let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
                lay_block(&mut taken, &block_for(there, &all, &nodes, 2), (&nodes, here), 2);
            }
            for (me, taken) in nodes.on(there).iter().zip(taken) {
                let expected: Vec<u8> = nodes.places().iter().flat_map(|from| [*from as u8, *me as u8]).collect();
                assert_eq!(taken, expected, "for place {me}");
                let mut all = [0; 10];
                lay_by_place(&taken, &nodes, &mut all);
                let expected: Vec<u8> = (0..5).flat_map(|from| [from, *me as u8]).collect();
                assert_eq!(all[..], expected, "for place {me}");
            }
        }
    }
}
