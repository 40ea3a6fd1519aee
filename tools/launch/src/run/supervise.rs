//! The launcher's loop: starts the ranks and looks after them until the last one is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longarm::config::{Config, OnFailure};
use longarm::topology;
use longarm_control::agent::{Branch, Stream};
use longarm_control::messages::ToRank;
use rustix::process::Signal;
use tokio::net::unix::pipe;
use tokio::signal::unix::SignalKind;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::alike::Alike;
use super::child::{Placement, Template};
use super::ending::{Action, Cause, Ending};
use super::here::{Begun, Here};
use super::hosts::Machines;
use super::output::{self, Console, Sink, Source};
use super::questions::{self, Question};
use super::reasons::Reasons;
use super::site::Site;
use super::watch::{Event, Happening};
use super::{RunError, While};
use crate::cli::{Bind, RunArguments};
use crate::stats::{self, Outcome};
use crate::units;
use longarm_control::how_ended::signal_name;
use longarm_control::plan::Plan;
use longarm_control::rendezvous::{Failure, Job, Rendezvous, Violation};
use longarm_control::watchdog::Watchdog;

mod far;
mod inquiry;

/// How many events may wait for the loop. Each may be a line of the longest.
const EVENTS_MAX: usize = 64;
/// How long an interrupted launcher waits for whoever reads its output.
const FLUSH: Duration = Duration::from_secs(2);

/// The loop's state.
struct Supervisor<'a> {
    arguments: &'a RunArguments,
    plan: Plan,
    machines: Machines,
    console: Console,
    rendezvous: Rendezvous,
    ending: Ending,
    /// Where the ranks of each machine run.
    sites: Vec<Site>,
    ranks: Vec<Running>,
    /// Where outputs of other hosts go.
    outputs_far: BTreeMap<(u32, Stream), mpsc::Sender<Vec<u8>>>,
    /// Leave to send more of the input to another host.
    input_room: Option<Arc<Semaphore>>,
    /// The first failure.
    failure: Option<Failure>,
    happenings: mpsc::Receiver<Happening>,
    signals: mpsc::Receiver<i32>,
    /// What `longarm ps` wants to know; `None` where it cannot reach us.
    questions: Option<mpsc::Receiver<Question>>,
    /// Who waits for the answers of the ranks.
    askers: Vec<oneshot::Sender<String>>,
    watchdog: Watchdog,
    /// When the job was started.
    since: Instant,
    outputs: JoinSet<()>,
    outputs_end: watch::Sender<bool>,
    /// What several ranks say at their end.
    alike: Alike,
    /// When `--timeout` ends the job.
    timeout: Option<Instant>,
    /// Ranks that have given up while the others go on, and when they are killed.
    condemned: Vec<(u32, Instant)>,
    reasons: Reasons,
    /// Whether a debugger may hold ranks.
    is_debugged: bool,
    /// The agents that the launcher has started, with those that these start.
    branches: Vec<Branch>,
    /// Hosts whose agents start ranks.
    ready: BTreeSet<u32>,
    /// Hosts that have not said that nothing follows.
    unfinished: BTreeSet<u32>,
    /// Ranks that were stopped when their host looked last.
    stopped: BTreeSet<u32>,
}

/// A rank, as long as the job lasts.
#[derive(Clone, Copy, Debug, Default)]
struct Running {
    /// Its process, once it is known.
    pid: u32,
    has_ended: bool,
}

/// Runs the job and returns what the launcher exits with.
///
/// # Errors
/// When ranks cannot be started. Those that were are gone then.
pub async fn supervise(
    arguments: &RunArguments,
    config: &Config,
    (plan, machines): (Plan, Machines),
    template: &Template<'_>,
) -> Result<i32, RunError> {
    let console = Console::open().while_doing("opening the outputs")?;
    let signals = forward_signals().while_doing("listening to signals")?;
    let processors = topology::processors_allowed();
    let survivors_go_on = config.on_failure == OnFailure::Continue;
    let job = Job {
        number: random().map(u64::from_le_bytes).while_doing("choosing the job's number")?,
        secret: secret().while_doing("choosing the job's secret")?,
        // Agents say those of their machines.
        processors: vec![processors.clone(); machines.len()],
        stats: arguments.wants_stats(),
        survivors_go_on,
    };
    let (sender, happenings) = mpsc::channel(EVENTS_MAX);
    let questions = questions::listen();
    let questions = questions.inspect_err(|error| tracing::warn!(%error, "longarm ps will not find this job")).ok();
    let since = Instant::now();
    let mut supervisor = Supervisor {
        arguments,
        console,
        rendezvous: Rendezvous::new(plan.clone(), job),
        ranks: vec![Running::default(); plan.ranks() as usize],
        plan,
        machines,
        ending: Ending::new(survivors_go_on, Duration::from_millis(config.report_ms)),
        sites: Vec::new(),
        outputs_far: BTreeMap::new(),
        input_room: None,
        failure: None,
        happenings,
        signals,
        questions,
        askers: Vec::new(),
        watchdog: Watchdog::new(config.watchdog_s, since),
        since,
        outputs: JoinSet::new(),
        outputs_end: watch::Sender::new(false),
        alike: Alike::default(),
        timeout: arguments.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
        condemned: Vec::new(),
        reasons: Reasons::default(),
        is_debugged: config.debugger,
        branches: Vec::new(),
        ready: BTreeSet::new(),
        unfinished: BTreeSet::new(),
        stopped: BTreeSet::new(),
    };
    supervisor.open_sites(config, template, &sender);
    let started = supervisor.start_here(template, &processors, &sender);
    drop(sender);
    if let Err(error) = started {
        supervisor.sites.iter_mut().for_each(Site::end);
        supervisor.close_sites().await;
        return Err(error);
    }
    supervisor.listen().await;
    supervisor.signal_all(Signal::KILL);
    Ok(supervisor.finish().await)
}

impl Supervisor<'_> {
    /// Starts the ranks of this machine.
    fn start_here(
        &mut self,
        template: &Template<'_>,
        processors: &[u32],
        happenings: &mpsc::Sender<Happening>,
    ) -> Result<(), RunError> {
        let refused = |rank, source| RunError::Rank { rank, program: template.path.into(), source };
        let ranks_here = (0..self.plan.ranks()).filter(|rank| self.machines.is_here(self.plan.machine_of(*rank)));
        for (index, rank) in ranks_here.collect::<Vec<_>>().into_iter().enumerate() {
            let node = self.plan.node_of_rank[rank as usize];
            let processor = match self.arguments.bind {
                Bind::Core => Some(processors[index % processors.len()]),
                Bind::None => None,
            };
            let place = Placement { rank, node, processor, reads_stdin: rank == 0 };
            let messages_max = messages_max(&self.plan);
            let Site::Here(here) = &mut self.sites[self.plan.machine_of(rank) as usize] else {
                unreachable!("these ranks are on this machine")
            };
            let begun =
                here.start(template, place, messages_max, happenings).map_err(|source| refused(rank, source))?;
            self.know_process(rank, begun.pid);
            self.connect(rank, begun).map_err(|source| refused(rank, source))?;
        }
        Ok(())
    }

    /// A rank has become this process.
    fn know_process(&mut self, rank: u32, pid: u32) {
        self.ranks[rank as usize].pid = pid;
        if self.is_debugged {
            let node = self.plan.node_of_rank[rank as usize];
            let host = self.on_host(rank, " on host ");
            self.console.say(&format!("rank {rank} (node {node}) is process {pid}{host}: gdb -p {pid}"));
        }
    }

    /// Where a rank runs, behind `before`, if there are several machines.
    fn on_host(&self, rank: u32, before: &str) -> String {
        self.host_of(rank).map(|host| format!("{before}{host}")).unwrap_or_default()
    }

    /// The host that a rank runs on, if there are several.
    fn host_of(&self, rank: u32) -> Option<&str> {
        (self.machines.len() > 1).then(|| self.machines.name(self.plan.machine_of(rank)))
    }

    /// Starts the tasks that serve a rank's pipes.
    fn connect(&mut self, rank: u32, begun: Begun) -> io::Result<()> {
        let stdout = pipe::Receiver::from_owned_fd(OwnedFd::from(begun.stdout))?;
        let stderr = pipe::Receiver::from_owned_fd(OwnedFd::from(begun.stderr))?;
        self.pass_outputs(rank, Source::Pipe(stdout), Source::Pipe(stderr));
        begun.stdin.map_or(Ok(()), super::input::feed)
    }

    fn pass_outputs(&mut self, rank: u32, stdout: Source, stderr: Source) {
        let tag = self.arguments.tag_output.then(|| format!("[{rank}{}] ", self.on_host(rank, " on ")));
        let ended = self.outputs_end.subscribe();
        // Who wants to know who said what is told so of each line.
        let alike = tag.is_none().then(|| (rank, self.alike.clone()));
        let (to_stdout, to_stderr) = (self.console.stdout.clone(), self.console.stderr.clone());
        self.outputs.spawn(output::pass_lines(stdout, to_stdout, (tag.clone(), None), ended.clone()));
        self.outputs.spawn(output::pass_lines(stderr, to_stderr, (tag, alike), ended));
    }

    /// Until the last rank has ended, or cannot be ended.
    async fn listen(&mut self) {
        while self.ranks.iter().any(|rank| !rank.has_ended) {
            let condemned = self.condemned.iter().map(|(_, deadline)| *deadline).min();
            let deadlines = [self.ending.deadline(), self.timeout, condemned, self.watchdog.deadline()];
            let deadline = deadlines.into_iter().flatten().min();
            let action = tokio::select! {
                Some(happening) = self.happenings.recv() => self.handle_happening(happening),
                Some(signal) = self.signals.recv() => self.handle_signal(signal),
                Some(question) = next_question(&mut self.questions) => {
                    self.handle_question(question, Instant::now());
                    Action::Wait
                }
                () = wait_until(deadline) => self.handle_time(Instant::now()),
            };
            self.look_at_answers(Instant::now());
            let action = self.pass_messages(action);
            match action {
                Action::Wait => {}
                Action::Terminate => {
                    self.forget_unready();
                    self.signal_all(Signal::TERM);
                }
                Action::Kill => {
                    self.forget_unready();
                    self.signal_all(Signal::KILL);
                }
                Action::GiveUp => {
                    self.console.say(&format!("{} cannot be killed; leaving", self.unfinished()));
                    return;
                }
            }
        }
    }

    /// Gives the ranks what there is to tell them. Who does not read it has failed.
    fn pass_messages(&mut self, mut action: Action) -> Action {
        while let Some((rank, message)) = self.rendezvous.poll_message() {
            let site = &mut self.sites[self.plan.machine_of(rank) as usize];
            // A stopped rank is asked a few times, and goes on as if it had been asked as often as the others.
            if matches!(message, ToRank::Inquire { .. }) && !site.ask(rank) {
                continue;
            }
            let mut line = serde_json::to_vec(&message).expect("these messages have only names as keys");
            line.push(b'\n');
            if let Err(deaf) = site.tell(rank, line) {
                let next = self.handle_event(rank, Event::Violation(Violation::Deaf { waiting: deaf.waiting }));
                action = if next == Action::Wait { action } else { next };
            }
        }
        action
    }

    fn handle_happening(&mut self, happening: Happening) -> Action {
        match happening {
            Happening::Rank(rank, event) => self.handle_event(rank, event),
            Happening::Far(frame) => self.handle_frame(frame, Instant::now()),
            Happening::Said(line) => {
                self.console.say_of_host(&line);
                Action::Wait
            }
        }
    }

    fn handle_event(&mut self, rank: u32, event: Event) -> Action {
        let now = Instant::now();
        let failure = match event {
            Event::Line(line) => self.rendezvous.handle_line(rank, &line, now),
            Event::Violation(violation) => Some(self.rendezvous.handle_violation(rank, &violation)),
            Event::Ended(how) => {
                tracing::debug!(rank, %how, "ended");
                self.ranks[rank as usize].has_ended = true;
                self.watchdog.handle_end(rank);
                self.rendezvous.handle_end(rank, how)
            }
        };
        failure.map_or(Action::Wait, |failure| self.handle_failure(failure, now))
    }

    fn handle_failure(&mut self, failure: Failure, now: Instant) -> Action {
        // What we brought about ourselves is no news.
        let is_forced = self.ending.is_forced();
        let (is_news, action) = self.ending.handle_cause(Cause::Failure { status: failure.status }, now);
        let survivors_go_on = self.ending.survivors_go_on();
        if survivors_go_on {
            self.end_with(&failure, now);
        }
        let is_told = is_news || (!is_forced && failure.has_reason);
        if is_told && (survivors_go_on || self.reasons.take(failure.rank, &failure.how)) {
            let node = self.plan.node_of_rank[failure.rank as usize];
            let pid = self.ranks[failure.rank as usize].pid;
            let host = self.on_host(failure.rank, ", host ");
            let then = match (is_news, survivors_go_on) {
                (true, true) => self.consequence(&failure, node),
                (true, false) => "; ending the job".to_owned(),
                (false, _) => String::new(),
            };
            self.console.say(&format!("rank {} (node {node}{host}, pid {pid}) {}{then}", failure.rank, failure.how));
        }
        self.failure.get_or_insert(failure);
        action
    }

    /// What a failure means for the others, where they go on.
    fn consequence(&self, failure: &Failure, node: u32) -> String {
        let taken_along = match &failure.taken_along[..] {
            [] => String::new(),
            ranks => format!(", and takes {} of node {node} along, whose server it hosted", units::ranks(ranks)),
        };
        let is_gone = |rank: u32| rank == failure.rank || failure.taken_along.contains(&rank);
        let goes_on = self.ranks.iter().zip(0..).any(|(running, rank)| !running.has_ended && !is_gone(rank));
        let others = if goes_on { "the others go on" } else { "nobody is left" };
        format!("{taken_along}; {others}")
    }

    /// Ends the ranks that cannot go on after a failure. One that gave up by itself has a moment to say why.
    fn end_with(&mut self, failure: &Failure, now: Instant) {
        for rank in &failure.taken_along {
            self.signal(*rank, Signal::KILL);
        }
        if !self.ranks[failure.rank as usize].has_ended {
            self.condemned.push((failure.rank, now + self.ending.report()));
        }
    }

    fn handle_signal(&mut self, signal: i32) -> Action {
        let (first, action) = self.ending.handle_cause(Cause::Interrupted { signal }, Instant::now());
        if first {
            let name = signal_name(signal).unwrap_or("a signal");
            self.console.say(&format!("interrupted by {name}; ending the job"));
        }
        action
    }

    fn handle_time(&mut self, now: Instant) -> Action {
        if self.timeout.is_some_and(|timeout| timeout <= now) {
            self.timeout = None;
            let (first, action) = self.ending.handle_cause(Cause::Timeout, now);
            if first {
                let seconds = self.arguments.timeout.unwrap_or_default().as_secs_f64();
                let unfinished = self.unfinished();
                self.console
                    .say(&format!("the job did not finish within {seconds} s: {unfinished} still running; ending it"));
            }
            return action;
        }
        if self.watchdog.is_due(now) {
            self.ask_ranks(now);
        }
        for (rank, _) in self.condemned.extract_if(.., |(_, deadline)| *deadline <= now).collect::<Vec<_>>() {
            self.signal(rank, Signal::KILL);
        }
        self.ending.handle_deadline(now)
    }

    /// "rank 3" or "ranks 0-2, 5".
    fn unfinished(&self) -> String {
        let unfinished = self.ranks.iter().zip(0..).filter(|(rank, _)| !rank.has_ended);
        units::ranks(&unfinished.map(|(_, rank)| rank).collect::<Vec<_>>())
    }

    /// Sends a signal to the process group of a rank.
    fn signal(&self, rank: u32, signal: Signal) {
        self.sites[self.plan.machine_of(rank) as usize].signal(rank, signal);
    }

    /// Sends a signal to the process groups of all ranks, also of those that ended: something of theirs may be left.
    fn signal_all(&self, signal: Signal) {
        (0..self.plan.ranks()).for_each(|rank| self.signal(rank, signal));
    }

    /// Passes on the last output, prints the statistics, and closes.
    async fn finish(mut self) -> i32 {
        self.sites.iter_mut().for_each(Site::bury);
        for line in self.reasons.said_by_several() {
            self.console.say(&line);
        }
        self.outputs_end.send_replace(true);
        let status = self.ending.status();
        let is_patient = matches!(self.ending.cause(), None | Some(Cause::Failure { .. }));
        let mut signals = std::mem::replace(&mut self.signals, mpsc::channel(1).1);
        let last_words = async {
            self.close_sites().await;
            while self.outputs.join_next().await.is_some() {}
            if self.arguments.wants_stats() {
                let outcome = Outcome { status, failure: self.failure.as_ref().map(Into::into) };
                let time = self.rendezvous.time_in_job();
                let traffic = self.rendezvous.take_traffic();
                let mut report = stats::Report::new(&self.plan.node_of_rank, traffic, time, outcome);
                report.network = stats::network_totals(&self.rendezvous.take_network());
                show(&report, self.arguments, &self.console.stdout, &self.console.stderr);
            }
            self.console.close().await;
        };
        tokio::select! {
            () = last_words => {}
            // Whoever reads our output may be slow on purpose, but not against the user's will.
            Some(_) = signals.recv() => {}
            () = tokio::time::sleep(FLUSH), if !is_patient => {}
        }
        status
    }
}

/// Prints the statistics and writes the heat map.
fn show(report: &stats::Report, arguments: &RunArguments, stdout: &Sink, stderr: &Sink) {
    let default = || format!("longarm-stats-{}", std::process::id()).into();
    let prefix = arguments.stats_file.clone().unwrap_or_else(default);
    let files = stats::write_files(report, &prefix);
    if arguments.json {
        stdout.say(report.to_json(&files));
    } else {
        stderr.say(stats::table::render(report));
    }
    for file in files {
        let path = file.path.display();
        match file.error {
            None if arguments.json => {}
            None => stderr.say(format!("longarm: {} is in {path}\n", file.what)),
            Some(error) => stderr.say(format!("longarm: {path} cannot be written: {error}\n")),
        }
    }
}

/// How many messages may wait for a rank: all cards and all deaths twice over, and some questions.
fn messages_max(plan: &Plan) -> usize {
    2 * (plan.ranks() as usize + plan.nodes as usize) + 64
}

/// Turns the signals that end programs into numbers in a channel. Those that were ignored when the launcher started
/// (nohup) stay ignored.
fn forward_signals() -> io::Result<mpsc::Receiver<i32>> {
    let (sender, receiver) = mpsc::channel(8);
    let ignored = ignored_signals();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let number = kind.as_raw_value();
        if ignored & (1 << (number - 1)) != 0 {
            continue;
        }
        let mut signal = tokio::signal::unix::signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move { while signal.recv().await.is_some() && sender.send(number).await.is_ok() {} });
    }
    Ok(receiver)
}

/// One bit a signal, the lowest for signal 1.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// 256 random bits in hexadecimal.
fn secret() -> io::Result<String> {
    let bytes: [u8; 32] = random()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// Never, where nobody can ask.
async fn next_question(questions: &mut Option<mpsc::Receiver<Question>>) -> Option<Question> {
    match questions {
        Some(questions) => questions.recv().await,
        None => std::future::pending().await,
    }
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_256_bits_and_is_never_the_same() {
        let (one, other) = (secret().unwrap(), secret().unwrap());
        assert_eq!((one.len(), other.len()), (64, 64));
        assert_ne!(one, other);
    }
}
