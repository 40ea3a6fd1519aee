//! The node's segment: where eventcounts, queues, stripe locks, cells and counters of its ranks lie.
//!
//! ```text
//!   header │ eventcounts │ inboxes │ cells in use │ stripe locks ║ cells ║ boxes of local rank 0 ║ … ║ lines │ entries of combining │ seats │ states of sync areas ║ sync area 0 ║ … ║ counters of local rank 0 ║ …
//!          by local rank                                   ║ = starts on a page
//! ```
//!
//! The places of all parts follow from two numbers, the ranks of the world and of the node; nothing in shared memory
//! says where anything is. Memory exists once it is touched: a job of many ranks pays for the peers it talks to.
//!
//! Each structure's own module says which loads and stores pair and what a death leaves behind. What this module adds:
//!
//! PAIR made: the creator writes the header and the ends of the queues before it hands out the descriptor, a system call
//! that orders them before everything the receiver does.
//!
//! PAIR job-ends: a rank that ends the job says so before anything by which its end could be noticed.
//!
//! If a process dies:
//! - Cells that were on their way to it stay in its inbox. Another process empties it with [`NodeSegment::take_over`] and
//!   [`NodeSegment::try_pop`], and so gives the cells back to their owners.
//! - Its fastboxes are closed by [`NodeSegment::take_over`]; what is in them is nobody's.
//! - A cell that it was about to push may cut the inbox of a survivor ([`Popped::Broken`]); [`NodeSegment::mend`] closes
//!   the gap.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use longarm_memory::{Region, RegionMut};
use longarm_proto::{JobId, Mutation, Rank, mutation};

use crate::cell::{CELL_PAYLOAD_BYTES, CELLS_OF_SERVER, CELLS_PER_RANK, Cell, CellHead, HEAD_OFFSET, PAYLOAD_OFFSET};
use crate::counters::{Counters, PeerCounters, SETS, WaitCounters, WaitsOn};
use crate::eventcount::{Eventcount, EventcountWord};
use crate::fastbox::{BOX_COUNT, Boxes, Fastbox, NO_BOX, ShortMessage, Turn};
use crate::flag_barrier::Lines;
use crate::in_use::{CELLS_PER_WORD, CellsInUse};
use crate::inbox::{Cells, Inbox};
use crate::parts::{
    BOXES_STRIDE, EVENTCOUNTS_PER_RANK, FIRST_BOX, HEADER_BYTES, IN_USE_BYTES, Layout, TURN, cell_count, peers_bytes,
};
use crate::queue::{Links, Queue, QueueEnds, Taken};
use crate::segment::{PAGE_BYTES, Segment, SegmentError, Shareable};
use crate::stripe::{STRIPE_COUNT, StripeWord, Stripes};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The first eight bytes: "longarmN", little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"longarmN");
/// Goes up whenever anything in this crate's shared structures moves, or two ranks would come to hold different stripe
/// locks for one element.
const VERSION: u32 = 8;
#[repr(C, align(64))]
struct Header {
    magic: AtomicU64,
    job: AtomicU64,
    version: AtomicU32,
    world_ranks: AtomicU32,
    local_ranks: AtomicU32,
    is_job_ending: AtomicU32,
    reserved: [AtomicU32; 8],
}

const _: () = assert!(size_of::<Header>() as u64 == HEADER_BYTES);

// SAFETY: `repr(C)`, atomics only, no padding: the fields add up to 64 bytes.
unsafe impl Shareable for Header {}
// SAFETY: `repr(C)`, one atomic and padding that nobody reads.
unsafe impl Shareable for EventcountWord {}
// SAFETY: `repr(C)`, atomics and padding that nobody reads.
unsafe impl Shareable for QueueEnds {}
// SAFETY: `repr(C)`, one atomic and padding that nobody reads.
unsafe impl Shareable for StripeWord {}

// SAFETY: one atomic.
unsafe impl Shareable for CellsInUse {}
// SAFETY: `repr(C)`, atomics only, no padding.
unsafe impl Shareable for Lines {}

/// Who pushes: each has its own cells, and one thread of its process at a time may push for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Producer {
    /// The local rank with this index.
    Local(u32),
    /// The node's server, on behalf of other nodes.
    Server,
}

/// All cells of a producer are on their way or being read. Nothing was pushed; try again later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all cells of this sender are in use")]
pub struct Full;

/// What a pop found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Popped {
    /// A cell or a short message, which was handed to the caller's function.
    Taken,
    /// Nothing.
    Empty,
    /// Something, but a sender stopped between two steps of a push. Try again, unless that sender is dead: then
    /// [`NodeSegment::mend`].
    Broken,
}

/// The memory that all ranks of a node share, beside their windows.
#[derive(Debug)]
pub struct NodeSegment {
    pub(crate) segment: Segment,
    pub(crate) layout: Layout,
    job: JobId,
    ringer: OnceLock<OwnedFd>,
}

/// The cells, for the inboxes.
struct NodeCells<'a> {
    cells: &'a [Cell],
    node: &'a NodeSegment,
}

impl Links for NodeCells<'_> {
    #[inline]
    fn next(&self, cell: u32) -> Option<&AtomicU32> {
        self.cells.get(cell as usize).map(|cell| &cell.next)
    }
}

impl Cells for NodeCells<'_> {
    fn count(&self) -> u32 {
        self.cells.len() as u32
    }

    #[inline]
    fn target(&self, cell: u32) -> &AtomicU32 {
        &self.cells[cell as usize].target
    }

    fn is_used(&self, cell: u32) -> bool {
        let (word, bit) = self.node.in_use(cell);
        word.is_used(bit)
    }

    #[inline]
    fn give_back(&self, cell: u32) {
        let (word, bit) = self.node.in_use(cell);
        word.give_back(bit);
    }
}

impl NodeSegment {
    /// Makes the segment of a node with `local_ranks` of the job's `world_ranks` ranks.
    ///
    /// # Errors
    ///
    /// As [`Segment::create`]; [`SegmentError::TooLarge`] for more than [`LOCAL_RANKS_MAX`](crate::LOCAL_RANKS_MAX) ranks of one node, or more
    /// than the world has.
    pub fn create(job: JobId, world_ranks: u32, local_ranks: u32) -> Result<NodeSegment, SegmentError> {
        let layout = Layout::new(world_ranks, local_ranks)?;
        let segment = Segment::create("longarm-node", layout.bytes)?;
        let header = &segment.shared::<Header>(0, 1)[0];
        // PAIR made orders all of these.
        header.magic.store(MAGIC, Ordering::Relaxed);
        header.job.store(job.0, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Relaxed);
        header.world_ranks.store(world_ranks, Ordering::Relaxed);
        header.local_ranks.store(local_ranks, Ordering::Relaxed);
        let node = NodeSegment { segment, layout, job, ringer: OnceLock::new() };
        node.inboxes().iter().for_each(QueueEnds::initialize);
        Ok(node)
    }

    /// Maps the segment that another process of this node made.
    ///
    /// # Errors
    ///
    /// As [`Segment::attach`]; [`SegmentError::WrongMagic`], [`SegmentError::WrongVersion`] and
    /// [`SegmentError::WrongSize`] if it is something else.
    pub fn attach(file: OwnedFd) -> Result<NodeSegment, SegmentError> {
        let segment = Segment::attach(file)?;
        let header_bytes = size_of::<Header>() as u64;
        if segment.bytes() < header_bytes {
            return Err(SegmentError::WrongSize { expected: header_bytes, found: segment.bytes() });
        }
        // Each field is read once, checked, and the checked copy is used. PAIR made.
        let header = &segment.shared::<Header>(0, 1)[0];
        let magic = header.magic.load(Ordering::Relaxed);
        if magic != MAGIC {
            return Err(SegmentError::WrongMagic { found: magic });
        }
        let version = header.version.load(Ordering::Relaxed);
        if version != VERSION {
            return Err(SegmentError::WrongVersion { expected: VERSION, found: version });
        }
        let job = JobId(header.job.load(Ordering::Relaxed));
        let world_ranks = header.world_ranks.load(Ordering::Relaxed);
        let layout = Layout::new(world_ranks, header.local_ranks.load(Ordering::Relaxed))?;
        if segment.bytes() != layout.bytes {
            return Err(SegmentError::WrongSize { expected: layout.bytes, found: segment.bytes() });
        }
        Ok(NodeSegment { segment, layout, job, ringer: OnceLock::new() })
    }

    /// The descriptor, to hand to another process of this node.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.segment.file()
    }

    /// An eventfd that is the same one in all processes of this node: it is rung when an eventcount is notified at which somebody listens
    /// ([`Eventcount::listen_unless`]). That is only who hosts the server, so the first one given is kept.
    ///
    /// Nobody may listen before every process that notifies has it.
    pub fn set_ringer(&self, ringer: OwnedFd) {
        let _ = self.ringer.set(ringer);
    }

    #[inline]
    pub(crate) fn ringer_place(&self) -> &OnceLock<OwnedFd> {
        &self.ringer
    }

    /// What was set, to hand to another process of this node.
    pub fn ringer(&self) -> Option<BorrowedFd<'_>> {
        self.ringer.get().map(AsFd::as_fd)
    }

    /// The job that it belongs to.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// How many ranks this node has.
    pub fn local_ranks(&self) -> u32 {
        self.layout.local_ranks
    }

    /// How many ranks the job has.
    pub fn world_ranks(&self) -> u32 {
        self.layout.world_ranks
    }

    /// A rank of this node ends the job: the others may see it and each other go, and need not look for a reason.
    pub fn note_job_ends(&self) {
        // PAIR job-ends.
        self.segment.shared::<Header>(0, 1)[0].is_job_ending.store(1, Ordering::Release);
    }

    /// Whether a rank of this node has said that it ends the job.
    pub fn is_job_ending(&self) -> bool {
        // PAIR job-ends.
        self.segment.shared::<Header>(0, 1)[0].is_job_ending.load(Ordering::Acquire) != 0
    }

    /// The eventcount of a local rank that is notified when mail has come.
    ///
    /// # Panics
    ///
    /// If there is no such rank here.
    #[inline]
    pub fn eventcount(&self, local: u32) -> Eventcount<'_> {
        self.eventcount_at(local, 0)
    }

    /// The eventcount of a local rank that is notified when its windows have changed. Another one than that for mail, so
    /// that an update of a window wakes nobody who waits for a message.
    ///
    /// # Panics
    ///
    /// If there is no such rank here.
    #[inline]
    pub fn window_eventcount(&self, local: u32) -> Eventcount<'_> {
        self.eventcount_at(local, 1)
    }

    /// Two of each rank.
    #[inline]
    pub(crate) fn eventcount_words(&self) -> &[EventcountWord] {
        self.part(self.layout.eventcounts, EVENTCOUNTS_PER_RANK as u32 * self.layout.local_ranks)
    }

    /// Of each rank, for the flag barrier.
    pub(crate) fn lines(&self) -> &[Lines] {
        self.part(self.layout.lines, self.layout.local_ranks)
    }

    #[inline]
    fn eventcount_at(&self, local: u32, which: u32) -> Eventcount<'_> {
        let word = &self.eventcount_words()[(EVENTCOUNTS_PER_RANK as u32 * local + which) as usize];
        Eventcount::with_ringer(word, &self.ringer)
    }

    /// The stripe locks of this node.
    #[inline]
    pub fn stripes(&self) -> Stripes<'_> {
        Stripes::new(self.stripe_words())
    }

    pub(crate) fn stripe_words(&self) -> &[StripeWord] {
        self.part(self.layout.stripes, STRIPE_COUNT as u32)
    }

    /// The counters of a local rank.
    ///
    /// # Panics
    ///
    /// If there is no such rank here.
    pub fn counters(&self, local: u32) -> Counters<'_> {
        assert!(local < self.layout.local_ranks, "local rank {local} of {}", self.layout.local_ranks);
        let start = self.layout.counters + u64::from(local) * self.layout.counters_stride;
        let set = |set: u64| {
            let offset = start + PAGE_BYTES + set * peers_bytes(self.layout.world_ranks);
            self.part::<PeerCounters>(offset, self.layout.world_ranks)
        };
        let waits = self.part::<WaitCounters>(start, SETS as u32);
        let waits_on = &self.part::<WaitsOn>(start + size_of_val(waits) as u64, 1)[0];
        Counters { peers: [set(0), set(1)], waits, waits_on }
    }

    /// Pushes one cell to the inbox of a local rank and notifies its eventcount. Cells of one producer arrive in order.
    ///
    /// `head.bytes` is set to the length of the payload. One thread at a time may push for one producer: callers hold a
    /// lock of their process.
    ///
    /// # Errors
    ///
    /// [`Full`] if the producer has no free cell. Nothing was pushed.
    ///
    /// # Panics
    ///
    /// If there is no such rank here, or the payload is longer than a cell's.
    pub fn try_push(
        &self,
        producer: Producer,
        to_local: u32,
        head: CellHead,
        payload: &[Region<'_>],
    ) -> Result<(), Full> {
        let ends = &self.inboxes()[to_local as usize];
        let bytes: usize = payload.iter().map(Region::len).sum();
        assert!(bytes <= CELL_PAYLOAD_BYTES, "a payload of {bytes} bytes is longer than a cell's");
        let index = self.take_cell(producer).ok_or(Full)?;
        let behind = match producer {
            Producer::Local(from) => {
                let number = self.boxes(to_local).get_or_claim(from);
                number.map_or(NO_BOX, |number| self.fastbox(to_local, number).note_cell())
            }
            Producer::Server => NO_BOX,
        };
        self.fill(index, CellHead { bytes: bytes as u32, behind, ..head }, payload);
        Inbox::new(ends, &self.node_cells(), to_local).post(index);
        if !mutation(Mutation::MailNotNotified) {
            self.eventcount(to_local).notify();
        }
        Ok(())
    }

    /// Sends a message through the sender's fastbox and notifies the receiver's eventcount, if the sender has a box and there is
    /// room in it. If not, it has to be pushed. What one sender pushes and sends arrives in order. `source` is the
    /// sender's rank in the world.
    ///
    /// One thread at a time may push or send for one sender: callers hold a lock of their process.
    ///
    /// # Panics
    ///
    /// If there is no such rank here.
    #[inline]
    pub fn try_send_short(&self, from_local: u32, to_local: u32, source: Rank, message: &ShortMessage) -> bool {
        let Some(number) = self.boxes(to_local).get_or_claim(from_local) else { return false };
        let fastbox = self.fastbox(to_local, number);
        fastbox.set_source(source.0);
        if !fastbox.try_send(message) {
            return false;
        }
        if !mutation(Mutation::MailNotNotified) {
            self.eventcount(to_local).notify();
        }
        true
    }

    /// Takes the oldest cell of a local rank's inbox or a message of one of its fastboxes, hands head and payload to
    /// `take`, and gives the cell back to its owner. Messages of a fastbox that come before the cell are handed over before
    /// it. Of these the head has `source`, `bytes` and `message_bytes`.
    ///
    /// One thread at a time may pop for one rank: callers hold a lock of their process.
    ///
    /// # Panics
    ///
    /// If there is no such rank here.
    pub fn try_pop(&self, local: u32, take: &mut dyn FnMut(CellHead, Region<'_>)) -> Popped {
        let boxes = self.boxes(local);
        if boxes.is_closed() {
            return self.pop_cell(local, None, take);
        }
        let (count, turn) = (boxes.count(), self.turn(local));
        let mut popped = Popped::Empty;
        // The queue has its turn behind the boxes.
        for place in turn.places(count + 1) {
            if place == count {
                popped = self.pop_cell(local, Some(boxes), take);
            } else {
                let fastbox = self.fastbox(local, place);
                let Some(message) = fastbox.take() else { continue };
                hand_over(fastbox, &message, take);
                popped = Popped::Taken;
            }
            if popped == Popped::Taken {
                turn.taken();
                break;
            }
        }
        popped
    }

    /// Takes the oldest cell, and what comes before it in the boxes, unless these are closed.
    fn pop_cell(&self, local: u32, boxes: Option<&Boxes>, take: &mut dyn FnMut(CellHead, Region<'_>)) -> Popped {
        let cells = self.node_cells();
        let inbox = Inbox::new(&self.inboxes()[local as usize], &cells, local);
        let index = match inbox.take() {
            Taken::Cell(index) => index,
            Taken::Empty => return Popped::Empty,
            Taken::Broken => return Popped::Broken,
        };
        let head = self.read_head(index);
        if head.behind != NO_BOX
            && let Producer::Local(from) = self.owner_of(index)
            && let Some(number) = boxes.and_then(|boxes| boxes.of(from))
        {
            let fastbox = self.fastbox(local, number);
            while let Some(message) = fastbox.take_before(head.behind) {
                hand_over(fastbox, &message, take);
            }
            fastbox.cell_taken(head.behind);
        }
        let whole = head.bytes as usize <= CELL_PAYLOAD_BYTES;
        if whole {
            take(head, self.cell_region(index, PAYLOAD_OFFSET, head.bytes.into()).as_region());
        }
        inbox.done_with(index);
        // A length that no push has written: somebody wrote where he should not have.
        if whole { Popped::Taken } else { Popped::Broken }
    }

    /// Whether a local rank's inbox has nothing. Exact for its consumer, a glance for others.
    ///
    /// # Panics
    ///
    /// If there is no such rank here.
    #[inline]
    pub fn inbox_is_empty(&self, local: u32) -> bool {
        let cells = self.node_cells();
        let queue = Queue::new(&self.inboxes()[local as usize], &cells);
        queue.is_empty() && (0..self.boxes(local).count()).all(|number| self.fastbox(local, number).is_empty())
    }

    /// Makes the caller the consumer of a dead rank's inbox, and says whether that changed anything. Then
    /// [`NodeSegment::try_pop`] until it is empty gives the cells in it back to their owners. Whenever that finds it
    /// broken: once more, and [`NodeSegment::mend`].
    ///
    /// # Panics
    ///
    /// If there is no such rank here.
    pub fn take_over(&self, dead_local: u32) -> bool {
        self.boxes(dead_local).close();
        Inbox::new(&self.inboxes()[dead_local as usize], &self.node_cells(), dead_local).take_over()
    }

    /// Closes the gaps that dead producers left in the inbox of `local`, if they left any and nobody else is in the
    /// middle of a push, and says whether it did. What they had pushed then arrives. By the consumer of that inbox, after
    /// [`Popped::Broken`]. `is_dead` says of whom it is known for certain.
    ///
    /// # Panics
    ///
    /// If there is no such rank here.
    pub fn mend(&self, local: u32, is_dead: impl Fn(Producer) -> bool) -> bool {
        let cells = self.node_cells();
        let inbox = Inbox::new(&self.inboxes()[local as usize], &cells, local);
        inbox.mend(|cell| is_dead(self.owner_of(cell)))
    }

    /// Frees the stripe locks of a dead rank; see [`Stripes::release_of_dead`].
    pub fn release_of_dead(&self, rank: Rank) -> usize {
        self.stripes().release_of_dead(rank)
    }

    #[inline]
    pub(crate) fn part<T: Shareable>(&self, offset: u64, count: u32) -> &[T] {
        self.segment.shared(offset, count as usize)
    }

    /// Who has the fastboxes of a local rank.
    #[inline]
    fn boxes(&self, local: u32) -> &Boxes {
        assert!(local < self.layout.local_ranks, "local rank {local} of {}", self.layout.local_ranks);
        &self.part(self.layout.boxes + u64::from(local) * BOXES_STRIDE, 1)[0]
    }

    #[inline]
    fn turn(&self, local: u32) -> &Turn {
        &self.part(self.layout.boxes + u64::from(local) * BOXES_STRIDE + TURN, 1)[0]
    }

    #[inline]
    fn fastbox(&self, local: u32, number: usize) -> &Fastbox {
        assert!(local < self.layout.local_ranks, "local rank {local} of {}", self.layout.local_ranks);
        let first = self.layout.boxes + u64::from(local) * BOXES_STRIDE + FIRST_BOX;
        &self.part::<Fastbox>(first, BOX_COUNT as u32)[number]
    }

    fn inboxes(&self) -> &[QueueEnds] {
        self.part(self.layout.inboxes, self.layout.local_ranks)
    }

    fn cells(&self) -> &[Cell] {
        self.part(self.layout.cells, cell_count(self.layout.local_ranks))
    }

    fn node_cells(&self) -> NodeCells<'_> {
        NodeCells { cells: self.cells(), node: self }
    }

    /// Whose cell it is.
    fn owner_of(&self, cell: u32) -> Producer {
        let local = cell / CELLS_PER_RANK;
        if local < self.layout.local_ranks { Producer::Local(local) } else { Producer::Server }
    }

    /// The numbers of a producer's cells.
    fn cells_of(&self, producer: Producer) -> std::ops::Range<u32> {
        match producer {
            Producer::Local(local) => {
                assert!(local < self.layout.local_ranks, "local rank {local} of {}", self.layout.local_ranks);
                local * CELLS_PER_RANK..(local + 1) * CELLS_PER_RANK
            }
            Producer::Server => {
                let first = self.layout.local_ranks * CELLS_PER_RANK;
                first..first + CELLS_OF_SERVER
            }
        }
    }

    /// The bitmap word and the bit of a cell.
    fn in_use(&self, index: u32) -> (&CellsInUse, u32) {
        let server_first = self.layout.local_ranks * CELLS_PER_RANK;
        // Every rank has one word, on a line of its own; the server has the words of the last line.
        let line = (index / CELLS_PER_RANK).min(self.layout.local_ranks);
        let word = index.saturating_sub(server_first) / CELLS_PER_WORD;
        let offset = self.layout.in_use + u64::from(line) * IN_USE_BYTES + u64::from(word) * 8;
        (&self.part(offset, 1)[0], index % CELLS_PER_WORD)
    }

    fn take_cell(&self, producer: Producer) -> Option<u32> {
        let cells = self.cells_of(producer);
        cells.step_by(CELLS_PER_WORD as usize).find_map(|first| self.in_use(first).0.take().map(|bit| first + bit))
    }

    fn cell_region(&self, index: u32, offset: u64, bytes: u64) -> RegionMut<'_> {
        let start = self.layout.cells + u64::from(index) * size_of::<Cell>() as u64 + offset;
        self.segment.region_mut(start, bytes).expect("cells lie inside the segment")
    }

    fn fill(&self, index: u32, head: CellHead, payload: &[Region<'_>]) {
        let head_bytes = size_of::<CellHead>();
        // SAFETY: a value of our own without padding (asserted where it is defined), which lives through the copy.
        let head = unsafe { Region::from_raw((&raw const head).cast(), head_bytes) };
        self.cell_region(index, HEAD_OFFSET, head_bytes as u64).copy_from(head);
        let target = self.cell_region(index, PAYLOAD_OFFSET, CELL_PAYLOAD_BYTES as u64);
        let mut done = 0;
        for piece in payload {
            target.slice(done, piece.len()).copy_from(*piece);
            done += piece.len();
        }
    }

    fn read_head(&self, index: u32) -> CellHead {
        let mut head = CellHead::default();
        let head_bytes = size_of::<CellHead>();
        // SAFETY: a value of our own that lives through the copy; every bit pattern is a head.
        let private = unsafe { RegionMut::from_raw((&raw mut head).cast(), head_bytes) };
        private.copy_from(self.cell_region(index, HEAD_OFFSET, head_bytes as u64).as_region());
        head
    }
}

/// Hands over a message of a fastbox.
#[inline]
fn hand_over(fastbox: &Fastbox, message: &ShortMessage, take: &mut dyn FnMut(CellHead, Region<'_>)) {
    let bytes = message.as_slice();
    let (source, message_bytes) = (fastbox.source(), bytes.len() as u64);
    let head = CellHead { source, bytes: bytes.len() as u32, message_bytes, ..CellHead::default() };
    take(head, Region::from_slice(bytes));
}

#[cfg(all(test, not(miri)))]
#[path = "layout_tests.rs"]
mod tests;
