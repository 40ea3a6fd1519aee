//! The run that a thread takes part in: its network, and the descriptors that tell of what its links bring.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use longarm_netmod::Waker;
use longarm_shm::sync::{AtomicU64, Ordering};
use parking_lot::Mutex;

use super::{Network, Speed};

/// Where a node is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Port {
    /// The server, or where nodes have routers, the router.
    Node,
    /// Where ranks call the server by themselves, past the routers.
    Ranks,
}

/// What a descriptor tells of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Subject {
    /// Whatever there is at an end of a link.
    End(u32, usize),
    /// Calls that have reached a node.
    Calls(u32, Port),
}

/// The descriptors of a run.
pub type Wakers = HashMap<Subject, Arc<Waker>>;

struct Run {
    network: Mutex<Network>,
    /// Behind a lock of their own: what has one may be dropped while the network is worked on.
    wakers: Mutex<Wakers>,
}

/// What the threads of a run share.
#[derive(Clone)]
pub struct Shared(Arc<Run>);

thread_local! {
    static RUN: RefCell<Shared> = RefCell::new(Shared::nobodys());
}

/// Runs of this process so far.
static RUNS: AtomicU64 = AtomicU64::new(0);

impl Shared {
    fn new(network: Network) -> Shared {
        Shared(Arc::new(Run { network: Mutex::new(network), wakers: Mutex::default() }))
    }

    /// Of no run.
    pub fn nobodys() -> Shared {
        Shared::new(Network::new(0, 0, 0, Speed::default()))
    }
}

/// What this thread's run shares.
pub fn share() -> Shared {
    RUN.with(|run| run.borrow().clone())
}

/// From now on this thread takes part in that run.
pub fn join(shared: Shared) {
    RUN.with(|run| *run.borrow_mut() = shared);
}

/// Works on the network of this thread's run.
#[inline]
pub fn with<R>(work: impl FnOnce(&mut Network) -> R) -> R {
    RUN.with(|run| work(&mut run.borrow().0.network.lock()))
}

/// Works on the descriptors of this thread's run. `None` where the thread ends.
pub fn with_wakers<R>(work: impl FnOnce(&mut Wakers) -> R) -> Option<R> {
    RUN.try_with(|run| work(&mut run.borrow().0.wakers.lock())).ok()
}

/// The time of this thread's run.
#[inline]
pub fn now_ns() -> u64 {
    with(|network| network.now())
}

/// Begins a run on this thread.
pub fn begin(seed: u64, nodes: u32, speed: Speed) -> u64 {
    let run = RUNS.fetch_add(1, Ordering::Relaxed) + 1;
    join(Shared::new(Network::new(run, seed, nodes, speed)));
    run
}

/// Nothing is left of this thread's run.
pub fn forget() {
    with(|network| *network = Network::new(0, 0, 0, Speed::default()));
}

/// The number of this thread's run.
pub fn current() -> u64 {
    with(|network| network.run)
}

/// Whether a number is that of this thread's run.
pub fn is_current(number: u64) -> bool {
    let is_that =
        |run: &RefCell<Shared>| run.borrow().0.network.try_lock().is_some_and(|network| network.run == number);
    RUN.try_with(is_that).unwrap_or(false)
}
