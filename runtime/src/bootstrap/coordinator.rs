//! The thread of rank 0's process to which all ranks of a job connect that something else has started. What it says and decides
//! stands in `longarm_control::coordinator`, its turns in `longarm_control::desk`; here are its sockets.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longarm_control::coordinator::Settings;
use longarm_control::desk::{CoordinatorDesk, FLUSH, Readiness, Sockets, Surroundings};
use longarm_control::proof::ProofError;
use longarm_control::questions;
use longarm_memory::Unshared;
use longarm_netmod::{Interest, Poller, Ready};

use super::assembly::keep_alive;
use super::own_end;
use super::serving::{NOTHING, REST, Serving, Turns, interest, readiness};

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
        let thread = Thread::new(listeners, settings, Arc::clone(&turns), on_end)?;
        Ok(CoordinatorThread(Serving::start("longarm-coordinator", turns, move || thread.run())?))
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

/// Who asks, and what was heard.
struct Asker {
    stream: UnixStream,
    heard: Vec<u8>,
    until: Instant,
}

/// The thread's own.
struct Thread {
    desk: CoordinatorDesk,
    sockets: CoordinatorSockets,
}

/// What the coordinator has around it.
struct CoordinatorSockets {
    poller: Poller,
    /// One for each address.
    listeners: Vec<Unshared<TcpListener>>,
    questions: Option<Unshared<UnixListener>>,
    streams: HashMap<u64, Unshared<TcpStream>>,
    askers: HashMap<u64, Asker>,
    next_asker: u64,
    /// Until when nobody is taken in.
    rests: Option<Instant>,
    turns: Arc<Turns>,
    on_end: OnEnd,
}

impl Thread {
    fn new(listeners: Vec<TcpListener>, settings: Settings, turns: Arc<Turns>, on_end: OnEnd) -> io::Result<Thread> {
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
        let sockets = CoordinatorSockets {
            poller,
            listeners,
            questions,
            streams: HashMap::new(),
            askers: HashMap::new(),
            next_asker: ASKERS,
            rests: None,
            turns,
            on_end,
        };
        Ok(Thread { desk: CoordinatorDesk::new(settings, Instant::now()), sockets })
    }

    fn run(mut self) {
        let mut ready = Vec::new();
        while !self.sockets.turns.stops() {
            let rest = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
            if let Err(error) = self.sockets.poller.wait(&mut ready, rest) {
                own_end::say_last(&format!("the coordinator of this job can hear nothing any more: {error}"));
                break;
            }
            let may_be_more = ready.len() >= Poller::READY_MAX;
            for one in std::mem::take(&mut ready) {
                self.handle_ready(one);
            }
            self.sockets.handle_time(Instant::now());
            self.desk.end_turn(&mut self.sockets, may_be_more);
            // Nobody is let in any more: whoever tries hears so at once.
            if !self.desk.is_open() {
                self.sockets.listeners.clear();
            }
            self.sockets.turns.end_turn(self.desk.is_behind());
        }
        self.sockets.turns.end();
    }

    fn deadline(&self) -> Option<Instant> {
        self.desk.deadline().into_iter().chain(self.sockets.deadline()).min()
    }

    fn handle_ready(&mut self, ready: Ready) {
        match ready.token {
            WAKER => self.sockets.turns.waker().clear(),
            LISTENER => self.accept(),
            QUESTIONS => self.sockets.accept_asker(),
            asker if asker >= ASKERS => {
                if let Some(is_report) = self.sockets.hear_asker(asker) {
                    self.desk.handle_question(asker, is_report, Instant::now());
                }
            }
            connection => self.desk.handle_ready(&mut self.sockets, connection, readiness(ready)),
        }
    }

    fn accept(&mut self) {
        for place in 0..self.sockets.listeners.len() {
            for _ in 0..ACCEPTED_MAX {
                match self.sockets.listeners[place].accept() {
                    Ok((stream, _)) => self.take_in(stream),
                    Err(error) => {
                        self.sockets.handle_not_taken_in(&error, Instant::now());
                        break;
                    }
                }
            }
        }
    }

    fn take_in(&mut self, stream: TcpStream) {
        let mut nonce = [0; 32];
        if getrandom::fill(&mut nonce).is_ok() && stream.set_nonblocking(true).is_ok() {
            self.desk.take_in(&mut self.sockets, nonce, |sockets, number| sockets.add(number, stream));
        }
    }
}

impl CoordinatorSockets {
    fn deadline(&self) -> Option<Instant> {
        self.askers.values().map(|asker| asker.until).chain(self.rests).min()
    }

    /// Whoever asks and has had his time is let go of, and those who wait are taken in again.
    fn handle_time(&mut self, now: Instant) {
        self.askers.retain(|_, asker| asker.until > now);
        if self.rests.take_if(|until| *until <= now).is_some() {
            self.watch_listeners(Interest::READABLE);
        }
    }

    /// Keeps a connection. Whether it can be watched.
    fn add(&mut self, number: u64, stream: TcpStream) -> bool {
        keep_alive(&stream);
        let Ok(stream) = Unshared::new(stream) else { return false };
        let is_watched = self.poller.add(&stream, number, Interest::READABLE).is_ok();
        if is_watched {
            self.streams.insert(number, stream);
        }
        is_watched
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

    /// Whether it wants a report, once it has said what it wants.
    fn hear_asker(&mut self, number: u64) -> Option<bool> {
        let asker = self.askers.get_mut(&number)?;
        let mut chunk = [0; 16];
        match asker.stream.read(&mut chunk) {
            Ok(bytes @ 1..) => asker.heard.extend_from_slice(&chunk[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Ok(0) | Err(_) => {
                self.askers.remove(&number);
                return None;
            }
        }
        let is_report = asker.heard == questions::REPORT;
        if is_report || asker.heard == questions::SUMMARY {
            // It hears nothing more of it: a long answer is written at once.
            let _ = self.poller.remove(&asker.stream);
            let _ = asker.stream.set_nonblocking(false);
            let _ = asker.stream.set_write_timeout(Some(FLUSH));
            return Some(is_report);
        }
        if asker.heard.len() >= questions::SUMMARY.len() {
            self.askers.remove(&number);
        }
        None
    }
}

impl Sockets for CoordinatorSockets {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn read(&mut self, number: u64, chunk: &mut [u8]) -> io::Result<usize> {
        self.streams.get_mut(&number).map_or(Err(io::ErrorKind::NotConnected.into()), |stream| stream.read(chunk))
    }

    fn write(&mut self, number: u64, bytes: &[u8]) -> io::Result<usize> {
        self.streams.get_mut(&number).map_or(Err(io::ErrorKind::NotConnected.into()), |stream| stream.write(bytes))
    }

    fn watch(&mut self, number: u64, readiness: Readiness) {
        if let Some(stream) = self.streams.get(&number) {
            // A connection that cannot be watched any more is one that has ended.
            let _ = self.poller.modify(stream, number, interest(readiness));
        }
    }

    fn close(&mut self, number: u64) {
        self.streams.remove(&number);
    }
}

impl Surroundings for CoordinatorSockets {
    fn say(&mut self, line: &str) {
        own_end::say_last(line);
    }

    fn refuse(&mut self, number: u64, error: &ProofError) {
        let from = self.streams.get(&number).and_then(|stream| stream.peer_addr().ok());
        tracing::warn!(?from, %error, "a connection to the coordinator was refused");
    }

    fn answer(&mut self, asker: u64, text: &str) {
        if let Some(mut asker) = self.askers.remove(&asker) {
            // Who does not take it in gets no answer.
            let _ = asker.stream.write_all(text.as_bytes());
        }
    }

    fn end_job(&mut self, status: i32) {
        (self.on_end)(status);
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
