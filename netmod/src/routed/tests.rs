//! The conformance suite over channels, from the router's own process and from another one's side, and what a router has to stand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use longarm_memory::{Region, RegionMut};
use longarm_proto::{JobId, Rank, TRUNK_HEADER_BYTES, TrunkHeader, TrunkRecord};
use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::conformance;
use crate::dial::{Introduction, connect_authenticated};
use crate::poller::Waker;
use crate::tcp::{Tcp, TcpOptions};

/// Drives a router as a node's server does.
struct Driver {
    stop: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    fn start(router: &Arc<Mutex<Router>>, poller: &Arc<Poller>) -> Driver {
        let stop = Arc::new(Waker::new().unwrap());
        let (router, poller, stopped) = (Arc::clone(router), Arc::clone(poller), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            loop {
                let mut events = [
                    PollFd::from_borrowed_fd(stopped.descriptor(), PollFlags::IN),
                    PollFd::from_borrowed_fd(poller.as_fd(), PollFlags::IN),
                ];
                poll(&mut events, None).unwrap();
                if !events[0].revents().is_empty() {
                    return;
                }
                router.lock().turn();
            }
        });
        Driver { stop, thread: Some(thread) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.wake();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn options(node: u32) -> RoutedOptions {
    static DOORS: AtomicU64 = AtomicU64::new(0);
    let door = DOORS.fetch_add(1, Ordering::Relaxed);
    RoutedOptions {
        netmod: Arc::new(Tcp::new(TcpOptions::default())),
        door: format!("longarm-routed-test-{}-{door}", std::process::id()),
        identity: Identity { job: JobId(7), rank: Rank(node), node: NodeId(node) },
        secret: Secret([5; 32]),
        half_open_max: 8,
        handshake_timeout_ms: 5000,
    }
}

/// Two nodes in one netmod: ranks of the first one call, through its router, and the second one listens.
struct TwoNodes {
    calling: Routed,
    /// A rank of the calling node that does not host its server.
    neighbour: Routed,
    called: RoutedOptions,
    from_outside: bool,
    drivers: Mutex<Vec<Driver>>,
    _listener: Mutex<Box<dyn Listener>>,
}

impl TwoNodes {
    fn new(from_outside: bool) -> TwoNodes {
        let (first, second) = (options(0), options(1));
        let calling = Routed::new(first.clone());
        let listener = calling.listen().unwrap();
        let router = calling.here.lock().upgrade().unwrap();
        let poller = router.lock().poller();
        let drivers = Mutex::new(vec![Driver::start(&router, &poller)]);
        TwoNodes {
            calling,
            neighbour: Routed::new(first),
            called: second,
            from_outside,
            drivers,
            _listener: Mutex::new(listener),
        }
    }
}

impl Netmod for TwoNodes {
    fn name(&self) -> &'static str {
        "two nodes"
    }

    fn capabilities(&self) -> Capabilities {
        self.calling.capabilities()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        let other = Routed::new(RoutedOptions { door: options(1).door, ..self.called.clone() });
        let listener = other.listen()?;
        let router = other.here.lock().upgrade().unwrap();
        let poller = router.lock().poller();
        self.drivers.lock().push(Driver::start(&router, &poller));
        Ok(listener)
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        if self.from_outside { self.neighbour.connect(address) } else { self.calling.connect(address) }
    }
}

#[test]
fn channels_of_the_routers_own_process_are_links() {
    conformance(&TwoNodes::new(false));
}

#[test]
fn channels_of_other_processes_are_links() {
    conformance(&TwoNodes::new(true));
}
