//! Accumulate: target = target (op) source, element by element, each element atomically.
//!
//! ```text
//!   aligned integers    one CPU atomic an element, so that accumulates and read-modify-writes of a word mix
//!   all others          for each block of 4 KiB: take its stripe lock, then for each chunk of the block
//!                       copy in target and source, combine in private memory, copy out; free the lock
//! ```
//!
//! Elements that straddle two blocks belong to the block of their first byte, so that everybody takes the same lock for
//! the same element, wherever his range begins. All who update one place have to take its elements for the same type
//! at the same places; what else they do is atomic too, but not with respect to each other.
//!
//! A plain put or get of a floating-point element is not held up by the lock: it is a copy like any other.
//!
//! It orders nothing (Relaxed): quiet and barrier do, or a read-modify-write after it.
//!
//! If a process dies in it, any of its elements may have been updated, none of them twice; under the stripe lock that
//! it held, one chunk may be torn, see `stripe`.

use std::mem::MaybeUninit;

use longarm_memory::{Region, RegionMut};
use longarm_proto::{AccumulateOp, ElementType, Kernel, Rank, Scale};

use crate::stripe::{BLOCK_BITS, Stripes};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::window::OutsideWindow;

/// Why nothing was accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccumulateError {
    /// The bytes are not all inside the window.
    #[error(transparent)]
    OutsideWindow(#[from] OutsideWindow),
    /// The source is not a whole number of elements.
    #[error("{bytes} bytes are no whole number of elements of {element_bytes} bytes")]
    PartOfAnElement {
        /// The source's size.
        bytes: u64,
        /// The size of an element.
        element_bytes: u64,
    },
}

/// Where an accumulate goes, and by whom.
pub(crate) struct Place<'a> {
    /// The bytes to update, as many as the source has.
    pub target: RegionMut<'a>,
    /// Where they start in the memfd, in bytes.
    pub start: u64,
    pub stripes: Stripes<'a>,
    pub who: Rank,
}

/// Combines `source` into `place`. Both have the same length, a multiple of the element's size.
pub(crate) fn accumulate(place: &Place<'_>, kernel: Kernel, scale: Scale, source: Region<'_>) {
    assert_eq!(place.target.len(), source.len(), "the caller cuts the target to the source");
    match kernel.element() {
        ElementType::F32 => float::<f32>(place, kernel.op(), scale, source),
        ElementType::F64 => float::<f64>(place, kernel.op(), scale, source),
        ElementType::C32 => complex::<f32>(place, kernel.op(), scale, source),
        ElementType::C64 => complex::<f64>(place, kernel.op(), scale, source),
        ElementType::I32 => integer::<i32>(place, kernel.op(), scale, source),
        ElementType::I64 => integer::<i64>(place, kernel.op(), scale, source),
        ElementType::U32 => integer::<u32>(place, kernel.op(), scale, source),
        ElementType::U64 => integer::<u64>(place, kernel.op(), scale, source),
    }
}

/// Bytes that are combined at a time, in private memory that stays in the first-level cache.
const CHUNK_BYTES: usize = 512;

/// Private memory for one chunk, aligned for every vector.
#[repr(C, align(64))]
struct Chunk([MaybeUninit<u8>; CHUNK_BYTES]);

impl Chunk {
    #[inline]
    fn new() -> Self {
        Chunk([MaybeUninit::uninit(); CHUNK_BYTES])
    }

    /// The chunk's bytes become those of `region`; they are given back as elements.
    #[inline]
    fn fill<T: Element>(&mut self, region: Region<'_>) -> &mut [T] {
        let bytes = region.len();
        assert!(bytes <= CHUNK_BYTES && bytes.is_multiple_of(size_of::<T>()));
        let start = self.0.as_mut_ptr().cast::<u8>();
        // SAFETY: `bytes` of the chunk are ours to write, asserted above; nobody else sees them.
        let private = unsafe { RegionMut::from_raw(start, bytes) };
        private.copy_from(region);
        // SAFETY: the bytes were just written, every bit pattern is an element (`Element`), the chunk is aligned to 64
        // bytes, and `self` stays borrowed as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(start.cast::<T>(), bytes / size_of::<T>()) }
    }
}

/// What chunks can be taken for.
///
/// # Safety
///
/// Every bit pattern is a value, there is no padding, the alignment is 64 bytes at most and the size divides
/// [`CHUNK_BYTES`].
unsafe trait Element: Copy {}

macro_rules! elements {
    ($($element:ty)+) => {$(
        // SAFETY: a plain number or a pair of them; 4, 8 or 16 bytes.
        unsafe impl Element for $element {}
        const _: () = assert!(CHUNK_BYTES.is_multiple_of(size_of::<$element>()));
    )+};
}
elements! { i32 i64 u32 u64 f32 f64 [f32; 2] [f64; 2] }

/// Combines under stripe locks, with the widest vectors that this processor has.
///
/// Wide loads right behind narrow stores stall the processor, so the loops have to be as wide as the copies are.
fn under_stripes<T: Element>(place: &Place<'_>, source: Region<'_>, combine: impl Fn(&mut [T], &[T])) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        unsafe { block_by_block_avx2(place, source, combine) };
        return;
    }
    block_by_block(place, source, combine);
}

/// As `block_by_block`, which becomes a part of it, compiled for wider vectors. Not for fused multiply-add: the result
/// is the same on every machine.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn block_by_block_avx2<T: Element>(place: &Place<'_>, source: Region<'_>, combine: impl Fn(&mut [T], &[T])) {
    block_by_block(place, source, combine);
}

/// For each block: take its lock, and combine chunk by chunk.
#[inline(always)]
fn block_by_block<T: Element>(place: &Place<'_>, source: Region<'_>, combine: impl Fn(&mut [T], &[T])) {
    let size = size_of::<T>();
    let bytes = source.len();
    let (mut targets, mut sources) = (Chunk::new(), Chunk::new());
    let mut done = 0;
    while done < bytes {
        let first = place.start + done as u64;
        let block = first >> BLOCK_BITS;
        // At most a block, so the cast loses nothing. An element whose first byte is in it is in it.
        let to_end = (((block + 1) << BLOCK_BITS) - first) as usize;
        let end = bytes.min(done + to_end.next_multiple_of(size));
        let guard = place.stripes.lock(block, place.who);
        while done < end {
            let count = CHUNK_BYTES.min(end - done);
            let target = place.target.slice(done, count);
            let private: &mut [T] = targets.fill(target.as_region());
            combine(private, sources.fill(source.slice(done, count)));
            // SAFETY: the bytes of a slice of elements that lives on; nobody writes it during the copy.
            let private = unsafe { Region::from_raw(private.as_ptr().cast(), count) };
            target.copy_from(private);
            done += count;
        }
        drop(guard);
    }
}

/// One combination for each pair.
#[inline(always)]
fn each<T: Element>(combine: impl Fn(T, T) -> T) -> impl Fn(&mut [T], &[T]) {
    move |targets, sources| {
        for (target, source) in targets.iter_mut().zip(sources) {
            *target = combine(*target, *source);
        }
    }
}

/// A real floating-point number.
trait Float:
    Element + std::ops::Add<Output = Self> + std::ops::Sub<Output = Self> + std::ops::Mul<Output = Self> + PartialEq
{
    const ONE: Self;
    const ZERO: Self;
    /// The value at an index of a scale.
    fn of_scale(scale: Scale, index: usize) -> Self;
    /// The smaller one; a NaN loses.
    fn minimum(self, other: Self) -> Self;
    /// The larger one; a NaN loses.
    fn maximum(self, other: Self) -> Self;
}

macro_rules! floats {
    ($($float:ty)+) => {$(
        impl Float for $float {
            const ONE: Self = 1.0;
            const ZERO: Self = 0.0;
            fn of_scale(scale: Scale, index: usize) -> Self {
                <$float>::from_le_bytes(part_of(scale, index))
            }
            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                self.max(other)
            }
        }
    )+};
}
floats! { f32 f64 }

/// The bytes of the value at an index of a scale.
fn part_of<const BYTES: usize>(scale: Scale, index: usize) -> [u8; BYTES] {
    std::array::from_fn(|byte| scale.0[index * BYTES + byte])
}

fn float<T: Float>(place: &Place<'_>, op: AccumulateOp, scale: Scale, source: Region<'_>) {
    match op {
        AccumulateOp::Sum => {
            let scale = T::of_scale(scale, 0);
            if scale == T::ONE {
                under_stripes(place, source, each(|target: T, source| target + source));
            } else {
                under_stripes(place, source, each(|target: T, source| target + scale * source));
            }
        }
        AccumulateOp::Min => under_stripes(place, source, each(T::minimum)),
        AccumulateOp::Max => under_stripes(place, source, each(T::maximum)),
        AccumulateOp::Replace => under_stripes(place, source, each(|_: T, source| source)),
        AccumulateOp::And | AccumulateOp::Or | AccumulateOp::Xor => {
            unreachable!("a kernel has no bitwise operations on floating-point numbers")
        }
    }
}

fn complex<T: Float>(place: &Place<'_>, op: AccumulateOp, scale: Scale, source: Region<'_>)
where
    [T; 2]: Element,
{
    match op {
        AccumulateOp::Sum => {
            let (real, imaginary) = (T::of_scale(scale, 0), T::of_scale(scale, 1));
            if real == T::ONE && imaginary == T::ZERO {
                under_stripes(
                    place,
                    source,
                    each(|target: [T; 2], source| [target[0] + source[0], target[1] + source[1]]),
                );
            } else {
                let combine = |target: [T; 2], source: [T; 2]| {
                    [
                        target[0] + (real * source[0] - imaginary * source[1]),
                        target[1] + (real * source[1] + imaginary * source[0]),
                    ]
                };
                under_stripes(place, source, each(combine));
            }
        }
        AccumulateOp::Replace => under_stripes(place, source, each(|_: [T; 2], source| source)),
        _ => unreachable!("a kernel of complex numbers is a sum or a replace"),
    }
}

/// An integer, which one CPU atomic can update.
trait Integer:
    Element + Ord + std::ops::BitAnd<Output = Self> + std::ops::BitOr<Output = Self> + std::ops::BitXor<Output = Self>
{
    fn of_scale(scale: Scale) -> Self;
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    /// Combines one aligned word by one atomic of the CPU, or a loop of compare-and-swaps where it has none.
    ///
    /// # Safety
    ///
    /// `word` is mapped, aligned for `Self`, and accessed by atomics and region copies only. `op` is not `Sum` of a scaled
    /// source: scaling is done before.
    unsafe fn combine_atomic(word: *mut Self, op: AccumulateOp, source: Self);
}

macro_rules! integers {
    ($($integer:ty, $atomic:ty, $word:ty;)+) => {$(
        impl Integer for $integer {
            fn of_scale(scale: Scale) -> Self {
                <$integer>::from_le_bytes(part_of(scale, 0))
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            unsafe fn combine_atomic(word: *mut Self, op: AccumulateOp, source: Self) {
                // SAFETY: the caller's promise; the atomic has the integer's size and alignment.
                let word = unsafe { <$atomic>::from_ptr(word.cast()) };
                let bits = source as $word;
                match op {
                    AccumulateOp::Sum => { word.fetch_add(bits, Ordering::Relaxed); }
                    AccumulateOp::And => { word.fetch_and(bits, Ordering::Relaxed); }
                    AccumulateOp::Or => { word.fetch_or(bits, Ordering::Relaxed); }
                    AccumulateOp::Xor => { word.fetch_xor(bits, Ordering::Relaxed); }
                    AccumulateOp::Replace => word.store(bits, Ordering::Relaxed),
                    AccumulateOp::Min => change(word, |old| (old as $integer).min(source) as $word),
                    AccumulateOp::Max => change(word, |old| (old as $integer).max(source) as $word),
                }
            }
        }
    )+};
}
integers! { i32, AtomicU32, u32; i64, AtomicU64, u64; u32, AtomicU32, u32; u64, AtomicU64, u64; }

/// The words that `change` works on.
trait AtomicWord {
    type Value: Copy + PartialEq;
    fn load(&self) -> Self::Value;
    fn exchange(&self, from: Self::Value, to: Self::Value) -> Result<Self::Value, Self::Value>;
}

macro_rules! atomic_words {
    ($($atomic:ty, $value:ty;)+) => {$(
        impl AtomicWord for $atomic {
            type Value = $value;
            #[inline(always)]
            fn load(&self) -> $value {
                <$atomic>::load(self, Ordering::Relaxed)
            }
            #[inline(always)]
            fn exchange(&self, from: $value, to: $value) -> Result<$value, $value> {
                self.compare_exchange_weak(from, to, Ordering::Relaxed, Ordering::Relaxed)
            }
        }
    )+};
}
atomic_words! { AtomicU32, u32; AtomicU64, u64; }

/// Min and max: nothing is stored where nothing changes, so that a settled word stays shared among the caches.
#[inline(always)]
fn change<W: AtomicWord>(word: &W, new: impl Fn(W::Value) -> W::Value) {
    let mut old = word.load();
    loop {
        let wanted = new(old);
        if wanted == old {
            return;
        }
        match word.exchange(old, wanted) {
            Ok(_) => return,
            Err(found) => old = found,
        }
    }
}

fn integer<T: Integer>(place: &Place<'_>, op: AccumulateOp, scale: Scale, source: Region<'_>) {
    let scale = T::of_scale(scale);
    if place.start.is_multiple_of(size_of::<T>() as u64) {
        // The target is as aligned as its place in the memfd, which is mapped at a page.
        return match op {
            AccumulateOp::Sum => atomically(place, op, source, |source: T| scale.multiply(source)),
            _ => atomically(place, op, source, |source: T| source),
        };
    }
    match op {
        AccumulateOp::Sum => under_stripes(place, source, each(|target: T, source| target.add(scale.multiply(source)))),
        AccumulateOp::Min => under_stripes(place, source, each(|target: T, source| target.min(source))),
        AccumulateOp::Max => under_stripes(place, source, each(|target: T, source| target.max(source))),
        AccumulateOp::And => under_stripes(place, source, each(|target: T, source| target & source)),
        AccumulateOp::Or => under_stripes(place, source, each(|target: T, source| target | source)),
        AccumulateOp::Xor => under_stripes(place, source, each(|target: T, source| target ^ source)),
        AccumulateOp::Replace => under_stripes(place, source, each(|_: T, source| source)),
    }
}

/// Combines aligned words, one atomic each.
#[inline]
fn atomically<T: Integer>(place: &Place<'_>, op: AccumulateOp, source: Region<'_>, prepare: impl Fn(T) -> T) {
    let words = place.target.as_mut_ptr().cast::<T>();
    assert!(words.is_aligned(), "an aligned place of a memfd is mapped at an aligned address");
    let bytes = source.len();
    let mut sources = Chunk::new();
    let mut done = 0;
    while done < bytes {
        let count = CHUNK_BYTES.min(bytes - done);
        let first = words.wrapping_add(done / size_of::<T>());
        let private: &[T] = sources.fill(source.slice(done, count));
        for (index, &value) in private.iter().enumerate() {
            // SAFETY: `done / size + index` is less than the source's elements, which are as many as the target's, and
            // the target is aligned (asserted) and mapped as long as `place` borrows it.
            unsafe { T::combine_atomic(first.wrapping_add(index), op, prepare(value)) };
        }
        done += count;
    }
}

#[cfg(test)]
#[path = "accumulate_tests.rs"]
mod tests;
