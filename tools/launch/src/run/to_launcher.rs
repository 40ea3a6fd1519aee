//! An agent's way to its launcher: the counterpart of [`super::link`].
//!
//! ```text
//!   stdin ──► thread ──► frames ──► whoever runs the ranks
//!   stdout ◄── thread ◄── frames ◄──┘   stderr ◄── thread ◄── lines for people
//! ```
//!
//! Nobody here waits for a launcher that does not read: what it says, and that it says nothing, is heard meanwhile.

use std::io::{self, Read, Write};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use longarm_control::agent::{FromAgent, Setup, ToAgent};
use longarm_control::frames::{Decoder, Frame};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior};

use super::link;

/// Frames that may wait on their way in or out.
pub const FRAMES_MAX: usize = 64;
/// How long the launcher has to say what is to be done.
const SETUP: Duration = Duration::from_secs(60);
/// Lines for people that may wait for whoever reads them. More are lost.
const LINES_MAX: usize = 64;
/// How long the last line may take.
const LAST_LINE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct Launcher {
    frames: mpsc::Receiver<io::Result<ToAgent>>,
    out: mpsc::Sender<FromAgent>,
    /// Comes when the last frame was written.
    written: oneshot::Receiver<()>,
    /// The number of this host, of which the last frame speaks.
    host: Arc<OnceLock<u32>>,
    silence: Option<Duration>,
    heard: Instant,
    ticks: Interval,
}

/// The launcher is gone, or given up.
#[derive(Debug, thiserror::Error)]
pub enum LauncherGone {
    /// It closed our input.
    #[error("the launcher is gone")]
    Ended,
    /// It is there no more as far as anybody can know.
    #[error("the launcher has said nothing for {:.1} s", .0.as_secs_f64())]
    Silent(Duration),
    /// What comes cannot be read or understood.
    #[error(transparent)]
    Broken(#[from] io::Error),
}

impl Launcher {
    /// Starts the threads for both directions.
    ///
    /// # Errors
    /// When there is no thread left.
    pub fn open() -> io::Result<Launcher> {
        let (sender, frames) = mpsc::channel(FRAMES_MAX);
        thread::Builder::new().name("longarm-frames-in".to_owned()).spawn(move || read_frames(&sender))?;
        let (out, receiver) = mpsc::channel(FRAMES_MAX);
        let (done, written) = oneshot::channel();
        let host = Arc::<OnceLock<u32>>::default();
        let own = Arc::clone(&host);
        thread::Builder::new().name("longarm-frames-out".to_owned()).spawn(move || {
            write_frames(receiver, &own);
            let _ = done.send(());
        })?;
        Ok(Launcher { frames, out, written, host, silence: None, heard: Instant::now(), ticks: ticks(None) })
    }

    /// What is to be done. `None`: nothing, any more.
    ///
    /// # Errors
    /// When nobody says it.
    pub async fn setup(&mut self) -> io::Result<Option<Setup>> {
        let setup = match tokio::time::timeout(SETUP, self.frames.recv()).await {
            Ok(Some(frame)) => match frame? {
                ToAgent::Setup(setup) => *setup,
                _ => return Err(io::Error::other("the launcher does not begin with what is to be done")),
            },
            Ok(None) => return Ok(None),
            Err(_) => return Err(io::Error::other("nobody said what is to be done")),
        };
        let _ = self.host.set(setup.branch.host);
        self.silence = setup.silence_ms.map(Duration::from_millis);
        self.heard = Instant::now();
        self.ticks = ticks(self.silence);
        Ok(Some(setup))
    }

    /// Where frames to it go.
    pub fn out(&self) -> &mpsc::Sender<FromAgent> {
        &self.out
    }

    /// What it says next. Nothing is lost when the caller stops waiting.
    ///
    /// # Errors
    /// When nothing will come any more.
    pub async fn hear(&mut self) -> Result<ToAgent, LauncherGone> {
        loop {
            tokio::select! {
                frame = self.frames.recv() => {
                    self.heard = Instant::now();
                    return frame.ok_or(LauncherGone::Ended)?.map_err(LauncherGone::Broken);
                }
                _ = self.ticks.tick() => {
                    let unheard = self.heard.elapsed();
                    if self.silence.is_some_and(|silence| unheard > silence) {
                        return Err(LauncherGone::Silent(unheard));
                    }
                    // A launcher that takes nothing in for a while hears of us by what waits for it.
                    let _ = self.out.try_send(FromAgent::Beat);
                }
            }
        }
    }

    /// Says last words, and stays until they are written or nobody is there to read them.
    pub async fn part(mut self, last: FromAgent) {
        let (out, closed) = (self.out.clone(), oneshot::channel().1);
        let written = std::mem::replace(&mut self.written, closed);
        let said = async {
            let _ = out.send(last).await;
            let _ = written.await;
        };
        tokio::select! {
            () = said => {}
            () = async { while self.hear().await.is_ok() {} } => {}
        }
    }

    /// Nothing can be started here. The launcher still says when all is over.
    pub async fn refuse(mut self, host: u32, status: i32, reason: String) {
        // The channel is as good as empty.
        let _ = self.out.send(FromAgent::Refused { host, status, reason }).await;
        while let Ok(frame) = self.hear().await {
            if frame == ToAgent::Finish {
                return self.part(FromAgent::Finished { host }).await;
            }
        }
    }
}

fn ticks(silence: Option<Duration>) -> Interval {
    let mut ticks = tokio::time::interval(link::beat(silence));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Until this host has finished, or the launcher is gone, which stdin says too.
fn write_frames(mut frames: mpsc::Receiver<FromAgent>, host: &OnceLock<u32>) {
    let mut bytes = Vec::new();
    let mut stdout = io::stdout().lock();
    let mut is_last = false;
    while !is_last && let Some(frame) = frames.blocking_recv() {
        bytes.clear();
        let mut next = Some(frame);
        while let Some(frame) = next {
            frame.encode(&mut bytes);
            is_last |= matches!(frame, FromAgent::Finished { host: finished } if host.get() == Some(&finished));
            next = if is_last || bytes.len() >= 64 << 10 { None } else { frames.try_recv().ok() };
        }
        if stdout.write_all(&bytes).and_then(|()| stdout.flush()).is_err() {
            return;
        }
    }
}

fn read_frames(frames: &mpsc::Sender<io::Result<ToAgent>>) {
    let mut decoder = Decoder::default();
    let mut input = io::stdin().lock();
    let mut chunk = vec![0; 64 << 10];
    loop {
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    if frames.blocking_send(Ok(frame)).is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    let _ = frames.blocking_send(Err(io::Error::other(error)));
                    return;
                }
            }
        }
        match input.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => decoder.feed(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let _ = frames.blocking_send(Err(error));
                return;
            }
        }
    }
}

/// Prints lines for people on stderr. Who prints does not wait for whoever reads.
#[derive(Debug)]
pub struct Printer {
    lines: mpsc::Sender<String>,
    printed: std::sync::mpsc::Receiver<()>,
}

impl Printer {
    /// Starts its thread.
    ///
    /// # Errors
    /// When there is no thread left.
    pub fn open() -> io::Result<Printer> {
        let (lines, mut waiting) = mpsc::channel::<String>(LINES_MAX);
        let (done, printed) = std::sync::mpsc::channel();
        thread::Builder::new().name("longarm-lines-out".to_owned()).spawn(move || {
            while let Some(line) = waiting.blocking_recv() {
                eprintln!("{line}");
            }
            let _ = done.send(());
        })?;
        Ok(Printer { lines, printed })
    }

    /// Prints a line, unless too many wait.
    pub fn print(&self, line: String) {
        let _ = self.lines.try_send(line);
    }

    /// Waits a moment until all is printed.
    pub fn close(self) {
        drop(self.lines);
        let _ = self.printed.recv_timeout(LAST_LINE);
    }
}
