//! What can go wrong, and what to do about it.

use std::io;

/// Why memory could not be registered, or not be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The system or the device gives no more.
    #[error(
        "cannot register {bytes} bytes: the limit on locked memory or on the device's registrations is reached; \
         raise the first with `ulimit -l unlimited` (memlock in limits.conf, LimitMEMLOCK in a systemd unit)"
    )]
    Limit {
        /// How many were asked for.
        bytes: usize,
    },
    /// The bounds of the cache leave no room, because all it holds is in use.
    #[error(
        "cannot register {bytes} bytes: the cache may hold {bytes_max} bytes in {entries_max} registrations, and too \
         much of that is in use; complete some transfers first, or raise these bounds"
    )]
    Full {
        /// How many were asked for, in whole pages.
        bytes: usize,
        /// The bound on bytes.
        bytes_max: usize,
        /// The bound on registrations.
        entries_max: usize,
    },
    /// Nothing is mapped there, it must not be used this way, or there are no such addresses.
    #[error("cannot register {bytes} bytes at {start:#x}: not mapped, or not writable; pass memory of this process")]
    BadRange {
        /// The first address.
        start: usize,
        /// How many bytes.
        bytes: usize,
    },
    /// This process is a child of the one whose registrations these are.
    #[error("registrations belong to the process that made them, not to its children; open the device anew after fork")]
    Forked,
    /// Anything else that the system says.
    #[error("cannot register memory: {}", io::Error::from_raw_os_error(*errno))]
    System {
        /// The system's number.
        errno: i32,
    },
}

/// Why there is no cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// Watching by userfaultfd was demanded, and is refused.
    #[error(
        "cannot watch memory by userfaultfd: {}; set vm.unprivileged_userfaultfd=1, or allow the call in the \
         container's seccomp profile", io::Error::from_raw_os_error(*errno)
    )]
    Userfault {
        /// The system's number.
        errno: i32,
    },
    /// A thread, a page or a descriptor could not be had.
    #[error("cannot set up the registration cache: {}", io::Error::from_raw_os_error(*errno))]
    System {
        /// The system's number.
        errno: i32,
    },
}
