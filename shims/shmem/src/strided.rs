//! Strided put and get: elements, or blocks of them, at regular distances on both sides.

use std::ffi::c_int;

use longarm::ffi::{
    CounterKind, Grid, Level, OriginBytes, OriginBytesMut, Region, RegionMut, Shape, Shapes, Step, Strided,
};

use crate::boundary::{end, or_end};
use crate::job;

/// One call in bytes: how the runs lie on the two sides.
struct Runs {
    run_bytes: usize,
    count: usize,
    remote_stride: isize,
    local_stride: isize,
}

impl Runs {
    /// `None`: there is nothing to do.
    fn new<T>(name: &'static str, (remote, local): (i64, i64), (block, blocks): (u64, u64)) -> Option<Runs> {
        let element = size_of::<T>();
        if remote < 0 || local < 0 {
            end(name, format_args!("the strides are {remote} and {local}; they have to be 1 or more"));
        }
        if block == 0 || blocks == 0 {
            return None;
        }
        let scale = |stride: i64| (stride as isize).saturating_mul(element as isize);
        let run_bytes = (block as usize).saturating_mul(element);
        Some(Runs { run_bytes, count: blocks as usize, remote_stride: scale(remote), local_stride: scale(local) })
    }

    /// From the first byte to the last.
    fn span(&self, stride: isize) -> usize {
        (self.count - 1).saturating_mul(stride as usize).saturating_add(self.run_bytes)
    }

    fn shape(&self, name: &'static str, offset: u64, stride: isize) -> Shape {
        let level = Level { count: self.count as u64, stride: stride as i64 };
        Shape::Strided(or_end(name, Strided::new(offset, self.run_bytes as u64, &[level])))
    }

    fn shapes(&self, name: &'static str, offset: u64) -> Shapes {
        Shapes { target: self.shape(name, offset, self.remote_stride), origin: self.shape(name, 0, self.local_stride) }
    }

    /// The runs in mapped memory, target and source.
    fn grid(&self, target_stride: isize, source_stride: isize) -> Grid {
        let mut grid = Grid::new(self.run_bytes, 0, 0);
        grid.repeat(Step { count: self.count, target_stride, source_stride });
        grid
    }
}

/// # Safety
/// The elements are readable at `source`; those of the target belong to nobody's reference.
#[inline]
pub(crate) unsafe fn put<T>(
    name: &'static str,
    context: usize,
    (dest, dest_stride): (*mut T, i64),
    (source, source_stride): (*const T, i64),
    blocks: (u64, u64),
    pe: c_int,
) {
    let job = job::get(name);
    let (context, pe) = job.contexts.resolve(name, context, pe);
    let Some(runs) = Runs::new::<T>(name, (dest_stride, source_stride), blocks) else {
        job.process.rank(name, pe);
        return;
    };
    let place = job.place(name, pe, dest.addr(), runs.span(runs.remote_stride));
    // SAFETY: this function's own contract.
    let local = unsafe { Region::from_raw(source.cast(), runs.span(runs.local_stride)) };
    if let Some(away) = place.away {
        for at in 0..runs.count {
            let run = local.slice(at * runs.local_stride as usize, runs.run_bytes);
            away.put(name, (place.rank, place.offset + at as u64 * runs.remote_stride as u64), run);
        }
        return;
    }
    if place.here.is_null() {
        let source = OriginBytes::from_region(local);
        or_end(name, place.window.put_shapes(place.rank, runs.shapes(name, place.offset), source));
        context.note_sent();
        return;
    }
    // SAFETY: `place` has looked at the target.
    let remote = unsafe { RegionMut::from_raw(place.here, runs.span(runs.remote_stride)) };
    runs.grid(runs.remote_stride, runs.local_stride).copy(remote, local);
    job.count(pe, CounterKind::Put, runs.run_bytes * runs.count);
}

/// # Safety
/// The elements are writable at `dest`, and nobody has a reference to them.
#[inline]
pub(crate) unsafe fn get<T>(
    name: &'static str,
    context: usize,
    (dest, dest_stride): (*mut T, i64),
    (source, source_stride): (*const T, i64),
    blocks: (u64, u64),
    pe: c_int,
) {
    let job = job::get(name);
    let (_, pe) = job.contexts.resolve(name, context, pe);
    let Some(runs) = Runs::new::<T>(name, (source_stride, dest_stride), blocks) else {
        job.process.rank(name, pe);
        return;
    };
    let place = job.place(name, pe, source.addr(), runs.span(runs.remote_stride));
    // SAFETY: this function's own contract.
    let local = unsafe { RegionMut::from_raw(dest.cast(), runs.span(runs.local_stride)) };
    if let Some(away) = place.away {
        for at in 0..runs.count {
            let run = local.slice(at * runs.local_stride as usize, runs.run_bytes);
            away.get(name, (place.rank, place.offset + at as u64 * runs.remote_stride as u64), run);
        }
        return;
    }
    if place.here.is_null() {
        // SAFETY: this function's own contract.
        let target = unsafe { OriginBytesMut::from_raw(dest.cast(), runs.span(runs.local_stride)) };
        or_end(name, place.window.get_shapes(place.rank, runs.shapes(name, place.offset), target));
        return;
    }
    // SAFETY: `place` has looked at the source.
    let remote = unsafe { Region::from_raw(place.here, runs.span(runs.remote_stride)) };
    runs.grid(runs.local_stride, runs.remote_stride).copy(local, remote);
    job.count(pe, CounterKind::Get, runs.run_bytes * runs.count);
}
