//! The way to an agent on another host: starts what leads there, waits for the agent's first line, and carries frames.
//!
//! Whoever holds the link is told all as [`Happening`]s: what the agent says, that it cannot be had, and that it is gone.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longarm_control::agent::{
    AGENT_VERSION, About, Branch, FromAgent, NOISE_BYTES_MAX, Setup, Starter, ToAgent, read_marker,
};
use longarm_control::frames::{Decoder, Frame, FrameError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::child;
use super::watch::Happening;

/// How many agents are started at the same time: an sshd takes no more strangers than that.
pub const STARTS_MAX: usize = 10;
/// How long a host has to answer.
const ANSWER: Duration = Duration::from_secs(60);
/// How long what leads to an agent has to end once the agent is gone.
const TRANSPORT_END: Duration = Duration::from_secs(1);
/// Lines that are kept of what a transport says, and bytes of each.
const LAST_LINES: usize = 6;
const LAST_BYTES: usize = 400;

/// What is needed for a link.
#[derive(Debug)]
pub struct Opening {
    /// What the agent is told first.
    pub setup: Setup,
    /// How many frames may wait for it.
    pub frames_max: usize,
    /// The guardian of this process.
    pub guardian: Arc<OwnedFd>,
    /// Leave to start an agent.
    pub starts: Arc<Semaphore>,
    /// Where everything goes that is heard.
    pub happenings: mpsc::Sender<Happening>,
}

/// An agent, or what becomes one.
#[derive(Clone, Debug)]
pub struct Link {
    frames: mpsc::Sender<ToAgent>,
    is_flooded: Arc<Notify>,
}

impl Link {
    /// Starts an agent.
    pub fn open(opening: Opening) -> Link {
        let (frames, receiver) = mpsc::channel(opening.frames_max);
        let is_flooded = Arc::new(Notify::new());
        tokio::spawn(serve(opening, receiver, Arc::clone(&is_flooded)));
        Link { frames, is_flooded }
    }

    /// A link that leads nowhere, and what was sent.
    #[cfg(test)]
    pub fn without_agent(frames_max: usize) -> (Link, mpsc::Receiver<ToAgent>) {
        let (frames, receiver) = mpsc::channel(frames_max);
        (Link { frames, is_flooded: Arc::new(Notify::new()) }, receiver)
    }

    /// Sends a frame. An agent that is gone needs none, and one that takes none in is given up.
    pub fn send(&self, frame: ToAgent) {
        if let Err(TrySendError::Full(_)) = self.frames.try_send(frame) {
            self.is_flooded.notify_one();
        }
    }
}

/// What a host is missing.
#[derive(Debug)]
struct Refusal {
    status: i32,
    reason: String,
}

impl Refusal {
    fn new(reason: impl Into<String>) -> Refusal {
        Refusal { status: 1, reason: reason.into() }
    }
}

/// What a transport says on its stderr: the last lines of it until the agent is there, and people are told the others.
#[derive(Clone, Debug)]
struct Words {
    last: Arc<Mutex<VecDeque<String>>>,
    is_up: Arc<Mutex<bool>>,
}

impl Words {
    async fn add(&self, name: &str, line: &[u8], happenings: &mpsc::Sender<Happening>) {
        let line = String::from_utf8_lossy(line);
        let plain: String = line.chars().filter(|letter| !letter.is_control()).take(LAST_BYTES).collect();
        if plain.trim().is_empty() {
            return;
        }
        if *self.is_up.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = happenings.send(Happening::Said(format!("host {name}: {plain}"))).await;
            return;
        }
        let mut lines = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(plain);
    }

    /// The agent is there: what was said before is of no interest.
    fn go_up(&self) {
        *self.is_up.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// All of them, in one line that begins with a colon.
    fn told(&self) -> String {
        let lines = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        if lines.is_empty() { String::new() } else { format!(": {}", lines.join(" | ")) }
    }
}

/// A running transport, killed when this is dropped.
#[derive(Debug)]
struct Transport {
    process: Child,
    /// Whether its number may be anybody's.
    is_collected: bool,
    guardian: Arc<OwnedFd>,
    words: Words,
    /// Ends with what the transport says.
    listener: JoinHandle<()>,
    input: Option<pipe::Sender>,
    output: pipe::Receiver,
    name: String,
}

impl Transport {
    fn start(command: &[String], opening: &Opening) -> io::Result<Transport> {
        let mut process = child::start_transport(command, &opening.guardian)?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take())
        else {
            unreachable!("a transport has pipes for all three")
        };
        let words = Words { last: Arc::default(), is_up: Arc::default() };
        let pipes = (|| {
            let input = pipe::Sender::from_owned_fd(stdin.into())?;
            let output = pipe::Receiver::from_owned_fd(stdout.into())?;
            io::Result::Ok((input, output, pipe::Receiver::from_owned_fd(stderr.into())?))
        })();
        let (input, output, stderr) = pipes.inspect_err(|_| child::end(&mut process, &opening.guardian))?;
        let host = opening.setup.branch.name.clone();
        let listener = tokio::spawn(listen(stderr, words.clone(), host, opening.happenings.clone()));
        let (guardian, name) = (Arc::clone(&opening.guardian), told_name(command));
        Ok(Transport { process, is_collected: false, guardian, words, listener, input: Some(input), output, name })
    }

    /// How it ended, once it has. It is given some time, and killed then.
    async fn end(&mut self) -> Option<ExitStatus> {
        drop(self.input.take());
        let until = Instant::now() + TRANSPORT_END;
        while Instant::now() < until {
            match child::collect(&mut self.process, &self.guardian) {
                Ok(Some(status)) => {
                    self.is_collected = true;
                    return Some(status);
                }
                Ok(None) => tokio::time::sleep(Duration::from_millis(2)).await,
                Err(_) => {
                    // It is no child of ours any more.
                    self.is_collected = true;
                    return None;
                }
            }
        }
        self.kill();
        None
    }

    fn kill(&mut self) {
        if !std::mem::replace(&mut self.is_collected, true) {
            child::end(&mut self.process, &self.guardian);
        }
    }

    /// "ssh exited with status 255: what it said".
    async fn told_end(&mut self) -> (Option<i32>, String) {
        let status = self.end().await;
        // What it said last may not have been taken in yet.
        let _ = timeout(TRANSPORT_END, &mut self.listener).await;
        let name = &self.name;
        let how = match status {
            Some(status) => match (status.code(), std::os::unix::process::ExitStatusExt::signal(&status)) {
                (Some(code), _) => format!("{name} exited with status {code}"),
                (None, Some(signal)) => format!("{name} was killed by signal {signal}"),
                (None, None) => format!("{name} ended"),
            },
            None => format!("{name} closed its output"),
        };
        (status.and_then(|status| status.code()), format!("{how}{}", self.words.told()))
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program that a command runs, behind what `env` takes out of its environment.
fn told_name(command: &[String]) -> String {
    let mut words = command.iter().skip_while(|word| *word == "env");
    let mut word = words.next();
    while word.is_some_and(|word| word == "-u") {
        word = words.nth(1);
    }
    word.unwrap_or(&command[0]).clone()
}

/// Takes in what a transport says on its stderr. Lines that are too long are cut.
async fn listen(mut stderr: pipe::Receiver, words: Words, name: String, happenings: mpsc::Sender<Happening>) {
    let mut line = Vec::new();
    let mut chunk = vec![0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        for piece in chunk[..count].split_inclusive(|byte| *byte == b'\n') {
            if line.len() < chunk.len() {
                line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                words.add(&name, &line, &happenings).await;
                line.clear();
            }
        }
    }
    words.add(&name, &line, &happenings).await;
}

/// From the start of an agent until it is gone.
async fn serve(opening: Opening, mut frames: mpsc::Receiver<ToAgent>, is_flooded: Arc<Notify>) {
    let host = opening.setup.branch.host;
    let happenings = opening.happenings.clone();
    let tell = async |frame| drop(happenings.send(Happening::Far(frame)).await);
    let mut early = Vec::new();
    let started = tokio::select! {
        started = start(&opening.setup.starter, &opening) => started,
        // The job is over before the agent was there.
        () = until_finish(&mut frames, &mut early) => return tell(FromAgent::Finished { host }).await,
    };
    match started {
        Err(Refusal { status, reason }) => {
            tell(FromAgent::Refused { host, status, reason }).await;
            // Who waits for the end of it shall not wait for ever.
            until_finish(&mut frames, &mut early).await;
            tell(FromAgent::Finished { host }).await;
        }
        Ok((mut transport, decoder)) => {
            let silence = opening.setup.silence_ms.map(Duration::from_millis);
            let input = transport.input.take().expect("nobody has taken it before");
            let branch = opening.setup.branch.clone();
            let writer = tokio::spawn(write_frames(input, (opening.setup, early), frames, silence));
            let mut reader = Reader { decoder, known: Known::new(&branch), has_finished: false };
            let how = tokio::select! {
                how = reader.run(&mut transport, silence, &happenings) => how,
                () = is_flooded.notified() => AgentGone::Broken("it does not take in what it is told".to_owned()),
            };
            writer.abort();
            let _ = writer.await;
            let reason = match how {
                AgentGone::Silent(silence) => format!("it has said nothing for {:.1} s", silence.as_secs_f64()),
                AgentGone::Broken(what) => what,
                AgentGone::Ended => transport.told_end().await.1,
            };
            drop(transport);
            if !reader.has_finished {
                tell(FromAgent::Lost { host, reason }).await;
            }
        }
    }
}

/// Keeps what is to be told later until all is over. There is little of it: some input, and signals.
async fn until_finish(frames: &mut mpsc::Receiver<ToAgent>, early: &mut Vec<ToAgent>) {
    while let Some(frame) = frames.recv().await {
        if frame == ToAgent::Finish {
            return;
        }
        early.push(frame);
    }
}

/// Starts the transport, by the other command if the first does not lead to an agent.
async fn start(starter: &Starter, opening: &Opening) -> Result<(Transport, Decoder), Refusal> {
    let _leave = opening.starts.acquire().await.expect("nobody closes it");
    let name = &opening.setup.branch.name;
    let commands = starter.commands(name);
    let mut tried = Vec::new();
    for command in &commands {
        let transport = Transport::start(command, opening);
        let mut transport =
            transport.map_err(|error| Refusal::new(format!("{} cannot be started: {error}", command[0])))?;
        let mut decoder = Decoder::default();
        let answer = timeout(ANSWER, wait_for_marker(&mut transport, &mut decoder)).await;
        let noise = match answer {
            Err(_) => {
                transport.kill();
                let said = transport.words.told();
                return Err(Refusal::new(format!("no answer within {} s{said}", ANSWER.as_secs())));
            }
            Ok(Ok((AGENT_VERSION, _))) => {
                transport.words.go_up();
                return Ok((transport, decoder));
            }
            Ok(Ok((version, software))) => return Err(Refusal::new(other_version(version, &software))),
            Ok(Err(Unanswered::Noise(error))) => return Err(Refusal::new(error.to_string())),
            Ok(Err(Unanswered::Ended(noise))) => noise,
        };
        let (status, how) = transport.told_end().await;
        let noise = if noise.is_empty() { noise } else { format!(" (and it printed: {noise})") };
        if !matches!(status, Some(126 | 127)) {
            return Err(Refusal::new(format!("no agent answers: {how}{noise}")));
        }
        tried.push(format!("{how}{noise}"));
    }
    let paths = starter.paths.join(" and as ");
    Err(Refusal {
        status: 127,
        reason: format!(
            "longarm was not found there as {paths}: install longarm {} there, or say where it is with --agent-path \
             ({})",
            env!("CARGO_PKG_VERSION"),
            tried.join("; ")
        ),
    })
}

fn other_version(version: u32, software: &str) -> String {
    let own = env!("CARGO_PKG_VERSION");
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!(
        "longarm {software} there speaks version {version} of the agents' language, and longarm {own} here on {here} \
         speaks version {AGENT_VERSION}: install the same on both, or say where it is with --agent-path"
    )
}

enum Unanswered {
    /// Nothing but noise comes.
    Noise(FrameError),
    /// It ended, having printed this.
    Ended(String),
}

/// Skips what comes before the agent's first line.
async fn wait_for_marker(transport: &mut Transport, decoder: &mut Decoder) -> Result<(u32, String), Unanswered> {
    let mut skipped = 0;
    let mut last = String::new();
    let mut chunk = vec![0; 4096];
    loop {
        while let Some(line) = decoder.next_line() {
            if let Some(marker) = read_marker(&line) {
                return Ok(marker);
            }
            skipped += line.len() + 1;
            last =
                String::from_utf8_lossy(&line).chars().filter(|letter| !letter.is_control()).take(LAST_BYTES).collect();
        }
        if skipped + decoder.waiting() > NOISE_BYTES_MAX {
            return Err(Unanswered::Noise(FrameError::NoMarker { bytes: skipped + decoder.waiting() }));
        }
        match transport.output.read(&mut chunk).await {
            Ok(0) | Err(_) => return Err(Unanswered::Ended(last)),
            Ok(count) => decoder.feed(&chunk[..count]),
        }
    }
}

/// Sends the setup, and then frames as they come, and beats in between.
async fn write_frames(
    mut input: pipe::Sender,
    (setup, early): (Setup, Vec<ToAgent>),
    mut frames: mpsc::Receiver<ToAgent>,
    silence: Option<Duration>,
) {
    let mut bytes = Vec::new();
    ToAgent::Setup(Box::new(setup)).encode(&mut bytes);
    early.iter().for_each(|frame| frame.encode(&mut bytes));
    let beat = beat(silence);
    loop {
        if input.write_all(&bytes).await.is_err() {
            // It is gone, and the reader notices.
            return;
        }
        bytes.clear();
        match timeout(beat, frames.recv()).await {
            Ok(Some(frame)) => frame.encode(&mut bytes),
            // Nobody wants anything of the agent any more: the end of its input tells it.
            Ok(None) => return,
            Err(_) => ToAgent::Beat.encode(&mut bytes),
        }
        while bytes.len() < 64 << 10
            && let Ok(frame) = frames.try_recv()
        {
            frame.encode(&mut bytes);
        }
    }
}

/// How many frames may wait for an agent: as many messages as may wait for its ranks, and some of its own.
pub fn frames_max(branch: &Branch, messages_max: usize) -> usize {
    let mut ranks = 0;
    branch.for_each(&mut |branch| ranks += branch.ranks.len());
    ranks * (messages_max + 16) + 64
}

/// How often each side says that it lives.
pub fn beat(silence: Option<Duration>) -> Duration {
    silence
        .map_or(Duration::from_secs(1), |silence| silence / 8)
        .clamp(Duration::from_millis(10), Duration::from_secs(1))
}

/// The ranks and hosts that an agent may speak of.
#[derive(Debug)]
struct Known {
    ranks: BTreeSet<u32>,
    hosts: BTreeSet<u32>,
    root: u32,
}

impl Known {
    fn new(branch: &Branch) -> Known {
        let (mut ranks, mut hosts) = (BTreeSet::new(), BTreeSet::new());
        branch.for_each(&mut |branch| {
            hosts.insert(branch.host);
            ranks.extend(branch.ranks.iter().map(|(rank, _)| *rank));
        });
        Known { ranks, hosts, root: branch.host }
    }

    fn has(&self, about: About) -> bool {
        match about {
            About::Itself => true,
            About::Rank(rank) => self.ranks.contains(&rank),
            About::Host(host) => self.hosts.contains(&host),
        }
    }
}

/// How an agent went.
enum AgentGone {
    Silent(Duration),
    Broken(String),
    Ended,
}

struct Reader {
    decoder: Decoder,
    known: Known,
    has_finished: bool,
}

impl Reader {
    /// Passes frames on until there are no more.
    async fn run(
        &mut self,
        transport: &mut Transport,
        silence: Option<Duration>,
        happenings: &mpsc::Sender<Happening>,
    ) -> AgentGone {
        let mut chunk = vec![0; 64 << 10];
        loop {
            loop {
                match self.decoder.next_frame::<FromAgent>() {
                    Err(error) => return AgentGone::Broken(format!("it sends what no agent sends: {error}")),
                    Ok(None) => break,
                    Ok(Some(FromAgent::Beat)) => {}
                    Ok(Some(frame)) if !self.known.has(frame.about()) => {
                        return AgentGone::Broken(format!("it speaks of {:?}, which is none of its", frame.about()));
                    }
                    Ok(Some(frame)) => {
                        self.has_finished |= frame == FromAgent::Finished { host: self.known.root };
                        let _ = happenings.send(Happening::Far(frame)).await;
                    }
                }
            }
            let read = transport.output.read(&mut chunk);
            let count = match silence {
                Some(silence) => match timeout(silence, read).await {
                    Ok(count) => count,
                    Err(_) => return AgentGone::Silent(silence),
                },
                None => read.await,
            };
            match count {
                Ok(0) | Err(_) => return AgentGone::Ended,
                Ok(count) => self.decoder.feed(&chunk[..count]),
            }
        }
    }
}
