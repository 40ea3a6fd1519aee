//! Keeps the other threads of the process from writing to a part of its memory for a moment, while it is copied and mapped anew.
//!
//! The part can only be read meanwhile. Who writes to it faults, and waits in the handler of the fault until it can be written
//! again; then the write is tried once more. There are such threads where the program started some before init, and where
//! this library is linked into the program as an archive, so that its own variables are among those of the program.
//!
//! The handler stays for good: a fault may come to it long after it happened. Any other fault goes on to the handler that was
//! there before; one in the same memory that comes again and again does too.
//!
//! Between [`Held::new`] and [`Held::end`] the calling thread must write to none of the memory either: no allocation, and no
//! function of another library that was not called before, for the place that remembers its address may be in the memory.
//!
//! PAIR held: the store of `IS_HELD` in `end` (Release) and its loads in the handler (Acquire). Who sees the end sees the
//! memory that can be written.

use std::ffi::{c_int, c_void};
use std::io::Error;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use longarm::face::sync::{AtomicBool, AtomicUsize, Ordering};

/// The memory, for the handler.
static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static IS_HELD: AtomicBool = AtomicBool::new(false);

/// Faults that came when the memory could be written again. Each thread may have one.
static LATE: AtomicUsize = AtomicUsize::new(0);
const LATE_MAX: usize = 10_000;

/// What was done with faults before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Memory that nobody writes to.
pub(crate) struct Held {
    start: *mut c_void,
    bytes: usize,
}

impl Held {
    /// Holds whole pages, which can be read and written so far. Once in a process.
    pub(crate) fn new(start: *mut u8, bytes: usize) -> Result<Held, Error> {
        START.store(start.addr(), Ordering::Relaxed);
        BYTES.store(bytes, Ordering::Relaxed);
        install()?;
        // Called once before it is needed, as the module demands.
        // SAFETY: it takes nothing.
        unsafe { libc::sched_yield() };
        IS_HELD.store(true, Ordering::SeqCst);
        let start: *mut c_void = start.cast();
        // SAFETY: pages of the program's segment; who writes to them meanwhile waits in the handler.
        if unsafe { libc::mprotect(start, bytes, libc::PROT_READ) } != 0 {
            let error = Error::last_os_error();
            IS_HELD.store(false, Ordering::Release);
            return Err(error);
        }
        Ok(Held { start, bytes })
    }

    /// Lets the others go on: with the memory as it is, if it was mapped anew, or else with the one that was held.
    pub(crate) fn end(self, is_mapped_anew: bool) {
        if !is_mapped_anew {
            // SAFETY: as they were before.
            unsafe { libc::mprotect(self.start, self.bytes, libc::PROT_READ | libc::PROT_WRITE) };
        }
        // PAIR held.
        IS_HELD.store(false, Ordering::Release);
    }
}

fn install() -> Result<(), Error> {
    // SAFETY: zeroes are an action without flags, mask or handler.
    let mut before = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    let mut action = before;
    // SAFETY: it only asks, and `before` is writable.
    if unsafe { libc::sigaction(libc::SIGSEGV, std::ptr::null(), &mut before) } != 0 {
        return Err(Error::last_os_error());
    }
    BEFORE.get_or_init(|| before);
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the action is whole, and the handler is there as long as the process.
    if unsafe { libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) } != 0 {
        return Err(Error::last_os_error());
    }
    Ok(())
}

/// Waits until the memory can be written again. False: that has been so for long, and the fault has another reason.
fn wait() -> bool {
    let mut has_waited = false;
    // PAIR held.
    while IS_HELD.load(Ordering::Acquire) {
        has_waited = true;
        // SAFETY: it takes nothing.
        unsafe { libc::sched_yield() };
    }
    has_waited || LATE.fetch_add(1, Ordering::Relaxed) < LATE_MAX
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes a description of the fault.
    let described = unsafe { &*info };
    // SAFETY: a fault has an address; of a signal that was sent it is not looked at.
    let address = unsafe { described.si_addr() }.addr();
    let is_here = address.wrapping_sub(START.load(Ordering::Relaxed)) < BYTES.load(Ordering::Relaxed);
    // Numbers up to 0 are those of signals that were sent.
    if is_here && described.si_code > 0 && wait() {
        return;
    }
    let Some(before) = BEFORE.get() else { return };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // The fault comes again, and is for the other one.
            // SAFETY: an action that the system has given.
            unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            type Informed = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: the flag says that the handler takes these.
            let handler = unsafe { std::mem::transmute::<usize, Informed>(handler) };
            // SAFETY: what the system has passed to us.
            unsafe { handler(signal, info, context) };
        }
        handler => {
            // SAFETY: without the flag a handler takes the number alone.
            let handler = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(handler) };
            // SAFETY: what the system has passed to us.
            unsafe { handler(signal) };
        }
    }
}
