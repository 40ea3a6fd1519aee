//! The receive queue of a rank: any number of producers, one consumer, no lock.
//!
//! The algorithm is the lock-free queue of Nemesis (Buntinas, Mercier and Gropp, 2006), with its shadow head. Links are
//! numbers of cells, never addresses, so that each process may map the segment anywhere.
//!
//! ```text
//!   shadow ──► cell 7 ──► cell 3 ──► cell 9 ◄── tail          head: first cell since the queue was last empty
//!   (consumer's own line)             next: NONE              (on the line of the tail)
//! ```
//!
//! - Enqueue: swap the tail for the new cell. If there was none, the head is it; else the previous one links to it.
//! - Dequeue: if the first cell has a next one, that is the first one now. If not, a compare-and-swap of the tail to
//!   NONE empties the queue; if that fails, somebody is between his swap and his link.
//!
//! PAIR linked: the stores of `head` and `next` by a producer (Release) and their loads by the consumer (Acquire). The
//! consumer sees the cell's contents.
//!
//! PAIR tail: every swap of the tail (Acquire and Release) with the one after it. The later producer stores `next` of
//! the earlier one's cell after the earlier one has cleared it. The consumer's compare-and-swap is one of them (Release):
//! the next producer's store of `head` comes after the consumer has cleared it.
//!
//! If a process dies:
//! - A producer killed before its swap has changed nothing. One killed between swap and link cuts the queue: the
//!   consumer gets [`Taken::Broken`] from there on, as it also does for a moment when a producer is merely not running.
//!   The caller has to find out which, and who stands on both sides of the cut: see `inbox`, which mends it.
//! - A consumer killed anywhere leaves a queue that another process may go on with after [`Queue::take_over`]; the cell
//!   that was being taken may come once more, or never.

use crate::sync::{AtomicU32, Ordering, SPIN_COUNT_MAX, spin_loop};

/// The link that leads nowhere.
pub const NONE: u32 = u32::MAX;

/// Where the links of the cells are. The queue owns its ends only.
pub trait Links {
    /// The link of a cell, or `None` if there is no such cell: then somebody wrote where he should not have.
    fn next(&self, cell: u32) -> Option<&AtomicU32>;
}

/// The shared ends of a queue. Head and tail share a line: who enqueues to an empty queue needs both.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct QueueEnds {
    head: AtomicU32,
    tail: AtomicU32,
    shadow: Shadow,
}

/// The consumer's end, on a line that producers do not touch.
#[repr(C, align(64))]
#[derive(Debug)]
struct Shadow {
    head: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<QueueEnds>() == 128);

impl Default for QueueEnds {
    fn default() -> Self {
        QueueEnds {
            head: AtomicU32::new(NONE),
            tail: AtomicU32::new(NONE),
            shadow: Shadow { head: AtomicU32::new(NONE) },
        }
    }
}

impl QueueEnds {
    /// Makes zeroed memory an empty queue. Before anybody else knows of it.
    #[cfg_attr(loom, expect(dead_code, reason = "models make their queues by default"))]
    pub(crate) fn initialize(&self) {
        // Relaxed: the descriptor of the segment reaches other processes by a system call after this.
        self.head.store(NONE, Ordering::Relaxed);
        self.tail.store(NONE, Ordering::Relaxed);
        self.shadow.head.store(NONE, Ordering::Relaxed);
    }
}

/// What a process leaves behind that is killed between two steps.
#[cfg(all(test, not(loom)))]
impl QueueEnds {
    pub(crate) fn forget_head(&self) {
        self.head.store(NONE, Ordering::Relaxed);
    }

    pub(crate) fn name_in_head(&self, cell: u32) {
        self.head.store(cell, Ordering::Relaxed);
    }

    pub(crate) fn name_in_shadow(&self, cell: u32) {
        self.shadow.head.store(cell, Ordering::Relaxed);
    }
}

/// What a dequeue found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// This cell, which now belongs to the caller.
    Cell(u32),
    /// Nothing.
    Empty,
    /// Something, but a producer stopped before it was linked: try again, unless that producer is dead.
    Broken,
}

/// A queue: its ends and its links.
#[derive(Debug)]
pub struct Queue<'a, L> {
    ends: &'a QueueEnds,
    links: &'a L,
}

impl<'a, L: Links> Queue<'a, L> {
    /// The queue with these ends.
    pub fn new(ends: &'a QueueEnds, links: &'a L) -> Self {
        Queue { ends, links }
    }

    /// Whether nothing is there. Exact for the consumer; a glance for all others.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // The consumer puts NONE here when it takes the last cell. Acquire, so that a caller that finds it filled and
        // dequeues starts from there.
        self.ends.tail.load(Ordering::Acquire) == NONE
    }

    /// Adds a cell that the caller owns and has filled. By any process.
    ///
    /// # Panics
    ///
    /// If the cell does not exist.
    #[inline]
    pub fn enqueue(&self, cell: u32) {
        let link = self.links.next(cell).expect("only cells that exist are enqueued");
        // Relaxed: PAIR tail orders it before the next producer's store to it.
        link.store(NONE, Ordering::Relaxed);
        // PAIR tail, both halves.
        let previous = self.ends.tail.swap(cell, Ordering::AcqRel);
        self.link(previous, cell);
    }

    /// The second half of an enqueue.
    #[inline]
    fn link(&self, previous: u32, cell: u32) {
        // A link outside the pool was not written by this algorithm. Then there is nothing right to do; the consumer
        // finds the queue broken.
        let link = if previous == NONE { Some(&self.ends.head) } else { self.links.next(previous) };
        if let Some(link) = link {
            // PAIR linked: the consumer sees what is in the cell.
            link.store(cell, Ordering::Release);
        }
    }

    /// Takes the oldest cell. By one consumer at a time.
    #[inline]
    pub fn dequeue(&self) -> Taken {
        let shadow = &self.ends.shadow.head;
        // Relaxed: the consumer alone writes it.
        let mut first = shadow.load(Ordering::Relaxed);
        if first == NONE {
            // PAIR linked: see the contents of the first cell.
            first = self.ends.head.load(Ordering::Acquire);
            if first == NONE {
                return self.nothing_linked();
            }
            // In this order, so that a consumer killed in between leaves the cell named twice and not lost.
            shadow.store(first, Ordering::Relaxed);
            self.ends.head.store(NONE, Ordering::Relaxed);
        }
        let Some(link) = self.links.next(first) else { return Taken::Broken };
        // PAIR linked: see the contents of the next cell, for when it is the first.
        let next = link.load(Ordering::Acquire);
        if next != NONE {
            shadow.store(next, Ordering::Relaxed);
            return Taken::Cell(first);
        }
        self.dequeue_last(first, link)
    }

    /// No head and no shadow: empty, or somebody is about to store the head.
    fn nothing_linked(&self) -> Taken {
        if self.ends.tail.load(Ordering::Relaxed) == NONE {
            return Taken::Empty;
        }
        for _ in 0..SPIN_COUNT_MAX {
            // Relaxed: only to see whether another dequeue is worth while; that one loads it with Acquire.
            if self.ends.head.load(Ordering::Relaxed) != NONE {
                return self.dequeue();
            }
            spin_loop();
        }
        Taken::Broken
    }

    /// The first cell has no next one: take it and leave the queue empty, or wait for the link that is on its way.
    fn dequeue_last(&self, first: u32, link: &AtomicU32) -> Taken {
        let shadow = &self.ends.shadow.head;
        // PAIR tail: the next producer sees the head that we cleared.
        if self.ends.tail.compare_exchange(first, NONE, Ordering::Release, Ordering::Relaxed).is_ok() {
            shadow.store(NONE, Ordering::Relaxed);
            return Taken::Cell(first);
        }
        for _ in 0..SPIN_COUNT_MAX {
            // PAIR linked: as in `dequeue`.
            let next = link.load(Ordering::Acquire);
            if next != NONE {
                shadow.store(next, Ordering::Relaxed);
                return Taken::Cell(first);
            }
            spin_loop();
        }
        Taken::Broken
    }

    /// Makes the caller the consumer in place of one that died, and says whether that changed anything. Then `dequeue`
    /// as usual, and take over again if that finds the queue broken.
    pub fn take_over(&self) -> bool {
        let shadow = self.ends.shadow.head.load(Ordering::Relaxed);
        if shadow == NONE {
            return false;
        }
        let head = self.ends.head.load(Ordering::Acquire);
        let tail = self.ends.tail.load(Ordering::Acquire);
        if head == shadow {
            // Killed between the two stores that move the head to the shadow: finish it.
            self.ends.head.store(NONE, Ordering::Relaxed);
        } else if head != NONE || tail == NONE {
            // Killed between emptying the queue and saying so. A head is stored only after the queue was empty. If a
            // producer has swapped the tail since and not stored the head yet, it cannot be told from a queue that
            // nobody emptied; then the dequeue finds it broken.
            self.ends.shadow.head.store(NONE, Ordering::Relaxed);
        } else {
            return false;
        }
        true
    }

    /// The last cell that was swapped in.
    pub(crate) fn tail(&self) -> u32 {
        self.ends.tail.load(Ordering::Acquire)
    }

    /// The cells that can be reached from the consumer's end.
    pub(crate) fn linked_cells(&self) -> impl Iterator<Item = u32> {
        self.walk(match self.ends.shadow.head.load(Ordering::Relaxed) {
            NONE => self.ends.head.load(Ordering::Acquire),
            first => first,
        })
    }

    /// Links a cell behind the last one that can be reached from the consumer's end.
    pub(crate) fn link_to_consumer(&self, end: Option<u32>, cell: u32) {
        self.link(end.unwrap_or(NONE), cell);
    }

    /// The cells from `first` on, by their links. Bounded, as a damaged list may be a cycle.
    pub(crate) fn walk(&self, first: u32) -> impl Iterator<Item = u32> {
        let mut cell = first;
        std::iter::from_fn(move || {
            let link = self.links.next(cell)?;
            let this = cell;
            cell = link.load(Ordering::Acquire);
            Some(this)
        })
        .take(WALK_CELLS_MAX)
    }
}

/// How far a walk through a damaged queue goes at most: more cells than any node has.
const WALK_CELLS_MAX: usize = 1 << 20;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Pool(Vec<AtomicU32>);

    impl Links for Pool {
        fn next(&self, cell: u32) -> Option<&AtomicU32> {
            self.0.get(cell as usize)
        }
    }

    fn pool(cells: usize) -> Pool {
        Pool(std::iter::repeat_with(|| AtomicU32::new(0)).take(cells).collect())
    }

    #[test]
    fn cells_come_out_in_the_order_they_went_in() {
        let (ends, pool) = (QueueEnds::default(), pool(8));
        let queue = Queue::new(&ends, &pool);
        assert!(queue.is_empty());
        assert_eq!(queue.dequeue(), Taken::Empty);
        for round in 0..3 {
            for cell in 0..8 {
                queue.enqueue((cell + round) % 8);
            }
            for cell in 0..8 {
                assert!(!queue.is_empty());
                assert_eq!(queue.dequeue(), Taken::Cell((cell + round) % 8));
            }
            assert_eq!(queue.dequeue(), Taken::Empty);
            assert!(queue.is_empty());
        }
    }

    #[test]
    fn a_cell_may_go_back_in_while_others_wait() {
        let (ends, pool) = (QueueEnds::default(), pool(3));
        let queue = Queue::new(&ends, &pool);
        queue.enqueue(0);
        queue.enqueue(1);
        for round in 0..100 {
            assert_eq!(queue.dequeue(), Taken::Cell(round % 3));
            queue.enqueue((round + 2) % 3);
        }
    }

    #[test]
    fn a_consumer_killed_anywhere_leaves_a_queue_that_another_one_empties() {
        // Killed between naming the first cell in the shadow and clearing the head.
        let (ends, pool) = (QueueEnds::default(), pool(4));
        let queue = Queue::new(&ends, &pool);
        queue.enqueue(1);
        queue.enqueue(2);
        ends.shadow.head.store(1, Ordering::Relaxed);
        queue.take_over();
        assert_eq!(queue.dequeue(), Taken::Cell(1));
        assert_eq!(queue.dequeue(), Taken::Cell(2));
        assert_eq!(queue.dequeue(), Taken::Empty);

        // Killed between emptying the queue and clearing the shadow, with and without a new cell since then.
        for new in [None, Some(3)] {
            ends.shadow.head.store(2, Ordering::Relaxed);
            new.into_iter().for_each(|cell| queue.enqueue(cell));
            queue.take_over();
            new.into_iter().for_each(|cell| assert_eq!(queue.dequeue(), Taken::Cell(cell)));
            assert_eq!(queue.dequeue(), Taken::Empty);
        }

        // Not in the middle of anything.
        queue.enqueue(0);
        queue.enqueue(3);
        assert_eq!(queue.dequeue(), Taken::Cell(0));
        queue.take_over();
        assert_eq!(queue.dequeue(), Taken::Cell(3));
    }

    #[test]
    fn a_link_to_a_cell_that_does_not_exist_is_broken_and_not_followed() {
        let (ends, pool) = (QueueEnds::default(), pool(2));
        let queue = Queue::new(&ends, &pool);
        queue.enqueue(0);
        queue.enqueue(1);
        pool.0[0].store(77, Ordering::Relaxed);
        assert_eq!(queue.dequeue(), Taken::Cell(0));
        assert_eq!(queue.dequeue(), Taken::Broken);
        assert_eq!(queue.dequeue(), Taken::Broken);
    }

    #[test]
    fn many_producers_lose_nothing_and_keep_their_order() {
        let (producers, per_producer) = (3, if cfg!(miri) { 30 } else { 30_000 });
        let (ends, pool) = (QueueEnds::default(), pool((producers * per_producer) as usize));
        std::thread::scope(|scope| {
            for producer in 0..producers {
                let (ends, pool) = (&ends, &pool);
                scope.spawn(move || {
                    let queue = Queue::new(ends, pool);
                    (0..per_producer).for_each(|index| queue.enqueue(producer * per_producer + index));
                });
            }
            let queue = Queue::new(&ends, &pool);
            let mut expected = vec![0; producers as usize];
            let mut left = producers * per_producer;
            while left > 0 {
                let Taken::Cell(cell) = queue.dequeue() else {
                    std::thread::yield_now();
                    continue;
                };
                let (producer, index) = (cell / per_producer, cell % per_producer);
                assert_eq!(index, expected[producer as usize]);
                expected[producer as usize] += 1;
                left -= 1;
            }
            assert_eq!(queue.dequeue(), Taken::Empty);
        });
    }
}
