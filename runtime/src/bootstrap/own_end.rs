//! The end of this process, when the job ends and whatever else is broken: its launcher, the reader of its output, the program.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::process::Signal;

/// How long a launcher has to end this process before it sees to that itself, and once more between its last words and its end.
pub(crate) const LAUNCHER_GRACE: Duration = Duration::from_secs(3);
/// How long whoever reads standard error may let a last line wait.
const READER_GRACE: Duration = Duration::from_secs(1);
/// What a pipe that has room at all takes without letting the writer wait.
const PIECE_BYTES_MAX: usize = 4096;

/// Prints a line of longarm's to standard error if somebody reads it. Where nobody does, or not for long, it is lost: it neither
/// waits for ever, nor panics, nor raises a signal.
pub(crate) fn say_last(line: &str) {
    // What is not said here need not be said.
    let _ = write_last(io::stderr(), format!("longarm: {line}\n").as_bytes(), READER_GRACE);
}

fn write_last(output: impl AsFd, mut text: &[u8], grace: Duration) -> io::Result<()> {
    let until = Instant::now() + grace;
    while !text.is_empty() {
        let mut events = [PollFd::new(&output, PollFlags::OUT)];
        let rest = Timespec::try_from(until.saturating_duration_since(Instant::now())).unwrap_or_default();
        match rustix::event::poll(&mut events, Some(&rest)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            // A reader that is gone shows here, before a write would raise a signal.
            Ok(_) if events[0].revents() != PollFlags::OUT => return Err(io::ErrorKind::BrokenPipe.into()),
            Ok(_) => {}
        }
        match rustix::io::write(&output, &text[..text.len().min(PIECE_BYTES_MAX)]) {
            Ok(written) => text = &text[written..],
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The job ends: should nobody have ended this process after `grace`, wakes whoever sleeps in it, who may still say why, and
/// after as long again ends it. Of several calls the one that ends it first counts.
pub(crate) fn end_after(grace: Duration, wake: impl FnOnce() + Send + 'static) {
    static ENDING: Mutex<Option<Instant>> = Mutex::new(None);
    let at = Instant::now() + grace * 2;
    let mut ending = ENDING.lock();
    if ending.is_some_and(|earlier| earlier <= at) {
        return;
    }
    *ending = Some(at);
    drop(ending);
    let ending = std::thread::Builder::new().name("longarm-ending".into()).spawn(move || {
        std::thread::sleep(grace);
        wake();
        std::thread::sleep(grace);
        end_now();
    });
    if let Err(error) = ending {
        say_last(&format!("no thread can be started that would end this process later ({error}): it ends now"));
        end_now();
    }
}

/// Ends this process at once: what the program does at its exit may wait for others.
pub(crate) fn end_now() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    std::process::abort()
}

/// How long a launcher may take to read what this process has said, before it is told to end the job.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// Waits until nothing is left unread in the pipes behind this process's output. Launchers of MPI end a job without reading
/// the rest, which is where the reason for the end stands.
pub(crate) fn let_output_be_read() {
    let until = Instant::now() + OUTPUT_GRACE;
    let (out, error) = (io::stdout(), io::stderr());
    for output in [out.as_fd(), error.as_fd()] {
        // Of anything else the number of bytes means something else.
        let is_pipe =
            rustix::fs::fstat(output).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        while is_pipe && Instant::now() < until && rustix::io::ioctl_fionread(output).is_ok_and(|bytes| bytes > 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_line_longer_than_a_pipes_page_comes_whole() {
        let (reader, writer) = io::pipe().unwrap();
        let text = "reason ".repeat(2000);
        write_last(&writer, text.as_bytes(), READER_GRACE).unwrap();
        drop(writer);
        assert_eq!(io::read_to_string(reader).unwrap(), text);
    }

    #[test]
    fn a_last_line_is_lost_where_its_reader_is_gone_or_sleeps() {
        let (reader, writer) = io::pipe().unwrap();
        while write_last(&writer, &[b'x'; PIECE_BYTES_MAX], Duration::ZERO).is_ok() {}
        let full = write_last(&writer, b"reason", Duration::ZERO);
        assert_eq!(full.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        drop(reader);
        let broken = write_last(&writer, b"reason", READER_GRACE);
        assert_eq!(broken.map_err(|error| error.kind()), Err(io::ErrorKind::BrokenPipe));
    }
}
