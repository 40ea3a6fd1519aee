//! Where the ranks of this node combine updates, and whether this rank may wait there.
//!
//! PAIR seat: who gives the seat back (Release) has read what it was told; who takes it next (Acquire) writes it.

use std::sync::Arc;

use longarm_shm::sync::{AtomicBool, Ordering};
use longarm_shm::{NodeCombining, NodeSegment};

use crate::local::layout::Layout;

/// Requests for one word that keep its server busy, from all nodes together: of more, some would only wait there, and could go together instead.
const REQUESTS_AT_A_WORD: u64 = 16;
/// With one permit half of the ranks would wait while the request of the others is under way.
const PERMITS_MIN: u64 = 2;
const PERMITS_MAX: u64 = 4;

/// See the module.
pub(crate) struct Combining {
    pub(crate) board: NodeCombining,
    /// How many each word has on this node.
    pub(crate) permits: u64,
    is_seat_used: AtomicBool,
}

/// This rank's seat, in the hands of one thread. Dropped, it is used for ever.
pub(crate) struct OwnSeat<'a>(&'a AtomicBool);

impl Combining {
    /// `None` where there is nobody to combine with, and where the others go on after a death: who waits for a neighbour's request could
    /// not tell whether it was done when that one dies.
    pub(crate) fn of_node(segment: &Arc<NodeSegment>, layout: &Layout, survivors_go_on: bool) -> Option<Combining> {
        let other_nodes = layout.node_count() - 1;
        let is_alone = other_nodes == 0 || layout.ranks_of(layout.my_node()).len() == 1;
        (!is_alone && !survivors_go_on).then(|| Combining {
            board: segment.combining(),
            permits: (REQUESTS_AT_A_WORD / u64::from(other_nodes)).clamp(PERMITS_MIN, PERMITS_MAX),
            is_seat_used: AtomicBool::new(false),
        })
    }

    /// `None`: another thread combines just now, or one left it when a rank died.
    pub(crate) fn take_seat(&self) -> Option<OwnSeat<'_>> {
        // PAIR seat.
        let is_taken = self.is_seat_used.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        is_taken.then_some(OwnSeat(&self.is_seat_used))
    }
}

impl OwnSeat<'_> {
    /// Nobody of the node looks at it any more.
    pub(crate) fn give_back(self) {
        // PAIR seat.
        self.0.store(false, Ordering::Release);
    }
}
