//! A rank's side of the conversation with its launcher.
//!
//! One thread reads: it notes deaths, hands cards to those who asked, tells the launcher who waits in a call, and ends the
//! process when the launcher is gone.
//! A process that nobody launched has no launcher and is a world of one.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::control::{CONTROL_FD_VARIABLE, CONTROL_VERSION, FromRank, NodeCard, PeerTraffic, Start, ToRank};
use super::{OnDeath, OnInquiry, Rendezvous};
use crate::error::InitError;

/// How long the launcher may take to tell of a death that shows already.
const NEWS: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Heard {
    cards: HashMap<u32, NodeCard>,
    goodbye: bool,
    died: Vec<(u32, String)>,
    on_death: Option<OnDeath>,
    on_inquiry: Option<OnInquiry>,
}

/// See the module.
pub(crate) struct Launcher {
    writer: Mutex<UnixStream>,
    /// What it said at the start.
    start: OnceLock<Start>,
    heard: Mutex<Heard>,
    changed: Condvar,
}

impl Launcher {
    /// The launcher that started this process, if one did, and what it says of the job.
    pub(crate) fn find() -> Result<Option<(Arc<Launcher>, Start)>, InitError> {
        let Some(number) = std::env::var_os(CONTROL_FD_VARIABLE) else { return Ok(None) };
        let number = number.to_str().and_then(|number| number.parse().ok());
        let number = number.ok_or(InitError::BadControlVariable)?;
        let socket: OwnedFd = longarm_memory::adopt_descriptor(number).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput if number > 2 => InitError::JoinedBefore,
            _ => InitError::BadControlVariable,
        })?;
        let stream = UnixStream::from(socket);
        let mut reader = BufReader::new(stream.try_clone().map_err(InitError::Launcher)?);
        let launcher = Arc::new(Launcher {
            writer: Mutex::new(stream),
            start: OnceLock::new(),
            heard: Mutex::new(Heard::default()),
            changed: Condvar::new(),
        });
        launcher.say(&FromRank::Join { version: CONTROL_VERSION, pid: std::process::id() })?;
        let start = match read(&mut reader)? {
            ToRank::Start(start) if start.version == CONTROL_VERSION => *start,
            ToRank::Start(start) => return Err(InitError::LauncherVersion { found: start.version }),
            _ => return Err(InitError::LauncherGarbled),
        };
        let start = launcher.start.get_or_init(|| start).clone();
        let listener = Arc::clone(&launcher);
        std::thread::Builder::new()
            .name("longarm-control".into())
            .spawn(move || listener.listen(reader))
            .map_err(InitError::Launcher)?;
        Ok(Some((launcher, start)))
    }

    fn say(&self, message: &FromRank) -> Result<(), InitError> {
        let mut line = serde_json::to_vec(message).map_err(|_| InitError::LauncherGarbled)?;
        line.push(b'\n');
        self.writer.lock().write_all(&line).map_err(InitError::Launcher)
    }

    /// The rank that hosts the server of a node, and tells how it is reached.
    fn host_of(&self, node: u32) -> Option<u32> {
        let nodes = &self.start.get()?.node_of_rank;
        nodes.iter().position(|own| *own == node).map(|rank| rank as u32)
    }

    /// How the host of a node's server died, if it is known to be dead.
    fn death_of_host(&self, heard: &Heard, node: u32) -> Option<(u32, String)> {
        let host = self.host_of(node);
        heard.died.iter().find(|(rank, _)| Some(*rank) == host).cloned()
    }

    fn listen(&self, mut reader: BufReader<UnixStream>) {
        loop {
            let message = match read(&mut reader) {
                Ok(message) => message,
                // Without a launcher nobody would end this process: it ends itself. After goodbye that is normal.
                Err(_) if self.heard.lock().goodbye => return,
                Err(_) => {
                    eprintln!("longarm: the launcher is gone, this rank ends");
                    // At once: what the program does at its exit may wait for others, and nobody tells of their end now.
                    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
                    std::process::exit(1);
                }
            };
            let mut heard = self.heard.lock();
            match message {
                ToRank::Card { card } => {
                    heard.cards.insert(card.node, card);
                }
                ToRank::Died { rank, how } => {
                    heard.died.push((rank, how.clone()));
                    // Before anybody is told: who waits for a card may hold what the telling needs.
                    self.changed.notify_all();
                    if let Some(on_death) = heard.on_death.clone() {
                        // Not under the lock: whoever is told may ask for a card.
                        parking_lot::MutexGuard::unlocked(&mut heard, || on_death(rank, &how));
                    }
                }
                ToRank::Inquire { inquiry } => {
                    // Without a world yet this rank waits in no call of it.
                    let on_inquiry = heard.on_inquiry.clone();
                    parking_lot::MutexGuard::unlocked(&mut heard, || {
                        let waits = on_inquiry.map(|on_inquiry| on_inquiry()).unwrap_or_default();
                        // A launcher that is gone is noticed by the next read.
                        let _ = self.say(&FromRank::Waits { inquiry, waits });
                    });
                }
                ToRank::Goodbye => heard.goodbye = true,
                ToRank::Start(_) => tracing::warn!("the launcher started this rank twice"),
            }
            self.changed.notify_all();
        }
    }
}

impl Rendezvous for Launcher {
    fn tells_deaths(&self) -> bool {
        true
    }

    fn watch_deaths(&self, on_death: OnDeath) {
        let mut heard = self.heard.lock();
        for (rank, how) in &heard.died {
            on_death(*rank, how);
        }
        heard.on_death = Some(on_death);
    }

    fn explains_deaths(&self) -> bool {
        true
    }

    fn answer_inquiries(&self, on_inquiry: OnInquiry) {
        self.heard.lock().on_inquiry = Some(on_inquiry);
    }

    fn publish(&self, card: Option<NodeCard>) -> Result<(), InitError> {
        card.map_or(Ok(()), |card| self.say(&FromRank::Publish { card }))
    }

    fn card(&self, node: u32) -> Result<NodeCard, InitError> {
        let mut heard = self.heard.lock();
        if let Some(card) = heard.cards.get(&node) {
            return Ok(card.clone());
        }
        self.say(&FromRank::Fetch { node })?;
        loop {
            if let Some(card) = heard.cards.get(&node) {
                return Ok(card.clone());
            }
            if let Some((rank, how)) = self.death_of_host(&heard, node) {
                return Err(InitError::Died { rank, how });
            }
            self.changed.wait(&mut heard);
        }
    }

    fn death_of_server(&self, node: u32) -> Option<(u32, String)> {
        let until = Instant::now() + NEWS;
        let mut heard = self.heard.lock();
        loop {
            let died = self.death_of_host(&heard, node);
            if died.is_some() || self.changed.wait_until(&mut heard, until).timed_out() {
                return died;
            }
        }
    }

    fn leave(&self, traffic: Vec<PeerTraffic>) {
        if self.say(&FromRank::Leave { traffic }).is_err() {
            return;
        }
        let survivors_go_on = self.start.get().is_some_and(|start| start.survivors_go_on);
        let mut heard = self.heard.lock();
        while !heard.goodbye && (survivors_go_on || heard.died.is_empty()) {
            self.changed.wait(&mut heard);
        }
    }

    fn abort(&self, reason: &str, status: i32) {
        let _ = self.say(&FromRank::Abort { reason: reason.to_owned(), status });
    }
}

fn read(reader: &mut BufReader<UnixStream>) -> Result<ToRank, InitError> {
    let mut line = String::new();
    let bytes = reader.read_line(&mut line).map_err(InitError::Launcher)?;
    if bytes == 0 {
        return Err(InitError::Launcher(std::io::ErrorKind::UnexpectedEof.into()));
    }
    serde_json::from_str(&line).map_err(|_| InitError::LauncherGarbled)
}
