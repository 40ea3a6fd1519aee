//! This process's place on its node: the shared segment, the door, and the server if it is hosted here.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longarm_client::{Assist, AssistTurn, Layout, Time, WindowIdentity};
use longarm_control::messages::NodeCard;
use longarm_netmod::Netmod;
use longarm_netmod::flow::Costs;
use longarm_proto::{Generation, JobId, Rank, Secret, WindowId};
use longarm_server::door::{self, Door, DoorError, DoorRequest, Handed, door_name};
use longarm_server::{Assistant, CrewOptions, Engine, EngineOptions, Server};
use longarm_shm::NodeSegment;
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit};

use super::rendezvous::Rendezvous;
use crate::config::Config;
use crate::error::InitError;
use crate::stage::Stage;

/// How much longer than a rank may take to notice that its connection is broken, and to call again, the server keeps its place in the queue
/// of a mutex.
const SESSION_SPARE_MS: u64 = 5000;

/// How long the threads of the server's crew look for work at most, however long ranks look.
const CREW_SPIN_US_MAX: u64 = 100;

/// What a node is made of.
pub(crate) struct NodeOptions<'a> {
    pub(crate) job: JobId,
    pub(crate) secret: Secret,
    pub(crate) layout: &'a Layout,
    pub(crate) config: &'a Config,
    /// What the server listens on.
    pub(crate) netmod: &'a dyn Netmod,
    pub(crate) rendezvous: Option<&'a Arc<dyn Rendezvous>>,
    /// The processors of the job: the server's thread may use all of them, whatever this rank is bound to.
    pub(crate) processors: &'a [u32],
}

/// See the module.
pub(crate) struct Node {
    pub(crate) segment: Arc<NodeSegment>,
    doorway: Doorway,
    hosted: Option<Hosted>,
}

/// How this process asks the node's server for memory.
enum Doorway {
    Door {
        name: String,
        door: Mutex<Option<Door>>,
        job: JobId,
        /// The process that hosts the server.
        server_pid: u32,
    },
    Simulated(Arc<dyn Stage>),
}

struct Hosted {
    server: Arc<Server>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Node {
    /// Hosts the node's server if this rank is its lowest, else finds it.
    pub(crate) fn join(options: &NodeOptions<'_>) -> Result<Node, InitError> {
        let layout = options.layout;
        if layout.server_host(layout.my_node()) == layout.me() {
            let (node, card) = host(options)?;
            options.rendezvous.map_or(Ok(()), |rendezvous| rendezvous.publish(Some(card)))?;
            return Ok(node);
        }
        let rendezvous = options.rendezvous.expect("a world of one hosts its own node");
        rendezvous.publish(None)?;
        let node = layout.my_node().0;
        visit(options, &rendezvous.card(node)?).map_err(|error| match error {
            InitError::Door(error) if error.is_hung_up() => match rendezvous.death_of_server(node) {
                Some((rank, how)) => InitError::Died { rank, how },
                None => error.into(),
            },
            error => error,
        })
    }

    /// Asks the node's server: itself if it is hosted here and at rest, else at its door.
    pub(crate) fn ask(&self, request: &DoorRequest) -> Result<Option<Handed>, DoorError> {
        if let Some(answer) = self.hosted.as_ref().and_then(|hosted| hosted.server.ask(request)) {
            return answer;
        }
        let (name, door) = match &self.doorway {
            Doorway::Door { name, door, .. } => (name, door),
            Doorway::Simulated(stage) => return stage.ask_door(request),
        };
        if let Some(hosted) = &self.hosted {
            // Its thread has to hear the door, whatever the caller has expected before.
            hosted.server.suppress_wakeups(false);
        }
        let mut door = door.lock();
        if door.is_none() {
            *door = Some(Door::connect(name)?);
        }
        door.as_ref().expect("connected just now").call(request)
    }

    /// Serves a window before its ranks have met for it: [`Server::serve_ahead`]. `None` also where the server is not hosted here.
    pub(crate) fn serve_ahead(
        &self,
        WindowIdentity { window, generation, key }: WindowIdentity,
        ranks: &[Rank],
        room: u64,
    ) -> Option<(WindowId, Generation)> {
        self.hosted.as_ref()?.server.serve_ahead((window, generation, key), ranks, room)
    }

    /// The node of a simulated rank.
    pub(crate) fn simulated(segment: Arc<NodeSegment>, stage: Arc<dyn Stage>) -> Node {
        Node { segment, doorway: Doorway::Simulated(stage), hosted: None }
    }

    /// The memory that was made for a window, which this node's server has under this number, without asking it. `None`: ask.
    pub(crate) fn window_of_server(&self, number: RawFd, made_for: (WindowId, Generation)) -> Option<OwnedFd> {
        match &self.doorway {
            Doorway::Door { job, server_pid, .. } => door::window_of_server(*server_pid, number, *job, made_for),
            Doorway::Simulated(_) => None,
        }
    }

    /// The server, if it is hosted here, for threads that wait.
    pub(crate) fn assist(&self) -> Option<Arc<dyn Assist>> {
        let server = Arc::clone(&self.hosted.as_ref()?.server);
        Some(Arc::new(ServerHere(server)))
    }

    /// What tells the server, if it is hosted here, that a rank died.
    pub(crate) fn death_listener(&self) -> impl Fn(Rank) + Send + use<> {
        let server = self.hosted.as_ref().map(|hosted| Arc::clone(&hosted.server));
        move |rank| {
            if let Some(server) = &server {
                server.note_death(rank);
            }
        }
    }

    /// Ends the server's thread, if it is hosted here.
    pub(crate) fn stop(&self) {
        let Some(hosted) = &self.hosted else { return };
        hosted.server.stop();
        if let Some(thread) = hosted.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the server's thread has panicked");
        }
    }
}

/// The server keeps a descriptor for every window of its node, and one for every connection. Their usual limit is low and
/// meant to be raised by who needs more.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current.is_some() && limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, ..limit };
        if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
            tracing::debug!(%error, "the limit on open files stays as it is");
        }
    }
}

fn host(options: &NodeOptions<'_>) -> Result<(Node, NodeCard), InitError> {
    raise_descriptor_limit();
    let layout = options.layout;
    let node = layout.my_node();
    let ranks = layout.ranks_of(node);
    let segment = Arc::new(NodeSegment::create(options.job, layout.rank_count(), ranks.len() as u32)?);
    // Ranks of this node connect too: a mutex that others wait for is the server's business.
    let listener =
        if layout.rank_count() > 1 { Some(options.netmod.listen().map_err(InitError::Listen)?) } else { None };
    let address = listener.as_ref().map_or_else(String::new, |listener| listener.address().to_owned());
    let door = door_name(options.job, node);
    let mut engine = Engine::new(EngineOptions {
        job: options.job,
        secret: options.secret.clone(),
        node,
        node_of_rank: (0..layout.rank_count()).map(|rank| layout.node_of(Rank(rank))).collect(),
        segment: Arc::clone(&segment),
        listener,
        door: door.clone(),
        half_open_max: options.config.half_open_max as usize,
        handshake_timeout_ms: options.config.handshake_timeout_ms,
        session_keep_ms: options.config.silence_ms + options.config.reconnect_s * 1000 + SESSION_SPARE_MS,
        encrypted: options.config.encrypt,
        costs: costs(),
        remote_memory: options.netmod.remote_memory(),
    })?;
    engine.employ(crew(options));
    // A server that may have more threads has a processor that no rank wants.
    let (spin_us, has_processor) = (options.config.spin_us, options.config.server_threads > 1);
    let spare_spin_us = if has_processor { spin_us } else { 0 };
    let server = Server::new(engine, Duration::from_micros(spin_us), Duration::from_micros(spare_spin_us))?;
    let server = Arc::new(server);
    let thread = start_thread(&server, options.processors)?;
    let card = NodeCard {
        node: node.0,
        server_pid: std::process::id(),
        address,
        host: crate::topology::host_name(),
        door: door.clone(),
    };
    let hosted = Some(Hosted { server, thread: Mutex::new(Some(thread)) });
    let (job, server_pid) = (options.job, card.server_pid);
    let doorway = Doorway::Door { name: door, door: Mutex::new(None), job, server_pid };
    Ok((Node { segment, doorway, hosted }, card))
}

/// The threads beside the one that drives the engine.
fn crew(options: &NodeOptions<'_>) -> CrewOptions {
    let config = options.config;
    let processors = options.processors.to_vec();
    CrewOptions {
        threads: config.server_threads as usize - 1,
        spin: Duration::from_micros(config.spin_us.min(CREW_SPIN_US_MAX)),
        // As the server's own thread.
        prepare: Arc::new(move || longarm_client::use_processors(&processors)),
    }
}

fn start_thread(server: &Arc<Server>, processors: &[u32]) -> Result<std::thread::JoinHandle<()>, InitError> {
    let server = Arc::clone(server);
    let processors = processors.to_vec();
    std::thread::Builder::new()
        .name("longarm-server".into())
        .spawn(move || {
            // A rank may be bound to one processor; its server serves the whole node.
            longarm_client::use_processors(&processors);
            server.run();
        })
        .map_err(InitError::Thread)
}

fn visit(options: &NodeOptions<'_>, card: &NodeCard) -> Result<Node, InitError> {
    let door = Door::connect(&card.door)?;
    let handed = door.call(&DoorRequest::NodeSegment { job: options.job.0 })?.ok_or(DoorError::Garbled)?;
    let segment = Arc::new(NodeSegment::attach(handed.file)?);
    // Before this process notifies anybody.
    segment.set_ringer(door.call(&DoorRequest::Ringer)?.ok_or(DoorError::Garbled)?.file);
    let (name, door) = (card.door.clone(), Mutex::new(Some(door)));
    let doorway = Doorway::Door { name, door, job: options.job, server_pid: card.server_pid };
    Ok(Node { segment, doorway, hosted: None })
}

struct ServerHere(Arc<Server>);

impl Assist for ServerHere {
    fn take(&self) -> Option<Box<dyn AssistTurn + '_>> {
        let assistant = self.0.assist()?;
        Some(Box::new(Turn(assistant)))
    }

    fn rest(&self, resting: bool) {
        self.0.rest(resting);
    }

    fn suppress_wakeups(&self, suppressed: bool) {
        self.0.suppress_wakeups(suppressed);
    }

    fn moves(&self) -> u32 {
        self.0.moves()
    }
}

struct Turn<'a>(Assistant<'a>);

impl AssistTurn for Turn<'_> {
    fn turn(&mut self) -> bool {
        self.0.turn()
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> bool {
        self.0.sleep(timeout)
    }

    fn turn_after_sleep(&mut self) -> bool {
        self.0.turn_after_sleep()
    }
}

/// The clock of a rank.
pub(crate) struct Clock(longarm_netmod::CoarseClock);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(longarm_netmod::CoarseClock::start())
    }
}

impl Time for Clock {
    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }
}

/// What packing and sending cost here, measured once.
pub(crate) fn costs() -> Costs {
    static COSTS: OnceLock<Costs> = OnceLock::new();
    *COSTS.get_or_init(Costs::measure)
}
