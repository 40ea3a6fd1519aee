//! What a rank does, as events: the lines it writes on its control socket, and its end.
//!
//! The end comes last: whatever the process wrote before it ended is read first, so a farewell that was still in the
//! socket is never taken for a death.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use longarm_control::agent::FromAgent;
use rustix::process::{WaitId, WaitIdOptions};
use tokio::io::AsyncWriteExt;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use longarm_control::how_ended::HowEnded;
use longarm_control::rendezvous::{LINE_BYTES_MAX, Violation};

/// Something a rank did.
#[derive(Debug)]
pub enum Event {
    /// It wrote a line, given here without its end.
    Line(Vec<u8>),
    /// It broke the rules of the socket itself.
    Violation(Violation),
    /// Its process ended.
    Ended(HowEnded),
}

/// What whoever looks after ranks hears.
#[derive(Debug)]
pub enum Happening {
    /// Something that a rank did which is a child of this process.
    Rank(u32, Event),
    /// What an agent on another host says. It is about ranks or hosts that were given to it.
    Far(FromAgent),
    /// A line for people about another host.
    Said(String),
}

/// Reports all that a rank does, until its process ends.
pub async fn watch_rank(rank: u32, pidfd: AsyncFd<OwnedFd>, control: OwnedReadHalf, events: mpsc::Sender<Happening>) {
    let mut lines = ControlLines { control, buffer: Vec::new(), searched: 0, is_open: true };
    loop {
        tokio::select! {
            biased;
            event = lines.next_event(), if lines.is_open => {
                if let Some(event) = event {
                    // The launcher's loop listens as long as a rank runs.
                    let _ = events.send(Happening::Rank(rank, event)).await;
                }
            }
            ready = pidfd.readable() => {
                drop(ready);
                break;
            }
        }
    }
    while let Some(event) = lines.next_event_now() {
        let _ = events.send(Happening::Rank(rank, event)).await;
    }
    if let Some(how) = how_ended(pidfd.get_ref()) {
        let _ = events.send(Happening::Rank(rank, Event::Ended(how))).await;
    }
}

/// Writes the launcher's messages, each a line, to a rank. A rank that does not read stops only this task.
pub async fn send_messages(mut control: OwnedWriteHalf, mut messages: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = messages.recv().await {
        if control.write_all(&line).await.is_err() {
            // The rank is gone, and its end is noticed elsewhere.
            return;
        }
    }
}

/// How a process ended that has ended. It is left a zombie. `None`: it was collected, by who wants to know no more of it.
fn how_ended(pidfd: &OwnedFd) -> Option<HowEnded> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let status = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), options).ok().flatten()?;
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => Some(HowEnded::Exited(status)),
        (None, Some(signal)) => Some(HowEnded::Killed(signal)),
        (None, None) => unreachable!("a process ends by exit or by a signal"),
    }
}

/// The lines that a rank writes on its control socket.
#[derive(Debug)]
struct ControlLines {
    control: OwnedReadHalf,
    buffer: Vec<u8>,
    /// Bytes of the buffer in which there is no end of a line.
    searched: usize,
    is_open: bool,
}

impl ControlLines {
    /// Waits for the next line. `None` when something came but no line is complete, or when the socket closed.
    /// Nothing is lost when the caller stops waiting.
    async fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.take_event() {
            return Some(event);
        }
        if self.control.readable().await.is_err() {
            self.is_open = false;
            return None;
        }
        self.read_available();
        self.take_event()
    }

    /// The next line that is already there. Asks the socket itself, because the runtime may not have heard of the
    /// last bytes yet.
    fn next_event_now(&mut self) -> Option<Event> {
        let mut chunk = [0; 4096];
        loop {
            if let Some(event) = self.take_event() {
                return Some(event);
            }
            match rustix::io::read(self.control.as_ref(), &mut chunk[..]) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) | Err(_) => return None,
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// Reads once what has come.
    fn read_available(&mut self) {
        self.buffer.reserve(4096);
        match self.control.try_read_buf(&mut self.buffer) {
            Ok(0) => self.is_open = false,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.is_open = false,
        }
    }

    fn take_event(&mut self) -> Option<Event> {
        let unknown = &self.buffer[self.searched..];
        if let Some(end) = unknown.iter().position(|byte| *byte == b'\n') {
            let rest = self.buffer.split_off(self.searched + end + 1);
            let mut line = std::mem::replace(&mut self.buffer, rest);
            line.pop();
            self.searched = 0;
            return Some(Event::Line(line));
        }
        self.searched = self.buffer.len();
        if self.buffer.len() > LINE_BYTES_MAX {
            self.buffer = Vec::new();
            self.searched = 0;
            self.is_open = false;
            return Some(Event::Violation(Violation::Endless));
        }
        None
    }
}
