//! Groups: some ranks of the world, with collectives over them.

use std::sync::{Arc, OnceLock};

use longarm_client::{Client, FlagBarriers, Lost, Operation};
use longarm_proto::Rank;
use longarm_shm::sync::{AtomicBool, AtomicU64, Ordering};

use crate::collective::nodes::Nodes;
use crate::collective::tree::SubtreesByNode;
use crate::inner::Inner;
use crate::started::lane::Lane;
use crate::started::{Started, promise};

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
    pub(crate) members: Arc<[Rank]>,
    /// This rank's place among the members.
    pub(crate) index: u32,
    pub(crate) sequence: AtomicU64,
    /// The number behind that of the last collective to which all members have come, as far as this one knows.
    pub(crate) all_came: AtomicU64,
    /// Not all members said the same for the last window.
    pub(crate) proposals_differed: AtomicBool,
    /// Collectives that were started, and run behind each other.
    pub(crate) lane: Arc<Lane>,
    /// Who of them is where, from the first collective on that asks for it.
    nodes: OnceLock<Nodes>,
    /// Which subtrees of a reduction lie on which node, from the first reduction on that needs it.
    subtrees: OnceLock<SubtreesByNode>,
    /// Where those meet that share this node. `None`: by messages; or there is no other here; or this is the world, whose ranks have lines of their own.
    pub(crate) barriers: Option<FlagBarriers>,
}

impl Members {
    /// `index`: this rank's place among them.
    fn new(id: u64, members: Arc<[Rank]>, index: u32, barriers: Option<FlagBarriers>) -> Arc<Members> {
        Arc::new(Members {
            id,
            members,
            index,
            sequence: AtomicU64::new(0),
            all_came: AtomicU64::new(0),
            proposals_differed: AtomicBool::new(false),
            lane: Lane::new(),
            nodes: OnceLock::new(),
            subtrees: OnceLock::new(),
            barriers,
        })
    }
}

/// Id of the group of all ranks.
const WORLD: u64 = 0;
/// Where the messages that make a group from a list are told apart: the list's hash with this bit set.
pub(crate) const FROM_LIST: u64 = 1 << 63;

impl Group {
    pub(crate) fn world(inner: &Arc<Inner>) -> Group {
        let members = inner.client.layout().all_ranks();
        let index = inner.me().0;
        Group { inner: Arc::clone(inner), shared: Members::new(WORLD, members, index, None) }
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

    /// The group of these ranks of the world, made without a word to the others: all members make it with the same ranks
    /// and the same `tag`, and no two groups of the same ranks that are in use at once have the same one. `None` if this
    /// rank is not listed.
    pub(crate) fn among(inner: &Arc<Inner>, ranks: &[u32], tag: u64) -> Option<Group> {
        let members: Arc<[Rank]> = ranks.iter().copied().map(Rank).collect();
        let index = members.iter().position(|rank| *rank == inner.me())? as u32;
        // Lists hash to other numbers: the tag comes first.
        let mut tagged = vec![Rank((tag >> 32) as u32 ^ u32::MAX), Rank(tag as u32)];
        tagged.extend_from_slice(&members);
        let id = FROM_LIST | hash_of(&tagged);
        Some(Group { inner: Arc::clone(inner), shared: Members::new(id, members, index, None) })
    }

    pub(crate) fn with_members(&self, id: u64, members: Arc<[Rank]>, barriers: Option<FlagBarriers>) -> Group {
        let me = self.inner.me();
        let index = members.iter().position(|rank| *rank == me).expect("this rank is a member") as u32;
        Group { inner: Arc::clone(&self.inner), shared: Members::new(id, members, index, barriers) }
    }

    /// Whether all ranks are its members, in their order.
    pub(crate) fn is_world(&self) -> bool {
        self.shared.id == WORLD
    }

    /// Whether all its members meet in shared memory.
    pub(crate) fn can_meet(&self) -> bool {
        if self.is_world() {
            self.inner.client.can_meet()
        } else {
            self.shared.barriers.is_some() && self.nodes().count() == 1
        }
    }

    /// Where those of its members meet that share this node, if they do so by flag barriers.
    pub(crate) fn barriers(&self) -> Option<&FlagBarriers> {
        if self.is_world() {
            return Some(self.inner.client.node_barriers());
        }
        self.shared.barriers.as_ref()
    }

    /// Who of its members is where.
    pub(crate) fn nodes(&self) -> &Nodes {
        let Members { members, index, nodes, .. } = &*self.shared;
        nodes.get_or_init(|| {
            let layout = self.inner.client.layout();
            if self.is_world() { Nodes::of_world(layout) } else { Nodes::new(layout, members, *index) }
        })
    }

    /// Which subtrees of a reduction lie on which node, if the first member is the root.
    pub(crate) fn subtrees(&self) -> &SubtreesByNode {
        self.shared.subtrees.get_or_init(|| SubtreesByNode::new(self.nodes()))
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
        let cut_off = || client.rank_out_of_reach(Operation::Collective, |rank| members.contains(&rank));
        return client.lost_connection(Operation::Collective, has_member).or_else(cut_off);
    };
    let node = client.layout().node_of(death.rank);
    let how = longarm_client::LostHow::Died(death.how);
    Some(Lost { rank: death.rank, node, operation: Operation::Collective, how })
}

impl Inner {
    /// A group id that no other rank makes.
    pub(crate) fn next_group_id(&self) -> u64 {
        let count = self.group_count.fetch_add(1, Ordering::Relaxed) + 1;
        (u64::from(self.me().0) << 32 | u64::from(count)) & !FROM_LIST
    }
}

/// FNV-1a over the ranks: the same on every member, which is all that is asked of it.
pub(crate) fn hash_of(ranks: &[Rank]) -> u64 {
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
