//! What is done with the elements of a run: integers by atomics, or in private memory under a lock; floating-point sums in place; minimum and
//! maximum in private memory; replacing by a copy.

use std::mem::MaybeUninit;

use longarm_memory::{Adder, Region, RegionMut};
use longarm_proto::{AccumulateOp, ElementType, Kernel, Scale};

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Combines a run of the target with one of the source, both equally long and whole elements.
/// The scale is lent: copying one that was just made would stall the processor.
type Combine = fn(RegionMut<'_>, Region<'_>, &Scale);

/// What is done with a run.
#[derive(Clone, Copy)]
pub(super) enum How {
    /// A floating-point sum in place, under stripe locks.
    Sum(Adder),
    /// Under stripe locks.
    Locked(Combine),
    /// By atomics where elements are aligned, else under stripe locks.
    Integer { atomic: Combine, locked: Combine },
}

impl How {
    /// What is done under the stripe lock of the run.
    #[inline]
    pub(super) fn locked(&self, target: RegionMut<'_>, source: Region<'_>, scale: &Scale) {
        match self {
            How::Sum(adder) => adder.add(target, source),
            How::Locked(combine) | How::Integer { locked: combine, .. } => combine(target, source, scale),
        }
    }
}

/// What a kernel does with a run.
#[inline(always)]
pub(super) fn how(kernel: Kernel, scale: &Scale) -> How {
    match (kernel.element(), kernel.op()) {
        (ElementType::F64, AccumulateOp::Sum) => How::Sum(Adder::f64(f64::of_scale(scale, 0))),
        (ElementType::F32, AccumulateOp::Sum) => How::Sum(Adder::f32(f32::of_scale(scale, 0))),
        (ElementType::C64, AccumulateOp::Sum) => How::Sum(Adder::c64([0, 1].map(|part| f64::of_scale(scale, part)))),
        (ElementType::C32, AccumulateOp::Sum) => How::Sum(Adder::c32([0, 1].map(|part| f32::of_scale(scale, part)))),
        (ElementType::F64, op) => float::<f64>(op),
        (ElementType::F32, op) => float::<f32>(op),
        (ElementType::C64, op) => complex::<f64>(op),
        (ElementType::C32, op) => complex::<f32>(op),
        (ElementType::I32, op) => integer::<i32>(op),
        (ElementType::I64, op) => integer::<i64>(op),
        (ElementType::U32, op) => integer::<u32>(op),
        (ElementType::U64, op) => integer::<u64>(op),
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
pub(super) unsafe trait Element: Copy {}

macro_rules! elements {
    ($($element:ty)+) => {$(
        // SAFETY: a plain number or a pair of them; 4, 8 or 16 bytes.
        unsafe impl Element for $element {}
        const _: () = assert!(CHUNK_BYTES.is_multiple_of(size_of::<$element>()));
    )+};
}
elements! { i32 i64 u32 u64 f32 f64 [f32; 2] [f64; 2] }

/// Combines in private memory, with the widest vectors that this processor has.
///
/// Wide loads right behind narrow stores stall the processor, so the loops have to be as wide as the copies are.
fn in_private<T: Element>(target: RegionMut<'_>, source: Region<'_>, combine: impl Fn(&mut [T], &[T])) {
    #[cfg(all(target_arch = "x86_64", not(longarm_portable)))]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        unsafe { chunk_by_chunk_avx2(target, source, combine) };
        return;
    }
    chunk_by_chunk(target, source, combine);
}

/// As `chunk_by_chunk`, which becomes a part of it, compiled for wider vectors. Not for fused multiply-add: the result
/// is the same on every machine.
#[cfg(all(target_arch = "x86_64", not(longarm_portable)))]
#[target_feature(enable = "avx2")]
fn chunk_by_chunk_avx2<T: Element>(target: RegionMut<'_>, source: Region<'_>, combine: impl Fn(&mut [T], &[T])) {
    chunk_by_chunk(target, source, combine);
}

#[inline(always)]
fn chunk_by_chunk<T: Element>(target: RegionMut<'_>, source: Region<'_>, combine: impl Fn(&mut [T], &[T])) {
    let (mut targets, mut sources) = (Chunk::new(), Chunk::new());
    let mut done = 0;
    while done < source.len() {
        let count = CHUNK_BYTES.min(source.len() - done);
        let target = target.slice(done, count);
        let private: &mut [T] = targets.fill(target.as_region());
        combine(private, sources.fill(source.slice(done, count)));
        // SAFETY: the bytes of a slice of elements that lives on; nobody writes it during the copy.
        let private = unsafe { Region::from_raw(private.as_ptr().cast(), count) };
        target.copy_from(private);
        done += count;
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
pub(super) trait Float: Element {
    /// The value at an index of a scale.
    fn of_scale(scale: &Scale, index: usize) -> Self;
    /// The smaller one; a NaN loses.
    fn minimum(self, other: Self) -> Self;
    /// The larger one; a NaN loses.
    fn maximum(self, other: Self) -> Self;
}

macro_rules! floats {
    ($($float:ty)+) => {$(
        impl Float for $float {
            #[inline(always)]
            fn of_scale(scale: &Scale, index: usize) -> Self {
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
#[inline(always)]
fn part_of<const BYTES: usize>(scale: &Scale, index: usize) -> [u8; BYTES] {
    std::array::from_fn(|byte| scale.0[index * BYTES + byte])
}

fn float<T: Float>(op: AccumulateOp) -> How {
    How::Locked(match op {
        AccumulateOp::Min => |target, source, _| in_private(target, source, each(T::minimum)),
        AccumulateOp::Max => |target, source, _| in_private(target, source, each(T::maximum)),
        AccumulateOp::Replace => replace,
        _ => unreachable!("sums are elsewhere, and a kernel has no bitwise operations on floating-point numbers"),
    })
}

fn complex<T: Float>(op: AccumulateOp) -> How {
    assert_eq!(op, AccumulateOp::Replace, "sums are elsewhere, and a kernel of complex numbers is nothing else");
    How::Locked(replace)
}

fn replace(target: RegionMut<'_>, source: Region<'_>, _: &Scale) {
    target.copy_from(source);
}

/// An integer, which one CPU atomic can update.
trait Integer:
    Element + Ord + std::ops::BitAnd<Output = Self> + std::ops::BitOr<Output = Self> + std::ops::BitXor<Output = Self>
{
    fn of_scale(scale: &Scale) -> Self;
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
            fn of_scale(scale: &Scale) -> Self {
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
                    AccumulateOp::Sum => { word.fetch_add(bits, Ordering::Release); }
                    AccumulateOp::And => { word.fetch_and(bits, Ordering::Release); }
                    AccumulateOp::Or => { word.fetch_or(bits, Ordering::Release); }
                    AccumulateOp::Xor => { word.fetch_xor(bits, Ordering::Release); }
                    AccumulateOp::Replace => word.store(bits, Ordering::Release),
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
                self.compare_exchange_weak(from, to, Ordering::Release, Ordering::Relaxed)
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

fn integer<T: Integer>(op: AccumulateOp) -> How {
    /// Both ways of one operation. It is a constant in each, so that no loop asks which it is.
    macro_rules! both {
        ($op:ident, $combine:expr) => {
            How::Integer {
                atomic: |target, source, _| atomically::<T>(target, source, AccumulateOp::$op, |source| source),
                locked: |target, source, _| in_private::<T>(target, source, each($combine)),
            }
        };
    }
    match op {
        AccumulateOp::Sum => How::Integer {
            atomic: |target, source, scale| {
                let scale = T::of_scale(scale);
                atomically::<T>(target, source, AccumulateOp::Sum, |source| scale.multiply(source));
            },
            locked: |target, source, scale| {
                let scale = T::of_scale(scale);
                in_private::<T>(target, source, each(|target: T, source| target.add(scale.multiply(source))));
            },
        },
        AccumulateOp::Min => both!(Min, |target: T, source| target.min(source)),
        AccumulateOp::Max => both!(Max, |target: T, source| target.max(source)),
        AccumulateOp::And => both!(And, |target: T, source| target & source),
        AccumulateOp::Or => both!(Or, |target: T, source| target | source),
        AccumulateOp::Xor => both!(Xor, |target: T, source| target ^ source),
        AccumulateOp::Replace => both!(Replace, |_: T, source| source),
    }
}

/// target += scale × source, of one aligned word: the short way for a 64-bit integer, with no chunk and no choice by type. Signed and unsigned ones wrap
/// alike.
///
/// # Panics
///
/// If one of them has not 8 bytes, or the target is not aligned.
#[inline]
pub(super) fn sum_one_word(target: RegionMut<'_>, source: Region<'_>, scale: &Scale) {
    let word = target.as_mut_ptr().cast::<u64>();
    assert!(target.len() == size_of::<u64>() && word.is_aligned(), "the caller has looked at the target");
    let mut bytes = [0; size_of::<u64>()];
    source.copy_to_slice(&mut bytes);
    let sum = u64::from_ne_bytes(bytes).wrapping_mul(<u64 as Integer>::of_scale(scale));
    // SAFETY: a region is mapped, and accessed by atomics and region copies only; this one is a word, aligned (asserted both). The source is scaled.
    unsafe { u64::combine_atomic(word, AccumulateOp::Sum, sum) };
}

/// Combines aligned words, one atomic each.
#[inline(always)]
fn atomically<T: Integer>(target: RegionMut<'_>, source: Region<'_>, op: AccumulateOp, prepare: impl Fn(T) -> T) {
    let words = target.as_mut_ptr().cast::<T>();
    assert!(words.is_aligned(), "an aligned place of a memfd is mapped at an aligned address");
    let bytes = source.len();
    assert_eq!(target.len(), bytes, "the caller cuts the target to the source");
    let mut sources = Chunk::new();
    let mut done = 0;
    while done < bytes {
        let count = CHUNK_BYTES.min(bytes - done);
        let first = words.wrapping_add(done / size_of::<T>());
        let private: &[T] = sources.fill(source.slice(done, count));
        for (index, &value) in private.iter().enumerate() {
            // SAFETY: `done / size + index` is less than the source's elements, which are as many as the target's
            // (asserted), and the target is aligned (asserted) and a region, so it is mapped.
            unsafe { T::combine_atomic(first.wrapping_add(index), op, prepare(value)) };
        }
        done += count;
    }
}
