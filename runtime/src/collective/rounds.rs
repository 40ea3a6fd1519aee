//! Rounds in which all that speak hear of all: the one loop of messages that agreements and the search for differences have.

use longarm_client::Expecting;

use super::call::Call;
use super::nodes::Nodes;
use super::tree::SubtreesByNode;
use crate::error::CollectiveError;

/// Those that speak, each with those a number of places before and behind it.
pub(super) struct Participants<'a> {
    size: u32,
    /// Which of them this rank is.
    me: u32,
    speak_for: SpeakFor<'a>,
}

/// For what each of them speaks.
#[derive(Clone, Copy)]
enum SpeakFor<'a> {
    /// Itself.
    Itself,
    /// Leaders: the members on their nodes.
    Members(&'a Nodes),
    /// Leaders: what subtrees of a reduction lie on their nodes.
    Subtrees(&'a Nodes, &'a SubtreesByNode),
}

/// One of the rounds, as one that speaks sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Round {
    /// The place of whom it tells something.
    pub(super) to: u32,
    /// The place of whom it hears.
    pub(super) from: u32,
    /// How many places apart they are. Each has heard of so many so far, itself included.
    pub(super) distance: u32,
    /// Of so many of these the one that hears has not heard yet.
    pub(super) missing: u32,
}

impl<'a> Participants<'a> {
    /// As many members of a group, each for itself.
    pub(super) fn of_members(size: u32, me: u32) -> Participants<'a> {
        Participants { size, me, speak_for: SpeakFor::Itself }
    }

    /// The leaders of the nodes, of which this is one.
    pub(super) fn of_leaders(nodes: &'a Nodes) -> Participants<'a> {
        Participants { size: nodes.count(), me: nodes.mine(), speak_for: SpeakFor::Members(nodes) }
    }

    /// The leaders, who speak for subtrees.
    pub(super) fn leaders_of_subtrees(nodes: &'a Nodes, subtrees: &'a SubtreesByNode) -> Participants<'a> {
        Participants { speak_for: SpeakFor::Subtrees(nodes, subtrees), ..Participants::of_leaders(nodes) }
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// For how many members, or subtrees, `count` of them speak: the one `ahead` places ahead of this one, the one before it, and so on.
    pub(super) fn pieces_behind(&self, ahead: u32, count: u32) -> usize {
        let around = (0..count).map(|back| (self.me + ahead + self.size() - back) % self.size());
        match self.speak_for {
            SpeakFor::Itself => count as usize,
            SpeakFor::Members(nodes) => around.map(|node| nodes.on(node).len()).sum(),
            SpeakFor::Subtrees(_, subtrees) => around.map(|node| subtrees.on(node).len()).sum(),
        }
    }

    /// The place in the group of one that speaks.
    fn speaker(&self, at: u32) -> u32 {
        match self.speak_for {
            SpeakFor::Itself => at,
            SpeakFor::Members(nodes) | SpeakFor::Subtrees(nodes, _) => nodes.leader(at),
        }
    }

    /// Dissemination (Hensgen, Finkel, Manber): in round k each tells the one 2^k places ahead, and hears the one as far behind.
    fn rounds(&self) -> impl Iterator<Item = Round> + '_ {
        let (me, size) = (self.me, self.size());
        let distances = std::iter::successors(Some(1), |distance| Some(2 * distance));
        distances.take_while(move |distance| *distance < size).map(move |distance| Round {
            to: self.speaker((me + distance) % size),
            from: self.speaker((me + size - distance) % size),
            distance,
            missing: distance.min(size - distance),
        })
    }
}

impl Call<'_> {
    /// In each round `turn` sends one message and then receives one.
    pub(super) fn disseminate(
        &mut self,
        participants: &Participants<'_>,
        mut turn: impl FnMut(&Call<'_>, &Round) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        // Kept from round to round: what comes for the next one early wakes nobody else either.
        let mut expecting: Option<Expecting<'_>> = None;
        for round in participants.rounds() {
            match &expecting {
                Some(expecting) => expecting.renew(),
                None => expecting = self.expect(round.from),
            }
            turn(self, &round)?;
            self.next_step();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use longarm_client::Layout;
    use longarm_proto::{NodeId, Rank};

    use super::*;

    /// As the leaders see them: node 0 has one rank, node 1 two, and so on.
    fn nodes(count: u32) -> Vec<Nodes> {
        let node_of: Vec<NodeId> = (0..count).flat_map(|node| (0..=node).map(move |_| NodeId(node))).collect();
        let members: Vec<Rank> = (0..node_of.len() as u32).map(Rank).collect();
        let layout = Layout::new(Rank(0), &node_of);
        (0..count).map(|node| Nodes::new(&layout, &members, node * (node + 1) / 2)).collect()
    }

    #[test]
    fn after_the_rounds_each_has_heard_of_each_exactly_once() {
        for size in 1..=20_u32 {
            let nodes = nodes(size);
            for by_node in [false, true] {
                let everyone: Vec<Participants<'_>> = if by_node {
                    nodes.iter().map(Participants::of_leaders).collect()
                } else {
                    (0..size).map(|me| Participants::of_members(size, me)).collect()
                };
                // Of whom each has heard, as an agreement lines it up.
                let mut heard: Vec<Vec<u32>> = (0..size).map(|me| vec![me]).collect();
                for at in 0..everyone[0].rounds().count() {
                    let told = heard.clone();
                    for (me, participants) in (0..).zip(&everyone) {
                        let round = participants.rounds().nth(at).expect("all have as many");
                        let from = &told[((me + size - round.distance) % size) as usize];
                        assert_eq!(round.from, participants.speaker(from[0]));
                        assert_eq!(from.len(), round.distance as usize);
                        let new = &from[..round.missing as usize];
                        let members = |speaker: &u32| if by_node { *speaker as usize + 1 } else { 1 };
                        let due: usize = new.iter().map(members).sum();
                        assert_eq!(
                            participants.pieces_behind(size - round.distance, round.missing),
                            due,
                            "{size}: {me}"
                        );
                        heard[me as usize].extend_from_slice(new);
                    }
                }
                for (me, heard) in (0..).zip(&heard) {
                    let around: Vec<u32> = (0..size).map(|back| (me + size - back) % size).collect();
                    assert_eq!(*heard, around, "{size} around {me}");
                }
            }
        }
    }

    #[test]
    fn whom_one_tells_hears_it_in_the_same_round() {
        for size in 2..=40_u32 {
            let everyone: Vec<Participants<'_>> = (0..size).map(|me| Participants::of_members(size, me)).collect();
            for (me, participants) in (0..).zip(&everyone) {
                for (at, round) in participants.rounds().enumerate() {
                    let there = everyone[round.to as usize].rounds().nth(at).expect("all have as many");
                    assert_eq!((there.from, there.distance), (me, round.distance));
                }
            }
        }
    }
}
