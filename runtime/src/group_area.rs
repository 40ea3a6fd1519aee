//! Which sync area the members of a group have that share a node.
//!
//! While a group is made members claim areas and tell the others, together with what makes the group. Then all know all claims, and
//! nobody has to be asked: on each node the area is that of the first member there that has found one, and the other claims are
//! withdrawn. Where nobody has found one the members meet by messages.

use longarm_client::FlagBarriers;
use longarm_proto::Rank;
use longarm_shm::sync_area::ClaimedArea;

use crate::inner::Inner;

/// What a member claims while a group is made. Dropped without [`Claim::settle`], because the group is not made, it is nobody's for ever: others may
/// count on it.
pub(crate) struct Claim(Option<ClaimedArea>);

impl Claim {
    /// For a member that will be in no group, or knows that another one claims.
    pub(crate) const NONE: Claim = Claim(None);

    pub(crate) fn new(inner: &Inner) -> Claim {
        Claim(inner.client.segment().claim_sync_area())
    }

    /// The same where all know the members, in their order: the first one on each node claims.
    pub(crate) fn for_members(inner: &Inner, members: &[Rank]) -> Claim {
        let layout = inner.client.layout();
        let first = members.iter().find(|rank| layout.node_of(**rank) == layout.my_node());
        if first == Some(&inner.me()) { Claim::new(inner) } else { Claim::NONE }
    }

    /// What the others are told. 0: this member has found none.
    pub(crate) fn word(&self) -> u64 {
        self.0.as_ref().map_or(0, ClaimedArea::word)
    }

    /// Where this rank meets those on its node of a group of these ranks, who have told these words.
    pub(crate) fn settle(self, inner: &Inner, told: &[(Rank, u64)]) -> Option<FlagBarriers> {
        let layout = inner.client.layout();
        let is_here = |(rank, _): &&(Rank, u64)| layout.node_of(*rank) == layout.my_node();
        let (ranks, words): (Vec<Rank>, Vec<u64>) = told.iter().filter(is_here).copied().unzip();
        let place = |wanted: Rank| ranks.iter().position(|rank| *rank == wanted);
        let me = place(inner.me()).expect("this rank is a member");
        let claimer = words.iter().position(|word| *word != 0).filter(|_| ranks.len() > 1);
        let area = match (claimer, self.0) {
            (Some(claimer), Some(claimed)) if claimer == me => Some(claimed.share(ranks.len() as u32, me as u32)),
            (claimer, claimed) => {
                claimed.into_iter().for_each(ClaimedArea::withdraw);
                inner.client.segment().hold_sync_area(words[claimer?], me as u32)
            }
        };
        Some(FlagBarriers::of_group(area?, ranks.into(), me as u32))
    }
}
