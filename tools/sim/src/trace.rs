//! What happened, in order: a hash over all of it, and the last events for whoever has to find out why a run failed.

use std::collections::VecDeque;
use std::fmt;

use crate::dice::mix;

/// Events that are kept for the report of a failure.
const KEPT: usize = 1 << 16;

/// What an event was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum What {
    /// A rank went on. Detail: why it had rested.
    Resume = 1,
    /// A rank rests. Detail: on what.
    Rest = 2,
    /// A server did a turn. Detail: whether anything moved.
    Turn = 3,
    /// Bytes were sent over a link. Detail: how many.
    Send = 4,
    /// Bytes were received over a link. Detail: how many.
    Receive = 5,
    /// Bytes have arrived over a link. Detail: how many.
    Arrive = 6,
    /// A connection was asked for.
    Call = 7,
    /// A link's end was closed.
    Close = 8,
    /// A link broke. Detail: bytes that were lost.
    Break = 9,
    /// An operation began. Detail: its kind and place.
    Begin = 10,
    /// An operation ended. Detail: the value that it brought.
    End = 11,
    /// An operation failed. Detail: its kind.
    Fail = 12,
    /// A fault was injected. Detail: its kind.
    Fault = 13,
    /// A rank was heard to be dead.
    Death = 14,
    /// An eventcount woke a rank.
    Wakeup = 15,
    /// Somebody who does not belong here did something.
    Stranger = 16,
    /// A rank's program ended. Detail: whether well.
    Leave = 17,
    /// A transfer with no server involved went on. Detail: its number, and whether it was done.
    Direct = 18,
}

/// Whom an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// A rank.
    Rank(u32),
    /// A node's server.
    Server(u32),
    /// One direction of a link: from the caller (0) or to it (1).
    Link(u32, u8),
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    at_ns: u64,
    what: What,
    who: Who,
    detail: u64,
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { at_ns, what, who, detail } = self;
        let who = match who {
            Who::Rank(rank) => format!("rank {rank}"),
            Who::Server(node) => format!("server {node}"),
            Who::Link(link, 0) => format!("link {link} >"),
            Who::Link(link, _) => format!("link {link} <"),
        };
        write!(formatter, "{:>12}.{:03} us  {who:<12} {what:?} {detail:#x}", at_ns / 1000, at_ns % 1000)
    }
}

/// See the module.
pub struct Trace {
    hash: u64,
    count: u64,
    kept: VecDeque<Entry>,
}

impl Trace {
    /// Nothing has happened.
    pub fn new() -> Trace {
        Trace { hash: 0, count: 0, kept: VecDeque::new() }
    }

    /// Notes an event.
    #[inline]
    pub fn note(&mut self, at_ns: u64, what: What, who: Who, detail: u64) {
        let (kind, number) = match who {
            Who::Rank(rank) => (1, u64::from(rank)),
            Who::Server(node) => (2, u64::from(node)),
            Who::Link(link, direction) => (3, u64::from(link) << 1 | u64::from(direction)),
        };
        let word = (what as u64) << 56 | kind << 48 | number;
        self.hash = mix(self.hash ^ word).wrapping_add(detail.rotate_left(17)) ^ at_ns;
        self.count += 1;
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Entry { at_ns, what, who, detail });
    }

    /// A number that stands for all events so far.
    pub fn hash(&self) -> u64 {
        mix(self.hash ^ self.count)
    }

    /// How many events there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The last `most` events that concern somebody.
    pub fn last(&self, most: usize, concerns: impl Fn(Who) -> bool) -> Vec<String> {
        let shown = |entry: &&Entry| match entry.what {
            What::Fault | What::Rest | What::Resume => false,
            What::Death | What::Leave => true,
            _ => concerns(entry.who),
        };
        let mut lines: Vec<String> = self.kept.iter().rev().filter(shown).take(most).map(Entry::to_string).collect();
        lines.reverse();
        lines
    }
}

impl Default for Trace {
    fn default() -> Self {
        Trace::new()
    }
}
