//! The world: from init to finalize.

mod heard;
mod losses;
mod messages;
mod questions;
pub(crate) mod start;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use longarm_client::{Client, ClientOptions, EndpointOptions, Failures, Layout, TransferError};
use longarm_control::messages::{PeerTraffic, Start};
use longarm_netmod::{Calls, Interface, Netmod};
use longarm_proto::{Identity, JobId, NodeId, Rank, Secret};
use longarm_shm::sync::{AtomicBool, AtomicU32, Ordering};
use parking_lot::Mutex;

use crate::bootstrap::{
    Clock, Counted, Dialer, Found, Node, NodeOptions, Rendezvous, addresses, costs, is_routed, network,
};
use crate::collective::staging_buffer::StagingBuffer;
use crate::config::{Config, InterfaceChoice};
use crate::error::{CollectiveError, InitError};
use crate::group::{self, Group};
use crate::inner::Inner;
use crate::message::Handlers;
use crate::panics::{PANICKED, end_process, said_by};
use crate::question::Questions;
use crate::stage::Stage;
use crate::started::errands::Errands;
use crate::started::lane::{Lane, Workers};
use crate::started::watch::Watch;
use crate::window::kept::KeptMemory;
use crate::window::numbers::WindowNumbers;

/// That world, for who comes to it second. It is kept by those who have a handle.
static CURRENT: Mutex<Option<(Weak<Presence>, Weak<group::Members>)>> = Mutex::new(None);

/// What the clones of a world have, and nobody else: windows, groups and what else belongs to a world hold [`Inner`] alone. The
/// world holds some of these itself, in handlers of messages most of all, and would never go if they held this.
struct Presence(Arc<Inner>);

/// The end of a rank.
///
/// ```
/// let world = longarm::init()?; // with LONGARM_ON_FAILURE=continue
/// for death in world.acknowledge_deaths() {
///     eprintln!("rank {} on node {} {}", death.rank, death.node, death.how);
/// }
/// assert!(world.deaths().is_empty());
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Death {
    /// The rank.
    pub rank: u32,
    /// Its node.
    pub node: u32,
    /// How it ended, as the rest of a sentence that begins with the rank: "was killed by signal 9 (SIGKILL)".
    pub how: String,
}

/// This rank's place in the job. Cheap to clone; every clone is the same world. It is the group of all ranks, too: the methods of
/// [`Group`] are its own.
///
/// ```
/// let world = longarm::init()?; // Without `longarm run`: a world of one.
/// assert_eq!((world.rank(), world.size()), (0, 1));
/// assert_eq!((world.node(), world.node_count()), (0, 1));
/// assert_eq!((world.node_of(0), world.node_of(1)), (Some(0), None)); // there is no rank 1
/// assert_eq!(world.group().members(), [0]);
/// println!("the symmetric heap has {} bytes", world.config().heap_bytes);
///
/// let window = world.allocate_collective::<u64>(2)?;
/// window.put_one(0, 0, 1)?;
/// world.fence(); // what follows takes effect behind it
/// window.put_one(0, 1, 2)?;
/// world.quiet_rank(0)?; // both are visible at rank 0
/// world.quiet()?; // and whatever was issued, at its targets
/// for peer in world.traffic() {
///     println!("with rank {}: {} kinds of operations", peer.peer, peer.kinds.len());
/// }
/// world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone)]
pub struct World {
    pub(crate) inner: Arc<Inner>,
    group: Group,
    presence: Arc<Presence>,
}

/// What a world is made of, once its rank has a client.
pub(crate) struct Parts<'a> {
    pub(crate) client: Arc<Client>,
    pub(crate) node: Node,
    pub(crate) config: Config,
    pub(crate) secret: &'a Secret,
    pub(crate) rendezvous: Option<Arc<dyn Rendezvous>>,
    pub(crate) netmod: Arc<dyn Netmod>,
    pub(crate) routed: bool,
    /// Of a simulated rank.
    pub(crate) stage: Option<Arc<dyn Stage>>,
}

fn join(mut config: Config, find: impl FnOnce(&mut Config) -> Result<Found, InitError>) -> Result<World, InitError> {
    let (rendezvous, start) = find(&mut config)?;
    settle(&mut config, &start)?;
    let nodes: Vec<NodeId> = start.node_of_rank.iter().map(|node| NodeId(*node)).collect();
    let layout = Layout::new(Rank(start.rank), &nodes);
    let secret = Secret(start.read_secret().ok_or(InitError::LauncherGarbled)?);
    let job = JobId(start.job);
    let identity = Identity { job, rank: layout.me(), node: layout.my_node() };
    let several_machines = start.machines > 1;
    let interfaces = addresses_of(&config, &layout, several_machines)?;
    config.settle_interface(interfaces.iter().map(Interface::address));
    let netmod = network(&config, &layout, identity, &secret, &interfaces)?;
    let routed = is_routed(&config, &layout);
    let node = Node::join(&NodeOptions {
        job,
        secret: secret.clone(),
        layout: &layout,
        config: &config,
        netmod: &*netmod,
        rendezvous: rendezvous.as_ref(),
        processors: &start.processors,
    })?;
    let encrypted = config.encrypt;
    let clock = Arc::new(Clock::start());
    let calls = Calls::new(Arc::clone(&netmod));
    let dialer = Dialer {
        calls,
        rendezvous: rendezvous.clone(),
        secret: secret.clone(),
        identity,
        encrypted,
        several_machines,
        clock: Arc::clone(&clock),
    };
    let client = client_of(&config, &start, (layout, &node), (dialer, clock)).map_err(InitError::Launcher)?;
    let world = World::begin(Parts { client, node, config, secret: &secret, rendezvous, netmod, routed, stage: None })?;
    *CURRENT.lock() = Some((Arc::downgrade(&world.presence), Arc::downgrade(&world.group.shared)));
    Ok(world)
}

/// What follows from the job and from this machine.
fn settle(config: &mut Config, start: &Start) -> Result<(), InitError> {
    if start.rank == 0 {
        // Once is enough: the ranks share their environment.
        config.warnings().iter().for_each(|warning| eprintln!("longarm: {warning}"));
    }
    config.settle_spin(start.ranks_on_machine, start.processors.len() as u32);
    let nodes = start.node_of_rank.iter().max().map_or(1, |last| last.saturating_add(1));
    let nodes_on_machine = nodes.div_ceil(start.machines.max(1));
    config.settle_server_threads(start.ranks_on_machine, nodes_on_machine, start.processors.len() as u32);
    config.settle_wait_limits(start.ranks_on_machine, start.processors.len() as u32);
    config.settle_debugger();
    longarm_memory::set_nontemporal_bytes_min(config.nontemporal_bytes as usize);
    if !start.is_sound() {
        return Err(InitError::LauncherGarbled);
    }
    Ok(())
}

/// At which addresses this rank's node is reached.
fn addresses_of(config: &Config, layout: &Layout, several_machines: bool) -> Result<Vec<Interface>, InitError> {
    match layout.rank_count() {
        // Nobody calls.
        1 => addresses::addresses_to_listen_on(&InterfaceChoice::Auto, false),
        _ => addresses::addresses_to_listen_on(&config.interface, several_machines),
    }
}

fn client_of(
    config: &Config,
    start: &Start,
    (layout, node): (Layout, &Node),
    (dialer, clock): (Dialer, Arc<Clock>),
) -> std::io::Result<Arc<Client>> {
    Client::new(ClientOptions {
        layout,
        segment: Arc::clone(&node.segment),
        dial: Arc::new(dialer),
        time: clock,
        assist: node.assist(),
        failures: Failures::new(start.node_of_rank.len() as u32, start.survivors_go_on),
        spin_us: config.spin_us,
        eager_bytes: config.copied_bytes_max(),
        endpoint: EndpointOptions {
            caller: Rank(start.rank),
            buffered_bytes_max: config.send_ring_bytes as usize,
            connect_ms: config.connect_timeout_s * 1000,
            reconnect_ms: config.reconnect_s * 1000,
            silence_ms: config.silence_ms,
            costs: costs(),
        },
        processors: start.processors.clone(),
        ranks_on_machine: start.ranks_on_machine,
    })
}

/// From now on deaths and losses are heard of, and those answered who ask what this rank waits for.
fn hear(
    rendezvous: &Arc<dyn Rendezvous>,
    (client, questions): (&Arc<Client>, &Arc<Questions>),
    node: &Node,
    routed: bool,
) {
    let heard = heard::death_listener((client, questions), node, rendezvous.explains_deaths(), routed);
    let (job, segment) = (Arc::downgrade(rendezvous), Arc::clone(&node.segment));
    rendezvous.watch_deaths(Arc::new(move |rank, how| {
        // It runs wakers of the program's, as all threads do that complete something.
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| heard(rank, how))) else { return };
        segment.note_job_ends();
        if let Some(job) = job.upgrade() {
            job.abort(&format!("the thread that hears of deaths panicked: {}", said_by(&*panic)), PANICKED);
        }
        end_process()
    }));
    let hearing = Arc::downgrade(client);
    rendezvous.watch_losses(Arc::new(move |rank, how| {
        if let Some(client) = hearing.upgrade() {
            client.on_out_of_reach(Rank(rank), how);
        }
    }));
    let calling = Arc::downgrade(client);
    rendezvous.watch_node_cards(Arc::new(move || {
        if let Some(client) = calling.upgrade() {
            client.on_node_card();
        }
    }));
    let waiting = Arc::downgrade(client);
    rendezvous.answer_inquiries(Arc::new(move || {
        waiting.upgrade().map(|client| heard::waits_of(&client)).unwrap_or_default()
    }));
}

/// What a handler, or a call that was started, was to do is not done where it panics, and somebody may wait for it.
fn end_job_on_panics(inner: &Arc<Inner>) {
    let ending = Arc::downgrade(inner);
    inner.handlers.end_job_by(move |reason, status| {
        if let Some(inner) = ending.upgrade() {
            inner.abort(reason, status);
        }
    });
    for workers in [&inner.workers, inner.watch.workers()] {
        let world = Arc::downgrade(inner);
        workers.when_one_panics(move |why| abort_if_there(&world, why));
    }
    let world = Arc::downgrade(inner);
    inner.client.when_helper_panics(move |panic| {
        abort_if_there(&world, &format!("the thread that moves transfers panicked: {}", said_by(panic)));
        end_process()
    });
}

/// Ends the job of a world that has not ended.
fn abort_if_there(world: &Weak<Inner>, why: &str) {
    if let Some(inner) = world.upgrade() {
        inner.abort(why, PANICKED);
    }
}

impl World {
    /// Meets the others.
    pub(crate) fn begin(parts: Parts<'_>) -> Result<World, InitError> {
        let Parts { client, node, config, secret, rendezvous, netmod, routed, stage } = parts;
        let questions = Arc::<Questions>::default();
        if let Some(rendezvous) = &rendezvous {
            hear(rendezvous, (&client, &questions), &node, routed);
        }
        let handlers = Handlers::new(&client);
        let inner = Arc::new(Inner {
            client,
            node,
            config,
            numbers: WindowNumbers::new(),
            memory: KeptMemory::new(),
            group_count: AtomicU32::new(0),
            handlers,
            heap: Mutex::new(None),
            staging: StagingBuffer::new(secret),
            workers: Workers::on(stage.clone()),
            quiets: Lane::new(),
            errands: Errands::default(),
            watch: Watch::new(Workers::on(stage.clone())),
            questions,
            lists: Mutex::default(),
            rendezvous,
            netmod,
            finalized: AtomicBool::new(false),
            pid: std::process::id(),
            holders: AtomicU32::new(1),
            is_simulated: stage.is_some(),
        });
        end_job_on_panics(&inner);
        inner.watch_losses();
        let presence = Arc::new(Presence(Arc::clone(&inner)));
        let world = World { group: Group::world(&inner), inner, presence };
        world.group.sync_collective()?;
        Ok(world)
    }

    /// The world of this process, for one more holder.
    fn current() -> Option<World> {
        let current = CURRENT.lock();
        let (presence, shared) = current.as_ref()?;
        let (presence, shared) = (presence.upgrade()?, shared.upgrade()?);
        let inner = Arc::clone(&presence.0);
        let one_more = |holders: u32| (holders > 0 && !inner.finalized.load(Ordering::Acquire)).then_some(holders + 1);
        inner.holders.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(World { group: Group { inner: Arc::clone(&inner), shared }, inner, presence })
    }

    /// The number of this process, from 0. `shmem_my_pe`.
    pub fn rank(&self) -> u32 {
        self.inner.client.layout().me().0
    }

    /// How many ranks the job has. `shmem_n_pes`.
    pub fn size(&self) -> u32 {
        self.inner.client.layout().rank_count()
    }

    /// The node of this rank, from 0.
    pub fn node(&self) -> u32 {
        self.inner.client.layout().my_node().0
    }

    /// The program's word that, until the world ends, one thread alone maps and unmaps memory, and communicates; threads of
    /// longarm's own apart. They free buffers that were handed over, so such a program hands none over: its transfers are blocking ones,
    /// or borrow their buffers in a scope. Transfers over a device that use memory again need not ask the kernel then whether it has changed.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// world.rely_on_one_thread(); // this program has no threads of its own
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    pub fn rely_on_one_thread(&self) {
        if let Some(remote) = self.inner.netmod.remote_memory() {
            remote.rely_on_one_thread();
        }
    }

    /// How many nodes the job has.
    pub fn node_count(&self) -> u32 {
        self.inner.client.layout().node_count()
    }

    /// The node of any rank; `None` if there is no such rank.
    pub fn node_of(&self, rank: u32) -> Option<u32> {
        let layout = self.inner.client.layout();
        layout.contains(Rank(rank)).then(|| layout.node_of(Rank(rank)).0)
    }

    /// The group of all ranks. Collectives of the world are its methods too.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The configuration that this rank runs with.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Everything that this rank has issued towards `rank` is visible there on return. `ARMCI_Fence`.
    ///
    /// # Errors
    /// [`TransferError::Refused`] for an earlier operation without an answer of its own, [`TransferError::Lost`].
    #[inline]
    pub fn quiet_rank(&self, rank: u32) -> Result<(), TransferError> {
        self.inner.client.quiet_rank(Rank(rank))
    }

    /// Everything that this rank has issued is visible at its targets on return. `ARMCI_AllFence`, `shmem_quiet`.
    ///
    /// # Errors
    /// As [`World::quiet_rank`].
    #[inline]
    pub fn quiet(&self) -> Result<(), TransferError> {
        self.inner.client.quiet()
    }

    /// What this rank issues towards a rank after it takes effect after what it issued before. `shmem_fence`.
    pub fn fence(&self) {
        self.inner.client.fence();
    }

    /// The ranks that are known to have died, in the order in which that became known.
    pub fn deaths(&self) -> Vec<Death> {
        self.inner.client.failures().all().into_iter().map(|death| self.death(death)).collect()
    }

    /// Says that the program knows of the deaths so far, and which these are. From now on they end no wait that cannot
    /// know whether it depends on a dead rank, such as [`Window::wait_until`](crate::Window::wait_until); later ones do. A
    /// call that needs a dead rank fails as before. `MPIX_Comm_failure_ack`.
    pub fn acknowledge_deaths(&self) -> Vec<Death> {
        self.inner.client.failures().acknowledge().into_iter().map(|death| self.death(death)).collect()
    }

    fn death(&self, death: longarm_client::Death) -> Death {
        let node = self.inner.client.layout().node_of(death.rank).0;
        Death { rank: death.rank.0, node, how: death.how }
    }

    /// What this rank has done so far with every peer it had to do with.
    pub fn traffic(&self) -> Vec<PeerTraffic> {
        self.inner.traffic()
    }

    /// Leaves the job: completes what was issued, meets the others and ends the threads of longarm. Collective. After
    /// deaths that do not end the job (`LONGARM_ON_FAILURE=continue`) the survivors meet.
    ///
    /// A world that is dropped without it, because the program returns an error or panics, ends the whole job: the
    /// other ranks may wait for this one, and would for ever. It is dropped when the last clone of the `World` is; windows,
    /// groups and the heap may live on, and so may handlers that hold these, but are of no more use. A child of a fork that
    /// drops its copy ends nothing.
    ///
    /// Where several hold the world by [`init_shared`](crate::init_shared), all but the last one to finalize it only meet the others.
    ///
    /// `ARMCI_Finalize`, `shmem_finalize`.
    ///
    /// # Errors
    /// What the last quiet and barrier said; the world is left all the same. [`CollectiveError::ForkedCopy`] in a child of a
    /// fork, which leaves nothing.
    pub fn finalize(self) -> Result<(), CollectiveError> {
        if self.inner.is_forked_copy() {
            return Err(CollectiveError::ForkedCopy);
        }
        if self.inner.holders.fetch_sub(1, Ordering::AcqRel) > 1 {
            return self.barrier_before_finalize();
        }
        let failures = self.inner.client.failures();
        // What was started and left to itself, others wait for.
        self.inner.workers.finish_all();
        let mut outcome = self.group.barrier_collective();
        if failures.survivors_go_on() && outcome.as_ref().is_err_and(|error| error.lost().is_some()) {
            // Those who live meet at the launcher, who lets them go together.
            outcome = self.quiet().map_err(CollectiveError::from);
        }
        self.inner.depart(|rendezvous| match &outcome {
            Err(error) if !failures.survivors_go_on() || error.lost().is_none() => {
                self.inner.client.segment().note_job_ends();
                rendezvous.abort(&format!("its last barrier failed: {error}"), 1);
            }
            _ => rendezvous.leave(&|| Counted { traffic: self.traffic(), network: self.inner.network_counts() }),
        });
        // By now this rank has heard of every death. What they have cost was said at the calls that lost it.
        let lost = outcome.as_ref().err().and_then(CollectiveError::lost);
        let is_death = lost.is_some_and(|lost| failures.survivors_go_on() && failures.of(lost.rank).is_some());
        if is_death { Ok(()) } else { outcome }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let inner = &self.0;
        if inner.finalized.load(Ordering::Acquire) {
            return;
        }
        if inner.is_forked_copy() {
            // The parent goes on with all that is shared. What a copy would do at its end, the parent would see.
            std::mem::forget(Arc::clone(inner));
            return;
        }
        // The others may wait for this rank, and would for ever: the job ends, and says why.
        let panicking = std::thread::panicking();
        inner.client.segment().note_job_ends();
        inner.depart(|rendezvous| match panicking {
            true => rendezvous.abort("it panicked", 101),
            false => rendezvous.abort("it left its world without finalize, perhaps by returning an error", 1),
        });
    }
}

impl std::ops::Deref for World {
    type Target = Group;

    fn deref(&self) -> &Group {
        self.group()
    }
}
