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
        let mut here = members.iter().filter(|rank| is_here(inner, **rank));
        let is_one = here.position(|rank| *rank == inner.me()).is_some_and(is_one);
        // Behind a death no group is made, and its claims would be lost.
        let claims = is_one && death_among(&inner.client, members).is_none();
        Claim(if claims { inner.client.segment().claim_sync_area() } else { None })
    }

    /// What the others are told. 0: this member has none.
    pub(crate) fn word(&self) -> u64 {
        self.0.as_ref().map_or(0, ClaimedArea::word)
    }

    /// With what came of telling it. If somebody called something else, nobody has made a group, and it is withdrawn.
    pub(crate) fn with<T>(self, told: Result<T, CollectiveError>) -> Result<(Claim, T), CollectiveError> {
        match (told, self) {
            (Ok(told), claim) => Ok((claim, told)),
            (Err(error), Claim(claimed)) => {
                if matches!(error, CollectiveError::Mismatch { .. }) {
                    claimed.into_iter().for_each(ClaimedArea::withdraw);
                }
                Err(error)
            }
        }
    }

    /// Where this rank meets those of `members`, its new group, that are on its node. `told`: what all members of the group that is split have told,
    /// in their order.
    pub(crate) fn settle(self, inner: &Inner, told: &[Told], members: &[Rank]) -> Option<FlagBarriers> {
        let here: Vec<&Told> = told.iter().filter(|one| is_here(inner, one.rank)).collect();
        let my_color = here.iter().find(|one| one.rank == inner.me()).and_then(|me| me.color);
        let mut counts: HashMap<u32, u32> = HashMap::new();
        here.iter().filter_map(|one| one.color).for_each(|color| *counts.entry(color).or_default() += 1);
        // Of each color the first member stands for it.
        let colors = here.iter().filter_map(|one| counts.remove_entry(&one.color?)).filter(|(_, count)| *count > 1);
        let mut mine = None;
        let mut claim = self.0;
        for ((color, count), claimer) in colors.zip(here.iter().filter(|one| one.claim != 0)) {
            if claimer.rank == inner.me() {
                claim.take()?.share(count);
            }
            if Some(color) == my_color {
                mine = Some(claimer.claim);
            }
        }
        if let Some(unused) = claim {
            unused.withdraw();
        }
        let ranks: Box<[Rank]> = members.iter().copied().filter(|rank| is_here(inner, *rank)).collect();
        let me = ranks.iter().position(|rank| *rank == inner.me())? as u32;
        Some(FlagBarriers::of_group(inner.client.segment().hold_sync_area(mine?, me)?, ranks, me))
    }
}

fn is_here(inner: &Inner, rank: Rank) -> bool {
    let layout = inner.client.layout();
    layout.node_of(rank) == layout.my_node()
}
