//! Parts of the node's segment that are found once: for the hot path.

use std::sync::Arc;

use longarm_proto::Rank;

use crate::combining::{self, ENTRIES, Entry, Seat};
use crate::counters::{CounterKind, PeerCounters, SETS, set_of};
use crate::eventcount::{Eventcount, EventcountWord};
use crate::flag_barrier::{Board, Lines};
use crate::layout::NodeSegment;
use crate::segment::Shareable;
use crate::stripe::{STRIPE_COUNT, StripeWord, Stripes};

// SAFETY: `repr(C)`, one atomic and padding that nobody reads.
unsafe impl Shareable for Entry {}
// SAFETY: `repr(C)`, atomics and padding that nobody reads.
unsafe impl Shareable for Seat {}

/// `count` values of the segment, for as long as this is kept.
#[derive(Debug)]
struct Found<T> {
    first: *const T,
    count: usize,
    segment: Arc<NodeSegment>,
}

// SAFETY: the pointer leads to atomics in the mapping of `segment`, which moves and is shared with this.
unsafe impl<T: Sync> Send for Found<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Sync> Sync for Found<T> {}

impl<T> Found<T> {
    fn new(values: &[T], segment: Arc<NodeSegment>) -> Found<T> {
        Found { first: values.as_ptr(), count: values.len(), segment }
    }

    #[inline]
    fn at(&self, place: usize) -> &T {
        assert!(place < self.count);
        // SAFETY: one of `count` values (asserted) of a slice that `new` was given, in the mapping that `segment` keeps.
        // They are atomics.
        unsafe { &*self.first.wrapping_add(place) }
    }
}

impl NodeSegment {
    /// The eventcounts of all ranks of this node.
    pub fn eventcounts(self: &Arc<Self>) -> Eventcounts {
        Eventcounts(Found::new(self.eventcount_words().as_chunks().0, Arc::clone(self)))
    }

    /// The stripe locks of this node.
    pub fn own_stripes(self: &Arc<Self>) -> OwnStripes {
        OwnStripes(Found::new(self.stripe_words().as_chunks().0, Arc::clone(self)))
    }

    /// Where the ranks of this node meet.
    pub fn board(self: &Arc<Self>) -> NodeBoard {
        self.board_of(self.lines())
    }

    /// Where members meet that have these lines of the segment.
    pub(crate) fn board_of(self: &Arc<Self>, lines: &[Lines]) -> NodeBoard {
        NodeBoard(Found::new(lines, Arc::clone(self)))
    }

    /// Where the ranks of this node combine updates.
    pub fn combining(self: &Arc<Self>) -> NodeCombining {
        let entries = self.part(self.layout.entries, ENTRIES as u32);
        let seats = self.part(self.layout.seats, self.layout.local_ranks);
        NodeCombining {
            entries: Found::new(entries, Arc::clone(self)),
            seats: Found::new(seats, Arc::clone(self)),
            eventcounts: self.eventcounts(),
        }
    }

    /// The counters of a local rank, ready for the hot path: found once, used by every operation.
    ///
    /// # Panics
    ///
    /// If there is no such rank here.
    pub fn own_counters(self: &Arc<Self>, local: u32) -> OwnCounters {
        let counters = self.counters(local);
        let peers = counters.peers.map(|peers| peers.as_ptr());
        OwnCounters { peers, count: counters.peers[0].len() as u32, segment: Arc::clone(self) }
    }
}

/// The eventcounts of the ranks of this node.
#[derive(Debug)]
pub struct Eventcounts(Found<[EventcountWord; 2]>);

impl Found<[EventcountWord; 2]> {
    #[inline]
    fn eventcount(&self, local: u32, which: usize) -> Eventcount<'_> {
        Eventcount::with_ringer(&self.at(local as usize)[which], self.segment.ringer_place())
    }
}

impl Eventcounts {
    /// As [`NodeSegment::eventcount`].
    ///
    /// # Panics
    ///
    /// If there is no such rank here.
    #[inline]
    pub fn mail(&self, local: u32) -> Eventcount<'_> {
        self.0.eventcount(local, 0)
    }

    /// As [`NodeSegment::window_eventcount`].
    ///
    /// # Panics
    ///
    /// If there is no such rank here.
    #[inline]
    pub fn window(&self, local: u32) -> Eventcount<'_> {
        self.0.eventcount(local, 1)
    }
}

/// The stripe locks of this node. Their number is a part of the type, so that nothing has to be counted on the way to one.
#[derive(Debug)]
pub struct OwnStripes(Found<[StripeWord; STRIPE_COUNT]>);

impl OwnStripes {
    /// As [`NodeSegment::stripes`].
    #[inline(always)]
    pub fn get(&self) -> Stripes<'_> {
        Stripes::new(self.0.at(0))
    }
}

/// Where ranks of this node meet: all of them, by local rank, or those of a group, by place.
#[derive(Debug)]
pub struct NodeBoard(Found<Lines>);

impl Board for NodeBoard {
    #[inline]
    fn lines(&self, place: usize) -> &Lines {
        self.0.at(place)
    }
}

/// Where the ranks of this node combine updates of words of other nodes.
#[derive(Debug)]
pub struct NodeCombining {
    entries: Found<Entry>,
    seats: Found<Seat>,
    eventcounts: Eventcounts,
}

impl combining::Board for NodeCombining {
    fn entry(&self, number: usize) -> &Entry {
        self.entries.at(number)
    }

    fn seat(&self, local: u32) -> Option<&Seat> {
        ((local as usize) < self.seats.count).then(|| self.seats.at(local as usize))
    }

    fn wake(&self, local: u32) {
        self.eventcounts.mail(local).notify_if_sleeping();
    }
}

/// The counters of this process's rank, found once: for the hot path.
#[derive(Debug)]
pub struct OwnCounters {
    /// By set; `count` each, mapped as long as `segment` lives.
    peers: [*const PeerCounters; SETS],
    count: u32,
    segment: Arc<NodeSegment>,
}

// SAFETY: the pointers lead to atomics in the mapping of `segment`, which moves and is shared with this.
unsafe impl Send for OwnCounters {}
// SAFETY: as for `Send`.
unsafe impl Sync for OwnCounters {}

impl OwnCounters {
    /// As [`Counters::add`](crate::Counters::add), without the way there.
    ///
    /// # Panics
    ///
    /// If there is no such rank in the world.
    #[inline]
    pub fn add(&self, peer: Rank, kind: CounterKind, bytes: u64, main_thread: bool) {
        assert!(peer.0 < self.count);
        let set = self.peers[set_of(main_thread)];
        let place = set.wrapping_add(peer.0 as usize);
        // SAFETY: `place` is one of `count` values (asserted) of a slice that `own_counters` took, in the mapping that
        // `segment` keeps. They are atomics.
        let counters = unsafe { &*place };
        counters.add(kind, bytes, main_thread);
    }

    /// The segment that holds them.
    pub fn segment(&self) -> &Arc<NodeSegment> {
        &self.segment
    }
}
