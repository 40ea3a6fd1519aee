//! Feeding the launcher's stdin to rank 0.
//!
//! A thread of its own does it, so that a rank that does not read blocks nothing else. The end of the input is passed
//! on by closing the pipe. The terminal is read only while the launcher runs in the foreground, because reading it
//! from the background would stop the launcher.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;

const READ_BYTES: usize = 64 << 10;

/// Starts the thread. It ends with the input, with the rank, or with the launcher.
///
/// # Errors
/// When no thread can be had.
pub fn feed(rank: impl Write + Send + 'static) -> io::Result<()> {
    if !may_read() {
        return Ok(());
    }
    // Behind the buffer of the standard library, so that bytes go on as soon as they come. Without a stdin there is
    // nothing to feed.
    let Ok(input) = io::stdin().as_fd().try_clone_to_owned() else { return Ok(()) };
    let thread = std::thread::Builder::new().name("longarm-input".to_owned());
    thread.spawn(move || copy(File::from(input), rank)).map(drop)
}

fn may_read() -> bool {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return true;
    }
    rustix::termios::tcgetpgrp(stdin.as_fd()).is_ok_and(|foreground| foreground == rustix::process::getpgrp())
}

fn copy(mut input: File, mut rank: impl Write) {
    let mut chunk = vec![0; READ_BYTES];
    loop {
        let count = match input.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // Somebody else may have made the file non-blocking, and it is theirs too.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut ready = [rustix::event::PollFd::new(&input, rustix::event::PollFlags::IN)];
                match rustix::event::poll(&mut ready, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => return,
                }
            }
            Err(_) => return,
        };
        // The rank may end, or close its stdin, whenever it wants.
        if rank.write_all(&chunk[..count]).is_err() {
            return;
        }
    }
}
