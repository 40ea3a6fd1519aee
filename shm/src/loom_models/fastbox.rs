//! A fastbox beside a queue: what one sender sends by both arrives in order, also of a sender that dies.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::check;
use super::mortal::die_after;
use crate::fastbox::{Boxes, Fastbox, ShortMessage};
use crate::queue::{Links, Queue, QueueEnds, Taken};
use crate::sync::AtomicU32;

const CELLS: usize = 2;

/// One sender's box and cells, and the queue that both ranks share.
struct Pair {
    fastbox: Fastbox,
    ends: QueueEnds,
    links: Vec<AtomicU32>,
    /// The value in a cell, and what comes before it.
    contents: Vec<UnsafeCell<(u8, u64)>>,
}

// SAFETY: the contents of a cell are touched by the sender until it is enqueued and by the receiver afterwards. That the
// queue orders the two is what the models check: loom reports any access that is not ordered.
unsafe impl Sync for Pair {}
// SAFETY: as for `Sync`; nothing in it belongs to one thread.
unsafe impl Send for Pair {}

impl Links for Pair {
    fn next(&self, cell: u32) -> Option<&AtomicU32> {
        self.links.get(cell as usize)
    }
}

impl Pair {
    fn new() -> Arc<Pair> {
        Arc::new(Pair {
            fastbox: Fastbox::default(),
            ends: QueueEnds::default(),
            links: (0..CELLS).map(|_| AtomicU32::new(0)).collect(),
            contents: (0..CELLS).map(|_| UnsafeCell::new((0, 0))).collect(),
        })
    }

    fn try_send(&self, value: u8) -> bool {
        self.fastbox.try_send(&ShortMessage::of([&[value], &[]]).expect("one byte is short"))
    }

    fn push(&self, cell: u32, value: u8) {
        let behind = self.fastbox.note_cell();
        self.contents[cell as usize].with_mut(|contents| {
            // SAFETY: loom gives the pointer, and reports whoever else is there at this moment.
            unsafe { *contents = (value, behind) }
        });
        Queue::new(&self.ends, self).enqueue(cell);
    }

    /// As `NodeSegment::try_pop`. False: nothing was there.
    fn pop(&self, taken: &mut Vec<u8>) -> bool {
        if let Some(message) = self.fastbox.take() {
            taken.extend_from_slice(message.as_slice());
            return true;
        }
        let Taken::Cell(cell) = Queue::new(&self.ends, self).dequeue() else { return false };
        let (value, behind) = self.contents[cell as usize].with(|contents| {
            // SAFETY: as in `push`.
            unsafe { *contents }
        });
        while let Some(message) = self.fastbox.take_before(behind) {
            taken.extend_from_slice(message.as_slice());
        }
        self.fastbox.cell_taken(behind);
        taken.push(value);
        true
    }
}

/// Short, long, short, and one more that finds the box full unless something was taken: then it goes to the queue.
fn send_four(pair: &Pair) {
    assert!(pair.try_send(1), "a box has two slots here");
    pair.push(0, 2);
    assert!(pair.try_send(3), "a box has two slots here");
    if !pair.try_send(4) {
        pair.push(1, 4);
    }
}

#[test]
fn loom_a_box_and_the_queue_beside_it_keep_the_order_of_one_sender() {
    check(Some(2), || {
        let pair = Pair::new();
        let sender = {
            let pair = pair.clone();
            thread::spawn(move || send_four(&pair))
        };
        let mut taken = Vec::new();
        while taken.len() < 4 {
            if !pair.pop(&mut taken) {
                thread::yield_now();
            }
        }
        assert_eq!(taken, [1, 2, 3, 4]);
        sender.join().unwrap();
    });
}

#[test]
fn loom_a_sender_dies_at_any_step_and_what_it_sent_arrives_in_order() {
    // More than all its steps; in the last models it lives.
    for steps in 0..=36 {
        check(Some(1), move || {
            let pair = Pair::new();
            let sender = {
                let pair = pair.clone();
                thread::spawn(move || die_after(steps, || send_four(&pair)).is_some())
            };
            let mut taken = Vec::new();
            pair.pop(&mut taken);
            let lived = sender.join().unwrap();
            while pair.pop(&mut taken) {}
            assert_eq!(taken, [1, 2, 3, 4][..taken.len()], "step {steps}");
            assert!(!lived || taken.len() == 4, "step {steps}");
            assert!(lived || steps < 36, "there are more steps to die at");
        });
    }
}

#[test]
fn loom_two_senders_get_different_boxes_also_if_one_dies_while_it_asks() {
    for steps in 0..=8 {
        check(None, move || {
            let boxes = Arc::new(Boxes::default());
            let mortal = {
                let boxes = boxes.clone();
                thread::spawn(move || die_after(steps, || boxes.get_or_claim(0)))
            };
            let mine = boxes.get_or_claim(1).expect("there is one for each");
            let theirs = mortal.join().unwrap();
            assert_ne!(theirs, Some(Some(mine)));
            assert_eq!(boxes.of(1), Some(mine));
            let count = boxes.count();
            assert!(mine < count && (theirs.is_none() || count == 2), "all boxes that were given away are looked at");
        });
    }
}
