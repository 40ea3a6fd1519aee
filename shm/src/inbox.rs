//! An inbox: the queue of a rank, with the cells that travel through it and their owners.
//!
//! ```text
//!   owner: take a free cell ─► fill ─► post: next = NONE, for whom, enqueue
//!   consumer:                  take ─► read ─► done_with: for nobody, give back to the owner
//! ```
//!
//! PAIR posted: the store of a cell's target by `post` (Release) and its load by `mend` (Acquire): whoever sees for whom
//! a cell is finds it filled, and its link leading nowhere or where a producer behind it has linked it to.
//!
//! If a process dies:
//! - A producer killed anywhere in `post` has pushed its cell or not; killed behind its swap of the tail it has cut the
//!   queue. [`Inbox::mend`] closes the cut. What it does not know is who stands on the other side: the queue may be cut
//!   at several places, by the dead and, for a moment, by those who are merely not running. So it looks at all cells
//!   that are on their way to this inbox, and closes the cuts when all of them are the dead's. The piece with the tail is
//!   the last one. Of the others nobody can tell the order: with three or more producers killed in the middle of a push
//!   to one inbox, cells of a living one may change places.
//! - A consumer killed anywhere leaves an inbox that another process goes on with, [`Inbox::take_over`] and, whenever it
//!   finds it broken, [`Inbox::take_over`] once more: while a producer is between two steps, a queue that was just
//!   emptied looks like one that was not. The cell that was being taken may come once more, or never; if never, it is not
//!   given back, and where it was the last one its inbox cannot be mended.

use crate::queue::{Links, NONE, Queue, QueueEnds, Taken};
use crate::sync::{AtomicU32, Ordering};

/// The cells of a node.
pub trait Cells: Links {
    /// How many there are.
    fn count(&self) -> u32;

    /// The local rank that a cell was posted to, plus 1, until it has been read.
    ///
    /// # Panics
    ///
    /// If there is no such cell.
    fn target(&self, cell: u32) -> &AtomicU32;

    /// Whether its owner has taken it and nobody has given it back.
    fn is_used(&self, cell: u32) -> bool;

    /// Gives it back to its owner.
    fn give_back(&self, cell: u32);
}

/// The inbox of a local rank.
#[derive(Debug)]
pub struct Inbox<'a, C> {
    ends: &'a QueueEnds,
    cells: &'a C,
    local: u32,
}

impl<'a, C: Cells> Inbox<'a, C> {
    /// The inbox with these ends, of the local rank with this number.
    pub fn new(ends: &'a QueueEnds, cells: &'a C, local: u32) -> Self {
        Inbox { ends, cells, local }
    }

    fn queue(&self) -> Queue<'a, C> {
        Queue::new(self.ends, self.cells)
    }

    /// Posts a cell that the caller has taken and filled.
    ///
    /// # Panics
    ///
    /// If the cell does not exist.
    #[inline]
    pub fn post(&self, cell: u32) {
        let link = self.cells.next(cell).expect("only cells that exist are posted");
        // The link first: a cell that says it is on its way must not seem to lead anywhere. See `mend`.
        link.store(NONE, Ordering::Relaxed);
        // PAIR posted.
        self.cells.target(cell).store(self.local + 1, Ordering::Release);
        self.queue().enqueue(cell);
    }

    /// Takes the oldest cell. By one consumer at a time, who then reads it and says [`Inbox::done_with`].
    #[inline]
    pub fn take(&self) -> Taken {
        self.queue().dequeue()
    }

    /// Gives a cell back to its owner that was taken and read.
    #[inline]
    pub fn done_with(&self, cell: u32) {
        // Relaxed: only the consumer, we, asks for the target of a cell that was enqueued.
        self.cells.target(cell).store(0, Ordering::Relaxed);
        self.cells.give_back(cell);
    }

    /// Makes the caller the consumer in place of one that died, and says whether that changed anything.
    pub fn take_over(&self) -> bool {
        self.queue().take_over()
    }

    /// Closes the cuts that dead producers have left, if there are any and nobody else is in the middle of a push, and
    /// says whether it did. By the consumer, after [`Taken::Broken`], and again each time. `is_dead` tells of a cell
    /// whether the process of its owner is gone for certain.
    pub fn mend(&self, is_dead: impl Fn(u32) -> bool) -> bool {
        let queue = self.queue();
        let linked: Vec<u32> = queue.linked_cells().collect();
        let tail = queue.tail();
        if tail == NONE || linked.contains(&tail) {
            return false;
        }
        let mut pieces = self.cut_off(&linked);
        // A living producer links its piece itself, and may stand before or behind the dead.
        if !pieces.iter().all(|piece| is_dead(piece[0])) {
            return false;
        }
        let Some(last) = pieces.iter().position(|piece| piece.contains(&tail)) else { return false };
        let last = pieces.remove(last);
        pieces.push(last);
        // From the back, so that the consumer's end gets the whole rest at once. Those who were to store these links are
        // dead.
        for pair in pieces.windows(2).rev() {
            let end = *pair[0].last().expect("a piece has a cell");
            self.cells.next(end).expect("it was walked over").store(pair[1][0], Ordering::Release);
        }
        queue.link_to_consumer(linked.last().copied(), pieces[0][0]);
        true
    }

    /// The pieces of the queue that cannot be reached from the consumer's end, each from its first cell on.
    fn cut_off(&self, linked: &[u32]) -> Vec<Vec<u32>> {
        let mut known = vec![false; self.cells.count() as usize];
        linked.iter().for_each(|cell| known[*cell as usize] = true);
        let on_its_way = |cell: &u32| {
            // PAIR posted.
            let posted = self.cells.target(*cell).load(Ordering::Acquire) == self.local + 1;
            posted && !known[*cell as usize] && self.cells.is_used(*cell)
        };
        let on_their_way: Vec<u32> = (0..self.cells.count()).filter(on_its_way).collect();
        let mut follows = vec![false; known.len()];
        for cell in &on_their_way {
            if let Some(next) = self.queue().walk(*cell).nth(1) {
                follows[next as usize] = true;
            }
        }
        let first = on_their_way.into_iter().filter(|cell| !follows[*cell as usize]);
        let pieces = first.map(|cell| self.queue().walk(cell).collect::<Vec<u32>>());
        // One that leads to where the consumer is was taken by a consumer who died.
        pieces.filter(|piece| !piece.iter().any(|cell| known[*cell as usize])).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::in_use::CellsInUse;

    /// Cells of one inbox; each is its own owner's.
    struct Pool {
        links: Vec<AtomicU32>,
        targets: Vec<AtomicU32>,
        in_use: CellsInUse,
    }

    const COUNT: u32 = 16;

    impl Pool {
        fn new() -> Pool {
            let words = || std::iter::repeat_with(|| AtomicU32::new(0)).take(COUNT as usize).collect();
            let in_use = CellsInUse::default();
            while in_use.take().is_some() {}
            Pool { links: words(), targets: words(), in_use }
        }
    }

    impl Links for Pool {
        fn next(&self, cell: u32) -> Option<&AtomicU32> {
            self.links.get(cell as usize)
        }
    }

    impl Cells for Pool {
        fn count(&self) -> u32 {
            COUNT
        }

        fn target(&self, cell: u32) -> &AtomicU32 {
            &self.targets[cell as usize]
        }

        fn is_used(&self, cell: u32) -> bool {
            self.in_use.is_used(cell)
        }

        fn give_back(&self, cell: u32) {
            self.in_use.give_back(cell);
        }
    }

    /// A push that ends before its link: its cell is in the queue, and what was there before does not lead to it.
    fn post_and_die(ends: &QueueEnds, pool: &Pool, cell: u32) {
        let before = Queue::new(ends, pool).tail();
        let inbox = Inbox::new(ends, pool, 0);
        inbox.post(cell);
        match before {
            NONE => ends.forget_head(),
            before => pool.links[before as usize].store(NONE, Ordering::Relaxed),
        }
    }

    fn take_all(inbox: &Inbox<'_, Pool>) -> Vec<u32> {
        std::iter::from_fn(|| match inbox.take() {
            Taken::Cell(cell) => Some(cell),
            Taken::Empty | Taken::Broken => None,
        })
        .inspect(|cell| inbox.done_with(*cell))
        .collect()
    }

    #[test]
    fn a_producer_killed_before_its_link_breaks_the_queue_until_it_is_mended() {
        for before in 0..3 {
            for after in 0..3 {
                let (ends, pool) = (QueueEnds::default(), Pool::new());
                let inbox = Inbox::new(&ends, &pool, 0);
                (0..before).for_each(|cell| inbox.post(cell));
                post_and_die(&ends, &pool, 5);
                (6..6 + after).for_each(|cell| inbox.post(cell));
                // What was linked before comes out, save the last: the cut is behind it.
                let whole = u32::saturating_sub(before, 1);
                assert_eq!(take_all(&inbox), Vec::from_iter(0..whole));
                assert!(!inbox.mend(|_| false), "it may live");
                assert_eq!(inbox.take(), Taken::Broken);
                assert!(inbox.mend(|cell| cell == 5));
                assert!(!inbox.mend(|cell| cell == 5), "it is linked already");
                assert_eq!(take_all(&inbox), Vec::from_iter((whole..before).chain([5]).chain(6..6 + after)));
                assert_eq!(inbox.take(), Taken::Empty);
            }
        }
    }

    #[test]
    fn mending_a_whole_queue_changes_nothing() {
        let (ends, pool) = (QueueEnds::default(), Pool::new());
        let inbox = Inbox::new(&ends, &pool, 0);
        assert!(!inbox.mend(|_| true));
        inbox.post(1);
        inbox.post(2);
        // Posted to be enqueued next, when its owner died.
        pool.links[3].store(NONE, Ordering::Relaxed);
        pool.targets[3].store(1, Ordering::Relaxed);
        assert!(!inbox.mend(|_| true));
        assert_eq!(take_all(&inbox), [1, 2]);
        assert_eq!(inbox.take(), Taken::Empty);
    }

    #[test]
    fn a_living_producer_between_two_steps_is_waited_for_and_not_skipped() {
        let (ends, pool) = (QueueEnds::default(), Pool::new());
        let inbox = Inbox::new(&ends, &pool, 0);
        inbox.post(0);
        // One that lives has swapped the tail and not linked its cell yet; behind it one died at the same place.
        post_and_die(&ends, &pool, 1);
        post_and_die(&ends, &pool, 2);
        inbox.post(3);
        assert_eq!(inbox.take(), Taken::Broken);
        assert!(!inbox.mend(|cell| cell == 2));
        // It goes on.
        pool.links[0].store(1, Ordering::Release);
        assert_eq!(take_all(&inbox), [0]);
        assert!(inbox.mend(|cell| cell == 2));
        assert_eq!(take_all(&inbox), [1, 2, 3]);
    }

    #[test]
    fn what_the_living_pushed_between_two_that_died_is_not_lost() {
        for cells_between in 0..3 {
            let (ends, pool) = (QueueEnds::default(), Pool::new());
            let inbox = Inbox::new(&ends, &pool, 0);
            inbox.post(0);
            post_and_die(&ends, &pool, 1);
            (2..2 + cells_between).for_each(|cell| inbox.post(cell));
            post_and_die(&ends, &pool, 8);
            inbox.post(9);
            assert_eq!(inbox.take(), Taken::Broken);
            assert!(!inbox.mend(|cell| cell == 8), "the other one may live");
            assert!(inbox.mend(|cell| cell == 1 || cell == 8));
            let due = Vec::from_iter([0, 1].into_iter().chain(2..2 + cells_between).chain([8, 9]));
            assert_eq!(take_all(&inbox), due);
            assert_eq!(inbox.take(), Taken::Empty);
        }
    }

    #[test]
    fn a_consumer_killed_after_it_emptied_the_queue_is_replaced_even_while_a_producer_is_between_two_steps() {
        let (ends, pool) = (QueueEnds::default(), Pool::new());
        let inbox = Inbox::new(&ends, &pool, 0);
        inbox.post(0);
        assert_eq!(inbox.take(), Taken::Cell(0));
        // As it was before the consumer's last store.
        ends.name_in_shadow(0);
        post_and_die(&ends, &pool, 1);
        inbox.take_over();
        assert_eq!(inbox.take(), Taken::Broken);
        // The producer lives after all, and stores the head.
        ends.name_in_head(1);
        assert_eq!(inbox.take(), Taken::Broken);
        assert!(inbox.take_over());
        assert_eq!(take_all(&inbox), [1]);
        assert_eq!(inbox.take(), Taken::Empty);
    }
}
