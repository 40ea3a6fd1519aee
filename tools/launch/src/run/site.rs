//! A place where ranks run: this machine, or another one that an agent speaks for.

use std::collections::BTreeSet;

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
    There {
        /// It.
        link: Link,
        /// Ranks that were asked where they stand, and have said nothing since.
        asked: BTreeSet<u32>,
        /// Ranks at which the agent has not looked yet, though it was asked to.
        looked_for: BTreeSet<u32>,
    },
}

impl Site {
    /// A place on another machine.
    pub fn there(link: Link) -> Site {
        Site::There { link, asked: BTreeSet::new(), looked_for: BTreeSet::new() }
    }

    /// Has a rank told a line.
    ///
    /// # Errors
    /// When too many wait for it. An agent says so later.
    pub fn tell(&self, rank: u32, line: Vec<u8>) -> Result<(), Deaf> {
        match self {
            Site::Here(here) => here.tell(rank, line),
            Site::There { link, .. } => {
                link.send(ToAgent::Message { rank, line });
                Ok(())
            }
        }
    }

    /// Whether a rank is to be asked where it stands. Its agent also looks whether it is stopped. A rank that is stopped, or whose
    /// host is far behind, does not find a heap of questions when it goes on.
    pub fn ask(&mut self, rank: u32) -> bool {
        match self {
            Site::Here(here) => !here.is_busy(rank),
            Site::There { link, asked, looked_for } => {
                if looked_for.insert(rank) {
                    link.send(ToAgent::Look { rank });
                }
                asked.insert(rank)
            }
        }
    }

    /// The agent has looked at a rank.
    pub fn handle_look(&mut self, rank: u32) {
        if let Site::There { looked_for, .. } = self {
            looked_for.remove(&rank);
        }
    }

    /// A rank has said something, and so it runs.
    pub fn handle_word(&mut self, rank: u32) {
        if let Site::There { asked, .. } = self {
            asked.remove(&rank);
        }
    }

    /// Has the agent pass on what is left and end.
    pub fn finish(&self) {
        if let Site::There { link, .. } = self {
            link.send(ToAgent::Finish);
        }
    }

    /// Sends a signal to the process group of a rank.
    pub fn signal(&self, rank: u32, signal: Signal) {
        match self {
            Site::Here(here) => here.signal(rank, signal),
            Site::There { link, .. } => link.send(ToAgent::Signal { rank, signal: signal.as_raw() }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_elsewhere_that_says_nothing_is_asked_once_and_looked_at_after_each_look() {
        let (link, mut frames) = Link::without_agent(8);
        let mut site = Site::there(link);
        let asked: Vec<bool> = (0..100).map(|_| site.ask(3)).collect();
        assert_eq!(asked.iter().filter(|asked| **asked).count(), 1, "what waits for a stopped rank has a bound");
        assert_eq!(frames.try_recv(), Ok(ToAgent::Look { rank: 3 }));
        assert!(frames.try_recv().is_err(), "the agent has not answered the first time");
        site.handle_look(3);
        assert!(!site.ask(3) && site.ask(4), "the other one is asked");
        assert_eq!(frames.try_recv(), Ok(ToAgent::Look { rank: 3 }), "it may go on again");
        site.handle_word(3);
        assert!(site.ask(3));
    }
}
