//! Fastboxes: short messages between two ranks of a node, one cache line each, beside the queue.
//!
//! The Nemesis paper gives every pair of ranks a fastbox, because a queue that many push to costs more than a place that
//! one writes and one reads. Here a rank gives boxes to the first who send it anything, as many as it has; the others use
//! the queue, and so does everybody for what is long or finds the box full.
//!
//! ```text
//!   ┌ sender's ───────────────┬ who ───┬ slots ──────────────────────────────────┬ receiver's ────────┐
//!   │ sent, cells, taken seen │ source │ word │ 56 bytes ║ word │ 56 bytes ║ … 8 │ taken, cells taken │
//!   └─────────────────────────┴────────┴─────────────────────────────────────────┴────────────────────┘
//!     word: number of the message │ cells that come before it │ bytes │ written
//! ```
//!
//! The word of a slot says that its message is there: it holds the message's number. So a slot is never emptied, and a
//! message costs the receiver one line. The receiver counts what it has taken on a line of its own, at which the sender
//! looks once all slots seem to be full.
//!
//! Messages of one sender arrive in order whatever way they go: what goes into the box says how many cells of the same
//! sender come before it, and a cell says how many messages of the box do. Both count from the moment the sender got the
//! box. The receiver takes from the box what is due before a cell ([`Fastbox::take_before`]), and leaves in the box what
//! is due after one that has not come.
//!
//! PAIR boxed: the store of a slot's word (Release) and its load by the receiver (Acquire): who sees the number finds the
//! message, and every cell that the sender pushed before it is in the queue.
//!
//! PAIR unboxed: the receiver's store of what it has taken (Release) and its load by the sender (Acquire): a slot is
//! written again after it has been read.
//!
//! If a process dies: a sender killed anywhere has sent a message or has not. What a dead receiver had not taken stays
//! in its boxes, which belong to nobody but it; senders are sent to the queue, see [`Boxes::close`].

#[cfg(not(loom))]
use crate::segment::Shareable;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Bytes of the longest message.
#[cfg(not(loom))]
pub const SHORT_BYTES_MAX: usize = 56;
// Fewer for the model checker: every word is a step.
#[cfg(loom)]
pub const SHORT_BYTES_MAX: usize = 8;
/// Messages that wait in one box at most.
#[cfg(not(loom))]
pub(crate) const SLOT_COUNT: usize = 8;
#[cfg(loom)]
pub(crate) const SLOT_COUNT: usize = 2;
/// Boxes of one receiver.
#[cfg(not(loom))]
pub(crate) const BOX_COUNT: usize = 15;
#[cfg(loom)]
pub(crate) const BOX_COUNT: usize = 2;

const CELLS_BITS: u32 = 24;
/// In the word of every slot that was ever written.
const WRITTEN: u64 = 1 << 63;
const CELLS_MASK: u32 = (1 << CELLS_BITS) - 1;

/// A message, as it lies in a box.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct SlotLine {
    word: AtomicU64,
    message: [AtomicU64; SHORT_BYTES_MAX / 8],
}

/// What the sender alone writes.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct SenderLine {
    /// Messages put into the box.
    sent: AtomicU32,
    /// Cells pushed to the queue since the sender has the box.
    cells: AtomicU32,
    /// What the receiver had taken when the sender last looked.
    taken_seen: AtomicU32,
}

/// What the sender writes once, for the receiver.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct SourceLine {
    /// The world rank of the sender.
    source: AtomicU32,
}

/// What the receiver alone writes.
#[repr(C, align(128))]
#[derive(Debug, Default)]
struct ReceiverLine {
    /// Messages taken from the box.
    taken: AtomicU32,
    /// Cells of this sender taken from the queue, of those that it pushed since it has the box.
    cells: AtomicU32,
}

/// A box of one sender for one receiver. All zeros is an empty one.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub(crate) struct Fastbox {
    sender: SenderLine,
    source: SourceLine,
    slots: [SlotLine; SLOT_COUNT],
    receiver: ReceiverLine,
}

/// Who has which box of a receiver, on one line that everybody reads.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct Boxes {
    /// Local rank of the sender, plus 1. Filled from the front, once and for all.
    owners: [AtomicU32; BOX_COUNT],
    /// Nobody takes anything out of the boxes any more.
    closed: AtomicU32,
}

/// Where the receiver looks first: mostly at the first box, now and then at the next one in turn, so that no sender is passed
/// over for ever. It alone writes this.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// What was taken from anywhere.
    taken: AtomicU32,
}

/// Once in so many times another place has its turn.
pub(crate) const TURN_EVERY: u32 = 16;

impl Turn {
    /// The places below `count`, in the order in which they are looked at.
    #[inline]
    pub(crate) fn places(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let taken = self.taken.load(Ordering::Relaxed);
        let has_turn = taken.is_multiple_of(TURN_EVERY);
        let first = if has_turn { (taken / TURN_EVERY) as usize % count } else { 0 };
        (first..count).chain(0..first)
    }

    /// Something was taken.
    #[inline]
    pub(crate) fn taken(&self) {
        let taken = self.taken.load(Ordering::Relaxed);
        self.taken.store(taken.wrapping_add(1), Ordering::Relaxed);
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SlotLine>() == 64 && size_of::<Boxes>() == 64 && size_of::<Fastbox>() == 768);

// SAFETY: `repr(C)`, atomics and padding that nobody reads.
#[cfg(not(loom))]
unsafe impl Shareable for Fastbox {}
// SAFETY: `repr(C)`, atomics only, without padding.
#[cfg(not(loom))]
unsafe impl Shareable for Boxes {}
// SAFETY: `repr(C)`, an atomic and padding that nobody reads.
#[cfg(not(loom))]
unsafe impl Shareable for Turn {}

/// What a cell says whose sender has no box: it is not counted.
pub(crate) const NO_BOX: u64 = 0;
/// Beside the number of messages before it, in a cell whose sender has a box.
const HAS_BOX: u64 = 1 << 32;

/// A message of up to [`SHORT_BYTES_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShortMessage {
    room: [u8; SHORT_BYTES_MAX],
    bytes: usize,
}

impl ShortMessage {
    /// The pieces, one behind the other, if they are not too long.
    #[inline]
    pub fn of(pieces: [&[u8]; 2]) -> Option<ShortMessage> {
        let bytes = pieces[0].len() + pieces[1].len();
        if bytes > SHORT_BYTES_MAX {
            return None;
        }
        let mut message = ShortMessage { room: [0; SHORT_BYTES_MAX], bytes };
        let (first, rest) = message.room.split_at_mut(pieces[0].len());
        first.copy_from_slice(pieces[0]);
        rest[..pieces[1].len()].copy_from_slice(pieces[1]);
        Some(message)
    }

    /// Its bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.room[..self.bytes]
    }
}

impl Boxes {
    /// The number of this sender's box, if it has one.
    #[inline]
    pub(crate) fn of(&self, sender: u32) -> Option<usize> {
        self.owners.iter().position(|owner| owner.load(Ordering::Relaxed) == sender + 1)
    }

    /// The number of this sender's box, which it gets now if it has none and one is left. Called before the sender
    /// pushes anything to this receiver, so that every cell of one who has a box is counted. By one thread at a time of
    /// the sender.
    #[inline]
    pub(crate) fn get_or_claim(&self, sender: u32) -> Option<usize> {
        if self.is_closed() {
            return None;
        }
        self.of(sender).or_else(|| self.claim(sender))
    }

    #[cold]
    fn claim(&self, sender: u32) -> Option<usize> {
        // Relaxed: what is in a box is ordered by its own words. Who dies right after has a box in which nothing comes.
        let claim = |owner: &AtomicU32| owner.compare_exchange(0, sender + 1, Ordering::Relaxed, Ordering::Relaxed);
        let free = self.owners.iter().position(|owner| owner.load(Ordering::Relaxed) == 0)?;
        (free..BOX_COUNT).find(|index| claim(&self.owners[*index]).is_ok())
    }

    /// How many boxes have been given away, from the first one on.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.owners.iter().take_while(|owner| owner.load(Ordering::Relaxed) != 0).count()
    }

    /// The receiver is dead: from now on everybody uses the queue, which another process empties.
    pub(crate) fn close(&self) {
        self.closed.store(1, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed) != 0
    }
}

/// The sender's half. One thread of its process at a time.
impl Fastbox {
    /// Who sends, as the receiver is told with each message.
    pub(crate) fn set_source(&self, source: u32) {
        // PAIR boxed: read with a message. Written once: a store would take the line away from the receiver.
        if self.source.source.load(Ordering::Relaxed) != source {
            self.source.source.store(source, Ordering::Relaxed);
        }
    }

    /// Sends a message, if there is room for it.
    #[inline]
    pub(crate) fn try_send(&self, message: &ShortMessage) -> bool {
        let sent = self.sender.sent.load(Ordering::Relaxed);
        if sent.wrapping_sub(self.sender.taken_seen.load(Ordering::Relaxed)) as usize >= SLOT_COUNT {
            // PAIR unboxed.
            let taken = self.receiver.taken.load(Ordering::Acquire);
            self.sender.taken_seen.store(taken, Ordering::Relaxed);
            if sent.wrapping_sub(taken) as usize >= SLOT_COUNT {
                return false;
            }
        }
        let number = sent.wrapping_add(1);
        let cells = self.sender.cells.load(Ordering::Relaxed) & CELLS_MASK;
        let word = u64::from(number) | u64::from(cells) << 32 | (message.bytes as u64) << (32 + CELLS_BITS) | WRITTEN;
        self.sender.sent.store(number, Ordering::Relaxed);
        // One store right behind the other: the receiver looks at the line all the time, and each look takes it away.
        let slot = &self.slots[sent as usize % SLOT_COUNT];
        for (target, source) in slot.message.iter().zip(message.room.as_chunks().0) {
            target.store(u64::from_ne_bytes(*source), Ordering::Relaxed);
        }
        // PAIR boxed.
        slot.word.store(word, Ordering::Release);
        true
    }

    /// A cell goes to the queue next. What it has to say of the messages before it: see [`Fastbox::take_before`].
    #[inline]
    pub(crate) fn note_cell(&self) -> u64 {
        let cells = self.sender.cells.load(Ordering::Relaxed);
        self.sender.cells.store(cells.wrapping_add(1), Ordering::Relaxed);
        u64::from(self.sender.sent.load(Ordering::Relaxed)) | HAS_BOX
    }
}

/// The receiver's half. One thread of its process at a time.
impl Fastbox {
    /// The world rank of the sender, once it has sent something.
    pub(crate) fn source(&self) -> u32 {
        self.source.source.load(Ordering::Relaxed)
    }

    /// Takes the oldest message, unless a cell comes before it.
    #[inline]
    pub(crate) fn take(&self) -> Option<ShortMessage> {
        let word = self.oldest()?;
        let cells = self.receiver.cells.load(Ordering::Relaxed) & CELLS_MASK;
        ((word >> 32) as u32 & CELLS_MASK == cells).then(|| self.read(word))
    }

    /// Takes the oldest message, if it comes before a cell that was just taken and that says this of itself.
    #[inline]
    pub(crate) fn take_before(&self, cell: u64) -> Option<ShortMessage> {
        let taken = self.receiver.taken.load(Ordering::Relaxed);
        // Wrapping, and not only unequal: cells may change places where senders died, see `inbox`.
        let is_due = cell != NO_BOX && (cell as u32).wrapping_sub(taken).cast_signed() > 0;
        let word = if is_due { self.oldest()? } else { return None };
        Some(self.read(word))
    }

    /// Whether no message is there. May be called without the receiver's lock; the answer may be old at once.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest().is_none()
    }

    /// The word of the oldest message.
    #[inline]
    fn oldest(&self) -> Option<u64> {
        let taken = self.receiver.taken.load(Ordering::Relaxed);
        // PAIR boxed.
        let word = self.slots[taken as usize % SLOT_COUNT].word.load(Ordering::Acquire);
        // A slot that was never written is all zeros.
        (word as u32 == taken.wrapping_add(1) && word & WRITTEN != 0).then_some(word)
    }

    #[inline]
    fn read(&self, word: u64) -> ShortMessage {
        let taken = self.receiver.taken.load(Ordering::Relaxed);
        let slot = &self.slots[taken as usize % SLOT_COUNT];
        let mut room = [0; SHORT_BYTES_MAX];
        for (target, source) in room.as_chunks_mut().0.iter_mut().zip(&slot.message) {
            *target = source.load(Ordering::Relaxed).to_ne_bytes();
        }
        // PAIR unboxed.
        self.receiver.taken.store(taken.wrapping_add(1), Ordering::Release);
        // The length is checked here, where it is read: any process of the node may write anything.
        ShortMessage { room, bytes: (((word & !WRITTEN) >> (32 + CELLS_BITS)) as usize).min(SHORT_BYTES_MAX) }
    }

    /// A cell was taken that says this of itself; what was due before it has been taken too.
    #[inline]
    pub(crate) fn cell_taken(&self, cell: u64) {
        if cell != NO_BOX {
            let cells = self.receiver.cells.load(Ordering::Relaxed);
            self.receiver.cells.store(cells.wrapping_add(1), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn send(fastbox: &Fastbox, value: u64) -> bool {
        fastbox.try_send(&ShortMessage::of([&value.to_le_bytes(), b"!"]).unwrap())
    }

    fn value(message: ShortMessage) -> u64 {
        let (value, rest) = message.as_slice().split_first_chunk().unwrap();
        assert_eq!(rest, b"!");
        u64::from_le_bytes(*value)
    }

    fn take(fastbox: &Fastbox) -> Option<u64> {
        fastbox.take().map(value)
    }

    #[test]
    fn a_message_is_its_pieces_and_no_longer_than_a_box() {
        let long = [7; SHORT_BYTES_MAX];
        assert_eq!(ShortMessage::of([&long, &[]]).unwrap().as_slice(), long);
        assert_eq!(ShortMessage::of([&long[..50], &[8; 6]]).unwrap().as_slice(), [&long[..50], &[8; 6]].concat());
        assert_eq!(ShortMessage::of([&[], &[]]).unwrap().as_slice(), b"");
        assert_eq!(ShortMessage::of([&long, &[1]]), None);
    }

    #[test]
    fn a_box_holds_as_many_messages_as_it_has_slots_in_order() {
        let fastbox = Fastbox::default();
        assert!(fastbox.is_empty());
        for round in 0..5 {
            for place in 0..SLOT_COUNT as u64 {
                assert!(send(&fastbox, round * 100 + place));
            }
            assert!(!send(&fastbox, 7), "the box is full");
            for place in 0..SLOT_COUNT as u64 {
                assert_eq!(take(&fastbox), Some(round * 100 + place));
            }
            assert_eq!(take(&fastbox), None);
        }
    }

    #[test]
    fn numbers_wrap_around() {
        let fastbox = Fastbox::default();
        let near = u32::MAX - 2;
        for number in [&fastbox.sender.sent, &fastbox.sender.taken_seen, &fastbox.receiver.taken] {
            number.store(near, Ordering::Relaxed);
        }
        for number in [&fastbox.sender.cells, &fastbox.receiver.cells] {
            number.store(CELLS_MASK, Ordering::Relaxed);
        }
        for value in 0..3 * SLOT_COUNT as u64 {
            assert!(send(&fastbox, value));
            let cell = fastbox.note_cell();
            assert_eq!(take(&fastbox), Some(value));
            assert_eq!(fastbox.take_before(cell), None);
            fastbox.cell_taken(cell);
            assert!(fastbox.is_empty());
        }
    }

    #[test]
    fn what_a_box_and_the_queue_hold_is_taken_in_the_order_in_which_it_was_sent() {
        let fastbox = Fastbox::default();
        assert!(send(&fastbox, 1));
        let first = fastbox.note_cell();
        assert!(send(&fastbox, 2));
        let second = fastbox.note_cell();
        assert!(send(&fastbox, 3));
        // The first cell is taken: message 1 comes before it, message 2 does not.
        assert_eq!(fastbox.take_before(first).map(value), Some(1));
        assert_eq!(fastbox.take_before(first), None);
        assert_eq!(take(&fastbox), None, "message 2 waits for the first cell");
        fastbox.cell_taken(first);
        assert_eq!(take(&fastbox), Some(2));
        assert_eq!(take(&fastbox), None, "message 3 waits for the second cell");
        assert_eq!(fastbox.take_before(second), None);
        fastbox.cell_taken(second);
        assert_eq!(take(&fastbox), Some(3));
    }

    #[test]
    fn boxes_go_to_those_who_ask_first_until_there_are_none_or_the_receiver_is_dead() {
        let boxes = Boxes::default();
        assert_eq!((boxes.of(7), boxes.count()), (None, 0));
        for sender in 0..BOX_COUNT as u32 {
            for _ in 0..2 {
                assert_eq!(boxes.get_or_claim(sender), Some(sender as usize));
            }
            assert_eq!(boxes.of(sender), Some(sender as usize));
            assert_eq!(boxes.count(), sender as usize + 1);
        }
        assert_eq!((boxes.get_or_claim(99), boxes.of(99)), (None, None));
        boxes.close();
        assert_eq!((boxes.get_or_claim(3), boxes.of(3)), (None, Some(3)));
    }

    #[test]
    fn two_threads_pass_messages_in_order() {
        let fastbox = Fastbox::default();
        let count = if cfg!(miri) { 200 } else { 100_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..count {
                    while !send(&fastbox, value) {
                        std::thread::yield_now();
                    }
                }
            });
            for value in 0..count {
                let taken = std::iter::repeat_with(|| {
                    take(&fastbox).or_else(|| {
                        std::thread::yield_now();
                        None
                    })
                });
                assert_eq!(taken.flatten().next(), Some(value));
            }
        });
    }
}
