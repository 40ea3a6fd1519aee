//! A job on this thread: its nodes with their real servers, and what all of its parts may ask for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;

use longarm_client::{ClientWindow, Operation, WindowIdentity};
use longarm_netmod::flow::Costs;
use longarm_netmod::{DEVICE_WORD_BYTES, DeviceRmw};
use longarm_proto::{JobId, NodeId, Secret};
use longarm_server::door::{Door, DoorError, DoorRequest, Handed, door_name};
use longarm_server::{Engine, EngineOptions};
use longarm_shm::NodeSegment;
use longarm_shm::sync::{AtomicU64, Ordering};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::dice::Dice;
use crate::fault::{FAULTS, Fault};
use crate::hooks::SimMemory;
use crate::network::direct::{Done, Posted, Task, written};
use crate::network::{self, Event};
use crate::plan::{Plan, Shape};
use crate::routed::{self, Router};

/// What every connection of a simulated job proves.
pub const SECRET: Secret = Secret([0x5e; 32]);
/// Connections that have not proven themselves besides one of each rank, at most: few, so that strangers of a run hold them all.
const HALF_OPEN_MAX: usize = 2;
/// How long one may take to prove itself.
const HANDSHAKE_TIMEOUT_MS: u64 = 5_000;
/// How long a session without a connection is kept. Longer than a clock jumps.
const SESSION_KEEP_MS: u64 = 60_000;
/// Turns of an engine in which it takes in a visitor and answers him.
const DOOR_TURNS: usize = 4;

/// A node: its server, and what its ranks share.
pub struct Node {
    /// `None` once it was killed.
    pub engine: Option<Engine>,
    /// The shared segment.
    pub segment: Arc<NodeSegment>,
    door: Option<Door>,
    /// It does nothing before.
    pub paused_until_ns: u64,
    /// It is busy until then.
    pub busy_until_ns: u64,
    /// How much its clock has jumped.
    pub clock_offset_ms: u64,
    /// When its next turn is due.
    pub turn_at_ns: Option<u64>,
    /// Its router, where nodes have some.
    pub router: Option<Router>,
}

impl Node {
    /// Whether a descriptor tells its server of something.
    pub fn hears(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| is_readable(engine.descriptor()))
    }
}

/// Whether a descriptor tells of something.
pub fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut descriptors = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// What happened to the job so far, apart from its operations.
#[derive(Default)]
struct State {
    plan: Option<Plan>,
    id: Option<JobId>,
    /// A connection was broken or somebody is dead.
    broken: bool,
    pause_max_ns: u64,
    faults: [u64; FAULTS],
}

thread_local! {
    static NODES: RefCell<Vec<Node>> = const { RefCell::new(Vec::new()) };
    static JOB: RefCell<Option<Rc<Job>>> = const { RefCell::new(None) };
    static STATE: RefCell<State> = RefCell::new(State::default());
}

/// Every run of this process is a job of its own.
static JOBS: AtomicU64 = AtomicU64::new(0);

/// A number for the next job of this process, which no other job has.
pub fn next_job_id() -> JobId {
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    JobId(u64::from(std::process::id()) << 32 | number)
}

/// What the programs of all ranks share.
pub struct Job {
    /// Who stands where.
    pub shape: Rc<Shape>,
    /// What it is called.
    pub id: JobId,
    /// Which run of this thread it is.
    pub run: u64,
    windows: RefCell<HashMap<(u32, u64, u32), Arc<ClientWindow>>>,
}

impl Job {
    /// Makes the nodes of a job on this thread.
    pub fn begin(shape: Rc<Shape>, run: u64) -> Result<Rc<Job>, String> {
        let id = next_job_id();
        STATE.with(|state| *state.borrow_mut() = State { plan: Some(shape.plan), id: Some(id), ..State::default() });
        NODES.with(|nodes| nodes.borrow_mut().clear());
        for node in 0..shape.nodes() {
            let made = make_node(&shape, id, run, node)?;
            NODES.with(|nodes| nodes.borrow_mut().push(made));
        }
        let job = Rc::new(Job { shape, id, run, windows: RefCell::default() });
        JOB.with(|current| *current.borrow_mut() = Some(Rc::clone(&job)));
        Ok(job)
    }

    /// A window as the ranks of a node know it, made by the first one who asks.
    pub fn window(
        &self,
        node: u32,
        identity: WindowIdentity,
        make: impl FnOnce() -> ClientWindow,
    ) -> Arc<ClientWindow> {
        let key = (node, identity.window.0, identity.generation.0);
        Arc::clone(self.windows.borrow_mut().entry(key).or_insert_with(|| Arc::new(make())))
    }

    /// Nobody of a node will ask for it any more.
    pub fn forget_window(&self, node: u32, identity: WindowIdentity) {
        self.windows.borrow_mut().remove(&(node, identity.window.0, identity.generation.0));
    }
}

fn make_node(shape: &Shape, id: JobId, run: u64, node: u32) -> Result<Node, String> {
    let ranks = shape.ranks_of(node);
    let segment = NodeSegment::create(id, shape.plan.ranks, ranks.len() as u32).map_err(|error| error.to_string())?;
    let segment = Arc::new(segment);
    let name = door_name(id, NodeId(node));
    let (router, listener) = routed::listen(shape, (id, run), &SECRET, node)?;
    let engine = Engine::new(EngineOptions {
        job: id,
        secret: SECRET.clone(),
        node: NodeId(node),
        node_of_rank: shape.node_of_rank.clone(),
        segment: Arc::clone(&segment),
        listener: Some(listener),
        door: name.clone(),
        half_open_max: HALF_OPEN_MAX,
        handshake_timeout_ms: HANDSHAKE_TIMEOUT_MS,
        session_keep_ms: SESSION_KEEP_MS,
        encrypted: shape.encrypted,
        costs: Costs::TYPICAL,
        remote_memory: shape.direct.then(|| Arc::new(SimMemory::new(run, node)) as _),
    });
    let engine = Some(engine.map_err(|error| error.to_string())?);
    let door = Some(Door::connect(&name).map_err(|error| error.to_string())?);
    Ok(Node {
        engine,
        segment,
        door,
        paused_until_ns: 0,
        busy_until_ns: 0,
        clock_offset_ms: 0,
        turn_at_ns: None,
        router,
    })
}

/// Works on a node.
#[inline]
pub fn with_node<R>(node: u32, work: impl FnOnce(&mut Node) -> R) -> R {
    NODES.with(|nodes| work(&mut nodes.borrow_mut()[node as usize]))
}

/// Where the router of a node is reached.
pub fn address(node: u32) -> String {
    with_node(node, |node| node.router.as_ref().expect("it has a router").address.clone())
}

/// The device at a link's other end does what it is asked for first, whatever its node does meanwhile.
pub fn do_direct(link: u32) {
    if let Some(posted) = network::with(|network| network.arrive_direct(link)) {
        finish_direct(link, &posted);
    }
}

/// What devices had done already when links broke just now.
pub fn do_overdue() {
    while let Some((link, posted)) = network::with(network::Network::take_overdue) {
        finish_direct(link, &posted);
    }
}

fn finish_direct(link: u32, posted: &Posted) {
    let node = network::with(|network| network.node_of(link));
    let done = reached(node, posted);
    network::with(|network| network.done(link, posted, done));
}

fn reached(node: u32, posted: &Posted) -> Done {
    let (target, run) = (posted.target, posted.run);
    let is_published = network::with(|network| network.is_published(node, target));
    let key = (node, target.window.0, target.generation.0);
    let window = current().windows.borrow().get(&key).cloned();
    let part = window.as_ref().and_then(|window| window.part_here(Operation::Put, target.rank).ok().flatten());
    let Some(part) = part.filter(|_| is_published) else {
        // Memory that the node's ranks have not mapped yet is there soon.
        let answer = if is_published { None } else { Some(false) };
        return if matches!(posted.task, Task::Ask) { Done::Answer(answer) } else { Done::Refused };
    };
    let Ok(memory) = part.region_mut(run.offset, run.bytes) else { return Done::Refused };
    match &posted.task {
        Task::Ask => Done::Answer(Some(true)),
        Task::Put(_) => {
            let bytes = written(posted);
            memory.slice(0, bytes.len()).copy_from_slice(&bytes);
            Done::Well(None)
        }
        Task::Get => {
            let mut bytes = vec![0; memory.len()];
            memory.copy_to_slice(&mut bytes);
            Done::Well(Some(bytes))
        }
        Task::Update(rmw) => {
            // All threads of a run take turns, so the processors' updates of the word are whole too.
            let mut bytes = [0; DEVICE_WORD_BYTES as usize];
            memory.copy_to_slice(&mut bytes);
            let old = u64::from_ne_bytes(bytes);
            let new = match *rmw {
                DeviceRmw::FetchAdd(value) => old.wrapping_add(value),
                DeviceRmw::CompareSwap { expected, new } => {
                    if old == expected {
                        new
                    } else {
                        old
                    }
                }
            };
            memory.copy_from_slice(&new.to_ne_bytes());
            Done::Well(Some(bytes.to_vec()))
        }
    }
}

/// The job of this thread's run.
pub fn current() -> Rc<Job> {
    JOB.with(|job| job.borrow().clone()).expect("a run has begun")
}

/// All nodes go, their servers with them.
pub fn end_nodes() {
    JOB.with(|job| *job.borrow_mut() = None);
    let nodes = NODES.with(|nodes| std::mem::take(&mut *nodes.borrow_mut()));
    drop(nodes);
}

/// Asks at the door of a node, whose server answers at once.
pub fn ask_door(node: u32, request: &DoorRequest) -> Result<Option<Handed>, DoorError> {
    let answer = with_node(node, |node| {
        let unreachable = || DoorError::Refused { reason: "the server is gone".into() };
        let (Some(engine), Some(door)) = (&mut node.engine, &node.door) else { return Err(unreachable()) };
        door.ask(request)?;
        for _ in 0..DOOR_TURNS {
            engine.turn(network::now_ns() / 1_000_000 + node.clock_offset_ms, true);
        }
        door.answer()
    });
    // In its turns it may have seen other things, too.
    schedule_turn(node, 1);
    answer
}

/// A node's server does a turn, in so many nanoseconds or as soon as it can.
pub fn schedule_turn(node: u32, after_ns: u64) {
    let now_ns = network::now_ns();
    let due = with_node(node, |node| {
        let at_ns = (now_ns + after_ns).max(node.busy_until_ns).max(node.paused_until_ns);
        if node.engine.is_none() || node.turn_at_ns.is_some_and(|due_ns| due_ns <= at_ns) {
            return None;
        }
        node.turn_at_ns = Some(at_ns);
        Some(at_ns)
    });
    if let Some(at_ns) = due {
        network::with(|network| network.at(at_ns, Event::Turn(node)));
    }
}

/// What the job of this thread's run is called.
pub fn id() -> JobId {
    STATE.with(|state| state.borrow().id.expect("a run has begun"))
}

/// Whether an operation may fail because somebody is gone.
pub fn may_lose() -> bool {
    STATE.with(|state| state.borrow().broken)
}

/// A connection was broken, or somebody is dead.
pub fn note_broken() {
    STATE.with(|state| state.borrow_mut().broken = true);
}

/// Somebody does nothing for so long.
pub fn note_pause(pause_ns: u64) {
    STATE.with(|state| {
        let mut state = state.borrow_mut();
        state.pause_max_ns = state.pause_max_ns.max(pause_ns);
    });
}

/// How far apart two requests have to be sent, so that they surely arrive in this order.
pub fn slack_ns() -> u64 {
    if may_lose() {
        return u64::MAX / 2; // A request may be lost, or come when its connection is taken up again.
    }
    let delay_ns = network::with(|network| network.delay_max_ns);
    STATE.with(|state| delay_ns + state.borrow().pause_max_ns) + 30_000
}

/// Counts a fault.
pub fn count_fault(fault: Fault) {
    STATE.with(|state| state.borrow_mut().faults[fault as usize] += 1);
}

/// How often each kind of fault has happened.
pub fn faults() -> [u64; FAULTS] {
    STATE.with(|state| state.borrow().faults)
}

/// Whether a node has no memory for a window.
pub fn memory_fails(node: u32, number: u64, generation: u32) -> bool {
    let Some(plan) = STATE.with(|state| state.borrow().plan) else { return false };
    if number != 3 || !plan.faults.has(Fault::NoMemory) {
        return false;
    }
    let mut dice = Dice::of(plan.seed, 40 ^ u64::from(generation) << 8, node.into());
    dice.one_in(2 + u64::from(plan.ranks / 4))
}
