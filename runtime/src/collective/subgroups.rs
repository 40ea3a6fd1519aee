//! Groups that members of a group make together.

use longarm_client::TransferError;
use longarm_client::mail::Slot;
use longarm_proto::Rank;
use longarm_shm::sync::Ordering;

use super::signature::Signature;
use crate::error::CollectiveError;
use crate::group::{FROM_LIST, Group, bytes_of, hash_of, words_of};
use crate::group_area::Claim;
use crate::started::Started;

/// What a member of a split tells the others of its color, in the order in which they are in the new group.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    key: i64,
    /// In the group that is split.
    place: usize,
    /// A number that no group has.
    fresh: u64,
    /// See [`Claim::word`].
    claim: u64,
}

impl Group {
    /// A group of some members, by color: those that give the same one are together, ordered by `key` and then by
    /// place. `None` gives no group. Collective over this group. `shmem_team_split_strided`, `MPI_Comm_split`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let evens = world.split_collective((world.rank() % 2 == 0).then_some(0), 0)?;
    /// assert_eq!(evens.is_some(), world.rank() % 2 == 0);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn split_collective(&self, color: Option<u32>, key: i64) -> Result<Option<Group>, CollectiveError> {
        let fresh = self.inner.next_group_id();
        let claim = if color.is_some() { Claim::new(&self.inner) } else { Claim::NONE };
        let mine = [color.map_or(u64::MAX, u64::from), key as u64, fresh, claim.word()];
        let all = self.gather_few(Signature::plain("split"), &bytes_of(&mine))?;
        let Some(color) = color else { return Ok(None) };
        let mut members: Vec<Told> = all
            .chunks_exact(size_of_val(&mine))
            .enumerate()
            .map(|(place, body)| (place, words_of(body)))
            .filter(|(_, [their_color, _, _, _])| *their_color == u64::from(color))
            .map(|(place, [_, key, fresh, claim])| Told { key: key as i64, place, fresh, claim })
            .collect();
        members.sort_unstable();
        let id = members.iter().min_by_key(|member| member.place).map_or(0, |first| first.fresh);
        let claims: Vec<_> = members.iter().map(|member| (self.shared.members[member.place], member.claim)).collect();
        Ok(Some(self.with_claims(id, &claims, claim)))
    }

    /// The group of these ranks, who have told what they have claimed.
    fn with_claims(&self, id: u64, told: &[(Rank, u64)], claim: Claim) -> Group {
        self.with_members(id, told.iter().map(|(rank, _)| *rank).collect(), claim.settle(&self.inner, told))
    }

    /// Starts [`Group::split_collective`], behind the collectives of this group that were started before.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// # futures_lite::future::block_on(async {
    /// let half = world.start_split_collective(Some(world.rank() % 2), 0).await?.expect("a color gives a group");
    /// half.start_barrier_collective().await?;
    /// let alone = world.start_subgroup_collective(&[world.rank()]).await?;
    /// assert_eq!(alone.members(), [world.rank()]);
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future yields what [`Group::split_collective`] returns.
    pub fn start_split_collective(&self, color: Option<u32>, key: i64) -> Started<Option<Group>, CollectiveError> {
        self.start(move |group| group.split_collective(color, key))
    }

    /// The group of these members of this one, by place, in this order. Collective over the listed members only;
    /// all give the same list. `ARMCI_Group_create`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let backwards: Vec<u32> = (0..world.size()).rev().collect();
    /// let group = world.subgroup_collective(&backwards)?;
    /// assert_eq!(group.rank(), world.size() - 1 - world.rank());
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::BadMember`] for a place that is listed twice or does not exist,
    /// [`CollectiveError::NotMember`] if this rank is not listed.
    pub fn subgroup_collective(&self, places: &[u32]) -> Result<Group, CollectiveError> {
        self.provisional(places)?.with_own_id()
    }

    /// Starts [`Group::subgroup_collective`]. It waits for no collective of this group: its members need not be in those.
    ///
    /// # Errors
    /// The future yields what [`Group::subgroup_collective`] returns.
    pub fn start_subgroup_collective(&self, places: &[u32]) -> Started<Group, CollectiveError> {
        // In the order of the calls, which is the same at all members; the rest is in that of whoever comes first.
        match self.provisional(places) {
            Ok(provisional) => provisional.start(Group::with_own_id),
            Err(error) => Started::with(Err(error)),
        }
    }

    /// A group from a list, while its messages are told apart by the list itself: it has no id yet.
    fn provisional(&self, places: &[u32]) -> Result<Group, CollectiveError> {
        let mut seen = vec![false; self.size() as usize];
        for place in places {
            match seen.get_mut(*place as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(CollectiveError::BadMember { rank: Rank(*place) }),
            }
        }
        let ranks: Box<[Rank]> = places.iter().map(|place| self.shared.members[*place as usize]).collect();
        let me = self.inner.me();
        if !ranks.contains(&me) {
            return Err(CollectiveError::NotMember { rank: me });
        }
        let provisional = self.with_members(FROM_LIST | hash_of(&ranks), ranks.clone(), None);
        let sequence =
            self.inner.lists.lock().entry(ranks.clone()).and_modify(|count| *count += 1).or_insert(0).to_owned();
        provisional.shared.sequence.store(sequence << 16, Ordering::Relaxed);
        Ok(provisional)
    }

    /// The same members with an id.
    fn with_own_id(&self) -> Result<Group, CollectiveError> {
        let fresh = self.inner.next_group_id();
        let claim = Claim::for_members(&self.inner, &self.shared.members);
        let mine = [fresh, claim.word()];
        let all = self.gather_few(Signature::plain("subgroup"), &bytes_of(&mine))?;
        let words: Vec<[u64; 2]> = all.chunks_exact(size_of_val(&mine)).map(words_of).collect();
        let claims: Vec<_> = self.shared.members.iter().copied().zip(words.iter().map(|[_, claim]| *claim)).collect();
        Ok(self.with_claims(words[0][0], &claims, claim))
    }

    /// Waits for what was started on this group: for a call that looks at what those decide.
    pub(crate) fn finish_started(&self) {
        self.shared.lane.finish_before();
    }

    /// The same members, who meet by messages, as those of a group do for which there is no sync area left: for tests. All make it, and use it in
    /// place of this group.
    #[doc(hidden)]
    pub fn without_area(&self) -> Group {
        self.with_members(self.shared.id, self.shared.members.clone(), None)
    }

    /// Sends what a broken member could send in the next collective of this group: for tests of what the others make of it.
    ///
    /// # Errors
    /// The member is lost.
    #[doc(hidden)]
    pub fn send_as_if_broken(&self, to: u32, step: u32, total_bytes: u64, body: &[u8]) -> Result<(), TransferError> {
        let slot = Slot { group: self.shared.id, sequence: self.shared.sequence.load(Ordering::Relaxed), step };
        self.inner.client.send_letter(self.shared.members[to as usize], slot, total_bytes, body)
    }
}
