//! A rank of a job that something else has started: how it comes in, and what it does when the job ends.
//!
//! ```text
//!   manager: rank, size ──▶ rank 0 listens ──▶ invitation, by the manager ──▶ all meet at the coordinator
//! ```

use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use longarm_control::coordinator::Settings;
use longarm_control::desk::FLUSH;
use longarm_control::invitation::Invitation;
use longarm_control::messages::Start;
use longarm_control::proof::Ticket;
use parking_lot::Mutex;

use super::addresses;
use super::assembly::{self, Assembly, Behind, CoordinatorAddress};
use super::coordinator::{CoordinatorThread, OnEnd, is_stopped, own_command};
use super::launcher::{Launcher, Patron, is_end};
use super::listening::listen_to;
use super::neighbours::Neighbours;
use super::node::raise_descriptor_limit;
use super::own_end::{self, LAUNCHER_GRACE};
use super::relay::RelayThread;
use super::rendezvous::Found;
use super::serving::Turns;
use super::starter::StarterWatch;
use crate::config::{Config, InterfaceChoice, OnFailure};
use crate::error::InitError;
use crate::topology;

/// Whoever has started the processes of a job, seen from one of them. All that is asked of it is this.
pub(crate) trait Manager: Send + Sync {
    /// This process's rank, from 0.
    fn rank(&self) -> u32;

    /// How many ranks the job has.
    fn size(&self) -> u32;

    /// Whether all of them run on one machine, if it says so. Collective.
    fn is_on_one_machine(&self) -> Result<Option<bool>, String>;

    /// Rank 0 brings a text, and all get it. Collective.
    fn share(&self, text: Option<String>) -> Result<String, String>;

    /// Which of the processes of the job on this host this one is, if it says so. They are in the order of their ranks.
    fn neighbours(&self) -> Option<Neighbours> {
        None
    }

    /// All ranks have met: nobody asks for the text any more.
    fn all_have_come(&self) {}

    /// Ends the whole job. `false`: it cannot.
    fn abort(&self, status: i32) -> bool;

    /// Rank 0 is gone, and the job with it, which nobody may have told whoever has started it.
    fn end_without_coordinator(&self) {}

    /// What ends with the manager's process on this host, if there is such a thing besides that process itself.
    fn connection(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// All have left the world.
    fn leave(&self) {}

    /// Whether this process asks for a new assembly each time that it joins a world.
    fn is_for_one_world(&self) -> bool {
        false
    }

    /// Whether the process that has started this one belongs to it, so that its end is that of the job.
    fn is_starter(&self) -> bool {
        true
    }
}

/// Joins the job of a manager. Collective over all its ranks.
///
/// # Errors
/// What the manager or the coordinator says, and who is missing.
pub(crate) fn join(manager: Arc<dyn Manager>, config: &mut Config) -> Result<Found, InitError> {
    let exchanged = |reason| InitError::Exchange { reason };
    let on_one_machine = manager.is_on_one_machine().map_err(exchanged)?;
    let mut coordinator = None;
    let mut text = None;
    if manager.rank() == 0 {
        let begun = begin(&*manager, on_one_machine, config).and_then(|(invitation, listeners)| {
            Ok((start_coordinator(listeners, &invitation.ticket, Some(&manager), config)?, invitation))
        });
        text = Some(match begun {
            Ok((started, invitation)) => {
                coordinator = Some(started);
                invitation.write()
            }
            // The others wait for a word.
            Err(error) => Invitation::write_refusal(&error.to_string()),
        });
    }
    let text = manager.share(text).map_err(exchanged)?;
    let invitation = Invitation::read(&text, manager.size()).map_err(|error| exchanged(error.to_string()))?;
    let (rank, neighbours, address) = (manager.rank(), manager.neighbours(), CoordinatorAddress::At(invitation.at));
    let (ticket, manager) = (invitation.ticket, Some(manager));
    enter(Entry { address, ticket, rank, neighbours, coordinator, manager }, config)
}

fn begin(
    manager: &dyn Manager,
    on_one_machine: Option<bool>,
    config: &Config,
) -> Result<(Invitation, Vec<TcpListener>), InitError> {
    let mut interfaces = match on_one_machine {
        Some(known) => addresses::addresses_to_listen_on(&config.interface, !known)?,
        // A machine may have no other address than its own.
        None => addresses::addresses_to_listen_on(&config.interface, true).unwrap_or_default(),
    };
    if on_one_machine.is_none() && config.interface == InterfaceChoice::Auto {
        interfaces.push(IpAddr::from([127, 0, 0, 1]).into());
    }
    let (mut listeners, mut at, mut refused) = (Vec::new(), Vec::new(), None);
    for interface in interfaces {
        match listen_to(interface.with_port(0)).and_then(|one| Ok((one.local_addr()?, one))) {
            Ok((address, listener)) => {
                at.push(address);
                listeners.push(listener);
            }
            Err(error) => refused = Some(error),
        }
    }
    if let Some(error) = refused.filter(|_| at.is_empty()) {
        return Err(InitError::Coordinator(error));
    }
    let mut random = [0; 40];
    getrandom::fill(&mut random).map_err(|_| InitError::Random)?;
    let (assembly, secret) = random.split_first_chunk().expect("there are 40 bytes");
    let secret = secret.try_into().expect("there are 32 behind the assembly's 8");
    let ticket = Ticket { assembly: u64::from_le_bytes(*assembly), size: manager.size(), secret };
    Ok((Invitation { ticket, at }, listeners))
}

/// Starts the coordinator of a job, in the process of its rank 0.
pub(crate) fn start_coordinator(
    listeners: Vec<TcpListener>,
    ticket: &Ticket,
    manager: Option<&Arc<dyn Manager>>,
    config: &Config,
) -> Result<CoordinatorThread, InitError> {
    let mut job = [0; 8];
    getrandom::fill(&mut job).map_err(|_| InitError::Random)?;
    // A connection of each rank.
    raise_descriptor_limit();
    let settings = Settings {
        ticket: ticket.clone(),
        job: u64::from_le_bytes(job),
        survivors_go_on: config.on_failure == OnFailure::Continue,
        arrival: Duration::from_secs(config.meet_timeout_s),
        proof: Duration::from_millis(config.handshake_timeout_ms),
        // Each rank may be about to prove itself.
        half_open_max: config.half_open_max as usize + ticket.size as usize,
        report: Duration::from_millis(config.report_ms),
        watchdog_s: if config.debugger { 0 } else { config.watchdog_s },
        pid: std::process::id(),
        command: own_command(),
        is_stopped,
    };
    let manager = manager.cloned();
    let on_end: OnEnd = Box::new(move |status| end_job(manager.as_deref(), status));
    CoordinatorThread::start(listeners, settings, on_end).map_err(InitError::Coordinator)
}

/// The job is over: the others have had the time to say why.
fn end_job(manager: Option<&dyn Manager>, status: i32) {
    own_end::end_after(LAUNCHER_GRACE, || ());
    own_end::let_output_be_read();
    if !manager.is_some_and(|manager| manager.abort(status)) {
        // Nobody else does: each rank ends itself.
        own_end::end_now();
    }
}

/// What a rank needs to come in.
pub(crate) struct Entry {
    pub(crate) address: CoordinatorAddress,
    pub(crate) ticket: Ticket,
    pub(crate) rank: u32,
    pub(crate) neighbours: Option<Neighbours>,
    pub(crate) coordinator: Option<CoordinatorThread>,
    pub(crate) manager: Option<Arc<dyn Manager>>,
}

/// Meets the others and joins their job. Collective.
pub(crate) fn enter(entry: Entry, config: &mut Config) -> Result<Found, InitError> {
    let Entry { address, ticket, rank, neighbours, coordinator, manager } = entry;
    let assembly = assembly::meet(&address, &ticket, rank, neighbours, config)?;
    let Assembly { reader, writer, host, on_several, relay, behind } = assembly;
    if let Some(manager) = &manager {
        manager.all_have_come();
    }
    let is_for_one_world = manager.as_ref().is_some_and(|manager| manager.is_for_one_world());
    let member = Member {
        rank,
        ticket,
        coordinator_host: on_several.then_some(host),
        behind,
        relay,
        report: Duration::from_millis(config.report_ms),
        coordinator,
        manager,
        watch: Mutex::new(None),
        launcher: Mutex::new(Weak::new()),
    };
    let (launcher, start) = Launcher::join(reader, writer, Box::new(member))?;
    if !is_for_one_world {
        launcher.keep();
    }
    Ok((Some(launcher), start))
}

/// The patron of such a rank.
struct Member {
    rank: u32,
    ticket: Ticket,
    /// Where rank 0 runs, if that is worth telling.
    coordinator_host: Option<String>,
    /// Another rank of its node, through which it speaks with rank 0.
    behind: Option<Behind>,
    /// Before the coordinator: what it passes on last goes there.
    relay: Option<RelayThread>,
    report: Duration,
    /// At rank 0.
    coordinator: Option<CoordinatorThread>,
    manager: Option<Arc<dyn Manager>>,
    watch: Mutex<Option<StarterWatch>>,
    /// The conversation that this is the patron of.
    launcher: Mutex<Weak<Launcher>>,
}

impl Member {
    /// Whoever has started this process is watched as long as it has a world.
    fn watch_starter(&self) {
        // A job of one may be a program that a shell has started, which goes on when the shell ends.
        let is_watched = |manager: &&Arc<dyn Manager>| self.ticket.size > 1 && manager.is_starter();
        let Some(manager) = self.manager.as_ref().filter(is_watched) else { return };
        let (rank, report, launcher) = (self.rank, self.report, self.launcher.lock().clone());
        let before_end = self.before_end();
        let on_orphaned = move || {
            // Should one of those wait who are told.
            own_end::end_after(report, || ());
            // The others hear it from the coordinator. This rank's output may have gone with whoever started it.
            let said = launcher.upgrade().map(|launcher| launcher.say_orphaned());
            own_end::say_last(&format!("rank {rank} ends: its process manager's process on this host is gone"));
            if said.is_some() {
                before_end.iter().for_each(|turns| turns.flush());
            }
            own_end::end_now();
        };
        match manager.connection().and_then(|connection| StarterWatch::begin(connection, on_orphaned)) {
            Ok(watch) => *self.watch.lock() = watch,
            Err(error) => tracing::warn!(%error, "the end of whoever started this rank will not be noticed"),
        }
    }

    /// The threads of this process through which its news go, in this order: to rank 0, and, if that is here, from there to those behind
    /// this process.
    fn before_end(&self) -> Vec<Arc<Turns>> {
        let relay = self.relay.as_ref().map(|relay| Arc::clone(relay.turns()));
        let coordinator = self.coordinator.as_ref().map(|coordinator| Arc::clone(coordinator.turns()));
        let back = relay.clone().filter(|_| coordinator.is_some());
        [relay, coordinator, back].into_iter().flatten().collect()
    }

    /// What has gone through this process is where it was to go.
    fn flush(&self) {
        self.before_end().iter().for_each(|turns| turns.flush());
    }

    fn watch_no_more(&self) {
        if let Some(watch) = self.watch.lock().take() {
            watch.end();
        }
    }

    /// The leader of this node is gone, and the node's server with it. The coordinator, which tells all others, does not reach this
    /// rank any more.
    fn handle_end_of_relay(&self, relay: u32, died: &[(u32, String)]) -> (u32, String) {
        // Of a death that is known the reason was said, by the rank itself or by the coordinator.
        let how = died.iter().find(|(rank, _)| *rank == relay).map(|(_, how)| how.clone()).unwrap_or_else(|| {
            let on_host = self.coordinator_host.as_ref().map(|_| format!(" (on host {})", topology::host_name()));
            let how = format!("has ended without finalizing{}", on_host.unwrap_or_default());
            let rank = self.rank;
            own_end::say_last(&format!(
                "rank {rank}: rank {relay}, the leader of its node, {how}; this rank cannot go on"
            ));
            how
        });
        own_end::end_after(self.report, || ());
        (relay, how)
    }
}

impl Patron for Member {
    fn accompany(&self, launcher: &Arc<Launcher>) {
        *self.launcher.lock() = Arc::downgrade(launcher);
    }

    fn complete(&self, start: &mut Start) {
        start.secret = Start::spell_secret(&self.ticket.job_secret(start.job));
        self.watch_starter();
    }

    fn on_hang_up(&self, died: &[(u32, String)]) -> Option<(u32, String)> {
        if let Some(behind) = self.behind.as_ref().filter(|behind| behind.has_ended()) {
            return Some(self.handle_end_of_relay(behind.rank, died));
        }
        let on_host = self.coordinator_host.as_ref().map(|host| format!(" (on host {host})")).unwrap_or_default();
        let known = died.iter().find(|(rank, _)| *rank == 0).map(|(_, how)| how.clone());
        let cut_off = if known.is_some() { "" } else { ", or has cut this rank off" };
        let how = known.unwrap_or_else(|| format!("has ended without finalizing{on_host}"));
        own_end::say_last(&format!("rank {}: rank 0 {how}{cut_off}; without it the job cannot go on", self.rank));
        own_end::end_after(self.report, || ());
        if let Some(manager) = &self.manager {
            manager.end_without_coordinator();
        }
        Some((0, how))
    }

    fn on_death(&self, _rank: u32, _how: &str) {
        // Rank 0's process has the manager end the job. Should it not, or should there be none:
        own_end::end_after(if self.manager.is_some() { LAUNCHER_GRACE } else { self.report }, || ());
    }

    fn on_no_start(&self, error: InitError) -> InitError {
        match (error, &self.behind) {
            (InitError::Launcher(error), Some(behind)) if is_end(&error) && behind.has_ended() => {
                InitError::Died { rank: behind.rank, how: "has ended without finalizing".to_owned() }
            }
            (error, _) => error,
        }
    }

    fn telling_patience(&self) -> Option<Duration> {
        // What rank 0's process says goes through it alone, which `flush` sees.
        (self.relay.is_some() && self.coordinator.is_none()).then_some(FLUSH)
    }

    fn after_goodbye(&self) {
        self.watch_no_more();
        // Those behind this process, first by way of the coordinator if that is here.
        if let Some(coordinator) = &self.coordinator {
            coordinator.turns().flush();
        }
        self.flush();
        if let Some(relay) = &self.relay {
            relay.await_others();
        }
        if let Some(manager) = &self.manager {
            manager.leave();
        }
    }

    fn forget_world(&self) {
        self.watch_no_more();
        if let (Some(coordinator), Some(manager)) = (&self.coordinator, &self.manager)
            && manager.is_for_one_world()
        {
            coordinator.stop();
        }
    }

    fn abort(&self, reason: &str, status: i32, follows: bool) {
        self.flush();
        // A launcher that is gone, or ends others only, leaves this process to itself.
        own_end::end_after(LAUNCHER_GRACE, || ());
        if follows {
            // Whom it follows has said why, and ends the job once that is read.
            std::thread::sleep(self.report);
        } else {
            own_end::say_last(&format!("rank {} ends the job: {reason}", self.rank));
        }
        own_end::let_output_be_read();
        if let Some(manager) = &self.manager {
            manager.abort(status);
        }
    }
}
