//! The helper thread: when it is started and woken, and what it does.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use longarm_shm::sync::{Ordering, fence};

use super::Progress;
use super::link_sleep::{Sleep, sleep_on_links};
use super::pace::{CALL_NAP, Pace};
use super::processors::{beside_this_thread, use_processors};
use super::waits::Awaited;
use super::watched::{Announced, Watched};
use crate::endpoint::{Driven, Endpoint};

/// How long requests that nobody waits for wait for others to be sent with.
const CORK_TIME: Duration = Duration::from_micros(50);
/// How often what was sent and not acknowledged is looked after, at least, where there are processors for it.
const TEND_MS: u64 = 40;
/// The same where threads outnumber processors, at most: for how long nobody may look at a connection is mostly shorter.
const TEND_SHARED_MS: u64 = 1000;
/// Looks in vain after which the helper sleeps for good.
const IDLE_LOOKS: u32 = 25;
/// Every so many of its looks connections that rest give memory back: twice at least before it sleeps for good, because one that rests is
/// asked twice.
const LOOKS_PER_SHRINK: u32 = 12;
const _: () = assert!(2 * LOOKS_PER_SHRINK <= IDLE_LOOKS);

impl Progress {
    /// After an operation was queued and the caller goes on: what the link did not take is the helper's.
    pub(crate) fn leave_to_helper(self: &Arc<Self>, endpoint: &Endpoint) {
        // Of what is corked the helper knows.
        if endpoint.is_held_back() {
            // It waits for data that comes to us, and we may take in none for long.
            self.hand_to_helper();
            return;
        }
        let wants_write = || endpoint.wants_write() && !endpoint.is_corked();
        // Who goes on has something to do, and to copy much into the kernel would keep it from that.
        if wants_write() && endpoint.is_up() && !endpoint.has_much_to_send() {
            self.note_driven(endpoint, endpoint.push());
        }
        if wants_write() {
            self.hand_to_helper();
        }
    }

    /// After a small operation that nobody waits for was coalesced. Most join a request that is being put together, and leave nothing to do.
    #[inline]
    pub(crate) fn leave_coalesced(self: &Arc<Self>, endpoint: &Endpoint, driven: Driven) {
        if driven != Driven::default() {
            self.leave_to_helper_after(endpoint, driven);
        }
    }

    /// A put expects no data, so the same does for puts and gets.
    #[inline(never)]
    fn leave_to_helper_after(self: &Arc<Self>, endpoint: &Endpoint, driven: Driven) {
        self.note_driven(endpoint, Some(driven));
        if driven.became_corked || (driven.progress && endpoint.expects_much()) {
            self.hand_to_helper();
        } else if driven.progress {
            self.leave_unacknowledged();
        }
    }

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
    pub(crate) fn keep_moving(self: &Arc<Self>) {
        if self.is_helper_needed() {
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
        let (progress, processors) = (Arc::downgrade(self), beside_this_thread(&self.processors));
        let work = move || {
            use_processors(&processors);
            let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&progress))) else { return };
            match progress.upgrade().as_ref().and_then(|progress| progress.helper.on_panic.get()) {
                Some(on_panic) => on_panic(&*panic),
                None => resume_unwind(panic),
            }
        };
        let spawn = || std::thread::Builder::new().name("longarm-helper".into()).spawn(work);
        match self.helper.make_waker().and_then(|()| spawn()) {
            Ok(thread) => self.helper.thread.set(thread).expect("one thread starts it at a time"),
            Err(error) => {
                if !std::mem::replace(&mut *has_failed, true) {
                    let rank = self.local.layout.me().0;
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
        // While another thread waits the helper would step aside at once.
        let is_aside = self.helper.waiting.load(Ordering::SeqCst) > 0 && !self.is_any_corked();
        if self.helper.thread.get().is_some() && !is_aside && self.is_helper_needed() {
            self.helper.wake();
        }
    }

    /// Call when a thread is about to sleep for what comes from other nodes through memory: the helper looks whether those
    /// that there is a connection to live.
    pub(crate) fn watch_over_wait(self: &Arc<Self>) {
        // SeqCst fence: as in `leave_unacknowledged`, the mark of the thread that waits instead of what was sent.
        fence(Ordering::SeqCst);
        if self.helper.retired.load(Ordering::Relaxed) && !self.endpoints.is_empty() {
            self.hand_to_helper();
        }
    }

    /// Whether something is in progress that nobody drives while the calling thread sleeps: the system has started no thread
    /// for it.
    pub(crate) fn lacks_helper(&self) -> bool {
        let alone = self.helper.thread.get().is_none() && !self.time.is_simulated();
        alone && self.occupied_endpoints().any(Endpoint::is_busy)
    }

    /// Whether a thread waits for something that another node has to bring about, or an answer is due from one.
    fn awaits_others(&self) -> bool {
        let awaited: Vec<Awaited> = self.waits.list().into_iter().map(|wait| wait.awaited).collect();
        !self.awaited_endpoints(&awaited).is_empty()
    }

    /// Whether something is in progress that the helper drives while no thread of the program does.
    fn is_helper_needed(&self) -> bool {
        self.occupied_endpoints().any(Endpoint::needs_helper)
    }

    /// Whether requests are corked.
    fn is_any_corked(&self) -> bool {
        self.occupied_endpoints().any(Endpoint::is_corked)
    }

    /// How often what was sent and not acknowledged is looked after. More seldom where threads outnumber processors: of hundreds of helpers each
    /// look takes a processor from somebody.
    fn tend_ms(&self) -> u64 {
        let tend_ms = if self.spin_us == 0 { TEND_SHARED_MS } else { TEND_MS };
        tend_ms.min(self.unseen_max().as_millis() as u64)
    }

    /// What the helper does when it is time to look after what is left. True if there was anything.
    fn look_after(&self, looks: &mut u32) -> bool {
        *looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LOOKS_PER_SHRINK) {
            // Those that rest are no longer among the occupied ones.
            self.open_endpoints().for_each(Endpoint::shrink_at_rest);
        }
        self.tend()
    }

    /// Ends the helper. Called once, at finalize.
    pub(crate) fn stop_helper(&self) {
        self.helper.stopping.store(true, Ordering::SeqCst);
        self.helper.end_sleep();
    }
}

fn run(progress: &Weak<Progress>) {
    let (mut idle_looks, mut looks) = (0, 0);
    let mut pace = Pace::new(0);
    // When what is left is looked after although this thread is woken again and again, or moves something all the time.
    let mut due_ms = None;
    // It has done so once, since nothing but first calls was left to it.
    let mut leaves_calls_alone = false;
    loop {
        let Some(progress) = progress.upgrade() else { return };
        if progress.helper.stopping.load(Ordering::SeqCst) {
            return;
        }
        if due_ms.is_some_and(|due_ms| progress.time.now_ms() >= due_ms) {
            due_ms = None;
            progress.look_after(&mut looks);
        }
        // A thread that waits drives what it waits for; what is corked for another node is sent from here.
        let steps_aside = || progress.helper.waiting.load(Ordering::SeqCst) > 0 && !progress.is_any_corked();
        let idle = steps_aside() || !progress.is_helper_needed();
        // What is corked gets company before it is sent.
        if !idle && progress.is_any_corked() {
            std::thread::sleep(CORK_TIME);
        } else if !idle && progress.has_only_first_calls() {
            // A thread that has begun to call other nodes is mostly about to wait for them itself.
            if !std::mem::replace(&mut leaves_calls_alone, true) {
                std::thread::sleep(CALL_NAP);
                continue;
            }
        } else {
            leaves_calls_alone = false;
        }
        let due = || progress.time.now_ms() + progress.tend_ms();
        if !idle && progress.drive_announced(pace.announced.take()) {
            pace.progress();
            due_ms.get_or_insert_with(due);
            continue;
        }
        progress.helper.parked.store(true, Ordering::SeqCst);
        progress.helper.retired.store(idle_looks >= IDLE_LOOKS, Ordering::SeqCst);
        // SeqCst fence: `parked` and `retired` before it and the look at the endpoints after, against `wake`'s endpoint
        // that became busy before and its look at `parked` after. Also where some endpoints are watched: another one
        // may start, or one of them may have more to send.
        fence(Ordering::SeqCst);
        let work = idle && !steps_aside() && progress.is_helper_needed();
        let unacknowledged = progress.occupied_endpoints().any(Endpoint::is_unacknowledged);
        if unacknowledged || !idle || progress.awaits_others() {
            idle_looks = 0;
            progress.helper.retired.store(false, Ordering::SeqCst);
        }
        let woken = work || sleep(&progress, idle, idle_looks < IDLE_LOOKS, &mut pace);
        progress.helper.parked.store(false, Ordering::SeqCst);
        if woken {
            due_ms.get_or_insert_with(due);
        } else {
            // Nobody woke us, so it is time to look after what is left.
            due_ms = None;
            idle_looks = if progress.look_after(&mut looks) { 0 } else { idle_looks + 1 };
        }
    }
}

/// False: the time was over.
fn sleep(progress: &Progress, idle: bool, tends: bool, pace: &mut Pace) -> bool {
    pace.announced = Announced::Anything;
    let watched = if idle { Vec::new() } else { progress.watched_after_calls(Endpoint::needs_helper) };
    if watched.iter().any(|watched| watched.ready) {
        return true;
    }
    // What no descriptor announces is looked at by the clock, as a thread does that waits in a call.
    let looks_by_clock = watched.iter().any(Watched::is_looked_at_by_clock);
    let tend = Duration::from_millis(progress.tend_ms());
    let limit = match looks_by_clock {
        true => Some(pace.nap_on_links(&watched, progress.unseen_max())),
        false => (tends || !idle).then_some(tend),
    };
    let waker = progress.helper.waker.get().expect("whoever has started this thread has made it");
    // A thread that watches nothing is told of nothing, and looks at all when it wakes.
    let batch_nap = progress.batch_nap().filter(|_| !idle);
    let intake = progress.dial.intake();
    let sleep = Sleep { limit, unseen_max: progress.unseen_max(), batch_nap, intake: intake.as_deref() };
    let woken = sleep_on_links(waker, &watched, pace, &sleep);
    if woken.is_rung {
        waker.clear();
    }
    woken.is_announced || looks_by_clock
}

#[cfg(test)]
mod tests {
    use longarm_proto::Rank;

    use super::*;
    use crate::mock::MockWorld;

    #[test]
    fn a_connection_over_which_all_has_come_gives_back_what_it_has_grown_by() {
        let rank = MockWorld::new().rank(Rank(0));
        let progress = &rank.client.progress;
        let grown = || progress.open_endpoints().filter(|endpoint| endpoint.has_grown()).count();
        for _ in 0..10 {
            rank.client.put(&rank.window, Rank(3), 0, [7; 1000][..].into()).unwrap();
        }
        rank.client.quiet().unwrap();
        assert_eq!((grown(), progress.occupied_endpoints().count()), (1, 0), "all has come, and it has grown");
        let mut looks = 0;
        for _ in 0..IDLE_LOOKS {
            progress.look_after(&mut looks);
        }
        assert_eq!(grown(), 0);
    }

    #[test]
    fn a_helper_leaves_calls_to_who_waits_for_them() {
        let rank = MockWorld::new().rank(Rank(0));
        let progress = &rank.client.progress;
        rank.server(1).lock().is_late = true;
        rank.client.put(&rank.window, Rank(3), 0, [7; 8][..].into()).unwrap();
        rank.server(1).lock().is_late = false;
        assert!((0..10).all(|_| progress.tend()), "what was put is not acknowledged");
        assert_eq!(rank.server(1).lock().asked_in_all(), 0, "somebody has looked at the call");
        rank.client.quiet().unwrap();
        assert_eq!(rank.memory(Rank(3), 0, 8), [7; 8]);
    }
}
