//! The bookkeeping against a naive model: which registrations exist, which are found, and which have to go.
//!
//! Nothing is mapped here: the caller tells what goes away, and the registrar takes any address.

mod support;

use longarm_registration::{Cache, Options, Pinned, RegisterError, Watch, Watched};
use proptest::prelude::*;

use support::Recording;
use support::mapping::page_bytes;

/// How many pages the addresses of these tests reach.
const PAGES: usize = 40;

fn cache(pages_max: usize, entries_max: usize, merge_pages_max: usize) -> (Cache<Recording>, Recording) {
    let device = Recording::default();
    let options = Options {
        bytes_max: pages_max * page_bytes(),
        entries_max,
        merge_bytes_max: merge_pages_max * page_bytes(),
        watch: Watch::Caller,
        is_one_thread: false,
    };
    (Cache::new(device.clone(), options).unwrap(), device)
}

fn acquire(cache: &Cache<Recording>, first: usize, pages: usize) -> Result<Pinned<Recording>, RegisterError> {
    cache.acquire(first * page_bytes(), pages * page_bytes())
}

fn is_known(cache: &Cache<Recording>, first: usize, pages: usize) -> bool {
    cache.lookup(first * page_bytes(), pages * page_bytes()).is_some()
}

#[test]
fn a_request_inside_of_a_known_one_is_a_hit() {
    let (cache, _) = cache(PAGES, 8, 0);
    let first = acquire(&cache, 2, 6).unwrap().handle().number;
    let inside = cache.acquire(3 * page_bytes() + 1, 7).unwrap();
    assert_eq!(inside.handle().number, first);
    assert_eq!((inside.start(), inside.bytes()), (2 * page_bytes(), 6 * page_bytes()));
    assert!(!is_known(&cache, 7, 2));
    assert!(cache.lookup(2 * page_bytes(), 0).is_none());
    assert!(matches!(cache.acquire(0, 0), Err(RegisterError::BadRange { .. })));
    assert!(matches!(cache.acquire(usize::MAX, 2), Err(RegisterError::BadRange { .. })));
    let statistics = cache.statistics();
    assert_eq!((statistics.hits, statistics.misses, statistics.entries), (1, 1, 1));
    assert_eq!(statistics.watch, Watched::Interposed);
}

#[test]
fn neighbours_become_one_as_long_as_that_is_small() {
    let (cache, device) = cache(PAGES, 8, 6);
    drop(acquire(&cache, 0, 2).unwrap());
    drop(acquire(&cache, 4, 2).unwrap());
    assert_eq!(cache.statistics().entries, 2);
    // It touches both.
    let whole = acquire(&cache, 2, 2).unwrap();
    assert_eq!((whole.start(), whole.bytes()), (0, 6 * page_bytes()));
    assert_eq!(device.0.lock().unwrap().registered.len(), 1);
    // Too large together with that.
    assert_eq!(acquire(&cache, 6, 1).unwrap().bytes(), page_bytes());
    // What overlaps becomes one at any size.
    let whole = acquire(&cache, 5, 10).unwrap();
    assert_eq!((whole.start(), whole.bytes()), (0, 15 * page_bytes()));
    assert_eq!(cache.statistics().entries, 1);
}

#[test]
fn neighbours_that_cannot_be_registered_together_stay_apart() {
    let (cache, device) = cache(PAGES, 8, 8);
    drop(acquire(&cache, 0, 2).unwrap());
    device.0.lock().unwrap().failures = 1;
    assert_eq!(acquire(&cache, 2, 2).unwrap().bytes(), 2 * page_bytes());
    assert!(is_known(&cache, 0, 2) && is_known(&cache, 2, 2) && !is_known(&cache, 1, 2));
    device.0.lock().unwrap().failures = 2;
    assert!(matches!(acquire(&cache, 4, 1), Err(RegisterError::System { errno: 5 })));
    assert_eq!(cache.statistics().bytes, 4 * page_bytes());
    assert_eq!(cache.statistics().refused, 0);
}

#[test]
fn what_was_used_least_recently_goes_first_and_what_is_in_use_stays() {
    let (cache, _) = cache(6, 8, 0);
    drop(acquire(&cache, 0, 2).unwrap());
    drop(acquire(&cache, 10, 2).unwrap());
    drop(acquire(&cache, 20, 2).unwrap());
    let oldest = acquire(&cache, 0, 1).unwrap();
    drop(acquire(&cache, 30, 2).unwrap());
    assert!(is_known(&cache, 0, 2) && !is_known(&cache, 10, 2) && is_known(&cache, 20, 2));
    // Used last long ago, but in use.
    let others = [acquire(&cache, 20, 2).unwrap(), acquire(&cache, 30, 2).unwrap()];
    let full = acquire(&cache, 10, 1).unwrap_err();
    assert!(matches!(full, RegisterError::Full { .. }), "{full}");
    drop(oldest);
    drop(acquire(&cache, 10, 1).unwrap());
    assert!(!is_known(&cache, 0, 2));
    drop(others);
    assert!(matches!(acquire(&cache, 0, 7), Err(RegisterError::Full { .. })));
    let statistics = cache.statistics();
    assert_eq!((statistics.evictions, statistics.refused, statistics.entries), (2, 2, 3));
}

#[test]
fn the_number_of_registrations_is_bounded_too() {
    let (cache, device) = cache(PAGES, 2, 0);
    for first in [0, 2, 4, 6] {
        drop(acquire(&cache, first, 1).unwrap());
        assert!(device.0.lock().unwrap().registered.len() <= 2);
    }
    assert!(is_known(&cache, 4, 1) && is_known(&cache, 6, 1));
}

#[test]
fn a_limit_of_the_system_makes_room_and_then_says_the_remedy() {
    let (cache, device) = cache(PAGES, 8, 0);
    device.0.lock().unwrap().bytes_max = Some(4 * page_bytes());
    drop(acquire(&cache, 0, 2).unwrap());
    let used = acquire(&cache, 10, 2).unwrap();
    drop(acquire(&cache, 20, 1).unwrap());
    assert!(!is_known(&cache, 0, 2) && is_known(&cache, 10, 2) && is_known(&cache, 20, 1));
    let refused = acquire(&cache, 30, 3).unwrap_err();
    assert!(refused.to_string().contains("ulimit -l"), "{refused}");
    // All that is unused was tried.
    assert_eq!(cache.statistics().bytes, 2 * page_bytes());
    drop(used);
    assert!(acquire(&cache, 30, 3).is_ok());
}

#[test]
fn without_a_watch_each_use_registers_anew() {
    let device = Recording::default();
    let cache = Cache::new(device.clone(), Options { watch: Watch::Off, ..Options::default() }).unwrap();
    drop(acquire(&cache, 0, 2).unwrap());
    let second = acquire(&cache, 0, 2).unwrap();
    assert_eq!(second.handle().number, 2);
    assert!(!is_known(&cache, 0, 2));
    cache.invalidate(0, usize::MAX);
    assert_eq!(device.0.lock().unwrap().registered.len(), 1);
    let statistics = cache.statistics();
    assert_eq!((statistics.uncached, statistics.entries, statistics.watch), (2, 0, Watched::Off));
    drop(cache);
    drop(second);
    assert!(device.0.lock().unwrap().registered.is_empty());
}

/// One registration, as the model sees it.
#[derive(Clone, Debug)]
struct Known {
    first: usize,
    end: usize,
    number: u64,
    used_at: u64,
    /// Whether it can be found.
    is_inside: bool,
    guards: usize,
}

#[derive(Default)]
struct Model {
    all: Vec<Known>,
    made: u64,
    now: u64,
    device_pages_max: usize,
    pages_max: usize,
    entries_max: usize,
    merge_pages_max: usize,
}

impl Model {
    fn lookup(&mut self, first: usize, end: usize) -> Option<u64> {
        self.now += 1;
        let now = self.now;
        let known = self.all.iter_mut().find(|known| known.is_inside && known.first <= first && end <= known.end)?;
        known.used_at = now;
        Some(known.number)
    }

    fn pages(&self) -> usize {
        self.all.iter().map(|known| known.end - known.first).sum()
    }

    fn settle(&mut self) {
        self.all.retain(|known| known.is_inside || known.guards > 0);
    }

    fn evict(&mut self) -> bool {
        let unused = self.all.iter().enumerate().filter(|(_, known)| known.is_inside && known.guards == 0);
        let Some((at, _)) = unused.min_by_key(|(_, known)| known.used_at) else { return false };
        self.all.remove(at);
        true
    }

    fn fits(&self, pages: usize) -> bool {
        self.pages() + pages <= self.pages_max && self.all.len() < self.entries_max
    }

    fn take_out(&mut self, first: usize, end: usize) {
        for known in &mut self.all {
            known.is_inside &= known.end <= first || end <= known.first;
        }
        self.settle();
    }

    fn put_in(&mut self, first: usize, end: usize) -> u64 {
        self.take_out(first, end);
        self.made += 1;
        self.now += 1;
        let (number, used_at) = (self.made, self.now);
        self.all.push(Known { first, end, number, used_at, is_inside: true, guards: 0 });
        number
    }

    fn merged(&self, first: usize, end: usize) -> (usize, usize) {
        let inside = || self.all.iter().filter(|known| known.is_inside);
        let overlaps = |known: &&Known| known.first < end && first < known.end;
        let from = inside().filter(overlaps).map(|known| known.first).chain([first]).min().unwrap();
        let to = inside().filter(overlaps).map(|known| known.end).chain([end]).max().unwrap();
        let before = inside().find(|known| known.end == from).map_or(from, |known| known.first);
        let from = if to - before <= self.merge_pages_max { before } else { from };
        let after = inside().find(|known| known.first == to).map_or(to, |known| known.end);
        (from, if after - from <= self.merge_pages_max { after } else { to })
    }

    fn acquire(&mut self, first: usize, end: usize) -> Option<u64> {
        if let Some(number) = self.lookup(first, end) {
            return Some(number);
        }
        let (from, to) = self.merged(first, end);
        let is_taken = self.pages() + to - from <= self.device_pages_max;
        if (from, to) != (first, end) && self.fits(to - from) && is_taken {
            return Some(self.put_in(from, to));
        }
        if end - first > self.pages_max {
            return None;
        }
        while !self.fits(end - first) {
            if !self.evict() {
                return None;
            }
        }
        while self.pages() + end - first > self.device_pages_max {
            if !self.evict() {
                return None;
            }
        }
        Some(self.put_in(first, end))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Acquire { first: usize, pages: usize, is_held: bool },
    Lookup { first: usize, pages: usize },
    Invalidate { first: usize, pages: usize },
    Release { at: prop::sample::Index },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..PAGES, 1..8usize);
    let step = prop_oneof![
        6 => (range(), any::<bool>()).prop_map(|((first, pages), is_held)| Step::Acquire { first, pages, is_held }),
        2 => range().prop_map(|(first, pages)| Step::Lookup { first, pages }),
        1 => range().prop_map(|(first, pages)| Step::Invalidate { first, pages }),
        3 => any::<prop::sample::Index>().prop_map(|at| Step::Release { at }),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_cache_does_what_a_naive_model_does(
        steps in steps(),
        pages_max in 4..40usize,
        entries_max in 1..12usize,
        merge_pages_max in 0..16usize,
        device_pages_max in 4..40usize,
    ) {
        let (cache, device) = cache(pages_max, entries_max, merge_pages_max);
        device.0.lock().unwrap().bytes_max = Some(device_pages_max * page_bytes());
        let mut model = Model { device_pages_max, pages_max, entries_max, merge_pages_max, ..Model::default() };
        let mut held: Vec<Pinned<Recording>> = Vec::new();
        for step in steps {
            match step {
                Step::Acquire { first, pages, is_held } => {
                    let pinned = acquire(&cache, first, pages);
                    let number = pinned.as_ref().ok().map(|pinned| pinned.handle().number);
                    prop_assert_eq!(number, model.acquire(first, first + pages));
                    if let Ok(pinned) = pinned && is_held {
                        let known = model.all.iter_mut().find(|known| Some(known.number) == number);
                        known.unwrap().guards += 1;
                        held.push(pinned);
                    }
                }
                Step::Lookup { first, pages } => {
                    let pinned = cache.lookup(first * page_bytes(), pages * page_bytes());
                    let number = pinned.map(|pinned| pinned.handle().number);
                    prop_assert_eq!(number, model.lookup(first, first + pages));
                }
                Step::Invalidate { first, pages } => {
                    cache.invalidate(first * page_bytes(), pages * page_bytes());
                    model.take_out(first, first + pages);
                }
                Step::Release { at } => {
                    if held.is_empty() {
                        continue;
                    }
                    let pinned = held.swap_remove(at.index(held.len()));
                    let number = pinned.handle().number;
                    drop(pinned);
                    model.all.iter_mut().find(|known| known.number == number).unwrap().guards -= 1;
                    model.settle();
                }
            }
            let mut expected: Vec<_> = model.all.iter().map(|known| {
                (known.number, (known.first * page_bytes(), (known.end - known.first) * page_bytes()))
            }).collect();
            expected.sort_unstable();
            let registered: Vec<_> = device.0.lock().unwrap().registered.clone().into_iter().collect();
            prop_assert_eq!(registered, expected);
            let statistics = cache.statistics();
            prop_assert_eq!(statistics.bytes, model.pages() * page_bytes());
            prop_assert_eq!(statistics.entries, model.all.iter().filter(|known| known.is_inside).count());
        }
        drop(cache);
        prop_assert_eq!(device.0.lock().unwrap().registered.len(), {
            let mut numbers: Vec<_> = held.iter().map(|pinned| pinned.handle().number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.len()
        });
        drop(held);
        prop_assert!(device.0.lock().unwrap().registered.is_empty());
    }
}
