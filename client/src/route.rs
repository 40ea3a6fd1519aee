//! One rank's side of everything, and the one place that asks whether a target is on the same node.

use std::sync::{Arc, OnceLock, Weak};

use longarm_memory::RegionMut;
use longarm_proto::{NodeId, Rank};
use longarm_shm::sync::{AtomicBool, Ordering};
use longarm_shm::{Bells, CounterKind, NodeSegment, OwnCounters, Window, thread};
use parking_lot::Mutex;

use crate::endpoint::{Endpoint, EndpointOptions};
use crate::error::{Lost, LostHow, Operation, TransferError};
use crate::local::failures::{Death, Failures};
use crate::local::layout::Layout;
use crate::local::meetings::Meetings;
use crate::mail::Mail;
use crate::progress::dialing::Dial;
use crate::progress::helper::Helper;
use crate::progress::sleepers::Sleepers;
use crate::progress::time::Time;
use crate::progress::waiting::{Asked, Drive};
use crate::progress::waits::{Awaited, Waits};
use crate::wakers;
use crate::window::ClientWindow;

/// A server in this process, which a waiting thread may drive.
pub trait Assist: Send + Sync {
    /// Takes it, unless another thread drives it.
    fn take(&self) -> Option<Box<dyn AssistTurn + '_>>;

    /// Says that a thread goes to sleep in a call, or has woken: its processor is free meanwhile.
    fn rest(&self, resting: bool);

    /// Says that a thread is about to wait, and will take it then, or that this is over: no other thread needs to be woken
    /// for it. That a thread goes to sleep ends it too.
    fn hush(&self, hushed: bool);

    /// How often something moved in it so far.
    fn moves(&self) -> u32;
}

/// A server in the hands of a waiting thread. Dropping gives it back.
pub trait AssistTurn {
    /// One turn; true if anything moved.
    fn turn(&mut self) -> bool;
}

/// What a client is made of.
pub struct ClientOptions {
    /// Who stands where.
    pub layout: Layout,
    /// The node's shared segment.
    pub segment: Arc<NodeSegment>,
    /// Opens connections.
    pub dial: Arc<dyn Dial>,
    /// The clock.
    pub time: Arc<dyn Time>,
    /// The server of this node, if it is hosted by this process.
    pub assist: Option<Arc<dyn Assist>>,
    /// Who is known to be dead.
    pub failures: Arc<Failures>,
    /// How long a waiting thread looks before it sleeps, in microseconds. 0 where threads outnumber processors.
    pub spin_us: u64,
    /// Puts and accumulates up to this size are copied and need not wait for the link.
    pub eager_bytes: usize,
    /// The bounds of each connection.
    pub endpoint: EndpointOptions,
    /// The processors that the job may use: the thread that moves transfers while the application computes may use all of
    /// them, whatever the application is bound to. None: those of the thread that starts it.
    pub processors: Vec<u32>,
}

/// See the module.
pub struct Client {
    pub(crate) layout: Layout,
    pub(crate) segment: Arc<NodeSegment>,
    counters: OwnCounters,
    pub(crate) bells: Bells,
    /// Where the ranks of the world meet, if they are all on one node.
    pub(crate) meetings: Option<Meetings>,
    /// By node. In boxes: of a large job's nodes a rank talks to few.
    endpoints: Box<[OnceLock<Box<Endpoint>>]>,
    dialing: Mutex<()>,
    closed: AtomicBool,
    /// Why no other node can be reached any more.
    cut_off: OnceLock<LostHow>,
    dial: Arc<dyn Dial>,
    pub(crate) time: Arc<dyn Time>,
    pub(crate) assist: Option<Arc<dyn Assist>>,
    pub(crate) asked: Asked,
    pub(crate) failures: Arc<Failures>,
    pub(crate) mail: Mail,
    pub(crate) sleepers: Sleepers,
    pub(crate) helper: Helper,
    pub(crate) waits: Waits,
    pub(crate) spin_us: u64,
    pub(crate) eager_bytes: usize,
    pub(crate) endpoint_options: EndpointOptions,
    pub(crate) processors: Vec<u32>,
    main_thread: usize,
    /// For calls that have to start the helper.
    pub(crate) myself: Weak<Client>,
}

/// How a target's part of a window is reached.
pub(crate) enum Route<'a> {
    /// It is mapped here: loads, stores and CPU atomics.
    Direct(Window<'a>),
    /// Its node's server does it.
    Served(&'a Endpoint),
}

impl Client {
    /// A client whose connections are opened when they are first needed. The calling thread counts as the main one.
    pub fn new(options: ClientOptions) -> std::io::Result<Arc<Client>> {
        let nodes = options.layout.node_count();
        let helper = Helper::new()?;
        Ok(Arc::new_cyclic(|myself| Client {
            myself: myself.clone(),
            mail: Mail::new(),
            endpoints: (0..nodes).map(|_| OnceLock::new()).collect(),
            dialing: Mutex::new(()),
            closed: AtomicBool::new(false),
            cut_off: OnceLock::new(),
            counters: options.segment.own_counters(options.layout.local_of(options.layout.me())),
            bells: options.segment.bells(),
            meetings: Meetings::new(&options.segment, &options.layout),
            layout: options.layout,
            segment: options.segment,
            dial: options.dial,
            time: options.time,
            assist: options.assist,
            asked: Asked::default(),
            failures: options.failures,
            sleepers: Sleepers::new(),
            helper,
            waits: Waits::default(),
            spin_us: options.spin_us,
            eager_bytes: options.eager_bytes,
            endpoint_options: options.endpoint,
            processors: options.processors,
            main_thread: thread::current(),
        }))
    }

    /// Who stands where.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Who is known to be dead.
    pub fn failures(&self) -> &Arc<Failures> {
        &self.failures
    }

    /// The node's shared segment.
    pub fn segment(&self) -> &Arc<NodeSegment> {
        &self.segment
    }

    /// How the part of `rank` is reached. The caller has checked that the rank has one.
    #[inline]
    pub(crate) fn route<'a>(
        &'a self,
        window: &'a ClientWindow,
        operation: Operation,
        rank: Rank,
    ) -> Result<Route<'a>, TransferError> {
        if self.failures.is_dead(rank) {
            self.alive(operation, rank)?;
        }
        match window.part_here(operation, rank)? {
            Some(part) => Ok(Route::Direct(part)),
            None => Ok(Route::Served(self.endpoint(operation, self.layout.node_of(rank))?)),
        }
    }

    /// Bytes of a rank's part, if it is mapped here and nothing is wrong. `None`: the long way finds out what is.
    #[inline]
    pub(crate) fn direct<'a>(
        &self,
        window: &'a ClientWindow,
        rank: Rank,
        offset: u64,
        bytes: u64,
    ) -> Option<RegionMut<'a>> {
        if self.failures.is_dead(rank) {
            return None;
        }
        window.mapped_part(rank)?.region_mut(offset, bytes).ok()
    }

    /// Whether two ranks share memory, for those who ask from outside.
    pub fn same_node(&self, rank: Rank) -> bool {
        self.layout.node_of(rank) == self.layout.my_node()
    }

    /// An error if the rank is dead.
    pub(crate) fn alive(&self, operation: Operation, rank: Rank) -> Result<(), Lost> {
        match self.failures.of(rank) {
            None => Ok(()),
            Some(death) => {
                let how = LostHow::Died(death.how);
                Err(Lost { rank, node: self.layout.node_of(rank), operation, how })
            }
        }
    }

    /// The connection to a node, opened now if need be.
    pub(crate) fn endpoint(&self, operation: Operation, node: NodeId) -> Result<&Endpoint, Lost> {
        let place = &self.endpoints[node.0 as usize];
        let endpoint: &Endpoint = match place.get() {
            Some(endpoint) => endpoint,
            None => self.open(operation, node)?,
        };
        match endpoint.broken() {
            None => Ok(endpoint),
            Some(how) => Err(self.lost(operation, endpoint, how.clone())),
        }
    }

    #[cold]
    fn open(&self, operation: Operation, node: NodeId) -> Result<&Endpoint, Lost> {
        let host = self.layout.server_host(node);
        let endpoint: &Endpoint = {
            let _nobody_closes = self.dialing.lock();
            if self.closed.load(Ordering::Acquire) {
                return Err(Lost { rank: host, node, operation, how: LostHow::Finalized });
            }
            if let Some(how) = self.cut_off.get() {
                return Err(self.lost_host(operation, host, how.clone()));
            }
            self.endpoints[node.0 as usize].get_or_init(|| {
                let (dial, time) = (Arc::clone(&self.dial), Arc::clone(&self.time));
                Box::new(Endpoint::new(node, host, dial, time, self.endpoint_options))
            })
        };
        // A death that was noted before the lock was taken has given up all but this one, which would be called for as long as
        // connecting may take.
        if let Some(death) = self.failures.of(host) {
            endpoint.give_up(LostHow::Died(death.how));
        }
        // Who asks first hears at once if nobody answers. Not `is_up`: the connection may break in the very moment it
        // is made, and nobody makes it anew while nothing waits to be sent.
        self.wait_for(Drive::Endpoint(endpoint), Awaited::rank(operation, host), || {
            (endpoint.is_known() || endpoint.broken().is_some()).then_some(())
        });
        Ok(endpoint)
    }

    /// The error for a connection that ended, with what is known of the rank at its other end.
    pub(crate) fn lost(&self, operation: Operation, endpoint: &Endpoint, how: LostHow) -> Lost {
        self.lost_host(operation, endpoint.host(), how)
    }

    /// The error for a server that does not answer. Where a death ends the job any of them explains it: who survives one
    /// leaves, and takes the server that it hosts along.
    pub(crate) fn lost_host(&self, operation: Operation, host: Rank, how: LostHow) -> Lost {
        let first = || self.failures.first().filter(|_| !self.failures.survivors_go_on());
        let (rank, how) = match self.failures.of(host).or_else(first) {
            Some(Death { rank, how }) => (rank, LostHow::Died(how)),
            None => (host, how),
        };
        Lost { rank, node: self.layout.node_of(rank), operation, how }
    }

    /// The connection to a node, if it was ever opened.
    pub(crate) fn endpoint_if_open(&self, node: NodeId) -> Option<&Endpoint> {
        self.endpoints[node.0 as usize].get().map(Box::as_ref)
    }

    /// Every connection that is open.
    pub(crate) fn open_endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.iter().filter_map(OnceLock::get).map(Box::as_ref)
    }

    /// A rank died: its connections fail, and everybody who sleeps looks again. For the thread that hears of it, once it has
    /// noted the death.
    pub fn on_death(&self, rank: Rank, how: &str) {
        // Who opens a connection before this is found below; who does it later finds the death noted.
        drop(self.dialing.lock());
        for endpoint in self.open_endpoints().filter(|endpoint| endpoint.host() == rank) {
            endpoint.give_up(LostHow::Died(how.to_owned()));
        }
        self.wake_all();
    }

    /// The server of this node is gone, and all connections went through it: nobody on other nodes can be reached any more.
    pub fn cut_off(&self, host: Rank, how: &str) {
        let how =
            LostHow::Failed(format!("it went through the server of this node, which rank {host} hosted, who {how}"));
        {
            let _nobody_opens = self.dialing.lock();
            let _ = self.cut_off.set(how.clone());
        }
        for endpoint in self.open_endpoints() {
            endpoint.give_up(how.clone());
        }
        self.wake_all();
    }

    /// Ends every conversation: what is asked of another node from now on is an error. Called once, at finalize.
    pub fn close(&self) {
        // Whoever is woken by this may call us.
        let _kept = wakers::keep();
        let _nobody_opens = self.dialing.lock();
        self.closed.store(true, Ordering::Release);
        for endpoint in self.open_endpoints() {
            endpoint.leave();
        }
        self.stop_helper();
        self.wake_all();
    }

    /// Everybody of this process who sleeps in a call looks again.
    pub fn wake_all(&self) {
        self.sleepers.wake_all();
        self.my_bell().ring();
        self.segment.window_bell(self.layout.local_of(self.layout.me())).ring();
    }

    pub(crate) fn my_bell(&self) -> longarm_shm::Bell<'_> {
        self.segment.bell(self.layout.local_of(self.layout.me()))
    }

    /// Counts an operation.
    #[inline]
    pub fn count(&self, peer: Rank, kind: CounterKind, bytes: u64) {
        self.counters.add(peer, kind, bytes, thread::current() == self.main_thread);
    }

    /// Wakes a rank of this node that sleeps until mail comes. After a sequentially consistent read-modify-write or fence; a
    /// sleeper with a timeout may do without.
    #[inline]
    pub fn ring_mail(&self, rank: Rank) {
        self.bells.mail(self.layout.local_of(rank)).ring_if_sleeping_after_rmw();
    }

    /// Wakes a rank of this node that sleeps until its windows change. After a sequentially consistent read-modify-write.
    #[inline]
    pub fn ring_window(&self, rank: Rank) {
        self.bells.window(self.layout.local_of(rank)).ring_if_sleeping_after_rmw();
    }
}
