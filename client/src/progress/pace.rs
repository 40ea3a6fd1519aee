//! What a waiting thread drives, and in which order it looks, lets others go first, and sleeps.

use std::time::{Duration, Instant};

use super::assist::Expecting;
use super::watched::{Announced, Watched};
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
/// The same at sockets. Only mail of the node comes in a way that wakes no such sleeper, and waits so long at most, but for first calls.
const SOCKET_NAP_MAX: Duration = Duration::from_micros(12_800);
/// Each nap is so many times as long as the one before: a thread finds late what woke nobody, by as long as it has waited.
const NAP_GROWTH: u32 = 2;
/// The same at sockets, where hardly anything comes that wakes nobody, and each nap of many ranks takes a processor from who is to answer
/// them (docs/src/decisions/0044-naps-that-grow.md).
const SOCKET_NAP_GROWTH: u32 = 4;
/// A thread that sleeps at once begins at sockets behind so many naps.
const NAP_STEPS_SKIPPED: u32 = 2;
/// After so many naps each is as long as the last one.
const NAP_STEPS_MAX: u32 = 5;
/// How long the first sleep lasts at most while a server is called and nothing tells how far that is.
pub(crate) const CALL_NAP: Duration = Duration::from_millis(1);
/// The same while another thread drives what it waits for: that one is soon done, or has no processor and needs this one.
const DRIVEN_ELSEWHERE_NAP: Duration = Duration::from_micros(50);
/// For how long a thread that sleeps looks at nothing but what is announced, at most.
const TRUSTED_MAX: Duration = Duration::from_secs(2);
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
    /// What another rank of this node does for this one, which notifies the eventcount. Active messages are taken in but not run: others may
    /// wait for this rank by then, and a handler may wait for one of them.
    Neighbour,
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
            Drive::Endpoint(_) | Drive::Endpoints | Drive::Exchange | Drive::Neighbour | Drive::Cells => false,
        }
    }

    /// Whether what comes over this endpoint may end the wait, or is something that others wait for: else it is taken in when the thread wakes
    /// for something else.
    pub(crate) fn is_woken_by(self, endpoint: &Endpoint) -> bool {
        match self {
            Drive::Endpoint(awaited) => {
                endpoint.is_pressing() || (std::ptr::eq(awaited, endpoint) && endpoint.is_busy())
            }
            _ => endpoint.is_busy(),
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

    /// Whether all that ends the wait notifies the eventcount.
    pub(crate) fn is_notified(self) -> bool {
        matches!(self, Drive::Memory | Drive::Neighbour)
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

/// What is left of a sleep that is interrupted again and again.
pub(crate) struct Countdown {
    began: Instant,
    limit: Duration,
}

impl Countdown {
    pub(crate) fn new(limit: Duration) -> Countdown {
        Countdown { began: Instant::now(), limit }
    }

    pub(crate) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.began.elapsed())
    }
}

/// How long a thread looks at a word that another rank of the node writes for it, and at nothing else.
pub(crate) struct Looking {
    looks: u32,
    since: Instant,
    spin: Duration,
}

/// Looks before the clock is read again.
const LOOKS_BETWEEN_CLOCKS: u32 = 16;
/// How long it does not look in between: who is to write the word needs its line.
const PAUSES: u32 = 4;

impl Looking {
    pub(crate) fn new(spin_us: u64) -> Looking {
        Looking { looks: 0, since: Instant::now(), spin: Duration::from_micros(spin_us) }
    }

    /// Before the next look. Now and then gives whether it has looked for long enough.
    pub(crate) fn pause(&mut self) -> Option<bool> {
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
        self.looks += 1;
        self.looks.is_multiple_of(LOOKS_BETWEEN_CLOCKS).then(|| self.since.elapsed() > self.spin)
    }
}

/// What a nap is for, which says how long it is.
#[derive(Clone, Copy, PartialEq)]
enum Nap {
    Memory,
    Sockets,
    FirstCall,
    Call,
    DrivenElsewhere,
}

/// The order of looking, yielding and sleeping.
pub(crate) struct Pace {
    pub(crate) looks: u32,
    since: Option<Instant>,
    spin: Duration,
    /// How many naps of this kind there were in a row.
    naps: u32,
    nap: Nap,
    /// It has waited for longer than a moment, and looks after others' affairs too.
    pub(crate) assists: bool,
    /// What its last sleep has found.
    pub(crate) announced: Announced,
    /// Since when it has looked only at what was announced.
    trusts_since: Option<Instant>,
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
        Pace {
            looks: 0,
            since: None,
            spin: Duration::from_micros(spin_us),
            naps: 0,
            nap: Nap::Memory,
            assists: false,
            announced: Announced::Anything,
            trusts_since: None,
        }
    }

    /// A thread that is about to sleep on descriptors has looked at all connections, or trusts those.
    pub(crate) fn begin_trust(&mut self) {
        self.trusts_since.get_or_insert_with(Instant::now);
    }

    /// After the sleep: whether it looks only at what those announce. Now and then it looks at all: what is silent for too long announces nothing, nor
    /// does a call whose time is up.
    pub(crate) fn trusts(&mut self, unseen_max: Duration) -> bool {
        // With the longest sleep for first calls, a quarter (`link_sleep`), everything is looked at in time; other sleeps are as long as that time at most.
        let trusted_max = (unseen_max / 4 * 3).min(TRUSTED_MAX);
        let trusts = self.trusts_since.is_some_and(|since| since.elapsed() < trusted_max);
        if !trusts {
            self.trusts_since = None;
        }
        trusts
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
        if self.looks == 1 && matches!(drive, Drive::Memory | Drive::Exchange | Drive::Neighbour) {
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

    /// How long the next sleep on these connections lasts at most.
    pub(crate) fn nap_on_links(&mut self, watched: &[Watched], unseen_max: Duration) -> Duration {
        if watched.iter().any(|watched| watched.is_driven_elsewhere) {
            self.next_nap(Nap::DrivenElsewhere)
        } else if watched.iter().any(Watched::lacks_descriptor) {
            self.call_nap(unseen_max)
        } else if self.sleeps_at_once() && watched.iter().any(|watched| watched.is_first_call) {
            self.next_nap(Nap::FirstCall).min(unseen_max)
        } else {
            self.socket_nap(unseen_max)
        }
    }

    /// The length of the next sleep, which grows from one to the next: many sleepers that wake in vain leave no processor to whoever is to
    /// answer them.
    pub(crate) fn nap(&mut self) -> Duration {
        self.next_nap(Nap::Memory).min(NAP_MAX)
    }

    /// The same at sockets, at most as long as nobody may look at connections.
    pub(crate) fn socket_nap(&mut self, unseen_max: Duration) -> Duration {
        self.next_nap(Nap::Sockets).min(SOCKET_NAP_MAX).min(unseen_max)
    }

    /// The same while a server is being called and nothing tells how far that is: at first as short as most calls. Where hundreds of ranks
    /// call at once, those that wait leave the processors to the servers that they call.
    pub(crate) fn call_nap(&mut self, unseen_max: Duration) -> Duration {
        self.next_nap(Nap::Call).min(unseen_max)
    }

    fn next_nap(&mut self, nap: Nap) -> Duration {
        if std::mem::replace(&mut self.nap, nap) != nap {
            self.naps = 0;
        }
        let (first, growth) = match nap {
            Nap::Memory => (NAP, NAP_GROWTH),
            Nap::Sockets | Nap::FirstCall => (NAP, SOCKET_NAP_GROWTH),
            Nap::Call => (CALL_NAP, NAP_GROWTH),
            Nap::DrivenElsewhere => (DRIVEN_ELSEWHERE_NAP, NAP_GROWTH),
        };
        let skipped = match nap {
            // Where threads outnumber processors an answer takes a while, and the first naps would be in vain.
            Nap::Sockets if self.sleeps_at_once() => NAP_STEPS_SKIPPED,
            // The call has a descriptor, which wakes this thread. By the clock come only mail of the node, the call's own deadline, and the
            // attempt by the next address: none is urgent, and the server may have hundreds of others to serve.
            Nap::FirstCall => NAP_STEPS_MAX,
            _ => 0,
        };
        self.naps = self.naps.max(skipped);
        let nap = first * growth.pow(self.naps);
        self.naps = (self.naps + 1).min(NAP_STEPS_MAX);
        nap
    }
}

/// What a thread drives that waits for the answer of one node.
pub(crate) fn drive_for<'a>(endpoint: &'a Endpoint, expecting: Option<&Expecting<'_>>) -> Drive<'a> {
    if expecting.is_some() { Drive::Exchange } else { Drive::Endpoint(endpoint) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(mut pace: Pace, nap: impl Fn(&mut Pace) -> Duration) -> Vec<f64> {
        (0..7).map(|_| nap(&mut pace).as_secs_f64() * 1e3).collect()
    }

    #[test]
    fn naps_grow_until_what_may_have_made_them_needless_would_wait_for_too_long() {
        assert_eq!(milliseconds(Pace::new(100), Pace::nap), [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]);
        let at_sockets = |unseen_ms| move |pace: &mut Pace| pace.socket_nap(Duration::from_millis(unseen_ms));
        assert_eq!(milliseconds(Pace::new(100), at_sockets(250)), [0.2, 0.8, 3.2, 12.8, 12.8, 12.8, 12.8]);
        assert_eq!(milliseconds(Pace::new(0), at_sockets(250)), [3.2, 12.8, 12.8, 12.8, 12.8, 12.8, 12.8]);
        // Or a silent server could not be told from our own absence.
        assert_eq!(milliseconds(Pace::new(0), at_sockets(6)), [3.2, 6.0, 6.0, 6.0, 6.0, 6.0, 6.0]);
        let of_call = |unseen_ms| move |pace: &mut Pace| pace.call_nap(Duration::from_millis(unseen_ms));
        assert_eq!(milliseconds(Pace::new(0), of_call(93)), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0]);
        assert_eq!(milliseconds(Pace::new(0), of_call(6)), [1.0, 2.0, 4.0, 6.0, 6.0, 6.0, 6.0]);
        let mut pace = Pace::new(100);
        for _ in 0..5 {
            pace.nap();
        }
        pace.progress();
        assert_eq!(pace.nap(), NAP, "whoever gets something looks again soon");
    }

    #[test]
    fn the_nap_on_several_connections_is_that_of_the_one_that_needs_a_look_soonest() {
        let descriptor = || {
            let (reader, _) = std::io::pipe().expect("a pipe");
            Some(std::sync::Arc::new(reader.into()))
        };
        let up = || Watched { is_up: true, descriptor: descriptor(), ..Watched::default() };
        let called_again = || Watched { descriptor: descriptor(), ..Watched::default() };
        let first_called = || Watched { is_first_call: true, ..called_again() };
        let called_without = || Watched { is_first_call: true, ..Watched::default() };
        let driven_elsewhere = || Watched { is_up: true, is_driven_elsewhere: true, ..Watched::default() };
        let on = |spin_us, watched: [Watched; 2]| {
            milliseconds(Pace::new(spin_us), |pace| pace.nap_on_links(&watched, Duration::from_millis(93)))
        };
        let with_processors = [0.2, 0.8, 3.2, 12.8, 12.8, 12.8, 12.8];
        let without = [3.2, 12.8, 12.8, 12.8, 12.8, 12.8, 12.8];
        for (spin_us, at_sockets) in [(100, with_processors), (0, without)] {
            assert_eq!(on(spin_us, [up(), up()]), at_sockets);
            assert_eq!(on(spin_us, [up(), called_again()]), at_sockets);
            assert_eq!(on(spin_us, [first_called(), called_without()])[..3], [1.0, 2.0, 4.0]);
            assert_eq!(on(spin_us, [called_without(), driven_elsewhere()])[..4], [0.05, 0.1, 0.2, 0.4]);
        }
        assert_eq!(on(0, [up(), first_called()]), [93.0; 7], "a call that has a descriptor wakes its caller");
        assert_eq!(
            on(100, [up(), first_called()]),
            with_processors,
            "where there are processors it costs nothing to look"
        );
        let mut pace = Pace::new(0);
        let mut on = |watched: Watched| pace.nap_on_links(&[watched], Duration::from_millis(93)).as_secs_f64() * 1e3;
        let naps = [on(first_called()), on(called_without()), on(driven_elsewhere()), on(driven_elsewhere()), on(up())];
        assert_eq!(naps, [93.0, 1.0, 0.05, 0.1, 3.2], "naps of one kind do not lengthen those of another");
    }
}
