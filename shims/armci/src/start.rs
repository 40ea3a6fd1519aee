//! Init, finalize, fences, barriers, and the end of a job.

use std::ffi::{CStr, c_char, c_int};

use parking_lot::Mutex;

use crate::boundary::{call_or_end, end_with, end_with_status};
use crate::groups;
use crate::job::{self, Job, Phase};
use crate::join;
use crate::refusal::{Done, Refusal};

/// Held over init and finalize.
static STARTING: Mutex<()> = Mutex::new(());

/// Joins the job if need be, and opens it for calls. Collective. Between init and finalize it does nothing.
fn init(name: &'static str, communicator: Option<usize>) -> c_int {
    // A second thread's init returns when the first one's is done.
    let _one_at_a_time = STARTING.lock();
    let outcome = join::joined_over(communicator).and_then(|job| {
        if job::active().is_some() {
            return Ok(());
        }
        job.notices.prepare(&job.world)?;
        job.pools.prepare(job)?;
        job.enter(Phase::Active);
        Ok(job.world.sync_collective()?)
    });
    match outcome {
        Ok(()) => 0,
        Err(fault) => end_with(name, fault),
    }
}

/// Starts ARMCI. Collective over all processes of the job.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Init() -> c_int {
    init("ARMCI_Init", None)
}

/// `ARMCI_Init`; the arguments of the program are left as they are.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Init_args(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> c_int {
    init("ARMCI_Init_args", None)
}

/// `ARMCI_Init`. Every thread level is always there.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Init_thread(_required: c_int) -> c_int {
    init("ARMCI_Init_thread", None)
}

/// `ARMCI_Init` over an MPI communicator: its processes are the job. Collective over them.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Init_mpi_comm(communicator: usize) -> c_int {
    init("ARMCI_Init_mpi_comm", Some(communicator))
}

/// `ARMCI_Init_mpi_comm` with a thread level.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Init_thread_comm(_required: c_int, communicator: usize) -> c_int {
    init("ARMCI_Init_thread_comm", Some(communicator))
}

/// Whether this process is between init and finalize.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Initialized() -> c_int {
    c_int::from(job::active().is_some())
}

/// Completes everything, meets the others and ends ARMCI, however often init was called. Collective. Once more does
/// nothing. Gives 0.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Finalize() -> c_int {
    let _one_at_a_time = STARTING.lock();
    let Some(job) = job::active() else { return 0 };
    let freed = job.notices.free().and_then(|()| job.pools.free(job));
    // Memory of the dead cannot be freed together with them. It goes with the process.
    let freed = freed.or_else(|fault| if job.world.survivors_go_on() { Ok(()) } else { Err(fault) });
    if let Err(fault) = freed.and_then(|()| join::leave(job)) {
        end_with("ARMCI_Finalize", fault);
    }
    0
}

/// Frees what the system would keep after a crash. There is nothing: no segment has a name.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Cleanup() {}

/// Where a condition that a program asserts does not hold: ends the whole job.
///
/// # Safety
/// The texts are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dassertp_fail(
    cond_string: *const c_char,
    file: *const c_char,
    func: *const c_char,
    line: std::ffi::c_uint,
    code: c_int,
) -> c_int {
    let [condition, file, function] = [cond_string, file, func].map(|words| {
        // SAFETY: this function's own contract.
        unsafe { text(words) }
    });
    end_with_status(&format!("{file}:{line}: {function}: {condition} does not hold ({code})"), exit_status(code))
}

/// The name of a group of processes in a message library of old, which programs may look at.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static mp_group_name: longarm::ffi::sync::AtomicPtr<c_char> =
    longarm::ffi::sync::AtomicPtr::new(std::ptr::null_mut());

/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return "no message".to_owned();
    }
    // SAFETY: not null, and this function's own contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Ends the whole job with a message.
///
/// # Safety
/// `msg` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Error(msg: *const c_char, code: c_int) {
    // SAFETY: this function's own contract.
    let text = unsafe { text(msg) };
    let rank = join::told_rank_and_size().map_or_else(|| "?".to_owned(), |(rank, _)| rank.to_string());
    eprintln!("[{rank}] ARMCI Error: {text} ({code})");
    end_with_status(&format!("ARMCI_Error: {text} ({code})"), exit_status(code));
}

/// A status that says failure, as near to a code as a status can be.
pub(crate) fn exit_status(code: c_int) -> c_int {
    if (1..=255).contains(&code) { code } else { 1 }
}

/// What this process has issued towards another one is visible there on return.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Fence(proc: c_int) {
    call_or_end("ARMCI_Fence", |job| Ok(job.world.quiet_rank(job.rank(proc)?)?));
}

/// What this process has issued is visible everywhere on return.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_AllFence() {
    call_or_end("ARMCI_AllFence", |job| Ok(job.world.quiet()?));
}

/// What this process has issued towards the processes of a group is visible there on return.
///
/// # Safety
/// `group` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PARMCI_GroupFence(group: *mut c_int) {
    call_or_end("ARMCI_GroupFence", |job| {
        // SAFETY: this function's own contract.
        job.groups.get(unsafe { groups::number(group) }?)?;
        Ok(job.world.quiet()?)
    });
}

/// What the processes of the default group have issued is visible everywhere, and all have met.
#[unsafe(no_mangle)]
pub extern "C" fn PARMCI_Barrier() {
    call_or_end("ARMCI_Barrier", |job| Ok(job.groups.default().barrier_collective()?));
}

/// Direct loads and stores of a segment follow. Allocations of longarm may be read and written at any time between
/// synchronisations, so this is a memory fence: in both directions, for stores before it and loads behind it too, which
/// only a sequentially consistent one keeps in order.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Access_begin(_ptr: *mut std::ffi::c_void) {
    longarm::ffi::sync::fence(longarm::ffi::sync::Ordering::SeqCst);
}

/// Direct loads and stores of a segment have ended.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Access_end(_ptr: *mut std::ffi::c_void) {
    longarm::ffi::sync::fence(longarm::ffi::sync::Ordering::SeqCst);
}

/// Moves what can be moved. Progress does not need it.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCIX_Progress() {
    call_or_end("ARMCIX_Progress", |job| {
        job.world.progress();
        Ok(())
    });
}

/// Copies bytes of this process.
///
/// # Safety
/// `src` is readable and `dst` writable for `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Copy(src: *mut std::ffi::c_void, dst: *mut std::ffi::c_void, n: c_int) {
    call_or_end("ARMCI_Copy", |_: &Job| -> Done {
        let bytes = usize::try_from(n).map_err(|_| Refusal::fatal(format!("{n} bytes")))?;
        if bytes > 0 {
            crate::arguments::not_null(src)?;
            crate::arguments::not_null(dst)?;
            // SAFETY: this function's own contract.
            let source = unsafe { crate::arguments::readable(src, bytes) };
            // SAFETY: this function's own contract.
            unsafe { crate::arguments::writable(dst, bytes) }.copy_from(source);
        }
        Ok(())
    });
}
