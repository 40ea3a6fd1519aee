//! How calls of the library say what went wrong.

use rustix::io::Errno;

/// What the last call that returned nothing left in `errno`.
pub(super) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// What a call that returns an error number says.
pub(super) fn check(returned: i32) -> Result<(), Errno> {
    match returned {
        0 => Ok(()),
        -1 => Err(last_errno()),
        number => Err(Errno::from_raw_os_error(number.abs())),
    }
}
