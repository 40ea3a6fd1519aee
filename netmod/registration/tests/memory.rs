//! Real memory, watched by the real kernel: what is unmapped, moved, discarded or replaced is never found again.

mod support;

use std::sync::{Arc, Barrier, Mutex};

use longarm_registration::{Cache, Hold, Options, Pinned, RegisterError, Registrar, Watch, Watched};

use support::mapping::{Mapping, page_bytes};
use support::{Looking, Recording, watching};

const PAGES: usize = 8;

/// Everything that can be found in these pages is what is there now. How much was found.
fn found_fresh(cache: &Cache<Looking>, mapping: &Mapping) -> usize {
    let mut found = 0;
    for page in (mapping.start..mapping.start + mapping.bytes).step_by(page_bytes()) {
        if let Some(pinned) = cache.lookup(page, 1) {
            let there = support::mapping::first_bytes(page, page_bytes());
            assert_eq!(there, Some(vec![pinned.handle().sees(page)]), "a stale registration");
            found += 1;
        }
    }
    found
}

/// A cache that knows all pages of a mapping, whose content is 1.
fn with_known() -> Option<(Cache<Looking>, Recording, Mapping)> {
    let registrar = Looking::default();
    let device = registrar.0.clone();
    let cache = watching(registrar, Options::default())?;
    let mapping = Mapping::new(PAGES);
    fill(&mapping, 0..PAGES, 1);
    drop(acquire(&cache, &mapping));
    assert_eq!(found_fresh(&cache, &mapping), PAGES);
    Some((cache, device, mapping))
}

fn fill(mapping: &Mapping, pages: std::ops::Range<usize>, content: u8) {
    pages.for_each(|page| mapping.write(page, content));
}

fn acquire(cache: &Cache<Looking>, mapping: &Mapping) -> Pinned<Looking> {
    cache.acquire(mapping.start, mapping.bytes).unwrap()
}

#[test]
fn memory_that_only_changes_its_content_stays_known() {
    let Some((cache, _, mapping)) = with_known() else { return };
    let before = cache.lookup(mapping.start, mapping.bytes).unwrap().handle().number;
    fill(&mapping, 0..PAGES, 2);
    assert_eq!(acquire(&cache, &mapping).handle().number, before);
    let statistics = cache.statistics();
    assert_eq!((statistics.misses, statistics.invalidations, statistics.entries), (1, 0, 1));
    assert_eq!(statistics.watch, Watched::Userfaultfd);
}

#[test]
fn unmapped_memory_is_not_found_and_gets_deregistered_without_another_call() {
    let Some((cache, device, mapping)) = with_known() else { return };
    mapping.unmap(0, PAGES);
    assert_eq!(found_fresh(&cache, &mapping), 0);
    while device.0.lock().unwrap().bytes() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(cache.statistics().invalidations, 1);
    let error = cache.acquire(mapping.start, mapping.bytes).unwrap_err();
    assert!(matches!(error, RegisterError::BadRange { .. }), "{error}");
}

#[test]
fn memory_mapped_again_at_the_same_address_is_registered_anew() {
    let Some((cache, _, mapping)) = with_known() else { return };
    for content in 2..200 {
        mapping.unmap(0, PAGES);
        assert!(mapping.map_again(0, PAGES));
        assert!(cache.lookup(mapping.start, 1).is_none());
        fill(&mapping, 0..PAGES, content);
        let pinned = acquire(&cache, &mapping);
        assert_eq!(pinned.handle().sees(mapping.page(PAGES - 1)), content);
        assert_eq!(found_fresh(&cache, &mapping), PAGES);
    }
}

#[test]
fn memory_mapped_over_is_registered_anew() {
    let Some((cache, _, mapping)) = with_known() else { return };
    mapping.map_over(2, 1);
    assert_eq!(found_fresh(&cache, &mapping), 0);
    mapping.write(2, 9);
    assert_eq!(acquire(&cache, &mapping).handle().sees(mapping.page(2)), 9);
}

#[test]
fn a_hole_in_the_middle_takes_the_whole_registration_and_both_sides_can_be_known_again() {
    let Some((cache, _, mapping)) = with_known() else { return };
    mapping.unmap(3, 2);
    assert_eq!(found_fresh(&cache, &mapping), 0);
    cache.acquire(mapping.page(0), 3 * page_bytes()).unwrap();
    cache.acquire(mapping.page(5), 3 * page_bytes()).unwrap();
    assert_eq!(found_fresh(&cache, &mapping), 6);
    assert_eq!(cache.statistics().entries, 2);
    // The two do not touch, so what fills the gap is one more, made with both.
    assert!(mapping.map_again(3, 2));
    assert!(cache.lookup(mapping.page(3), 1).is_none());
    fill(&mapping, 3..5, 2);
    cache.acquire(mapping.page(3), 2 * page_bytes()).unwrap();
    assert_eq!(found_fresh(&cache, &mapping), PAGES);
    assert_eq!(cache.statistics().entries, 1);
}

#[test]
fn discarded_memory_is_registered_anew() {
    let Some((cache, _, mapping)) = with_known() else { return };
    mapping.discard(4, 1);
    assert_eq!(found_fresh(&cache, &mapping), 0);
    let pinned = acquire(&cache, &mapping);
    assert_eq!((pinned.handle().sees(mapping.page(3)), pinned.handle().sees(mapping.page(4))), (1, 0));
    assert_eq!(found_fresh(&cache, &mapping), PAGES);
}

#[test]
fn shrunk_memory_is_not_found_behind_its_end() {
    let Some((cache, _, mut mapping)) = with_known() else { return };
    let whole = (mapping.start, mapping.bytes);
    mapping.shrink(3);
    assert!(cache.lookup(whole.0, whole.1).is_none());
    assert!(cache.lookup(mapping.page(3), 1).is_none());
    acquire(&cache, &mapping);
    assert_eq!(found_fresh(&cache, &mapping), 3);
}

#[test]
fn moved_memory_is_found_neither_here_nor_there() {
    let Some((cache, _, mapping)) = with_known() else { return };
    let (start, bytes) = (mapping.start, mapping.bytes);
    let target = Mapping::new(PAGES);
    fill(&target, 0..PAGES, 7);
    // What was at the new place is known, too.
    acquire(&cache, &target);
    let mapping = mapping.moved_onto(target);
    assert!(cache.lookup(start, 1).is_none());
    assert_eq!(found_fresh(&cache, &mapping), 0);
    assert_eq!(acquire(&cache, &mapping).handle().sees(mapping.page(0)), 1);
    assert!(cache.acquire(start, bytes).is_err());
    // It can go from its new place as from any other.
    mapping.unmap(0, PAGES);
    assert_eq!(found_fresh(&cache, &mapping), 0);
}

#[test]
fn grown_memory_can_be_registered_and_goes_with_and_after_the_cache() {
    let Some((cache, device, mapping)) = with_known() else { return };
    let start = mapping.start;
    // In place: what was there is still there, and the rest is new.
    let mapping = mapping.grown(8 * PAGES);
    assert_eq!(mapping.start, start);
    assert_eq!(found_fresh(&cache, &mapping), PAGES);
    acquire(&cache, &mapping);
    assert_eq!((found_fresh(&cache, &mapping), cache.statistics().entries), (8 * PAGES, 1));
    // Elsewhere, and larger: the kernel tells of as much as there was.
    let blocking = Mapping { start: mapping.start + mapping.bytes, bytes: page_bytes() };
    assert!(blocking.map_again(0, 1));
    let mapping = mapping.grown(16 * PAGES);
    assert_ne!(mapping.start, start);
    assert_eq!(found_fresh(&cache, &mapping), 0);
    let pinned = acquire(&cache, &mapping);
    let mapping = mapping.grown(1024 * PAGES);
    drop(cache);
    assert_eq!(device.0.lock().unwrap().registered.len(), 1);
    drop(pinned);
    assert!(device.0.lock().unwrap().registered.is_empty());
    // The part that came last is still watched.
    drop(mapping);
}

#[test]
fn a_registration_in_use_leaves_the_cache_at_once_and_the_device_with_its_last_guard() {
    let Some((cache, device, mapping)) = with_known() else { return };
    let pinned = acquire(&cache, &mapping);
    let number = pinned.handle().number;
    let second = pinned.clone();
    mapping.unmap(0, PAGES);
    assert_eq!(found_fresh(&cache, &mapping), 0);
    assert!(mapping.map_again(0, PAGES));
    let new = acquire(&cache, &mapping);
    assert_ne!(new.handle().number, number);
    drop(pinned);
    cache.invalidate(0, usize::MAX);
    assert!(device.0.lock().unwrap().registered.contains_key(&number));
    drop(second);
    assert!(!device.0.lock().unwrap().registered.contains_key(&number));
    assert_eq!(device.0.lock().unwrap().registered.len(), 1);
}

#[test]
fn memory_that_others_can_take_away_is_registered_for_one_use() {
    let Some((cache, device, _mapping)) = with_known() else { return };
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("longarm-test", flags).unwrap();
    rustix::fs::ftruncate(&file, (PAGES * page_bytes()) as u64).unwrap();
    let shared = Mapping::of_file(&file, PAGES);
    let before = device.0.lock().unwrap().registered.len();
    let pinned = acquire(&cache, &shared);
    assert_eq!(found_fresh(&cache, &shared), 0);
    assert_eq!(cache.statistics().uncached, 1);
    drop(pinned);
    assert_eq!(device.0.lock().unwrap().registered.len(), before);
    // Nothing of it is watched, so this waits for nobody.
    drop(cache);
    drop(shared);
}

/// Memory that others share, and a cache for it.
fn shared_memory(options: Options) -> (Cache<Recording>, Recording, Mapping) {
    let file = rustix::fs::memfd_create("longarm-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, (PAGES * page_bytes()) as u64).unwrap();
    let device = Recording::default();
    (Cache::new(device.clone(), options).unwrap(), device, Mapping::of_file(&file, PAGES))
}

#[test]
fn memory_that_is_held_is_known_until_that_ends_though_nobody_can_watch_it() {
    for watch in [Watch::Auto, Watch::Off] {
        let (cache, device, shared) = shared_memory(Options { watch, ..Options::default() });
        let hold = cache.hold(shared.start, shared.bytes);
        let first = cache.acquire(shared.page(1), page_bytes()).unwrap();
        assert_eq!(cache.lookup(shared.page(1), 5).unwrap().handle().number, first.handle().number);
        // What touches it is made together with it, and what lies beyond what is held is not.
        let both = cache.acquire(shared.page(2), page_bytes()).unwrap();
        assert_eq!((both.start(), both.bytes()), (shared.page(1), 2 * page_bytes()));
        assert!(cache.acquire(shared.page(1), 5).is_ok_and(|again| again.handle().number == both.handle().number));
        let statistics = cache.statistics();
        assert_eq!((statistics.misses, statistics.hits, statistics.uncached), (2, 2, 0), "{watch:?}");
        drop((first, both));
        drop(hold);
        assert!(cache.lookup(shared.page(1), 5).is_none(), "{watch:?}");
        assert_eq!(device.0.lock().unwrap().registered.len(), 0, "{watch:?}");
        drop(cache.acquire(shared.page(1), 5).unwrap());
        assert_eq!(cache.statistics().uncached, 1, "{watch:?}");
    }
}

#[test]
fn what_is_held_and_what_is_watched_stay_apart() {
    let Some((cache, _, mapping)) = with_known() else { return };
    let (half, half_bytes) = (PAGES / 2, mapping.bytes / 2);
    cache.invalidate(mapping.start, mapping.bytes);
    let hold = cache.hold(mapping.page(half), half_bytes);
    for start in [mapping.page(0), mapping.page(half)] {
        let pinned = cache.acquire(start, half_bytes).unwrap();
        assert_eq!((pinned.start(), pinned.bytes()), (start, half_bytes));
    }
    drop(hold);
    assert!(cache.lookup(mapping.page(half), 1).is_none());
    assert!(cache.lookup(mapping.page(0), half_bytes).is_some());
    drop(cache.acquire(mapping.page(half), half_bytes).unwrap());
    mapping.unmap(half, half);
    assert!(cache.lookup(mapping.page(half), 1).is_none(), "from then on it is watched");
}

/// While it registers a hold ends.
#[derive(Clone, Default)]
struct Ending(Arc<Mutex<Option<Hold<Ending>>>>);

impl Registrar for Ending {
    type Handle = ();
    fn register(&self, _: usize, _: usize) -> Result<(), RegisterError> {
        drop(self.0.lock().unwrap().take());
        Ok(())
    }
}

#[test]
fn a_hold_that_ends_while_its_memory_is_registered_keeps_that_from_being_kept() {
    let registrar = Ending::default();
    let cache = Cache::new(registrar.clone(), Options::default()).unwrap();
    let mapping = Mapping::new(1);
    *registrar.0.lock().unwrap() = Some(cache.hold(mapping.start, mapping.bytes));
    drop(cache.acquire(mapping.start, mapping.bytes).unwrap());
    assert!(cache.lookup(mapping.start, mapping.bytes).is_none());
    assert_eq!(cache.statistics().uncached, 1);
}

#[test]
fn a_second_cache_registers_what_the_first_watches_for_one_use() {
    let Some((first, _, mapping)) = with_known() else { return };
    let Some(second) = watching(Looking::default(), Options::default()) else { return };
    drop(acquire(&second, &mapping));
    assert_eq!((found_fresh(&second, &mapping), second.statistics().uncached), (0, 1));
    // The first has let go: the second may.
    first.invalidate(mapping.start, mapping.bytes);
    drop(acquire(&second, &mapping));
    assert_eq!((found_fresh(&second, &mapping), second.statistics().misses), (PAGES, 1));
    mapping.unmap(0, PAGES);
    assert_eq!(found_fresh(&second, &mapping), 0);
}

/// Drops of handles that unmap watched memory, as a free in a device's library may.
#[test]
fn a_handle_that_unmaps_watched_memory_when_dropped_holds_up_nobody() {
    #[derive(Default)]
    struct Owning(Mutex<Vec<Mapping>>);
    impl Registrar for Owning {
        type Handle = Option<Mutex<Mapping>>;
        fn register(&self, _start: usize, _bytes: usize) -> Result<Self::Handle, RegisterError> {
            Ok(self.0.lock().unwrap().pop().map(Mutex::new))
        }
    }
    // Each registration but the first owns the memory of the one before: one unmapping brings about the next.
    let chain: Vec<Mapping> = (0..20).map(|_| Mapping::new(1)).collect();
    let addresses: Vec<usize> = chain.iter().map(|mapping| mapping.start).collect();
    let last = Mapping::new(1);
    let Some(cache) = watching(Owning(Mutex::new(chain)), Options { merge_bytes_max: 0, ..Options::default() }) else {
        return;
    };
    // The list is taken from its end.
    let mut starts: Vec<usize> = addresses.iter().rev().copied().collect();
    starts.insert(0, last.start);
    for start in &starts {
        drop(cache.acquire(*start, 1).unwrap());
    }
    assert_eq!(cache.statistics().entries, 21);
    last.unmap(0, 1);
    while cache.statistics().bytes > 0 {
        std::thread::yield_now();
    }
    assert_eq!(cache.statistics().invalidations, 21);
}

/// Pseudo-random numbers, the same each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

/// Changes some pages in one of the ways there are. Which ones.
fn change(mapping: &Mapping, draw: &mut Draw) -> (usize, usize) {
    let first = draw.below(PAGES);
    let pages = 1 + draw.below(PAGES - first);
    match draw.below(4) {
        0 => {
            mapping.unmap(first, pages);
            // Another thread's mapping may be there for a moment.
            while !mapping.map_again(first, pages) {
                std::thread::yield_now();
            }
        }
        1 => mapping.map_over(first, pages),
        2 => mapping.discard(first, pages),
        _ => {
            let fresh = Mapping::new(PAGES);
            let target = Mapping { start: mapping.start, bytes: mapping.bytes };
            std::mem::forget(fresh.moved_onto(target));
            return (0, PAGES);
        }
    }
    (first, pages)
}

#[test]
fn threads_that_change_memory_and_transfer_at_the_same_time_find_nothing_stale() {
    // Room for half of what they use, so that there are evictions as well.
    let bytes_max = 2 * PAGES * page_bytes();
    let options = Options { bytes_max: 2 * bytes_max, entries_max: 12, ..Options::default() };
    let registrar = Looking::default();
    let device = registrar.0.clone();
    device.0.lock().unwrap().bytes_max = Some(bytes_max);
    let Some(cache) = watching(registrar, options) else { return };
    let cache = &cache;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                let mut draw = Draw(thread);
                let mapping = Mapping::new(PAGES);
                let mut in_use = Vec::new();
                let mut contents = [0; PAGES];
                for round in 0..400usize {
                    let content = u8::try_from(round % 251).unwrap();
                    let (first, pages) = change(&mapping, &mut draw);
                    // What was not changed keeps its content, as its registration may have been kept.
                    fill(&mapping, first..first + pages, content);
                    contents[first..first + pages].fill(content);
                    assert!(found_fresh(cache, &mapping) <= PAGES);
                    for _ in 0..4 {
                        let first = draw.below(PAGES);
                        let pages = 1 + draw.below(PAGES - first);
                        match cache.acquire(mapping.page(first), pages * page_bytes()) {
                            Ok(pinned) => {
                                for (page, content) in contents.iter().enumerate().skip(first).take(pages) {
                                    assert_eq!(pinned.handle().sees(mapping.page(page)), *content);
                                }
                                in_use.push(pinned);
                            }
                            Err(RegisterError::Limit { .. } | RegisterError::Full { .. }) => in_use.clear(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                    if in_use.len() > 2 {
                        in_use.clear();
                    }
                    found_fresh(cache, &mapping);
                }
            });
        }
    });
    let statistics = cache.statistics();
    eprintln!("{statistics}");
    assert!(statistics.hits > 0 && statistics.invalidations > 0 && statistics.evictions > 0);
    cache.invalidate(0, usize::MAX);
    assert!(device.0.lock().unwrap().registered.is_empty());
}

/// One thread unmaps, and another maps the same addresses as soon as they are free: before the first thread's call has
/// returned.
#[test]
fn memory_that_goes_from_one_thread_to_another_is_never_stale() {
    let registrar = Looking::default();
    let Some(cache) = watching(registrar, Options::default()) else { return };
    let mapping = Mapping::new(PAGES);
    let barrier = Barrier::new(2);
    let (cache, mapping, barrier) = (&cache, &mapping, &barrier);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..1000 {
                barrier.wait();
                mapping.unmap(0, PAGES);
            }
        });
        for round in 0..1000usize {
            let content = u8::try_from(round % 251).unwrap();
            fill(mapping, 0..1, content);
            drop(acquire(cache, mapping));
            barrier.wait();
            while !mapping.map_again(0, PAGES) {
                std::thread::yield_now();
            }
            assert!(cache.lookup(mapping.start, 1).is_none(), "round {round}");
            let pinned = acquire(cache, mapping);
            assert_eq!(pinned.handle().sees(mapping.start), 0, "round {round}");
        }
    });
}
