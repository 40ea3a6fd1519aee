//! Groups that members of a group make together.

use std::sync::Arc;

use longarm_client::TransferError;
use longarm_client::mail::Slot;
use longarm_proto::Rank;
use longarm_shm::sync::Ordering;

use super::signature::Signature;
use crate::error::CollectiveError;
use crate::group::{FROM_LIST, Group, bytes_of, hash_of, words_of};
use crate::group_area::{Claim, Told};
use crate::started::Started;

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
        let claim = Claim::of_split(&self.inner, &self.shared.members);
        let mine = [color.map_or(u64::MAX, u64::from), key as u64, fresh, claim.word()];
        let (claim, all) = claim.with(self.gather_few(Signature::plain("split"), &bytes_of(&mine)))?;
        let words: Vec<[u64; 4]> = all.chunks_exact(size_of_val(&mine)).map(words_of).collect();
        let told: Vec<Told> = (self.shared.members.iter().zip(&words))
            .map(|(rank, [color, _, _, claim])| Told { rank: *rank, color: u32::try_from(*color).ok(), claim: *claim })
            .collect();
        let mut members: Vec<(i64, usize)> = (0..words.len())
            .filter(|place| color.is_some() && told[*place].color == color)
            .map(|place| (words[place][1] as i64, place))
            .collect();
        members.sort_unstable();
        let ranks: Arc<[Rank]> = members.iter().map(|(_, place)| told[*place].rank).collect();
        let barriers = claim.settle(&self.inner, &told, &ranks);
        let first = members.iter().map(|(_, place)| *place).min();
        Ok(first.map(|first| self.with_members(words[first][2], ranks, barriers)))
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
        let ranks: Arc<[Rank]> = places.iter().map(|place| self.shared.members[*place as usize]).collect();
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
        let claim = Claim::of_list(&self.inner, &self.shared.members);
        let mine = [fresh, claim.word()];
        let (claim, all) = claim.with(self.gather_few(Signature::plain("subgroup"), &bytes_of(&mine)))?;
        let words: Vec<[u64; 2]> = all.chunks_exact(size_of_val(&mine)).map(words_of).collect();
        let members = &self.shared.members;
        let told: Vec<Told> = (members.iter().zip(&words))
            .map(|(rank, [_, claim])| Told { rank: *rank, color: Some(0), claim: *claim })
            .collect();
        Ok(self.with_members(words[0][0], members.clone(), claim.settle(&self.inner, &told, members)))
    }

    /// Waits for what was started on this group: for a call that looks at what those decide.
    pub(crate) fn finish_started(&self) {
        self.shared.lane.finish_before();
    }

    /// Whether all its members meet in shared memory: for tests.
    #[doc(hidden)]
    pub fn meets_in_memory(&self) -> bool {
        self.can_meet()
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
