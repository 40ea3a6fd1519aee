//! How a thread sleeps on connections, and what it looks at when it wakes.
//!
//! Of hundreds of connections that are busy few have something to do at a time, and each look at one is a system call: who wakes looks at those
//! whose descriptors were ready. Where threads outnumber processors and many servers are being called, each of them answers at another time,
//! and a thread that wakes for each answer takes the processor from the next one: it wakes for many together.

use std::time::Duration;

use longarm_netmod::{Intake, Waker};
use longarm_shm::sync::{AtomicU32, Ordering};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::pace::{Countdown, Pace};
use super::watched::{Announced, Watched};

/// First calls that a thread waits for together, at least: for fewer it wakes one by one.
const BATCH_MIN: usize = 4;
/// The shortest sleep of a thread that waits for many first calls.
const BATCH_NAP_US_MIN: u32 = 1_000;
/// The longest one: with hundreds of ranks on a processor each look at the calls takes as long as several answers.
const BATCH_NAP_US_MAX: u32 = 1_000_000;

/// How long threads of this process sleep that wait for many first calls. A guess, from sleep to sleep, whichever thread sleeps.
pub(crate) struct BatchNap(AtomicU32);

impl BatchNap {
    pub(crate) fn new() -> BatchNap {
        BatchNap(AtomicU32::new(BATCH_NAP_US_MIN))
    }

    // Relaxed here and below: a guess.
    fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed).into())
    }

    /// So many of them were answered in the last such sleep, which was too short or too long if that were few or nearly all.
    fn note(&self, answered: usize, all: usize) {
        let nap_us = self.0.load(Ordering::Relaxed);
        let next_us = match (2 * answered < all, 4 * answered > 3 * all) {
            (true, _) => (2 * nap_us).min(BATCH_NAP_US_MAX),
            (_, true) => (nap_us / 2).max(BATCH_NAP_US_MIN),
            _ => nap_us,
        };
        self.0.store(next_us, Ordering::Relaxed);
    }
}

/// What has ended a sleep.
pub(crate) struct Woken {
    /// The waker was rung.
    pub(crate) is_rung: bool,
    /// That, or a connection has something to do.
    pub(crate) is_announced: bool,
}

/// What a thread sleeps by, besides descriptors of connections.
pub(crate) struct Sleep<'a> {
    /// For how long at most.
    pub(crate) limit: Option<Duration>,
    /// For how long nobody may look at a connection.
    pub(crate) unseen_max: Duration,
    /// `None` where each thread can have a processor, and then it looks at all connections after each sleep, too.
    pub(crate) batch_nap: Option<&'a BatchNap>,
    /// What has to be turned before the descriptors announce what it brings.
    pub(crate) intake: Option<&'a dyn Intake>,
}

/// Sleeps until the waker is rung, a connection has something to do, or the limit is over. With a batch nap a thread that waits for [`BATCH_MIN`] first
/// calls or more sleeps for that instead, which those calls do not end.
pub(crate) fn sleep_on_links(waker: &Waker, watched: &[Watched], pace: &mut Pace, sleep: &Sleep<'_>) -> Woken {
    let (calls, others): (Vec<&Watched>, Vec<&Watched>) = watched.iter().partition(|watched| watched.is_first_call);
    let in_order: Vec<&Watched> = others.iter().chain(&calls).copied().collect();
    // Who watches nothing leaves the intake to those that do.
    let intake = sleep.intake.filter(|_| in_order.iter().any(|watched| watched.descriptor.is_some()));
    let mut events = vec![PollFd::from_borrowed_fd(waker.descriptor(), PollFlags::IN)];
    events.extend(intake.map(|intake| PollFd::from_borrowed_fd(intake.descriptor(), PollFlags::IN)));
    let links = events.len();
    events.extend(in_order.iter().filter_map(|watched| watched.poll()));
    pace.begin_trust();
    let was_turned = match sleep.batch_nap.filter(|_| calls.len() >= BATCH_MIN) {
        Some(batch_nap) => {
            let others_end = links + others.iter().filter(|watched| watched.descriptor.is_some()).count();
            // What comes for calls ends nothing, so the intake does not either where there is nothing else.
            let ends = if others_end > links { others_end } else { 1 };
            // Others that no descriptor announces are not to wait for calls.
            let waits_by_clock = others.iter().any(|watched| watched.is_looked_at_by_clock());
            let limit = sleep.limit.filter(|_| waits_by_clock).unwrap_or(Duration::MAX);
            let nap = batch_nap.get().min(sleep.unseen_max / 4).min(limit);
            sleep_turning(&mut events[..ends], links, intake, nap);
            let is_ended = is_ready(&events[0]) || events[links..others_end].iter().any(is_ready);
            if let Some(intake) = intake {
                intake.turn();
            }
            poll_for(&mut events, Some(Duration::ZERO));
            if !waits_by_clock && !is_ended {
                let answered = events[others_end..].iter().filter(|event| is_ready(event)).count();
                batch_nap.note(answered, calls.len());
            }
            false
        }
        None => {
            poll_for(&mut events, sleep.limit);
            turn_if_ready(&mut events, links, intake)
        }
    };
    pace.announced = match sleep.batch_nap.is_some() && pace.trusts(sleep.unseen_max) {
        true => Announced::These(ready(&in_order, &events[links..]).map(|watched| watched.node).collect()),
        false => Announced::Anything,
    };
    let is_announced = was_turned || is_ready(&events[0]) || events[links..].iter().any(is_ready);
    Woken { is_rung: is_ready(&events[0]), is_announced }
}

/// Sleeps for so long, unless one of these ends it, and turns the intake meanwhile, which ends nothing by itself. The intake, if there is one, stands before
/// the links.
fn sleep_turning(events: &mut [PollFd<'_>], links: usize, intake: Option<&dyn Intake>, limit: Duration) {
    let countdown = Countdown::new(limit);
    loop {
        // An interrupted sleep is a short one.
        poll_for(events, Some(countdown.left()));
        let is_ended = |events: &[PollFd<'_>]| is_ready(&events[0]) || events.iter().skip(links).any(is_ready);
        if is_ended(events) || !turn_if_ready(events, links, intake) || is_ended(events) {
            return;
        }
    }
}

/// Turns the intake if it has something, and asks which links announce something then.
fn turn_if_ready(events: &mut [PollFd<'_>], links: usize, intake: Option<&dyn Intake>) -> bool {
    let Some(intake) = intake.filter(|_| events.len() >= links && is_ready(&events[links - 1])) else { return false };
    intake.turn();
    poll_for(events, Some(Duration::ZERO));
    true
}

fn is_ready(event: &PollFd<'_>) -> bool {
    !event.revents().is_empty()
}

fn poll_for(events: &mut [PollFd<'_>], limit: Option<Duration>) {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    if poll(events, limit.as_ref()).is_err() {
        events.iter_mut().for_each(PollFd::clear_revents);
    }
}

/// Those of these connections that have something to do, as far as their descriptors tell or nothing does: `events` are those of
/// [`Watched::poll`], in their order.
fn ready<'a>(watched: &[&'a Watched], events: &[PollFd<'_>]) -> impl Iterator<Item = &'a Watched> {
    let mut events = events.iter();
    watched.iter().copied().filter(move |watched| {
        let is_ready = watched.descriptor.is_some() && events.next().is_some_and(is_ready);
        is_ready || watched.is_looked_at_by_clock()
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::time::Instant;

    use longarm_proto::NodeId;

    use super::*;

    fn sleep(limit: Option<Duration>, batch_nap: Option<&BatchNap>) -> Sleep<'_> {
        Sleep { limit, unseen_max: Duration::from_secs(5), batch_nap, intake: None }
    }

    /// Makes others ready when it is turned.
    struct MockIntake {
        own: Waker,
        others: Vec<Arc<OwnedFd>>,
    }

    impl MockIntake {
        fn of(others: &[&Watched]) -> MockIntake {
            let others = others.iter().filter_map(|watched| watched.descriptor.clone()).collect();
            MockIntake { own: Waker::new().unwrap(), others }
        }
    }

    impl Intake for MockIntake {
        fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
            self.own.descriptor()
        }

        fn turn(&self) {
            self.own.clear();
            for descriptor in &self.others {
                rustix::io::write(descriptor, &1_u64.to_ne_bytes()).unwrap();
            }
        }
    }

    #[test]
    fn what_an_intake_brings_is_announced_by_the_connections_that_it_is_for() {
        let (mine, mut pace) = (Waker::new().unwrap(), Pace::new(0));
        let (silent, _silent) = watched(3, false);
        let (reached, _reached) = watched(5, false);
        let intake = MockIntake::of(&[&reached]);
        intake.own.wake();
        let nap = BatchNap::new();
        let sleep = Sleep { intake: Some(&intake), ..sleep(None, Some(&nap)) };
        let woken = sleep_on_links(&mine, &[silent, reached], &mut pace, &sleep);
        assert!(woken.is_announced && !woken.is_rung);
        assert_eq!(pace.announced.take(), Announced::These(vec![NodeId(5)]));
    }

    #[test]
    fn what_an_intake_brings_for_a_connection_ends_a_sleep_for_many_first_calls() {
        let (mine, mut pace) = (Waker::new().unwrap(), Pace::new(0));
        let (mut all, _wakers): (Vec<Watched>, Vec<Waker>) = (0..6).map(|node| watched(node, true)).unzip();
        let (connected, _waker) = watched(9, false);
        let intake = MockIntake::of(&[&connected]);
        intake.own.wake();
        all.push(connected);
        let nap = BatchNap(AtomicU32::new(u32::MAX)); // More than an hour.
        let unseen_max = Duration::from_secs(100_000);
        let sleep = Sleep { intake: Some(&intake), unseen_max, ..sleep(None, Some(&nap)) };
        assert!(sleep_on_links(&mine, &all, &mut pace, &sleep).is_announced);
        assert_eq!(pace.announced.take(), Announced::These(vec![NodeId(9)]));
    }

    #[test]
    fn an_intake_ends_no_sleep_for_many_first_calls_and_is_turned_behind_it() {
        let (mine, mut pace) = (Waker::new().unwrap(), Pace::new(0));
        let (calls, _wakers): (Vec<Watched>, Vec<Waker>) = (0..6).map(|node| watched(node, true)).unzip();
        let intake = MockIntake::of(&[&calls[1], &calls[2], &calls[4]]);
        intake.own.wake();
        let nap = BatchNap::new();
        let (first, began) = (nap.get(), Instant::now());
        let sleep = Sleep { intake: Some(&intake), ..sleep(None, Some(&nap)) };
        assert!(sleep_on_links(&mine, &calls, &mut pace, &sleep).is_announced);
        assert!(began.elapsed() >= first, "it slept although something had come");
        assert_eq!(pace.announced.take(), Announced::These(vec![NodeId(1), NodeId(2), NodeId(4)]));
        assert_eq!(nap.get(), first, "half of them, as it should be");
    }

    /// A connection to be watched, and what makes it ready.
    fn watched(node: u32, is_first_call: bool) -> (Watched, Waker) {
        let waker = Waker::new().unwrap();
        let descriptor: OwnedFd = waker.descriptor().try_clone_to_owned().unwrap();
        let flags = PollFlags::IN;
        (
            Watched {
                node: NodeId(node),
                is_first_call,
                descriptor: Some(Arc::new(descriptor)),
                flags,
                ..Watched::default()
            },
            waker,
        )
    }

    #[test]
    fn who_is_woken_by_a_connection_looks_at_that_one_and_at_those_that_announce_nothing() {
        let (mine, mut pace) = (Waker::new().unwrap(), Pace::new(0));
        let (silent, _silent) = watched(3, false);
        let (ready, waker) = watched(5, false);
        let lacking = Watched { node: NodeId(7), ..Watched::default() };
        waker.wake();
        let nap = BatchNap::new();
        let woken = sleep_on_links(&mine, &[silent, lacking, ready], &mut pace, &sleep(None, Some(&nap)));
        assert!(woken.is_announced && !woken.is_rung);
        assert_eq!(pace.announced.take(), Announced::These(vec![NodeId(7), NodeId(5)]));
        assert_eq!(pace.announced.take(), Announced::These(vec![]), "no more before the next sleep");
    }

    #[test]
    fn who_has_a_processor_or_has_trusted_descriptors_for_long_looks_at_all() {
        let mine = Waker::new().unwrap();
        mine.wake();
        let (silent, _silent) = watched(3, false);
        let nap = BatchNap::new();
        for (batch_nap, unseen_max) in [(None, Duration::from_secs(5)), (Some(&nap), Duration::ZERO)] {
            let mut pace = Pace::new(0);
            let sleep = Sleep { unseen_max, ..sleep(None, batch_nap) };
            let woken = sleep_on_links(&mine, std::slice::from_ref(&silent), &mut pace, &sleep);
            assert!(woken.is_rung);
            assert_eq!(pace.announced.take(), Announced::Anything);
        }
    }

    #[test]
    fn of_many_first_calls_a_thread_looks_at_all_that_were_answered_meanwhile() {
        let (mine, mut pace) = (Waker::new().unwrap(), Pace::new(0));
        let (calls, wakers): (Vec<Watched>, Vec<Waker>) = (0..6).map(|node| watched(node, true)).unzip();
        wakers[1].wake();
        wakers[3].wake();
        wakers[4].wake();
        wakers[5].wake();
        let nap = BatchNap::new();
        let (first, began) = (nap.get(), Instant::now());
        let woken = sleep_on_links(&mine, &calls, &mut pace, &sleep(Some(Duration::ZERO), Some(&nap)));
        assert!(woken.is_announced && !woken.is_rung);
        assert!(began.elapsed() >= first, "it slept although some were answered already");
        assert_eq!(pace.announced.take(), Announced::These(vec![NodeId(1), NodeId(3), NodeId(4), NodeId(5)]));
        assert_eq!(nap.get(), first, "a part of them, as it should be");
        wakers.iter().for_each(Waker::clear);
        sleep_on_links(&mine, &calls, &mut pace, &sleep(Some(Duration::ZERO), Some(&nap)));
        assert_eq!(nap.get(), 2 * first, "nobody has answered");
        wakers.iter().for_each(Waker::wake);
        sleep_on_links(&mine, &calls, &mut pace, &sleep(Some(Duration::ZERO), Some(&nap)));
        assert_eq!(nap.get(), first, "all have");
    }

    #[test]
    fn of_few_first_calls_or_with_a_processor_to_itself_a_thread_wakes_for_each() {
        let mine = Waker::new().unwrap();
        let nap = BatchNap::new();
        for (count, batch_nap) in [(3, Some(&nap)), (6, None)] {
            let (calls, wakers): (Vec<Watched>, Vec<Waker>) = (0..count).map(|node| watched(node, true)).unzip();
            wakers[1].wake();
            let mut pace = Pace::new(0);
            // Without a limit: it returns because one was answered.
            assert!(sleep_on_links(&mine, &calls, &mut pace, &sleep(None, batch_nap)).is_announced);
            assert_eq!(nap.get(), BatchNap::new().get(), "few were answered, and no batch was slept for");
        }
    }

    #[test]
    fn what_is_connected_ends_a_sleep_for_many_first_calls() {
        let (mine, mut pace, nap) = (Waker::new().unwrap(), Pace::new(0), BatchNap::new());
        let (mut all, _wakers): (Vec<Watched>, Vec<Waker>) = (0..6).map(|node| watched(node, true)).unzip();
        let (connected, waker) = watched(9, false);
        all.insert(2, connected);
        waker.wake();
        let woken = sleep_on_links(&mine, &all, &mut pace, &sleep(None, Some(&nap)));
        assert!(woken.is_announced && !woken.is_rung);
        assert_eq!(pace.announced.take(), Announced::These(vec![NodeId(9)]));
        assert_eq!(nap.get(), BatchNap::new().get(), "how many calls were answered says nothing now");
    }

    #[test]
    fn who_is_not_announced_by_anything_does_not_wait_for_many_first_calls() {
        let (mine, mut pace, nap) = (Waker::new().unwrap(), Pace::new(0), BatchNap::new());
        nap.0.store(u32::MAX, Ordering::Relaxed); // A sleep of more than an hour.
        let (mut all, _wakers): (Vec<Watched>, Vec<Waker>) = (0..6).map(|node| watched(node, true)).unzip();
        all.push(Watched { node: NodeId(9), is_driven_elsewhere: true, ..Watched::default() });
        let sleep = sleep(Some(Duration::from_millis(1)), Some(&nap));
        sleep_on_links(&mine, &all, &mut pace, &Sleep { unseen_max: Duration::from_secs(10_000), ..sleep });
        assert_eq!(pace.announced.take(), Announced::These(vec![NodeId(9)]));
    }
}
