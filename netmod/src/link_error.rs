//! Why links end, whatever the network.

use std::io;

use rustix::io::Errno;

/// Why a link, a listener or a connection attempt stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The peer closed its end. All bytes that it sent were received.
    #[error("the peer closed the connection")]
    Closed,
    /// The connection broke. Bytes under way in either direction may be lost.
    #[error("the connection was reset")]
    Reset,
    /// What arrived on an encrypted connection was not encrypted by the peer, or was changed or cut on its way. None of it
    /// was handed on.
    #[error("bytes on the encrypted connection were changed on their way")]
    Forged,
    /// Nobody listens at the address. Nothing was sent.
    #[error("nobody listens at this address")]
    Refused,
    /// The peer did not answer in time. Bytes under way may be lost.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The text is no address of this network, or no address that a peer could connect to.
    #[error("this is not an address that one can connect to")]
    BadAddress,
    /// The network device has given the connection up. Bytes under way in either direction may be lost.
    #[error("the network device gave the connection up: {0}")]
    Device(&'static str),
    /// Multipath TCP was asked for, and the system has none.
    #[error(
        "this system has no Multipath TCP: its kernel is without it, or has it switched off (sysctl net.mptcp.enabled)"
    )]
    NoMultipath,
    /// The system said no.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    System {
        /// The system's error number, as in `errno.h`.
        errno: i32,
    },
}

impl From<Errno> for LinkError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::SHUTDOWN => LinkError::Closed,
            Errno::CONNRESET | Errno::CONNABORTED | Errno::NOTCONN => LinkError::Reset,
            Errno::CONNREFUSED => LinkError::Refused,
            Errno::TIMEDOUT => LinkError::TimedOut,
            other => LinkError::System { errno: other.raw_os_error() },
        }
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        // Only system calls end here, and those carry their number.
        Errno::from_io_error(&error).unwrap_or(Errno::IO).into()
    }
}

/// How many bytes a socket took or gave: none where the system would have to wait.
pub(crate) fn moved(result: io::Result<usize>) -> Result<usize, LinkError> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_error_keeps_its_number_and_says_it_in_words() {
        let error = LinkError::from(io::Error::from_raw_os_error(Errno::MFILE.raw_os_error()));
        assert_eq!(error, LinkError::System { errno: Errno::MFILE.raw_os_error() });
        assert!(error.to_string().contains("open files"), "{error}");
    }

    #[test]
    fn a_broken_pipe_is_a_close_and_a_reset_is_a_reset() {
        assert_eq!(LinkError::from(Errno::PIPE), LinkError::Closed);
        assert_eq!(LinkError::from(Errno::CONNRESET), LinkError::Reset);
    }
}
