//! Which processors there are, and staying on one.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Failure;

/// The processors that this thread may use, ascending.
pub(crate) fn allowed() -> Result<Vec<usize>, Failure> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect())
}

/// The two that a pair is measured on; the same one twice where there is only one.
pub(crate) fn pair() -> Result<[usize; 2], Failure> {
    let all = allowed()?;
    let first = *all.first().ok_or("no processor may be used")?;
    Ok([first, all.get(1).copied().unwrap_or(first)])
}

/// Keeps the calling thread on one processor. What it starts stays there too.
pub(crate) fn stay_on(processor: usize) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}
