//! The guardian: a small process that outlives a killed launcher and ends what it left behind.
//!
//! The launcher holds a pipe to it. Every rank writes its process group into the pipe before it executes anything: four
//! bytes, little-endian. Before the launcher collects a process that has ended, after which its number may be anybody's, it takes
//! the number back: the same four bytes of its negative. Of a process whose program could not be executed, and so was never seen,
//! the number stays: the job ends then. When the pipe ends without the farewell (four zero bytes), the launcher
//! has died, and the guardian kills all groups. It runs in its own process group, so that Ctrl-C does not reach it.
//!
//! Grandchildren that move to another process group on purpose are out of its reach.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal};

/// The launcher's end.
#[derive(Debug)]
pub struct Guardian {
    process: Child,
    pipe: Arc<OwnedFd>,
}

impl Guardian {
    /// Starts the guardian.
    ///
    /// # Errors
    /// When no process or pipe can be had.
    pub fn start() -> io::Result<Guardian> {
        // This name works even where the binary was moved or replaced since this process started.
        let mut process = Command::new("/proc/self/exe")
            .arg0("longarm")
            .arg("__guardian")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = process.stdin.take().expect("the pipe was asked for above");
        Ok(Guardian { process, pipe: Arc::new(pipe.into()) })
    }

    /// The pipe into which ranks write their process group.
    pub fn pipe(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.pipe)
    }

    /// Sends the guardian away: everything has been taken care of.
    pub fn dismiss(mut self) {
        // A guardian that is gone already needs no farewell.
        let _ = rustix::io::write(&*self.pipe, &0_u32.to_le_bytes());
        drop(self.pipe);
        let _ = self.process.wait();
    }
}

/// Has the guardian forget a process group, whose number is about to become free.
pub fn forget(guardian: &OwnedFd, group: Pid) {
    // A guardian that is gone remembers nothing.
    let _ = rustix::io::write(guardian, &(-group.as_raw_pid()).to_le_bytes());
}

/// What the guardian process does.
pub fn watch() -> ExitCode {
    for group in groups_left(io::stdin().lock()).into_iter().filter_map(Pid::from_raw) {
        // A group that is gone already is fine.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    ExitCode::SUCCESS
}

/// Reads to the end. Empty when the farewell came.
fn groups_left(mut pipe: impl Read) -> BTreeSet<i32> {
    let mut groups = BTreeSet::new();
    let mut word = [0; 4];
    while pipe.read_exact(&mut word).is_ok() {
        match i32::from_le_bytes(word) {
            0 => return BTreeSet::new(),
            // Group 1 would be the whole machine's; nobody sends it, and nobody shall.
            number @ 2.. => drop(groups.insert(number)),
            number => drop(groups.remove(&number.saturating_neg())),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(words: &[i32]) -> Vec<i32> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        groups_left(&bytes[..]).into_iter().collect()
    }

    #[test]
    fn groups_are_left_only_when_no_farewell_came() {
        assert_eq!(left(&[7, 8]), [7, 8]);
        assert_eq!(left(&[7, 8, 0]), [0; 0]);
        assert_eq!(left(&[]), [0; 0]);
    }

    #[test]
    fn a_group_that_was_taken_back_is_left_alone_unless_it_comes_again() {
        assert_eq!(left(&[7, 8, -7]), [8]);
        assert_eq!(left(&[7, 8, -7, -9, 7]), [7, 8]);
        assert_eq!(left(&[7, i32::MIN]), [7]);
    }

    #[test]
    fn the_first_process_of_the_machine_is_never_killed() {
        assert_eq!(left(&[1, 9]), [9]);
    }
}
