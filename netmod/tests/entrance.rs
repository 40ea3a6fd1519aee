//! Who is let stand at an entrance, and who has to go, in virtual time.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longarm_netmod::{
    Admission, Caller, CallerStep, Entrance, EntranceOptions, EntranceStep, EntranceTokens, Introduction, Link,
    LinkError, Listener, Netmod, PATIENCE_MS, Poller, Ready, Tcp, TcpOptions,
};
use longarm_proto::{Identity, JobId, NodeId, Rank, Reception, Secret, Session};

const SECRET: Secret = Secret([3; 32]);
const LISTENER: u64 = 1;

struct House {
    netmod: Tcp,
    address: String,
    entrance: Entrance,
    poller: Arc<Poller>,
    drives: Arc<AtomicUsize>,
}

/// A listener that has to be driven all the while, or not.
struct Driven {
    below: Box<dyn Listener>,
    drives: Arc<AtomicUsize>,
    needs_it: bool,
}

impl Listener for Driven {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        self.below.accept()
    }

    fn drive(&mut self) -> bool {
        self.drives.fetch_add(1, Ordering::Relaxed);
        self.needs_it
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.below.descriptor()
    }

    fn address(&self) -> &str {
        self.below.address()
    }
}

impl House {
    fn of(places: usize) -> House {
        House::with(places, false)
    }

    fn with(places: usize, needs_it: bool) -> House {
        let netmod = Tcp::new(TcpOptions::default());
        let drives = Arc::new(AtomicUsize::new(0));
        let listener = Driven { below: netmod.listen().unwrap(), drives: Arc::clone(&drives), needs_it };
        let address = listener.address().to_owned();
        let poller = Arc::new(Poller::new().unwrap());
        let admission = Admission { secret: SECRET, job: JobId(1), me: NodeId(0), encrypted: false };
        let options = EntranceOptions { admission, places, handshake_timeout_ms: 10_000 };
        let tokens = EntranceTokens { listener: LISTENER, waiting: 1 << 32 };
        let entrance = Entrance::new(Box::new(listener), &poller, tokens, options).unwrap();
        House { netmod, address, entrance, poller, drives }
    }

    /// Says nothing until it is polled.
    fn caller(&self, rank: u32) -> Caller {
        let introduction = Introduction {
            secret: &SECRET,
            me: Identity { job: JobId(1), rank: Rank(rank), node: NodeId(1) },
            peer: NodeId(0),
            session: Session { number: 1, attempt: 1, is_known: false, received_bytes: 0 },
            encrypted: false,
            nonce: [rank as u8; 32],
        };
        Caller::new(self.netmod.connect(&self.address).unwrap(), &introduction)
    }

    /// Goes on until nobody moves any more; those who are proven are welcomed. Gives the ranks that came in.
    fn settle(&mut self, callers: &mut [&mut Caller], now_ms: u64) -> Vec<u32> {
        let mut admitted = Vec::new();
        for _ in 0..10 {
            for caller in &mut *callers {
                assert!(matches!(caller.poll(), CallerStep::Pending), "not hung up on, and not answered in full");
            }
            self.entrance.look_at_all(now_ms);
            while let Some(step) = self.entrance.next_step() {
                match step {
                    EntranceStep::Proven { number, .. } => self.entrance.welcome(number, Reception::Fresh, now_ms),
                    EntranceStep::Admitted { identity, .. } => admitted.push(identity.rank.0),
                }
            }
            if !admitted.is_empty() {
                break;
            }
        }
        admitted
    }

    fn hears_the_listener(&self) -> bool {
        let mut ready: Vec<Ready> = Vec::new();
        self.poller.wait(&mut ready, Some(std::time::Duration::ZERO)).unwrap();
        ready.iter().any(|event| event.token == LISTENER)
    }
}

#[test]
fn nobody_is_taken_in_for_whom_there_is_no_room_and_the_oldest_makes_some_when_it_had_its_time() {
    let mut house = House::of(2);
    let mut silent = [house.caller(1), house.caller(2), house.caller(3)];
    assert!(house.entrance.take_in(0));
    assert_eq!(house.entrance.len(), 2);
    assert!(!house.hears_the_listener(), "who waits outside wakes nobody");
    assert!(!house.entrance.look_after(PATIENCE_MS - 1));
    assert_eq!(house.entrance.len(), 2);
    assert!(house.entrance.look_after(PATIENCE_MS));
    assert_eq!(house.entrance.len(), 2, "the third has the place of the first");
    while !matches!(silent[0].poll(), CallerStep::Failed(_)) {}
    let [_, second, third] = &mut silent;
    let mut came = house.settle(&mut [second], PATIENCE_MS);
    came.extend(house.settle(&mut [third], PATIENCE_MS));
    assert_eq!(came, [2, 3], "who had a place was let in");
}

#[test]
fn what_has_arrived_counts_before_anybody_is_dropped() {
    let mut house = House::of(1);
    let mut first = house.caller(1);
    assert!(house.entrance.take_in(0));
    assert!(matches!(first.poll(), CallerStep::Pending), "its hello is on its way");
    let _second = house.caller(2);
    assert!(!house.entrance.take_in(10 * PATIENCE_MS), "the first has spoken, and has as long again");
    assert_eq!(house.settle(&mut [&mut first], 10 * PATIENCE_MS), [1]);
    assert!(house.entrance.comes_again(), "its place is free, and the second one waits");
    assert!(house.entrance.take_in(10 * PATIENCE_MS));
    assert_eq!(house.entrance.len(), 1);
}

#[test]
fn who_has_hung_up_makes_room_at_once() {
    let mut house = House::of(1);
    drop(house.caller(1));
    assert!(house.entrance.take_in(0));
    assert!(house.entrance.is_empty(), "it was gone when it was looked at first");
    let first = house.caller(2);
    let _second = house.caller(3);
    assert!(house.entrance.take_in(0));
    drop(first);
    assert!(house.entrance.look_at_all(1));
    assert!(house.entrance.comes_again());
    assert!(house.entrance.take_in(1));
    assert_eq!(house.entrance.len(), 1);
}

#[test]
fn a_proven_peer_never_makes_room() {
    let mut house = House::of(1);
    let mut first = house.caller(1);
    let mut proven = None;
    assert!(house.entrance.take_in(0));
    while proven.is_none() {
        assert!(matches!(first.poll(), CallerStep::Pending));
        house.entrance.look_at_all(0);
        proven = house.entrance.next_step();
    }
    let Some(EntranceStep::Proven { number, .. }) = proven else { panic!("it was not welcomed yet") };
    let _second = house.caller(2);
    assert!(!house.entrance.take_in(100 * PATIENCE_MS));
    house.entrance.welcome(number, Reception::Fresh, 100 * PATIENCE_MS);
    assert!(matches!(house.entrance.next_step(), Some(EntranceStep::Admitted { .. })));
    assert!(matches!(first.poll(), CallerStep::Proven { .. }));
}

#[test]
fn a_listener_that_has_to_be_driven_is_watched_and_driven_also_without_room() {
    for needs_it in [false, true] {
        let mut house = House::with(1, needs_it);
        let _callers = [house.caller(1), house.caller(2)];
        assert!(house.entrance.take_in(0));
        assert_eq!(house.drives.load(Ordering::Relaxed), 1);
        assert_eq!(house.hears_the_listener(), needs_it);
    }
}

#[test]
fn who_is_too_late_is_turned_away_although_there_is_room() {
    let mut house = House::of(5);
    let mut silent = house.caller(1);
    assert!(house.entrance.take_in(0));
    assert!(!house.entrance.look_after(9_999));
    assert!(house.entrance.has_time_limits());
    assert!(house.entrance.look_after(10_000));
    assert!(!house.entrance.has_time_limits());
    while !matches!(silent.poll(), CallerStep::Failed(_)) {}
}
