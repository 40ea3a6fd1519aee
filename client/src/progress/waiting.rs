//! How a thread waits in a call: look, then sleep; and while it looks, it works.
//!
//! What it drives depends on what it waits for: a reply comes over an endpoint, mail and changed words come
//! through memory. In both cases a thread that looks for longer than a moment also drives this process's server,
//! if there is one (the rule is: a thread that waits, works).

use longarm_shm::Eventcount;

use crate::client::Client;
use crate::completion::Completion;
use crate::error::Operation;
use crate::progress::assist::Assistant;
use crate::progress::link_sleep::{Sleep, sleep_on_links};
use crate::progress::pace::{CALL_NAP, Drive, Next, Pace};
use crate::progress::sleepers;
use crate::progress::time::RestOn;
use crate::progress::waits::Awaited;
use crate::progress::watched::Announced;
use crate::wakers;

/// Who drives the server gives it back, and the processor away, once in so many looks: both cost something.
const YIELD_ASSISTING: u32 = 64;

impl Client {
    /// Waits until `check` gives something.
    pub(crate) fn wait_for<R>(&self, drive: Drive<'_>, awaited: Awaited, mut check: impl FnMut() -> Option<R>) -> R {
        let mut result = check();
        if result.is_none() {
            self.wait_driving(drive, awaited, &mut || {
                result = check();
                result.is_some()
            });
            // The helper stepped aside while this thread drove.
            self.progress.wake_helper_if_busy();
        }
        result.expect("it was waited for")
    }

    /// Not once for each kind of wait: all of it is slow, and there are many. It ends when `is_over` has given true.
    #[inline(never)]
    fn wait_driving(&self, drive: Drive<'_>, awaited: Awaited, is_over: &mut dyn FnMut() -> bool) {
        let mut pace = Pace::new(self.progress.spin_us);
        let mut entered = None;
        let mut assistant: Option<Assistant<'_>> = None;
        let mut waiting = Some(self.progress.helper.begin_wait());
        let me = self.local.layout.local_of(self.local.layout.me());
        let mut place = self.progress.apart.place(&self.local.segment, me);
        loop {
            let mut progress = self.drive(drive, &mut pace);
            if wakers::any() {
                // A task that is woken now may itself wait for what comes through the server.
                assistant = None;
                self.progress.allow_wakeups();
            }
            if is_over() {
                return;
            }
            if let Some(assistant) = &mut assistant
                && !pace.sleeps_at_once()
            {
                progress |= assistant.turn.turn();
            }
            if self.has_active() && drive.runs_handlers(self.is_attended()) {
                // A handler may compute for long, or wait for another node: nobody else could drive the server then.
                assistant = None;
                self.progress.allow_wakeups();
                progress |= self.run_active();
            }
            if progress {
                pace.progress();
                continue;
            }
            match pace.next(drive) {
                Next::Look => std::hint::spin_loop(),
                next @ (Next::Assist | Next::Yield) => {
                    pace.assists = true;
                    if matches!(next, Next::Yield)
                        && (assistant.is_none() || pace.looks.is_multiple_of(YIELD_ASSISTING))
                    {
                        // Nobody else could drive the server while we have no processor.
                        assistant = None;
                        place.note();
                        self.progress.allow_wakeups();
                        std::thread::yield_now();
                    }
                    if assistant.is_none() {
                        assistant = self.progress.assist.as_ref().and_then(|assist| Assistant::take(&**assist));
                    }
                }
                Next::Sleep => {
                    entered.get_or_insert_with(|| self.progress.waits.enter(awaited));
                    pace.assists = true;
                    let in_memory = drive.is_in_memory();
                    if in_memory {
                        waiting = None; // A sleep in memory looks after no endpoint, so the helper has to.
                        self.progress.wake_helper_if_busy();
                        self.progress.watch_over_wait();
                    }
                    if self.rest(&mut assistant, drive, is_over, &mut pace) {
                        return;
                    }
                    if in_memory {
                        waiting = Some(self.progress.helper.begin_wait());
                    }
                }
            }
            debug_assert!(waiting.is_some());
        }
    }

    fn drive(&self, drive: Drive<'_>, pace: &mut Pace) -> bool {
        match drive {
            // At first only what is waited for: the shortest way. Then all that is under way, which nobody else may drive.
            // The inbox is emptied too: what waits there may keep the server, or a rank of this node, from going on.
            Drive::Endpoint(endpoint) if !pace.assists => {
                self.progress.drive_endpoint(endpoint) | self.drain_cells_only()
            }
            Drive::Endpoint(_) | Drive::Endpoints | Drive::Exchange => {
                self.progress.drive_announced(pace.announced.take()) | self.drain_cells_only()
            }
            Drive::Memory | Drive::Stores | Drive::FlagBarrier | Drive::Handlers | Drive::Neighbour | Drive::Cells => {
                self.progress.drive_busy() | self.drain_cells()
            }
        }
    }

    fn eventcount_of(&self, drive: Drive<'_>) -> Eventcount<'_> {
        let me = self.local.layout.local_of(self.local.layout.me());
        match drive {
            Drive::Stores => self.local.segment.window_eventcount(me),
            _ => self.local.segment.eventcount(me),
        }
    }

    /// Sleeps, unless the wait is over. Whether it was when this was looked at.
    fn rest<'a>(
        &'a self,
        assistant: &mut Option<Assistant<'a>>,
        drive: Drive<'_>,
        is_over: &mut dyn FnMut() -> bool,
        pace: &mut Pace,
    ) -> bool {
        if let Some(slept) = self.sleep_for_server(assistant, drive, is_over, pace) {
            return slept;
        }
        *assistant = None;
        self.progress.rest(|| self.sleep(drive, is_over, pace))
    }

    /// Where each sleep gives a processor to others, a thread that waits for what may come through the server of this process sleeps in the
    /// place of the server's thread: what comes then wakes one thread, not two, one after the other. `None`: it cannot.
    fn sleep_for_server<'a>(
        &'a self,
        assistant: &mut Option<Assistant<'a>>,
        drive: Drive<'_>,
        is_over: &mut dyn FnMut() -> bool,
        pace: &mut Pace,
    ) -> Option<bool> {
        if !pace.sleeps_at_once() || !drive.is_in_memory() {
            return None;
        }
        if assistant.is_none() {
            *assistant = Assistant::take(&**self.progress.assist.as_ref()?);
        }
        let turn = &mut assistant.as_mut()?.turn;
        let eventcount = self.eventcount_of(drive);
        let seen = eventcount.sequence();
        let is_woken = self.drive(drive, pace) || wakers::any() || self.has_active();
        if is_woken {
            return if self.has_active() { None } else { Some(is_over()) };
        }
        let timeout = (!drive.is_notified() || self.progress.lacks_helper()).then(|| pace.nap());
        let (mut was_over, mut slept) = (false, None);
        let look = || {
            was_over = is_over();
            was_over
        };
        eventcount.listen_unless(seen, look, || slept = Some(turn.sleep(timeout)));
        match slept {
            Some(false) => return None,
            // Nobody listens at the eventcount now: what this turn brings rings for nobody.
            Some(true) => {
                turn.turn_after_sleep();
            }
            None => {}
        }
        Some(was_over)
    }

    fn sleep(&self, drive: Drive<'_>, is_over: &mut dyn FnMut() -> bool, pace: &mut Pace) -> bool {
        match drive {
            Drive::Endpoint(_) | Drive::Endpoints | Drive::Exchange => self.sleep_on_links(drive, is_over, pace),
            Drive::Memory | Drive::Stores | Drive::FlagBarrier | Drive::Handlers | Drive::Neighbour | Drive::Cells => {
                let eventcount = self.eventcount_of(drive);
                let seen = eventcount.sequence();
                if self.drive(drive, pace) | (drive.runs_handlers(self.is_attended()) && self.run_active()) {
                    return is_over();
                }
                if matches!(drive, Drive::Cells) && self.has_active() {
                    self.local.my_eventcount().notify(); // For the thread that runs active messages.
                    // In a simulation that runs only while this one rests, and what follows does not: it was notified just now.
                    if self.progress.time.rest(RestOn::Links, Some(CALL_NAP)) {
                        return is_over();
                    }
                }
                let timeout = (!drive.is_notified() || self.progress.lacks_helper()).then(|| pace.nap());
                let rest_on = if matches!(drive, Drive::Stores) { RestOn::Windows } else { RestOn::Mail };
                let mut was_over = false;
                eventcount.sleep_unless(seen, timeout, || {
                    was_over = is_over();
                    was_over || self.progress.time.rest(rest_on, timeout)
                });
                was_over
            }
        }
    }

    fn sleep_on_links(&self, drive: Drive<'_>, is_over: &mut dyn FnMut() -> bool, pace: &mut Pace) -> bool {
        if self.progress.time.is_simulated() {
            let was_over = is_over();
            if !was_over {
                let unseen_max = self.progress.unseen_max();
                let nap = match self.progress.is_calling() {
                    true => pace.call_nap(unseen_max),
                    false => pace.socket_nap(unseen_max),
                };
                self.progress.time.rest(RestOn::Links, Some(nap));
            }
            return was_over;
        }
        let Some(waker) = sleepers::my_waker() else {
            std::thread::yield_now(); // No descriptor to sleep on: look on.
            return false;
        };
        self.progress.sleepers.enter(&waker);
        let watched = self.progress.watched_after_calls(|endpoint| drive.is_woken_by(endpoint));
        // Behind that: it may have driven what this thread waits for.
        let was_over = is_over();
        let mut rung = true;
        if !was_over {
            pace.announced = Announced::Anything;
            if watched.iter().any(|watched| watched.ready) {
                rung = false;
            } else if !watched.iter().any(|watched| watched.is_up && watched.lacks_descriptor()) {
                let unseen_max = self.progress.unseen_max();
                // Mail notifies an eventcount in memory, which wakes nobody here: who has none to expect sleeps for good.
                let naps = self.local.layout.rank_count() > 1;
                let nap = naps.then(|| pace.nap_on_links(&watched, unseen_max));
                let (batch_nap, intake) = (self.progress.batch_nap(), self.progress.dial.intake());
                let sleep = Sleep { limit: nap, unseen_max, batch_nap, intake: intake.as_deref() };
                rung = sleep_on_links(&waker, &watched, pace, &sleep).is_rung;
            } else {
                std::thread::yield_now();
            }
        }
        self.progress.sleepers.leave(&waker, rung);
        was_over
    }

    /// Waits for an operation.
    pub(crate) fn wait_complete(&self, drive: Drive<'_>, awaited: Awaited, completion: &Completion) {
        self.wait_for(drive, awaited, || completion.is_complete().then_some(()));
    }

    /// Waits for any operation of this process.
    pub fn wait_completion(&self, awaited: Awaited, completion: &Completion) {
        self.wait_for(Drive::Endpoints, awaited, || completion.is_complete().then_some(()));
    }

    /// Waits until `check` gives something, looking at all operations of this process.
    pub fn wait_any<R>(&self, check: impl FnMut() -> Option<R>) -> R {
        self.wait_for(Drive::Endpoints, Awaited::anyone(Operation::Wait), check)
    }
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
