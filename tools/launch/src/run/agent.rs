//! `longarm agent`: runs the ranks of one host for a launcher on another, to which it speaks over its stdin and stdout only.
//!
//! ```text
//!   launcher ──► frames ──► loop ──► ranks (here), agents further on (link)
//!   launcher ◄── frames ◄── loop ◄── what they do
//! ```
//!
//! The end of stdin, or a launcher that is silent for too long, ends all ranks, also where it does not read what it is told. If the
//! agent itself is killed its guardian does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{ChildStdin, ExitCode};
use std::sync::Arc;

use longarm::topology;
use longarm_control::agent::{
    AGENT_VERSION, Branch, CHUNK_BYTES_MAX, CHUNKS_MAX, FromAgent, Setup, Stream, ToAgent, marker,
};
use longarm_control::rendezvous::Violation;
use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use super::child::{Placement, Template};
use super::guardian::Guardian;
use super::here::{Begun, Here};
use super::link::{self, Link, Opening};
use super::to_launcher::{FRAMES_MAX, Launcher, LauncherGone, Printer};
use super::watch::{Event, Happening};
use super::{RunError, While, program};

/// Runs an agent until its launcher needs it no more.
pub fn agent() -> ExitCode {
    let mut stdout = io::stdout().lock();
    let said = stdout.write_all(marker(env!("CARGO_PKG_VERSION")).as_bytes()).and_then(|()| stdout.flush());
    drop(stdout);
    if said.is_err() {
        return ExitCode::FAILURE;
    }
    tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(tracing::Level::WARN).init();
    let opened = Printer::open()
        .and_then(|printer| Ok((printer, tokio::runtime::Builder::new_current_thread().enable_all().build()?)));
    let (printer, runtime) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("longarm agent: {error}");
            return ExitCode::FAILURE;
        }
    };
    let served = runtime.block_on(serve(&printer));
    runtime.shutdown_background();
    let status = if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    served.unwrap_or_else(|error| printer.print(format!("longarm agent: {error}")));
    printer.close();
    status
}

async fn serve(printer: &Printer) -> io::Result<()> {
    let mut launcher = Launcher::open()?;
    let Some(setup) = launcher.setup().await? else { return Ok(()) };
    let host = setup.branch.host;
    if setup.version != AGENT_VERSION || !setup.is_sound() {
        let reason = format!("its longarm {} does not understand what it is told", env!("CARGO_PKG_VERSION"));
        launcher.refuse(host, 1, reason).await;
        return Ok(());
    }
    match Agent::start(&setup, launcher.out()) {
        Ok((mut agent, guardian)) => {
            let gone = agent.run(&mut launcher, printer).await;
            guardian.dismiss();
            match gone {
                None => launcher.part(FromAgent::Finished { host }).await,
                Some(LauncherGone::Ended) => {}
                // Only now: who does not listen may not read either.
                Some(gone) => printer.print(format!("longarm agent: {gone}")),
            }
        }
        Err(error) => {
            let remedy =
                if matches!(error, RunError::Program(_)) { "; every host needs it at the same path" } else { "" };
            launcher.refuse(host, i32::from(error.status()), format!("{error}{remedy}")).await;
        }
    }
    Ok(())
}

/// What an agent looks after.
struct Agent {
    here: Here,
    links: Vec<Link>,
    /// Which link leads to a rank.
    link_of_rank: BTreeMap<u32, usize>,
    /// Agents that were started from here and have not finished.
    unfinished: BTreeSet<u32>,
    happenings: mpsc::Receiver<Happening>,
    out: mpsc::Sender<FromAgent>,
    /// What is to be said, where the launcher has not taken in what was said before: what came of one event, or of frames that
    /// the launcher sent.
    unsaid: VecDeque<FromAgent>,
    inputs: BTreeMap<u32, mpsc::Sender<Vec<u8>>>,
    /// Leave to send a piece of an output.
    permits: BTreeMap<(u32, Stream), Arc<Semaphore>>,
    outputs: JoinSet<()>,
    outputs_end: watch::Sender<bool>,
    is_finishing: bool,
}

impl Agent {
    fn start(setup: &Setup, out: &mpsc::Sender<FromAgent>) -> Result<(Agent, Guardian), RunError> {
        let folder = OsStr::from_bytes(&setup.folder);
        std::env::set_current_dir(folder).map_err(|source| RunError::Folder { folder: folder.into(), source })?;
        let environment = environment(setup);
        let command: Vec<OsString> = setup.command.iter().cloned().map(OsString::from_vec).collect();
        let search = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
        let path = program::find_program(&command[0], search)?;
        let descriptors = super::raise_descriptors(setup.branch.ranks.len() as u32, setup.branch.below.len() as u32)?;
        let guardian = Guardian::start().while_doing("starting the guardian process")?;
        let processors = topology::processors_allowed();
        let (sender, happenings) = mpsc::channel(FRAMES_MAX);
        let mut agent = Agent {
            here: Here::new(guardian.pipe()),
            links: Vec::new(),
            link_of_rank: BTreeMap::new(),
            unfinished: setup.branch.below.iter().map(|branch| branch.host).collect(),
            happenings,
            out: out.clone(),
            unsaid: VecDeque::from([FromAgent::Ready { host: setup.branch.host, processors: processors.clone() }]),
            inputs: BTreeMap::new(),
            permits: BTreeMap::new(),
            outputs: JoinSet::new(),
            outputs_end: watch::Sender::new(false),
            is_finishing: false,
        };
        agent.open_links(setup, guardian.pipe(), &sender);
        let template = Template {
            path: &path,
            command: &command,
            ranks: setup.size,
            guardian: guardian.pipe(),
            descriptors,
            debugger: setup.debugger,
            environment: Some(&environment),
        };
        for ((rank, node), index) in setup.branch.ranks.iter().zip(0..) {
            let processor = setup.is_bound.then(|| processors[index % processors.len()]);
            let place = Placement { rank: *rank, node: *node, processor, reads_stdin: *rank == 0 };
            let begun = agent.here.start(&template, place, messages_max(setup.size), &sender);
            let begun = begun.and_then(|begun| {
                let pid = begun.pid;
                agent.connect(*rank, begun).map(|()| pid)
            });
            match begun {
                Ok(pid) => agent.say(FromAgent::Started { rank: *rank, pid }),
                Err(source) => {
                    agent.here.end();
                    return Err(RunError::Rank { rank: *rank, program: path.clone(), source });
                }
            }
        }
        Ok((agent, guardian))
    }

    fn open_links(&mut self, setup: &Setup, guardian: Arc<OwnedFd>, happenings: &mpsc::Sender<Happening>) {
        let starts = Arc::new(Semaphore::new(link::STARTS_MAX));
        for branch in &setup.branch.below {
            let index = self.links.len();
            branch.for_each(&mut |branch: &Branch| {
                self.link_of_rank.extend(branch.ranks.iter().map(|(rank, _)| (*rank, index)));
            });
            self.links.push(Link::open(Opening {
                setup: Setup { branch: branch.clone(), ..setup.clone() },
                frames_max: link::frames_max(branch, messages_max(setup.size)),
                guardian: Arc::clone(&guardian),
                starts: Arc::clone(&starts),
                happenings: happenings.clone(),
            }));
        }
    }

    /// Starts the tasks that serve a rank's pipes.
    fn connect(&mut self, rank: u32, begun: Begun) -> io::Result<()> {
        let outputs = [(Stream::Stdout, OwnedFd::from(begun.stdout)), (Stream::Stderr, OwnedFd::from(begun.stderr))];
        for (stream, output) in outputs {
            let output = pipe::Receiver::from_owned_fd(output)?;
            let room = Arc::new(Semaphore::new(CHUNKS_MAX));
            self.permits.insert((rank, stream), Arc::clone(&room));
            let passing = Passing { rank, stream, room, out: self.out.clone() };
            self.outputs.spawn(passing.pass(output, self.outputs_end.subscribe()));
        }
        if let Some(stdin) = begun.stdin {
            let (sender, pieces) = mpsc::channel(CHUNKS_MAX + 1);
            let out = self.out.clone();
            std::thread::Builder::new()
                .name("longarm-input".to_owned())
                .spawn(move || feed(stdin, pieces, rank, &out))?;
            self.inputs.insert(rank, sender);
        }
        Ok(())
    }

    fn say(&mut self, frame: FromAgent) {
        self.unsaid.push_back(frame);
    }

    /// Until the launcher has said that all is over and everything was passed on, or is gone. No process of this host is left then.
    async fn run(&mut self, launcher: &mut Launcher, printer: &Printer) -> Option<LauncherGone> {
        let out = self.out.clone();
        let is_over = |agent: &Agent| {
            agent.is_finishing && agent.outputs.is_empty() && agent.unfinished.is_empty() && agent.unsaid.is_empty()
        };
        let mut gone = None;
        while gone.is_none() && !is_over(self) {
            tokio::select! {
                frame = launcher.hear() => match frame {
                    Ok(frame) => self.handle_frame(frame),
                    Err(error) => gone = Some(error),
                },
                Ok(room) = out.reserve(), if !self.unsaid.is_empty() => {
                    if let Some(frame) = self.unsaid.pop_front() {
                        room.send(frame);
                    }
                }
                // Ranks that say more than the launcher takes in wait.
                Some(happening) = self.happenings.recv(), if self.unsaid.is_empty() => {
                    self.handle_happening(happening, printer);
                }
                Some(_) = self.outputs.join_next(), if self.is_finishing => {}
            }
        }
        self.here.signal_all(Signal::KILL);
        self.here.bury();
        gone
    }

    fn handle_frame(&mut self, frame: ToAgent) {
        if let Some(rank) = frame.rank()
            && let Some(link) = self.link_of_rank.get(&rank)
        {
            self.links[*link].send(frame);
            return;
        }
        match frame {
            ToAgent::Setup(_) | ToAgent::Beat => {}
            ToAgent::Message { rank, line } => {
                if let Err(deaf) = self.here.tell(rank, line) {
                    self.say(FromAgent::Broke { rank, waiting: Some(deaf.waiting as u32) });
                }
            }
            ToAgent::Signal { rank, signal } => {
                // These are those that a launcher sends.
                let signal = [Signal::TERM, Signal::KILL].into_iter().find(|known| known.as_raw() == signal);
                signal.into_iter().for_each(|signal| self.here.signal(rank, signal));
            }
            ToAgent::Input { rank, bytes } => {
                // No more come than there is room for. A rank that has closed its input needs none.
                if let Some(input) = self.inputs.get(&rank) {
                    let is_end = bytes.is_empty();
                    let is_sent = is_end || input.try_send(bytes).is_ok();
                    if is_end || !is_sent {
                        self.inputs.remove(&rank);
                    }
                }
            }
            ToAgent::Room { rank, stream } => {
                if let Some(room) = self.permits.get(&(rank, stream))
                    && room.available_permits() < CHUNKS_MAX
                {
                    room.add_permits(1);
                }
            }
            ToAgent::Closed { rank, stream } => {
                self.permits.remove(&(rank, stream)).into_iter().for_each(|room| room.close());
            }
            ToAgent::Look { rank } => {
                let is_stopped = self.here.is_stopped(rank);
                self.say(FromAgent::Looked { rank, is_stopped });
            }
            ToAgent::Finish => self.finish(),
        }
    }

    fn finish(&mut self) {
        if !std::mem::replace(&mut self.is_finishing, true) {
            self.here.signal_all(Signal::KILL);
            self.here.bury();
            self.outputs_end.send_replace(true);
            self.links.iter().for_each(|link| link.send(ToAgent::Finish));
        }
    }

    fn handle_happening(&mut self, happening: Happening, printer: &Printer) {
        match happening {
            Happening::Rank(rank, event) => {
                let frame = match event {
                    Event::Line(line) => FromAgent::Line { rank, line },
                    Event::Violation(Violation::Deaf { waiting }) => {
                        FromAgent::Broke { rank, waiting: Some(waiting as u32) }
                    }
                    Event::Violation(_) => FromAgent::Broke { rank, waiting: None },
                    Event::Ended(how) => FromAgent::Ended { rank, how },
                };
                self.say(frame);
            }
            Happening::Far(frame) => {
                if let FromAgent::Finished { host } | FromAgent::Lost { host, .. } = &frame {
                    self.unfinished.remove(host);
                }
                self.say(frame);
            }
            Happening::Said(line) => printer.print(line),
        }
    }
}

/// How many messages may wait for a rank.
fn messages_max(ranks: u32) -> usize {
    4 * ranks as usize + 64
}

/// The environment of the ranks: what the launcher says, and what is this host's own.
fn environment(setup: &Setup) -> Vec<(OsString, OsString)> {
    let given = setup.environment.iter().cloned();
    let given = given.map(|(name, value)| (OsString::from_vec(name), OsString::from_vec(value)));
    let kept = setup.kept.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    given.chain(kept).collect()
}

/// An output on its way to the launcher.
struct Passing {
    rank: u32,
    stream: Stream,
    room: Arc<Semaphore>,
    out: mpsc::Sender<FromAgent>,
}

impl Passing {
    /// Passes on an output until it ends or nobody reads it. Once `ended` says so, only what is in the pipe already.
    async fn pass(self, mut output: pipe::Receiver, mut ended: watch::Receiver<bool>) {
        let mut has_ended = false;
        // Closed: nobody reads it, and the rank finds out when its pipe breaks.
        while let Ok(permit) = self.room.acquire().await {
            let mut bytes = Vec::with_capacity(CHUNK_BYTES_MAX);
            let count = if has_ended {
                // The runtime may not have heard of the last bytes yet.
                bytes.resize(CHUNK_BYTES_MAX, 0);
                rustix::io::read(&output, &mut bytes[..]).unwrap_or(0)
            } else {
                tokio::select! {
                    count = output.read_buf(&mut bytes) => count.unwrap_or(0),
                    _ = ended.wait_for(|ended| *ended) => {
                        has_ended = true;
                        continue;
                    }
                }
            };
            permit.forget();
            bytes.truncate(count);
            let is_end = bytes.is_empty();
            let frame = FromAgent::Output { rank: self.rank, stream: self.stream, bytes };
            if self.out.send(frame).await.is_err() || is_end {
                return;
            }
        }
    }
}

/// Feeds a rank its input, and says what it has taken.
fn feed(mut stdin: ChildStdin, mut pieces: mpsc::Receiver<Vec<u8>>, rank: u32, out: &mpsc::Sender<FromAgent>) {
    while let Some(bytes) = pieces.blocking_recv() {
        // The rank may end, or close its stdin, whenever it wants.
        if stdin.write_all(&bytes).is_err() || out.blocking_send(FromAgent::InputRoom { rank }).is_err() {
            return;
        }
    }
}
