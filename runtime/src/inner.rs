//! What everything of a world shares: the client, the node, and what is kept between calls.

use std::sync::Arc;

use longarm_client::{Client, Lost, LostHow, Operation};
use longarm_control::messages::{KindTraffic, PeerTraffic};
use longarm_netmod::{Netmod, NoDeviceRmw};
use longarm_proto::{NodeId, Rank};
use longarm_server::door::DoorError;
use longarm_shm::CounterKind;
use longarm_shm::sync::{AtomicBool, AtomicU32, Ordering};
use parking_lot::Mutex;

use crate::bootstrap::{Node, Rendezvous, own_end};
use crate::collective::staging_buffer::StagingBuffer;
use crate::config::Config;
use crate::heap::kept::KeptHeap;
use crate::message::Handlers;
use crate::question::Questions;
use crate::started::errands::Errands;
use crate::started::lane::{Lane, Workers};
use crate::started::watch::Watch;
use crate::window::kept::KeptMemory;
use crate::window::numbers::WindowNumbers;

/// A process has one world at a time.
pub(crate) static INITIALISED: AtomicBool = AtomicBool::new(false);

pub(crate) struct Inner {
    pub(crate) client: Arc<Client>,
    pub(crate) node: Node,
    pub(crate) config: Config,
    pub(crate) numbers: WindowNumbers,
    pub(crate) memory: KeptMemory,
    pub(crate) group_count: AtomicU32,
    pub(crate) handlers: Arc<Handlers>,
    pub(crate) heap: Mutex<Option<KeptHeap>>,
    pub(crate) staging: StagingBuffer,
    /// What runs calls that were started.
    pub(crate) workers: Workers,
    /// Quiets that were started.
    pub(crate) quiets: Arc<Lane>,
    /// What is done at mutexes for tasks.
    pub(crate) errands: Errands,
    pub(crate) watch: Arc<Watch>,
    pub(crate) questions: Arc<Questions>,
    /// How often a group was made from each list of ranks: tells their messages apart.
    pub(crate) lists: Mutex<std::collections::HashMap<Arc<[Rank]>, u64>>,
    pub(crate) rendezvous: Option<Arc<dyn Rendezvous>>,
    pub(crate) netmod: Arc<dyn Netmod>,
    pub(crate) finalized: AtomicBool,
    /// The process that joined the job: a child of it has a copy of all of this.
    pub(crate) pid: u32,
    /// How many were given the world by init, and have not finalized it.
    pub(crate) holders: AtomicU32,
    /// It is one of many in a simulator's process.
    pub(crate) is_simulated: bool,
}

impl Inner {
    pub(crate) fn me(&self) -> Rank {
        self.client.layout().me()
    }

    pub(crate) fn traffic(&self) -> Vec<PeerTraffic> {
        let layout = self.client.layout();
        let counters = self.client.segment().counters(layout.local_of(layout.me()));
        // Not of all ranks: reading a counter that was never used takes a page of shared memory, 2.5 MB a rank in a job of 10,000.
        let all = self.client.peers_met().into_iter().map(|peer| {
            let kinds = CounterKind::ALL.iter().map(|kind| {
                let (operations, bytes) = counters.read(peer, *kind);
                KindTraffic { operations, bytes }
            });
            PeerTraffic { peer: peer.0, kinds: kinds.collect() }
        });
        all.filter(|peer| peer.kinds.iter().any(|kind| kind.operations > 0)).collect()
    }

    /// Whether this process can have words updated by devices.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn device_rmw(&self) -> Result<(), NoDeviceRmw> {
        if self.client.layout().rank_count() == 1 {
            return Err(NoDeviceRmw::Alone);
        }
        if self.config.encrypt {
            return Err(NoDeviceRmw::Encrypted);
        }
        self.netmod.device_rmw()
    }

    pub(crate) fn network_counts(&self) -> Vec<(String, u64)> {
        self.netmod.counts().into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }

    /// Who was lost, if an error at the door says that the server of this node is gone.
    pub(crate) fn lost_at_door(&self, error: &DoorError) -> Option<(Rank, NodeId, LostHow)> {
        let (layout, rendezvous) = (self.client.layout(), self.rendezvous.as_ref()?);
        let node = layout.my_node();
        if !error.is_hung_up() {
            return None;
        }
        Some(match rendezvous.death_of_server(node.0) {
            Some((rank, how)) => (Rank(rank), layout.node_of(Rank(rank)), LostHow::Died(how)),
            None => (layout.server_host(node), node, LostHow::Unreachable(error.to_string())),
        })
    }

    pub(crate) fn abort(&self, reason: &str, status: i32) {
        self.client.segment().note_job_ends();
        match &self.rendezvous {
            Some(rendezvous) => rendezvous.abort(reason, status),
            None => own_end::say_last(&format!("the job ends: {reason}")),
        }
    }

    /// Whether this process is a child of the one that joined the job, and has not joined it itself.
    pub(crate) fn is_forked_copy(&self) -> bool {
        self.pid != std::process::id()
    }

    /// Does something at a mutex of this host for a task, on a worker.
    pub(crate) fn start_errand(&self, host: u32, errand: impl FnOnce() + Send + 'static) {
        self.workers.start(&self.errands.lane(self.client.layout(), host), errand);
    }

    /// Says farewell and ends the threads of longarm.
    pub(crate) fn depart(&self, farewell: impl FnOnce(&dyn Rendezvous)) {
        if self.finalized.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(rendezvous) = &self.rendezvous {
            farewell(&**rendezvous);
        }
        self.handlers.stop(&self.client);
        self.end_questions();
        self.watch.stop(&self.client);
        self.workers.stop();
        self.client.close();
        *self.heap.lock() = None;
        self.node.stop();
        if let Some(rendezvous) = &self.rendezvous {
            rendezvous.forget_world();
        }
        if !self.is_simulated {
            INITIALISED.store(false, Ordering::Release);
        }
    }

    /// The world ends: nobody answers any more.
    fn end_questions(&self) {
        let (rank, layout) = (self.me(), self.client.layout());
        let lost = Lost { rank, node: layout.node_of(rank), operation: Operation::Message, how: LostHow::Finalized };
        self.questions.lose_if(|_| Some(lost.clone()));
    }
}
