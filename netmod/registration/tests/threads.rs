//! Where the system has no threads for the cache, transfers go on without it. A program of its own: the stacks of threads that have
//! ended are used again, so it must be known how many there were.

mod support;

use longarm_registration::{Cache, CacheError, Options, Watch, Watched};
use rustix::process::{Resource, Rlimit};

use support::Recording;
use support::mapping::{Mapping, in_child};

/// From now on this process has room for little more than it has: for no stack of a thread.
fn take_no_more_room() {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = sizes.split(' ').next().unwrap().parse().unwrap();
    let room = pages * rustix::param::page_size() as u64 + (1 << 20);
    rustix::process::setrlimit(Resource::As, Rlimit { current: Some(room), maximum: Some(room) }).unwrap();
}

/// What is left to a cache when so many threads more can be started.
fn is_off_with_threads(threads: usize) -> bool {
    let mapping = Mapping::new(2);
    let spawned: Vec<_> = (0..threads).map(|_| std::thread::spawn(|| ())).collect();
    for thread in spawned {
        thread.join().unwrap();
    }
    take_no_more_room();
    match Cache::new(Recording::default(), Options { watch: Watch::Userfault, ..Options::default() }) {
        Err(CacheError::System { .. }) => {}
        // The kernel does not even let us watch: nothing can be seen here.
        Err(CacheError::Userfault { .. }) => return true,
        Err(_) | Ok(_) => return false,
    }
    let cache = Cache::new(Recording::default(), Options::default()).unwrap();
    for number in 1..4 {
        let pinned = cache.acquire(mapping.start, mapping.bytes).unwrap();
        assert_eq!(pinned.handle().number, number);
        assert!(cache.lookup(mapping.start, 1).is_none());
    }
    let statistics = cache.statistics();
    (statistics.watch, statistics.uncached, statistics.bytes) == (Watched::Off, 3, 0)
}

#[test]
fn without_threads_each_use_registers_anew_and_a_demand_for_a_watch_is_refused() {
    // None of its two threads, and the first only.
    for threads in [0, 1] {
        assert_eq!(in_child(|| is_off_with_threads(threads)), 0, "with {threads} threads");
    }
}
