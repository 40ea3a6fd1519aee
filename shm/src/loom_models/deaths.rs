//! Somebody dies in the middle of something, at every step of it.

use longarm_proto::Rank;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::mortal::die_after;
use super::{Block, Door, check};
use crate::in_use::CellsInUse;
use crate::inbox::{Cells, Inbox};
use crate::queue::{Links, QueueEnds, Taken};
use crate::stripe::Stripes;
use crate::sync::{AtomicU32, Ordering};

/// The rank whose inbox it is.
const CONSUMER: u32 = 3;

/// An inbox and cells of three producers, two each.
struct Post {
    ends: QueueEnds,
    links: Vec<AtomicU32>,
    targets: Vec<AtomicU32>,
    in_use: Vec<CellsInUse>,
    contents: Vec<UnsafeCell<u32>>,
}

const CELLS_EACH: u32 = 2;
const PRODUCERS: u32 = 3;

// SAFETY: the contents of a cell are touched by its owner until it is posted and by the consumer afterwards. That the
// inbox orders the two is what the models check: loom reports any access that is not ordered.
unsafe impl Sync for Post {}
// SAFETY: as for `Sync`; nothing in it belongs to one thread.
unsafe impl Send for Post {}

impl Links for Post {
    fn next(&self, cell: u32) -> Option<&AtomicU32> {
        self.links.get(cell as usize)
    }
}

impl Cells for Post {
    fn count(&self) -> u32 {
        self.links.len() as u32
    }

    fn target(&self, cell: u32) -> &AtomicU32 {
        &self.targets[cell as usize]
    }

    fn is_used(&self, cell: u32) -> bool {
        self.in_use[(cell / CELLS_EACH) as usize].is_used(cell % CELLS_EACH)
    }

    fn give_back(&self, cell: u32) {
        self.in_use[(cell / CELLS_EACH) as usize].give_back(cell % CELLS_EACH);
    }
}

impl Post {
    fn new() -> Arc<Post> {
        let words = || (0..CELLS_EACH * PRODUCERS).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Post {
            ends: QueueEnds::default(),
            links: words(),
            targets: words(),
            in_use: (0..PRODUCERS).map(|_| CellsInUse::default()).collect(),
            contents: (0..CELLS_EACH * PRODUCERS).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    fn inbox(&self) -> Inbox<'_, Post> {
        Inbox::new(&self.ends, self, CONSUMER)
    }

    /// Takes a cell of the producer, fills and posts it. `value` is not 0.
    fn push(&self, producer: u32, value: u32) {
        let bit = self.in_use[producer as usize].take().filter(|bit| *bit < CELLS_EACH);
        let cell = producer * CELLS_EACH + bit.expect("the models push no more than there are cells");
        self.contents[cell as usize].with_mut(|contents| {
            // SAFETY: loom gives the pointer, and reports whoever else is there at this moment.
            unsafe { *contents = value }
        });
        self.inbox().post(cell);
    }

    fn pop(&self) -> Result<u32, Taken> {
        match self.inbox().take() {
            Taken::Cell(cell) => {
                let value = self.contents[cell as usize].with(|contents| {
                    // SAFETY: as in `push`.
                    unsafe { *contents }
                });
                self.inbox().done_with(cell);
                Ok(value)
            }
            other => Err(other),
        }
    }

    /// Pops until nothing is left, while `repair` is called whenever the inbox is broken.
    fn pop_rest(&self, taken: &mut Vec<u32>, repair: impl Fn()) {
        loop {
            match self.pop() {
                Ok(value) => taken.push(value),
                Err(Taken::Empty) => return,
                Err(_) => {
                    repair();
                    thread::yield_now();
                }
            }
        }
    }
}

fn is_of(producers: &'static [u32]) -> impl Fn(u32) -> bool {
    move |cell| producers.contains(&(cell / CELLS_EACH))
}

/// Nothing came twice, what is due came, and in the order in which its producer pushed it (ascending).
fn assert_taken(taken: &[u32], due: &[u32], steps: u32) {
    let mut sorted = taken.to_vec();
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|pair| pair[0] != pair[1]), "step {steps}: something came twice: {taken:?}");
    assert!(due.iter().all(|value| taken.contains(value)), "step {steps}: {due:?} was completed, but {taken:?}");
    for producer in 0..PRODUCERS {
        let own = taken.iter().filter(|value| **value / 10 == producer + 1);
        assert!(own.is_sorted(), "step {steps}: {taken:?} is out of order");
    }
}

/// Atomic operations of one push: take 2, post 2, enqueue 3.
const PUSH_STEPS: u32 = 7;

#[test]
fn loom_a_producer_dies_at_any_step_beside_one_that_lives_and_nothing_completed_is_lost() {
    for steps in 0..=PUSH_STEPS {
        check(Some(2), move || {
            let post = Post::new();
            let mortal = {
                let post = post.clone();
                thread::spawn(move || die_after(steps, || post.push(0, 10)).is_some())
            };
            let living = {
                let post = post.clone();
                thread::spawn(move || {
                    post.push(1, 20);
                    post.push(1, 21);
                })
            };
            let completed = mortal.join().unwrap();
            let mut taken = Vec::new();
            while !(taken.contains(&20) && taken.contains(&21)) {
                match post.pop() {
                    Ok(value) => taken.push(value),
                    Err(Taken::Broken) if post.inbox().mend(is_of(&[0])) => {}
                    Err(_) => thread::yield_now(),
                }
            }
            living.join().unwrap();
            post.pop_rest(&mut taken, || assert!(post.inbox().mend(is_of(&[0])), "nobody else is in the middle"));
            assert_taken(&taken, if completed { &[10, 20, 21] } else { &[20, 21] }, steps);
            assert_eq!(completed, steps >= PUSH_STEPS);
            // It goes on as if nothing had been.
            post.push(2, 30);
            assert_eq!(post.pop(), Ok(30));
        });
    }
}

#[test]
fn loom_two_producers_die_at_any_steps_and_what_a_third_pushed_in_between_arrives() {
    // From the one that says for whom the cell is to the end; before that nobody else sees anything.
    let steps = || 3..=PUSH_STEPS;
    for (first, second) in steps().flat_map(|first| steps().map(move |second| (first, second))) {
        check(Some(2), move || {
            let post = Post::new();
            let mortals = [(0, first), (2, second)].map(|(producer, steps)| {
                let post = post.clone();
                thread::spawn(move || {
                    let value = (producer + 1) * 10;
                    die_after(steps, || post.push(producer, value)).map(|()| value)
                })
            });
            post.push(1, 20);
            post.push(1, 21);
            let mut due = vec![20, 21];
            due.extend(mortals.into_iter().filter_map(|mortal| mortal.join().unwrap()));
            let mut taken = Vec::new();
            post.pop_rest(&mut taken, || assert!(post.inbox().mend(is_of(&[0, 2])), "all of them are dead"));
            assert_taken(&taken, &due, first * 10 + second);
            post.push(1, 22);
            assert_eq!(post.pop(), Ok(22));
        });
    }
}

/// Atomic operations of two pops of what is there, at most: each 2 to 8 of the queue, and 2 to give the cell back.
const POP_STEPS: u32 = 14;

#[test]
fn loom_a_consumer_dies_at_any_step_and_who_takes_over_gets_all_but_what_it_had_in_hand() {
    // Of the standard library: it lasts longer than one run of a model.
    let ended = std::sync::Arc::new(std::sync::Mutex::new(false));
    for steps in 0..=POP_STEPS {
        let ended = std::sync::Arc::clone(&ended);
        check(Some(2), move || {
            let post = Post::new();
            post.push(0, 10);
            let producer = {
                let post = post.clone();
                thread::spawn(move || {
                    post.push(1, 20);
                    post.push(1, 21);
                })
            };
            let mortal = {
                let post = post.clone();
                thread::spawn(move || {
                    // Outside of what dies: what it had read is known.
                    let mut heard = Vec::new();
                    let done = die_after(steps, || (0..2).for_each(|_| heard.extend(post.pop().ok())));
                    (heard, done.is_some())
                })
            };
            let (heard, done) = mortal.join().unwrap();
            *ended.lock().unwrap() |= done;
            let mut taken = Vec::new();
            post.inbox().take_over();
            // While the producer goes on.
            while let Ok(value) = post.pop() {
                taken.push(value);
            }
            producer.join().unwrap();
            let repair = || assert!(post.inbox().take_over(), "step {steps}: it stays broken");
            post.pop_rest(&mut taken, repair);
            assert_taken(&taken, &[], steps);
            // What it had in hand when it died: read or not, it may come again, or never; one cell at most.
            let again = taken.iter().filter(|value| heard.contains(value)).count();
            let never = [10, 20, 21].iter().filter(|value| !heard.contains(value) && !taken.contains(value)).count();
            assert!(again + never <= 1, "step {steps}: {heard:?}, then {taken:?}");
            assert!(!done || again + never == 0, "step {steps}: {heard:?}, then {taken:?}");
            // Its cells but that one are with their owners again.
            let kept = (0..PRODUCERS * CELLS_EACH).filter(|cell| post.is_used(*cell)).count();
            assert!(kept <= usize::from(!done), "step {steps}: {kept} cells are kept");
        });
    }
    assert!(*ended.lock().unwrap(), "there are more steps to die at");
}

/// Atomic operations of an update under a stripe lock that is free: take it and free it.
const STRIPE_STEPS: u32 = 2;

#[test]
fn loom_a_holder_of_a_stripe_dies_at_any_step_and_the_others_go_on() {
    // Two more, for those who find it taken and look again.
    for steps in 0..=STRIPE_STEPS + 2 {
        check(Some(3), move || {
            let block = Block::new();
            let mortal = {
                let block = block.clone();
                thread::spawn(move || die_after(steps, || block.add(Rank(7))).is_some())
            };
            let waiter = {
                let block = block.clone();
                thread::spawn(move || block.add(Rank(1)))
            };
            let completed = mortal.join().unwrap();
            let freed = Stripes::new(&block.words).release_of_dead(Rank(7));
            assert!(freed == 0 || !completed, "who has given it back holds nothing");
            waiter.join().unwrap();
            block.add(Rank(2));
            // SAFETY: all threads are done, which `join` orders.
            let found = block.contents.with(|contents| unsafe { *contents });
            assert!(found == 3 || found == 2 && !completed, "{found} updates, of 2 and the dead one's");
        });
    }
}

#[test]
fn loom_a_notifier_dies_at_any_step_and_the_sleeper_wakes_when_its_death_is_told() {
    // `notify` is one operation and a system call; `notify_if_sleeping` is two operations and a system call.
    for steps in 0..=3 {
        check(Some(3), move || {
            let door = Door::new();
            let mortal = {
                let door = door.clone();
                thread::spawn(move || {
                    die_after(steps, || {
                        door.word.store(1, Ordering::Relaxed);
                        door.eventcount().notify_if_sleeping();
                    })
                    .is_some()
                })
            };
            let told = Arc::new(AtomicU32::new(0));
            let sleeper = {
                let (door, told) = (door.clone(), told.clone());
                thread::spawn(move || {
                    loop {
                        let seen = door.eventcount().sequence();
                        let ready = || door.word.load(Ordering::Relaxed) == 1 || told.load(Ordering::Relaxed) == 1;
                        if ready() {
                            return;
                        }
                        door.eventcount().sleep_unless(seen, None, ready);
                    }
                })
            };
            let completed = mortal.join().unwrap();
            if !completed {
                // As whoever hears of a death does.
                told.store(1, Ordering::Relaxed);
                door.eventcount().notify();
            }
            sleeper.join().unwrap();
        });
    }
}

#[test]
fn loom_a_sleeper_dies_at_any_step_and_the_others_are_woken() {
    // Look, announce, look again; withdraw and look once more are for one that was woken.
    for steps in 0..=5 {
        check(Some(2), move || {
            let door = Door::new();
            let mortal = {
                let door = door.clone();
                thread::spawn(move || {
                    die_after(steps, || {
                        let seen = door.eventcount().sequence();
                        let ready = || door.word.load(Ordering::Relaxed) == 1;
                        door.eventcount().sleep_unless(seen, None, ready);
                    });
                })
            };
            let sleeper = {
                let door = door.clone();
                thread::spawn(move || {
                    while door.eventcount().sequence() == 0 {
                        door.eventcount().sleep(0, None);
                    }
                    assert_eq!(door.word.load(Ordering::Relaxed), 1);
                })
            };
            door.word.store(1, Ordering::Relaxed);
            door.eventcount().notify();
            mortal.join().unwrap();
            sleeper.join().unwrap();
        });
    }
}
