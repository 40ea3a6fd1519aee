//! One transfer, whatever it does and whatever its shape: the path of all calls, the shortest way first where there is one.

use std::ffi::{c_int, c_void};

use longarm::Window;
use longarm::error::{Operation, TransferError};
use longarm::ffi::{Completion, CounterKind, Kernel, LenderMut, OriginBytes, OriginBytesMut, RegionMut, Scale, Shapes};

use super::handles::{CHandle, Pending};
use crate::addresses::RecentBytes;
use crate::arguments::{Counts, Origin, Side, not_null, readable, writable};
use crate::job::Job;
use crate::refusal::{Done, Refusal};

/// What a transfer does.
#[derive(Clone, Copy)]
pub(crate) enum Doing<'a> {
    Put,
    Get,
    Accumulate(Kernel, &'a Scale),
}

impl Doing<'_> {
    pub(crate) fn operation(self) -> Operation {
        match self {
            Doing::Put => Operation::Put,
            Doing::Get => Operation::Get,
            Doing::Accumulate(..) => Operation::Accumulate,
        }
    }
}

/// How a transfer ends: before the call returns, or later under a handle (null: an implicit one).
#[derive(Clone, Copy)]
pub(crate) enum Ending {
    Blocking,
    Under(*mut CHandle),
}

/// A strided call's arguments.
pub(crate) struct Strided {
    pub(crate) local: Side,
    pub(crate) remote: Side,
    pub(crate) count: *const c_int,
    pub(crate) levels: c_int,
    pub(crate) proc: c_int,
}

/// Does a strided call.
///
/// # Safety
/// The pointers of `arguments` are as ARMCI's interface wants them: arrays as long as `levels` says; the local bytes
/// readable or writable until the transfer has ended, and nobody has a reference to them if they are written.
#[inline]
pub(crate) unsafe fn strided(job: &Job, doing: Doing<'_>, ending: Ending, arguments: &Strided) -> Done {
    if arguments.levels == 0 && !arguments.count.is_null() {
        // SAFETY: this function's own contract. No table of counts is needed.
        return unsafe { one_run(job, doing, ending, arguments) };
    }
    not_null(arguments.local.start)?;
    not_null(arguments.remote.start)?;
    // SAFETY: this function's own contract.
    let counts = unsafe { Counts::new(arguments.count, arguments.levels) }?;
    if counts.is_empty() {
        return job.rank(arguments.proc).map(drop);
    }
    // SAFETY: this function's own contract.
    if unsafe { strided_at_once(job, (doing, ending), &counts, arguments) }? {
        return Ok(());
    }
    // SAFETY: this function's own contract.
    unsafe { strided_long(job, (doing, ending), &counts, arguments) }
}

/// Does a strided call without levels: one run of `count[0]` bytes.
///
/// # Safety
/// As [`strided`], and there is a count.
#[inline]
unsafe fn one_run(job: &Job, doing: Doing<'_>, ending: Ending, arguments: &Strided) -> Done {
    let (local, remote) = (arguments.local.start, arguments.remote.start);
    // SAFETY: this function's own contract.
    let run = (unsafe { arguments.count.read_unaligned() }, arguments.proc);
    match ending {
        // SAFETY: this function's own contract.
        Ending::Under(handle) => unsafe { contiguous_under(job, doing, handle, (local, remote), run) },
        // SAFETY: this function's own contract.
        Ending::Blocking => unsafe { contiguous(job, doing, local, remote, run) },
    }
}

/// A strided transfer through the tables. The counts are not empty.
///
/// # Safety
/// As [`strided`].
unsafe fn strided_long(job: &Job, (doing, ending): (Doing<'_>, Ending), counts: &Counts, arguments: &Strided) -> Done {
    let rank = job.rank(arguments.proc)?;
    // SAFETY: this function's own contract.
    let origin = unsafe { Origin::new(counts, arguments.local) }?;
    job.at(rank, arguments.remote.start, |window, offset| {
        // SAFETY: this function's own contract.
        let target = match unsafe { counts.shape(offset, arguments.remote.strides) } {
            Ok(target) => target,
            Err(Refusal::Fatal(text)) => {
                let address = arguments.remote.start;
                return Ok(Err(Refusal::fatal(format!("address {address:p} of process {rank}: {text}"))));
            }
            Err(code) => return Ok(Err(code)),
        };
        let shapes = Shapes { target, origin: origin.shape.clone() };
        // SAFETY: this function's own contract.
        unsafe { run(job, window, (doing, ending), rank, shapes, &origin) }.map(Ok)
    })?
}

/// A strided transfer on mapped memory that this thread has used before, or one run that goes together with others; false if it was not done and has
/// to go the long way. The counts are not empty.
///
/// # Safety
/// As [`strided`].
#[inline]
unsafe fn strided_at_once(
    job: &Job,
    (doing, ending): (Doing<'_>, Ending),
    counts: &Counts,
    arguments: &Strided,
) -> Result<bool, TransferError> {
    let Strided { local, remote, .. } = arguments;
    // SAFETY: this function's own contract.
    if let Some(bytes) = unsafe { counts.run_bytes(local.strides, remote.strides) } {
        if matches!(ending, Ending::Under(_)) {
            // SAFETY: this function's own contract.
            return unsafe {
                contiguous_under_at_once(job, doing, (local.start, remote.start), (bytes, arguments.proc))
            };
        }
        // SAFETY: what is done with the result is an operation on mapped memory, which does not wait.
        let direct = unsafe { job.addresses.direct(arguments.proc, remote.start.addr(), bytes) };
        let Some(direct) = direct else { return Ok(false) };
        // SAFETY: this function's own contract, and `direct` has looked at the remote bytes.
        return unsafe { through_memory(doing, local.start, &direct, bytes) }.map(|()| true);
    }
    let (to, from) = match doing {
        Doing::Get => (local, remote),
        Doing::Put | Doing::Accumulate(..) => (remote, local),
    };
    // SAFETY: this function's own contract.
    let Some(patch) = (unsafe { counts.patch(to.strides, from.strides) }) else { return Ok(false) };
    let (local_bytes, remote_bytes) = match doing {
        Doing::Get => (patch.to_bytes, patch.from_bytes),
        Doing::Put | Doing::Accumulate(..) => (patch.from_bytes, patch.to_bytes),
    };
    // SAFETY: what is done with the result is an operation on mapped memory, which does not wait.
    let direct = unsafe { job.addresses.direct(arguments.proc, remote.start.addr(), remote_bytes) };
    let Some(direct) = direct else { return Ok(false) };
    // SAFETY: mapped for as long as the window lives, which is longer than this call.
    let there = unsafe { RegionMut::from_raw(direct.start, remote_bytes) };
    match doing {
        Doing::Put => {
            // SAFETY: this function's own contract: the bytes of the patch are readable.
            patch.grid.copy(there, unsafe { readable(local.start, local_bytes) });
            direct.count(CounterKind::Put, patch.bytes as usize);
        }
        Doing::Get => {
            // SAFETY: this function's own contract: the bytes of the patch are writable.
            patch.grid.copy(unsafe { writable(local.start.cast_mut(), local_bytes) }, there.as_region());
            direct.count(CounterKind::Get, patch.bytes as usize);
        }
        Doing::Accumulate(kernel, scale) => {
            let operator = (kernel, *scale);
            // SAFETY: this function's own contract: the bytes of the patch are readable.
            let source = OriginBytes::from_region(unsafe { readable(local.start, local_bytes) });
            let grid = patch.grid.at_target(direct.offset as usize);
            return Ok(direct.window().accumulate_grid(direct.rank(), (&grid, patch.bytes), operator, source));
        }
    }
    Ok(true)
}

/// Does one transfer with one window.
///
/// # Safety
/// The bytes of the origin's shape are as the transfer needs them until it has ended, as for [`strided`]. A handle is
/// null or writable.
pub(crate) unsafe fn run(
    job: &Job,
    window: &Window<u8>,
    (doing, ending): (Doing<'_>, Ending),
    rank: u32,
    shapes: Shapes,
    origin: &Origin,
) -> Result<(), TransferError> {
    match ending {
        Ending::Under(handle) if !job.world.shares_memory_with(rank) => {
            // SAFETY: this function's own contract.
            unsafe { start(job, window, (doing, handle), rank, shapes, origin) }
        }
        // What goes through memory is done when the call returns, handle or not.
        _ => match doing {
            // SAFETY: this function's own contract: the bytes are readable.
            Doing::Put => window.put_shapes(rank, shapes, unsafe { origin.source() }),
            // SAFETY: this function's own contract: the bytes are writable and nobody refers to them.
            Doing::Get => window.get_shapes(rank, shapes, unsafe { origin.target() }),
            // SAFETY: this function's own contract: the bytes are readable.
            Doing::Accumulate(kernel, scale) => {
                // SAFETY: this function's own contract: the bytes are readable.
                window.accumulate_shapes(rank, shapes, (kernel, *scale), unsafe { origin.source() })
            }
        },
    }
}

/// Starts one transfer to another node.
///
/// # Safety
/// As [`run`].
unsafe fn start(
    job: &Job,
    window: &Window<u8>,
    (doing, handle): (Doing<'_>, *mut CHandle),
    rank: u32,
    shapes: Shapes,
    origin: &Origin,
) -> Result<(), TransferError> {
    let (completion, part) = Completion::begin();
    // SAFETY: this function's own contract: the bytes are as the transfer needs them until it has ended.
    let region = unsafe { origin.region() };
    // SAFETY: as above, until the completion is complete, which is what ends the transfer.
    let lender = unsafe { LenderMut::vouched(region, &part) };
    let started = match doing {
        Doing::Put => window.start_put_shapes(rank, shapes, &lender),
        Doing::Get => window.start_get_shapes(rank, shapes, &lender),
        Doing::Accumulate(kernel, scale) => window.start_accumulate_shapes(rank, shapes, (kernel, *scale), &lender),
    };
    drop(part);
    if started.is_ok() && completion.is_complete() {
        return job.world.wait_for_completion(doing.operation(), rank, &completion);
    }
    // Even a transfer that failed to start may have started in part: its handle is waited for as any other.
    let pending = Pending { operation: doing.operation(), rank, completion };
    // SAFETY: this function's own contract: the handle is null or writable.
    unsafe { job.handles.keep(handle, pending) };
    started
}

/// Does one contiguous transfer that blocks: the shortest way.
///
/// # Safety
/// `bytes` bytes at `local` are readable, or writable and not referred to, whichever way they go.
#[inline(always)]
pub(crate) unsafe fn contiguous(
    job: &Job,
    doing: Doing<'_>,
    local: *const c_void,
    remote: *const c_void,
    (bytes, proc): (c_int, c_int),
) -> Done {
    if local.is_null() || remote.is_null() || bytes <= 0 {
        return nothing_to_do(job, local, remote, bytes, proc);
    }
    let bytes = bytes as usize;
    // SAFETY: what is done with the result is an operation on mapped memory, which does not wait.
    if let Some(direct) = unsafe { job.addresses.direct(proc, remote.addr(), bytes) } {
        // SAFETY: this function's own contract, and `direct` has looked at the remote bytes.
        return Ok(unsafe { through_memory(doing, local, &direct, bytes) }?);
    }
    // SAFETY: this function's own contract.
    unsafe { contiguous_long(job, doing, local, remote, (bytes, proc)) }
}

/// A contiguous transfer on mapped memory that may be touched.
///
/// # Safety
/// As [`contiguous`], and `bytes` bytes are mapped at `direct`.
#[inline(always)]
unsafe fn through_memory(
    doing: Doing<'_>,
    local: *const c_void,
    direct: &RecentBytes<'_>,
    bytes: usize,
) -> Result<(), TransferError> {
    // SAFETY: mapped for as long as the window lives, which is longer than this call.
    let remote = unsafe { RegionMut::from_raw(direct.start, bytes) };
    match doing {
        Doing::Put => {
            // SAFETY: this function's own contract.
            remote.copy_from(unsafe { readable(local, bytes) });
            direct.count(CounterKind::Put, bytes);
        }
        Doing::Get => {
            // SAFETY: this function's own contract.
            unsafe { writable(local.cast_mut(), bytes) }.copy_from(remote.as_region());
            direct.count(CounterKind::Get, bytes);
        }
        Doing::Accumulate(kernel, scale) => {
            // SAFETY: this function's own contract.
            let source = unsafe { readable(local, bytes) };
            if !direct.accumulate((kernel, scale), source) {
                // It is refused there too, and by what is said.
                let source = OriginBytes::from_region(source);
                direct.window().accumulate_bytes(direct.rank(), direct.offset, (kernel, scale), source)?;
            }
        }
    }
    Ok(())
}

/// A contiguous transfer through the tables.
///
/// # Safety
/// As [`contiguous`].
#[inline(never)]
unsafe fn contiguous_long(
    job: &Job,
    doing: Doing<'_>,
    local: *const c_void,
    remote: *const c_void,
    (bytes, proc): (usize, c_int),
) -> Done {
    let rank = job.rank(proc)?;
    job.at(rank, remote, |window, offset| match doing {
        Doing::Put => {
            // SAFETY: this function's own contract.
            let source = OriginBytes::from_region(unsafe { readable(local, bytes) });
            window.put_bytes(rank, offset, source)
        }
        Doing::Get => {
            // SAFETY: this function's own contract.
            let target = unsafe { OriginBytesMut::from_raw(local.cast_mut().cast(), bytes) };
            window.get_bytes(rank, offset, target)
        }
        Doing::Accumulate(kernel, scale) => {
            // SAFETY: this function's own contract.
            let source = OriginBytes::from_region(unsafe { readable(local, bytes) });
            window.accumulate_bytes(rank, offset, (kernel, scale), source)
        }
    })
}

/// What is wrong with the arguments of a contiguous call, or nothing if it is about no bytes.
#[cold]
fn nothing_to_do(job: &Job, local: *const c_void, remote: *const c_void, bytes: c_int, proc: c_int) -> Done {
    not_null(local)?;
    not_null(remote)?;
    crate::arguments::length(bytes)?;
    job.rank(proc).map(drop)
}

/// A contiguous transfer under a handle.
///
/// # Safety
/// As [`contiguous`], until the transfer has ended; the handle is null or writable.
#[inline]
pub(crate) unsafe fn contiguous_under(
    job: &Job,
    doing: Doing<'_>,
    handle: *mut CHandle,
    (local, remote): (*const c_void, *const c_void),
    (bytes, proc): (c_int, c_int),
) -> Done {
    if local.is_null() || remote.is_null() || bytes <= 0 {
        return nothing_to_do(job, local, remote, bytes, proc);
    }
    // SAFETY: this function's own contract.
    if unsafe { contiguous_under_at_once(job, doing, (local, remote), (bytes as usize, proc)) }? {
        return Ok(());
    }
    // SAFETY: this function's own contract.
    unsafe { contiguous_under_long(job, doing, handle, (local, remote), (bytes, proc)) }
}

/// One run under a handle whose local bytes are free when this returns: on mapped memory that this thread has used before, where it is done, or copied,
/// to go to another node together with others. False: nothing was done, and it has to go the long way.
///
/// # Safety
/// `bytes` bytes at `local` are readable, or writable and not referred to, whichever way they go.
#[inline]
unsafe fn contiguous_under_at_once(
    job: &Job,
    doing: Doing<'_>,
    (local, remote): (*const c_void, *const c_void),
    (bytes, proc): (usize, c_int),
) -> Result<bool, TransferError> {
    // SAFETY: what is done with the result does not wait: operations on mapped memory, and writes that are copied.
    let Some(known) = (unsafe { job.addresses.recent(proc, remote.addr(), bytes) }) else { return Ok(false) };
    if known.may_be_touched() {
        // SAFETY: this function's own contract, and `recent` has looked at the remote bytes.
        return unsafe { through_memory(doing, local, &known, bytes) }.map(|()| true);
    }
    if !known.start.is_null() {
        return Ok(false);
    }
    let (window, rank, offset) = (known.window(), known.rank(), known.offset);
    let source = || {
        // SAFETY: this function's own contract; a get does not ask for it.
        OriginBytes::from_region(unsafe { readable(local, bytes) })
    };
    Ok(match doing {
        Doing::Put => window.put_bytes_together(rank, offset, source()),
        Doing::Accumulate(kernel, scale) => window.accumulate_bytes_together(rank, offset, (kernel, scale), source()),
        Doing::Get => false,
    })
}

/// A contiguous transfer of some bytes under a handle, through the tables.
///
/// # Safety
/// As [`contiguous_under`].
#[inline(never)]
unsafe fn contiguous_under_long(
    job: &Job,
    doing: Doing<'_>,
    handle: *mut CHandle,
    (local, remote): (*const c_void, *const c_void),
    (bytes, proc): (c_int, c_int),
) -> Done {
    let rank = job.rank(proc)?;
    if job.world.shares_memory_with(rank) {
        // SAFETY: this function's own contract.
        return unsafe { contiguous(job, doing, local, remote, (bytes, proc)) };
    }
    let none = std::ptr::null();
    let (local, remote) = (Side { start: local, strides: none }, Side { start: remote, strides: none });
    let arguments = Strided { local, remote, count: &raw const bytes, levels: 0, proc };
    // SAFETY: one count for no levels.
    let counts = unsafe { Counts::new(arguments.count, arguments.levels) }?;
    // SAFETY: this function's own contract.
    unsafe { strided_long(job, (doing, Ending::Under(handle)), &counts, &arguments) }
}
