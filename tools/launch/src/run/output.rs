//! Passing on what ranks write, unmixed by line.
//!
//! Each output of each rank has a task that cuts it into whole lines. A thread for each output of the launcher writes
//! them, one batch of whole lines after the other, so that a reader that is slow or gone never stops the launcher
//! itself. When stdout and stderr are the same file, one thread serves both, because large writes of two would mix.
//!
//! Bytes are passed on as they are. A last line without an end is passed on without one (but with `--tag-output` it
//! gets one), and a line of more than [`LINE_BYTES_MAX`] is passed on in pieces. The last words of ranks that end by the same error
//! are said once ([`alike`]).

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::alike::{self, Alike};
use super::far::FarOutput;

/// Longer lines are passed on in pieces.
const LINE_BYTES_MAX: usize = 1 << 20;
/// How much is read from a rank at once.
const READ_BYTES: usize = 64 << 10;
/// How many batches of output may wait to be written. More make the ranks wait.
const BATCHES_MAX: usize = 32;

/// How many lines about hosts may wait. More are lost.
const HOST_LINES_MAX: usize = 256;

/// One batch of bytes, and the leave to have it waiting. Messages of the launcher itself need none.
type Batch = (Vec<u8>, Option<OwnedSemaphorePermit>);

/// A way to one output of the launcher.
#[derive(Clone, Debug)]
pub struct Sink {
    batches: mpsc::UnboundedSender<Batch>,
    leave: Arc<Semaphore>,
}

/// The outputs of the launcher.
#[derive(Debug)]
pub struct Console {
    /// Where the ranks' stdout goes.
    pub stdout: Sink,
    /// Where the ranks' stderr and the launcher's messages go.
    pub stderr: Sink,
    written: Vec<oneshot::Receiver<()>>,
    /// Leave to have a line about a host waiting.
    host_lines: Arc<Semaphore>,
    /// How many were lost since the last one.
    lost_lines: usize,
}

impl Console {
    /// Opens both outputs and starts their threads.
    ///
    /// # Errors
    /// When no descriptor or thread can be had.
    pub fn open() -> io::Result<Console> {
        let same = is_same_file(io::stdout().as_fd(), io::stderr().as_fd());
        let (stdout, stdout_written) = Sink::open(io::stdout().as_fd().try_clone_to_owned()?)?;
        let mut written = vec![stdout_written];
        let stderr = if same {
            stdout.clone()
        } else {
            let (stderr, stderr_written) = Sink::open(io::stderr().as_fd().try_clone_to_owned()?)?;
            written.push(stderr_written);
            stderr
        };
        Ok(Console { stdout, stderr, written, host_lines: Arc::new(Semaphore::new(HOST_LINES_MAX)), lost_lines: 0 })
    }

    /// Prints a line of the launcher itself.
    pub fn say(&self, line: &str) {
        self.stderr.say(format!("longarm: {line}\n"));
    }

    /// Prints a line that came from a host, if whoever reads is not too far behind. Else it is lost: what a host writes without end
    /// shall fill no memory here, and a host that had to wait would be given up.
    pub fn say_of_host(&mut self, line: &str) {
        let Ok(leave) = Arc::clone(&self.host_lines).try_acquire_owned() else {
            self.lost_lines += 1;
            return;
        };
        let lost = std::mem::take(&mut self.lost_lines);
        let lost = if lost > 0 { format!("longarm: {lost} lines of hosts were left out\n") } else { String::new() };
        let _ = self.stderr.batches.send((format!("{lost}longarm: {line}\n").into(), Some(leave)));
    }

    /// Closes the outputs; returns when all is written, or nobody wants it any more.
    pub async fn close(self) {
        if self.lost_lines > 0 {
            self.say(&format!("{} lines of hosts were left out", self.lost_lines));
        }
        drop((self.stdout, self.stderr));
        for written in self.written {
            // The thread drops its end when it stops, which is as good as an answer.
            let _ = written.await;
        }
    }
}

impl Sink {
    /// Prints text of the launcher itself, without waiting. Lost if the reader is gone.
    pub fn say(&self, text: impl Into<Vec<u8>>) {
        let _ = self.batches.send((text.into(), None));
    }

    fn open(output: OwnedFd) -> io::Result<(Sink, oneshot::Receiver<()>)> {
        let (batches, waiting) = mpsc::unbounded_channel();
        let (done, written) = oneshot::channel();
        let thread = std::thread::Builder::new().name("longarm-output".to_owned());
        let _thread: JoinHandle<()> = thread.spawn(move || {
            write_batches(File::from(output), waiting);
            let _ = done.send(());
        })?;
        Ok((Sink { batches, leave: Arc::new(Semaphore::new(BATCHES_MAX)) }, written))
    }

    /// Waits until there is room. `Err` when the reader is gone.
    async fn pass(&self, bytes: Vec<u8>) -> Result<(), ReaderGone> {
        if bytes.is_empty() {
            return Ok(());
        }
        let leave = Arc::clone(&self.leave).acquire_owned().await.map_err(|_| ReaderGone)?;
        self.batches.send((bytes, Some(leave))).map_err(|_| ReaderGone)
    }
}

/// Where the output of a rank comes from.
#[derive(Debug)]
pub enum Source {
    /// From a child of this process.
    Pipe(pipe::Receiver),
    /// From another host.
    Far(FarOutput),
}

impl Source {
    /// Adds what comes next. 0: it was the end.
    async fn read(&mut self, buffer: &mut Vec<u8>) -> usize {
        match self {
            // An error of a pipe is as final as its end.
            Source::Pipe(pipe) => pipe.read_buf(buffer).await.unwrap_or(0),
            Source::Far(far) => far.read(buffer).await,
        }
    }

    /// Something else than the rank may hold a pipe open. What comes from another host has an end in any case.
    fn is_pipe(&self) -> bool {
        matches!(self, Source::Pipe(_))
    }
}

/// Nobody reads what the launcher writes. The rank finds out in the same way: its pipe breaks.
#[derive(Debug)]
struct ReaderGone;

fn write_batches(mut output: File, mut waiting: mpsc::UnboundedReceiver<Batch>) {
    while let Some((bytes, leave)) = waiting.blocking_recv() {
        if write_all(&mut output, &bytes).is_err() {
            // Dropping the channel gives the leaves back, so nobody waits for them.
            return;
        }
        drop(leave);
    }
}

/// As [`Write::write_all`], but somebody else may have made the file non-blocking, and it is theirs too.
fn write_all(output: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut ready = [rustix::event::PollFd::new(output, rustix::event::PollFlags::OUT)];
                rustix::event::poll(&mut ready, None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_same_file(left: impl AsFd, right: impl AsFd) -> bool {
    match (rustix::fs::fstat(left), rustix::fs::fstat(right)) {
        (Ok(left), Ok(right)) => (left.st_dev, left.st_ino) == (right.st_dev, right.st_ino),
        _ => false,
    }
}

/// Passes on one output of one rank until it ends or nobody reads it. `tag` is put before each line. What `alike` holds for this
/// rank is passed on in its time. Once `ended` says so, all writers are gone or none of our business, and only what is in the pipe
/// already is passed on.
pub async fn pass_lines(
    mut rank: Source,
    sink: Sink,
    (tag, alike): (Option<String>, Option<(u32, Alike)>),
    mut ended: watch::Receiver<bool>,
) {
    let mut passing = Passing { lines: Lines::new(tag), sink, alike, held_until: None };
    loop {
        let held_until = passing.held_until;
        let count = tokio::select! {
            count = rank.read(passing.lines.room()) => Some(count),
            () = until_true(&mut ended), if rank.is_pipe() => None,
            () = until(held_until) => {
                if passing.pass_held().await.is_err() {
                    return;
                }
                continue;
            }
        };
        match count {
            None => {
                if let Source::Pipe(rank) = rank {
                    pass_what_is_there(rank, &mut passing).await;
                }
                break;
            }
            Some(0) => break,
            Some(_) => {}
        }
        if passing.pass_lines().await.is_err() {
            return;
        }
    }
    let rest = passing.lines.take_rest();
    if passing.pass(rest).await.is_ok() && passing.held_until.is_some() {
        until(passing.held_until).await;
        let _ = passing.pass_held().await;
    }
}

/// Also returns when the launcher's loop is gone, which counts as an end.
async fn until_true(ended: &mut watch::Receiver<bool>) {
    let _ = ended.wait_for(|ended| *ended).await;
}

/// `None`: for ever.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

async fn pass_what_is_there(rank: pipe::Receiver, passing: &mut Passing) {
    let Ok(rank) = rank.into_nonblocking_fd() else { return };
    let mut chunk = vec![0; READ_BYTES];
    loop {
        match rustix::io::read(&rank, &mut chunk[..]) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) | Err(_) => return,
            Ok(count) => {
                passing.lines.room().extend_from_slice(&chunk[..count]);
                if passing.pass_lines().await.is_err() {
                    return;
                }
            }
        }
    }
}

/// One output of one rank on its way.
struct Passing {
    lines: Lines,
    sink: Sink,
    /// Where the rank's errors are held, if they are.
    alike: Option<(u32, Alike)>,
    /// When what is held of this rank is due.
    held_until: Option<Instant>,
}

impl Passing {
    /// Passes on all whole lines.
    async fn pass_lines(&mut self) -> Result<(), ReaderGone> {
        let starts_inside = self.lines.inside_line;
        let mut batch = self.lines.take_lines();
        // The end of a long line may look like an error.
        let is_whole = !starts_inside || batch.iter().filter(|byte| **byte == b'\n').count() > 1;
        let error = if self.alike.is_some() && is_whole { alike::cut_off_error(&mut batch) } else { None };
        if error.is_some() {
            self.take_back().await?;
        }
        self.pass(batch).await?;
        if let (Some(error), Some((rank, alike))) = (error, &self.alike) {
            self.held_until = Some(alike.hold(*rank, error, Instant::now()));
        }
        Ok(())
    }

    /// Passes on bytes behind what was held of this rank.
    async fn pass(&mut self, batch: Vec<u8>) -> Result<(), ReaderGone> {
        if batch.is_empty() {
            return Ok(());
        }
        self.take_back().await?;
        self.sink.pass(batch).await
    }

    /// The rank goes on after what was held.
    async fn take_back(&mut self) -> Result<(), ReaderGone> {
        if self.held_until.take().is_none() {
            return Ok(());
        }
        let line = self.alike.as_ref().and_then(|(rank, alike)| alike.take_back(*rank));
        self.sink.pass(line.unwrap_or_default()).await
    }

    /// Passes on what was held, with those who said the same.
    async fn pass_held(&mut self) -> Result<(), ReaderGone> {
        if self.held_until.take().is_none() {
            return Ok(());
        }
        let line = self.alike.as_ref().and_then(|(rank, alike)| alike.take(*rank));
        self.sink.pass(line.unwrap_or_default()).await
    }
}

/// Cuts a stream of bytes into batches of whole lines.
#[derive(Debug)]
struct Lines {
    tag: Option<Vec<u8>>,
    buffer: Vec<u8>,
    /// Where to look for an end of line: before it there is none.
    seen: usize,
    /// Whether the next byte continues a line of which a piece was passed on.
    inside_line: bool,
}

impl Lines {
    fn new(tag: Option<String>) -> Lines {
        Lines { tag: tag.map(String::into_bytes), buffer: Vec::new(), seen: 0, inside_line: false }
    }

    fn room(&mut self) -> &mut Vec<u8> {
        self.buffer.reserve(READ_BYTES);
        &mut self.buffer
    }

    /// All whole lines, or a piece of a line that is too long.
    fn take_lines(&mut self) -> Vec<u8> {
        let end = self.buffer[self.seen..].iter().rposition(|byte| *byte == b'\n').map(|at| self.seen + at + 1);
        let end = end.or((self.buffer.len() > LINE_BYTES_MAX).then_some(self.buffer.len())).unwrap_or(0);
        let rest = self.buffer.split_off(end);
        let batch = std::mem::replace(&mut self.buffer, rest);
        self.seen = self.buffer.len();
        self.tagged(batch)
    }

    /// What is left at the end.
    fn take_rest(&mut self) -> Vec<u8> {
        let rest = std::mem::take(&mut self.buffer);
        self.seen = 0;
        let mut batch = self.tagged(rest);
        // Else the tag of another rank would stand in the middle of a line.
        if self.tag.is_some() && self.inside_line {
            batch.push(b'\n');
        }
        batch
    }

    fn tagged(&mut self, batch: Vec<u8>) -> Vec<u8> {
        let Some(last) = batch.last() else { return batch };
        let starts_inside = std::mem::replace(&mut self.inside_line, *last != b'\n');
        let Some(tag) = &self.tag else { return batch };
        let mut tagged = Vec::with_capacity(batch.len() + batch.len() / 4 + tag.len());
        for (index, line) in batch.split_inclusive(|byte| *byte == b'\n').enumerate() {
            if index > 0 || !starts_inside {
                tagged.extend_from_slice(tag);
            }
            tagged.extend_from_slice(line);
        }
        tagged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(lines: &mut Lines, bytes: &[u8]) -> Vec<u8> {
        lines.room().extend_from_slice(bytes);
        lines.take_lines()
    }

    #[test]
    fn only_whole_lines_are_passed_on_and_the_rest_at_the_end() {
        let mut lines = Lines::new(None);
        assert_eq!(fed(&mut lines, b"a\nb\nc"), b"a\nb\n");
        assert_eq!(fed(&mut lines, b"d"), b"");
        assert_eq!(fed(&mut lines, b"\n\xff\0"), b"cd\n");
        assert_eq!(lines.take_rest(), b"\xff\0");
        assert_eq!(lines.take_rest(), b"");
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_on_in_pieces_that_make_the_same_bytes() {
        let long = vec![b'x'; 3 * LINE_BYTES_MAX + 5];
        let mut lines = Lines::new(None);
        let mut passed = Vec::new();
        let mut pieces = 0;
        for chunk in long.chunks(READ_BYTES) {
            let batch = fed(&mut lines, chunk);
            pieces += usize::from(!batch.is_empty());
            assert!(lines.buffer.len() <= LINE_BYTES_MAX);
            passed.extend(batch);
        }
        passed.extend(lines.take_rest());
        assert_eq!((passed == long, pieces), (true, 2));
    }

    #[test]
    fn each_line_gets_one_tag_also_when_it_comes_in_pieces() {
        let mut lines = Lines::new(Some("[3] ".to_owned()));
        assert_eq!(fed(&mut lines, b"a\n\nb"), b"[3] a\n[3] \n");
        assert_eq!(lines.take_rest(), b"[3] b\n");
        let mut lines = Lines::new(Some("[3] ".to_owned()));
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        assert_eq!(fed(&mut lines, &long).len(), long.len() + 4);
        assert_eq!(fed(&mut lines, b"y\nz\n"), b"y\n[3] z\n");
        assert_eq!(lines.take_rest(), b"");
    }
}
