//! Read-modify-writes of one word of a window, by one instruction of the CPU each (or a short loop where it has none).
//!
//! Why SeqCst: read-modify-writes are what programs build their own locks and flags of. Two ranks that each set their
//! own flag and then fetch the other's (Dekker's pattern, across two windows) must not both find the other's flag
//! unset; acquire and release alone allow just that. On x86_64 it costs nothing more.
//!
//! If a process dies, the word was updated or it was not.

use longarm_proto::{Rmw, RmwOp, RmwWidth};

use crate::outside::OutsideWindow;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Why a word was not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AmoError {
    /// It is not all inside the window.
    #[error("a word of {bytes} bytes at offset {offset} is not inside a window of {window_bytes} bytes")]
    OutsideWindow {
        /// Where the word starts.
        offset: u64,
        /// Its size.
        bytes: u64,
        /// The size of the window.
        window_bytes: u64,
    },
    /// Its offset is no multiple of its size.
    #[error("a word at offset {offset} is not aligned to its size")]
    Misaligned {
        /// Where the word starts.
        offset: u64,
    },
}

impl From<OutsideWindow> for AmoError {
    fn from(outside: OutsideWindow) -> Self {
        let OutsideWindow { offset, bytes, window_bytes } = outside;
        AmoError::OutsideWindow { offset, bytes, window_bytes }
    }
}

/// Does a read-modify-write and returns the old value.
///
/// # Safety
///
/// `word` is mapped for the width of the operation and aligned to it, and is accessed by atomics and region copies only.
// Always inlined: who knows the operation is left with one instruction.
#[inline(always)]
pub unsafe fn rmw(word: *mut u8, rmw: Rmw) -> u64 {
    match rmw.width {
        RmwWidth::W64 => {
            // SAFETY: the caller's promise.
            let word = unsafe { AtomicU64::from_ptr(word.cast()) };
            rmw_u64(word, rmw.op, rmw.operand, rmw.compare)
        }
        RmwWidth::W32 => {
            // SAFETY: the caller's promise.
            let word = unsafe { AtomicU32::from_ptr(word.cast()) };
            // The low halves count.
            u64::from(rmw_u32(word, rmw.op, rmw.operand as u32, rmw.compare as u32))
        }
    }
}

macro_rules! rmw_of_width {
    ($name:ident, $atomic:ty, $value:ty, $signed:ty) => {
        #[inline(always)]
        fn $name(word: &$atomic, op: RmwOp, operand: $value, compare: $value) -> $value {
            match op {
                RmwOp::FetchAdd => word.fetch_add(operand, Ordering::SeqCst),
                RmwOp::Swap | RmwOp::Set => word.swap(operand, Ordering::SeqCst),
                RmwOp::CompareSwap => {
                    let result = word.compare_exchange(compare, operand, Ordering::SeqCst, Ordering::SeqCst);
                    result.unwrap_or_else(|found| found)
                }
                RmwOp::FetchAnd => word.fetch_and(operand, Ordering::SeqCst),
                RmwOp::FetchOr => word.fetch_or(operand, Ordering::SeqCst),
                RmwOp::FetchXor => word.fetch_xor(operand, Ordering::SeqCst),
                RmwOp::Fetch => word.load(Ordering::SeqCst),
                RmwOp::FetchMinSigned => store_if!(word, operand, |old| (operand as $signed) < old as $signed),
                RmwOp::FetchMaxSigned => store_if!(word, operand, |old| operand as $signed > old as $signed),
                RmwOp::FetchMinUnsigned => store_if!(word, operand, |old| operand < old),
                RmwOp::FetchMaxUnsigned => store_if!(word, operand, |old| operand > old),
            }
        }
    };
}

/// The processor has no instruction for it. Another round is made only where somebody else has changed the word meanwhile; what changes
/// nothing stores nothing.
macro_rules! store_if {
    ($word:ident, $operand:ident, $wins:expr) => {{
        let wins = $wins;
        let mut old = $word.load(Ordering::SeqCst);
        while wins(old) {
            match $word.compare_exchange(old, $operand, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => break,
                Err(found) => old = found,
            }
        }
        old
    }};
}
rmw_of_width!(rmw_u32, AtomicU32, u32, i32);
rmw_of_width!(rmw_u64, AtomicU64, u64, i64);

/// Reads a word with Acquire.
///
/// # Safety
///
/// As for [`rmw`], for 4 bytes.
#[inline]
pub(crate) unsafe fn load_u32(word: *mut u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU32::from_ptr(word) }.load(Ordering::Acquire)
}

/// Reads a word with Acquire.
///
/// # Safety
///
/// As for [`rmw`], for 8 bytes.
#[inline]
pub(crate) unsafe fn load_u64(word: *mut u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Acquire)
}

/// Exchanges a word, in one order with all that is sequentially consistent: who gives a mutex back looks then for who asks for it.
///
/// # Safety
///
/// As for [`rmw`], for 4 bytes.
#[inline]
pub(crate) unsafe fn compare_exchange_u32(word: *mut u32, from: u32, to: u32) -> Result<u32, u32> {
    // SAFETY: the caller's promise.
    unsafe { AtomicU32::from_ptr(word) }.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each operation leaves behind in a word of 8 bytes.
    fn expected(op: RmwOp, old: u64, operand: u64, compare: u64) -> u64 {
        match op {
            RmwOp::FetchAdd => old.wrapping_add(operand),
            RmwOp::Swap | RmwOp::Set => operand,
            RmwOp::CompareSwap => {
                if old == compare {
                    operand
                } else {
                    old
                }
            }
            RmwOp::FetchAnd => old & operand,
            RmwOp::FetchOr => old | operand,
            RmwOp::FetchXor => old ^ operand,
            RmwOp::Fetch => old,
            RmwOp::FetchMinSigned => (old as i64).min(operand as i64) as u64,
            RmwOp::FetchMaxSigned => (old as i64).max(operand as i64) as u64,
            RmwOp::FetchMinUnsigned => old.min(operand),
            RmwOp::FetchMaxUnsigned => old.max(operand),
        }
    }

    #[test]
    fn every_operation_leaves_what_it_says_and_returns_what_was() {
        let values = [0, 1, 5, 0xFFFF_FFFF, 0x1_0000_0000, 0xF0F0_F0F0_F0F0_F0F0, u64::MAX];
        for &op in RmwOp::ALL {
            for (old, operand, compare) in
                values.iter().flat_map(|&a| values.iter().flat_map(move |&b| values.map(move |c| (a, b, c))))
            {
                let mut word = old;
                let request = Rmw { op, width: RmwWidth::W64, operand, compare };
                // SAFETY: a word of our own.
                let found = unsafe { rmw((&raw mut word).cast(), request) };
                assert_eq!((found, word), (old, expected(op, old, operand, compare)), "{op:?}");

                let mut word = old as u32;
                let request = Rmw { op, width: RmwWidth::W32, operand, compare };
                // SAFETY: a word of our own.
                let found = unsafe { rmw((&raw mut word).cast(), request) };
                let low = u64::from(u32::MAX);
                // Signed numbers keep their sign when they become wider.
                let signed = matches!(op, RmwOp::FetchMinSigned | RmwOp::FetchMaxSigned);
                let widen = |value: u64| if signed { value as i32 as u64 } else { value & low };
                let left = expected(op, widen(old), widen(operand), widen(compare)) & low;
                assert_eq!((found, u64::from(word)), (old & low, left), "{op:?}");
            }
        }
    }

    #[test]
    fn the_largest_and_the_smallest_of_what_many_threads_bring_stay() {
        let (largest, smallest) = (AtomicU64::new(0), AtomicU32::new(0));
        let rounds = if cfg!(miri) { 50 } else { 50_000 };
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (largest, smallest) = (&largest, &smallest);
                scope.spawn(move || {
                    for round in 0..rounds {
                        let operand = 2 * round + thread;
                        let raise = Rmw { op: RmwOp::FetchMaxUnsigned, width: RmwWidth::W64, operand, compare: 0 };
                        // SAFETY: an atomic word that lives on.
                        let old = unsafe { rmw(largest.as_ptr().cast(), raise) };
                        assert!(round == 0 || old >= operand - 2, "{old} came after {}", operand - 2);
                        let operand = (operand as i64).wrapping_neg() as u64;
                        let lower = Rmw { op: RmwOp::FetchMinSigned, width: RmwWidth::W32, operand, compare: 0 };
                        // SAFETY: likewise.
                        unsafe { rmw(smallest.as_ptr().cast(), lower) };
                    }
                });
            }
        });
        assert_eq!(largest.load(Ordering::Relaxed), 2 * rounds - 1);
        assert_eq!(smallest.load(Ordering::Relaxed) as i32, -(2 * rounds as i32 - 1));
    }

    #[test]
    fn additions_of_many_threads_are_all_counted() {
        let word = AtomicU64::new(0);
        let rounds = if cfg!(miri) { 50 } else { 50_000 };
        std::thread::scope(|scope| {
            for width in [RmwWidth::W64, RmwWidth::W64] {
                let word = &word;
                scope.spawn(move || {
                    for _ in 0..rounds {
                        let request = Rmw { op: RmwOp::FetchAdd, width, operand: 3, compare: 0 };
                        // SAFETY: an atomic word that lives on.
                        unsafe { rmw(word.as_ptr().cast(), request) };
                    }
                });
            }
        });
        assert_eq!(word.load(Ordering::Relaxed), 2 * 3 * rounds);
    }
}
