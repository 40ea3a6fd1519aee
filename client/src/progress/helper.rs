//! A small thread that drives transfers in progress while the application computes.
//!
//! It is started when a call leaves much unsent or unanswered, or something that waits for company, and steps aside while a thread of the application
//! waits in a call, because that thread drives. Now and then it looks after what was sent and not acknowledged, so that
//! a broken connection is noticed although nobody waits for a reply, and asks the nodes from which a sleeping thread
//! expects mail or a changed word whether they live. When there was nothing to look after for a while
//! it sleeps until it is woken.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use longarm_netmod::Waker;
use longarm_shm::sync::{AtomicBool, AtomicU32, Ordering, fence};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags};
use rustix::thread::CpuSet;

use crate::endpoint::Endpoint;
use crate::progress::waiting::{CALL_NAP, Watched};
use crate::route::Client;

/// How long requests that nobody waits for wait for others to be sent with.
const GATHER: Duration = Duration::from_micros(50);
/// How often what was sent and not acknowledged is looked after, at least.
const TEND: Duration = Duration::from_millis(40);
/// Looks in vain after which the helper sleeps for good.
const IDLE_LOOKS: u32 = 25;

pub(crate) struct Helper {
    waker: Waker,
    /// Threads of the application that wait in a call and drive.
    waiting: AtomicU32,
    /// It sleeps, or is about to, and looks at no other endpoint until it is woken. Swapped to false by whoever wakes
    /// it, so that a burst wakes it once.
    parked: AtomicBool,
    /// It sleeps for good, or is about to: what is sent from now on would not be looked after.
    retired: AtomicBool,
    stopping: AtomicBool,
    thread: OnceLock<std::thread::JoinHandle<()>>,
    /// Held while it is started; whether that has failed before.
    starting: Mutex<bool>,
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
        })
    }

    pub(crate) fn begin_wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(self)
    }

    fn wake(&self) {
        // SeqCst fence: see `run`.
        fence(Ordering::SeqCst);
        if self.parked.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

impl Client {
    /// Call after a nonblocking operation was queued and is not finished: the helper takes over.
    pub(crate) fn hand_to_helper(self: &Arc<Self>) {
        if self.time.is_simulated() {
            return;
        }
        if self.helper.thread.get().is_none() && !self.start_helper() {
            self.drive_busy();
            return;
        }
        self.helper.wake();
        // Threads that sleep on links watch those that were busy when they fell asleep: they look again.
        self.sleepers.completed();
    }

    /// Somebody wants to hear of what is in progress without waiting in a call: the helper drives it.
    pub fn keep_moving(self: &Arc<Self>) {
        if self.open_endpoints().any(Endpoint::needs_helper) {
            self.hand_to_helper();
        }
    }

    /// False: the system starts no more threads. Then calls themselves move what is in progress, and the next one tries
    /// again.
    fn start_helper(self: &Arc<Self>) -> bool {
        let mut has_failed = self.helper.starting.lock();
        if self.helper.thread.get().is_some() {
            return true;
        }
        let (client, processors) = (Arc::downgrade(self), beside_this_thread(&self.processors));
        let work = move || {
            use_processors(&processors);
            run(&client);
        };
        match std::thread::Builder::new().name("longarm-helper".into()).spawn(work) {
            Ok(thread) => self.helper.thread.set(thread).expect("one thread starts it at a time"),
            Err(error) => {
                if !std::mem::replace(&mut *has_failed, true) {
                    let rank = self.layout.me().0;
                    tracing::warn!(rank, %error, "transfers move only during calls: no thread can be started for them");
                }
                return false;
            }
        }
        true
    }

    /// Call after something was sent that no reply of its own will confirm: the helper looks after it now and then.
    pub(crate) fn leave_unacknowledged(self: &Arc<Self>) {
        // SeqCst fence: what was sent before it and the look here, against the helper's mark before and its look at the
        // endpoints after. Less lets both miss each other, and a lost connection would go unnoticed.
        fence(Ordering::SeqCst);
        if self.helper.retired.load(Ordering::Relaxed) {
            self.hand_to_helper();
        }
    }

    /// Call when a thread stops to drive although something may be in progress.
    pub(crate) fn wake_helper_if_busy(&self) {
        if self.helper.thread.get().is_some() && self.open_endpoints().any(Endpoint::needs_helper) {
            self.helper.wake();
        }
    }

    /// Call when a thread is about to sleep for what comes from other nodes through memory: the helper looks whether those
    /// that there is a connection to live.
    pub(crate) fn watch_over_wait(&self) {
        // SeqCst fence: as in `leave_unacknowledged`, the mark of the thread that waits instead of what was sent.
        fence(Ordering::SeqCst);
        if self.helper.retired.load(Ordering::Relaxed)
            && self.open_endpoints().next().is_some()
            && let Some(client) = self.myself.upgrade()
        {
            client.hand_to_helper();
        }
    }

    /// Whether something is in progress that nobody drives while the calling thread sleeps: the system has started no thread
    /// for it.
    pub(crate) fn lacks_helper(&self) -> bool {
        let alone = self.helper.thread.get().is_none() && !self.time.is_simulated();
        alone && self.open_endpoints().any(Endpoint::is_busy)
    }

    /// Whether a thread waits for something that another node has to bring about.
    fn awaits_others(&self) -> bool {
        let waits = self.waits.list();
        let mut endpoints = self.open_endpoints();
        !waits.is_empty()
            && endpoints.any(|open| waits.iter().any(|wait| wait.awaited.concerns(open.node(), &self.layout)))
    }

    /// Whether requests wait for company.
    fn gathers(&self) -> bool {
        self.open_endpoints().any(Endpoint::is_gathering)
    }

    /// Ends the helper. Called once, at finalize.
    pub(crate) fn stop_helper(&self) {
        self.helper.stopping.store(true, Ordering::SeqCst);
        self.helper.waker.wake();
    }
}

/// Those processors that the calling thread is not bound to, if it is bound to one of them and there are others: it is about
/// to compute, and who takes its transfers in can do that elsewhere.
fn beside_this_thread(processors: &[u32]) -> Vec<u32> {
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

fn run(client: &Weak<Client>) {
    let mut idle_looks = 0;
    loop {
        let Some(client) = client.upgrade() else { return };
        if client.helper.stopping.load(Ordering::SeqCst) {
            return;
        }
        // A thread that waits drives what it waits for; what is gathered for another node is sent from here.
        let steps_aside = || client.helper.waiting.load(Ordering::SeqCst) > 0 && !client.gathers();
        let idle = steps_aside() || !client.open_endpoints().any(Endpoint::needs_helper);
        // What waits for company gets some before it is sent.
        if !idle && client.gathers() {
            std::thread::sleep(GATHER);
        }
        if !idle && client.drive_busy() {
            continue;
        }
        client.helper.parked.store(true, Ordering::SeqCst);
        client.helper.retired.store(idle_looks >= IDLE_LOOKS, Ordering::SeqCst);
        // SeqCst fence: `parked` and `retired` before it and the look at the endpoints after, against `wake`'s endpoint
        // that became busy before and its look at `parked` after. Also where some endpoints are watched: another one
        // may start, or one of them may have more to send.
        fence(Ordering::SeqCst);
        let work = idle && !steps_aside() && client.open_endpoints().any(Endpoint::needs_helper);
        let unacknowledged = client.open_endpoints().any(|endpoint| endpoint.is_unacknowledged());
        if unacknowledged || !idle || client.awaits_others() {
            idle_looks = 0;
            client.helper.retired.store(false, Ordering::SeqCst);
        }
        let woken = work || sleep(&client, idle, idle_looks < IDLE_LOOKS);
        client.helper.parked.store(false, Ordering::SeqCst);
        if !woken {
            // Nobody woke us, so it is time to look after what is left.
            idle_looks = if client.tend() { 0 } else { idle_looks + 1 };
        }
    }
}

/// False: the time was over.
fn sleep(client: &Client, idle: bool, tends: bool) -> bool {
    let watched = if idle { Vec::new() } else { client.watched(Endpoint::needs_helper) };
    let mut events = vec![PollFd::from_borrowed_fd(client.helper.waker.descriptor(), PollFlags::IN)];
    events.extend(watched.iter().filter_map(Watched::poll));
    // Not longer than a moment while something is in progress that no descriptor announces.
    let unannounced = watched.iter().any(|watched| watched.descriptor.is_none());
    if watched.iter().any(|watched| watched.ready) {
        return true;
    }
    // Several times within the time after which silence counts, else it could not be told from our own absence.
    let tend = TEND.min(Duration::from_millis(client.endpoint_options.silence_ms / 8).max(CALL_NAP));
    let limit = if unannounced { Some(CALL_NAP) } else { (tends || !idle).then_some(tend) };
    let limit = limit.and_then(|limit| rustix::time::Timespec::try_from(limit).ok());
    let woken = rustix::event::poll(&mut events, limit.as_ref()).is_ok_and(|ready| ready > 0);
    client.helper.waker.clear();
    woken || unannounced
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
