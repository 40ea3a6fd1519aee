//! Which sync areas the members of new groups have that share a node.
//!
//! While a group is split every second member on a node claims an area, and all tell what they have claimed together with their colors. Then all
//! know all claims and all colors, and nobody has to be asked: on each node the first color with several members there has the first
//! area that was claimed, whoever did, the second color the second one, and so on. Other claims are withdrawn. Where none is left for a color, because
//! other groups have them, or are being made, its members meet by messages.

use std::collections::HashMap;

use longarm_client::FlagBarriers;
use longarm_proto::Rank;
use longarm_shm::sync_area::ClaimedArea;

use crate::error::CollectiveError;
use crate::group::death_among;
use crate::inner::Inner;

/// What a member of the group that is split has claimed. Dropped, it is nobody's for ever: others may count on it.
pub(crate) struct Claim(Option<ClaimedArea>);

/// What a member of the group that is split has told.
pub(crate) struct Told {
    pub(crate) rank: Rank,
    /// Of the group in which it will be.
    pub(crate) color: Option<u32>,
    /// Its [`Claim::word`].
    pub(crate) claim: u64,
}

impl Claim {
    /// Of this rank, one of these members, of whom every second one on a node claims.
    pub(crate) fn of_split(inner: &Inner, members: &[Rank]) -> Claim {
        // More are never needed: those would be for colors of one member.
        Claim::of(inner, members, |place| place % 2 == 0)
    }

    /// Where all members will be one group: the first one on each node claims.
    pub(crate) fn of_list(inner: &Inner, members: &[Rank]) -> Claim {
        Claim::of(inner, members, |place| place == 0)
    }

    /// `is_one`: whether a member claims, by its place among those on its node.
    fn of(inner: &Inner, members: &[Rank], is_one: impl Fn(usize) -> bool) -> Claim {
        let layout = inner.client.layout();
        let mut here = members.iter().filter(|rank| layout.node_of(**rank) == layout.my_node());
        let is_one = here.position(|rank| *rank == inner.me()).is_some_and(is_one);
        // Behind a death no group is made, and its claims would be lost.
        let claims = is_one && death_among(&inner.client, members).is_none();
        Claim(if claims { inner.client.segment().claim_sync_area() } else { None })
    }

    /// What the others are told. 0: this member has none.
    pub(crate) fn word(&self) -> u64 {
        self.0.as_ref().map_or(0, ClaimedArea::word)
    }

    /// The groups are not made. If somebody called something else, nobody has made one.
    pub(crate) fn give_up(self, error: CollectiveError) -> CollectiveError {
        if let (Some(claimed), CollectiveError::Mismatch { .. }) = (self.0, &error) {
            claimed.withdraw();
        }
        error
    }

    /// Where this rank meets those of `members`, its new group, that are on its node. `told`: what all members of the group that is split have told,
    /// in their order.
    pub(crate) fn settle(self, inner: &Inner, told: &[Told], members: &[Rank]) -> Option<FlagBarriers> {
        let layout = inner.client.layout();
        let is_here = |rank: Rank| layout.node_of(rank) == layout.my_node();
        let here = || told.iter().filter(|one| is_here(one.rank));
        let mut counts: HashMap<u32, u32> = HashMap::new();
        here().filter_map(|one| one.color).for_each(|color| *counts.entry(color).or_default() += 1);
        let mut claims = here().map(|one| (one.rank, one.claim)).filter(|(_, claim)| *claim != 0);
        let mut mine = None;
        let mut claim = self.0;
        for color in here().filter_map(|one| one.color) {
            // Each color once.
            let Some(count) = counts.remove(&color).filter(|count| *count > 1) else { continue };
            let Some((claimer, word)) = claims.next() else { break };
            if claimer == inner.me() {
                claim.take()?.share(count);
            }
            if here().any(|one| one.rank == inner.me() && one.color == Some(color)) {
                mine = Some(word);
            }
        }
        if let Some(unused) = claim {
            unused.withdraw();
        }
        let ranks: Box<[Rank]> = members.iter().copied().filter(|rank| is_here(*rank)).collect();
        let me = ranks.iter().position(|rank| *rank == inner.me())? as u32;
        Some(FlagBarriers::of_group(inner.client.segment().hold_sync_area(mine?, me)?, ranks, me))
    }
}
