//! Does a copy belong to a walk through more memory than the caches hold?
//!
//! Many copies in a row that each begin where the one before ended leave nothing in the caches that is read soon, however
//! short each one is. A thread remembers its last walk: where it began and how far it is. A walk that begins again
//! where a long one began goes over what has left the caches meanwhile, so it is long from its start.
//!
//! A guess: a wrong one costs speed, nothing else.

use std::cell::Cell;

#[derive(Clone, Copy)]
struct Walk {
    start: usize,
    end: usize,
    is_long: bool,
}

thread_local! {
    static LAST: Cell<Walk> = const { Cell::new(Walk { start: 0, end: 0, is_long: false }) };
}

/// Whether the copy of `bytes` to this address belongs to a walk of at least `bytes_min` by this thread.
pub(crate) fn is_long_with(address: usize, bytes: usize, bytes_min: usize) -> bool {
    LAST.with(|last| {
        let mut walk = last.get();
        if address != walk.end {
            walk = Walk { start: address, end: address, is_long: walk.is_long && address == walk.start };
        }
        walk.end = address.wrapping_add(bytes);
        walk.is_long |= walk.end.wrapping_sub(walk.start) >= bytes_min;
        last.set(walk);
        walk.is_long
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of copies of 100 bytes to these addresses, which ones belong to a walk of 300 bytes.
    fn long_ones(addresses: &[usize]) -> Vec<bool> {
        addresses.iter().map(|address| is_long_with(*address, 100, 300)).collect()
    }

    #[test]
    fn a_walk_is_long_once_it_is_and_from_its_start_when_it_begins_again() {
        assert_eq!(long_ones(&[1000, 1100, 1200, 1300]), [false, false, true, true]);
        assert_eq!(long_ones(&[1000, 1100]), [true, true]);
        assert_eq!(long_ones(&[5000, 5100, 5200]), [false, false, true], "somewhere else");
        assert_eq!(long_ones(&[1000, 1100, 1200]), [false, false, true], "that walk is forgotten");
    }

    #[test]
    fn the_same_place_again_and_again_and_places_apart_are_no_walk() {
        assert_eq!(long_ones(&[1000; 8]), [false; 8]);
        assert_eq!(long_ones(&[1000, 1200, 1400, 1600, 1800]), [false; 5]);
        assert_eq!(long_ones(&[1800, 1700, 1600, 1500]), [false; 4], "backwards");
    }
}
