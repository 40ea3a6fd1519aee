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
//! PAIR since: the store of `SINCE` in `install` (Release) and its load in the handler (Acquire). Who sees the address sees what
//! is there.

use std::ffi::{c_int, c_void};
use std::io::Error;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::time::Duration;

use longarm::ffi::sync::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// The memory, for the handler.
static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static IS_HELD: AtomicBool = AtomicBool::new(false);

/// Faults that came when the memory could be written again. Each thread may have one.
static LATE: AtomicUsize = AtomicUsize::new(0);
const LATE_MAX: usize = 10_000;

/// What was done with faults before the first time.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// What was done with them before this time, if the program has changed it. What was once here is never freed: a handler
/// may still be looking at it.
static SINCE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// How often the other threads are looked at, for what may pass.
const LOOKS: usize = 100;
/// How long it waits for a thread that begins or ends, which takes as long as it gets no processor.
const MOMENT: Duration = Duration::from_millis(1);
const MOMENTS_MAX: usize = 10_000;
/// What the system calls the signals that wait for a thread.
const PENDING: &str = "SigPnd";
/// The first of those signals that the C library keeps for itself.
const FIRST_OF_LIBRARY: c_int = 32;

/// Signals that a thread sends to itself by what it does. These are never held up.
const OF_THREAD: [c_int; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// All signals but these.
fn of_others() -> libc::sigset_t {
    // SAFETY: zeroes are an empty set.
    let mut set = unsafe { MaybeUninit::<libc::sigset_t>::zeroed().assume_init() };
    // SAFETY: the set is writable.
    unsafe { libc::sigfillset(&mut set) };
    for signal in OF_THREAD {
        // SAFETY: the set was filled above.
        unsafe { libc::sigdelset(&mut set, signal) };
    }
    set
}

/// While it lives no handler of signals runs on the thread that made it, but for those of what the thread itself does wrong.
/// Stays on the thread that made it.
pub(crate) struct Undisturbed {
    before: libc::sigset_t,
    _on_one_thread: PhantomData<*mut ()>,
}

impl Undisturbed {
    pub(crate) fn new() -> Undisturbed {
        let set = of_others();
        let mut before = set;
        // SAFETY: both are sets. It cannot fail with this first argument.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) };
        Undisturbed { before, _on_one_thread: PhantomData }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        // SAFETY: the set that the system gave to this thread.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Whether the program has handlers of signals. They may run on any thread, longarm's too.
pub(crate) fn has_handlers() -> bool {
    (1..=libc::SIGRTMAX()).filter(|signal| !OF_THREAD.contains(signal)).any(|signal| {
        // The C library keeps some for itself and says nothing of them.
        action(signal, None).is_ok_and(|action| !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN))
    })
}

/// The mask of some other thread, a field of what the system says of it, that has the signal of faults; one that a program has
/// made before one of the C library.
fn mask_of_others(field: &str) -> Option<u64> {
    // SAFETY: it takes nothing.
    let me = unsafe { libc::gettid() }.to_string();
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    let masks = threads.flatten().filter(|thread| *thread.file_name() != *me).filter_map(|thread| {
        // It may have ended since.
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.filter(|mask| has(*mask, libc::SIGSEGV)).min_by_key(|mask| is_of_library(*mask))
}

fn has(mask: u64, signal: c_int) -> bool {
    mask >> (signal - 1) & 1 == 1
}

/// The C library blocks all signals where a thread begins and ends, its own too, which it lets no program block. It
/// unblocks them as soon as the thread gets a processor.
fn is_of_library(mask: u64) -> bool {
    has(mask, FIRST_OF_LIBRARY)
}

/// Whether it is in such a mask every time, threads that begin and end left out. For those, and for a fault that a thread has had,
/// the thread has to get a processor, which may take a while.
fn stays_in_mask_of_others(field: &str) -> bool {
    let (mut looks, mut moments) = (0, 0);
    while looks < LOOKS {
        // Called by `Held::new` before it is needed, as the module demands.
        // SAFETY: it takes nothing.
        unsafe { libc::sched_yield() };
        match mask_of_others(field) {
            None => return false,
            Some(mask) if (is_of_library(mask) || field == PENDING) && moments < MOMENTS_MAX => {
                moments += 1;
                std::thread::sleep(MOMENT);
            }
            Some(_) => looks += 1,
        }
    }
    true
}

/// Memory that nobody writes to.
pub(crate) struct Held {
    start: *mut c_void,
    bytes: usize,
    /// What is to be put back.
    since: Option<libc::sigaction>,
}

impl Held {
    /// Holds whole pages, which can be read and written so far. The caller is [`Undisturbed`]. One at a time. After an error
    /// nothing is held.
    pub(crate) fn new(start: *mut u8, bytes: usize) -> Result<Held, Error> {
        if stays_in_mask_of_others("SigBlk") {
            return Err(Error::other("a thread blocks SIGSEGV"));
        }
        START.store(start.addr(), Ordering::Relaxed);
        BYTES.store(bytes, Ordering::Relaxed);
        let since = install()?;
        IS_HELD.store(true, Ordering::SeqCst);
        let start: *mut c_void = start.cast();
        // SAFETY: pages of the program's segment; who writes to them meanwhile waits in the handler.
        if unsafe { libc::mprotect(start, bytes, libc::PROT_READ) } != 0 {
            let error = Error::last_os_error();
            IS_HELD.store(false, Ordering::Release);
            put_back(since);
            return Err(error);
        }
        Ok(Held { start, bytes, since })
    }

    /// Lets the others go on: with the memory as it is, if it was mapped anew, or else with the one that was held.
    pub(crate) fn end(self, is_mapped_anew: bool) {
        if !is_mapped_anew {
            // SAFETY: as they were before.
            unsafe { libc::mprotect(self.start, self.bytes, libc::PROT_READ | libc::PROT_WRITE) };
        }
        // PAIR held.
        IS_HELD.store(false, Ordering::Release);
        put_back(self.since);
    }
}

/// Asks what is done with a signal, and has something else done with it if that is given.
fn action(signal: c_int, new: Option<&libc::sigaction>) -> Result<libc::sigaction, Error> {
    // SAFETY: zeroes are an action without flags, mask or handler.
    let mut before = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the new action is one of this module, whose handlers are there as long as the process, or one that the system
    // gave; and `before` is writable.
    if unsafe { libc::sigaction(signal, new, &mut before) } != 0 {
        return Err(Error::last_os_error());
    }
    Ok(before)
}

/// Has faults come to this module. Gives what is to be put back in the end, if it is.
fn install() -> Result<Option<libc::sigaction>, Error> {
    let before = action(libc::SIGSEGV, None)?;
    let is_first = BEFORE.get().is_none();
    let handler = if is_first { on_fault as *const () } else { on_fault_since as *const () };
    if before.sa_sigaction == on_fault as *const () as usize {
        return Ok(None);
    }
    if is_first {
        BEFORE.get_or_init(|| before);
    } else {
        // PAIR since.
        SINCE.store(Box::leak(Box::new(before)), Ordering::Release);
    }
    let mut ours = before;
    // No other handler runs on a thread that waits: it could not wait once more.
    ours.sa_mask = of_others();
    ours.sa_sigaction = handler as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    action(libc::SIGSEGV, Some(&ours))?;
    Ok((!is_first).then_some(before))
}

/// Has faults go where they went, when none of those that this module has caused can be on its way.
fn put_back(since: Option<libc::sigaction>) {
    let Some(since) = since else { return };
    stays_in_mask_of_others(PENDING);
    if let Ok(replaced) = action(libc::SIGSEGV, Some(&since))
        && replaced.sa_sigaction != on_fault_since as *const () as usize
    {
        // Another thread has changed it meanwhile, or a fault that is the end has.
        let _ = action(libc::SIGSEGV, Some(&replaced));
    }
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

/// The handler of the first time.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: this function's own contract.
    unsafe { waited_or_passed_on(BEFORE.get(), (signal, info, context)) };
}

/// The handler of later times. Another function than the first, which the handler that this one goes on to may know of and go
/// on to itself.
unsafe extern "C" fn on_fault_since(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // PAIR since.
    let since = SINCE.load(Ordering::Acquire);
    // SAFETY: it is set before this is installed, and never freed.
    let since = unsafe { since.as_ref() };
    // SAFETY: this function's own contract.
    unsafe { waited_or_passed_on(since, (signal, info, context)) };
}

/// # Safety
/// They are what the system passes to a handler, and what it once did with the signal.
unsafe fn waited_or_passed_on(
    before: Option<&libc::sigaction>,
    (signal, info, context): (c_int, *mut libc::siginfo_t, *mut c_void),
) {
    // SAFETY: the system passes a description of the fault.
    let described = unsafe { &*info };
    // SAFETY: a fault has an address; of a signal that was sent it is not looked at.
    let address = unsafe { described.si_addr() }.addr();
    let is_here = address.wrapping_sub(START.load(Ordering::Relaxed)) < BYTES.load(Ordering::Relaxed);
    // Numbers up to 0 are those of signals that were sent.
    let was_sent = described.si_code <= 0;
    if is_here && !was_sent && wait() {
        return;
    }
    let Some(before) = before else { return };
    if !matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        // SAFETY: what the system has passed to us.
        unsafe { mask_as_for(before, signal, context) };
    }
    match before.sa_sigaction {
        libc::SIG_IGN if was_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // The fault comes again, and is for the other one.
            // SAFETY: an action that the system has given.
            unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
            if was_sent {
                // A signal that was sent does not: it is sent again, and comes when this handler is left.
                // SAFETY: it takes a number.
                unsafe { libc::raise(signal) };
            }
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

/// Has the handler that is gone on to run with the signals blocked that it asked for, in place of those that we ask for.
///
/// # Safety
/// The context is what the system has passed to a handler.
unsafe fn mask_as_for(before: &libc::sigaction, signal: c_int, context: *mut c_void) {
    let context: *const libc::ucontext_t = context.cast();
    // SAFETY: this function's own contract.
    let mut mask = unsafe { (*context).uc_sigmask };
    for other in 1..=libc::SIGRTMAX() {
        // SAFETY: a set that the system has given.
        let is_asked_for = unsafe { libc::sigismember(&before.sa_mask, other) } == 1;
        if is_asked_for || (other == signal && before.sa_flags & libc::SA_NODEFER == 0) {
            // SAFETY: a set that the system has given.
            unsafe { libc::sigaddset(&mut mask, other) };
        }
    }
    // SAFETY: the old mask is not asked for. The system puts it back when the handler is left.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
}
