//! What C gives, as what longarm takes: pointers as bytes, strides and counts as shapes, codes as operations.

use std::ffi::{c_int, c_void};

use longarm::ffi::{
    AccumulateOp, ElementType, Grid, Kernel, LEVELS_MAX, Level, OriginBytes, OriginBytesMut, Region, RegionMut, Run,
    Scale, Shape, Step, Strided,
};

use crate::refusal::{BAD_LEVELS, Done, NEGATIVE_COUNT, NULL_POINTER, NULL_STRIDES, Refusal};

/// Stride levels of the classic interface.
pub(crate) const STRIDE_LEVELS_MAX: c_int = 8;
const _: () = assert!(STRIDE_LEVELS_MAX as usize <= LEVELS_MAX);

/// A count that C gives as a signed number.
#[inline(always)]
pub(crate) fn length(count: c_int) -> Done<u64> {
    u64::try_from(count).map_err(|_| Refusal::Code(NEGATIVE_COUNT))
}

#[inline(always)]
pub(crate) fn not_null<T>(pointer: *const T) -> Done {
    if pointer.is_null() { Err(Refusal::Code(NULL_POINTER)) } else { Ok(()) }
}

/// One side of a strided transfer.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) start: *const c_void,
    pub(crate) strides: *const c_int,
}

/// Counts of a strided transfer, checked: bytes of a run first, then how often at each level.
pub(crate) struct Counts {
    counts: [u64; LEVELS_MAX + 1],
    levels: usize,
    total_bytes: u64,
}

impl Counts {
    /// # Safety
    /// `count` is readable for `levels + 1` numbers if it is not null and `levels` is not negative.
    #[inline]
    pub(crate) unsafe fn new(count: *const c_int, levels: c_int) -> Done<Counts> {
        not_null(count)?;
        if !(0..=STRIDE_LEVELS_MAX).contains(&levels) {
            return Err(Refusal::Code(BAD_LEVELS));
        }
        let levels = levels as usize;
        let mut counts = Counts { counts: [0; LEVELS_MAX + 1], levels, total_bytes: 1 };
        for level in 0..=levels {
            // SAFETY: within `levels + 1` numbers, which are readable by this function's contract.
            let number = unsafe { count.wrapping_add(level).read_unaligned() };
            counts.counts[level] = length(number)?;
            counts.total_bytes = counts.total_bytes.saturating_mul(counts.counts[level]);
        }
        Ok(counts)
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.total_bytes == 0
    }

    /// The shape with these counts and a side's strides.
    ///
    /// # Safety
    /// `strides` is readable for as many numbers as there are levels, if it is not null.
    #[inline]
    pub(crate) unsafe fn shape(&self, offset: u64, strides: *const c_int) -> Done<Shape> {
        if self.levels == 0 {
            return Ok(Shape::Contiguous(Run { offset, bytes: self.counts[0] }));
        }
        if strides.is_null() {
            return Err(Refusal::Code(NULL_STRIDES));
        }
        let mut levels = [Level { count: 0, stride: 0 }; LEVELS_MAX];
        for (place, level) in levels[..self.levels].iter_mut().enumerate() {
            // SAFETY: within the numbers that are readable by this function's contract.
            let stride = unsafe { strides.wrapping_add(place).read_unaligned() };
            *level = Level { count: self.counts[place + 1], stride: i64::from(stride) };
        }
        let strided = Strided::new(offset, self.counts[0], &levels[..self.levels]).map_err(Refusal::fatal)?;
        Ok(Shape::Strided(strided).collapsed())
    }

    /// The bytes, if both sides are one run, of at least one level. Most patches of one row or column are, and need no more.
    ///
    /// # Safety
    /// As [`Counts::shape`], for both sides.
    #[inline]
    pub(crate) unsafe fn run_bytes(&self, one: *const c_int, other: *const c_int) -> Option<usize> {
        let mut run_bytes = self.counts[0];
        for place in 0..self.levels {
            let count = self.counts[place + 1];
            if count == 1 {
                continue;
            }
            for strides in [one, other] {
                if strides.is_null() {
                    return None;
                }
                // SAFETY: within the numbers that are readable by this function's contract.
                let stride = unsafe { strides.wrapping_add(place).read_unaligned() };
                if i64::from(stride).cast_unsigned() != run_bytes {
                    return None;
                }
            }
            run_bytes *= count;
        }
        // NULL strides are an error whatever the counts are.
        let is_known = !(one.is_null() || other.is_null());
        usize::try_from(run_bytes).ok().filter(|_| is_known)
    }

    /// The patch of at least one level as a grid from one side to the other, if no stride is negative.
    ///
    /// # Safety
    /// As [`Counts::shape`], for both sides.
    #[inline]
    pub(crate) unsafe fn patch(&self, to: *const c_int, from: *const c_int) -> Option<Patch> {
        let run_bytes = usize::try_from(self.counts[0]).ok()?;
        let mut patch = Patch {
            grid: Grid::new(run_bytes, 0, 0),
            bytes: self.total_bytes,
            to_bytes: run_bytes,
            from_bytes: run_bytes,
        };
        if to.is_null() || from.is_null() {
            return None;
        }
        for place in 0..self.levels {
            // SAFETY: within the numbers that are readable by this function's contract.
            let target_stride = unsafe { to.wrapping_add(place).read_unaligned() };
            // SAFETY: as above.
            let source_stride = unsafe { from.wrapping_add(place).read_unaligned() };
            let count = usize::try_from(self.counts[place + 1]).ok()?;
            let reach = |stride: c_int| usize::try_from(stride).ok()?.checked_mul(count - 1);
            patch.to_bytes = patch.to_bytes.checked_add(reach(target_stride)?)?;
            patch.from_bytes = patch.from_bytes.checked_add(reach(source_stride)?)?;
            let step = Step { count, target_stride: target_stride as isize, source_stride: source_stride as isize };
            if !patch.grid.repeat(step) {
                return None;
            }
        }
        Some(patch)
    }

    /// How far the lowest byte of a side lies before its start: more than 0 with negative strides.
    ///
    /// # Safety
    /// As [`Counts::shape`].
    pub(crate) unsafe fn bytes_before(&self, strides: *const c_int) -> Done<u64> {
        if self.levels > 0 && strides.is_null() {
            return Err(Refusal::Code(NULL_STRIDES));
        }
        let mut before = 0;
        for place in 0..self.levels {
            // SAFETY: within the numbers that are readable by this function's contract.
            let stride = unsafe { strides.wrapping_add(place).read_unaligned() };
            if stride < 0 {
                before += u64::from(stride.unsigned_abs()) * self.counts[place + 1].saturating_sub(1);
            }
        }
        Ok(before)
    }
}

/// A strided transfer through memory.
pub(crate) struct Patch {
    pub(crate) grid: Grid,
    /// Bytes that are moved.
    pub(crate) bytes: u64,
    /// From the first byte of each side to behind its last one.
    pub(crate) to_bytes: usize,
    pub(crate) from_bytes: usize,
}

/// The local side of a transfer: where its bytes start, how far they reach, and its shape from there.
pub(crate) struct Origin {
    start: *mut u8,
    bytes: usize,
    pub(crate) shape: Shape,
}

impl Origin {
    /// # Safety
    /// `side.strides` as [`Counts::shape`].
    #[inline]
    pub(crate) unsafe fn new(counts: &Counts, side: Side) -> Done<Origin> {
        // SAFETY: this function's own contract.
        let before = unsafe { counts.bytes_before(side.strides) }?;
        // SAFETY: this function's own contract.
        let shape = unsafe { counts.shape(before, side.strides) }?;
        let start = side.start.cast::<u8>().cast_mut().wrapping_sub(before as usize);
        Ok(Origin { start, bytes: shape.end() as usize, shape })
    }

    /// Runs anywhere in memory: `shape` counts from `start`.
    pub(crate) fn of_runs(start: *const u8, shape: Shape) -> Origin {
        Origin { start: start.cast_mut(), bytes: shape.end() as usize, shape }
    }

    /// Where offset 0 of the shape is.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// # Safety
    /// The bytes of the shape are readable while the result is used.
    #[inline]
    pub(crate) unsafe fn source<'a>(&self) -> OriginBytes<'a> {
        // SAFETY: only bytes of the shape are read, and this function's contract says that they are readable.
        unsafe { OriginBytes::from_raw(self.start, self.bytes) }
    }

    /// # Safety
    /// The bytes of the shape are writable while the result is used, and nobody has a reference to them.
    #[inline]
    pub(crate) unsafe fn target<'a>(&self) -> OriginBytesMut<'a> {
        // SAFETY: only bytes of the shape are written, and this function's contract says that they are writable.
        unsafe { OriginBytesMut::from_raw(self.start, self.bytes) }
    }

    /// # Safety
    /// As [`Origin::source`] or [`Origin::target`], whichever way the bytes go.
    pub(crate) unsafe fn region<'a>(&self) -> RegionMut<'a> {
        // SAFETY: only bytes of the shape are used, and this function's contract covers them.
        unsafe { RegionMut::from_raw(self.start, self.bytes) }
    }
}

/// Bytes from a pointer, to read.
///
/// # Safety
/// They are readable while the result is used.
pub(crate) unsafe fn readable<'a>(start: *const c_void, bytes: usize) -> Region<'a> {
    // SAFETY: this function's own contract.
    unsafe { Region::from_raw(start.cast(), bytes) }
}

/// Bytes from a pointer, to write.
///
/// # Safety
/// They are writable while the result is used, and nobody has a reference to them.
pub(crate) unsafe fn writable<'a>(start: *mut c_void, bytes: usize) -> RegionMut<'a> {
    // SAFETY: this function's own contract.
    unsafe { RegionMut::from_raw(start.cast(), bytes) }
}

const ACC_INT: c_int = 37;
const ACC_DOUBLE: c_int = 38;
const ACC_FLOAT: c_int = 39;
const ACC_COMPLEX: c_int = 40;
const ACC_DOUBLE_COMPLEX: c_int = 41;
const ACC_LONG: c_int = 42;

/// What an accumulate code means. Its scale is not null.
#[inline(always)]
pub(crate) fn kernel(code: c_int, scale: *const c_void) -> Done<Kernel> {
    not_null(scale)?;
    let element = match code {
        ACC_INT => ElementType::I32,
        ACC_LONG => ElementType::I64,
        ACC_FLOAT => ElementType::F32,
        ACC_DOUBLE => ElementType::F64,
        ACC_COMPLEX => ElementType::C32,
        ACC_DOUBLE_COMPLEX => ElementType::C64,
        code => return Err(no_operation(code)),
    };
    Ok(Kernel::new(element, AccumulateOp::Sum).expect("every type has a sum"))
}

#[cold]
fn no_operation(code: c_int) -> Refusal {
    Refusal::fatal(format!("there is no accumulate operation {code}"))
}

/// The scale of an accumulate, to be lent from where it is, not copied: see `longarm::Window::accumulate_bytes`.
///
/// # Safety
/// `scale` is readable for one element of the kernel's type.
#[inline]
pub(crate) unsafe fn scale(kernel: Kernel, scale: *const c_void) -> Scale {
    /// # Safety
    /// `BYTES` bytes are readable.
    #[inline(always)]
    unsafe fn take<const BYTES: usize>(scale: *const c_void) -> Scale {
        let mut bytes = [0; 16];
        // SAFETY: this function's own contract; alignment does not matter to a read of bytes.
        bytes[..BYTES].copy_from_slice(&unsafe { scale.cast::<[u8; BYTES]>().read() });
        Scale(bytes)
    }
    // A length that is known is a move; a call to copy would take longer than the sum.
    match kernel.element().bytes() {
        // SAFETY: this function's own contract.
        4 => unsafe { take::<4>(scale) },
        // SAFETY: this function's own contract.
        8 => unsafe { take::<8>(scale) },
        // SAFETY: this function's own contract; no element is longer.
        _ => unsafe { take::<16>(scale) },
    }
}
