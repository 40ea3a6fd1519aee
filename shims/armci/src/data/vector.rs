//! Vector transfers: lists of pairs of addresses.
//!
//! On this node each pair is a transfer of its own, which is the quickest. To other nodes the pairs of one window travel
//! together.

use std::ffi::{c_int, c_void};

use longarm::Window;
use longarm::face::{Run, Shape, Shapes};

use super::transfer::{Doing, Ending, contiguous, run};
use crate::arguments::Origin;
use crate::boundary::{BAD_RANK, Done, Fault};
use crate::job::Job;

/// `armci_giov_t`.
#[repr(C)]
pub struct Giov {
    sources: *mut *mut c_void,
    targets: *mut *mut c_void,
    count: c_int,
    bytes: c_int,
}

/// The codes that vector calls have of their own.
const NO_DESCRIPTORS: c_int = -1;
const NULL_ARRAY: c_int = -2;
const BAD_BYTES: c_int = -3;
const NO_SEGMENTS: c_int = -4;

/// Does a vector call.
///
/// # Safety
/// `descriptors` has `length` entries whose arrays are as long as they say; the local bytes are as for
/// [`super::transfer::strided`].
pub(crate) unsafe fn vector(
    job: &Job,
    doing: Doing<'_>,
    ending: Ending,
    descriptors: *const Giov,
    (length, proc): (c_int, c_int),
) -> Done {
    if length < 1 {
        return Err(Fault::Code(NO_DESCRIPTORS));
    }
    if descriptors.is_null() {
        return Err(Fault::Code(NULL_ARRAY));
    }
    let rank = job.rank(proc).map_err(|_| Fault::Code(BAD_RANK))?;
    // SAFETY: not null, and this function's own contract.
    let descriptors = unsafe { std::slice::from_raw_parts(descriptors, length as usize) };
    descriptors.iter().try_for_each(check)?;
    for descriptor in descriptors {
        // SAFETY: this function's own contract.
        let mut pairs = unsafe { pairs(descriptor, doing) };
        if pairs.any(|(local, remote)| local.is_null() || remote.is_null()) {
            return Err(Fault::Code(NULL_ARRAY));
        }
    }
    for descriptor in descriptors {
        // SAFETY: this function's own contract.
        let pairs = unsafe { pairs(descriptor, doing) };
        if job.world.shares_memory_with(rank) {
            for (local, remote) in pairs {
                // SAFETY: this function's own contract.
                unsafe { contiguous(job, doing, local, remote, (descriptor.bytes, proc)) }?;
            }
        } else {
            // SAFETY: this function's own contract.
            unsafe { together(job, (doing, ending), rank, descriptor.bytes as u64, pairs) }?;
        }
    }
    Ok(())
}

fn check(descriptor: &Giov) -> Done {
    if descriptor.sources.is_null() || descriptor.targets.is_null() {
        return Err(Fault::Code(NULL_ARRAY));
    }
    if descriptor.bytes < 1 {
        return Err(Fault::Code(BAD_BYTES));
    }
    if descriptor.count < 1 {
        return Err(Fault::Code(NO_SEGMENTS));
    }
    Ok(())
}

/// The local and the remote address of every pair.
///
/// # Safety
/// The arrays of the descriptor are as long as it says.
unsafe fn pairs<'a>(
    descriptor: &'a Giov,
    doing: Doing<'_>,
) -> impl Iterator<Item = (*const c_void, *const c_void)> + use<'a> {
    let count = descriptor.count as usize;
    // SAFETY: not null, checked before, and this function's own contract.
    let sources = unsafe { std::slice::from_raw_parts(descriptor.sources, count) };
    // SAFETY: as above.
    let targets = unsafe { std::slice::from_raw_parts(descriptor.targets, count) };
    let gets = matches!(doing, Doing::Get);
    sources.iter().zip(targets).map(move |(source, target)| match gets {
        true => (target.cast_const(), source.cast_const()),
        false => (source.cast_const(), target.cast_const()),
    })
}

/// The pairs of one descriptor, those of each window as one transfer.
///
/// # Safety
/// As [`vector`].
unsafe fn together(
    job: &Job,
    how: (Doing<'_>, Ending),
    rank: u32,
    bytes: u64,
    pairs: impl Iterator<Item = (*const c_void, *const c_void)>,
) -> Done {
    let mut batch: Option<Batch> = None;
    for (local, remote) in pairs {
        let (window, offset) = job.at(rank, remote, |window, offset| Ok((window.clone(), offset)))?;
        if batch.as_ref().is_some_and(|batch| !batch.is_of(&window)) {
            let full = batch.take().expect("there is one");
            // SAFETY: this function's own contract.
            unsafe { full.go(job, how, rank) }?;
        }
        let batch = batch.get_or_insert_with(|| Batch { window, locals: Vec::new(), targets: Vec::new() });
        batch.locals.push((local.cast(), bytes));
        batch.targets.push(Run { offset, bytes });
    }
    match batch {
        // SAFETY: this function's own contract.
        Some(batch) => unsafe { batch.go(job, how, rank) },
        None => Ok(()),
    }
}

/// Pairs whose remote addresses lie in one window.
struct Batch {
    window: Window<u8>,
    locals: Vec<(*const u8, u64)>,
    targets: Vec<Run>,
}

impl Batch {
    fn is_of(&self, window: &Window<u8>) -> bool {
        self.window.is_same(window)
    }

    /// # Safety
    /// As [`vector`].
    unsafe fn go(self, job: &Job, how: (Doing<'_>, Ending), rank: u32) -> Done {
        let start = self.locals.iter().map(|(local, _)| *local).min().expect("a batch has pairs");
        let run_from_start =
            |(local, bytes): &(*const u8, u64)| Run { offset: (local.addr() - start.addr()) as u64, bytes: *bytes };
        let origin = Shape::Vector(self.locals.iter().map(run_from_start).collect());
        let origin = Origin::of_runs(start, origin);
        let shapes = Shapes { target: Shape::Vector(self.targets), origin: origin.shape.clone() };
        // SAFETY: this function's own contract.
        let outcome = unsafe { run(job, &self.window, how, rank, shapes, &origin) };
        Ok(outcome?)
    }
}
