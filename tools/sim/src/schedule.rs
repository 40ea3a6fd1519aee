//! Who runs when: the one loop of a run. It takes the next event off the heap, and lets whoever it concerns go on: a
//! rank's fiber, a node's server, or the fault plan. Nobody is looked at for whom nothing has happened.

mod hearing;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use longarm_client::{Client, Death, Layout, RestOn};
use longarm_netmod::ROUTER_TICK_MS;
use longarm_proto::Rank;

use crate::announced;
use crate::book;
use crate::client::{dispatch, make_client};
use crate::dice::Dice;
use crate::fault::Fault;
use crate::faults::{Faults, Victims};
use crate::fiber::{Fiber, Step};
use crate::job::{self, Job};
use crate::network::{self, Event, News, Owner};
use crate::plan::Shape;
use crate::program;
use crate::routed::RankNetwork;
use crate::trace::{What, Who};

/// Simulated time in which nothing but sleeps has ended: nobody will ever go on.
const STUCK_NS: u64 = 8_000_000_000;
/// How often what was sent and not acknowledged is looked after, as the helper thread does it.
const TEND_NS: u64 = 40_000_000;
/// How often a server to which there is no connection is called, while its rank does something else.
const CALL_NS: u64 = 1_000_000;
/// Events after which a run is taken for one that never ends: so many, and so many more for each operation.
const EVENTS_MAX: u64 = 500_000;
const EVENTS_PER_OPERATION_MAX: u64 = 100;
/// How often a fiber may come back after everything has ended for it.
const LAST_STEPS: u32 = 100_000;

/// What the scheduler knows of a rank.
pub struct RankState {
    fiber: Option<Fiber>,
    /// The real client.
    pub client: Arc<Client>,
    /// On what it rests, and how often its eventcount had been notified when it lay down.
    resting: Option<(RestOn, u32)>,
    /// The number of its present rest.
    ticket: u32,
    /// It does nothing before.
    pub paused_until_ns: u64,
    help_due: bool,
    /// How often its eventcount for mail had been notified when its mail was last taken in.
    mail_seen: u32,
    /// It was killed, or has left before its time.
    pub dead: bool,
    /// Its way to routers, where nodes have them.
    routed: Option<Arc<RankNetwork>>,
}

impl RankState {
    fn new(client: Arc<Client>, fiber: Fiber) -> RankState {
        let (resting, ticket, paused_until_ns, help_due, mail_seen, dead) = (None, 0, 0, false, 0, false);
        let routed = None;
        RankState { fiber: Some(fiber), client, resting, ticket, paused_until_ns, help_due, mail_seen, dead, routed }
    }

    /// As who sleeps on it does: what has come over its line is taken in.
    fn turn_line(&self) {
        self.routed.iter().for_each(|routed| routed.turn());
    }

    /// It has looked at all that it wants to know of.
    fn note_look(&self) {
        self.routed.iter().for_each(|routed| routed.note_look());
    }
}

/// See the module.
pub struct Scheduler {
    /// The ranks.
    pub ranks: Vec<RankState>,
    /// Who stands where.
    pub shape: Rc<Shape>,
    faults: Option<Faults>,
    dice: Dice,
    /// Ranks whose programs have not ended.
    pub running: u32,
    useful_ns: u64,
    /// Ranks that were killed, or left before their time and were the first to.
    pub deaths: u32,
    /// Times that a fiber was resumed.
    pub resumed: u64,
    /// Turns of servers.
    pub turns: u64,
    /// The most bytes of replies that waited at one connection.
    pub reply_bytes_max: usize,
}

impl Scheduler {
    /// A job whose ranks are about to begin.
    pub fn new(job: &Rc<Job>) -> Result<Scheduler, String> {
        let shape = Rc::clone(&job.shape);
        let layout = Layout::new(Rank(0), &shape.node_of_rank);
        let ranks =
            (0..shape.plan.ranks).map(|rank| make_rank(job, &layout.of(Rank(rank)))).collect::<Result<_, _>>()?;
        let mut dice = Dice::of(shape.plan.seed, 50, 0);
        for rank in 0..shape.plan.ranks {
            network::with(|network| {
                network.after(dice.below(5_000), Event::Wake(rank, 0));
                network.after(dice.below(TEND_NS), Event::Tend(rank));
            });
        }
        if shape.plan.routed {
            // A router looks at time limits whether or not anything comes.
            (0..shape.nodes()).for_each(|node| job::schedule_turn(node, ROUTER_TICK_MS * 1_000_000));
        }
        let (faults, running) = (Some(Faults::new(&shape)), shape.plan.ranks);
        let (useful_ns, deaths, resumed, turns, reply_bytes_max) = (0, 0, 0, 0, 0);
        Ok(Scheduler { ranks, shape, faults, dice, running, useful_ns, deaths, resumed, turns, reply_bytes_max })
    }

    /// A job of which only rank 0 is there.
    pub fn of_one(job: &Rc<Job>, client: Arc<Client>, fiber: Fiber) -> Scheduler {
        let shape = Rc::clone(&job.shape);
        network::with(|network| {
            network.after(0, Event::Wake(0, 0));
            network.after(TEND_NS, Event::Tend(0));
        });
        let dice = Dice::of(shape.plan.seed, 50, 0);
        let (useful_ns, deaths, resumed, turns, reply_bytes_max) = (0, 0, 0, 0, 0);
        let ranks = vec![RankState::new(client, fiber)];
        Scheduler { ranks, shape, faults: None, dice, running: 1, useful_ns, deaths, resumed, turns, reply_bytes_max }
    }

    /// Runs until all programs have ended, or something was seen that cannot be.
    pub fn run(&mut self, progress: &mut dyn FnMut()) {
        let plan = &self.shape.plan;
        let events_max = EVENTS_MAX + EVENTS_PER_OPERATION_MAX * u64::from(plan.ranks) * u64::from(plan.ops);
        while self.running > 0 && !is_violated() {
            let Some(event) = network::with(network::Network::advance) else {
                self.report_stuck("nothing will ever happen again");
                return;
            };
            self.handle(event);
            if network::now_ns().saturating_sub(self.useful_ns) > STUCK_NS {
                self.report_stuck("nothing has happened for 8 s but sleeps");
                return;
            }
            if network::with(|network| network.trace.count()) > events_max {
                self.report_stuck("it goes on and on");
                return;
            }
            progress();
        }
    }

    /// Lets what is still under way arrive, for so long.
    pub fn run_out(&mut self, time_ns: u64) {
        let until_ns = network::now_ns() + time_ns;
        while !is_violated() && network::now_ns() < until_ns {
            let Some(event) = network::with(network::Network::advance) else { return };
            if !matches!(event, Event::Fault(_)) {
                self.handle(event);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        if self.shape.plan.routed {
            announced::raise(event);
        }
        match event {
            Event::Wake(rank, ticket) => self.wake(rank, ticket),
            Event::Turn(node) => self.turn(node),
            Event::Help(rank) => self.help(rank),
            Event::Tend(rank) => self.tend(rank),
            Event::Attend(rank) => self.attend(rank),
            Event::Arrive(pipe) => {
                let (news, of_rank) = network::with(|network| {
                    let ends = [network.reader(pipe), network.writer(pipe)];
                    (network.arrive(pipe), ends.iter().all(|owner| !matches!(owner, Owner::Stranger(_))))
                });
                if news.is_some() && of_rank {
                    self.useful();
                }
                self.tell(news);
            }
            Event::Direct(link) => job::do_direct(link),
            Event::DeviceReply(link) => self.tell(network::with(|network| network.told(link))),
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
        }
        job::do_overdue();
    }

    /// Somebody's link has news.
    pub fn tell(&mut self, news: Option<News>) {
        let Some(news) = news else { return };
        match news {
            Owner::Rank(rank) => self.tell_rank(rank),
            Owner::Server(node) => job::schedule_turn(node, 200 + self.dice.below(300)),
            Owner::Stranger(number) => {
                if let Some(mut faults) = self.faults.take() {
                    faults.turn_stranger(number);
                    self.faults = Some(faults);
                }
            }
        }
    }

    fn useful(&mut self) {
        self.useful_ns = network::now_ns();
    }

    fn tell_rank(&mut self, rank: u32) {
        let Some(state) = self.ranks.get_mut(rank as usize) else { return };
        if state.dead {
            return;
        }
        if let Some((RestOn::Links, _)) = state.resting {
            state.resting = None;
            let after_ns = 100 + self.dice.below(200);
            network::with(|network| network.after(after_ns, Event::Wake(rank, state.ticket)));
        } else if !std::mem::replace(&mut state.help_due, true) {
            network::with(|network| network.after(500, Event::Help(rank)));
        }
    }

    fn wake(&mut self, rank: u32, ticket: u32) {
        let Some(state) = self.ranks.get_mut(rank as usize) else { return };
        if state.ticket != ticket || state.dead || state.fiber.is_none() {
            return;
        }
        if state.paused_until_ns > network::now_ns() {
            let until_ns = state.paused_until_ns;
            network::with(|network| network.at(until_ns, Event::Wake(rank, ticket)));
            return;
        }
        state.turn_line();
        self.resume(rank);
        self.ranks[rank as usize].note_look();
        self.hear_all(self.shape.node_of(rank));
    }

    /// What a rank has in progress goes on while it computes, or rests on something else.
    fn help(&mut self, rank: u32) {
        let Some(state) = self.ranks.get_mut(rank as usize) else { return };
        state.help_due = false;
        if state.dead {
            return;
        }
        if state.paused_until_ns > network::now_ns() {
            state.help_due = true;
            let until_ns = state.paused_until_ns;
            network::with(|network| network.at(until_ns, Event::Help(rank)));
            return;
        }
        state.turn_line();
        state.client.poll_progress();
        state.note_look();
        if state.client.is_calling() {
            state.help_due = true;
            network::with(|network| network.after(CALL_NS, Event::Help(rank)));
        }
        self.hear_all(self.shape.node_of(rank));
    }

    /// What the thread does that takes in mail and runs active messages while the program does something else.
    fn attend(&mut self, rank: u32) {
        let Some(state) = self.ranks.get_mut(rank as usize) else { return };
        if state.dead || matches!(state.resting, Some((RestOn::Mail, _))) {
            return;
        }
        if state.paused_until_ns > network::now_ns() {
            let until_ns = state.paused_until_ns;
            network::with(|network| network.at(until_ns, Event::Attend(rank)));
            return;
        }
        state.client.attend_mail(|| false);
        self.hear_all(self.shape.node_of(rank));
    }

    /// What a rank has sent and nobody has acknowledged is looked after now and then.
    fn tend(&mut self, rank: u32) {
        let Some(state) = self.ranks.get_mut(rank as usize) else { return };
        // Also of one whose program has ended: its process stays until what it has sent has arrived.
        if state.dead {
            return;
        }
        network::with(|network| network.after(TEND_NS, Event::Tend(rank)));
        if state.paused_until_ns > network::now_ns() {
            return;
        }
        state.turn_line();
        state.client.tend();
        if state.client.is_calling() && !std::mem::replace(&mut state.help_due, true) {
            network::with(|network| network.after(CALL_NS, Event::Help(rank)));
        }
        self.hear_descriptors(self.shape.node_of(rank));
    }

    fn resume(&mut self, rank: u32) {
        self.resumed += 1;
        let state = &mut self.ranks[rank as usize];
        state.ticket = state.ticket.wrapping_add(1);
        state.resting = None;
        network::with(|network| network.note(What::Resume, Who::Rank(rank), 0));
        let Some(fiber) = &mut state.fiber else { return };
        let step = catch_unwind(AssertUnwindSafe(|| fiber.resume()));
        match step {
            Err(panic) => {
                state.fiber = None;
                self.running -= 1;
                book::violate(&[rank], format!("rank {rank} panicked: {}", text_of(&*panic)));
            }
            Ok(Step::Done) => self.leave(rank),
            Ok(Step::Compute(pause_ns)) => {
                self.useful();
                let ticket = self.ranks[rank as usize].ticket;
                network::with(|network| network.after(pause_ns, Event::Wake(rank, ticket)));
            }
            Ok(Step::Rest(on, timeout)) => self.rest(rank, on, timeout),
        }
    }

    fn rest(&mut self, rank: u32, on: RestOn, timeout: Option<std::time::Duration>) {
        let local = rank - self.shape.ranks_of(self.shape.node_of(rank)).start;
        let state = &mut self.ranks[rank as usize];
        let notified = match on {
            RestOn::Windows => state.client.segment().window_eventcount(local).sequence(),
            RestOn::Links | RestOn::Mail => state.client.segment().eventcount(local).sequence(),
        };
        state.resting = Some((on, notified));
        let ticket = state.ticket;
        network::with(|network| {
            network.note(What::Rest, Who::Rank(rank), on as u64);
            // Those who wait for words here are woken by signals, which ring at once: their naps would hide that.
            if let Some(timeout) = timeout.filter(|_| on != RestOn::Windows) {
                network.after(timeout.as_nanos() as u64, Event::Wake(rank, ticket));
            }
        });
    }

    fn turn(&mut self, node: u32) {
        let now_ns = network::now_ns();
        let cost_ns = 200 + self.dice.below(1500);
        let is_routed = self.shape.plan.routed;
        let turned = job::with_node(node, |state| {
            if state.turn_at_ns != Some(now_ns) {
                return None;
            }
            state.turn_at_ns = None;
            if state.paused_until_ns > now_ns {
                return Some((None, Some(state.paused_until_ns - now_ns)));
            }
            let now_ms = now_ns / 1_000_000 + state.clock_offset_ms;
            let engine = state.engine.as_mut()?;
            if let Some(router) = &state.router {
                router.ring();
            }
            // A server that sleeps on its descriptor has looked everywhere before.
            let moved = engine.turn(now_ms, is_routed);
            state.busy_until_ns = now_ns + cost_ns;
            let again_ns = if moved { Some(cost_ns) } else { engine.sleep_ms_max().map(|ms| ms * 1_000_000) };
            Some((Some(moved), again_ns))
        });
        let Some((moved, again_ns)) = turned else { return };
        if let Some(moved) = moved {
            self.turns += 1;
            network::with(|network| network.note(What::Turn, Who::Server(node), u64::from(moved)));
            if moved {
                if self.turns.is_multiple_of(64) {
                    let census =
                        job::with_node(node, |state| state.engine.as_ref().map(longarm_server::Engine::census));
                    self.reply_bytes_max =
                        self.reply_bytes_max.max(census.map_or(0, |census| census.reply_bytes_kept_max));
                }
                self.hear_eventcounts(node);
            }
        }
        if let Some(again_ns) = again_ns {
            job::schedule_turn(node, again_ns);
        }
        if is_routed {
            job::schedule_turn(node, ROUTER_TICK_MS * 1_000_000);
            self.hear_descriptors(node);
        }
    }

    fn leave(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        state.fiber = None;
        self.running -= 1;
        let well = book::with(|book| book.ended_well(rank));
        network::with(|network| network.note(What::Leave, Who::Rank(rank), u64::from(well)));
        self.useful();
        // Once one death is known everybody leaves: one is enough to be told of, unless others wait for a mutex of it.
        let holds = book::with(|book| book.holders().any(|holder| holder == rank));
        // A rank whose router has ended reaches nobody, and may hold what it has not heard of.
        let is_cut_off =
            self.shape.plan.routed && self.ranks[self.shape.host_of(self.shape.node_of(rank)) as usize].dead;
        if !well && !is_violated() && (self.deaths == 0 || holds || is_cut_off) {
            self.die(rank);
        }
    }

    /// The launcher tells everybody of a death.
    fn hear(&mut self, dead: u32) {
        network::with(|network| network.note(What::Death, Who::Rank(dead), 0));
        self.useful();
        for rank in 0..self.shape.plan.ranks {
            let state = &mut self.ranks[rank as usize];
            if state.dead || state.fiber.is_none() {
                continue;
            }
            state.client.failures().note(Death { rank: Rank(dead), how: "was killed".into() });
            state.client.on_death(Rank(dead), "was killed");
            if let Some((RestOn::Links, _)) = state.resting {
                self.tell_rank(rank);
            }
        }
        for node in 0..self.shape.nodes() {
            job::with_node(node, |state| {
                if let Some(engine) = &mut state.engine {
                    engine.note_death(Rank(dead));
                }
            });
            job::schedule_turn(node, 1);
            self.hear_eventcounts(node);
        }
    }

    fn report_stuck(&mut self, why: &str) {
        let mut waiting = Vec::new();
        for rank in 0..self.shape.plan.ranks {
            let state = &self.ranks[rank as usize];
            if state.fiber.is_none() || state.dead {
                continue;
            }
            let on = state.resting.map(|(on, _)| on);
            if let Some((kind, target)) = book::with(|book| book.doing(rank)) {
                waiting.push((rank, format!("rank {rank} waits in {} at rank {target}, on {on:?}", kind.name())));
            }
        }
        // Whoever waits for all others says little, and whoever waits for a server says most.
        waiting.sort_by_key(|(_, text)| (!text.ends_with("Some(Links)"), text.contains(" in barrier")));
        let most = if waiting.first().is_some_and(|(_, text)| text.ends_with("Some(Links)")) { 2 } else { 16 };
        let ranks: Vec<u32> = waiting.iter().take(most).map(|(rank, _)| *rank).collect();
        let lines: Vec<String> = waiting.into_iter().take(8).map(|(_, text)| text).collect();
        book::violate(&ranks, format!("{why}; {}", lines.join("; ")));
    }

    /// All clients leave: their connections are closed. So do all strangers.
    pub fn hang_up(&mut self) {
        for state in std::mem::take(&mut self.ranks) {
            state.client.close();
        }
        (0..self.shape.nodes()).for_each(|node| self.hear_descriptors(node));
        self.faults = None;
    }

    /// Ends what is left of the fibers: everything fails for them, and they must come to their end.
    /// What the dead say of what they see then counts for nothing; that they do not end does.
    pub fn end_fibers(&mut self) {
        book::with(book::Book::close);
        network::with(network::Network::close_all);
        self.ranks.iter().filter_map(|state| state.routed.as_ref()).for_each(|routed| routed.cut_off());
        for rank in 0..self.shape.plan.ranks {
            let state = &mut self.ranks[rank as usize];
            let Some(mut fiber) = state.fiber.take() else { continue };
            state.client.failures().note(Death { rank: Rank(rank), how: "was killed".into() });
            let mut steps = 0;
            while !fiber.is_done() && steps < LAST_STEPS {
                steps += 1;
                if steps == 100 {
                    state.client.close();
                }
                let step = catch_unwind(AssertUnwindSafe(|| fiber.resume()));
                if !matches!(step, Ok(Step::Rest(..) | Step::Compute(_))) {
                    break;
                }
            }
            if !fiber.is_done() {
                let doing = book::with(|book| book.doing(rank));
                let what = format!("rank {rank} does not end although it is alone: {doing:?}");
                book::with(|book| book.open());
                book::violate(&[rank], what);
                book::with(book::Book::close);
                std::mem::forget(fiber); // It cannot be unwound: it lends memory.
            }
        }
    }
}

impl Victims for Scheduler {
    /// A rank is gone before its time, and with it the server that it hosts. The others hear of it after a while.
    fn die(&mut self, rank: u32) {
        let node = self.shape.node_of(rank);
        let state = &mut self.ranks[rank as usize];
        if std::mem::replace(&mut state.dead, true) {
            return;
        }
        if state.fiber.is_some() {
            self.running -= 1;
        }
        self.deaths += 1;
        job::note_broken();
        book::with(|book| book.bury(rank));
        network::with(|network| network.kill(Owner::Rank(rank)));
        self.ranks[rank as usize].routed.iter().for_each(|routed| routed.cut_off());
        if self.shape.host_of(node) == rank {
            network::with(|network| network.kill(Owner::Server(node)));
            let engine = job::with_node(node, |state| state.engine.take());
            drop(engine);
        }
        self.hear_descriptors(node);
        let after_ns = 10_000 + self.dice.below(20_000_000);
        network::with(|network| network.after(after_ns, Event::Heard(rank)));
        self.useful();
    }

    fn pause(&mut self, rank: u32, until_ns: u64) {
        self.ranks[rank as usize].paused_until_ns = until_ns;
    }

    fn pause_server(&mut self, node: u32, until_ns: u64) {
        job::with_node(node, |node| node.paused_until_ns = until_ns);
    }

    fn jump_clock(&mut self, node: u32, jump_ms: u64) {
        job::with_node(node, |node| node.clock_offset_ms += jump_ms);
        job::schedule_turn(node, 1);
    }

    fn holders(&self) -> Vec<u32> {
        book::with(|book| book.holders().collect())
    }

    fn note_pause(&mut self, pause_ns: u64) {
        job::note_pause(pause_ns);
    }

    fn count(&mut self, fault: Fault) {
        job::count_fault(fault);
    }
}

fn make_rank(job: &Rc<Job>, layout: &Layout) -> Result<RankState, String> {
    let rank = layout.me();
    let routed = if job.shape.plan.routed { Some(way_to_routers(job, rank.0)?) } else { None };
    let client = make_client(job, layout, routed.clone())?;
    client.set_dispatch(dispatch(rank, &job.shape));
    let its_client = Arc::clone(&client);
    let state = RankState::new(client, Fiber::new(move || program::run(rank, its_client)));
    Ok(RankState { routed, ..state })
}

fn way_to_routers(job: &Job, rank: u32) -> Result<Arc<RankNetwork>, String> {
    let shape = &job.shape;
    job::with_node(shape.node_of(rank), |node| {
        let router = node.router.as_ref().expect("nodes have routers");
        RankNetwork::new(shape, (job.id, job.run), &job::SECRET, rank, router)
    })
}

/// Whether something was seen that cannot be.
pub fn is_violated() -> bool {
    book::with(|book| book.violation().is_some())
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a text".into())
}
