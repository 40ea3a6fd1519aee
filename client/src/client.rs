//! One rank's side of everything.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use longarm_proto::{NodeId, Rank};
use longarm_shm::NodeSegment;
use longarm_shm::sync::AtomicBool;
use parking_lot::Mutex;

use crate::completion::Outcome;
use crate::endpoint::{Endpoint, EndpointOptions};
use crate::error::{Lost, Operation, TransferError};
use crate::local::Local;
use crate::local::failures::Failures;
use crate::local::layout::Layout;
use crate::mail::mailbox::Mail;
use crate::progress::Progress;
use crate::progress::answers::{AnswerDue, Answers};
use crate::progress::assist::{Asked, Assist, Expecting};
use crate::progress::dialing::Dial;
use crate::progress::helper::Helper;
use crate::progress::link_sleep::BatchNap;
use crate::progress::occupied::OccupiedNodes;
use crate::progress::opened::Opened;
use crate::progress::processors::Apart;
use crate::progress::sleepers::Sleepers;
use crate::progress::time::Time;
use crate::progress::waits::{Awaited, Wait, Waits};
use crate::window::ClientWindow;

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
    pub failures: Failures,
    /// How long a waiting thread looks before it sleeps, in microseconds. 0 where threads outnumber processors.
    pub spin_us: u64,
    /// Blocking puts and accumulates up to this size are copied and need not wait for the link; of those that are started no more
    /// than 16 KiB.
    pub eager_bytes: usize,
    /// The bounds of each connection.
    pub endpoint: EndpointOptions,
    /// The processors that the job may use: the thread that moves transfers while the application computes may use all of
    /// them, whatever the application is bound to. None: those of the thread that starts it.
    pub processors: Vec<u32>,
    /// How many ranks the job has on this machine.
    pub ranks_on_machine: u32,
}

/// See the module.
pub struct Client {
    pub(crate) local: Arc<Local>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) mail: Mail,
    pub(crate) eager_bytes: usize,
}

impl Client {
    /// A client whose connections are opened when they are first needed. The calling thread counts as the main one.
    pub fn new(options: ClientOptions) -> std::io::Result<Arc<Client>> {
        let nodes = options.layout.node_count();
        let local = Arc::new(Local::new(options.layout, options.segment, options.failures));
        let progress = Arc::new(Progress {
            local: Arc::clone(&local),
            endpoints: Opened::new(nodes),
            occupied: Arc::new(OccupiedNodes::new(nodes)),
            dialing: Mutex::new(()),
            closed: AtomicBool::new(false),
            cut_off: OnceLock::new(),
            dial: options.dial,
            time: options.time,
            assist: options.assist,
            asked: Asked::default(),
            sleepers: Sleepers::new(),
            helper: Helper::new(),
            waits: Waits::default(),
            batch_nap: BatchNap::new(),
            answers: Answers::new(),
            spin_us: options.spin_us,
            endpoint_options: options.endpoint,
            apart: Apart::new(&local.segment, &options.processors, options.ranks_on_machine),
            processors: options.processors,
        });
        Ok(Arc::new(Client { local, progress, mail: Mail::new(), eager_bytes: options.eager_bytes }))
    }

    /// Who stands where.
    pub fn layout(&self) -> &Layout {
        &self.local.layout
    }

    /// What this process knows by itself.
    #[inline]
    pub fn local(&self) -> &Local {
        &self.local
    }

    /// Who is known to be dead.
    pub fn failures(&self) -> &Failures {
        &self.local.failures
    }

    /// The node's shared segment.
    pub fn segment(&self) -> &Arc<NodeSegment> {
        &self.local.segment
    }

    /// Whether two ranks share memory, for those who ask from outside.
    pub fn same_node(&self, rank: Rank) -> bool {
        self.local.same_node(rank)
    }

    /// The ranks with which this one may have counted operations, ascending: those of its node, and of every node that it ever called.
    pub fn peers_met(&self) -> Vec<Rank> {
        let layout = &self.local.layout;
        let others = self.progress.open_endpoints().map(Endpoint::node);
        let nodes = std::iter::once(layout.my_node()).chain(others);
        let mut ranks: Vec<Rank> = nodes.flat_map(|node| layout.ranks_of(node).iter().copied()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Wakes a rank of this node that sleeps until mail comes. After a sequentially consistent read-modify-write or fence; a
    /// sleeper with a timeout may do without.
    #[inline]
    pub fn ring_mail(&self, rank: Rank) {
        self.local.ring_mail(rank);
    }

    /// Wakes a rank of this node that sleeps until its windows change. After a sequentially consistent read-modify-write.
    #[inline]
    pub fn ring_window(&self, rank: Rank) {
        self.local.ring_window(rank);
    }

    /// What the failure of an operation towards a rank means, with what is known of deaths.
    pub fn explain(&self, outcome: &Outcome, operation: Operation, rank: Rank) -> TransferError {
        self.local.explain(outcome, operation, rank)
    }

    /// Somebody wants to hear of what is in progress without waiting in a call: the helper drives it.
    pub fn keep_moving(&self) {
        self.progress.keep_moving();
    }

    /// For a thread that is about to send something and to wait for mail, requests or replies of another rank: the server of this
    /// process, if there is one, wakes no other thread meanwhile.
    pub fn expect_from(&self, from: Rank) -> Option<Expecting<'_>> {
        self.progress.expect_from(from)
    }

    /// Who sleeps in a call of this process, those that have waited longest first.
    pub fn waits(&self) -> Vec<Wait> {
        self.progress.waits.list()
    }

    /// The calling thread is about to sleep for what another one of this process has, until the result is dropped: it stands in the
    /// list of those who wait.
    #[must_use]
    pub fn enter_wait(&self, awaited: Awaited) -> impl Sized + '_ {
        self.progress.waits.enter(awaited)
    }

    /// For who is about to ask a rank for something that comes as a message, and goes on. While one is due its node is watched, so
    /// that its loss becomes known. `None`: the rank is on this node, where deaths alone are news.
    pub fn answer_is_due(&self, rank: Rank) -> Option<AnswerDue> {
        (!self.local.same_node(rank)).then(|| self.progress.answers.enter(self.local.layout.node_of(rank)))
    }

    /// After the question was sent: somebody looks after the node from now on.
    pub fn watch_over_answers(&self) {
        self.progress.watch_over_wait();
    }

    /// Has somebody told whenever connections may have been lost. On any thread, which may be in any call and hold locks: it is to
    /// look, and to do the rest elsewhere. The first one is kept.
    pub fn tell_of_losses(&self, on_loss: impl Fn() + Send + Sync + 'static) {
        self.progress.answers.tell(Arc::new(on_loss));
    }

    /// Says what is done when the thread that moves transfers panics, for instance in a waker of the program's: nobody moves them from
    /// then on. The first one is kept.
    pub fn when_helper_panics(&self, on_panic: impl Fn(&(dyn Any + Send)) + Send + Sync + 'static) {
        let _ = self.progress.helper.on_panic.set(Box::new(on_panic));
    }

    /// Moves what can be moved without waiting: for tests of completion.
    pub fn poll_progress(&self) {
        self.progress.drive_busy();
    }

    /// Whether something is in progress towards a server to which there is no connection now: it is called, which takes
    /// driving often.
    pub fn is_calling(&self) -> bool {
        self.progress.is_calling()
    }

    /// Looks after what was sent and has not been acknowledged, although nobody waits, and after nodes from which
    /// somebody waits for mail or a changed word. Often enough to notice a broken connection in time; the helper thread
    /// does it where time is real.
    pub fn tend(&self) -> bool {
        self.progress.tend()
    }

    /// The nodes that this rank has lost, although nobody knows of a death, and why: it can send the ranks there nothing more.
    pub fn lost_nodes(&self) -> impl Iterator<Item = (NodeId, String)> {
        self.progress.lost_nodes()
    }

    /// A rank lives, and has lost this node: it can send nothing more to this rank. For the thread that hears of it.
    pub fn on_out_of_reach(&self, rank: Rank, how: &str) {
        self.progress.on_out_of_reach(rank, how);
    }

    /// The error for a rank that lives and can send this one nothing more.
    pub fn out_of_reach(&self, operation: Operation, rank: Rank) -> Option<Lost> {
        self.rank_out_of_reach(operation, |other| other == rank)
    }

    /// The error for one of those that matter.
    pub fn rank_out_of_reach(&self, operation: Operation, matters: impl Fn(Rank) -> bool) -> Option<Lost> {
        self.local.out_of_reach(operation, matters)
    }

    /// The host of a server that cannot be reached any more, although nobody knows of its death, if its node is one of
    /// those that matter.
    pub fn lost_connection(&self, operation: Operation, matters: impl Fn(NodeId) -> bool) -> Option<Lost> {
        self.progress.lost_connection(operation, matters)
    }

    /// A node card has come: how a node is reached. A call may have waited for it, and the thread or helper that drives the call is woken. For the
    /// thread that reads from the launcher.
    pub fn on_node_card(&self) {
        self.progress.on_node_card();
    }

    /// A rank died: its connections fail, and everybody who sleeps looks again. For the thread that hears of it, once it has
    /// noted the death.
    pub fn on_death(&self, rank: Rank, how: &str) {
        self.progress.on_death(rank, how);
    }

    /// The server of this node is gone, and all connections went through it: nobody on other nodes can be reached any more.
    pub fn cut_off(&self, host: Rank, how: &str) {
        self.progress.cut_off(host, how);
    }

    /// Ends every conversation: what is asked of another node from now on is an error. Called once, at finalize.
    pub fn close(&self) {
        self.progress.close();
    }

    /// A window of this client's: where time is simulated, the simulator sees what is done to it here.
    #[must_use]
    pub fn show(&self, window: ClientWindow) -> ClientWindow {
        if self.progress.time.is_simulated() { window.seen_by(Arc::clone(&self.progress.time)) } else { window }
    }

    /// Everybody of this process who sleeps in a call looks again.
    pub fn wake_all(&self) {
        self.progress.wake_all();
    }
}
