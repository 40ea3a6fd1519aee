//! The stride iterator: the runs of a strided patch, one after the other, for programs that walk patches
//! themselves. Its state stands in C memory, as the header shows it.

use std::ffi::{c_char, c_int, c_void};

use crate::arguments::{STRIDE_LEVELS_MAX, not_null};
use crate::boundary::end_with;
use crate::refusal::{Done, Refusal};

const LEVELS: usize = STRIDE_LEVELS_MAX as usize;

/// `stride_info_t`.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct CStrideInfo {
    base_ptr: *mut c_char,
    stride_levels: c_int,
    stride_arr: [c_int; LEVELS],
    seg_count: [c_int; LEVELS + 1],
    size: c_int,
    pos: c_int,
    itr: [c_int; LEVELS],
}

const _: () = assert!(size_of::<CStrideInfo>() == 120);

impl CStrideInfo {
    fn levels(&self) -> usize {
        usize::try_from(self.stride_levels).unwrap_or(0).min(LEVELS)
    }

    /// Bytes from the start of the patch to the current run.
    fn offset(&self) -> i64 {
        let steps = self.itr.iter().zip(&self.stride_arr).take(self.levels());
        steps.map(|(index, stride)| i64::from(*index) * i64::from(*stride)).sum()
    }

    fn has_more(&self) -> bool {
        self.pos < self.size
    }

    fn next(&mut self) -> Done {
        if !self.has_more() {
            return Err(Refusal::fatal(format!("there is no run behind the last of {}", self.size)));
        }
        self.pos += 1;
        let levels = self.levels();
        for level in 0..levels {
            self.itr[level] += 1;
            // The slowest index counts on: it says that the end was reached.
            if level + 1 == levels || self.itr[level] < self.seg_count[level + 1] {
                break;
            }
            self.itr[level] = 0;
        }
        Ok(())
    }
}

/// Runs a call on an iterator; what goes wrong ends the job.
///
/// # Safety
/// `info` is null or points to an iterator that nobody else uses meanwhile.
unsafe fn with<R>(name: &'static str, info: *mut CStrideInfo, body: impl FnOnce(&mut CStrideInfo) -> Done<R>) -> R {
    // SAFETY: this function's own contract. Every bit pattern is an iterator.
    let outcome = match unsafe { info.as_mut() } {
        Some(info) => body(info),
        None => Err(Refusal::fatal("the iterator is NULL")),
    };
    outcome.unwrap_or_else(|fault| end_with(name, fault))
}

/// Numbers of C.
///
/// # Safety
/// As many as fit into `out` are readable at `from`, unless it is null.
unsafe fn read_counts(from: *const c_int, out: &mut [c_int]) -> Done {
    if out.is_empty() {
        return Ok(());
    }
    not_null(from)?;
    for (place, number) in out.iter_mut().enumerate() {
        // SAFETY: within the numbers that are readable by this function's contract.
        *number = unsafe { from.wrapping_add(place).read_unaligned() };
    }
    Ok(())
}

/// Starts at the first run of a patch.
///
/// # Safety
/// `sinfo` is writable, `stride_arr` readable for `stride_levels` numbers and `seg_count` for one more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_stride_info_init(
    sinfo: *mut CStrideInfo,
    base_ptr: *mut c_void,
    stride_levels: c_int,
    stride_arr: *const c_int,
    seg_count: *const c_int,
) {
    // The state may never have been written before: it is made here and then stored whole.
    let mut info = CStrideInfo {
        base_ptr: base_ptr.cast(),
        stride_levels,
        stride_arr: [0; LEVELS],
        seg_count: [0; LEVELS + 1],
        size: 1,
        pos: 0,
        itr: [0; LEVELS],
    };
    let outcome = (|| {
        not_null(sinfo)?;
        if !(0..=STRIDE_LEVELS_MAX).contains(&stride_levels) {
            return Err(Refusal::fatal(format!("{stride_levels} stride levels; there are up to {STRIDE_LEVELS_MAX}")));
        }
        let levels = stride_levels as usize;
        // SAFETY: this function's own contract.
        unsafe { read_counts(stride_arr, &mut info.stride_arr[..levels]) }?;
        // SAFETY: this function's own contract.
        unsafe { read_counts(seg_count, &mut info.seg_count[..=levels]) }?;
        let runs = info.seg_count[1..=levels].iter().try_fold(1, |size: c_int, count| size.checked_mul(*count));
        let is_counted = info.seg_count[1..=levels].iter().all(|count| *count > 0);
        info.size = runs.filter(|_| is_counted).ok_or_else(|| {
            Refusal::fatal(format!("the counts {:?} make no number of segments", &info.seg_count[1..=levels]))
        })?;
        // SAFETY: not null, and this function's own contract.
        unsafe { sinfo.write_unaligned(info) };
        Ok(())
    })();
    outcome.unwrap_or_else(|fault| end_with("armci_stride_info_init", fault));
}

/// Ends an iterator, which holds nothing.
#[unsafe(no_mangle)]
pub extern "C" fn armci_stride_info_destroy(_sinfo: *mut CStrideInfo) {}

/// How many runs there are.
///
/// # Safety
/// `sinfo` was initialised and is used by nobody else meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_stride_info_size(sinfo: *mut CStrideInfo) -> c_int {
    // SAFETY: this function's own contract.
    unsafe { with("armci_stride_info_size", sinfo, |info| Ok(info.size)) }
}

/// How many runs there are, by its other name.
///
/// # Safety
/// As [`armci_stride_info_size`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_stride_info_count(sinfo: *mut CStrideInfo) -> c_int {
    // SAFETY: this function's own contract.
    unsafe { with("armci_stride_info_count", sinfo, |info| Ok(info.size)) }
}

/// Which run is the current one, from 0.
///
/// # Safety
/// As [`armci_stride_info_size`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_stride_info_pos(sinfo: *mut CStrideInfo) -> c_int {
    // SAFETY: this function's own contract.
    unsafe { with("armci_stride_info_pos", sinfo, |info| Ok(info.pos)) }
}

/// Goes on to the next run.
///
/// # Safety
/// As [`armci_stride_info_size`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_stride_info_next(sinfo: *mut CStrideInfo) {
    // SAFETY: this function's own contract.
    unsafe { with("armci_stride_info_next", sinfo, CStrideInfo::next) }
}

/// Where the current run is.
///
/// # Safety
/// As [`armci_stride_info_size`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_stride_info_seg_ptr(sinfo: *mut CStrideInfo) -> *mut c_void {
    // SAFETY: this function's own contract.
    unsafe {
        with("armci_stride_info_seg_ptr", sinfo, |info| {
            Ok(info.base_ptr.wrapping_offset(info.offset() as isize).cast())
        })
    }
}

/// Bytes of a run.
///
/// # Safety
/// As [`armci_stride_info_size`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_stride_info_seg_size(sinfo: *mut CStrideInfo) -> c_int {
    // SAFETY: this function's own contract.
    unsafe { with("armci_stride_info_seg_size", sinfo, |info| Ok(info.seg_count[0])) }
}

/// Bytes from the start of the patch to the current run.
///
/// # Safety
/// As [`armci_stride_info_size`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_stride_info_seg_off(sinfo: *mut CStrideInfo) -> c_int {
    // SAFETY: this function's own contract.
    unsafe { with("armci_stride_info_seg_off", sinfo, |info| Ok(info.offset() as c_int)) }
}

/// Not 0 until the last run was left.
///
/// # Safety
/// As [`armci_stride_info_size`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_stride_info_has_more(sinfo: *mut CStrideInfo) -> c_int {
    // SAFETY: this function's own contract.
    unsafe { with("armci_stride_info_has_more", sinfo, |info| Ok(c_int::from(info.has_more()))) }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::ptr::null;

    use super::*;

    /// The offsets of all runs, in the order in which the iterator gives them.
    fn offsets(strides: &[c_int], counts: &[c_int]) -> Vec<i64> {
        let mut state = MaybeUninit::<CStrideInfo>::uninit();
        let (levels, pointer) = (strides.len() as c_int, state.as_mut_ptr());
        let strides = if strides.is_empty() { null() } else { strides.as_ptr() };
        let base = std::ptr::without_provenance_mut(0x1000);
        // SAFETY: the state is writable, and the lists are as long as their number says.
        unsafe { armci_stride_info_init(pointer, base, levels, strides, counts.as_ptr()) };
        let mut found = Vec::new();
        // SAFETY: initialised above, and nobody else has it.
        let info = unsafe { state.assume_init_mut() };
        while info.has_more() {
            assert_eq!(info.pos as usize, found.len());
            // SAFETY: initialised above, and nobody else has it.
            let address = unsafe { armci_stride_info_seg_ptr(info) }.addr();
            assert_eq!(address as i64 - 0x1000, info.offset());
            found.push(info.offset());
            assert!(info.next().is_ok());
        }
        assert_eq!(found.len(), info.size as usize);
        assert!(info.next().is_err(), "nothing is behind the last run");
        found
    }

    #[test]
    fn a_contiguous_patch_is_one_segment() {
        assert_eq!(offsets(&[], &[40]), [0]);
    }

    #[test]
    fn the_first_level_runs_fastest() {
        assert_eq!(offsets(&[10], &[4, 3]), [0, 10, 20]);
        assert_eq!(offsets(&[10, 100], &[4, 2, 3]), [0, 10, 100, 110, 200, 210]);
    }

    #[test]
    fn all_levels_can_be_used() {
        let strides: Vec<c_int> = (0..8).map(|level| 4 << level).collect();
        let expected: Vec<i64> = (0..256).map(|index| index * 4).collect();
        assert_eq!(offsets(&strides, &[4, 2, 2, 2, 2, 2, 2, 2, 2]), expected);
    }

    #[test]
    fn segments_may_lie_before_the_first_and_far_behind_it() {
        assert_eq!(offsets(&[-16], &[8, 3]), [0, -16, -32]);
        assert_eq!(offsets(&[c_int::MAX], &[8, 3])[2], 2 * i64::from(c_int::MAX));
    }
}
