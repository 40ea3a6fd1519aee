//! A job of a user's program: its nodes with their real servers, and what is known of each rank and thread.

use std::sync::Arc;
use std::thread::JoinHandle;

use longarm::World;
use longarm::simulated::HearDeath;
use longarm_client::{Client, Layout, RestOn};
use longarm_netmod::flow::Costs;
use longarm_proto::{JobId, NodeId, Rank};
use longarm_server::door::{Door, DoorError, DoorRequest, Handed, door_name};
use longarm_server::{Engine, EngineOptions};
use longarm_shm::NodeSegment;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::baton::Baton;
use super::machine::Machine;
use crate::dice::Dice;
use crate::fault::{FAULTS, Fault};
use crate::fiber::Step;
use crate::job::{SECRET, is_readable, next_job_id};
use crate::network::{self, Event, Speed};
use crate::plan::Shape;
use crate::routed::{self, RankNetwork, Router};
use crate::trace::{What, Who};

/// How long a connection may take to prove itself.
const HANDSHAKE_TIMEOUT_MS: u64 = 5_000;
/// How long a session without a connection is kept. Longer than a clock jumps.
const SESSION_KEEP_MS: u64 = 60_000;
/// Connections that have not proven themselves besides one of each rank, at most.
const HALF_OPEN_MAX: usize = 64;
/// Turns of an engine in which it takes in a visitor and answers him.
const DOOR_TURNS: usize = 4;
/// After so many naps a thread naps for twice as long, up to this power of two.
const NAPS: u32 = 8;
const NAP_LOG2_MAX: u32 = 9;

/// A program as it is kept: it gives what its error says.
pub(super) type Program = Arc<dyn Fn(World) -> Result<(), String> + Send + Sync>;

/// A node's server.
pub(super) struct Node {
    /// `None` once it was killed.
    pub(super) engine: Option<Engine>,
    door_name: String,
    pub(super) paused_until_ns: u64,
    pub(super) busy_until_ns: u64,
    pub(super) clock_offset_ms: u64,
    pub(super) turn_at_ns: Option<u64>,
}

impl Node {
    /// Whether a descriptor tells its server of something.
    pub(super) fn hears(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| is_readable(engine.descriptor()))
    }
}

/// What is known of a rank.
#[derive(Default)]
pub(super) struct RankState {
    pub(super) client: Option<Arc<Client>>,
    /// Its way to routers, where nodes have them.
    pub(super) routed: Option<Arc<RankNetwork>>,
    /// The numbers of its threads that are not done.
    pub(super) threads: Vec<usize>,
    pub(super) on_death: Option<HearDeath>,
    pub(super) on_loss: Option<HearDeath>,
    pub(super) paused_until_ns: u64,
    pub(super) help_due: bool,
    pub(super) dead: bool,
    /// All were told so.
    pub(super) is_known_dead: bool,
    /// It has finalized its world.
    pub(super) has_left: bool,
    /// Its program has ended.
    pub(super) has_ended: bool,
}

/// What is known of a thread.
pub(super) struct Thread {
    pub(super) rank: u32,
    pub(super) baton: Arc<Baton>,
    /// On what it rests, and how often its eventcount had been notified when it lay down.
    pub(super) resting: Option<(RestOn, u32)>,
    /// The number of its present rest.
    pub(super) ticket: u32,
    /// How often in a row it has napped.
    naps: u32,
    /// The number of the call's wait in which it rested the last time.
    wait: u64,
    /// Until when it works at what it last did.
    pub(super) busy_until_ns: u64,
    pub(super) is_done: bool,
    pub(super) handle: Option<JoinHandle<()>>,
}

impl Thread {
    pub(super) fn new(rank: u32, baton: Arc<Baton>) -> Thread {
        let (resting, ticket, naps, wait, busy_until_ns, is_done, handle) = (None, 0, 0, 0, 0, false, None);
        Thread { rank, baton, resting, ticket, naps, wait, busy_until_ns, is_done, handle }
    }
}

/// How the job ended before its time.
#[derive(Clone)]
pub(super) enum Ended {
    Panicked(u32, String),
    Failed(u32, String),
    Aborted(u32, String),
}

/// What changes while it runs.
pub(super) struct State {
    /// What the ranks of each node share.
    pub(super) segments: Vec<Arc<NodeSegment>>,
    pub(super) ranks: Vec<RankState>,
    pub(super) threads: Vec<Thread>,
    pub(super) dice: Dice,
    /// For what takes random numbers of the system.
    pub(super) random: Dice,
    pub(super) ended: Option<Ended>,
    /// Those that faults killed, or that ended with their node's server, and of which all were told.
    pub(super) deaths: Vec<(u32, String)>,
    pub(super) faults: [u64; FAULTS],
    /// When somebody last went on.
    pub(super) useful_ns: u64,
    /// The threads of ranks that have left, and wait for the others.
    left: Vec<usize>,
    /// All ranks have left, or were dead and known to be: they were let go.
    pub(super) said_goodbye: bool,
    /// Ranks that live and whose programs have not ended.
    pub(super) running: u32,
    /// Worlds that were made.
    pub(super) begun: u32,
    /// All is over, and everything fails for who is still there.
    pub(super) is_over: bool,
}

/// See the module.
pub(super) struct Job {
    pub(super) shape: Shape,
    /// Of rank 0; those of all ranks share what they know.
    pub(super) layout: Layout,
    /// What times follow from. `None`: dice.
    pub(super) machine: Option<Machine>,
    pub(super) id: JobId,
    pub(super) run: u64,
    pub(super) network: network::Shared,
    pub(super) nodes: Vec<Mutex<Node>>,
    /// The routers of the nodes. Empty: nodes have none.
    pub(super) routers: Vec<Router>,
    /// Where routers are reached.
    pub(super) addresses: Arc<[String]>,
    pub(super) state: Mutex<State>,
    /// Where the scheduler waits.
    pub(super) scheduler: Baton,
}

impl Job {
    /// Makes the nodes.
    pub(super) fn begin(shape: Shape, machine: Option<Machine>) -> Result<Arc<Job>, String> {
        // Each node keeps a few descriptors.
        longarm::simulated::raise_descriptor_limit();
        let (seed, ranks, nodes) = (shape.plan.seed, shape.plan.ranks, shape.nodes());
        let run = network::begin(seed, nodes, machine.map_or_else(Speed::default, |machine| machine.speed()));
        let id = next_job_id();
        let (mut segments, mut made, mut routers) = (Vec::new(), Vec::new(), Vec::new());
        for node in 0..nodes {
            let (segment, node, router) = make_node(&shape, id, run, node)?;
            segments.push(segment);
            made.push(Mutex::new(node));
            routers.extend(router);
        }
        let addresses = routers.iter().map(|router| router.address.clone()).collect();
        let state = State {
            segments,
            ranks: (0..ranks).map(|_| RankState::default()).collect(),
            threads: Vec::new(),
            dice: Dice::of(seed, 70, 0),
            random: Dice::of(seed, 73, 0),
            ended: None,
            deaths: Vec::new(),
            faults: [0; FAULTS],
            useful_ns: 0,
            left: Vec::new(),
            said_goodbye: false,
            running: ranks,
            begun: 0,
            is_over: false,
        };
        let (network, state) = (network::share(), Mutex::new(state));
        let layout = Layout::new(Rank(0), &shape.node_of_rank);
        let (nodes, scheduler) = (made, Baton::default());
        Ok(Arc::new(Job { shape, layout, machine, id, run, network, nodes, routers, addresses, state, scheduler }))
    }

    /// Whether survivors go on after a death.
    pub(super) fn survivors_go_on(&self) -> bool {
        let faults = self.shape.plan.faults;
        faults.has(Fault::KillRank) || faults.has(Fault::KillServer)
    }

    /// Whether a rank is dead, or will be ended because the host of its node's server is
    /// (`docs/src/decisions/0013-a-node-dies-with-its-server.md`).
    pub(super) fn is_doomed(&self, state: &State, rank: u32) -> bool {
        let host = self.shape.host_of(self.shape.node_of(rank));
        state.ranks[rank as usize].dead || state.ranks[host as usize].dead && !state.said_goodbye
    }

    /// Asks at the door of a node, whose server answers at once.
    pub(super) fn ask_door(&self, node: u32, request: &DoorRequest) -> Result<Option<Handed>, DoorError> {
        let lacks_memory = self.shape.plan.faults.has(Fault::NoMemory)
            && matches!(request, DoorRequest::Create { .. })
            && self.state.lock().dice.one_in(8);
        if lacks_memory {
            self.state.lock().faults[Fault::NoMemory as usize] += 1;
            return Err(DoorError::Refused { reason: "no memory, by a simulated fault".into() });
        }
        let answer = {
            let mut node = self.nodes[node as usize].lock();
            let Node { engine, door_name, clock_offset_ms, .. } = &mut *node;
            let Some(engine) = engine else {
                return Err(Errno::CONNRESET.into());
            };
            // Connected for each request: the system may not allow thousands of open doors.
            let door = Door::connect(door_name)?;
            door.ask(request)?;
            for _ in 0..DOOR_TURNS {
                engine.turn(network::now_ns() / 1_000_000 + *clock_offset_ms, true);
            }
            door.answer()
        };
        // In its turns it may have seen other things, too.
        self.schedule_turn(node, 1);
        answer
    }

    /// A node's server does a turn, in so many nanoseconds or as soon as it can.
    pub(super) fn schedule_turn(&self, node: u32, after_ns: u64) {
        let now_ns = network::now_ns();
        let mut state = self.nodes[node as usize].lock();
        let at_ns = (now_ns + after_ns).max(state.busy_until_ns).max(state.paused_until_ns);
        if state.engine.is_none() || state.turn_at_ns.is_some_and(|due_ns| due_ns <= at_ns) {
            return;
        }
        state.turn_at_ns = Some(at_ns);
        drop(state);
        network::with(|network| network.at(at_ns, Event::Turn(node)));
    }

    /// The calling thread of a rank has nothing to do: others run, until its rest is over.
    pub(super) fn pause(&self, thread: usize, step: Step) {
        let baton = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let mine = &mut state.threads[thread];
            let (rank, ticket) = (mine.rank, mine.ticket);
            match step {
                Step::Rest(on, timeout) => {
                    mine.naps = 0;
                    let wait = longarm_client::waits_begun();
                    if std::mem::replace(&mut mine.wait, wait) != wait {
                        state.useful_ns = network::now_ns();
                    }
                    mine.resting = Some((on, self.notified(&state.segments, rank, on)));
                    network::with(|network| {
                        network.note(What::Rest, Who::Rank(rank), on as u64);
                        if let Some(timeout) = timeout {
                            network.after(timeout.as_nanos() as u64, Event::Wake(thread as u32, ticket));
                        }
                    });
                }
                Step::Compute(pause_ns) => {
                    network::with(|network| network.after(pause_ns, Event::Wake(thread as u32, ticket)));
                }
                Step::Done => unreachable!("a thread that is done does not come back"),
            }
            Arc::clone(&mine.baton)
        };
        self.scheduler.give();
        baton.wait();
    }

    /// The calling thread looks again in a moment, and later the longer it has looked in vain.
    pub(super) fn nap(&self, thread: usize) {
        let pause_ns = {
            let mut state = self.state.lock();
            let naps = &mut state.threads[thread].naps;
            *naps += 1;
            let log2 = (*naps / NAPS).min(NAP_LOG2_MAX);
            state.dice.between(500, 3_000) << log2
        };
        self.pause(thread, Step::Compute(pause_ns));
    }

    /// The calling thread of a rank that has left waits until all have, or are dead.
    pub(super) fn await_others(&self, thread: usize, rank: u32) {
        {
            let mut state = self.state.lock();
            state.ranks[rank as usize].has_left = true;
            state.left.push(thread);
            if state.is_over {
                return;
            }
        }
        self.let_go_if_all_left();
        let baton = Arc::clone(&self.state.lock().threads[thread].baton);
        self.scheduler.give();
        baton.wait();
    }

    /// Call when a rank has left, or all have heard that it is dead: the last one lets all go.
    pub(super) fn let_go_if_all_left(&self) {
        let mut state = self.state.lock();
        if !state.ranks.iter().all(|rank| rank.has_left || rank.is_known_dead) {
            return;
        }
        state.said_goodbye = true;
        for thread in std::mem::take(&mut state.left) {
            let (after_ns, ticket) = (state.dice.between(1_000, 30_000), state.threads[thread].ticket);
            network::with(|network| network.after(after_ns, Event::Wake(thread as u32, ticket)));
        }
    }

    /// A thread does not come back.
    pub(super) fn be_done(&self, thread: usize) {
        let mut state = self.state.lock();
        state.threads[thread].is_done = true;
        let rank = state.threads[thread].rank;
        state.ranks[rank as usize].threads.retain(|other| *other != thread);
    }

    /// How often what a rank rests on was notified.
    pub(super) fn notified(&self, segments: &[Arc<NodeSegment>], rank: u32, on: RestOn) -> u32 {
        let node = self.shape.node_of(rank);
        let (segment, local) = (&segments[node as usize], rank - self.shape.ranks_of(node).start);
        match on {
            RestOn::Windows => segment.window_eventcount(local).sequence(),
            RestOn::Links | RestOn::Mail => segment.eventcount(local).sequence(),
        }
    }

    /// Everything goes, also where a thread of a killed rank still holds this.
    pub(super) fn end(&self) {
        let (ranks, segments) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.ranks), std::mem::take(&mut state.segments))
        };
        drop((ranks, segments));
        network::forget();
        for node in &self.nodes {
            let engine = node.lock().engine.take();
            drop(engine);
        }
    }
}

fn make_node(
    shape: &Shape,
    id: JobId,
    run: u64,
    node: u32,
) -> Result<(Arc<NodeSegment>, Node, Option<Router>), String> {
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
        remote_memory: None,
    });
    let engine = Some(engine.map_err(|error| error.to_string())?);
    let node =
        Node { engine, door_name: name, paused_until_ns: 0, busy_until_ns: 0, clock_offset_ms: 0, turn_at_ns: None };
    Ok((segment, node, router))
}
