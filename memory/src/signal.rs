//! Signals that others send to tell something, and that would end this process.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// A signal that would end this process does nothing from now on. Where the program has said what it does, that stays.
///
/// ```
/// const SIGUSR1: i32 = 10;
/// longarm_memory::outlive_signal(SIGUSR1)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The system's, for what is no signal or cannot be outlived.
pub fn outlive_signal(signal: c_int) -> io::Result<()> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it only writes to the second place, which is of the type that it wants.
    if unsafe { libc::sigaction(signal, ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded and written it; before that it was zero, which is one as well.
    let mut action = unsafe { before.assume_init() };
    if action.sa_sigaction != libc::SIG_DFL {
        return Ok(());
    }
    action.sa_sigaction = do_nothing as extern "C" fn(c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the action is a whole one, and its function is there as long as the process and does nothing.
    match unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn do_nothing(_signal: c_int) {}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn handler_of(signal: c_int) -> usize {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: it only writes to the second place.
        assert_eq!(unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) }, 0);
        // SAFETY: the call has written it.
        unsafe { action.assume_init() }.sa_sigaction
    }

    #[test]
    fn a_signal_that_would_end_the_process_is_outlived_and_what_the_program_has_said_stays() {
        outlive_signal(libc::SIGUSR2).unwrap();
        // SAFETY: it takes a number.
        assert_eq!(unsafe { libc::raise(libc::SIGUSR2) }, 0);
        // The language's own start ignores this one.
        let before = handler_of(libc::SIGPIPE);
        assert_ne!(before, libc::SIG_DFL);
        outlive_signal(libc::SIGPIPE).unwrap();
        assert_eq!(handler_of(libc::SIGPIPE), before);
        assert!(outlive_signal(libc::SIGKILL).is_err());
    }
}
