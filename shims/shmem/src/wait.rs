//! Waiting for words of this PE's memory to change, and looking whether they have.

use std::cell::Cell;
use std::ffi::c_int;
use std::ops::Range;

use longarm::ffi::sync::{AtomicU32, AtomicU64, Ordering, fence};

use crate::boundary::end;
use crate::job;

pub(crate) const NOT_EQUAL: c_int = 2;

/// A type of which a word can be waited for.
pub(crate) trait Watched: Copy + PartialOrd {
    /// # Safety
    /// The word is mapped and aligned.
    unsafe fn load(word: *const Self) -> Self;
}

macro_rules! watched {
    ($($type:ident $atomic:ident,)+) => {$(
        impl Watched for $type {
            #[inline(always)]
            unsafe fn load(word: *const $type) -> $type {
                // SAFETY: this function's own contract; others update it by stores and atomics.
                unsafe { $atomic::from_ptr(word.cast_mut().cast()) }.load(Ordering::Acquire) as $type
            }
        }
    )+};
}
/// Words that have no atomics in longarm's windows.
macro_rules! watched_halves {
    ($($type:ident)+) => {$(
        impl Watched for $type {
            #[inline(always)]
            unsafe fn load(word: *const $type) -> $type {
                // SAFETY: this function's own contract; others change it by stores.
                let value = unsafe { word.read_volatile() };
                fence(Ordering::Acquire);
                value
            }
        }
    )+};
}

watched_halves! { i16 u16 }
watched! { i32 AtomicU32, u32 AtomicU32, i64 AtomicU64, u64 AtomicU64, }

/// What words are compared with: one value for all, or one for each.
#[derive(Clone, Copy)]
pub(crate) enum Values<T> {
    One(T),
    List(*const T),
}

impl<T: Copy> Values<T> {
    #[inline(always)]
    pub(crate) fn one(value: T) -> Values<T> {
        Values::One(value)
    }

    #[inline(always)]
    pub(crate) fn list(values: *const T) -> Values<T> {
        Values::List(values)
    }

    /// # Safety
    /// There are more values than `at`.
    #[inline(always)]
    unsafe fn at(self, at: usize) -> T {
        match self {
            Values::One(value) => value,
            // SAFETY: this function's own contract.
            Values::List(values) => unsafe { values.wrapping_add(at).read() },
        }
    }
}

/// Several words, and which of them are left out: those whose status is not 0. No statuses: none is.
type Words<T> = (*mut T, u64, *const c_int);

#[inline(always)]
fn holds<T: Watched>(found: T, comparison: c_int, value: T) -> bool {
    match comparison {
        1 => found == value,
        NOT_EQUAL => found != value,
        3 => found > value,
        4 => found >= value,
        5 => found < value,
        _ => found <= value,
    }
}

#[inline(always)]
fn check<T>(name: &'static str, word: *const T, comparison: c_int) {
    if !(1..=6).contains(&comparison) {
        end(name, format_args!("there is no comparison {comparison}; use SHMEM_CMP_EQ, NE, GT, GE, LT or LE"));
    }
    if word.is_null() || !word.addr().is_multiple_of(align_of::<T>()) {
        end(name, format_args!("address {word:p} is NULL, or no multiple of the {} bytes of its word", size_of::<T>()));
    }
}

/// # Safety
/// The word is readable.
#[inline(always)]
pub(crate) unsafe fn until<T: Watched>(name: &'static str, word: *mut T, comparison: c_int, value: T) {
    let job = job::get(name);
    check(name, word, comparison);
    job.process.wait_for(name, || {
        // SAFETY: this function's own contract, and aligned.
        holds(unsafe { T::load(word) }, comparison, value).then_some(())
    });
}

/// # Safety
/// The word is readable.
pub(crate) unsafe fn test<T: Watched>(name: &'static str, word: *mut T, comparison: c_int, value: T) -> c_int {
    let job = job::get(name);
    check(name, word, comparison);
    // SAFETY: this function's own contract, and aligned.
    let met = holds(unsafe { T::load(word) }, comparison, value);
    if !met {
        // Who looks again and again has to let others work.
        job.process.let_others_work();
    }
    c_int::from(met)
}

/// The places of the words in a range that are not left out, and whether each holds.
///
/// # Safety
/// The words, their statuses and their values are readable.
unsafe fn holding<'a, T: Watched + 'a>(
    (words, _, statuses): Words<T>,
    range: Range<u64>,
    comparison: c_int,
    values: Values<T>,
) -> impl Iterator<Item = (usize, bool)> + 'a {
    let is_in = move |place: &usize| {
        // SAFETY: this function's own contract.
        statuses.is_null() || unsafe { statuses.wrapping_add(*place).read() } == 0
    };
    (range.start as usize..range.end as usize).filter(is_in).map(move |place| {
        // SAFETY: this function's own contract.
        let value = unsafe { values.at(place) };
        // SAFETY: this function's own contract, and aligned as the first is.
        (place, holds(unsafe { T::load(words.wrapping_add(place)) }, comparison, value))
    })
}

/// Whether all words hold that are not left out.
///
/// # Safety
/// As [`holding`].
unsafe fn do_all_hold<T: Watched>(words: Words<T>, comparison: c_int, values: Values<T>) -> bool {
    // SAFETY: this function's own contract.
    unsafe { holding(words, 0..words.1, comparison, values) }.all(|(_, holds)| holds)
}

/// # Safety
/// The words, their statuses and their values are readable.
pub(crate) unsafe fn all<T: Watched>(name: &'static str, words: Words<T>, comparison: c_int, values: Values<T>) {
    let job = job::get(name);
    if words.1 == 0 {
        return;
    }
    check(name, words.0, comparison);
    job.process.wait_for(name, || {
        // SAFETY: this function's own contract.
        unsafe { do_all_hold(words, comparison, values) }.then_some(())
    });
}

/// # Safety
/// As [`all`].
pub(crate) unsafe fn test_all<T: Watched>(
    name: &'static str,
    words: Words<T>,
    comparison: c_int,
    values: Values<T>,
) -> c_int {
    let job = job::get(name);
    if words.1 == 0 {
        return 1;
    }
    check(name, words.0, comparison);
    // SAFETY: this function's own contract.
    let met = unsafe { do_all_hold(words, comparison, values) };
    if !met {
        job.process.let_others_work();
    }
    c_int::from(met)
}

/// Where the next call that asks for any of `count` words begins to look. Calls of a thread begin at multiples of the golden
/// ratio, cut to their fractions: these are spread evenly, and so are those of every second call, or every third, so that each
/// word that holds is found in time, whatever the program asks for in between.
#[inline]
fn next_start(count: u64) -> u64 {
    /// The fraction of the ratio, in parts of 2^64.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    thread_local! {
        static FRACTION: Cell<u64> = const { Cell::new(0) };
    }
    let fraction = FRACTION.get();
    FRACTION.set(fraction.wrapping_add(STEP));
    ((u128::from(fraction) * u128::from(count)) >> 64) as u64
}

/// The first that holds from `start` on and around to it, or none, or that none is asked for.
///
/// # Safety
/// As [`holding`].
unsafe fn first<T: Watched>(words: Words<T>, start: u64, comparison: c_int, values: Values<T>) -> (Option<u64>, bool) {
    let mut is_empty = true;
    for range in [start..words.1, 0..start] {
        // SAFETY: this function's own contract.
        for (place, holds) in unsafe { holding(words, range, comparison, values) } {
            is_empty = false;
            if holds {
                return (Some(place as u64), false);
            }
        }
    }
    (None, is_empty)
}

/// # Safety
/// As [`all`].
pub(crate) unsafe fn any<T: Watched>(name: &'static str, words: Words<T>, comparison: c_int, values: Values<T>) -> u64 {
    let job = job::get(name);
    if words.1 == 0 {
        return u64::MAX;
    }
    check(name, words.0, comparison);
    let start = next_start(words.1);
    job.process.wait_for(name, || {
        // SAFETY: this function's own contract.
        match unsafe { first(words, start, comparison, values) } {
            (None, false) => None,
            (found, _) => Some(found.unwrap_or(u64::MAX)),
        }
    })
}

/// # Safety
/// As [`all`].
pub(crate) unsafe fn test_any<T: Watched>(
    name: &'static str,
    words: Words<T>,
    comparison: c_int,
    values: Values<T>,
) -> u64 {
    let job = job::get(name);
    if words.1 == 0 {
        return u64::MAX;
    }
    check(name, words.0, comparison);
    // SAFETY: this function's own contract.
    let (found, _) = unsafe { first(words, next_start(words.1), comparison, values) };
    if found.is_none() {
        job.process.let_others_work();
    }
    found.unwrap_or(u64::MAX)
}

/// Writes the places of those that hold; how many they are, and whether none is asked for.
///
/// # Safety
/// As [`holding`]; `indices` is writable for as many as there are words.
unsafe fn list<T: Watched>(words: Words<T>, indices: *mut u64, comparison: c_int, values: Values<T>) -> (u64, bool) {
    let (mut found, mut is_empty) = (0, true);
    // SAFETY: this function's own contract.
    for (place, holds) in unsafe { holding(words, 0..words.1, comparison, values) } {
        is_empty = false;
        if holds {
            // SAFETY: this function's own contract.
            unsafe { indices.wrapping_add(found as usize).write(place as u64) };
            found += 1;
        }
    }
    (found, is_empty)
}

/// # Safety
/// As [`all`]; `indices` is writable for as many as there are words.
pub(crate) unsafe fn some<T: Watched>(
    name: &'static str,
    words: Words<T>,
    indices: *mut u64,
    comparison: c_int,
    values: Values<T>,
) -> u64 {
    let job = job::get(name);
    if words.1 == 0 {
        return 0;
    }
    check(name, words.0, comparison);
    job.process.wait_for(name, || {
        // SAFETY: this function's own contract.
        match unsafe { list(words, indices, comparison, values) } {
            (0, false) => None,
            (found, _) => Some(found),
        }
    })
}

/// # Safety
/// As [`some`].
pub(crate) unsafe fn test_some<T: Watched>(
    name: &'static str,
    words: Words<T>,
    indices: *mut u64,
    comparison: c_int,
    values: Values<T>,
) -> u64 {
    let job = job::get(name);
    if words.1 == 0 {
        return 0;
    }
    check(name, words.0, comparison);
    // SAFETY: this function's own contract.
    let (found, _) = unsafe { list(words, indices, comparison, values) };
    if found == 0 {
        job.process.let_others_work();
    }
    found
}

/// # Safety
/// The word is readable.
pub(crate) unsafe fn signal_fetch(name: &'static str, signal: *const u64) -> u64 {
    job::get(name);
    check(name, signal, 1);
    // SAFETY: this function's own contract, and aligned.
    unsafe { u64::load(signal) }
}

/// # Safety
/// The word is readable.
pub(crate) unsafe fn signal_wait_until(name: &'static str, signal: *mut u64, comparison: c_int, value: u64) -> u64 {
    let job = job::get(name);
    check(name, signal, comparison);
    job.process.wait_for(name, || {
        // SAFETY: this function's own contract, and aligned.
        let found = unsafe { u64::load(signal) };
        holds(found, comparison, value).then_some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::{Values, first, next_start};

    #[test]
    fn a_call_among_any_begins_at_every_word_in_time_whatever_is_asked_for_in_between() {
        for count in [1, 2, 3, 7, 64, 1000] {
            for others in 0..5 {
                let mut found = vec![0; count as usize];
                for _ in 0..8 * count {
                    found[next_start(count) as usize] += 1;
                    for _ in 0..others {
                        next_start(2);
                    }
                }
                assert!(found.iter().all(|times| *times > 0), "{count} words, {others} others: {found:?}");
            }
        }
        assert!(next_start(u64::MAX) < u64::MAX);
    }

    #[test]
    fn the_search_goes_around_and_leaves_out_what_has_a_status() {
        let (mut words, statuses) = ([5i32, 0, 5, 5], [0, 0, 1, 0]);
        let words = (words.as_mut_ptr(), 4, statuses.as_ptr());
        let from = |start, value| {
            // SAFETY: four words and as many statuses.
            unsafe { first(words, start, 1, Values::one(value)) }
        };
        assert_eq!([0, 1, 2, 3].map(|start| from(start, 5).0), [Some(0), Some(3), Some(3), Some(3)]);
        assert_eq!(from(2, 0), (Some(1), false));
        assert_eq!(from(2, 7), (None, false));
        let none = (words.0, 4, [1, 1, 1, 1].as_ptr());
        // SAFETY: as above.
        assert_eq!(unsafe { first(none, 1, 1, Values::one(5)) }, (None, true));
    }
}
