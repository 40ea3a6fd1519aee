//! The ranks that are children of this process: those of the launcher on its own machine, and those of an agent on its.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;

use rustix::process::{Pid, Signal};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::child::{self, Placement, Started, Template};
use super::watch::{Happening, send_messages, watch_rank};

/// See the module.
#[derive(Debug)]
pub struct Here {
    ranks: BTreeMap<u32, Own>,
    guardian: Arc<OwnedFd>,
}

#[derive(Debug)]
struct Own {
    process: Child,
    messages: mpsc::Sender<Vec<u8>>,
}

/// What has to be connected when a rank was started.
#[derive(Debug)]
pub struct Begun {
    /// Its process.
    pub pid: u32,
    /// What it writes.
    pub stdout: ChildStdout,
    /// The same.
    pub stderr: ChildStderr,
    /// What it reads, where it reads anything.
    pub stdin: Option<ChildStdin>,
}

/// A rank that does not read what the launcher tells it.
#[derive(Clone, Copy, Debug)]
pub struct Deaf {
    /// How many messages wait.
    pub waiting: usize,
}

impl Here {
    /// Nobody yet. The guardian knows of all that are started, until they are collected.
    pub fn new(guardian: Arc<OwnedFd>) -> Here {
        Here { ranks: BTreeMap::new(), guardian }
    }

    /// Starts a rank, and the tasks that serve its socket. What it does comes out of the channel.
    ///
    /// # Errors
    /// What the system says. The rank is known even so if it runs.
    pub fn start(
        &mut self,
        template: &Template<'_>,
        place: Placement,
        messages_max: usize,
        happenings: &mpsc::Sender<Happening>,
    ) -> io::Result<Begun> {
        let Started { mut process, pidfd, control } = child::start_rank(template, place)?;
        let (rank, pid) = (place.rank, process.id());
        tracing::debug!(rank, node = place.node, pid, "started");
        let stdin = process.stdin.take();
        let outputs = (process.stdout.take(), process.stderr.take());
        let (Some(stdout), Some(stderr)) = outputs else { unreachable!("every rank has pipes for its outputs") };
        let (messages, receiver) = mpsc::channel(messages_max);
        // First of all, so that whatever fails from here on, the process is known and ended.
        self.ranks.insert(rank, Own { process, messages });
        let (lines, replies) = UnixStream::from_std(control)?.into_split();
        tokio::spawn(watch_rank(rank, pidfd, lines, happenings.clone()));
        tokio::spawn(send_messages(replies, receiver));
        Ok(Begun { pid, stdout, stderr, stdin })
    }

    /// Has a rank told a line.
    ///
    /// # Errors
    /// When too many wait for it.
    pub fn tell(&self, rank: u32, line: Vec<u8>) -> Result<(), Deaf> {
        let Some(own) = self.ranks.get(&rank) else { return Ok(()) };
        match own.messages.try_send(line) {
            Err(TrySendError::Full(_)) => Err(Deaf { waiting: own.messages.max_capacity() }),
            // A rank that has ended needs no message.
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
        }
    }

    /// Whether more than half of the messages that may wait for a rank do.
    pub fn is_busy(&self, rank: u32) -> bool {
        let messages = self.ranks.get(&rank).map(|own| &own.messages);
        messages.is_some_and(|messages| messages.capacity() <= messages.max_capacity() / 2)
    }

    /// Sends a signal to the process group of a rank.
    pub fn signal(&self, rank: u32, signal: Signal) {
        let Some(own) = self.ranks.get(&rank) else { return };
        // Fails when the group is empty, which is what we want.
        let _ = rustix::process::kill_process_group(Pid::from_child(&own.process), signal);
    }

    /// Sends a signal to the process groups of all ranks, also of those that ended and were not collected: something of theirs may be left.
    pub fn signal_all(&self, signal: Signal) {
        self.ranks.keys().for_each(|rank| self.signal(*rank, signal));
    }

    /// Whether the process of a rank is stopped.
    pub fn is_stopped(&self, rank: u32) -> bool {
        let Some(own) = self.ranks.get(&rank) else { return false };
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", own.process.id())).unwrap_or_default();
        // The name of the program stands in brackets and may contain anything.
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        matches!(state, Some('T' | 't'))
    }

    /// Collects the processes that have ended, and knows them no more: from now on their numbers may be others'.
    pub fn bury(&mut self) {
        let guardian = &self.guardian;
        self.ranks.retain(|_, own| matches!(child::collect(&mut own.process, guardian), Ok(None)));
    }

    /// Kills all, and waits until they are gone.
    pub fn end(&mut self) {
        self.signal_all(Signal::KILL);
        for mut own in std::mem::take(&mut self.ranks).into_values() {
            child::end(&mut own.process, &self.guardian);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_collected_rank_is_known_no_more_and_the_guardian_hears_of_it_before() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let (told, guardian) = rustix::pipe::pipe().unwrap();
        let guardian = Arc::new(guardian);
        let command = [OsString::from("true")];
        let template = Template {
            path: Path::new("/bin/true"),
            command: &command,
            ranks: 1,
            guardian: Arc::clone(&guardian),
            descriptors: None,
            debugger: false,
            environment: None,
        };
        let place = Placement { rank: 0, node: 0, processor: None, reads_stdin: false };
        let mut here = Here::new(guardian);
        let begun = here.start(&template, place, 1, &mpsc::channel(9).0).unwrap();
        while !here.ranks.is_empty() {
            here.bury();
        }
        let mut words = [0; 8];
        assert_eq!(rustix::io::read(&told, &mut words[..]), Ok(8));
        let pid = begun.pid as i32;
        assert_eq!(words, [pid.to_le_bytes(), (-pid).to_le_bytes()].concat()[..]);
        drop(template);
        drop(here);
        assert_eq!(rustix::io::read(&told, &mut words[..]), Ok(0), "and no more");
    }
}
