//! Who runs when: the one loop of a run. It takes the next event off the heap, and lets whoever it concerns go on: a thread of a rank, a
//! node's server, or the fault plan.

mod hearing;

use std::rc::Rc;
use std::sync::Arc;

use longarm::simulated::HearDeath;
use longarm_client::{Client, RestOn, Whom};
use longarm_netmod::ROUTER_TICK_MS;
use longarm_proto::Rank;

use super::job::{Job, Program};
use super::machine::Processors;
use super::outcome::Seen;
use super::stage::{KILLED, start_program};
use crate::announced;
use crate::dice::Dice;
use crate::fault::Fault;
use crate::faults::{Faults, Pace, Victims};
use crate::network::{self, Event, Owner};
use crate::plan::Shape;
use crate::trace::{What, Who};

/// Simulated time in which nothing but sleeps has ended: nobody will ever go on. Longer than a connection may take to be made anew.
const STUCK_NS: u64 = 12_000_000_000;
/// Events after which a run is taken for one that never ends: so many, and so many more for each rank.
const EVENTS_MAX: u64 = 5_000_000;
const EVENTS_PER_RANK_MAX: u64 = 50_000;
/// How often what was sent and not acknowledged is looked after, as the helper thread does it.
const TEND_NS: u64 = 40_000_000;
/// How often a server to which there is no connection is called, while its rank does something else.
const CALL_NS: u64 = 1_000_000;
/// Simulated time for what is still to be done when all programs have ended.
const REST_NS: u64 = 1_000_000_000;
/// How often a thread may come back after everything has ended for it. One that still does not end is left where it is.
const ROUNDS_MAX: u32 = 10_000;
/// And how often before its client is closed.
const ROUNDS_BEFORE_CLOSE: u32 = 100;
/// Faults that happen although no rank has gone on meanwhile.
const FAULTS_AT_ONCE: u32 = 3;
/// Ranks that the report of a failure names.
const SHOWN: usize = 64;

/// See the module.
pub(super) struct Scheduler {
    job: Arc<Job>,
    dice: Dice,
    processors: Processors,
    faults: Option<Faults>,
    has_faults: bool,
    /// When the last one happened, and how many did since a rank last went on.
    fault_ns: u64,
    faults_since_useful: u32,
}

impl Scheduler {
    pub(super) fn new(job: Arc<Job>) -> Scheduler {
        let dice = Dice::of(job.shape.plan.seed, 72, 0);
        let processors = Processors::of(job.machine);
        Scheduler { job, dice, processors, faults: None, has_faults: false, fault_ns: 0, faults_since_useful: 0 }
    }

    /// Starts the threads of the programs.
    pub(super) fn start(&mut self, program: &Program) -> Result<(), Seen> {
        for rank in 0..self.job.shape.plan.ranks {
            start_program(&self.job, rank, program).map_err(|reason| Seen::NotBegun { reason })?;
            network::with(|network| network.after(self.dice.below(TEND_NS), Event::Tend(rank)));
        }
        Ok(())
    }

    /// Runs until all programs have ended, or one has failed.
    pub(super) fn run(&mut self) -> Result<(), Seen> {
        let events_max = EVENTS_MAX + EVENTS_PER_RANK_MAX * u64::from(self.job.shape.plan.ranks);
        loop {
            let Some(event) = network::with(network::Network::advance) else {
                return Err(Seen::Stuck { waits: self.waits() });
            };
            self.handle(event);
            let (useful_ns, has_ended, all_have_begun, running) = {
                let state = self.job.state.lock();
                let all_have_begun = state.begun == self.job.shape.plan.ranks;
                (state.useful_ns, state.ended.is_some(), all_have_begun, state.running)
            };
            if has_ended {
                return Ok(());
            }
            if running == 0 {
                break;
            }
            if all_have_begun && !self.has_faults {
                self.begin_faults();
            }
            if network::now_ns().saturating_sub(useful_ns) > STUCK_NS {
                return Err(Seen::Stuck { waits: self.waits() });
            }
            if network::with(|network| network.trace.count()) > events_max {
                return Err(Seen::Endless { waits: self.waits() });
            }
        }
        self.faults = None;
        let until_ns = network::now_ns() + REST_NS;
        while network::now_ns() < until_ns && self.threads_left() {
            let Some(event) = network::with(network::Network::advance) else { break };
            self.handle(event);
        }
        Ok(())
    }

    /// Faults happen from when all ranks have their worlds: a program cannot stand one before.
    fn begin_faults(&mut self) {
        self.has_faults = true;
        let plan = self.job.shape.plan;
        let shape = Shape::of_program(plan.seed, plan.ranks, self.job.shape.nodes(), plan.faults.of_programs());
        // Small programs are soon over.
        let first_ns = self.dice.below(100_000);
        let pause_ns = (100_000 << self.dice.below(3)) / u64::from(1 + plan.ranks / 64);
        let pace = Pace { first_ns, pause_ns: pause_ns.max(20_000), kills_max: 1 };
        self.faults = Some(Faults::at(&Rc::new(shape), pace));
    }

    /// Whether threads of living ranks are there that have something to do.
    fn threads_left(&self) -> bool {
        let state = self.job.state.lock();
        state.threads.iter().any(|thread| !thread.is_done && !state.ranks[thread.rank as usize].dead)
    }

    fn handle(&mut self, event: Event) {
        if self.is_routed() {
            announced::raise(event);
        }
        match event {
            Event::Wake(thread, ticket) => self.wake(thread as usize, ticket),
            Event::Turn(node) => self.turn(node),
            Event::Help(rank) => self.help(rank),
            Event::Tend(rank) => self.tend(rank),
            Event::Arrive(pipe) => {
                let news = network::with(|network| network.arrive(pipe));
                self.tell(news);
            }
            Event::Again(pipe) => self.tell(Some(network::with(|network| network.reader(pipe)))),
            Event::Room(pipe) => self.tell(Some(network::with(|network| network.writer(pipe)))),
            Event::End(pipe) => self.tell(Some(network::with(|network| network.arrive_end(pipe)))),
            Event::Call(link) => {
                let news = network::with(|network| network.arrive_call(link));
                self.tell(news);
            }
            Event::Fault(number) => {
                if let Some(mut faults) = self.faults.take() {
                    faults.happen(number, self);
                    self.faults = Some(faults);
                }
            }
            Event::Heard(rank) => self.hear(rank),
            Event::DeviceReply(link) => self.tell(network::with(|network| network.told(link))),
            Event::Direct(_) | Event::Attend(_) => {} // Ranks have no devices, and threads of their own for messages.
        }
    }

    fn wake(&mut self, thread: usize, ticket: u32) {
        let rank = {
            let state = self.job.state.lock();
            let (mine, rank) = (&state.threads[thread], state.threads[thread].rank);
            let of_rank = &state.ranks[rank as usize];
            if mine.ticket != ticket || mine.is_done || of_rank.dead {
                return;
            }
            let until_ns = of_rank.paused_until_ns.max(mine.busy_until_ns);
            if until_ns > network::now_ns() {
                network::with(|network| network.at(until_ns, Event::Wake(thread as u32, ticket)));
                return;
            }
            rank
        };
        let processor = match self.claim(rank) {
            Ok(processor) => processor,
            Err(free_ns) => return network::with(|network| network.at(free_ns, Event::Wake(thread as u32, ticket))),
        };
        self.turn_line(rank);
        self.resume(thread);
        // Whoever lies down on links has looked at them before.
        if matches!(self.job.state.lock().threads[thread].resting, Some((RestOn::Links, _))) {
            self.note_look(rank);
        }
        let step_ns = self.job.machine.map_or(0, |machine| machine.step_ns);
        self.job.state.lock().threads[thread].busy_until_ns = self.release(processor, rank, step_ns);
        self.hear_all(self.job.shape.node_of(rank));
    }

    /// A processor for a process, where the machine has fewer than processes. An error: when one is free.
    fn claim(&mut self, process: u32) -> Result<Option<usize>, u64> {
        let Some((place, turns)) = self.processors.claim(process, network::now_ns())? else { return Ok(None) };
        let switch_ns = self.job.machine.filter(|_| turns).map_or(0, |machine| machine.switch_ns);
        network::with(|network| network.work(switch_ns));
        Ok(Some(place))
    }

    /// Adds `work_ns` to what a process has done in this event, keeps its processor busy until all of that is done, and gives that moment.
    fn release(&mut self, processor: Option<usize>, process: u32, work_ns: u64) -> u64 {
        let until_ns = network::with(|network| {
            network.work(work_ns);
            network.now()
        });
        if let Some(place) = processor {
            self.processors.occupy(place, process, until_ns);
        }
        until_ns
    }

    fn resume(&mut self, thread: usize) {
        let baton = {
            let mut state = self.job.state.lock();
            let mine = &mut state.threads[thread];
            mine.ticket = mine.ticket.wrapping_add(1);
            mine.resting = None;
            let rank = mine.rank;
            network::with(|network| network.note(What::Resume, Who::Rank(rank), thread as u64));
            Arc::clone(&mine.baton)
        };
        baton.give();
        self.job.scheduler.wait();
        let (handle, rank) = {
            let mut state = self.job.state.lock();
            let now_ns = network::now_ns();
            let mine = &mut state.threads[thread];
            let (handle, rank) = (mine.handle.take_if(|_| mine.is_done), mine.rank);
            if handle.is_some() {
                state.useful_ns = now_ns;
            }
            (handle, rank)
        };
        if let Some(handle) = handle {
            network::with(|network| network.note(What::Leave, Who::Rank(rank), thread as u64));
            // Also what goes with its thread-locals goes in its turn.
            let _ = handle.join();
        }
    }

    /// The client of a rank that lives, and may do something now. `again`: what to do when its pause is over.
    fn client_now(&mut self, rank: u32, again: Event) -> Option<Arc<Client>> {
        let state = self.job.state.lock();
        let mine = &state.ranks[rank as usize];
        if mine.dead {
            return None;
        }
        if mine.paused_until_ns > network::now_ns() {
            let until_ns = mine.paused_until_ns;
            network::with(|network| network.at(until_ns, again));
            return None;
        }
        mine.client.clone()
    }

    /// What a rank has in progress goes on while it computes, or rests on something else.
    fn help(&mut self, rank: u32) {
        let Some(client) = self.client_now(rank, Event::Help(rank)) else { return };
        let processor = match self.claim(rank) {
            Ok(processor) => processor,
            Err(free_ns) => return network::with(|network| network.at(free_ns, Event::Help(rank))),
        };
        self.job.state.lock().ranks[rank as usize].help_due = false;
        self.turn_line(rank);
        client.poll_progress();
        self.note_look(rank);
        // A thread may have lain down since this was due. What it waits for may have been taken in just now.
        self.wake_from_links(rank);
        let step_ns = self.job.machine.map_or(0, |machine| machine.step_ns);
        self.release(processor, rank, step_ns);
        self.help_later_if_calling(rank, &client);
        self.hear_all(self.job.shape.node_of(rank));
    }

    /// What a rank has sent and nobody has acknowledged is looked after now and then.
    fn tend(&mut self, rank: u32) {
        if self.job.state.lock().ranks[rank as usize].dead {
            return;
        }
        network::with(|network| network.after(TEND_NS, Event::Tend(rank)));
        let paused = self.job.state.lock().ranks[rank as usize].paused_until_ns > network::now_ns();
        let client = self.job.state.lock().ranks[rank as usize].client.clone().filter(|_| !paused);
        if let Some(client) = client {
            self.turn_line(rank);
            client.tend();
            self.help_later_if_calling(rank, &client);
            self.hear_all(self.job.shape.node_of(rank));
        }
    }

    fn help_later_if_calling(&mut self, rank: u32, client: &Client) {
        if client.is_calling() && !std::mem::replace(&mut self.job.state.lock().ranks[rank as usize].help_due, true) {
            network::with(|network| network.after(CALL_NS, Event::Help(rank)));
        }
    }

    fn turn(&mut self, node: u32) {
        let now_ns = network::now_ns();
        let diced_ns = 200 + self.dice.below(1500);
        if self.job.nodes[node as usize].lock().turn_at_ns != Some(now_ns) {
            return;
        }
        // A server is a thread of its node's first rank, and runs on that one's processor.
        let job = Arc::clone(&self.job);
        let process = job.shape.host_of(node);
        let processor = match self.claim(process) {
            Ok(processor) => processor,
            Err(free_ns) => {
                self.job.nodes[node as usize].lock().turn_at_ns = Some(free_ns);
                return network::with(|network| network.at(free_ns, Event::Turn(node)));
            }
        };
        let (moved, again_ns) = {
            let mut state = job.nodes[node as usize].lock();
            state.turn_at_ns = None;
            if state.paused_until_ns > now_ns {
                (None, Some(state.paused_until_ns - now_ns))
            } else {
                let now_ms = now_ns / 1_000_000 + state.clock_offset_ms;
                let Some(engine) = &mut state.engine else { return };
                if let Some(router) = job.routers.get(node as usize) {
                    router.pay();
                    router.ring();
                }
                // A server that sleeps on its descriptor has looked everywhere before.
                let moved = engine.turn(now_ms, job.shape.plan.routed);
                let soon_ns = if job.machine.is_some() { 0 } else { diced_ns };
                let again_ns = if moved { Some(soon_ns) } else { engine.sleep_ms_max().map(|ms| ms * 1_000_000) };
                state.busy_until_ns = match job.machine {
                    Some(machine) => self.release(processor, process, machine.turn_ns),
                    None => now_ns + diced_ns,
                };
                (Some(moved), again_ns)
            }
        };
        if let Some(moved) = moved {
            network::with(|network| network.note(What::Turn, Who::Server(node), u64::from(moved)));
            if moved {
                self.hear_eventcounts(node);
            }
        }
        if let Some(again_ns) = again_ns {
            self.job.schedule_turn(node, again_ns);
        }
        if self.is_routed() {
            self.job.schedule_turn(node, ROUTER_TICK_MS * 1_000_000);
            // What its router has brought is there before it sleeps.
            if self.job.machine.is_some() && self.job.nodes[node as usize].lock().hears() {
                self.job.schedule_turn(node, 0);
            }
            self.hear_descriptors(node);
        }
    }

    /// The launcher has seen a rank end. It ends those that cannot go on without it, and tells everybody else of all of them.
    fn hear(&mut self, dead: u32) {
        let reason = format!("was ended because rank {dead}, the host of its node's server, {KILLED}");
        let taken_along = self.lost_with(dead).into_iter().filter(|mate| self.end_process(*mate));
        let taken_along: Vec<(u32, String)> = taken_along.map(|mate| (mate, reason.clone())).collect();
        let killed = std::iter::once((dead, KILLED.to_owned()));
        killed.chain(taken_along).for_each(|(rank, how)| self.tell_of_death(rank, &how));
        self.job.let_go_if_all_left();
    }

    /// The other ranks that are ended because this one is dead.
    fn lost_with(&self, dead: u32) -> Vec<u32> {
        let node = self.job.shape.node_of(dead);
        let state = self.job.state.lock();
        self.job.shape.ranks_of(node).filter(|mate| *mate != dead && self.job.is_doomed(&state, *mate)).collect()
    }

    fn tell_of_death(&mut self, dead: u32, how: &str) {
        network::with(|network| network.note(What::Death, Who::Rank(dead), 0));
        let listeners: Vec<(u32, HearDeath)> = {
            let mut state = self.job.state.lock();
            state.deaths.push((dead, how.to_owned()));
            state.ranks[dead as usize].is_known_dead = true;
            state.useful_ns = network::now_ns();
            let living = state.ranks.iter().enumerate().filter(|(_, rank)| !rank.dead);
            living.filter_map(|(rank, state)| Some((rank as u32, state.on_death.clone()?))).collect()
        };
        for (rank, on_death) in listeners {
            on_death(dead, how);
            self.tell_rank(rank);
        }
        for node in 0..self.job.shape.nodes() {
            if let Some(engine) = &mut self.job.nodes[node as usize].lock().engine {
                engine.note_death(Rank(dead));
            }
            self.job.schedule_turn(node, 1);
            self.hear_eventcounts(node);
        }
    }

    /// The process of a rank is gone, with the server that it hosts. False: it had ended before.
    fn end_process(&mut self, rank: u32) -> bool {
        let node = self.job.shape.node_of(rank);
        {
            let mut state = self.job.state.lock();
            let mine = &mut state.ranks[rank as usize];
            if mine.has_ended || std::mem::replace(&mut mine.dead, true) {
                return false;
            }
            state.running -= 1;
            state.useful_ns = network::now_ns();
        }
        network::with(|network| network.kill(Owner::Rank(rank)));
        self.cut_off(rank);
        if self.job.shape.host_of(node) == rank {
            network::with(|network| network.kill(Owner::Server(node)));
            let engine = self.job.nodes[node as usize].lock().engine.take();
            drop(engine);
        }
        self.hear_descriptors(node);
        true
    }

    /// Who waits in which call for whom.
    fn waits(&self) -> Vec<String> {
        let state = self.job.state.lock();
        let not_left: Vec<String> = (0..)
            .zip(&state.ranks)
            .filter(|(_, rank)| !rank.dead && !rank.has_left)
            .map(|(rank, _): (u32, _)| rank.to_string())
            .collect();
        let mut lines = Vec::new();
        for (rank, mine) in (0u32..).zip(&state.ranks).filter(|(_, mine)| !mine.dead && !mine.has_ended) {
            if mine.has_left {
                lines.push(format!("rank {rank} waits in finalize for the ranks {}", not_left.join(", ")));
                continue;
            }
            let waits = mine.client.as_ref().map(|client| client.waits()).unwrap_or_default();
            if waits.is_empty() {
                lines.push(format!(
                    "rank {rank} waits in no call: it looks again and again, or for what it has started"
                ));
            }
            lines.extend(waits.iter().map(|wait| {
                let whom = match wait.awaited.whom {
                    Whom::Rank(other) => format!("for rank {other}"),
                    Whom::Holder(host) => format!("for the holder of a mutex at rank {host}"),
                    Whom::Anyone => "for any rank".into(),
                };
                format!("rank {rank} waits in {} {whom}", wait.awaited.call)
            }));
        }
        let more = lines.len().saturating_sub(SHOWN);
        lines.truncate(SHOWN);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines
    }

    /// Ends what is left of the threads: everything fails for them, and they come to their end. Those of killed ranks stay where they
    /// are until the process ends: the dead do nothing, and a thread cannot be ended from outside.
    pub(super) fn end(&mut self) {
        self.faults = None;
        self.job.state.lock().is_over = true;
        network::with(network::Network::close_all);
        (0..self.job.shape.plan.ranks).for_each(|rank| self.cut_off(rank));
        let clients: Vec<Option<Arc<Client>>> =
            self.job.state.lock().ranks.iter().map(|rank| rank.client.clone().filter(|_| !rank.dead)).collect();
        for (rank, client) in (0..).map(Rank).zip(&clients) {
            if let Some(client) = client {
                client.failures().note(longarm_client::Death { rank, how: KILLED.into() });
                client.on_death(rank, KILLED);
            }
        }
        for round in 0..ROUNDS_MAX {
            if round == ROUNDS_BEFORE_CLOSE {
                clients.iter().flatten().for_each(|client| client.close());
            }
            let mut is_any = false;
            let mut thread = 0;
            // Some may start others meanwhile.
            while thread < self.job.state.lock().threads.len() {
                let goes_on = {
                    let state = self.job.state.lock();
                    let mine = &state.threads[thread];
                    !mine.is_done && !state.ranks[mine.rank as usize].dead
                };
                if goes_on {
                    is_any = true;
                    self.resume(thread);
                }
                thread += 1;
            }
            if !is_any {
                return;
            }
        }
    }
}

impl Victims for Scheduler {
    /// A rank is gone before its time, and with it the server that it hosts. The others hear of it after a while.
    fn die(&mut self, rank: u32) {
        if self.end_process(rank) {
            let after_ns = 10_000 + self.dice.below(20_000_000);
            network::with(|network| network.after(after_ns, Event::Heard(rank)));
        }
    }

    fn pause(&mut self, rank: u32, until_ns: u64) {
        self.job.state.lock().ranks[rank as usize].paused_until_ns = until_ns;
    }

    fn pause_server(&mut self, node: u32, until_ns: u64) {
        self.job.nodes[node as usize].lock().paused_until_ns = until_ns;
    }

    fn jump_clock(&mut self, node: u32, jump_ms: u64) {
        self.job.nodes[node as usize].lock().clock_offset_ms += jump_ms;
        self.job.schedule_turn(node, 1);
    }

    fn holders(&self) -> Vec<u32> {
        Vec::new() // What a program does is not known.
    }

    fn note_pause(&mut self, _: u64) {}

    /// Not again and again to what nobody has recovered from: a network that breaks each connection before it is through is no fault
    /// that a program could stand.
    fn may_fault(&self) -> bool {
        self.faults_since_useful < FAULTS_AT_ONCE || self.job.state.lock().useful_ns > self.fault_ns
    }

    fn count(&mut self, fault: Fault) {
        let mut state = self.job.state.lock();
        state.faults[fault as usize] += 1;
        if state.useful_ns > self.fault_ns {
            self.faults_since_useful = 0;
        }
        self.fault_ns = network::now_ns();
        self.faults_since_useful += 1;
    }
}
