//! What a rank knows without asking another node: where ranks run, which are dead, and the memory of its own node.

pub(crate) mod combining;
pub(crate) mod failures;
pub(crate) mod flag_barriers;
pub(crate) mod layout;
pub(crate) mod out_of_reach;

use std::sync::Arc;

use longarm_memory::Region;
use longarm_proto::{Kernel, Rank, Scale};
use longarm_shm::{CounterKind, Eventcounts, NodeSegment, OwnCounters, OwnStripes, Stripes, Window, thread};

use crate::completion::{Completion, Outcome};
use crate::error::{Lost, LostHow, Operation, TransferError};
use combining::Combining;
use failures::{Death, Failures};
use flag_barriers::FlagBarriers;
use layout::Layout;
use out_of_reach::OutOfReach;

/// See the module. Also for the C interfaces, which keep a pointer to it instead of finding it in every call.
pub struct Local {
    pub(crate) layout: Layout,
    pub(crate) segment: Arc<NodeSegment>,
    counters: OwnCounters,
    eventcounts: Eventcounts,
    stripes: OwnStripes,
    /// Where the ranks of this node meet.
    pub(crate) node_barriers: FlagBarriers,
    /// Where they combine updates, if there are several.
    pub(crate) combining: Option<Combining>,
    /// Whether all ranks of the world are on this node, in their order.
    pub(crate) all_are_here: bool,
    /// By value: every direct operation looks at it.
    pub(crate) failures: Failures,
    pub(crate) out_of_reach: OutOfReach,
    main_thread: usize,
}

impl Local {
    /// The calling thread counts as the main one.
    pub(crate) fn new(layout: Layout, segment: Arc<NodeSegment>, failures: Failures) -> Local {
        Local {
            counters: segment.own_counters(layout.local_of(layout.me())),
            eventcounts: segment.eventcounts(),
            stripes: segment.own_stripes(),
            node_barriers: FlagBarriers::of_node(&segment, &layout),
            combining: Combining::of_node(&segment, &layout, failures.survivors_go_on()),
            all_are_here: (0..layout.rank_count())
                .all(|rank| layout.node_of(Rank(rank)) == layout.my_node() && layout.local_of(Rank(rank)) == rank),
            layout,
            segment,
            failures,
            out_of_reach: OutOfReach::default(),
            main_thread: thread::current(),
        }
    }

    /// Whether two ranks share memory, for those who ask from outside.
    pub(crate) fn same_node(&self, rank: Rank) -> bool {
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

    /// The error for one of those ranks that matter, if it lives and can send this node nothing more.
    pub(crate) fn out_of_reach(&self, operation: Operation, matters: impl Fn(Rank) -> bool) -> Option<Lost> {
        let (rank, how) = self.out_of_reach.find(matters)?;
        Some(Lost { rank, node: self.layout.node_of(rank), operation, how: LostHow::OutOfReach(how) })
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

    pub(crate) fn my_eventcount(&self) -> longarm_shm::Eventcount<'_> {
        self.segment.eventcount(self.layout.local_of(self.layout.me()))
    }

    /// Whether a rank is known to be dead.
    #[inline]
    pub fn is_dead(&self, rank: Rank) -> bool {
        self.failures.is_dead(rank)
    }

    /// The stripe locks of this node.
    #[inline(always)]
    pub(crate) fn stripes(&self) -> Stripes<'_> {
        self.stripes.get()
    }

    /// Accumulates one run in the mapped part of a rank, from `offset` on. False: nothing was touched, and the long way finds out what is
    /// wrong. The scale is lent, not copied: a wide load right after the narrow stores that made it would stall.
    #[inline(always)]
    pub fn accumulate(
        &self,
        part: Window<'_>,
        (rank, offset): (Rank, u64),
        (kernel, scale): (Kernel, &Scale),
        source: Region<'_>,
    ) -> bool {
        let done = part.accumulate(offset, kernel, scale, source, &self.stripes(), self.layout.me()).is_ok();
        if done {
            self.count(rank, CounterKind::Accumulate, source.len() as u64);
        }
        done
    }

    /// Counts an operation. Whoever reads the counters reads those of [`Client::peers_met`](crate::Client::peers_met): an operation with a
    /// rank of another node is counted once there is a connection to that node.
    #[inline]
    pub fn count(&self, peer: Rank, kind: CounterKind, bytes: u64) {
        self.counters.add(peer, kind, bytes, thread::current() == self.main_thread);
    }

    /// Wakes a rank of this node that sleeps until mail comes. After a sequentially consistent read-modify-write or fence; a
    /// sleeper with a timeout may do without.
    #[inline]
    pub(crate) fn ring_mail(&self, rank: Rank) {
        self.eventcounts.mail(self.layout.local_of(rank)).notify_if_sleeping_after_rmw();
    }

    /// Wakes a rank of this node that sleeps until its windows change. After a sequentially consistent read-modify-write.
    #[inline]
    pub fn ring_window(&self, rank: Rank) {
        self.eventcounts.window(self.layout.local_of(rank)).notify_if_sleeping_after_rmw();
    }

    /// The error of a completion that failed because a connection ended or the server refused.
    pub(crate) fn failure(
        &self,
        completion: &Completion,
        operation: Operation,
        rank: Rank,
    ) -> Result<(), TransferError> {
        completion.failure().map_or(Ok(()), |outcome| Err(self.explain(outcome, operation, rank)))
    }

    /// What the failure of an operation towards a rank means, with what is known of deaths.
    pub(crate) fn explain(&self, outcome: &Outcome, operation: Operation, rank: Rank) -> TransferError {
        match outcome {
            Outcome::Lost(how) => self.lost_rank(operation, rank, how.clone()).into(),
            Outcome::Refused { refusal, detail } => {
                let node = self.layout.node_of(rank);
                TransferError::Refused { operation, rank, node, refusal: *refusal, detail: *detail }
            }
            Outcome::Doubtful => TransferError::Doubtful { operation, rank, node: self.layout.node_of(rank) },
            Outcome::NoOldValue(_) => unreachable!("who asks a device for an update looks at this first"),
        }
    }

    /// The error of a call whose target is behind a connection that ended.
    pub(crate) fn lost_rank(&self, operation: Operation, rank: Rank, how: LostHow) -> Lost {
        self.lost_host(operation, self.layout.server_host(self.layout.node_of(rank)), how)
    }
}
