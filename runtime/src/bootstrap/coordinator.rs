//! The thread of rank 0's process to which all ranks of a job connect that something else has started. What it says and decides
//! stands in `longarm_control::coordinator`; here are its sockets.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longarm_control::coordinator::{Coordinator, Effect, Settings};
use longarm_control::questions;
use longarm_memory::Unshared;
use longarm_netmod::{Interest, Poller, Ready};

use super::assembly::keep_alive;
use super::own_end;
use super::serving::{CHUNK_BYTES, FLUSH, NOTHING, REST, Serving, Turns, UNSENT_BYTES_MAX, send_unsent};

/// Who may ask at a time, how long they may take, and how much they may say.
const ASKERS_MAX: usize = 16;
const ASKER_PATIENCE: Duration = Duration::from_secs(5);
/// So many are taken in at each address before anything else is done.
const ACCEPTED_MAX: usize = 64;
const WAKER: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const QUESTIONS: u64 = u64::MAX - 2;
/// Numbers of those who ask begin here, and those of connections far below.
const ASKERS: u64 = 1 << 62;

/// What is done when the job is to be ended, with the status.
pub(crate) type OnEnd = Box<dyn Fn(i32) + Send>;

/// The thread, from outside. Dropped, it still tells the others why: whoever started it does not come into the job after all.
pub(crate) struct CoordinatorThread(Serving);

impl CoordinatorThread {
    /// Starts to serve whoever connects.
    pub(crate) fn start(
        listeners: Vec<TcpListener>,
        settings: Settings,
        on_end: OnEnd,
    ) -> io::Result<CoordinatorThread> {
        let turns = Turns::new()?;
        let desk = Desk::new(listeners, settings, Arc::clone(&turns), on_end)?;
        Ok(CoordinatorThread(Serving::start("longarm-coordinator", turns, move || desk.run())?))
    }

    /// What waits until all that was said to the coordinator before is done, and what it has to say is on its way.
    pub(crate) fn turns(&self) -> &Arc<Turns> {
        self.0.turns()
    }

    /// Ends the thread, and all connections with it.
    pub(crate) fn stop(&self) {
        self.0.stop();
    }
}

/// A connection, and what could not be sent yet.
struct Line {
    stream: Unshared<TcpStream>,
    unsent: Vec<u8>,
    /// Nothing is heard of it any more, and it is closed when all is sent, or then.
    closes: Option<Instant>,
}

/// Who asks, and what was heard.
struct Asker {
    stream: UnixStream,
    heard: Vec<u8>,
    until: Instant,
}

/// The thread's own.
struct Desk {
    poller: Poller,
    /// One for each address.
    listeners: Vec<Unshared<TcpListener>>,
    questions: Option<Unshared<UnixListener>>,
    coordinator: Coordinator,
    lines: HashMap<u64, Line>,
    /// Those with something unsent.
    behind: HashSet<u64>,
    /// Those that close, in this order. Some may be closed already.
    closing: VecDeque<(Instant, u64)>,
    askers: HashMap<u64, Asker>,
    next_asker: u64,
    /// Until when nobody is taken in.
    rests: Option<Instant>,
    turns: Arc<Turns>,
    on_end: OnEnd,
}

impl Desk {
    fn new(listeners: Vec<TcpListener>, settings: Settings, turns: Arc<Turns>, on_end: OnEnd) -> io::Result<Desk> {
        let poller = Poller::new()?;
        // A child of a fork that outlives this process would keep the ports, and the connections of those who wait for its end.
        let listeners: Vec<_> = listeners.into_iter().map(Unshared::new).collect::<io::Result<_>>()?;
        for listener in &listeners {
            listener.set_nonblocking(true)?;
            poller.add(listener, LISTENER, Interest::READABLE)?;
        }
        poller.add(turns.waker().descriptor(), WAKER, Interest::READABLE)?;
        let questions = listen_to_questions(settings.pid);
        let questions = questions.inspect_err(|error| tracing::warn!(%error, "longarm ps will not find this job")).ok();
        if let Some(questions) = &questions {
            poller.add(questions, QUESTIONS, Interest::READABLE)?;
        }
        Ok(Desk {
            poller,
            listeners,
            questions,
            coordinator: Coordinator::new(settings, Instant::now()),
            lines: HashMap::new(),
            behind: HashSet::new(),
            closing: VecDeque::new(),
            askers: HashMap::new(),
            next_asker: ASKERS,
            rests: None,
            turns,
            on_end,
        })
    }

    fn run(mut self) {
        let mut ready = Vec::new();
        while !self.turns.stops() {
            let rest = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
            if let Err(error) = self.poller.wait(&mut ready, rest) {
                own_end::say_last(&format!("the coordinator of this job can hear nothing any more: {error}"));
                break;
            }
            // As long as ranks come: what they have sent is read before it is said that they were too slow.
            let may_be_more = ready.len() >= Poller::READY_MAX && self.coordinator.is_open();
            for one in std::mem::take(&mut ready) {
                self.handle_ready(one);
            }
            let now = Instant::now();
            self.handle_time(now);
            if !may_be_more && self.coordinator.deadline().is_some_and(|at| at <= now) {
                self.coordinator.handle_time(now);
            }
            self.do_effects();
            // Nobody is let in any more: whoever tries hears so at once.
            if !self.coordinator.is_open() {
                self.listeners.clear();
            }
            self.turns.end_turn(!self.behind.is_empty());
        }
        self.turns.end();
    }

    fn deadline(&self) -> Option<Instant> {
        let askers = self.askers.values().map(|asker| asker.until).min();
        let closing = self.closing.front().map(|(until, _)| *until);
        [self.coordinator.deadline(), askers, closing, self.rests].into_iter().flatten().min()
    }

    /// Whoever has had his time is let go of, and those who wait are taken in again.
    fn handle_time(&mut self, now: Instant) {
        self.askers.retain(|_, asker| asker.until > now);
        while let Some((_, number)) = self.closing.front().copied().filter(|(until, _)| *until <= now) {
            self.closing.pop_front();
            self.remove(number);
        }
        if self.rests.take_if(|until| *until <= now).is_some() {
            self.watch_listeners(Interest::READABLE);
        }
    }

    fn remove(&mut self, number: u64) {
        self.lines.remove(&number);
        self.behind.remove(&number);
    }

    /// Nobody could be taken in.
    fn handle_not_taken_in(&mut self, error: &io::Error, now: Instant) {
        // Those hang up before their turn, and are not announced again.
        if !matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
        ) {
            tracing::warn!(%error, "a connection to the coordinator cannot be taken in now");
            self.watch_listeners(NOTHING);
            self.rests = Some(now + REST);
        }
    }

    fn watch_listeners(&self, interest: Interest) {
        for listener in &self.listeners {
            // What cannot be watched lets nobody in: who waits there hears so when his time is over.
            let _ = self.poller.modify(listener, LISTENER, interest);
        }
        if let Some(questions) = &self.questions {
            let _ = self.poller.modify(questions, QUESTIONS, interest);
        }
    }

    fn handle_ready(&mut self, ready: Ready) {
        match ready.token {
            WAKER => self.turns.waker().clear(),
            LISTENER => self.accept(),
            QUESTIONS => self.accept_asker(),
            asker if asker >= ASKERS => self.hear_asker(asker),
            connection => {
                if ready.writable {
                    self.send_unsent(connection);
                }
                if ready.readable {
                    self.read(connection);
                }
            }
        }
    }

    fn accept(&mut self) {
        for place in 0..self.listeners.len() {
            for _ in 0..ACCEPTED_MAX {
                match self.listeners[place].accept() {
                    Ok((stream, _)) => self.take_in(stream),
                    Err(error) => {
                        self.handle_not_taken_in(&error, Instant::now());
                        break;
                    }
                }
            }
        }
    }

    fn take_in(&mut self, stream: TcpStream) {
        let mut nonce = [0; 32];
        let prepared = getrandom::fill(&mut nonce).is_ok() && stream.set_nonblocking(true).is_ok();
        let now = Instant::now();
        let Some(number) = prepared.then(|| self.coordinator.handle_connection(nonce, now)).flatten() else { return };
        keep_alive(&stream);
        let Ok(stream) = Unshared::new(stream) else { return self.coordinator.handle_hang_up(number, now) };
        if self.poller.add(&stream, number, Interest::READABLE).is_err() {
            self.coordinator.handle_hang_up(number, now);
            return;
        }
        self.lines.insert(number, Line { stream, unsent: Vec::new(), closes: None });
    }

    /// Reads once: what is left is told again.
    fn read(&mut self, number: u64) {
        let Some(line) = self.lines.get_mut(&number).filter(|line| line.closes.is_none()) else { return };
        let mut chunk = [0; CHUNK_BYTES];
        match line.stream.read(&mut chunk) {
            Ok(bytes @ 1..) => self.coordinator.handle_bytes(number, &chunk[..bytes], Instant::now()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Ok(0) | Err(_) => {
                self.remove(number);
                self.coordinator.handle_hang_up(number, Instant::now());
            }
        }
        self.do_effects();
    }

    /// What goes to one connection goes together, as for the ranks that come through one relay. The order of all is kept.
    fn do_effects(&mut self) {
        let mut unsent = None;
        loop {
            // The last one may find that a connection takes nothing, which has effects again.
            let next = self.coordinator.poll_effect().or_else(|| {
                unsent.take().into_iter().for_each(|last| self.send_unsent(last));
                self.coordinator.poll_effect()
            });
            let Some(effect) = next else { return };
            let to = if let Effect::Send { connection, .. } = &effect { Some(*connection) } else { None };
            if unsent != to {
                unsent.into_iter().for_each(|before| self.send_unsent(before));
                unsent = to;
            }
            match effect {
                Effect::Send { connection, bytes } => {
                    if let Some(line) = self.lines.get_mut(&connection) {
                        line.unsent.extend_from_slice(&bytes);
                    }
                }
                Effect::Close { connection } => self.close(connection),
                Effect::Say(line) => own_end::say_last(&line),
                Effect::Refused { connection, error } => {
                    let from = self.lines.get(&connection).and_then(|line| line.stream.peer_addr().ok());
                    tracing::warn!(?from, %error, "a connection to the coordinator was refused");
                }
                Effect::Answer { asker, text } => {
                    if let Some(mut asker) = self.askers.remove(&asker) {
                        // Who does not take it in gets no answer.
                        let _ = asker.stream.write_all(text.as_bytes());
                    }
                }
                Effect::End { status } => (self.on_end)(status),
            }
        }
    }

    /// Closes a connection when what it has to be told is sent, or after a while.
    fn close(&mut self, number: u64) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        let until = Instant::now() + FLUSH;
        line.closes = Some(until);
        self.closing.push_back((until, number));
        // What it has said and nobody has read would have the system throw away what is on its way to it.
        let _ = line.stream.read(&mut [0; CHUNK_BYTES]);
        self.send_unsent(number);
    }

    fn send_unsent(&mut self, number: u64) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        let is_gone = send_unsent(&mut line.unsent, |bytes| line.stream.write(bytes));
        let waiting = line.unsent.len();
        if line.closes.is_some() && (waiting == 0 || is_gone) {
            return self.remove(number);
        }
        let closes = line.closes.is_some();
        let was_behind = if waiting > 0 { !self.behind.insert(number) } else { self.behind.remove(&number) };
        if (waiting > 0) != was_behind || closes {
            let interest = match (waiting > 0, closes) {
                (true, false) => Interest::BOTH,
                (true, true) => Interest::WRITABLE,
                (false, _) => Interest::READABLE,
            };
            // A connection that cannot be watched any more is one that has ended.
            let _ = self.poller.modify(&line.stream, number, interest);
        }
        if waiting > UNSENT_BYTES_MAX.saturating_mul(self.coordinator.connections_over(number)) && !closes {
            self.coordinator.handle_deaf(number, waiting, Instant::now());
        }
    }

    fn accept_asker(&mut self) {
        let Some(accepted) = self.questions.as_ref().map(|questions| questions.accept()) else { return };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => return self.handle_not_taken_in(&error, Instant::now()),
        };
        let own = rustix::process::geteuid().as_raw();
        let asker = rustix::net::sockopt::socket_peercred(&stream).map(|peer| peer.uid.as_raw());
        let may_ask = asker.is_ok_and(|asker| questions::may_ask(asker, own));
        let number = self.next_asker;
        if !may_ask || self.askers.len() >= ASKERS_MAX || stream.set_nonblocking(true).is_err() {
            return;
        }
        if self.poller.add(&stream, number, Interest::READABLE).is_ok() {
            self.next_asker += 1;
            let until = Instant::now() + ASKER_PATIENCE;
            self.askers.insert(number, Asker { stream, heard: Vec::new(), until });
        }
    }

    fn hear_asker(&mut self, number: u64) {
        let Some(asker) = self.askers.get_mut(&number) else { return };
        let mut chunk = [0; 16];
        match asker.stream.read(&mut chunk) {
            Ok(bytes @ 1..) => asker.heard.extend_from_slice(&chunk[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(0) | Err(_) => {
                self.askers.remove(&number);
                return;
            }
        }
        let is_report = asker.heard == questions::REPORT;
        if is_report || asker.heard == questions::SUMMARY {
            // It hears nothing more of it: a long answer is written at once.
            let _ = self.poller.remove(&asker.stream);
            let _ = asker.stream.set_nonblocking(false);
            let _ = asker.stream.set_write_timeout(Some(FLUSH));
            self.coordinator.handle_question(number, is_report, Instant::now());
        } else if asker.heard.len() >= questions::SUMMARY.len() {
            self.askers.remove(&number);
        }
    }
}

fn listen_to_questions(pid: u32) -> io::Result<Unshared<UnixListener>> {
    let address = std::os::unix::net::SocketAddr::from_abstract_name(format!("{}{pid}", questions::NAME_PREFIX))?;
    let listener = UnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    Unshared::new(listener)
}

/// Whether a process of this machine is stopped by a signal.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program stands in brackets and may contain anything.
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

/// The program of this process with its arguments, as far as they are worth telling.
pub(crate) fn own_command() -> String {
    const LETTERS_MAX: usize = 200;
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    words.join(" ").chars().take(LETTERS_MAX).collect()
}

#[cfg(test)]
mod tests;
