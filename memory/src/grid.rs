//! Grids: runs of one length at regular distances on two sides, and what is done with each pair of them.
//!
//! ```text
//!   target   ████    ████    ████    ████      a step says how often, and how far apart on each side;
//!   source   ████ ████ ████ ████               the first step turns fastest
//! ```
//!
//! Whether all runs lie inside the two regions is checked once. After that nothing stands between two runs but the two
//! additions that lead from one to the next; which copy is right for the length of a run is decided before the first.

use std::marker::PhantomData;

use crate::copy::copy;
use crate::region::{Region, RegionMut};

/// Steps that a grid can have.
pub const STEPS_MAX: usize = 8;

/// One dimension of a grid: all below it `count` times, so many bytes apart on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// How often.
    pub count: usize,
    /// Bytes from one to the next in the target. May be 0 or negative.
    pub target_stride: isize,
    /// The same in the source.
    pub source_stride: isize,
}

impl Step {
    pub(crate) const ONCE: Step = Step { count: 1, target_stride: 0, source_stride: 0 };

    /// Calls `each` with where every pair of runs starts.
    #[inline(always)]
    pub(crate) fn each(self, mut dst: *mut u8, mut src: *const u8, mut each: impl FnMut(*mut u8, *const u8)) {
        for _ in 0..self.count {
            each(dst, src);
            dst = dst.wrapping_offset(self.target_stride);
            src = src.wrapping_offset(self.source_stride);
        }
    }
}

/// Pairs of runs of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    run_bytes: usize,
    target_offset: usize,
    source_offset: usize,
    step_count: usize,
    /// Those behind `step_count` are [`Step::ONCE`].
    steps: [Step; STEPS_MAX],
}

/// Pairs of runs of a grid that follow each other at one distance on each side. All are inside of the regions that the grid was laid over.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'t, 's> {
    dst: *mut u8,
    src: *const u8,
    run_bytes: usize,
    step: Step,
    inside: PhantomData<(RegionMut<'t>, Region<'s>)>,
}

impl<'t, 's> Rows<'t, 's> {
    /// How many pairs.
    #[inline]
    pub fn count(&self) -> usize {
        self.step.count
    }

    /// Bytes of each run.
    #[inline]
    pub fn run_bytes(&self) -> usize {
        self.run_bytes
    }

    /// Bytes from one run of the target to the next.
    #[inline]
    pub fn target_stride(&self) -> isize {
        self.step.target_stride
    }

    /// Where the first run of the target starts.
    #[inline]
    pub fn target_start(&self) -> *const u8 {
        self.dst
    }

    /// The first pair of runs, and all others. `None`: there are no more.
    #[inline]
    pub fn first(self) -> Option<(RegionMut<'t>, Region<'s>, Rows<'t, 's>)> {
        if self.step.count == 0 {
            return None;
        }
        let (_, others) = self.split(1);
        // SAFETY: it is where the first of these rows starts.
        let (target, source) = unsafe { self.pair(self.dst, self.src) };
        Some((target, source, others))
    }

    /// A pair of runs. [`Grid::for_each_rows`] has checked that all are inside of their regions; [`Rows::split`] only takes parts.
    ///
    /// # Safety
    ///
    /// One of these rows starts there.
    #[inline(always)]
    unsafe fn pair(&self, dst: *mut u8, src: *const u8) -> (RegionMut<'t>, Region<'s>) {
        // SAFETY: this function's own contract: it is inside of the target.
        let target = unsafe { RegionMut::from_raw(dst, self.run_bytes) };
        // SAFETY: the same for the source.
        let source = unsafe { Region::from_raw(src, self.run_bytes) };
        (target, source)
    }

    /// So many of them, and all others.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    #[inline]
    pub fn split(self, count: usize) -> (Rows<'t, 's>, Rows<'t, 's>) {
        assert!(count <= self.step.count);
        let passed = count as isize;
        let others = Rows {
            dst: self.dst.wrapping_offset(self.step.target_stride.wrapping_mul(passed)),
            src: self.src.wrapping_offset(self.step.source_stride.wrapping_mul(passed)),
            step: Step { count: self.step.count - count, ..self.step },
            ..self
        };
        (Rows { step: Step { count, ..self.step }, ..self }, others)
    }

    /// Where the first runs start, and how the others follow.
    #[inline]
    pub(crate) fn places(&self) -> (*mut u8, *const u8, Step) {
        (self.dst, self.src, self.step)
    }
}

impl Grid {
    /// One pair of runs: where they start, in bytes from the start of each region.
    #[inline]
    pub fn new(run_bytes: usize, target_offset: usize, source_offset: usize) -> Grid {
        Grid { run_bytes, target_offset, source_offset, step_count: 0, steps: [Step::ONCE; STEPS_MAX] }
    }

    /// All of it as often as the step says. False: it has [`STEPS_MAX`] steps already and stays as it is.
    ///
    /// Where that leaves no gap on either side, runs become longer, or the step below is taken more often.
    #[inline]
    pub fn repeat(&mut self, step: Step) -> bool {
        if step.count == 1 {
            return true;
        }
        let follows = |below_bytes: isize, below: (isize, isize)| {
            (step.target_stride, step.source_stride) == (below.0 * below_bytes, below.1 * below_bytes)
        };
        if self.step_count == 0 {
            if step.count > 0 && isize::try_from(self.run_bytes).is_ok_and(|bytes| follows(bytes, (1, 1))) {
                self.run_bytes *= step.count;
                return true;
            }
        } else {
            let below = &mut self.steps[self.step_count - 1];
            let whole = |stride: isize| stride.checked_mul(below.count as isize);
            if (whole(below.target_stride), whole(below.source_stride))
                == (Some(step.target_stride), Some(step.source_stride))
            {
                below.count *= step.count;
                return true;
            }
        }
        if self.step_count == STEPS_MAX {
            return false;
        }
        self.steps[self.step_count] = step;
        self.step_count += 1;
        true
    }

    /// The same grid, so many bytes from the start of the target's region.
    #[must_use]
    #[inline]
    pub fn at_target(&self, target_offset: usize) -> Grid {
        Grid { target_offset, ..*self }
    }

    /// The same pairs of runs with target and source exchanged.
    #[must_use]
    pub fn reversed(&self) -> Grid {
        let turned = |step: Step| Step { target_stride: step.source_stride, source_stride: step.target_stride, ..step };
        let (target_offset, source_offset) = (self.source_offset, self.target_offset);
        Grid { target_offset, source_offset, steps: self.steps.map(turned), ..*self }
    }

    /// Bytes of each run.
    #[inline]
    pub fn run_bytes(&self) -> usize {
        self.run_bytes
    }

    /// Copies every run of the source to its run of the target, in order. Each is copied whole before the next one.
    ///
    /// # Panics
    ///
    /// If any run is outside of its region.
    pub fn copy(&self, target: RegionMut<'_>, source: Region<'_>) {
        if self.is_empty() {
            return;
        }
        let (dst, src) = self.starts(target, source);
        // SAFETY: `starts` has checked that every run is inside its region, which is valid by the contract of regions.
        unsafe { machine::copy_runs(self, dst, src) };
    }

    /// Calls `each` with every pair of runs, in order.
    ///
    /// # Panics
    ///
    /// If any run is outside of its region.
    #[inline]
    pub fn for_each<'t, 's>(
        &self,
        target: RegionMut<'t>,
        source: Region<'s>,
        mut each: impl FnMut(RegionMut<'t>, Region<'s>),
    ) {
        self.for_each_rows(target, source, |rows| {
            rows.step.each(rows.dst, rows.src, |dst, src| {
                // SAFETY: it is where one of these rows starts.
                let (target, source) = unsafe { rows.pair(dst, src) };
                each(target, source);
            });
        });
    }

    /// Calls `each` with all pairs of runs, in order, as many at a time as the first step says.
    ///
    /// # Panics
    ///
    /// If any run is outside of its region.
    #[inline]
    pub fn for_each_rows<'t, 's>(&self, target: RegionMut<'t>, source: Region<'s>, mut each: impl FnMut(Rows<'t, 's>)) {
        if self.is_empty() {
            return;
        }
        let (dst, src) = self.starts(target, source);
        let (run_bytes, step) = (self.run_bytes, self.steps[0]);
        self.walk_rows(dst, src, |dst, src| each(Rows { dst, src, run_bytes, step, inside: PhantomData }));
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.run_bytes == 0 || self.steps[..self.step_count].iter().any(|step| step.count == 0)
    }

    /// Where the first runs are, after a look that all runs are inside. The grid is not empty.
    #[inline]
    fn starts(&self, target: RegionMut<'_>, source: Region<'_>) -> (*mut u8, *const u8) {
        let target_inside = self.is_inside(target.len(), self.target_offset, |step| step.target_stride);
        let source_inside = self.is_inside(source.len(), self.source_offset, |step| step.source_stride);
        assert!(target_inside && source_inside, "a run of a grid is outside of its region");
        (target.as_mut_ptr().wrapping_add(self.target_offset), source.as_ptr().wrapping_add(self.source_offset))
    }

    /// Whether all runs of one side are inside a region of so many bytes.
    #[inline]
    fn is_inside(&self, region_bytes: usize, offset: usize, stride: impl Fn(&Step) -> isize) -> bool {
        // The lowest byte, and one past the highest. What does not fit in these numbers is outside of any region.
        let extent = || {
            let mut low = isize::try_from(offset).ok()?;
            let mut high = low.checked_add(isize::try_from(self.run_bytes).ok()?)?;
            for step in &self.steps[..self.step_count] {
                let reach = stride(step).checked_mul(isize::try_from(step.count - 1).ok()?)?;
                if reach < 0 {
                    low = low.checked_add(reach)?;
                } else {
                    high = high.checked_add(reach)?;
                }
            }
            Some((low, high))
        };
        extent().is_some_and(|(low, high)| low >= 0 && high as usize <= region_bytes)
    }

    /// Calls `each` with where every pair of runs starts.
    #[inline(always)]
    fn walk(&self, dst: *mut u8, src: *const u8, mut each: impl FnMut(*mut u8, *const u8)) {
        let inner = self.steps[0];
        self.walk_rows(dst, src, |dst, src| inner.each(dst, src, &mut each));
    }

    /// Calls `each` with where the pairs of runs start that the first step leads through.
    #[inline(always)]
    fn walk_rows(&self, mut dst: *mut u8, mut src: *const u8, mut each: impl FnMut(*mut u8, *const u8)) {
        let outer = self.steps[1];
        let mut indices = [0; STEPS_MAX];
        loop {
            let (mut outer_dst, mut outer_src) = (dst, src);
            for _ in 0..outer.count {
                each(outer_dst, outer_src);
                outer_dst = outer_dst.wrapping_offset(outer.target_stride);
                outer_src = outer_src.wrapping_offset(outer.source_stride);
            }
            if self.step_count <= 2 || !self.turn(&mut indices, &mut dst, &mut src) {
                return;
            }
        }
    }

    /// Turns the steps above the two fastest by one. False: they are through.
    fn turn(&self, indices: &mut [usize; STEPS_MAX], dst: &mut *mut u8, src: &mut *const u8) -> bool {
        for (step, at) in self.steps[2..self.step_count].iter().zip(indices) {
            if *at + 1 < step.count {
                *at += 1;
                *dst = dst.wrapping_offset(step.target_stride);
                *src = src.wrapping_offset(step.source_stride);
                return true;
            }
            let back = -(*at as isize);
            *dst = dst.wrapping_offset(step.target_stride.wrapping_mul(back));
            *src = src.wrapping_offset(step.source_stride.wrapping_mul(back));
            *at = 0;
        }
        false
    }
}

#[cfg(all(target_arch = "x86_64", not(any(miri, longarm_portable))))]
#[path = "grid_x86_64.rs"]
mod machine;

#[cfg(not(all(target_arch = "x86_64", not(any(miri, longarm_portable)))))]
mod machine {
    use super::*;

    /// Copies every run.
    ///
    /// # Safety
    ///
    /// Every run of the grid that starts at these places is valid, as for `copy`.
    pub(super) unsafe fn copy_runs(grid: &Grid, dst: *mut u8, src: *const u8) {
        // SAFETY: the caller's promise, passed on.
        grid.walk(dst, src, |dst, src| unsafe { copy(dst, src, grid.run_bytes) });
    }
}

#[cfg(test)]
#[path = "grid_tests.rs"]
mod tests;
