//! What a rank and the launcher say to each other, as lines of JSON over an inherited socket.
//!
//! The launcher gives every rank one end of a socket pair. Its descriptor number stands in
//! [`CONTROL_FD_VARIABLE`]; nothing secret stands in the environment or on a command line. The order is:
//!
//! 1. the rank sends [`FromRank::Join`], the launcher answers with [`ToRank::Start`];
//! 2. the leader of each node sends [`FromRank::Publish`] with its node's [`NodeCard`];
//!    a rank that needs a card asks with [`FromRank::Fetch`], perhaps for those of the nodes behind it too, and gets
//!    [`ToRank::Cards`] once they are known; each card comes once;
//! 3. when a rank dies, every other gets [`ToRank::Died`], also for those that the launcher ends with it because it hosts
//!    the server of their node;
//! 4. a rank that can reach a node no more, for good, says so ([`FromRank::CannotReach`]), and the ranks of that node are told
//!    ([`ToRank::CannotReachYou`]): they may still reach it, and would wait for what it cannot send;
//! 5. the launcher may ask at any time who waits in a call ([`ToRank::Inquire`]);
//! 6. a rank that ends well sends [`FromRank::Leave`] with what it counted, and waits for [`ToRank::Goodbye`],
//!    which comes when every rank that joined has left or died;
//! 7. after that it may join again, if all do, and the order begins anew: the job has another number then.
//!
//! A rank may say at any time why the job ends ([`FromRank::Abort`]). One through whose process others hear of it is
//! answered by [`ToRank::Told`].
//!
//! A rank whose socket closes has lost its launcher and ends itself.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::node_of_rank::NodeOfRank;

/// Names the environment variable with the number of the descriptor to the launcher.
pub const CONTROL_FD_VARIABLE: &str = "LONGARM_CONTROL_FD";
/// Version of these messages. Both sides have to agree.
pub const CONTROL_VERSION: u32 = 8;
/// How many cards one question may ask for: what is beyond that is not answered.
pub const CARDS_MAX: u32 = 64;

/// A line from a rank to the launcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromRank {
    /// First line: this process wants to be a rank.
    Join {
        /// [`CONTROL_VERSION`] of the rank.
        version: u32,
        /// The process, for messages.
        pid: u32,
    },
    /// The leader of a node tells how its node is reached.
    Publish {
        /// The card of the sender's node.
        card: NodeCard,
    },
    /// Asks for the cards of nodes; answered by [`ToRank::Cards`] as soon as they are known, for those that are known together.
    Fetch {
        /// The first node asked for. Its card comes even if it is the sender's own node.
        first: u32,
        /// How many nodes, 1 to [`CARDS_MAX`], in the order of their numbers; node 0 follows the last. Of the others the sender's own node counts, but
        /// its card does not come.
        count: u32,
    },
    /// The rank saw a failure that ends the job from its point of view (for instance a panic).
    Abort {
        /// One line for people.
        reason: String,
        /// What the launcher should exit with.
        status: i32,
    },
    /// The rank's connection to the server of a node is lost for good, although nobody is known to have died: it can send the ranks
    /// there nothing more.
    CannotReach {
        /// The node.
        node: u32,
        /// Why, for people.
        how: String,
    },
    /// Whoever has started the rank's process on its host is gone, and the rank ends for that.
    Orphaned,
    /// Answer to [`ToRank::Inquire`].
    Waits {
        /// The number of the inquiry.
        inquiry: u64,
        /// The threads of the rank that wait in a call, those that have waited longest first.
        waits: Vec<Wait>,
    },
    /// The rank has finalized, and counted this, which it says only if [`Start::stats`] is set.
    Leave {
        /// Traffic with every peer that had any; empty without [`Start::stats`].
        traffic: Vec<PeerTraffic>,
        /// What its network has counted, by name, if it counts.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        network: Vec<(String, u64)>,
    },
}

/// A line from the launcher to a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToRank {
    /// Answer to [`FromRank::Join`].
    Start(Box<Start>),
    /// Answer to [`FromRank::Fetch`].
    Cards {
        /// One or more of those that were asked for, none of which this rank was told before.
        cards: Vec<NodeCard>,
    },
    /// A rank died: it exited without finalizing, or was killed.
    Died {
        /// The rank.
        rank: u32,
        /// How: "exited with status 3", "killed by signal 9 (SIGKILL)".
        how: String,
    },
    /// A rank lives, and can send this one's node nothing more: what it owes to ranks there does not come.
    CannotReachYou {
        /// The rank.
        rank: u32,
        /// Why, for people.
        how: String,
    },
    /// Asks who waits in a call; answered by [`FromRank::Waits`] at once, whatever the rank does.
    Inquire {
        /// Comes back with the answer.
        inquiry: u64,
    },
    /// The job ends: exit without waiting for others.
    Goodbye,
    /// What a rank has said with [`FromRank::Abort`] is on its way to all others, through its process too: it may end.
    Told,
}

/// Who this rank is and what the job looks like. Its secret is never printed.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// [`CONTROL_VERSION`] of the launcher.
    pub version: u32,
    /// The job's number, random, for messages and to tell jobs apart.
    pub job: u64,
    /// The job's 256-bit secret, in hexadecimal.
    pub secret: String,
    /// This process's rank.
    pub rank: u32,
    /// Node of each rank, indexed by rank. Ranks of a node need not be neighbours; the lowest rank of a node leads it.
    pub node_of_rank: NodeOfRank,
    /// On how many machines the job runs. On more than one, servers listen where other machines reach them.
    pub machines: u32,
    /// How many ranks run on this machine, emulated nodes together: decides between spinning and sleeping.
    pub ranks_on_machine: u32,
    /// The processors this job may use on this machine, before any binding of single ranks.
    pub processors: Vec<u32>,
    /// Whether the launcher prints statistics at the end.
    pub stats: bool,
    /// Whether the others go on when a rank dies. Otherwise the launcher ends them.
    pub survivors_go_on: bool,
}

impl fmt::Debug for Start {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Start { version, job, rank, node_of_rank, .. } = self;
        let mut shown = formatter.debug_struct("Start");
        shown.field("version", version).field("job", job).field("rank", rank).field("node_of_rank", node_of_rank);
        shown.finish_non_exhaustive()
    }
}

impl Start {
    /// Bytes of the job's secret.
    const SECRET_BYTES: usize = 32;

    /// Whether a world can be made of it: this rank is one of the job's, and its nodes are numbered from 0 without gaps.
    pub fn is_sound(&self) -> bool {
        let nodes: BTreeSet<u32> = self.node_of_rank.iter().copied().collect();
        (self.rank as usize) < self.node_of_rank.len() && nodes.iter().copied().eq(0..nodes.len() as u32)
    }

    /// The secret's bytes, if it is what [`Start::spell_secret`] makes.
    pub fn read_secret(&self) -> Option<[u8; Start::SECRET_BYTES]> {
        Start::secret_of(&self.secret)
    }

    /// The secret that [`Start::spell_secret`] has made this text of.
    pub fn secret_of(text: &str) -> Option<[u8; Start::SECRET_BYTES]> {
        let (digits, rest) = text.as_bytes().as_chunks::<2>();
        let digit = |letter: u8| char::from(letter).to_digit(16).filter(|_| !letter.is_ascii_uppercase());
        let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
        let bytes: Vec<u8> = digits.iter().map(byte).collect::<Option<_>>()?;
        bytes.try_into().ok().filter(|_| rest.is_empty())
    }

    /// A secret as lower-case hexadecimal digits.
    pub fn spell_secret(secret: &[u8; Start::SECRET_BYTES]) -> String {
        secret.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// How the server of a node is reached. One per node, whatever the number of ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeCard {
    /// The node.
    pub node: u32,
    /// Process that hosts the server.
    pub server_pid: u32,
    /// Network addresses of the server, as its netmod prints them ("127.0.0.1:40123"); empty when there is only one node. Nobody
    /// but the netmod reads them.
    pub address: String,
    /// What its host calls itself, for people.
    #[serde(default)]
    pub host: String,
    /// Abstract unix socket of the node's door, without the leading zero byte.
    pub door: String,
}

/// A thread that waits in a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The call: "get", "lock", "barrier".
    pub call: String,
    /// Who can end the wait.
    pub whom: Whom,
    /// For how long it has waited.
    pub waited_ms: u64,
}

/// Who can end a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whom {
    /// This rank: the target, the host of the server that is to answer, the member whose letter is missing.
    Rank(u32),
    /// Whoever holds a mutex of this rank.
    HolderAt(u32),
    /// Any rank; nobody there knows which.
    Anyone,
}

/// What one rank did with one peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerTraffic {
    /// The target rank.
    pub peer: u32,
    /// By kind, in the order of `longarm_shm::CounterKind`: put, get, accumulate, rmw, lock, message, collective, signal.
    pub kinds: Vec<KindTraffic>,
}

/// Operations and bytes of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KindTraffic {
    /// How many operations.
    pub operations: u64,
    /// How many payload bytes.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(rank: u32, node_of_rank: &[u32]) -> Start {
        Start {
            version: CONTROL_VERSION,
            job: 1,
            secret: Start::spell_secret(&[0xab; Start::SECRET_BYTES]),
            rank,
            node_of_rank: node_of_rank.to_vec().into(),
            machines: 1,
            ranks_on_machine: 1,
            processors: vec![0],
            stats: false,
            survivors_go_on: false,
        }
    }

    #[test]
    fn a_start_is_shown_without_its_secret() {
        let start = Start { secret: "5ec2e7".to_owned(), ..start(1, &[0, 1]) };
        let shown = format!("{start:?}");
        assert!(shown.contains("rank: 1") && !shown.contains("5ec2e7"), "{shown}");
    }

    #[test]
    fn a_world_is_made_of_ranks_whose_nodes_leave_no_gap() {
        assert!(start(2, &[1, 0, 1]).is_sound());
        for (rank, nodes) in [(0, &[][..]), (1, &[0]), (0, &[1]), (0, &[0, 2]), (0, &[u32::MAX])] {
            assert!(!start(rank, nodes).is_sound(), "rank {rank} of {nodes:?}");
        }
    }

    #[test]
    fn the_nodes_of_a_large_job_take_a_short_line_and_come_back_as_they_were() {
        let nodes: Vec<u32> = (0..100_000).map(|rank| rank / 1000).collect();
        let line = serde_json::to_string(&start(0, &nodes)).unwrap();
        assert!(line.len() < 400, "{} bytes", line.len());
        assert_eq!(*serde_json::from_str::<Start>(&line).unwrap().node_of_rank, nodes);
        let endless = line.replace("[0,1000,100]", "[0,4294967295,100]");
        assert!(serde_json::from_str::<Start>(&endless).is_err());
    }

    #[test]
    fn a_secret_has_one_spelling() {
        let mut start = start(0, &[0]);
        assert_eq!(start.read_secret(), Some([0xab; Start::SECRET_BYTES]));
        let spelled = start.secret.clone();
        for other in
            [spelled.to_uppercase(), spelled.replace("ab", "+b"), format!("{spelled}0"), spelled[2..].to_owned()]
        {
            start.secret = other;
            assert_eq!(start.read_secret(), None, "{}", start.secret);
        }
    }
}
