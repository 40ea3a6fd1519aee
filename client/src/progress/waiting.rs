//! How a thread waits in a call: look, then sleep; and while it looks, it works.
//!
//! What it drives depends on what it waits for: a reply comes over an endpoint, mail and changed words come
//! through memory. In both cases a thread that looks for longer than a moment also drives this process's server,
//! if there is one (the rule is: whoever waits, works).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longarm_proto::{NodeId, Rank};
use longarm_shm::sync::{AtomicU32, Ordering};
use rustix::event::{PollFd, PollFlags};

use crate::completion::{Completion, Outcome};
use crate::endpoint::{Driven, Endpoint};
use crate::error::{Lost, LostHow, Operation};
use crate::progress::sleepers;
use crate::progress::time::RestOn;
use crate::progress::waits::{Awaited, Wait};
use crate::route::{Assist, AssistTurn, Client};
use crate::wakers;

/// Looks without progress before the clock is read for the first time.
const LOOKS_BEFORE_CLOCK: u32 = 16;
/// How long a thread that waits for a reply looks after its own affairs only, before it also drives the server, and lets
/// whoever else wants this processor go first: that may be who is to answer.
/// What comes through memory may come through the server: who waits for that drives it almost at once.
const ASSIST_AFTER: Duration = Duration::from_micros(10);
/// The same for who waits for an RDMA device, which may be an emulated one.
const DEVICE_ASSIST_AFTER: Duration = Duration::from_micros(60);
/// Who drives the server gives it back, and the processor away, once in so many looks: both cost something.
const YIELD_ASSISTING: u32 = 64;
/// How long one sleep lasts at most where a plain store may have made it needless.
const NAP: Duration = Duration::from_micros(200);
/// The same, after many naps in vain.
const NAP_MAX: Duration = Duration::from_millis(5);

/// How long a sleep lasts at most while a server is being called.
pub(crate) const CALL_NAP: Duration = Duration::from_millis(1);

/// How long who gives the processor to others goes on with that, at most, before it sleeps.
const MOMENT: Duration = Duration::from_micros(50);

/// As many calls a server counts as asked after it was asked.
const ASKED_CALLS: u32 = 4;

/// What a waiting thread drives, and therefore what it sleeps on.
#[derive(Clone, Copy)]
pub(crate) enum Drive<'a> {
    /// Replies over this endpoint.
    Endpoint(&'a Endpoint),
    /// Replies over any endpoint.
    Endpoints,
    /// The same, from ranks that ask for something here at the same time, and would wait for another thread to answer.
    Exchange,
    /// Mail of this rank, or a word that others change by operations that ring the bell.
    Memory,
    /// A word that others may change by plain stores, which ring no bell.
    Stores,
    /// A meeting, to which others come by plain stores that may wake nobody.
    Meeting,
    /// What handlers of active messages bring about, which this thread runs.
    Handlers,
    /// A free cell to send with. Active messages are taken in but not run: one of them may be what sends.
    Cells,
}

impl Drive<'_> {
    /// Whether active messages may be run meanwhile, by a thread that was asked to or where no other thread does: this one may
    /// hold a lock that they take. Never by a thread that is in the middle of sending: one of them may be what sends.
    fn runs_handlers(self, attended: bool) -> bool {
        match self {
            Drive::Handlers => true,
            Drive::Memory | Drive::Stores | Drive::Meeting => !attended,
            Drive::Endpoint(_) | Drive::Endpoints | Drive::Exchange | Drive::Cells => false,
        }
    }

    /// How long it looks before it does other work. A device of this process brings its own transfers to an end without
    /// anybody's server, and soon.
    fn assist_after(self) -> Duration {
        match self {
            Drive::Endpoint(endpoint) if endpoint.has_transfers() => DEVICE_ASSIST_AFTER,
            _ => ASSIST_AFTER,
        }
    }

    fn is_in_memory(self) -> bool {
        !matches!(self, Drive::Endpoint(_) | Drive::Endpoints | Drive::Exchange)
    }
}

/// The time since the first question.
#[derive(Default)]
pub(crate) struct Moment(Option<Instant>);

impl Moment {
    /// Whether it was long ago.
    pub(crate) fn is_over(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() > MOMENT
    }
}

/// The order of looking, yielding and sleeping.
struct Pace {
    looks: u32,
    since: Option<Instant>,
    spin: Duration,
    naps: u32,
    /// It has waited for longer than a moment, and looks after others' affairs too.
    assists: bool,
}

enum Next {
    Look,
    Assist,
    /// As `Assist`, and others may have the processor.
    Yield,
    Sleep,
}

impl Pace {
    fn new(spin_us: u64) -> Pace {
        Pace { looks: 0, since: None, spin: Duration::from_micros(spin_us), naps: 0, assists: false }
    }

    fn progress(&mut self) {
        self.looks = 0;
        self.since = None;
        self.naps = 0;
    }

    fn next(&mut self, drive: Drive<'_>) -> Next {
        if self.spin.is_zero() {
            return Next::Sleep;
        }
        self.looks += 1;
        // What other nodes send comes through the server, where each look is a system call: only one thread should look.
        if self.looks == 1 && matches!(drive, Drive::Memory | Drive::Exchange) {
            return Next::Assist;
        }
        if self.looks < LOOKS_BEFORE_CLOCK {
            return Next::Look;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if !self.looks.is_multiple_of(4) {
            return Next::Look;
        }
        match since.elapsed() {
            elapsed if elapsed < drive.assist_after() && !drive.is_in_memory() => Next::Look,
            elapsed if elapsed < ASSIST_AFTER => Next::Assist,
            elapsed if elapsed < self.spin => Next::Yield,
            _ => Next::Sleep,
        }
    }

    fn nap(&mut self) -> Duration {
        self.naps = (self.naps + 1).min(16);
        (NAP * self.naps).min(NAP_MAX)
    }
}

/// An endpoint that is slept on.
pub(crate) struct Watched {
    /// Without a link it has to be driven again soon.
    pub(crate) is_up: bool,
    pub(crate) descriptor: Option<Arc<OwnedFd>>,
    flags: PollFlags,
    /// Something is there already.
    pub(crate) ready: bool,
}

impl Watched {
    /// What to poll, if there is something.
    pub(crate) fn poll(&self) -> Option<PollFd<'_>> {
        self.descriptor.as_ref().map(|descriptor| PollFd::new(&**descriptor, self.flags))
    }
}

/// What is known of those who ask this node's server.
#[derive(Default)]
pub(crate) struct Asked {
    /// How often something had moved there at the last look.
    moves: AtomicU32,
    /// Calls for which it counts as asked if nothing moves.
    calls: AtomicU32,
}

/// While it is there a thread is about to wait for another node: see [`Client::expect_from`].
#[must_use]
pub struct Expecting<'a>(&'a dyn Assist);

impl Drop for Expecting<'_> {
    fn drop(&mut self) {
        self.0.hush(false);
    }
}

/// The server of this process in the hands of a waiting thread, which wakes nobody meanwhile.
struct Assistant<'a> {
    turn: Box<dyn AssistTurn + 'a>,
    _kept: wakers::Kept,
}

impl Assistant<'_> {
    fn take(assist: &dyn Assist) -> Option<Assistant<'_>> {
        let kept = wakers::keep();
        assist.take().map(|turn| Assistant { turn, _kept: kept })
    }
}

impl Client {
    /// Waits until `check` gives something.
    pub(crate) fn wait_for<R>(&self, drive: Drive<'_>, awaited: Awaited, mut check: impl FnMut() -> Option<R>) -> R {
        if let Some(result) = check() {
            return result;
        }
        let result = self.wait_driving(drive, awaited, &mut check);
        // The helper stepped aside while this thread drove.
        self.wake_helper_if_busy();
        result
    }

    fn wait_driving<R>(&self, drive: Drive<'_>, awaited: Awaited, check: &mut impl FnMut() -> Option<R>) -> R {
        let mut pace = Pace::new(self.spin_us);
        let mut entered = None;
        let mut assistant: Option<Assistant<'_>> = None;
        let mut waiting = Some(self.helper.begin_wait());
        loop {
            let mut progress = self.drive(drive, &pace);
            if wakers::any() {
                // A task that is woken now may itself wait for what comes through the server.
                assistant = None;
                self.end_hush();
            }
            if let Some(result) = check() {
                return result;
            }
            if let Some(assistant) = &mut assistant {
                progress |= assistant.turn.turn();
            }
            if self.has_active() && drive.runs_handlers(self.is_attended()) {
                // A handler may compute for long, or wait for another node: nobody else could drive the server then.
                assistant = None;
                self.end_hush();
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
                        self.end_hush();
                        std::thread::yield_now();
                    }
                    if assistant.is_none() {
                        assistant = self.assist.as_ref().and_then(|assist| Assistant::take(&**assist));
                    }
                }
                Next::Sleep => {
                    assistant = None;
                    entered.get_or_insert_with(|| self.waits.enter(awaited));
                    pace.assists = true;
                    let in_memory = drive.is_in_memory();
                    if in_memory {
                        waiting = None; // A sleep in memory looks after no endpoint, so the helper has to.
                        self.wake_helper_if_busy();
                        self.watch_over_wait();
                    }
                    let result = self.rest(|| self.sleep(drive, check, &mut pace));
                    if let Some(result) = result {
                        return result;
                    }
                    if in_memory {
                        waiting = Some(self.helper.begin_wait());
                    }
                }
            }
            debug_assert!(waiting.is_some());
        }
    }

    /// For a thread that is about to send something and to wait for mail, requests or replies of another rank: the server of this
    /// process, if there is one, wakes no other thread meanwhile.
    pub fn expect_from(&self, from: Rank) -> Option<Expecting<'_>> {
        if self.same_node(from) || self.spin_us == 0 {
            return None;
        }
        let assist = self.assist.as_deref()?;
        assist.hush(true);
        Some(Expecting(assist))
    }

    /// For a thread that is about to ask another node for something and to wait for the answer. Where others have asked this
    /// node's server, if it is here, since the last time, they may do the same at the same time: as [`Client::expect_from`],
    /// and the thread answers them while it waits, from the beginning.
    pub(crate) fn expect_answer(&self) -> Option<Expecting<'_>> {
        let assist = self.assist.as_deref()?;
        // Relaxed: guesses, also those of several threads.
        let (moves, calls) = (assist.moves(), self.asked.calls.load(Ordering::Relaxed));
        if self.asked.moves.load(Ordering::Relaxed) != moves {
            self.asked.moves.store(moves, Ordering::Relaxed);
            self.asked.calls.store(ASKED_CALLS, Ordering::Relaxed);
        } else if calls == 0 {
            return None;
        } else {
            self.asked.calls.store(calls - 1, Ordering::Relaxed);
        }
        if self.spin_us == 0 {
            return None;
        }
        assist.hush(true);
        Some(Expecting(assist))
    }

    /// For a thread that sends something and does not wait. What others have asked here meanwhile it answers, rather than have
    /// the server's thread woken, for which it may have to wait a moment later.
    pub(crate) fn while_asked<R>(&self, send: impl FnOnce() -> R) -> R {
        let expecting = self.expect_answer();
        let result = send();
        if expecting.is_some()
            && let Some(mut assistant) = self.assist.as_ref().and_then(|assist| Assistant::take(&**assist))
        {
            assistant.turn.turn();
        }
        result
    }

    /// What a thread drives that waits for the answer of one node.
    pub(crate) fn drive_for<'a>(endpoint: &'a Endpoint, expecting: Option<&Expecting<'_>>) -> Drive<'a> {
        if expecting.is_some() { Drive::Exchange } else { Drive::Endpoint(endpoint) }
    }

    /// From here on the server's thread is woken again, whoever expects something.
    fn end_hush(&self) {
        if let Some(assist) = &self.assist {
            assist.hush(false);
        }
    }

    /// Sleeps, and lets the server of this process, if there is one, have the processor.
    fn rest<R>(&self, sleep: impl FnOnce() -> R) -> R {
        if let Some(assist) = &self.assist {
            assist.rest(true);
        }
        let result = sleep();
        if let Some(assist) = &self.assist {
            assist.rest(false);
        }
        result
    }

    fn drive(&self, drive: Drive<'_>, pace: &Pace) -> bool {
        match drive {
            // At first only what is waited for: the shortest way. Then all that is under way, which nobody else may drive.
            // The inbox is emptied too: what waits there may keep the server, or a rank of this node, from going on.
            Drive::Endpoint(endpoint) if !pace.assists => self.drive_endpoint(endpoint) | self.drain_cells_only(),
            Drive::Endpoint(_) | Drive::Endpoints | Drive::Exchange => self.drive_busy() | self.drain_cells_only(),
            Drive::Memory | Drive::Stores | Drive::Meeting | Drive::Handlers | Drive::Cells => {
                self.drive_busy() | self.drain_cells()
            }
        }
    }

    pub(crate) fn drive_endpoint(&self, endpoint: &Endpoint) -> bool {
        self.note_driven(endpoint, endpoint.drive())
    }

    pub(crate) fn drive_busy(&self) -> bool {
        let mut progress = false;
        for endpoint in self.open_endpoints().filter(|endpoint| endpoint.is_busy()) {
            progress |= self.drive_endpoint(endpoint);
        }
        progress
    }

    fn sleep<R>(&self, drive: Drive<'_>, check: &mut impl FnMut() -> Option<R>, pace: &mut Pace) -> Option<R> {
        match drive {
            Drive::Endpoint(_) | Drive::Endpoints | Drive::Exchange => self.sleep_on_links(check, pace),
            Drive::Memory | Drive::Stores | Drive::Meeting | Drive::Handlers | Drive::Cells => {
                let me = self.layout.local_of(self.layout.me());
                let bell = match drive {
                    Drive::Stores => self.segment.window_bell(me),
                    _ => self.segment.bell(me),
                };
                let seen = bell.sequence();
                if self.drive(drive, pace) | (drive.runs_handlers(self.is_attended()) && self.run_active()) {
                    return check();
                }
                if matches!(drive, Drive::Cells) && self.has_active() {
                    self.my_bell().ring(); // For the thread that runs active messages.
                }
                let timeout = (!matches!(drive, Drive::Memory) || self.lacks_helper()).then(|| pace.nap());
                let rest_on = if matches!(drive, Drive::Stores) { RestOn::Windows } else { RestOn::Mail };
                let mut result = None;
                bell.sleep_unless(seen, timeout, || {
                    result = check();
                    result.is_some() || self.time.rest(rest_on, timeout)
                });
                result
            }
        }
    }

    fn sleep_on_links<R>(&self, check: &mut impl FnMut() -> Option<R>, pace: &mut Pace) -> Option<R> {
        if self.time.is_simulated() {
            let result = check();
            if result.is_none() {
                let nap = if self.is_calling() { pace.nap().min(CALL_NAP) } else { pace.nap() };
                self.time.rest(RestOn::Links, Some(nap));
            }
            return result;
        }
        let Some(waker) = sleepers::my_waker() else {
            std::thread::yield_now(); // No descriptor to sleep on: look on.
            return None;
        };
        self.sleepers.enter(&waker);
        let result = check();
        let mut rung = true;
        if result.is_none() {
            let mut events = vec![PollFd::from_borrowed_fd(waker.descriptor(), PollFlags::IN)];
            let watched = self.watched(Endpoint::is_busy);
            events.extend(watched.iter().filter_map(Watched::poll));
            if watched.iter().any(|watched| watched.ready) {
                rung = false;
            } else if watched.iter().all(|watched| watched.descriptor.is_some() || !watched.is_up) {
                // Mail rings a bell in memory, which wakes nobody here: who has none to expect sleeps for good. An
                // interrupted sleep is a short one.
                let nap = (self.layout.rank_count() > 1).then(|| pace.nap());
                let calling = watched.iter().any(|watched| !watched.is_up);
                let nap = if calling { Some(nap.map_or(CALL_NAP, |nap| nap.min(CALL_NAP))) } else { nap };
                let nap = nap.and_then(|nap| rustix::time::Timespec::try_from(nap).ok());
                let _ = rustix::event::poll(&mut events, nap.as_ref());
                rung = !events[0].revents().is_empty();
            } else {
                std::thread::yield_now();
            }
        }
        self.sleepers.leave(&waker, rung);
        result
    }

    /// Those endpoints that concern a sleeper, as it sees them.
    pub(crate) fn watched(&self, concerns: impl Fn(&Endpoint) -> bool) -> Vec<Watched> {
        let watched = self.open_endpoints().filter(|endpoint| concerns(endpoint));
        watched
            .map(|endpoint| {
                let (wanted, ready) = endpoint.prepare_sleep();
                let (is_up, descriptor) = (endpoint.is_up(), endpoint.descriptor());
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, wanted.readable);
                flags.set(PollFlags::OUT, wanted.writable);
                Watched { is_up, descriptor, flags, ready }
            })
            .collect()
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

    /// Who sleeps in a call of this process, those that have waited longest first.
    pub fn waits(&self) -> Vec<Wait> {
        self.waits.list()
    }

    /// Moves what can be moved without waiting: for tests of completion.
    pub fn poll_progress(&self) {
        self.drive_busy();
    }

    /// Whether something is in progress towards a server to which there is no connection now: it is called, which takes
    /// driving often.
    pub fn is_calling(&self) -> bool {
        self.open_endpoints().any(|endpoint| endpoint.is_busy() && !endpoint.is_up())
    }

    /// Looks after what was sent and has not been acknowledged, although nobody waits, and after nodes from which
    /// somebody waits for mail or a changed word. Often enough to notice a broken connection in time; the helper thread
    /// does it where time is real.
    pub fn tend(&self) -> bool {
        let mut tended = false;
        for endpoint in self.open_endpoints().filter(|endpoint| endpoint.is_unacknowledged()) {
            tended = true;
            self.note_driven(endpoint, endpoint.tend());
        }
        let waits = self.waits.list();
        let awaited = |node| waits.iter().any(|wait| wait.awaited.concerns(node, &self.layout));
        for endpoint in self.open_endpoints().filter(|endpoint| !endpoint.is_busy() && awaited(endpoint.node())) {
            tended = true;
            self.note_driven(endpoint, endpoint.ask());
        }
        tended
    }

    /// Wakes who may have to know what driving came to. True if anything moved.
    pub(crate) fn note_driven(&self, endpoint: &Endpoint, driven: Option<Driven>) -> bool {
        let Some(Driven { progress, completed, .. }) = driven else { return false };
        if completed && endpoint.broken().is_some() {
            self.wake_all();
        } else if completed {
            self.sleepers.completed();
        }
        progress
    }

    /// The host of a server that cannot be reached any more, although nobody knows of its death, if its node is one of
    /// those that matter.
    pub fn lost_node(&self, operation: Operation, matters: impl Fn(NodeId) -> bool) -> Option<Lost> {
        self.open_endpoints().find_map(|endpoint| match endpoint.broken()? {
            LostHow::Died(_) | LostHow::Finalized => None,
            how if matters(endpoint.node()) => Some(self.lost(operation, endpoint, how.clone())),
            _ => None,
        })
    }

    /// The error of a completion that failed because a connection ended or the server refused.
    pub(crate) fn failure(
        &self,
        completion: &Completion,
        operation: Operation,
        rank: Rank,
    ) -> Result<(), crate::TransferError> {
        completion.failure().map_or(Ok(()), |outcome| Err(self.explain(outcome, operation, rank)))
    }

    /// What the failure of an operation towards a rank means, with what is known of deaths.
    pub fn explain(&self, outcome: &Outcome, operation: Operation, rank: Rank) -> crate::TransferError {
        match outcome {
            Outcome::Lost(how) => self.lost_rank(operation, rank, how.clone()).into(),
            Outcome::Refused { refusal, detail } => {
                let node = self.layout.node_of(rank);
                crate::TransferError::Refused { operation, rank, node, refusal: *refusal, detail: *detail }
            }
            Outcome::Doubtful => crate::TransferError::Doubtful { operation, rank, node: self.layout.node_of(rank) },
            Outcome::NoOldValue(_) => unreachable!("who asks a device for an update looks at this first"),
        }
    }

    /// The error of a call whose target is behind a connection that ended.
    pub(crate) fn lost_rank(&self, operation: Operation, rank: Rank, how: LostHow) -> Lost {
        self.lost_host(operation, self.layout.server_host(self.layout.node_of(rank)), how)
    }
}
