//! A place where ranks run: this machine, or another one that an agent speaks for.

use longarm_control::agent::ToAgent;
use rustix::process::Signal;

use super::here::{Deaf, Here};
use super::link::Link;

/// See the module.
#[derive(Debug)]
pub enum Site {
    /// They are children of this process.
    Here(Here),
    /// An agent looks after them.
    There(Link),
}

impl Site {
    /// Has a rank told a line.
    ///
    /// # Errors
    /// When too many wait for it. An agent says so later.
    pub fn tell(&self, rank: u32, line: Vec<u8>) -> Result<(), Deaf> {
        match self {
            Site::Here(here) => here.tell(rank, line),
            Site::There(link) => {
                link.send(ToAgent::Message { rank, line });
                Ok(())
            }
        }
    }

    /// Whether a rank is to be asked where it stands. Its agent also looks whether it is stopped.
    pub fn ask(&self, rank: u32) -> bool {
        match self {
            Site::Here(here) => !here.is_busy(rank),
            Site::There(link) => {
                link.send(ToAgent::Look { rank });
                true
            }
        }
    }

    /// Sends a signal to the process group of a rank.
    pub fn signal(&self, rank: u32, signal: Signal) {
        match self {
            Site::Here(here) => here.signal(rank, signal),
            Site::There(link) => link.send(ToAgent::Signal { rank, signal: signal.as_raw() }),
        }
    }

    /// Collects the processes that have ended.
    pub fn bury(&mut self) {
        if let Site::Here(here) = self {
            here.bury();
        }
    }

    /// Kills all. Those of this machine are gone then.
    pub fn end(&mut self) {
        if let Site::Here(here) = self {
            here.end();
        }
    }
}
