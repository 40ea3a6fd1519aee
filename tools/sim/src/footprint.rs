//! How much memory a job takes at one process and one server, however large the job: counted by whoever allocates.
//!
//! ```text
//!   rank 0's client ── connects to ──► the servers of `PEERS` nodes      of a job of thousands of ranks
//! ```
//!
//! Client, servers and windows are the real ones; nobody else of the job is there, for what the others would keep is theirs.
//! Memory that is mapped and shared, a window's own among it, is not counted, but for the node's segment.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use longarm_client::{AttachError, Client, ClientWindow, Layout, Operation, OriginBytes, Parts, WindowIdentity};
use longarm_proto::{AccessKey, Generation, Rank, WindowId};
use longarm_server::door::DoorRequest;
use longarm_shm::NodeWindow;

use crate::book;
use crate::client::make_client;
use crate::fault::FaultSet;
use crate::fiber::{self, Fiber, Step};
use crate::job::{self, Job};
use crate::network::{self, Speed};
use crate::plan::{Plan, Shape};
use crate::schedule::Scheduler;

/// Nodes that rank 0 connects to, at most.
const PEERS: u32 = 100;
/// Windows that are made to measure one.
const WINDOWS: usize = 64;
/// Until everything is acknowledged and at rest.
const REST_NS: u64 = 2_000_000_000;
/// What the system counts the memory of a file in.
const BLOCK_BYTES: u64 = 512;
/// Bytes of each rank's part of a window.
const PART_BYTES: u64 = 64;

/// What was counted, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    /// Ranks of the job.
    pub ranks: u32,
    /// Ranks of rank 0's node.
    pub node_ranks: u32,
    /// What rank 0's process keeps before it has talked to anybody.
    pub client: u64,
    /// Of a node's memory that its ranks share, for messages, mutexes and the like.
    pub segment: u64,
    /// Another node, after words were put there and everything was acknowledged: at both ends together, and what the
    /// simulated network keeps for it.
    pub peer: u64,
    /// The same where the connection is encrypted.
    pub encrypted_peer: u64,
    /// One window with equal parts, at the process and its node's server together.
    pub window: u64,
    /// One whose parts are listed, as where they differ.
    pub listed_window: u64,
    /// Each rank that the job has more, at a process: from a job of a tenth of the ranks to this one.
    pub rank: f64,
    /// The same of a window whose parts are listed.
    pub window_rank: f64,
    /// The same of the node's shared memory.
    pub segment_rank: f64,
}

/// Counts a job of so many ranks, and one of a tenth of them. `in_use` says how many bytes this program has allocated.
///
/// # Errors
/// When the job could not be set up.
pub fn measure(ranks: u32, in_use: fn() -> usize) -> Result<Footprint, String> {
    let small = count(ranks / 10, false, in_use)?;
    let large = count(ranks, false, in_use)?;
    let encrypted_peer = count(ranks, true, in_use)?.peer;
    let per_rank = |of: fn(&Footprint) -> u64| {
        let more = of(&large) as f64 - of(&small) as f64;
        more / f64::from(large.ranks - small.ranks)
    };
    Ok(Footprint {
        encrypted_peer,
        rank: per_rank(|found| found.client),
        window_rank: per_rank(|found| found.listed_window),
        segment_rank: per_rank(|found| found.segment),
        ..large
    })
}

fn count(ranks: u32, encrypted: bool, in_use: fn() -> usize) -> Result<Footprint, String> {
    let mut shape = Shape::new(Plan { seed: 1, ranks, ops: 1, faults: FaultSet::NONE, routed: false });
    shape.encrypted = encrypted;
    let shape = Rc::new(shape);
    let run = network::begin(shape.plan.seed, shape.nodes(), Speed::default());
    book::begin(&shape);
    let job = Job::begin(Rc::clone(&shape), run)?;
    let counted = count_in(&job, in_use);
    drop(job);
    job::end_nodes();
    counted
}

fn count_in(job: &Rc<Job>, in_use: fn() -> usize) -> Result<Footprint, String> {
    let shape = &job.shape;
    let grown = move |before: usize| in_use().saturating_sub(before) as u64;
    let segment = job::with_node(0, |node| node.segment.file().try_clone_to_owned().map(File::from));
    let segment = segment.and_then(|file| file.metadata()).map_err(|error| error.to_string())?.blocks() * BLOCK_BYTES;
    let before = in_use();
    let client = make_client(job, &Layout::new(Rank(0), &shape.node_of_rank), None)?;
    let client_bytes = grown(before);
    // What is made at the first use of anything is none of what one more costs.
    let members: Vec<(Rank, u64)> = (0..shape.plan.ranks).map(|rank| (Rank(rank), PART_BYTES)).collect();
    let first = make_window(&client, shape, 1, Parts::Each(&members))?;
    let mut numbers = 2..;
    let mut of_window = |parts| {
        let before = in_use();
        let made = numbers.by_ref().take(WINDOWS).map(|number| make_window(&client, shape, number, parts));
        let windows = made.collect::<Result<Vec<_>, _>>()?;
        Ok::<u64, String>(grown(before) / windows.len() as u64)
    };
    let (listed_window, window) = (of_window(Parts::Each(&members))?, of_window(Parts::Alike(PART_BYTES))?);
    let nodes = (1..shape.nodes()).take(PEERS as usize + 1);
    let peers: Vec<Rank> = nodes.map(|node| Rank(shape.host_of(node))).collect();
    let counted = Arc::new(Mutex::new(Err("rank 0 did not come to its end".to_owned())));
    let (tell, its_client) = (Arc::clone(&counted), Arc::clone(&client));
    let fiber = Fiber::new(move || {
        let found = reach(&its_client, &first, &peers[..1]).and_then(|()| {
            let before = in_use();
            reach(&its_client, &first, &peers[1..])?;
            Ok(grown(before) / (peers.len() as u64 - 1))
        });
        *tell.lock().expect("nobody panics with it") = found;
    });
    Scheduler::of_one(job, client, fiber).run(&mut || {});
    let peer = counted.lock().expect("nobody panics with it").clone()?;
    let (ranks, node_ranks) = (shape.plan.ranks, shape.ranks_of(0).len() as u32);
    let (rank, window_rank, segment_rank, encrypted_peer) = (0.0, 0.0, 0.0, 0);
    Ok(Footprint {
        ranks,
        node_ranks,
        client: client_bytes,
        segment,
        peer,
        encrypted_peer,
        window,
        listed_window,
        rank,
        window_rank,
        segment_rank,
    })
}

/// Puts a word at each of these ranks, and waits until nothing is under way any more.
fn reach(client: &Arc<Client>, window: &ClientWindow, ranks: &[Rank]) -> Result<(), String> {
    for rank in ranks {
        client.put(window, *rank, 8, OriginBytes::from(&[7; 8][..])).map_err(|error| error.to_string())?;
    }
    // Nobody serves such a window there: that is said when it is asked for, and has to be said for each.
    let _ = client.quiet();
    fiber::pause(Step::Compute(REST_NS));
    // It says whether anything is left to be looked after.
    if client.tend() { Err(format!("something is under way after {REST_NS} ns")) } else { Ok(()) }
}

/// A window over all ranks, made and mapped at rank 0's node.
fn make_window(client: &Client, shape: &Shape, number: u64, parts_of: Parts<'_>) -> Result<ClientWindow, String> {
    let identity = WindowIdentity { window: WindowId(number), generation: Generation(1), key: AccessKey(number) };
    let parts: Vec<(u32, u64)> = shape.ranks_of(0).map(|rank| (rank, PART_BYTES)).collect();
    let part_bytes = vec![PART_BYTES; parts.len()];
    let create = DoorRequest::Create { window: number, generation: 1, key: number, parts, aligned: false, room: None };
    let handed = job::ask_door(0, &create).map_err(|error| error.to_string())?.ok_or("no descriptor came")?;
    let memory = Mutex::new(Some(NodeWindow::attach(handed.file, &part_bytes).map_err(|error| error.to_string())?));
    let attach = move || {
        let memory = memory.lock().ok().and_then(|mut memory| memory.take());
        memory.ok_or_else(|| AttachError::Refused("it is mapped once".into()))
    };
    let window = ClientWindow::new(client.layout(), identity, parts_of, attach);
    window.part_here(Operation::Put, Rank(0)).map_err(|error| error.to_string())?;
    Ok(window)
}
