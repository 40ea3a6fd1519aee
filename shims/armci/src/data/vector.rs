//! Vector transfers: lists of pairs of addresses.
//!
//! On this node each pair is a transfer of its own, which is the quickest. To other nodes the pairs of one window travel
//! together.

use std::ffi::{c_int, c_void};

use longarm::Window;
use longarm::ffi::{Run, Shape, Shapes};

use super::transfer::{Doing, Ending, contiguous, run};
use crate::arguments::Origin;
use crate::job::Job;
use crate::refusal::{BAD_RANK, Done, Refusal};

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
        return Err(Refusal::Code(NO_DESCRIPTORS));
    }
    if descriptors.is_null() {
        return Err(Refusal::Code(NULL_ARRAY));
    }
    let rank = job.rank(proc).map_err(|_| Refusal::Code(BAD_RANK))?;
    // SAFETY: not null, and this function's own contract.
    let descriptors = unsafe { std::slice::from_raw_parts(descriptors, length as usize) };
    descriptors.iter().try_for_each(check)?;
    for descriptor in descriptors {
        // SAFETY: this function's own contract.
        let mut pairs = unsafe { pairs(descriptor, doing) };
        if pairs.any(|(local, remote)| local.is_null() || remote.is_null()) {
            return Err(Refusal::Code(NULL_ARRAY));
        }
        // SAFETY: not null, checked above, and this function's own contract.
        unsafe { refuse_swapped(descriptor) }?;
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
        return Err(Refusal::Code(NULL_ARRAY));
    }
    if descriptor.bytes < 1 {
        return Err(Refusal::Code(BAD_BYTES));
    }
    if descriptor.count < 1 {
        return Err(Refusal::Code(NO_SEGMENTS));
    }
    Ok(())
}

/// Refuses a descriptor whose two numbers look as if each stood in the other's place, as they do in ARMCI-MPI: the first pieces of a
/// list lie as many bytes apart as there are pieces, and would overlap, for they are said to be longer. Such are neighbours whose
/// length was taken for their count.
///
/// # Safety
/// The arrays of the descriptor are as long as it says.
unsafe fn refuse_swapped(descriptor: &Giov) -> Done {
    let &Giov { count, bytes, .. } = descriptor;
    if count < 2 || bytes <= count {
        return Ok(());
    }
    for list in [descriptor.sources, descriptor.targets] {
        // SAFETY: not null, checked before, and this function's own contract.
        let list = unsafe { std::slice::from_raw_parts(list, count as usize) };
        let is_apart = |pair: &[*mut c_void]| pair[1].addr().wrapping_sub(pair[0].addr()) == count as usize;
        if list.windows(2).take(2).all(is_apart) {
            return Err(Refusal::fatal(format_args!(
                "a list has {count} pieces (ptr_array_len) of {bytes} bytes each that are only {count} bytes apart: are the two \
                 numbers swapped? ARMCI-MPI's armci_giov_t has bytes first; give its fields by name, or compile with \
                 -DARMCI_GIOV_BYTES_FIRST"
            )));
        }
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

#[cfg(test)]
mod tests {
    use super::{Giov, Refusal, refuse_swapped};

    /// What is said of a list of pieces that are so far apart at the one side, and 1000 bytes at the other.
    fn verdict(apart: usize, count: usize, bytes: i32) -> Result<(), String> {
        let pieces = |apart: usize| -> Vec<*mut std::ffi::c_void> {
            (0..count).map(|place| std::ptr::without_provenance_mut(4096 + place * apart)).collect()
        };
        let (mut sources, mut targets) = (pieces(apart), pieces(1000));
        let giov = Giov { sources: sources.as_mut_ptr(), targets: targets.as_mut_ptr(), count: count as i32, bytes };
        // SAFETY: the lists are as long as the descriptor says; the addresses in them are not followed.
        match unsafe { refuse_swapped(&giov) } {
            Ok(()) => Ok(()),
            Err(Refusal::Fatal(text)) => Err(text),
            Err(Refusal::Code(code)) => Err(format!("code {code}")),
        }
    }

    #[test]
    fn a_length_that_was_taken_for_a_count_is_refused_with_what_to_do() {
        for (bytes, count) in [(4, 5), (8, 100), (2, 3)] {
            let refusal = verdict(bytes, bytes, count).unwrap_err();
            assert!(refusal.contains("swapped") && refusal.contains("ARMCI_GIOV_BYTES_FIRST"), "{refusal}");
        }
    }

    #[test]
    fn lists_as_they_are_meant_are_taken() {
        // Neighbours, every second one, as many pieces as bytes, one piece, and pieces that overlap otherwise.
        for (apart, count, bytes) in
            [(8, 100, 8), (16, 100, 8), (8, 8, 8), (16, 16, 8), (0, 4, 8), (8, 1, 100), (4, 8, 100)]
        {
            assert_eq!(verdict(apart, count, bytes), Ok(()), "{apart} {count} {bytes}");
        }
    }
}
