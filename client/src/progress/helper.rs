//! A small thread that drives transfers in progress while the application computes.
//!
//! It is started when a call leaves much unsent or unanswered, or something that waits for company, and steps aside while a thread of the application
//! waits in a call, because that thread drives. Now and then it looks after what was sent and not acknowledged, so that
//! a broken connection is noticed although nobody waits for a reply, and asks the nodes from which a sleeping thread
//! expects mail or a changed word whether they live. When there was nothing to look after for a while
//! it sleeps until it is woken.

use std::any::Any;
use std::sync::OnceLock;

use longarm_netmod::Waker;
use longarm_shm::sync::{AtomicBool, AtomicU32, Ordering, fence};
use parking_lot::Mutex;
use rustix::thread::CpuSet;

/// Gets what a panic of the helper thread has thrown.
pub(crate) type OnPanic = Box<dyn Fn(&(dyn Any + Send)) + Send + Sync>;

pub(crate) struct Helper {
    pub(crate) waker: Waker,
    /// Threads of the application that wait in a call and drive.
    pub(crate) waiting: AtomicU32,
    /// It sleeps, or is about to, and looks at no other endpoint until it is woken. Swapped to false by whoever wakes
    /// it, so that a burst wakes it once.
    pub(crate) parked: AtomicBool,
    /// It sleeps for good, or is about to: what is sent from now on would not be looked after.
    pub(crate) retired: AtomicBool,
    pub(crate) stopping: AtomicBool,
    pub(crate) thread: OnceLock<std::thread::JoinHandle<()>>,
    /// Held while it is started; whether that has failed before.
    pub(crate) starting: Mutex<bool>,
    /// Whom to tell if it panics: nobody drives what is in progress from then on. It runs wakers, which are the program's code.
    pub(crate) on_panic: OnceLock<OnPanic>,
}

/// A thread of the application waits and drives.
pub(crate) struct Waiting<'a>(&'a Helper);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Helper {
    pub(crate) fn new() -> std::io::Result<Helper> {
        Ok(Helper {
            waker: Waker::new()?,
            waiting: AtomicU32::new(0),
            parked: AtomicBool::new(false),
            retired: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
            thread: OnceLock::new(),
            starting: Mutex::new(false),
            on_panic: OnceLock::new(),
        })
    }

    pub(crate) fn begin_wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(self)
    }

    pub(crate) fn wake(&self) {
        // SeqCst fence: see `run`.
        fence(Ordering::SeqCst);
        if self.parked.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// Those processors that the calling thread is not bound to, if it is bound to one of them and there are others: it is about
/// to compute, and who takes its transfers in can do that elsewhere.
pub(crate) fn beside_this_thread(processors: &[u32]) -> Vec<u32> {
    let own = rustix::thread::sched_getaffinity(None).ok().filter(|own| own.count() == 1);
    let is_own = |processor: u32| {
        own.is_some_and(|own| (processor as usize) < CpuSet::MAX_CPU && own.is_set(processor as usize))
    };
    let others: Vec<u32> = processors.iter().copied().filter(|processor| !is_own(*processor)).collect();
    if others.is_empty() { processors.to_vec() } else { others }
}

/// Lets the calling thread, one of the runtime's own, run on these processors instead of those that its rank is bound to:
/// there it would have to wait for the application. It stays where it is if there are none.
pub fn use_processors(processors: &[u32]) {
    let mut set = CpuSet::new();
    // A set ends somewhere, and machines do not.
    let fitting = processors.iter().filter(|processor| (**processor as usize) < CpuSet::MAX_CPU);
    fitting.for_each(|processor| set.set(*processor as usize));
    if !processors.is_empty()
        && let Err(error) = rustix::thread::sched_setaffinity(None, &set)
    {
        let thread = std::thread::current();
        tracing::warn!(%error, "the thread {} stays where its rank is bound", thread.name().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_bound_to_one_processor_leaves_that_out() {
        let all = rustix::thread::sched_getaffinity(None).unwrap();
        let processors: Vec<u32> = (0..CpuSet::MAX_CPU as u32).filter(|number| all.is_set(*number as usize)).collect();
        let first = processors[0];
        let bound = std::thread::spawn(move || {
            use_processors(&[first]);
            (beside_this_thread(&[first, first + 1]), beside_this_thread(&[first]), beside_this_thread(&[]))
        });
        assert_eq!(bound.join().unwrap(), (vec![first + 1], vec![first], vec![]));
        if processors.len() > 1 {
            assert_eq!(beside_this_thread(&processors), processors);
        }
    }
}
