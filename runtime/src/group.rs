//! Groups: some ranks of the world, with collectives over them.

use std::sync::Arc;

use longarm_client::mail::Slot;
use longarm_client::{Client, Lost, Operation};
use longarm_proto::Rank;
use longarm_shm::sync::{AtomicU64, Ordering};

use crate::collective::{Call, Load, Signature};
use crate::error::{CollectiveError, TransferError};
use crate::started::lane::Lane;
use crate::started::{Started, promise};
use crate::world::{Inner, World};

/// Some ranks of the world, in a fixed order. Cheap to clone; every clone is the same group.
///
/// Methods whose name ends in `_collective`, and the collectives themselves, are called by all members, in the same
/// order. A SHMEM team, an ARMCI group.
///
/// ```
/// let world = longarm::init()?;
/// let half = world.split_collective(Some(world.rank() % 2), 0)?.expect("a color gives a group");
/// half.barrier_collective()?; // of its members only
/// assert_eq!(half.world_rank(half.rank()), Some(world.rank()));
/// assert_eq!(half.members().len(), half.size() as usize);
/// assert_eq!(half.place_of(world.rank()), Some(half.rank()));
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone)]
pub struct Group {
    pub(crate) inner: Arc<Inner>,
    pub(crate) shared: Arc<Members>,
}

pub(crate) struct Members {
    pub(crate) id: u64,
    pub(crate) members: Box<[Rank]>,
    /// This rank's place among the members.
    pub(crate) index: u32,
    sequence: AtomicU64,
    /// Collectives that were started, and run behind each other.
    lane: Arc<Lane>,
}

/// Id of the group of all ranks.
const WORLD: u64 = 0;
/// Where the messages that make a group from a list are told apart: the list's hash with this bit set.
const FROM_LIST: u64 = 1 << 63;

impl Group {
    pub(crate) fn world(inner: &Arc<Inner>) -> Group {
        let members = (0..inner.client.layout().rank_count()).map(Rank).collect();
        let index = inner.me().0;
        let shared = Members { id: WORLD, members, index, sequence: AtomicU64::new(0), lane: Lane::new() };
        Group { inner: Arc::clone(inner), shared: Arc::new(shared) }
    }

    /// This rank's place among the members.
    pub fn rank(&self) -> u32 {
        self.shared.index
    }

    /// How many members.
    pub fn size(&self) -> u32 {
        self.shared.members.len() as u32
    }

    /// The world rank of a member, by its place. `ARMCI_Absolute_id`.
    pub fn world_rank(&self, place: u32) -> Option<u32> {
        self.shared.members.get(place as usize).map(|rank| rank.0)
    }

    /// The world ranks of all members, in the order of their places.
    pub fn members(&self) -> Vec<u32> {
        self.shared.members.iter().map(|rank| rank.0).collect()
    }

    /// The place of a rank of the world among the members.
    pub fn place_of(&self, world_rank: u32) -> Option<u32> {
        self.shared.members.iter().position(|rank| rank.0 == world_rank).map(|place| place as u32)
    }

    /// A group of some members, by color: those who give the same one are together, ordered by `key` and then by
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
        let mine = [color.map_or(u64::MAX, u64::from), key as u64, fresh];
        let all = self.run(Signature::plain("split"), |call| call.allgather_exactly(&bytes_of(&mine)))?;
        let Some(color) = color else { return Ok(None) };
        let mut members: Vec<(i64, usize, u64)> = all
            .iter()
            .enumerate()
            .map(|(place, body)| (words_of::<3>(body), place))
            .filter(|(words, _)| words[0] == u64::from(color))
            .map(|(words, place)| (words[1] as i64, place, words[2]))
            .collect();
        members.sort_unstable();
        let id = members.iter().min_by_key(|member| member.1).map_or(0, |first| first.2);
        let ranks = members.iter().map(|(_, place, _)| self.shared.members[*place]).collect();
        Ok(Some(self.with_members(id, ranks)))
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
        let provisional = self.with_members(FROM_LIST | hash_of(&ranks), ranks.clone());
        let sequence =
            self.inner.lists.lock().entry(ranks.clone()).and_modify(|count| *count += 1).or_insert(0).to_owned();
        provisional.shared.sequence.store(sequence << 16, Ordering::Relaxed);
        Ok(provisional)
    }

    /// The same members with an id.
    fn with_own_id(&self) -> Result<Group, CollectiveError> {
        let fresh = self.inner.next_group_id();
        let all = self.run(Signature::plain("subgroup"), |call| call.allgather_exactly(&bytes_of(&[fresh])))?;
        Ok(self.with_members(words_of::<1>(&all[0])[0], self.shared.members.clone()))
    }

    /// Waits for what was started on this group: for who has to look at something that all of that agrees on.
    pub(crate) fn finish_started(&self) {
        self.shared.lane.finish_before();
    }

    /// The group of these ranks of the world, made without a word to the others: all members make it with the same ranks
    /// and the same `tag`, and no two groups of the same ranks that are in use at once have the same one. `None` if this
    /// rank is not listed.
    pub(crate) fn among(inner: &Arc<Inner>, ranks: &[u32], tag: u64) -> Option<Group> {
        let members: Box<[Rank]> = ranks.iter().copied().map(Rank).collect();
        let index = members.iter().position(|rank| *rank == inner.me())? as u32;
        // Lists hash to other numbers: the tag comes first.
        let mut tagged = vec![Rank((tag >> 32) as u32 ^ u32::MAX), Rank(tag as u32)];
        tagged.extend_from_slice(&members);
        let shared = Members {
            id: FROM_LIST | hash_of(&tagged),
            members,
            index,
            sequence: AtomicU64::new(0),
            lane: Lane::new(),
        };
        Some(Group { inner: Arc::clone(inner), shared: Arc::new(shared) })
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

    fn with_members(&self, id: u64, members: Box<[Rank]>) -> Group {
        let me = self.inner.me();
        let index = members.iter().position(|rank| *rank == me).expect("this rank is a member") as u32;
        let shared = Members { id, members, index, sequence: AtomicU64::new(0), lane: Lane::new() };
        Group { inner: Arc::clone(&self.inner), shared: Arc::new(shared) }
    }

    /// Runs one collective: all members agree on what is called, then `body` moves the data.
    pub(crate) fn run<R>(
        &self,
        signature: Signature,
        body: impl FnOnce(&mut Call<'_>) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        self.run_loaded(signature, &mut Load::Empty, body)
    }

    /// The same with a load that travels with the agreement.
    pub(crate) fn run_loaded<R>(
        &self,
        signature: Signature,
        load: &mut Load,
        body: impl FnOnce(&mut Call<'_>) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        let mut call = self.call(&signature);
        call.begin(signature, load, false)?;
        body(&mut call)
    }

    /// Whether its members meet in shared memory.
    pub(crate) fn can_meet(&self) -> bool {
        self.shared.id == WORLD && self.inner.client.can_meet()
    }

    /// Runs a collective behind those that were started before, while the caller goes on.
    pub(crate) fn start<R: Send + 'static, E: Send + 'static>(
        &self,
        run: impl FnOnce(&Group) -> Result<R, E> + Send + 'static,
    ) -> Started<R, E> {
        let (started, promised) = promise();
        let group = self.clone();
        self.inner.workers.start(&self.shared.lane, move || promised.keep(run(&group)));
        started
    }

    /// The next call of this group.
    pub(crate) fn call(&self, signature: &Signature) -> Call<'_> {
        // Those that were started before come first.
        self.shared.lane.finish_before();
        let sequence = self.shared.sequence.fetch_add(1, Ordering::Relaxed);
        Call::new(self, Slot { group: self.shared.id, sequence, step: 0 }, signature)
    }

    /// A member that is known to be dead, or whose node was lost, as an error.
    pub(crate) fn death(&self) -> Option<Lost> {
        death_among(&self.inner.client, &self.shared.members)
    }
}

/// One of these ranks that is known to be dead, or whose node was lost, as an error.
pub(crate) fn death_among(client: &Client, members: &[Rank]) -> Option<Lost> {
    // The members, and the hosts of the servers through which they are reached.
    let layout = client.layout();
    let hosts = members.iter().map(|rank| layout.server_host(layout.node_of(*rank)));
    let Some(death) = client.failures().among(members.iter().copied().chain(hosts)) else {
        let has_member = |node| members.iter().any(|rank| layout.node_of(*rank) == node);
        return client.lost_node(Operation::Collective, has_member);
    };
    let node = client.layout().node_of(death.rank);
    let how = longarm_client::LostHow::Died(death.how);
    Some(Lost { rank: death.rank, node, operation: Operation::Collective, how })
}

impl Inner {
    /// A group id that no other rank makes.
    fn next_group_id(&self) -> u64 {
        let count = self.group_count.fetch_add(1, Ordering::Relaxed) + 1;
        (u64::from(self.me().0) << 32 | u64::from(count)) & !FROM_LIST
    }
}

impl std::ops::Deref for World {
    type Target = Group;

    fn deref(&self) -> &Group {
        self.group()
    }
}

/// FNV-1a over the ranks: the same on every member, which is all that is asked of it.
fn hash_of(ranks: &[Rank]) -> u64 {
    ranks
        .iter()
        .flat_map(|rank| rank.0.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

pub(crate) fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub(crate) fn words_of<const COUNT: usize>(bytes: &[u8]) -> [u64; COUNT] {
    let mut words = [0; COUNT];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}
