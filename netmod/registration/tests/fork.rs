//! A child neither uses nor tears down what its parent has registered, and does not hold it up.

mod support;

use longarm_registration::{Options, RegisterError, Registrar, Watched};
use rustix::process::{Pid, getpid};

use support::mapping::{Mapping, in_child, page_bytes};
use support::{Looking, watching};

#[test]
fn a_child_finds_nothing_and_leaves_the_registrations_alone() {
    let registrar = Looking::default();
    let device = registrar.0.clone();
    let Some(cache) = watching(registrar, Options::default()) else { return };
    let mapping = Mapping::new(4);
    let pinned = cache.acquire(mapping.start, mapping.bytes).unwrap();
    let number = pinned.handle().number;
    let (start, bytes) = (mapping.start, mapping.bytes);
    // Only its guard keeps this one, so that the guard's drop is what would deregister.
    let left = Mapping::new(1);
    let last = cache.acquire(left.start, left.bytes).unwrap();
    let last_number = last.handle().number;
    cache.invalidate(left.start, left.bytes);
    let mut held = Some((pinned, last, cache, mapping));
    let status = in_child(|| {
        let (pinned, last, cache, mapping) = held.take().unwrap();
        assert!(cache.lookup(start, 1).is_none());
        let refused = cache.acquire(start, bytes).unwrap_err();
        assert_eq!(refused, RegisterError::Forked);
        assert!(refused.to_string().contains("children"));
        assert_eq!(cache.statistics().watch, Watched::Off);
        cache.invalidate(start, bytes);
        drop(last);
        drop(pinned);
        drop(cache);
        let is_registered = |number| device.0.lock().unwrap().registered.contains_key(&number);
        assert!(is_registered(number) && is_registered(last_number));
        // Not watched here: nobody would read its event.
        drop(mapping);
        true
    });
    assert_eq!(status, 0);
    let (pinned, last, cache, mapping) = held.unwrap();
    drop(last);
    assert!(!device.0.lock().unwrap().registered.contains_key(&last_number));
    assert_eq!(cache.lookup(start, bytes).unwrap().handle().number, number);
    mapping.unmap(0, 4);
    assert!(cache.lookup(start, bytes).is_none());
    drop(pinned);
    assert!(cache.statistics().hits > 0);
}

/// A registrar may hold the device open: ending it in a child would end the parent's.
#[test]
fn a_child_that_drops_the_last_guard_of_a_cache_that_is_gone_leaves_the_registrar_alone() {
    struct Owned(Pid);
    impl Registrar for Owned {
        type Handle = ();
        fn register(&self, _start: usize, _bytes: usize) -> Result<(), RegisterError> {
            Ok(())
        }
    }
    impl Drop for Owned {
        fn drop(&mut self) {
            assert_eq!(self.0, getpid(), "dropped in a child");
        }
    }
    let Some(cache) = watching(Owned(getpid()), Options::default()) else { return };
    let mapping = Mapping::new(1);
    let mut pinned = Some(cache.acquire(mapping.start, mapping.bytes).unwrap());
    drop(cache);
    let status = in_child(|| {
        drop(pinned.take());
        true
    });
    assert_eq!(status, 0);
    assert!(pinned.is_some());
}

#[test]
fn forks_and_transfers_at_the_same_time_disturb_each_other_in_nothing() {
    let registrar = Looking::default();
    let device = registrar.0.clone();
    let Some(cache) = watching(registrar, Options::default()) else { return };
    let cache = &cache;
    std::thread::scope(|scope| {
        let working = scope.spawn(move || {
            let mapping = Mapping::new(4);
            for round in 0..2000usize {
                let content = u8::try_from(round % 251).unwrap();
                mapping.write(0, content);
                let pinned = cache.acquire(mapping.start, mapping.bytes).unwrap();
                assert_eq!(pinned.handle().sees(mapping.start), content);
                mapping.unmap(0, 4);
                assert!(cache.lookup(mapping.start, 1).is_none());
                assert!(mapping.map_again(0, 4));
            }
        });
        let mapping = Mapping::new(4);
        let mut children = 0;
        while !working.is_finished() || children == 0 {
            drop(cache.acquire(mapping.start, mapping.bytes).unwrap());
            let status = in_child(|| {
                let refused = cache.acquire(mapping.start, page_bytes()).unwrap_err() == RegisterError::Forked;
                mapping.unmap(0, 4);
                refused && cache.lookup(mapping.start, 1).is_none()
            });
            assert_eq!(status, 0);
            children += 1;
        }
        eprintln!("{children} children");
    });
    cache.invalidate(0, usize::MAX);
    assert!(device.0.lock().unwrap().registered.is_empty());
}
