//! The loop's part in what happens on other hosts.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longarm::config::Config;
use longarm_control::agent::{AGENT_VERSION, Branch, FromAgent, Setup, Stream};
use tokio::sync::{Semaphore, mpsc};

use super::{Action, Cause, Event, Happening, Here, Site, Source, Supervisor, Template, messages_max};
use crate::cli::Bind;
use crate::run::far::{FarInput, FarOutput};
use crate::run::hosts::{told, told_with_ranks};
use crate::run::input;
use crate::run::link::{self, Link, Opening};
use longarm_control::rendezvous::Violation;

/// Variables that belong to a host and the session there. Ranks get those of the host that they run on.
const OF_THE_HOST: [&str; 20] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "HOME",
    "HOST",
    "HOSTNAME",
    "LOGNAME",
    "MAIL",
    "OLDPWD",
    "PWD",
    "SHELL",
    "SHLVL",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "STY",
    "TMUX",
    "USER",
    "WINDOWID",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_ID",
    "_",
];

impl Supervisor<'_> {
    /// Opens the places where ranks run: agents are started, and go on by themselves.
    pub(super) fn open_sites(
        &mut self,
        config: &Config,
        template: &Template<'_>,
        happenings: &mpsc::Sender<Happening>,
    ) {
        let mut links: Vec<Option<Link>> = vec![None; self.machines.len()];
        let setup = self.setup(config);
        let starts = Arc::new(Semaphore::new(link::STARTS_MAX));
        for branch in self.machines.branches(&self.plan) {
            self.branches.push(branch.clone());
            let link = Link::open(Opening {
                frames_max: link::frames_max(&branch, messages_max(&self.plan)),
                setup: Setup { branch: branch.clone(), ..setup.clone() },
                guardian: Arc::clone(&template.guardian),
                starts: Arc::clone(&starts),
                happenings: happenings.clone(),
            });
            self.unfinished.insert(branch.host);
            let mut ranks = Vec::new();
            branch.for_each(&mut |branch| {
                links[branch.host as usize] = Some(link.clone());
                ranks.extend(branch.ranks.iter().map(|(rank, _)| *rank));
            });
            ranks.into_iter().for_each(|rank| self.connect_far(rank, &link));
        }
        let here = || Site::Here(Here::new(Arc::clone(&template.guardian)));
        self.sites = links.into_iter().map(|link| link.map_or_else(here, Site::there)).collect();
    }

    fn setup(&self, config: &Config) -> Setup {
        let environment = std::env::vars_os().filter(|(name, _)| !OF_THE_HOST.iter().any(|own| name == own));
        let silence = config.silence_ms.saturating_add(config.reconnect_s.saturating_mul(1000));
        Setup {
            version: AGENT_VERSION,
            size: self.plan.ranks(),
            folder: std::env::current_dir().unwrap_or_else(|_| "/".into()).as_os_str().as_bytes().to_vec(),
            command: self.arguments.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            environment: environment
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .collect(),
            kept: OF_THE_HOST.iter().map(|name| (*name).to_owned()).collect(),
            is_bound: self.arguments.bind == Bind::Core,
            debugger: self.is_debugged,
            silence_ms: (!self.is_debugged).then_some(silence),
            starter: self.machines.starter().clone(),
            branch: Branch { host: 0, name: String::new(), ranks: Vec::new(), below: Vec::new() },
        }
    }

    /// Gets ready for what a rank of another host writes, and what it reads.
    fn connect_far(&mut self, rank: u32, link: &Link) {
        let (stdout, stdout_chunks) = FarOutput::new(link.clone(), rank, Stream::Stdout);
        let (stderr, stderr_chunks) = FarOutput::new(link.clone(), rank, Stream::Stderr);
        self.outputs_far.insert((rank, Stream::Stdout), stdout_chunks);
        self.outputs_far.insert((rank, Stream::Stderr), stderr_chunks);
        self.pass_outputs(rank, Source::Far(stdout), Source::Far(stderr));
        if rank == 0 {
            let (input, room) = FarInput::new(link.clone(), rank);
            self.input_room = Some(room);
            if let Err(error) = input::feed(input) {
                self.console.say(&format!("rank 0 gets no input: {error}"));
            }
        }
    }

    /// Something was said by an agent about what was given to it.
    pub(super) fn handle_frame(&mut self, frame: FromAgent, now: Instant) -> Action {
        match frame {
            FromAgent::Beat => {}
            FromAgent::Ready { host, processors } => {
                tracing::debug!(host = self.machines.name(host), ?processors, "its agent starts ranks");
                self.ready.insert(host);
                self.rendezvous.know_processors(host, processors);
            }
            FromAgent::Started { rank, pid } => self.know_process(rank, pid),
            FromAgent::Line { rank, line } => return self.handle_far_event(rank, Event::Line(line)),
            FromAgent::Broke { rank, waiting } => {
                let violation =
                    waiting.map_or(Violation::Endless, |waiting| Violation::Deaf { waiting: waiting as usize });
                return self.handle_far_event(rank, Event::Violation(violation));
            }
            FromAgent::Ended { rank, how } => return self.handle_far_event(rank, Event::Ended(how)),
            FromAgent::Output { rank, stream, bytes } => self.handle_output(rank, stream, bytes),
            FromAgent::InputRoom { .. } => self.input_room.iter().for_each(|room| room.add_permits(1)),
            FromAgent::Looked { rank, is_stopped } => {
                self.sites[self.plan.machine_of(rank) as usize].handle_look(rank);
                if is_stopped {
                    self.stopped.insert(rank);
                } else {
                    self.stopped.remove(&rank);
                }
            }
            FromAgent::Refused { host, status, reason } => return self.handle_refusal(host, status, &reason, now),
            FromAgent::Lost { host, reason } => return self.handle_lost_host(host, &reason, now),
            FromAgent::Finished { host } => {
                self.unfinished.remove(&host);
            }
        }
        Action::Wait
    }

    /// After its end nothing of a rank is of interest: what an agent says then is not what a sound one says.
    fn handle_far_event(&mut self, rank: u32, event: Event) -> Action {
        self.sites[self.plan.machine_of(rank) as usize].handle_word(rank);
        if self.ranks[rank as usize].has_ended { Action::Wait } else { self.handle_event(rank, event) }
    }

    fn handle_output(&mut self, rank: u32, stream: Stream, bytes: Vec<u8>) {
        let is_end = bytes.is_empty();
        let Some(chunks) = self.outputs_far.get(&(rank, stream)) else { return };
        // Whose reader is gone is told so by whoever read it. No sound agent sends more than there is room for.
        let is_taken = chunks.try_send(bytes).is_ok();
        if is_end || !is_taken {
            self.outputs_far.remove(&(rank, stream));
        }
    }

    /// Nothing can be started on a host, and so the job cannot.
    fn handle_refusal(&mut self, host: u32, status: i32, reason: &str, now: Instant) -> Action {
        let is_forced = self.ending.is_forced();
        let (_, action) = self.ending.handle_cause(Cause::NotStarted { status }, now);
        // Nobody was there: their ends are no news.
        let lost = self.forget_ranks(&self.hosts_with(host));
        if !is_forced {
            let host = told_with_ranks(self.machines.name(host), &lost);
            self.console.say(&format!("{host}: {reason}; ending the job"));
        }
        action
    }

    /// A host is gone, with its ranks and those of all hosts that were reached through it.
    fn handle_lost_host(&mut self, host: u32, reason: &str, now: Instant) -> Action {
        self.unfinished.remove(&host);
        let hosts = self.hosts_with(host);
        let lost = self.forget_ranks(&hosts);
        let name = self.machines.name(host).to_owned();
        let how = format!("was lost with host {name}");
        let mut action = Action::Wait;
        let is_news = !self.ending.is_forced() && !lost.is_empty();
        if is_news {
            let then = if self.ending.survivors_go_on() { "the others go on" } else { "ending the job" };
            let through: Vec<&str> =
                hosts.iter().filter(|other| **other != host).map(|host| self.machines.name(*host)).collect();
            let through =
                if through.is_empty() { String::new() } else { format!(", and through it {}", told(&through)) };
            self.console.say(&format!("{}{through} was lost: {reason}; {then}", told_with_ranks(&name, &lost)));
        }
        for rank in lost {
            let Some(failure) = self.rendezvous.handle_loss(rank, &how) else { continue };
            let (_, next) = self.ending.handle_cause(Cause::Failure { status: failure.status }, now);
            if self.ending.survivors_go_on() {
                self.end_with(&failure, now);
            }
            action = if next == Action::Wait { action } else { next };
            self.failure.get_or_insert(failure);
        }
        action
    }

    /// The ranks of hosts have ended as far as anybody can know. Gives those that had not before.
    fn forget_ranks(&mut self, hosts: &BTreeSet<u32>) -> Vec<u32> {
        let mut forgotten = Vec::new();
        for rank in 0..self.plan.ranks() {
            if !hosts.contains(&self.plan.machine_of(rank)) {
                continue;
            }
            self.outputs_far.remove(&(rank, Stream::Stdout));
            self.outputs_far.remove(&(rank, Stream::Stderr));
            if !std::mem::replace(&mut self.ranks[rank as usize].has_ended, true) {
                self.watchdog.handle_end(rank);
                forgotten.push(rank);
            }
        }
        forgotten
    }

    /// The job ends: ranks of hosts that are not there yet are never started, or ended without a word.
    pub(super) fn forget_unready(&mut self) {
        let unready = (0..self.machines.len() as u32).filter(|host| !self.machines.is_here(*host));
        let unready = unready.filter(|host| !self.ready.contains(host)).collect();
        self.forget_ranks(&unready);
    }

    /// A host and all that are reached through it.
    fn hosts_with(&self, host: u32) -> BTreeSet<u32> {
        let mut hosts = BTreeSet::from([host]);
        for branch in &self.branches {
            branch.for_each(&mut |branch: &Branch| {
                if branch.host == host {
                    hosts.extend(branch.hosts());
                }
            });
        }
        hosts
    }

    /// Has the agents pass on what is left and end. Those that are not there yet are not waited for.
    pub(super) async fn close_sites(&mut self) {
        for site in &self.sites {
            site.finish();
        }
        while !self.unfinished.is_empty() {
            let Some(happening) = self.happenings.recv().await else { return };
            if let Happening::Far(frame) = happening {
                match frame {
                    FromAgent::Output { rank, stream, bytes } => self.handle_output(rank, stream, bytes),
                    FromAgent::Finished { host } => {
                        self.unfinished.remove(&host);
                    }
                    FromAgent::Lost { host, .. } => {
                        self.forget_ranks(&self.hosts_with(host));
                        self.unfinished.remove(&host);
                    }
                    _ => {}
                }
            }
        }
        self.outputs_far.clear();
        if self.branches.is_empty() {
            return;
        }
        // What led to the agents ends with them, and is not left behind.
        let mut sites = std::mem::take(&mut self.sites);
        sites.clear();
        let _ = tokio::time::timeout(TRANSPORTS_END, async { while self.happenings.recv().await.is_some() {} }).await;
    }
}

/// How long what leads to agents has to end at the end of a job.
const TRANSPORTS_END: Duration = Duration::from_secs(2);
