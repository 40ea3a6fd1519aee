//! How far a rank is.

use longarm_control::proof::{RankProof, RankWelcome};

/// How far a rank is.
pub enum Step {
    /// Its process has not begun.
    Absent,
    /// It waits for the leader of its node, who has not come, or for the greeting of that one's relay.
    Behind,
    /// It calls rank 0.
    Calling,
    /// It has greeted, and is to be challenged.
    Greeted(Box<RankProof>),
    /// It has proven that it knows the secret, and is to be welcomed.
    Proven(RankWelcome),
    /// A try has failed. It rests before the next one.
    Resting,
    /// It has said where it runs, and waits for the others.
    Arrived,
    /// All have come. It has joined, and waits for its start.
    Joined,
    /// It waits for the card of its node.
    Asked,
    /// It knows where the server of its node is.
    In,
    /// It has left, and waits to be let go.
    Left,
    /// It was let go: all is well.
    LetGo,
    /// It was told that it does not go on, and why.
    Told(String),
    /// It was killed, or never comes.
    Lost,
}

impl Step {
    /// Whether nothing more comes of it.
    pub fn is_over(&self) -> bool {
        matches!(self, Step::LetGo | Step::Told(_) | Step::Lost)
    }

    /// What it waits for, as people read it.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Absent => "has not begun",
            Step::Behind => "waits for the leader of its node",
            Step::Calling => "calls rank 0",
            Step::Greeted(_) => "waits to be challenged",
            Step::Proven(_) => "waits to be welcomed",
            Step::Resting => "rests before it tries again",
            Step::Arrived => "waits for the others",
            Step::Joined => "waits for its start",
            Step::Asked => "waits for the card of its node",
            Step::In => "is in",
            Step::Left => "waits to be let go",
            Step::LetGo => "was let go",
            Step::Told(_) => "was told why not",
            Step::Lost => "is lost",
        }
    }
}

/// A rank.
pub struct Rank {
    pub step: Step,
    /// What leads to the coordinator.
    pub connection: Option<u32>,
    /// Whether that comes from a relay.
    pub through_relay: bool,
    /// Whether it goes to rank 0 by itself, whatever its node does.
    pub by_itself: bool,
    /// What it has heard and not understood yet.
    pub heard: Vec<u8>,
    /// The number of what it waits for.
    pub wait: u32,
    /// How long it rests before the next try.
    pub pause_ns: u64,
    /// It has had its start.
    pub was_started: bool,
}

impl Rank {
    pub fn new() -> Rank {
        Rank {
            step: Step::Absent,
            connection: None,
            through_relay: false,
            by_itself: false,
            heard: Vec::new(),
            wait: 0,
            pause_ns: 0,
            was_started: false,
        }
    }

    /// The first line of what was heard, without its end.
    pub fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.heard.iter().position(|byte| *byte == b'\n')?;
        let rest = self.heard.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.heard, rest);
        line.pop();
        Some(line)
    }

    /// The first bytes of what was heard.
    pub fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let taken = *self.heard.first_chunk()?;
        self.heard.drain(..BYTES);
        Some(taken)
    }
}
