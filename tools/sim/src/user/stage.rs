//! What a simulated rank is given in place of the system: its time, its launcher, its threads, its client.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use longarm::World;
use longarm::config::Config;
use longarm::simulated::{self, HearDeath, RankEnds, SimulatedRank, Stage};
use longarm_client::{Client, ClientOptions, EndpointOptions, Failures, RestOn, Time};
use longarm_netmod::flow::Costs;
use longarm_netmod::{Capabilities, Link, LinkError, Listener, Netmod};
use longarm_proto::{Identity, Rank};
use longarm_server::door::{DoorError, DoorRequest, Handed};
use longarm_shm::sync::AtomicU64;

use super::baton::Baton;
use super::job::{Ended, Job, Program, Thread};
use super::place::{self, Place, place};
use crate::dice::Dice;
use crate::fiber::Step;
use crate::hooks::SimDial;
use crate::job::SECRET;
use crate::network::{self, Event};
use crate::routed::RankNetwork;

/// How long a first connection may take.
const CONNECT_MS: u64 = 5_000;
/// How long a connection that broke may take to be made anew.
const RECONNECT_MS: u64 = 5_000;
/// How long a server may be silent before its connection counts as broken.
const SILENCE_MS: u64 = 200;
/// Others run before one in so many accesses to memory of the node.
const TOUCHES: u64 = 4;
/// For one in so many of these for long.
const LONG_TOUCHES: u64 = 32;

/// A rank, as its runtime sees the simulator.
pub(super) struct RankStage {
    job: Arc<Job>,
    rank: u32,
}

impl Stage for RankStage {
    fn start_thread(&self, _: &'static str, work: Box<dyn FnOnce() + Send>) {
        // What it says if it panics was told already, by whoever catches it first.
        let started =
            start_thread(&self.job, self.rank, "a thread of ", move || drop(catch_unwind(AssertUnwindSafe(work))));
        if let Err(reason) = started {
            self.abort(&format!("no thread can be started: {reason}"), 1);
        }
    }

    fn random(&self, bytes: &mut [u8]) {
        let random = &mut self.job.state.lock().random;
        bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.roll().to_le_bytes()[..chunk.len()]));
    }

    fn nap(&self) {
        let Place { job, thread } = place();
        match thread {
            Some(thread) => job.nap(thread),
            None => unreachable!("the scheduler waits for nobody"),
        }
    }

    fn ask_door(&self, request: &DoorRequest) -> Result<Option<Handed>, DoorError> {
        self.job.ask_door(self.job.shape.node_of(self.rank), request)
    }

    fn death_of_server(&self, node: u32) -> Option<(u32, String)> {
        let host = self.job.shape.host_of(node);
        self.job.state.lock().ranks[host as usize].dead.then(|| (host, KILLED.to_owned()))
    }

    fn watch_deaths(&self, on_death: HearDeath) {
        let before = {
            let mut state = self.job.state.lock();
            state.ranks[self.rank as usize].on_death = Some(Arc::clone(&on_death));
            state.deaths.clone()
        };
        before.iter().for_each(|(rank, how)| on_death(*rank, how));
    }

    fn watch_losses(&self, on_loss: HearDeath) {
        self.job.state.lock().ranks[self.rank as usize].on_loss = Some(on_loss);
    }

    fn tell_loss(&self, node: u32, how: &str) {
        self.nap(); // The launcher takes a moment.
        let told: Vec<HearDeath> = {
            let state = self.job.state.lock();
            let ranks = self.job.shape.ranks_of(node).map(|rank| &state.ranks[rank as usize]);
            ranks.filter(|rank| !rank.dead).filter_map(|rank| rank.on_loss.clone()).collect()
        };
        told.iter().for_each(|on_loss| on_loss(self.rank, how));
    }

    fn leave(&self) {
        if let Some(thread) = place().thread {
            self.job.await_others(thread, self.rank);
        }
    }

    fn abort(&self, reason: &str, _: i32) {
        let mut state = self.job.state.lock();
        if !self.job.is_doomed(&state, self.rank) && !state.is_over {
            state.ended.get_or_insert_with(|| Ended::Aborted(self.rank, reason.to_owned()));
        }
    }
}

/// How ranks die that faults kill.
pub(super) const KILLED: &str = "was killed by a simulated fault";

/// The time of a simulated rank.
struct RankTime;

impl Time for RankTime {
    fn now_ms(&self) -> u64 {
        network::now_ns() / 1_000_000
    }

    fn rest(&self, on: RestOn, timeout: Option<Duration>) -> bool {
        let Place { job, thread } = place();
        // The scheduler looks after what is in progress, and waits for nothing.
        if let Some(thread) = thread {
            job.pause(thread, Step::Rest(on, timeout));
        }
        true
    }

    fn touch(&self) {
        let Place { job, thread } = place();
        let Some(thread) = thread.filter(|_| job.machine.is_none()) else { return };
        let pause_ns = {
            let dice = &mut job.state.lock().dice;
            let most_ns = if dice.one_in(LONG_TOUCHES) { 50_000 } else { 1_500 };
            dice.one_in(TOUCHES).then(|| dice.between(50, most_ns))
        };
        if let Some(pause_ns) = pause_ns {
            job.pause(thread, Step::Compute(pause_ns));
        }
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

/// What the world of a simulated rank is told of its network: the links are its client's.
struct SimulatedNetwork;

impl Netmod for SimulatedNetwork {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        Err(LinkError::BadAddress)
    }

    fn connect(&self, _: &str) -> Result<Box<dyn Link>, LinkError> {
        Err(LinkError::BadAddress)
    }
}

/// Starts the thread of a rank's program, which runs when the scheduler says so.
pub(super) fn start_program(job: &Arc<Job>, rank: u32, program: &Program) -> Result<(), String> {
    let (its_job, program) = (Arc::clone(job), Arc::clone(program));
    start_thread(job, rank, "", move || live(&its_job, rank, &program))
}

fn start_thread(job: &Arc<Job>, rank: u32, of: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let its_baton = Arc::new(Baton::default());
    let number = {
        let mut state = job.state.lock();
        let baton = Arc::clone(&its_baton);
        state.threads.push(Thread::new(rank, baton));
        let number = state.threads.len() - 1;
        state.ranks[rank as usize].threads.push(number);
        number
    };
    let its_job = Arc::clone(job);
    let body = move || {
        place::enter(Place { job: Arc::clone(&its_job), thread: Some(number) });
        simulated::enter(Arc::new(RankStage { job: Arc::clone(&its_job), rank }));
        its_baton.wait();
        work();
        simulated::leave();
        place::leave();
        its_job.be_done(number);
        its_job.scheduler.give();
    };
    let handle = std::thread::Builder::new().name(format!("{of}rank {rank}")).spawn(body);
    let mut state = job.state.lock();
    match handle {
        Ok(handle) => state.threads[number].handle = Some(handle),
        Err(error) => {
            drop(state);
            job.be_done(number);
            return Err(error.to_string());
        }
    }
    let after_ns = state.dice.below(5_000);
    drop(state);
    network::with(|network| network.after(after_ns, Event::Wake(number as u32, 0)));
    Ok(())
}

/// The whole life of a rank.
fn live(job: &Arc<Job>, rank: u32, program: &Program) {
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let world = begin(job, rank)?;
        job.state.lock().begun += 1;
        program(world)
    }));
    let ended = match lived {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(Ended::Failed(rank, error)),
        Err(panic) if panic.is::<RankEnds>() => None,
        Err(panic) => Some(Ended::Panicked(rank, text_of(&*panic))),
    };
    let mut state = job.state.lock();
    if job.is_doomed(&state, rank) {
        return; // What it sees is no news: it is dead, or counts as that as soon as all hear of it.
    }
    state.ranks[rank as usize].has_ended = true;
    if state.is_over {
        return;
    }
    state.running -= 1;
    // It has ended the job when its world went, and this is why.
    let is_mine = matches!(&state.ended, Some(Ended::Aborted(aborted, _)) if *aborted == rank);
    if ended.is_some() && (state.ended.is_none() || is_mine) {
        state.ended = ended;
    }
}

fn begin(job: &Arc<Job>, rank: u32) -> Result<World, String> {
    let client = make_client(job, rank)?;
    job.state.lock().ranks[rank as usize].client = Some(Arc::clone(&client));
    let stage: Arc<dyn Stage> = Arc::new(RankStage { job: Arc::clone(job), rank });
    let mut config = Config::default();
    config.spin_us = 0;
    let (netmod, routed) = (Arc::new(SimulatedNetwork), job.shape.plan.routed);
    let world = simulated::world(SimulatedRank { stage, client, config, secret: SECRET.clone(), netmod, routed });
    world.map_err(|error| error.to_string())
}

fn make_client(job: &Arc<Job>, rank: u32) -> Result<Arc<Client>, String> {
    let layout = job.layout.of(Rank(rank));
    let mut dice = Dice::of(job.shape.plan.seed, 71, rank.into());
    let routed = way_to_routers(job, rank)?;
    job.state.lock().ranks[rank as usize].routed.clone_from(&routed);
    let addresses = Arc::clone(&job.addresses);
    let dial = SimDial {
        run: job.run,
        secret: SECRET.clone(),
        encrypted: job.shape.encrypted,
        identity: Identity { job: job.id, rank: Rank(rank), node: layout.my_node() },
        dice: AtomicU64::new(dice.roll()),
        by_any_way: routed.map(|routed| routed.by_any_way(move |node| addresses[node as usize].clone())),
    };
    let (eager_bytes, endpoint) = options(job, rank, &mut dice);
    let client = Client::new(ClientOptions {
        segment: Arc::clone(&job.state.lock().segments[layout.my_node().0 as usize]),
        failures: Failures::new(layout.rank_count(), job.survivors_go_on()),
        layout,
        dial: Arc::new(dial),
        assist: None,
        spin_us: 0,
        eager_bytes,
        endpoint,
        processors: Vec::new(),
        ranks_on_machine: 0,
        time: Arc::new(RankTime),
    });
    client.map_err(|error| error.to_string())
}

fn way_to_routers(job: &Job, rank: u32) -> Result<Option<Arc<RankNetwork>>, String> {
    let of_node = job.routers.get(job.shape.node_of(rank) as usize);
    of_node.map(|router| RankNetwork::new(&job.shape, (job.id, job.run), &SECRET, rank, router)).transpose()
}

/// Up to where bytes are copied, and what connections are like: as usual on a machine, else as dice have it.
fn options(job: &Job, rank: u32, dice: &mut Dice) -> (usize, EndpointOptions) {
    let caller = Rank(rank);
    if job.machine.is_some() {
        let usual = Config::default();
        let endpoint = EndpointOptions {
            caller,
            buffered_bytes_max: usual.send_ring_bytes as usize,
            connect_ms: usual.connect_timeout_s * 1000,
            reconnect_ms: usual.reconnect_s * 1000,
            silence_ms: usual.silence_ms,
            costs: Costs::TYPICAL,
        };
        return (usual.copied_bytes_max(), endpoint);
    }
    let eager_bytes = 1 << dice.between(6, 13);
    let endpoint = EndpointOptions {
        caller,
        buffered_bytes_max: 1 << dice.between(10, 16),
        connect_ms: CONNECT_MS,
        reconnect_ms: RECONNECT_MS,
        silence_ms: SILENCE_MS,
        costs: Costs { call_ns: dice.between(1, 10_000), pack_kib_ns: dice.between(1, 1000) },
    };
    (eager_bytes, endpoint)
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a text".into())
}
