//! Which thread has a mutex or asks for it: a number that outlives the thread.
//!
//! A mutex may be kept by a thread that ends, and whoever comes after it waits for the mutex as for that of any other thread. The address
//! of what is a thread's own, which costs less to learn (`longarm_shm::thread`), will not do: the next thread that is started often has it
//! again, and would be told that it has the mutex itself.

use std::cell::Cell;

use longarm_shm::sync::{AtomicUsize, Ordering};

/// The token of all tasks: which one of them it is nobody can tell.
pub(crate) const TASK: usize = 2;

/// That of the next thread that asks for one.
static NEXT: AtomicUsize = AtomicUsize::new(TASK + 2);

/// The calling thread's: even, and no other thread of this process has it, before or after.
#[inline]
pub(crate) fn mine() -> usize {
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(0) };
    }
    MINE.with(|mine| match mine.get() {
        0 => {
            // Relaxed: the numbers alone matter.
            let new = NEXT.fetch_add(2, Ordering::Relaxed);
            mine.set(new);
            new
        }
        known => known,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_thread_has_the_token_of_one_that_has_ended() {
        let of_thread = || std::thread::spawn(|| [mine(), mine()]).join().expect("it only asks");
        let all: Vec<[usize; 2]> = (0..100).map(|_| of_thread()).collect();
        assert!(all.iter().all(|[first, again]| first == again && *first > TASK && first % 2 == 0));
        let different: BTreeSet<usize> = all.iter().map(|[token, _]| *token).chain([mine()]).collect();
        assert_eq!(different.len(), 101);
    }
}
