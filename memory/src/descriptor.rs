//! Descriptors that a parent process left open for this one.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

/// Numbers that were taken over, so that no descriptor gets two owners.
static ADOPTED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Takes over an inherited descriptor by its number, and keeps it from being inherited further.
///
/// # Errors
/// `InvalidInput` for a number under 3, one taken over before, or one that is closed on exec and so was opened by this
/// process, as whatever Rust opens; the system's error where nothing is open there.
pub fn adopt_descriptor(number: RawFd) -> io::Result<OwnedFd> {
    let mut adopted = ADOPTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if number < 3 || adopted.contains(&number) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: F_GETFD takes no pointer; a number that is not open gives an error.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags == -1 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: F_SETFD takes no pointer; a number that is not open gives an error.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    adopted.push(number);
    // SAFETY: the number is open, as the calls above have shown, it was inherited, because it was not closed on exec, it was named to us by the parent that left it open for
    // us alone, and `ADOPTED` sees to it that this happens once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
