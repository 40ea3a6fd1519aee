//! What is known of an endpoint without its lock.
//!
//! All of it belongs to [`State`], and is published from there once, when the lock is given back. What a reader sees is right for
//! that moment, all of it together: one word has every fact.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use longarm_proto::NodeId;
use longarm_shm::sync::{AtomicU32, AtomicU64, Ordering};
use parking_lot::Mutex;

use super::state::State;
use crate::error::LostHow;
use crate::progress::occupied::OccupiedNodes;

/// One fact, as a bit.
#[derive(Clone, Copy)]
pub(super) struct Fact(u32);

impl Fact {
    /// There is a link.
    pub(super) const UP: Fact = Fact(1);
    /// There was one at some time.
    pub(super) const KNOWN: Fact = Fact(1 << 1);
    /// Something was sent that the server has not acknowledged.
    pub(super) const UNACKNOWLEDGED: Fact = Fact(1 << 2);
    /// Something was issued that no reply has confirmed: quiet has to ask.
    pub(super) const UNCONFIRMED: Fact = Fact(1 << 3);
    /// Replies are due or bytes wait to be sent.
    pub(super) const BUSY: Fact = Fact(1 << 4);
    /// The same, but for transfers that end by themselves.
    pub(super) const NEEDS_HELPER: Fact = Fact(1 << 5);
    /// Bytes wait to be sent.
    pub(super) const WANTS_WRITE: Fact = Fact(1 << 6);
    /// As many bytes are kept as may be.
    pub(super) const BYTES_FULL: Fact = Fact(1 << 7);
    /// As many replies are due as may be.
    pub(super) const REPLIES_FULL: Fact = Fact(1 << 8);
    /// Mail waits until the server has passed on more of it.
    pub(super) const MAIL_WAITS: Fact = Fact(1 << 9);
    /// More data is on its way than the kernel keeps until somebody takes it.
    pub(super) const EXPECTS_MUCH: Fact = Fact(1 << 10);
    /// What waits to be sent is for the helper to send.
    pub(super) const MUCH_TO_SEND: Fact = Fact(1 << 11);
    /// What is next to be sent has to wait for the data of a get.
    pub(super) const HELD_BACK: Fact = Fact(1 << 12);
    /// What waits to be sent is corked: requests of any kind, those that are not made yet included.
    pub(super) const CORKED: Fact = Fact(1 << 13);
    /// A small write, or get, that nobody waits for would wait for others.
    pub(super) const COALESCES_WRITES: Fact = Fact(1 << 14);
    pub(super) const COALESCES_GETS: Fact = Fact(1 << 15);
    /// The link reaches the node's memory.
    pub(super) const REACHES: Fact = Fact(1 << 16);
    /// Transfers with no server involved are under way.
    pub(super) const TRANSFERS: Fact = Fact(1 << 17);
    /// Busy with more than acknowledgements that end nothing.
    pub(super) const PRESSING: Fact = Fact(1 << 18);

    /// An endpoint is occupied while one of these holds: waiting threads and the helper look at it.
    const OCCUPIED: [Fact; 4] = [Fact::UNACKNOWLEDGED, Fact::BUSY, Fact::NEEDS_HELPER, Fact::CORKED];

    fn when(self, holds: bool) -> u32 {
        if holds { self.0 } else { 0 }
    }
}

/// See the module.
pub(super) struct Published {
    facts: AtomicU32,
    /// The number of the last request, if it asks how far the server is, which is as good as a quiet; else 0.
    confirming: AtomicU64,
    /// The descriptor of the link, or of the call, once more, to sleep on without the lock.
    descriptor: Mutex<Option<Arc<OwnedFd>>>,
    /// Why nothing goes through any more. It belongs here: it is said once, before those who wait are told.
    pub(super) broken: OnceLock<LostHow>,
    buffered_bytes_max: usize,
    /// Those of this process that are occupied: this endpoint enters its node, and leaves it.
    occupied: Arc<OccupiedNodes>,
    node: NodeId,
}

impl Published {
    /// Of an endpoint that was never driven: its server has to be called.
    pub(super) fn new(node: NodeId, occupied: Arc<OccupiedNodes>, buffered_bytes_max: usize) -> Published {
        occupied.enter(node);
        Published {
            facts: AtomicU32::new(Fact::BUSY.0 | Fact::NEEDS_HELPER.0),
            confirming: AtomicU64::new(0),
            descriptor: Mutex::new(None),
            broken: OnceLock::new(),
            buffered_bytes_max,
            occupied,
            node,
        }
    }

    /// Whether a fact holds.
    #[inline]
    pub(super) fn has(&self, fact: Fact) -> bool {
        self.has_any(&[fact])
    }

    /// Whether one of these facts holds.
    #[inline]
    pub(super) fn has_any(&self, facts: &[Fact]) -> bool {
        // PAIR facts: who sees them sees what was done before they were published.
        holds_any(self.facts.load(Ordering::Acquire), facts)
    }

    pub(super) fn occupied(&self) -> &OccupiedNodes {
        &self.occupied
    }

    /// The number of the request whose reply will confirm everything, if it is the last one.
    pub(super) fn confirming(&self) -> Option<u64> {
        Some(self.confirming.load(Ordering::Acquire)).filter(|number| *number > 0)
    }

    pub(super) fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.descriptor.lock().clone()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    /// By who holds the lock and is about to give it back.
    pub(super) fn publish(&self, state: &mut State) {
        if std::mem::take(&mut state.renewed) {
            let descriptor = state.connection.descriptor().and_then(|descriptor| descriptor.try_clone_to_owned().ok());
            *self.descriptor.lock() = descriptor.map(Arc::new);
        }
        let alive = !self.is_broken();
        let facts = self.facts_of(state, alive);
        // Relaxed: nobody but who holds the lock writes them.
        let was_occupied = holds_any(self.facts.load(Ordering::Relaxed), &Fact::OCCUPIED);
        let is_occupied = holds_any(facts, &Fact::OCCUPIED);
        if is_occupied && !was_occupied {
            self.occupied.enter(self.node);
        }
        // PAIR facts.
        self.facts.store(facts, Ordering::Release);
        if was_occupied && !is_occupied {
            self.occupied.leave(self.node);
        }
        // After the facts: who no longer waits for the reply finds nothing to ask for.
        let confirming = state.confirming().filter(|_| alive).map_or(0, |number| number.0);
        self.confirming.store(confirming, Ordering::Release);
    }

    fn facts_of(&self, state: &mut State, alive: bool) -> u32 {
        let (is_up, is_known) = (state.connection.is_up(), state.connection.is_known());
        let has_coalesced = state.has_coalesced();
        let transfers = !state.transfers.is_empty();
        let unacknowledged = !state.outgoing.is_acknowledged() || has_coalesced || transfers;
        let (is_sent, can_send) = (state.outgoing.is_sent(), state.outgoing.can_send());
        let calling = !is_up && (unacknowledged || !is_known);
        let mail_waits = state.mail.is_waited_for();
        let unsent = !is_sent || has_coalesced;
        let outstanding = state.initiator.outstanding();
        let awaited = outstanding > state.acknowledgements.due || state.awaits_data();
        // Who waits for the owner of a payload that is sent has to find that nobody has asked for it yet.
        let owes = state.acknowledgements.owes_for_streams();
        let moves = mail_waits || unsent || awaited || calling || owes;
        // The owner of a payload waits for the acknowledgement behind it.
        let pressing = moves || state.outgoing.streams() > 0;
        let served = moves || outstanding > 0;
        let needs_helper = served || (transfers && state.transfers.need_driving(state.connection.link()));
        let replies_full = state.acknowledgements.is_full();
        let coalesces = alive && state.coalesces_more(self.buffered_bytes_max);
        let bytes_full = !state.has_room_for_bytes(self.buffered_bytes_max);
        Fact::UP.when(is_up)
            | Fact::KNOWN.when(is_known)
            | Fact::UNACKNOWLEDGED.when(unacknowledged && alive)
            | Fact::UNCONFIRMED.when(state.is_unconfirmed())
            | Fact::BUSY.when((served || transfers) && alive)
            | Fact::NEEDS_HELPER.when(needs_helper && alive)
            | Fact::WANTS_WRITE.when(can_send || has_coalesced)
            | Fact::BYTES_FULL.when(bytes_full)
            | Fact::REPLIES_FULL.when(replies_full)
            | Fact::MAIL_WAITS.when(mail_waits && alive)
            | Fact::EXPECTS_MUCH.when(state.acknowledgements.expects_much())
            | Fact::MUCH_TO_SEND.when(state.has_much_to_send())
            | Fact::HELD_BACK.when(!is_sent && !can_send && !has_coalesced)
            | Fact::CORKED.when(state.corked && alive)
            | Fact::COALESCES_WRITES.when(coalesces && !state.holds_back_writes())
            | Fact::COALESCES_GETS.when(coalesces && !replies_full)
            | Fact::REACHES.when(state.reaches == Some(true))
            | Fact::TRANSFERS.when(transfers && alive)
            | Fact::PRESSING.when((pressing || transfers) && alive)
    }
}

fn holds_any(facts: u32, wanted: &[Fact]) -> bool {
    facts & wanted.iter().fold(0, |all, fact| all | fact.0) != 0
}
