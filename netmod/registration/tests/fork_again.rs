//! A child may have a cache of its own. By itself in a program: a child can start threads only if its parent was not starting one when it forked, and those that
//! run other tests are started at any time.

mod support;

use longarm_registration::Options;

use support::mapping::{Mapping, in_child};
use support::{Looking, watching};

#[test]
fn a_cache_that_a_child_makes_works() {
    let Some(cache) = watching(Looking::default(), Options::default()) else { return };
    let mapping = Mapping::new(4);
    drop(cache.acquire(mapping.start, mapping.bytes).unwrap());
    // The threads of the cache have just started.
    for _ in 0..50 {
        let status = in_child(|| {
            let own = watching(Looking::default(), Options::default()).unwrap();
            let mapping = Mapping::new(4);
            drop(own.acquire(mapping.start, mapping.bytes).unwrap());
            assert!(own.lookup(mapping.start, 1).is_some());
            mapping.unmap(0, 1);
            own.lookup(mapping.start, 1).is_none()
        });
        assert_eq!(status, 0);
        // Another one each time, which a child may come right behind.
        drop(watching(Looking::default(), Options::default()).unwrap());
    }
    assert!(cache.lookup(mapping.start, mapping.bytes).is_some());
}
