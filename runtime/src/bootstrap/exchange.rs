//! Starting inside a job that something else has started: an MPI program, most of all.
//!
//! All that is asked of it is an all-gather over the ranks, used twice at start and once at the end:
//!
//! 1. every rank says on which machine it runs and brings random numbers; rank 0's are the job's number and secret,
//!    and everybody computes the same layout;
//! 2. the first rank of each node tells how its server is reached;
//! 3. at the end the ranks meet, so that no server stops while somebody needs it.
//!
//! Deaths are the business of whoever started the job, who ends it. Until it does, the ranks of a node notice each other's
//! end by themselves (`neighbours`), so that none of them waits for a dead one.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::FileType;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::control::{CONTROL_VERSION, NodeCard, PeerTraffic, Start};
use super::neighbours::{NeighbourWatch, Neighbours};
use super::own_end::{self, LAUNCHER_GRACE};
use super::{OnDeath, OnInquiry, Rendezvous};
use crate::config::Config;
use crate::error::InitError;
use crate::topology;

/// A job that already exists, seen from one of its ranks.
///
/// The calls are made by [`init_inside`](crate::init_inside) and by [`World::finalize`](crate::World::finalize), on
/// the thread that calls these.
pub trait Exchange: Send + Sync {
    /// This process's rank, from 0.
    fn rank(&self) -> u32;

    /// How many ranks the job has.
    fn size(&self) -> u32;

    /// Every rank gives some bytes and gets those of all, by rank. Collective.
    ///
    /// # Errors
    /// What went wrong, for people.
    fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, String>;

    /// Ends the whole job, this process included if that is how it is done.
    fn abort(&self, status: i32);
}

/// What every rank says of itself first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Hello {
    version: u32,
    machine: String,
    processors: Vec<u32>,
    random: Vec<u8>,
    nodes: u64,
    /// The process, and among which processes its number counts. Absent in other releases.
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    pid_space: String,
}

/// Bytes of the job's number and secret.
const RANDOM_BYTES: usize = 40;

/// See the module.
pub(crate) struct Exchanged {
    exchange: Arc<dyn Exchange>,
    cards: OnceLock<HashMap<u32, NodeCard>>,
    /// Taken when they are watched.
    neighbours: Mutex<Option<Neighbours>>,
    watch: Mutex<Option<NeighbourWatch>>,
}

impl Exchanged {
    /// The first round: who is where.
    pub(crate) fn meet(exchange: Arc<dyn Exchange>, config: &Config) -> Result<(Arc<Exchanged>, Start), InitError> {
        let mut random = vec![0; RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(|_| InitError::Random)?;
        let hello = Hello {
            version: CONTROL_VERSION,
            machine: topology::machine_name(),
            processors: topology::processors_allowed(),
            random,
            nodes: config.nodes,
            pid: std::process::id(),
            pid_space: pid_space(),
        };
        let records = all_say(&*exchange, &hello)?;
        let start = start_from_records(exchange.rank(), &records)?;
        let mut neighbours = Neighbours::new(pids_of_neighbours(&start, &records)?.into_iter());
        if start.node_of_rank.len() > 1 {
            // A job of one may be a program that a shell has started, which goes on when the shell ends.
            neighbours = neighbours.with_starter();
        }
        let neighbours = Mutex::new(Some(neighbours));
        Ok((Arc::new(Exchanged { exchange, cards: OnceLock::new(), neighbours, watch: Mutex::new(None) }), start))
    }
}

/// What all ranks have said of themselves, by rank, and what the job looks like to one of them.
///
/// # Errors
/// What no ranks of one job can have said.
#[doc(hidden)] // For the fuzzer: here bytes of other processes are read.
pub fn start_from_records(rank: u32, records: &[Vec<u8>]) -> Result<Start, InitError> {
    let hellos: Vec<Hello> = read_all(records)?;
    if let Some(rank) = hellos.iter().position(|other| other.version != CONTROL_VERSION) {
        return Err(InitError::MixedReleases { rank: rank as u32 });
    }
    let (Some(first), Some(mine)) = (hellos.first(), hellos.get(rank as usize)) else {
        return Err(InitError::ExchangeGarbled);
    };
    let random: [u8; RANDOM_BYTES] = first.random[..].try_into().map_err(|_| InitError::ExchangeGarbled)?;
    let (job, secret) = random.split_first_chunk().ok_or(InitError::ExchangeGarbled)?;
    let secret = secret.try_into().map_err(|_| InitError::ExchangeGarbled)?;
    let machines: Vec<&str> = hellos.iter().map(|hello| hello.machine.as_str()).collect();
    let machine_count = machines.iter().collect::<std::collections::HashSet<_>>().len() as u32;
    let here = || hellos.iter().filter(|other| other.machine == mine.machine);
    let mut processors: Vec<u32> = here().flat_map(|hello| hello.processors.iter().copied()).collect();
    processors.sort_unstable();
    processors.dedup();
    Ok(Start {
        version: CONTROL_VERSION,
        job: u64::from_le_bytes(*job),
        secret: Start::spell_secret(secret),
        rank,
        node_of_rank: cut(&machines, first.nodes.max(1) as usize),
        machines: machine_count,
        ranks_on_machine: here().count() as u32,
        processors,
        stats: false,
        // Whoever started the job ends it at a death, whatever is wanted here.
        survivors_go_on: false,
    })
}

/// The other ranks of this node whose processes can be named here, with their numbers. `start` was made of the same records.
///
/// # Errors
/// What no ranks of one job can have said.
#[doc(hidden)] // For the fuzzer: here bytes of other processes are read.
pub fn pids_of_neighbours(start: &Start, records: &[Vec<u8>]) -> Result<Vec<(u32, u32)>, InitError> {
    let hellos: Vec<Hello> = read_all(records)?;
    let me = start.rank as usize;
    let others = (0..).zip(&hellos).zip(&start.node_of_rank);
    let named = others.filter_map(|((rank, other), node)| {
        let same_space = !other.pid_space.is_empty() && other.pid_space == hellos[me].pid_space;
        (rank != start.rank && *node == start.node_of_rank[me] && same_space).then_some((rank, other.pid))
    });
    Ok(named.collect())
}

/// How the server of each node is reached, from what each rank has said: a card or nothing.
///
/// # Errors
/// What no ranks of one job can have said.
#[doc(hidden)] // For the fuzzer: here bytes of other processes are read.
pub fn cards_from_records(records: &[Vec<u8>]) -> Result<HashMap<u32, NodeCard>, InitError> {
    let cards: Vec<Option<NodeCard>> = read_all(records)?;
    Ok(cards.into_iter().flatten().map(|card| (card.node, card)).collect())
}

impl Rendezvous for Exchanged {
    fn publish(&self, card: Option<NodeCard>) -> Result<(), InitError> {
        let cards = cards_from_records(&all_say(&*self.exchange, &card)?)?;
        self.cards.set(cards).map_err(|_| InitError::Twice)
    }

    fn card(&self, node: u32) -> Result<NodeCard, InitError> {
        let cards = self.cards.get().ok_or(InitError::ExchangeGarbled)?;
        cards.get(&node).cloned().ok_or(InitError::ExchangeGarbled)
    }

    fn ask_card(&self, node: u32) -> Result<Option<NodeCard>, InitError> {
        self.card(node).map(Some)
    }

    fn death_of_server(&self, _node: u32) -> Option<(u32, String)> {
        None
    }

    fn tells_deaths(&self) -> bool {
        false
    }

    fn watch_deaths(&self, on_death: OnDeath) {
        let neighbours = self.neighbours.lock().take().filter(|neighbours| !neighbours.is_empty());
        let Some(neighbours) = neighbours else { return };
        let rank = self.exchange.rank();
        let on_orphaned = move || {
            own_end::end_after(LAUNCHER_GRACE, || ());
            own_end::say_last(&format!("rank {rank}: the launcher's process that started this rank is gone; it ends"));
        };
        match neighbours.watch(on_death, on_orphaned) {
            Ok(watch) => *self.watch.lock() = Some(watch),
            Err(error) => tracing::warn!(%error, "deaths of ranks of this node will not be noticed"),
        }
    }

    fn explains_deaths(&self) -> bool {
        false
    }

    /// Nobody asks.
    fn answer_inquiries(&self, _on_inquiry: OnInquiry) {}

    fn leave(&self, _traffic: Vec<PeerTraffic>, _network: Vec<(String, u64)>) {
        // Before the barrier: nobody ends well before all have come to it.
        if let Some(watch) = self.watch.lock().take() {
            watch.end();
        }
        if let Err(reason) = self.exchange.allgather(&[]) {
            tracing::warn!(reason, "the last barrier failed; a server may have stopped before all had left");
        }
    }

    fn forget_world(&self) {
        // Where the world was left without a farewell.
        if let Some(watch) = self.watch.lock().take() {
            watch.end();
        }
    }

    fn abort(&self, reason: &str, status: i32) {
        // A launcher that is gone, or ends others only, leaves this process to itself.
        own_end::end_after(LAUNCHER_GRACE, || ());
        own_end::say_last(&format!("rank {} ends the job: {reason}", self.exchange.rank()));
        let_output_be_read(OUTPUT_GRACE);
        self.exchange.abort(status);
    }
}

/// How long a launcher may take to read what this process has said, before it is told to end the job.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// Waits until nothing is left unread in the pipes behind this process's output. Launchers of MPI end a job without reading
/// the rest, which is where the reason for the end stands.
fn let_output_be_read(grace: Duration) {
    let until = Instant::now() + grace;
    let (out, error) = (std::io::stdout(), std::io::stderr());
    for output in [out.as_fd(), error.as_fd()] {
        // Of anything else the number of bytes means something else.
        let is_pipe =
            rustix::fs::fstat(output).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        while is_pipe && Instant::now() < until && rustix::io::ioctl_fionread(output).is_ok_and(|bytes| bytes > 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Among which processes the number of this one counts: containers may count for themselves.
fn pid_space() -> String {
    std::fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string()).unwrap_or_default()
}

/// One round: what every rank says, by rank, as it came.
fn all_say(exchange: &dyn Exchange, mine: &impl Serialize) -> Result<Vec<Vec<u8>>, InitError> {
    let mine = serde_json::to_vec(mine).map_err(|_| InitError::ExchangeGarbled)?;
    let all = exchange.allgather(&mine).map_err(|reason| InitError::Exchange { reason })?;
    if all.len() != exchange.size() as usize {
        return Err(InitError::ExchangeGarbled);
    }
    Ok(all)
}

fn read_all<T: for<'a> Deserialize<'a>>(records: &[Vec<u8>]) -> Result<Vec<T>, InitError> {
    let read = |record: &Vec<u8>| serde_json::from_slice(record).map_err(|_| InitError::ExchangeGarbled);
    records.iter().map(read).collect()
}

/// The node of every rank: the ranks of one machine are cut into `nodes` blocks, as even as possible, or into as many
/// as there are ranks. Nodes are numbered in the order of their lowest ranks.
fn cut(machines: &[&str], nodes: usize) -> Vec<u32> {
    let mut ranks_of: HashMap<&str, Vec<usize>> = HashMap::new();
    for (rank, machine) in machines.iter().enumerate() {
        ranks_of.entry(machine).or_default().push(rank);
    }
    let mut block_of_rank = vec![("", 0); machines.len()];
    for (machine, ranks) in &ranks_of {
        let blocks = nodes.min(ranks.len());
        for (place, rank) in ranks.iter().enumerate() {
            block_of_rank[*rank] = (*machine, place * blocks / ranks.len());
        }
    }
    let mut numbers = HashMap::new();
    let number = |block| {
        let next = numbers.len() as u32;
        *numbers.entry(block).or_insert(next)
    };
    block_of_rank.into_iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranks_of_each_machine_are_cut_into_even_blocks() {
        assert_eq!(cut(&["a"; 5], 2), [0, 0, 0, 1, 1]);
        assert_eq!(cut(&["a"; 4], 1), [0, 0, 0, 0]);
        assert_eq!(cut(&["a"; 2], 7), [0, 1]);
        assert_eq!(cut(&["a", "b", "a", "b"], 1), [0, 1, 0, 1]);
        assert_eq!(cut(&["a", "b", "a", "b"], 2), [0, 1, 2, 3]);
    }

    #[test]
    fn records_that_no_job_can_have_made_are_refused() {
        let hello = |random: usize, nodes: u64| {
            let hello = Hello {
                version: CONTROL_VERSION,
                machine: "a".to_owned(),
                processors: vec![1, 0],
                random: vec![7; random],
                nodes,
                pid: 1,
                pid_space: String::new(),
            };
            serde_json::to_vec(&hello).unwrap()
        };
        let start = start_from_records(1, &[hello(RANDOM_BYTES, 2), hello(0, 1)]).unwrap();
        assert_eq!((start.node_of_rank, start.processors, start.ranks_on_machine), (vec![0, 1], vec![0, 1], 2));
        let nobody_of =
            [(0, vec![]), (1, vec![hello(RANDOM_BYTES, 1)]), (0, vec![hello(39, 1)]), (0, vec![vec![b'{']])];
        for (rank, records) in nobody_of {
            assert!(matches!(start_from_records(rank, &records), Err(InitError::ExchangeGarbled)), "{records:?}");
        }
    }
}
