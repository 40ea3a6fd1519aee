//! What the launcher and its agents on other hosts say to each other, as frames over an agent's stdin and stdout.
//!
//! An agent begins with [`marker`], a line of text: whatever the host's shell prints before it is skipped. Only then the launcher
//! sends [`ToAgent::Setup`], so that what stands in it goes to an agent and to nobody else. From then on both sides send frames:
//!
//! ```text
//!   length (4 bytes, of what follows) | kind (1) | rank or host (4) | payload
//! ```
//!
//! Numbers are little-endian. Ranks and hosts have their numbers in the job, so that an agent that has started other agents passes
//! frames on without a change. The output of a rank has [`CHUNKS_MAX`] frames under way at most, and so has the input of rank 0:
//! who takes one out says so ([`ToAgent::Room`], [`FromAgent::InputRoom`]). So a reader that is slow makes its writer wait and
//! nobody else, and what is held has a bound.
//!
//! How frames are written and read stands in [`crate::frames`].

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::how_ended::HowEnded;

/// Version of the frames. Both sides have to agree.
pub const AGENT_VERSION: u32 = 1;
/// What the line begins with that an agent writes first.
pub const MARKER: &str = "longarm-agent-speaks";
/// Bytes of an output or input in one frame.
pub const CHUNK_BYTES_MAX: usize = 32 << 10;
/// Frames of one stream that may be under way.
pub const CHUNKS_MAX: usize = 2;
/// Bytes that may come before the marker.
pub const NOISE_BYTES_MAX: usize = 256 << 10;

/// How deep a tree of agents may be.
const DEPTH_MAX: u32 = 4;

/// A frame to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToAgent {
    /// The first frame: what is to be started.
    Setup(Box<Setup>),
    /// The other side lives.
    Beat,
    /// A line for a rank, from the launcher, with its end.
    Message {
        /// The rank.
        rank: u32,
        /// The line.
        line: Vec<u8>,
    },
    /// A signal for the process group of a rank.
    Signal {
        /// The rank.
        rank: u32,
        /// The signal's number.
        signal: i32,
    },
    /// A piece of the job's input for a rank; an empty one is the end.
    Input {
        /// The rank.
        rank: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A frame of a rank's output was taken out: another one may come.
    Room {
        /// The rank.
        rank: u32,
        /// Which output.
        stream: Stream,
    },
    /// Nobody reads an output any more: the rank is to find out.
    Closed {
        /// The rank.
        rank: u32,
        /// Which output.
        stream: Stream,
    },
    /// Asks whether the process of a rank is stopped.
    Look {
        /// The rank.
        rank: u32,
    },
    /// All is over: pass on the last outputs and end.
    Finish,
}

/// A frame from an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromAgent {
    /// The other side lives.
    Beat,
    /// The ranks of this host are being started.
    Ready {
        /// The host.
        host: u32,
        /// The processors that the agent may use.
        processors: Vec<u32>,
    },
    /// A rank runs.
    Started {
        /// The rank.
        rank: u32,
        /// Its process.
        pid: u32,
    },
    /// A rank wrote a line for the launcher, given without its end.
    Line {
        /// The rank.
        rank: u32,
        /// The line.
        line: Vec<u8>,
    },
    /// A rank broke the rules of its socket.
    Broke {
        /// The rank.
        rank: u32,
        /// How many messages wait for it, if it does not read them; otherwise it wrote a line without end.
        waiting: Option<u32>,
    },
    /// The process of a rank ended.
    Ended {
        /// The rank.
        rank: u32,
        /// How.
        how: HowEnded,
    },
    /// A piece of what a rank wrote; an empty one is the end.
    Output {
        /// The rank.
        rank: u32,
        /// Which output.
        stream: Stream,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A frame of input was taken out: another one may come.
    InputRoom {
        /// The rank.
        rank: u32,
    },
    /// The answer to [`ToAgent::Look`].
    Looked {
        /// The rank.
        rank: u32,
        /// Whether its process is stopped.
        is_stopped: bool,
    },
    /// Nothing can be started on this host.
    Refused {
        /// The host.
        host: u32,
        /// What the launcher exits with.
        status: i32,
        /// What is wrong, for people.
        reason: String,
    },
    /// A host that this agent has started an agent on is gone, with all that was reached through it.
    Lost {
        /// The host.
        host: u32,
        /// How that was noticed, for people.
        reason: String,
    },
    /// All outputs of the host have been sent: nothing follows from there.
    Finished {
        /// The host.
        host: u32,
    },
}

/// An output of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Its stdout.
    Stdout,
    /// Its stderr.
    Stderr,
}

/// What an agent is told first.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// [`AGENT_VERSION`] of the launcher.
    pub version: u32,
    /// How many ranks the whole job has.
    pub size: u32,
    /// The working folder of the ranks.
    pub folder: Vec<u8>,
    /// The program as the user wrote it, then its arguments.
    pub command: Vec<Vec<u8>>,
    /// The environment of the ranks, but for what stays the host's own.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// Variables that ranks get from the host's own environment, if they are there.
    pub kept: Vec<String>,
    /// Whether each rank is bound to one processor.
    pub is_bound: bool,
    /// Whether a debugger may hold ranks.
    pub debugger: bool,
    /// After how many milliseconds of silence the other side is given up. `None`: never.
    pub silence_ms: Option<u64>,
    /// How further agents are started.
    pub starter: Starter,
    /// What runs on this host, and on those that it starts agents on.
    pub branch: Branch,
}

/// What leads to an agent on another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starter {
    /// A program and its arguments. `{}` stands for the host, which otherwise comes behind them.
    pub command: Vec<String>,
    /// Where longarm may be on the hosts. What is not there is tried in the next place.
    pub paths: Vec<String>,
    /// Whether a shell there reads what is to be run.
    pub is_read_by_shell: bool,
}

impl Starter {
    /// What to run for an agent on a host: a command for each place where longarm may be.
    pub fn commands(&self, host: &str) -> Vec<Vec<String>> {
        let names_host = self.command.iter().any(|word| word.contains("{}"));
        let leading: Vec<String> = self.command.iter().map(|word| word.replace("{}", host)).collect();
        let host = (!names_host).then(|| host.to_owned());
        let command = |path: &String| {
            let path = if self.is_read_by_shell { quoted(path) } else { path.clone() };
            leading.iter().cloned().chain(host.clone()).chain([path, "agent".to_owned()]).collect()
        };
        self.paths.iter().map(command).collect()
    }
}

/// A word as shells read it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._+-".contains(letter);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// A host, and those that are reached through it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    /// The number of the host in the job.
    pub host: u32,
    /// Its name, as the user wrote it.
    pub name: String,
    /// Its ranks, each with its node.
    pub ranks: Vec<(u32, u32)>,
    /// Hosts that this one starts agents on.
    pub below: Vec<Branch>,
}

/// The line that an agent writes first, with its end.
pub fn marker(software: &str) -> String {
    format!("{MARKER} {AGENT_VERSION} {software}\n")
}

/// What stands in a line, if it is an agent's first: the version of its frames, and of its longarm.
pub fn read_marker(line: &[u8]) -> Option<(u32, String)> {
    let line = std::str::from_utf8(line).ok()?;
    // What a shell printed last may have no end of its own.
    let words = line[line.find(MARKER)?..].strip_prefix(MARKER)?.strip_prefix(' ')?;
    let (version, software) = words.trim_end().split_once(' ')?;
    Some((version.parse().ok()?, software.chars().filter(|letter| !letter.is_control()).take(64).collect()))
}

impl Setup {
    /// Whether a job can be made of it: there is a program, every rank is one of the job's and there once, and the tree is as
    /// shallow as those that a launcher makes.
    pub fn is_sound(&self) -> bool {
        let mut ranks = BTreeSet::new();
        let mut hosts = BTreeSet::new();
        !self.command.is_empty() && self.branch.is_sound(self.size, &mut ranks, &mut hosts, DEPTH_MAX)
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // An environment may hold what nobody shall read.
        formatter.debug_struct("Setup").field("branch", &self.branch).finish_non_exhaustive()
    }
}

impl ToAgent {
    /// The rank that it is for. `None`: the agent itself.
    pub fn rank(&self) -> Option<u32> {
        match self {
            ToAgent::Setup(_) | ToAgent::Beat | ToAgent::Finish => None,
            ToAgent::Message { rank, .. }
            | ToAgent::Signal { rank, .. }
            | ToAgent::Input { rank, .. }
            | ToAgent::Room { rank, .. }
            | ToAgent::Closed { rank, .. }
            | ToAgent::Look { rank } => Some(*rank),
        }
    }
}

/// Whom a frame of an agent is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The agent itself.
    Itself,
    /// A rank.
    Rank(u32),
    /// A host.
    Host(u32),
}

impl FromAgent {
    /// Whom it is about.
    pub fn about(&self) -> About {
        match self {
            FromAgent::Beat => About::Itself,
            FromAgent::Started { rank, .. }
            | FromAgent::Line { rank, .. }
            | FromAgent::Broke { rank, .. }
            | FromAgent::Ended { rank, .. }
            | FromAgent::Output { rank, .. }
            | FromAgent::InputRoom { rank }
            | FromAgent::Looked { rank, .. } => About::Rank(*rank),
            FromAgent::Ready { host, .. }
            | FromAgent::Refused { host, .. }
            | FromAgent::Lost { host, .. }
            | FromAgent::Finished { host } => About::Host(*host),
        }
    }
}

impl Branch {
    /// Calls for this host and all that are reached through it.
    pub fn for_each<'a>(&'a self, visit: &mut impl FnMut(&'a Branch)) {
        visit(self);
        self.below.iter().for_each(|branch| branch.for_each(visit));
    }

    /// The hosts of the branch.
    pub fn hosts(&self) -> Vec<u32> {
        let mut hosts = Vec::new();
        self.for_each(&mut |branch| hosts.push(branch.host));
        hosts
    }

    fn is_sound(&self, size: u32, ranks: &mut BTreeSet<u32>, hosts: &mut BTreeSet<u32>, depth: u32) -> bool {
        depth > 0
            && hosts.insert(self.host)
            && self.ranks.iter().all(|(rank, _)| *rank < size && ranks.insert(*rank))
            && self.below.iter().all(|branch| branch.is_sound(size, ranks, hosts, depth - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(host: u32, ranks: &[u32]) -> Branch {
        let ranks = ranks.iter().map(|rank| (*rank, host)).collect();
        Branch { host, name: format!("h{host}"), ranks, below: Vec::new() }
    }

    fn setup(branch: Branch) -> Setup {
        let starter =
            Starter { command: vec!["ssh".to_owned()], paths: vec!["longarm".to_owned()], is_read_by_shell: true };
        Setup {
            version: AGENT_VERSION,
            size: 4,
            folder: b"/".to_vec(),
            command: vec![b"program".to_vec()],
            environment: vec![(b"TOKEN".to_vec(), b"5ec2e7".to_vec())],
            kept: Vec::new(),
            is_bound: false,
            debugger: false,
            silence_ms: None,
            starter,
            branch,
        }
    }

    #[test]
    fn a_setup_is_sound_when_every_rank_and_host_is_there_once() {
        let tree = Branch { below: vec![leaf(1, &[2]), leaf(2, &[3])], ..leaf(0, &[0, 1]) };
        assert!(setup(tree.clone()).is_sound());
        assert_eq!(tree.hosts(), [0, 1, 2]);
        for below in [vec![leaf(1, &[1])], vec![leaf(0, &[2])], vec![leaf(1, &[4])]] {
            assert!(!setup(Branch { below, ..leaf(0, &[0, 1]) }).is_sound());
        }
        assert!(!Setup { command: Vec::new(), ..setup(leaf(0, &[0])) }.is_sound());
        let mut deep = leaf(9, &[]);
        for host in 0..DEPTH_MAX {
            deep = Branch { below: vec![deep], ..leaf(host, &[]) };
        }
        assert!(!setup(deep).is_sound());
    }

    #[test]
    fn a_setup_is_shown_without_the_environment() {
        let shown = format!("{:?}", setup(leaf(0, &[0])));
        assert!(shown.contains("h0") && !shown.contains("TOKEN"), "{shown}");
    }

    #[test]
    fn the_host_stands_where_the_command_wants_it_and_shells_get_words_that_they_read_as_one() {
        let paths = vec!["/opt/it's here/longarm".to_owned(), "longarm".to_owned()];
        let mut starter = Starter { command: vec!["ssh".to_owned(), "-T".to_owned()], paths, is_read_by_shell: true };
        let quoted = r"'/opt/it'\''s here/longarm'";
        assert_eq!(
            starter.commands("a"),
            [["ssh", "-T", "a", quoted, "agent"], ["ssh", "-T", "a", "longarm", "agent"]]
        );
        starter.command = vec!["exec".to_owned(), "pod-{}".to_owned(), "--".to_owned()];
        starter.is_read_by_shell = false;
        assert_eq!(starter.commands("a")[0], ["exec", "pod-a", "--", "/opt/it's here/longarm", "agent"]);
    }
}
