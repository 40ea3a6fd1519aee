//! What a waiting thread drives, and in which order it looks, lets others go first, and sleeps.

use std::time::{Duration, Instant};

use super::assist::Expecting;
use crate::endpoint::Endpoint;

/// Looks without progress before the clock is read for the first time.
const LOOKS_BEFORE_CLOCK: u32 = 16;
/// How long a thread that waits for a reply looks after its own affairs only, before it also drives the server, and lets
/// whoever else wants this processor go first: that may be who is to answer.
/// What comes through memory may come through the server: who waits for that drives it almost at once.
const ASSIST_AFTER: Duration = Duration::from_micros(10);
/// The same for who waits for an RDMA device, which may be an emulated one.
const DEVICE_ASSIST_AFTER: Duration = Duration::from_micros(60);
/// How long one sleep lasts at most where a plain store may have made it needless.
const NAP: Duration = Duration::from_micros(200);
/// The same, after many naps in vain.
const NAP_MAX: Duration = Duration::from_millis(5);
/// How long a sleep lasts at most while a server is being called.
pub(crate) const CALL_NAP: Duration = Duration::from_millis(1);
/// How long who gives the processor to others goes on with that, at most, before it sleeps.
const MOMENT: Duration = Duration::from_micros(50);

/// What a waiting thread drives, and therefore what it sleeps on.
#[derive(Clone, Copy)]
pub(crate) enum Drive<'a> {
    /// Replies over this endpoint.
    Endpoint(&'a Endpoint),
    /// Replies over any endpoint.
    Endpoints,
    /// The same, from ranks that ask for something here at the same time, and would wait for another thread to answer.
    Exchange,
    /// Mail of this rank, or a word that others change by operations that notify the eventcount.
    Memory,
    /// A word that others may change by plain stores, which notify no eventcount.
    Stores,
    /// A barrier, to which others come by plain stores that may wake nobody.
    FlagBarrier,
    /// What handlers of active messages bring about, which this thread runs.
    Handlers,
    /// A free cell to send with. Active messages are taken in but not run: one of them may be what sends.
    Cells,
}

impl Drive<'_> {
    /// Whether active messages may be run meanwhile, by a thread that was asked to or where no other thread does: this one may
    /// hold a lock that they take. Never by a thread that is in the middle of sending: one of them may be what sends.
    pub(crate) fn runs_handlers(self, attended: bool) -> bool {
        match self {
            Drive::Handlers => true,
            Drive::Memory | Drive::Stores | Drive::FlagBarrier => !attended,
            Drive::Endpoint(_) | Drive::Endpoints | Drive::Exchange | Drive::Cells => false,
        }
    }

    /// How long it looks before it does other work. A device of this process brings its own transfers to an end without
    /// anybody's server, and soon.
    pub(crate) fn assist_after(self) -> Duration {
        match self {
            Drive::Endpoint(endpoint) if endpoint.has_transfers() => DEVICE_ASSIST_AFTER,
            _ => ASSIST_AFTER,
        }
    }

    pub(crate) fn is_in_memory(self) -> bool {
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
pub(crate) struct Pace {
    pub(crate) looks: u32,
    since: Option<Instant>,
    spin: Duration,
    naps: u32,
    /// It has waited for longer than a moment, and looks after others' affairs too.
    pub(crate) assists: bool,
}

pub(crate) enum Next {
    Look,
    Assist,
    /// As `Assist`, and others may have the processor.
    Yield,
    Sleep,
}

impl Pace {
    pub(crate) fn new(spin_us: u64) -> Pace {
        Pace { looks: 0, since: None, spin: Duration::from_micros(spin_us), naps: 0, assists: false }
    }

    /// Whether it sleeps as soon as there is nothing: others want the processor.
    pub(crate) fn sleeps_at_once(&self) -> bool {
        self.spin.is_zero()
    }

    pub(crate) fn progress(&mut self) {
        self.looks = 0;
        self.since = None;
        self.naps = 0;
    }

    pub(crate) fn next(&mut self, drive: Drive<'_>) -> Next {
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

    pub(crate) fn nap(&mut self) -> Duration {
        self.naps = (self.naps + 1).min(16);
        (NAP * self.naps).min(NAP_MAX)
    }
}

/// What a thread drives that waits for the answer of one node.
pub(crate) fn drive_for<'a>(endpoint: &'a Endpoint, expecting: Option<&Expecting<'_>>) -> Drive<'a> {
    if expecting.is_some() { Drive::Exchange } else { Drive::Endpoint(endpoint) }
}
