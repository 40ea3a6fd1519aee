//! How the ranks of a job that something else has started come together: each says where it runs, and when all have come it is
//! decided which of them share a node.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::messages::CONTROL_VERSION;
use crate::plan::Plan;
use crate::spelling;

/// The first line of a rank, once it has proven itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// [`CONTROL_VERSION`] of the rank.
    pub version: u32,
    /// What it has in common exactly with those with whom it can share memory.
    pub machine: String,
    /// The name of its host, for messages.
    pub host: String,
    /// The process, and the number of it that counts among the processes of its machine.
    pub pid: u32,
    /// The processors that it may run on.
    pub processors: Vec<u32>,
    /// Into how many nodes the ranks of a machine are to be cut; rank 0's value counts.
    pub nodes: u64,
}

/// Texts of an arrival that are longer are nobody's.
const TEXT_BYTES_MAX: usize = 1024;
/// More processors than this has no machine.
const PROCESSORS_MAX: usize = 1 << 16;

/// The coordinator's answer to an [`Arrival`], once all have come or will not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Met {
    /// All have come.
    All {
        /// The host of rank 0, where the coordinator is.
        host: String,
        /// Whether the job runs on several machines, so that hosts are worth naming.
        on_several: bool,
    },
    /// They will not be together.
    Failed {
        /// Why not, for people.
        reason: String,
    },
}

impl Arrival {
    /// Reads a line.
    ///
    /// # Errors
    /// Why it is no sound rank's, as the rest of a sentence that begins with the rank.
    pub fn read(line: &[u8]) -> Result<Arrival, String> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let unread = || "sent an arrival that cannot be read".to_owned();
        let version = serde_json::from_slice::<Version>(line).map_err(|_| unread())?.version;
        if version != CONTROL_VERSION {
            return Err(format!(
                "speaks version {version} of the control messages, and the coordinator {CONTROL_VERSION}"
            ));
        }
        let arrival: Arrival = serde_json::from_slice(line).map_err(|_| unread())?;
        let is_short = arrival.machine.len() <= TEXT_BYTES_MAX && arrival.host.len() <= TEXT_BYTES_MAX;
        let is_sound = is_short && arrival.processors.len() <= PROCESSORS_MAX;
        if is_sound { Ok(arrival) } else { Err("sent an arrival that is longer than any".to_owned()) }
    }
}

/// All that have come, by rank, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Which rank runs on which node and machine.
    pub plan: Plan,
    /// The processors that the job may use on each machine.
    pub processors: Vec<Vec<u32>>,
}

impl Layout {
    /// The ranks of each machine are cut into `nodes` blocks, as even as possible, or into as many as there are ranks. Nodes and
    /// machines are numbered in the order of their lowest ranks.
    pub fn of(arrivals: &[Arrival], nodes: u64) -> Layout {
        let mut machine_of: HashMap<&str, u32> = HashMap::new();
        let mut ranks_on: Vec<Vec<usize>> = Vec::new();
        for (rank, arrival) in arrivals.iter().enumerate() {
            let next = ranks_on.len() as u32;
            let machine = *machine_of.entry(&arrival.machine).or_insert(next);
            if machine == next {
                ranks_on.push(Vec::new());
            }
            ranks_on[machine as usize].push(rank);
        }
        let mut block_of_rank = vec![(0, 0); arrivals.len()];
        for (machine, ranks) in ranks_on.iter().enumerate() {
            let blocks = usize::try_from(nodes.max(1)).map_or(ranks.len(), |nodes| nodes.min(ranks.len()));
            for (place, rank) in ranks.iter().enumerate() {
                block_of_rank[*rank] = (machine as u32, place * blocks / ranks.len());
            }
        }
        let mut numbers = HashMap::new();
        let mut machine_of_node = Vec::new();
        let number = |block: (u32, usize)| {
            let next = machine_of_node.len() as u32;
            let node = *numbers.entry(block).or_insert(next);
            if node == next {
                machine_of_node.push(block.0);
            }
            node
        };
        let node_of_rank = block_of_rank.into_iter().map(number).collect();
        let plan = Plan { node_of_rank, nodes: machine_of_node.len() as u32, machine_of_node };
        Layout { plan, processors: ranks_on.iter().map(|ranks| processors_of(arrivals, ranks)).collect() }
    }
}

fn processors_of(arrivals: &[Arrival], ranks: &[usize]) -> Vec<u32> {
    let mut processors: Vec<u32> = ranks.iter().flat_map(|rank| arrivals[*rank].processors.iter().copied()).collect();
    processors.sort_unstable();
    processors.dedup();
    processors
}

/// "ranks 3, 7 of 8 did not call longarm::init within 60 s".
pub fn show_missing(missing: &[u32], size: u32, waited_s: u64) -> String {
    format!("{} of {size} did not call longarm::init within {waited_s} s", spelling::ranks(missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(machine: &str) -> Arrival {
        Arrival {
            version: CONTROL_VERSION,
            machine: machine.to_owned(),
            host: machine.to_owned(),
            pid: 100,
            processors: vec![1, 0],
            nodes: 1,
        }
    }

    fn cut(machines: &[&str], nodes: u64) -> Vec<u32> {
        let arrivals: Vec<Arrival> = machines.iter().map(|machine| arrival(machine)).collect();
        Layout::of(&arrivals, nodes).plan.node_of_rank
    }

    #[test]
    fn the_ranks_of_each_machine_are_cut_into_even_blocks() {
        assert_eq!(cut(&["a"; 5], 2), [0, 0, 0, 1, 1]);
        assert_eq!(cut(&["a"; 4], 1), [0, 0, 0, 0]);
        assert_eq!(cut(&["a"; 2], 7), [0, 1]);
        assert_eq!(cut(&["a"; 2], u64::MAX), [0, 1]);
        assert_eq!(cut(&["a", "b", "a", "b"], 1), [0, 1, 0, 1]);
        assert_eq!(cut(&["a", "b", "a", "b"], 2), [0, 1, 2, 3]);
    }

    #[test]
    fn a_layout_says_who_is_on_which_machine_and_what_it_may_use_there() {
        let mut arrivals = vec![arrival("a"), arrival("b"), arrival("a")];
        arrivals[2].processors = vec![5, 1];
        let layout = Layout::of(&arrivals, 1);
        assert_eq!(layout.plan.machine_of_node, [0, 1]);
        assert_eq!(layout.plan.ranks_on_machines(), [2, 1]);
        assert_eq!(layout.processors, [vec![0, 1, 5], vec![0, 1]]);
    }

    #[test]
    fn an_arrival_of_another_release_or_that_no_rank_can_have_sent_is_refused() {
        let line = |arrival: &Arrival| serde_json::to_vec(arrival).unwrap();
        assert_eq!(Arrival::read(&line(&arrival("a"))), Ok(arrival("a")));
        let other = Arrival::read(b"{\"version\":99,\"anything\":1}").unwrap_err();
        assert!(other.contains("version 99"), "{other}");
        assert!(Arrival::read(b"{").is_err());
        assert!(Arrival::read(&line(&arrival(&"x".repeat(2000)))).is_err());
        assert!(Arrival::read(&line(&Arrival { processors: vec![0; 1 << 17], ..arrival("a") })).is_err());
    }

    #[test]
    fn who_is_missing_is_said_by_number() {
        assert_eq!(show_missing(&[3, 7], 8, 60), "ranks 3, 7 of 8 did not call longarm::init within 60 s");
    }
}
