//! Accumulate: target = target (op) source, element by element, each element atomically.
//!
//! ```text
//!   aligned integers    one CPU atomic an element, so that accumulates and read-modify-writes of a word mix
//!   all others          for each block of 16 KiB: take its stripe lock, combine, free the lock
//!                         floating-point sums    in place, see `longarm_memory::add`
//!                         other combinations     chunk by chunk: copy in target and source, combine in private
//!                                                memory, copy out
//! ```
//!
//! An [`Accumulator`] takes runs one after the other: what to do with them is decided before the first, and a lock is kept
//! while they stay in its block. Of a grid, sums of all rows of its fastest step that a block has are made by one call, where
//! they ascend and do not overlap.
//!
//! Elements that straddle two blocks belong to the block of their first byte, so that everybody takes the same lock for
//! the same element, wherever his range begins. All who update one place have to take its elements for the same type
//! at the same places; what else they do is atomic too, but not with respect to each other.
//!
//! A plain put or get of a floating-point element is not held up by the lock: it is a copy like any other.
//!
//! An update of an aligned integer is seen after what the same thread wrote before (Release), so that one may tell of what was put. Else
//! it orders nothing: quiet and barrier do, or a read-modify-write after it.
//!
//! If a process dies in it, any of its elements may have been updated, none of them twice; what it was writing under the
//! stripe lock that it held may be torn, see `stripe`.

mod elements;

use longarm_memory::{Adder, Grid, Region, RegionMut, Rows, add_one_f64};
use longarm_proto::{AccumulateOp, ElementType, Kernel, Rank, Scale};

use crate::outside::OutsideWindow;
use crate::stripe::{BLOCK_BITS, StripeGuard, Stripes};
use crate::window::Window;
use elements::{Float, How, how, sum_one_word};

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

/// A stripe lock that is kept from one run to the next.
struct Held<'a> {
    block: u64,
    /// For how many bytes more: however often runs come back to the same block, it is let go of now and then, so that
    /// whoever waits can take it.
    bytes_left: usize,
    guard: StripeGuard<'a>,
}

/// One kind of accumulate to one window, for any number of runs. What it holds is free when it is dropped.
pub struct Accumulator<'a> {
    window: Window<'a>,
    stripes: Stripes<'a>,
    who: Rank,
    how: How,
    scale: Scale,
    element_bytes: usize,
    held: Option<Held<'a>>,
}

const BLOCK_BYTES: usize = 1 << BLOCK_BITS;

impl<'a> Window<'a> {
    /// Combines the elements of `source` with those from `offset` on, each one atomically.
    ///
    /// `who` is the rank whose process makes this call, `stripes` are its node's.
    ///
    /// # Errors
    ///
    /// If the bytes are not all inside, or are not whole elements. Nothing was touched.
    #[inline]
    pub fn accumulate(
        &self,
        offset: u64,
        kernel: Kernel,
        scale: &Scale,
        source: Region<'_>,
        stripes: &Stripes<'a>,
        who: Rank,
    ) -> Result<(), AccumulateError> {
        accumulate_run(self, offset, (kernel, scale), source, (stripes, who))
    }

    /// The same accumulate for any number of runs: cheaper for each of them than [`Window::accumulate`].
    ///
    /// `who` is the rank whose process makes this call, `stripes` are its node's.
    #[inline]
    pub fn accumulator(&self, operator: (Kernel, Scale), stripes: Stripes<'a>, who: Rank) -> Accumulator<'a> {
        Accumulator::new(*self, operator, stripes, who)
    }
}

impl<'a> Accumulator<'a> {
    #[inline]
    fn new(window: Window<'a>, (kernel, scale): (Kernel, Scale), stripes: Stripes<'a>, who: Rank) -> Accumulator<'a> {
        let element_bytes = kernel.element().bytes();
        Accumulator { window, stripes, who, how: how(kernel, &scale), scale, element_bytes, held: None }
    }

    /// Combines the elements of `source` with those from `offset` on, each one atomically.
    ///
    /// # Errors
    ///
    /// If the bytes are not all inside, or are not whole elements. Nothing was touched.
    #[inline]
    pub fn run(&mut self, offset: u64, source: Region<'_>) -> Result<(), AccumulateError> {
        let target = self.window.region_mut(offset, source.len() as u64)?;
        self.check_whole(source.len())?;
        self.combine(self.window.place_bytes() + offset, target, source);
        Ok(())
    }

    /// Combines every run of the source with its run of the window, in order, each element atomically.
    ///
    /// # Errors
    ///
    /// If the runs are not whole elements. Nothing was touched.
    ///
    /// # Panics
    ///
    /// If a run is outside of the window or of the source. Nothing was touched.
    pub fn grid(&mut self, grid: &Grid, source: Region<'_>) -> Result<(), AccumulateError> {
        self.check_whole(grid.run_bytes())?;
        let (whole, place) = (self.window.whole(), self.window.place_bytes());
        let start = |target: *const u8| place + (target.addr() - whole.as_ptr().addr()) as u64;
        match self.how {
            How::Sum(adder) => grid.for_each_rows(whole, source, |rows| {
                self.sum_rows(&adder, start(rows.target_start()), rows);
            }),
            _ => grid.for_each(whole, source, |target, source| {
                self.combine(start(target.as_ptr()), target, source);
            }),
        }
        Ok(())
    }

    /// Sums of rows, the first of which is at `start` in the memfd. Those of one block are made by one call under its lock.
    #[inline]
    fn sum_rows(&mut self, adder: &Adder, mut start: u64, mut rows: Rows<'_, '_>) {
        let stride = rows.target_stride() as i64;
        while let Some((target, source, others)) = rows.first() {
            let together = self.rows_in_block(start, &rows);
            if together == 0 {
                self.combine(start, target, source);
                start = start.wrapping_add_signed(stride);
                rows = others;
                continue;
            }
            let (now, later) = rows.split(together);
            self.hold(start >> BLOCK_BITS, together * rows.run_bytes());
            adder.add_rows(now);
            start = start.wrapping_add_signed(stride * together as i64);
            rows = later;
        }
    }

    /// How many of the rows, from the first on, can be summed under the lock of its block: those whose elements all begin in it. 0: the first goes
    /// alone. It crosses the end of the block, or the rows do not ascend, or they overlap: then many would have no more than one block.
    #[inline]
    fn rows_in_block(&self, start: u64, rows: &Rows<'_, '_>) -> usize {
        let bytes = rows.run_bytes();
        let last_element = start + (bytes - self.element_bytes) as u64;
        let block_last = start | (BLOCK_BYTES as u64 - 1);
        match u64::try_from(rows.target_stride()) {
            Ok(stride) if stride >= bytes as u64 && last_element <= block_last => {
                let left = block_last - last_element;
                // Fewer than a block has bytes, so the cast loses nothing. A division takes longer than a short row.
                let others = if stride > left { 0 } else { left / stride };
                rows.count().min(others as usize + 1)
            }
            _ => 0,
        }
    }

    #[inline]
    fn check_whole(&self, bytes: usize) -> Result<(), AccumulateError> {
        // The size of an element is a power of two. A division would take longer than the rest of a small accumulate.
        if bytes & (self.element_bytes - 1) == 0 {
            return Ok(());
        }
        Err(AccumulateError::PartOfAnElement { bytes: bytes as u64, element_bytes: self.element_bytes as u64 })
    }

    /// One run, whose first byte is at `start` in the memfd.
    #[inline]
    fn combine(&mut self, start: u64, target: RegionMut<'_>, source: Region<'_>) {
        let bytes = source.len();
        if bytes == 0 {
            return;
        }
        if let How::Integer { atomic, .. } = self.how
            && start & (self.element_bytes as u64 - 1) == 0
        {
            // The target is as aligned as its place in the memfd, which is mapped at a page.
            return atomic(target, source, &self.scale);
        }
        let block = start >> BLOCK_BITS;
        if (start + (bytes - self.element_bytes) as u64) >> BLOCK_BITS == block {
            self.hold(block, bytes);
            self.how.locked(target, source, &self.scale);
        } else {
            self.block_by_block(start, target, source);
        }
    }

    fn block_by_block(&mut self, start: u64, target: RegionMut<'_>, source: Region<'_>) {
        let bytes = source.len();
        let mut done = 0;
        while done < bytes {
            let first = start + done as u64;
            let block = first >> BLOCK_BITS;
            // At most a block, so the cast loses nothing. An element whose first byte is in it is in it.
            let to_end = (((block + 1) << BLOCK_BITS) - first) as usize;
            let count = (bytes - done).min(to_end.next_multiple_of(self.element_bytes));
            self.hold(block, count);
            self.how.locked(target.slice(done, count), source.slice(done, count), &self.scale);
            done += count;
        }
    }

    /// Holds the lock of a block, and no other one.
    #[inline]
    fn hold(&mut self, block: u64, bytes: usize) {
        if let Some(held) = &mut self.held
            && held.block == block
            && held.bytes_left >= bytes
        {
            held.bytes_left -= bytes;
            return;
        }
        self.release();
        // An element may reach over the end of its block.
        let bytes_left = (BLOCK_BYTES + self.element_bytes).saturating_sub(bytes);
        self.held = Some(Held { block, bytes_left, guard: self.stripes.lock(block, self.who) });
    }

    #[inline]
    fn release(&mut self) {
        if let Some(Held { guard, .. }) = self.held.take() {
            drop(guard);
        }
    }
}

/// One run, the frequent case: what [`Accumulator::run`] does, with nothing to keep for the next one.
#[inline]
fn accumulate_run(
    window: &Window<'_>,
    offset: u64,
    operator: (Kernel, &Scale),
    source: Region<'_>,
    (stripes, who): (&Stripes<'_>, Rank),
) -> Result<(), AccumulateError> {
    let (kernel, scale) = operator;
    let sums_f64 = (kernel.element(), kernel.op()) == (ElementType::F64, AccumulateOp::Sum);
    if sums_f64
        && source.len() == size_of::<f64>()
        && let Ok(target) = window.region_mut(offset, size_of::<f64>() as u64)
    {
        // The most frequent one of all: nothing to pick, nothing to cut.
        let scale = f64::of_scale(scale, 0);
        let guard = stripes.lock((window.place_bytes() + offset) >> BLOCK_BITS, who);
        add_one_f64(target, source, scale);
        drop(guard);
        return Ok(());
    }
    accumulate_any_run(window, offset, operator, source, (stripes, who))
}

#[inline(never)]
fn accumulate_any_run(
    window: &Window<'_>,
    offset: u64,
    (kernel, scale): (Kernel, &Scale),
    source: Region<'_>,
    (stripes, who): (&Stripes<'_>, Rank),
) -> Result<(), AccumulateError> {
    let (bytes, element_bytes) = (source.len(), kernel.element().bytes());
    let target = window.region_mut(offset, bytes as u64)?;
    let start = window.place_bytes() + offset;
    let sums_words =
        kernel.op() == AccumulateOp::Sum && matches!(kernel.element(), ElementType::I64 | ElementType::U64);
    if sums_words && bytes == size_of::<u64>() && start & (size_of::<u64>() as u64 - 1) == 0 {
        // The target is as aligned as its place in the memfd, which is mapped at a page.
        sum_one_word(target, source, scale);
        return Ok(());
    }
    let block = start >> BLOCK_BITS;
    let whole = bytes > 0 && bytes & (element_bytes - 1) == 0;
    if whole && !kernel.element().is_integer() && (start + (bytes - element_bytes) as u64) >> BLOCK_BITS == block {
        let how = how(kernel, scale);
        let guard = stripes.lock(block, who);
        how.locked(target, source, scale);
        drop(guard);
        return Ok(());
    }
    Accumulator::new(*window, (kernel, *scale), *stripes, who).run(offset, source)
}

#[cfg(test)]
#[path = "accumulate_tests.rs"]
mod tests;
