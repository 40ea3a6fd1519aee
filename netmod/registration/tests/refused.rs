//! Where the kernel does not let us watch memory, transfers go on without a cache.

mod support;

use longarm_registration::{Cache, CacheError, Options, Watch, Watched};
use rustix::process::{Resource, Rlimit};

use support::Recording;
use support::mapping::{Mapping, in_child};

#[test]
fn without_userfaultfd_each_use_registers_anew_and_a_demand_for_it_names_the_remedy() {
    let status = in_child(|| {
        let mapping = Mapping::new(2);
        // No descriptor can be opened any more, the kernel's for watching neither.
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(Resource::Nofile, none).unwrap();
        let demanded = Cache::new(Recording::default(), Options { watch: Watch::Userfault, ..Options::default() });
        let refused = demanded.unwrap_err();
        assert!(matches!(refused, CacheError::Userfault { .. }));
        assert!(refused.to_string().contains("vm.unprivileged_userfaultfd"));
        let cache = Cache::new(Recording::default(), Options::default()).unwrap();
        for number in 1..4 {
            let pinned = cache.acquire(mapping.start, mapping.bytes).unwrap();
            assert_eq!(pinned.handle().number, number);
            assert!(cache.lookup(mapping.start, 1).is_none());
        }
        let statistics = cache.statistics();
        (statistics.watch, statistics.uncached, statistics.bytes) == (Watched::Off, 3, 0)
    });
    assert_eq!(status, 0);
}
