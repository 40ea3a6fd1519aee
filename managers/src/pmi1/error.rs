//! What can go wrong with a process manager of PMI-1.

use std::io;

use crate::environment::EnvironmentError;
use crate::pmi1::limits::{LINE_BYTES_MAX, VALUE_BYTES_MAX};

/// Why a process manager cannot be talked to, or what it refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Pmi1Error {
    /// A number that is none, or is not there, or does not fit.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The process has met its process manager before, and that talks to each process once.
    #[error(
        "this process has used {variable} before: a process manager of PMI-1 takes a process in once; start the program again, or keep the first world until the end"
    )]
    UsedBefore {
        /// The variable that names the connection.
        variable: &'static str,
    },
    /// The descriptor is not there.
    #[error(
        "PMI_FD names descriptor {number}, which is not open ({reason}); start the program with mpiexec or srun itself, without a program between them that closes descriptors, or unset PMI_FD"
    )]
    NoDescriptor {
        /// Its number.
        number: i32,
        /// What the system says.
        reason: io::Error,
    },
    /// The address cannot be connected to.
    #[error("PMI_PORT says {address:?}, where the process manager cannot be reached ({reason})")]
    NoConnection {
        /// What the variable says.
        address: String,
        /// What the system says.
        reason: io::Error,
    },
    /// Reading or writing failed.
    #[error("the connection to the process manager failed ({0})")]
    Connection(io::Error),
    /// The manager has hung up.
    #[error(
        "the process manager has closed the connection while this process waited for {wanted}: it was ended, or ends the job"
    )]
    Closed {
        /// What was waited for.
        wanted: &'static str,
    },
    /// The manager had hung up before anything was said.
    #[error(
        "the process manager had closed the connection before this process came to use it: either it was ended, or an earlier program that was started in this place has taken leave of it, and a process manager of PMI-1 serves one program only; start each program with an mpiexec or srun of its own"
    )]
    ClosedBefore,
    /// It sends without an end.
    #[error("the process manager sends a line of more than {LINE_BYTES_MAX} bytes; it does not speak PMI-1")]
    LongLine,
    /// It answers with something else.
    #[error(
        "the process manager says {line:?} where {wanted} was expected; it does not speak PMI-1, or an MPI in this process uses the same connection"
    )]
    Unexpected {
        /// What was expected.
        wanted: &'static str,
        /// What came, cut where it is long.
        line: String,
    },
    /// It says no.
    #[error("the process manager refuses {request}: {line:?}")]
    Refused {
        /// What was asked.
        request: &'static str,
        /// Its answer, cut where it is long.
        line: String,
    },
    /// Limits with which no value can be sent.
    #[error(
        "the process manager takes keys of {key_bytes} and values of {value_bytes} bytes, which is too little for anything"
    )]
    TooSmall {
        /// Of a key.
        key_bytes: u32,
        /// Of a value.
        value_bytes: u32,
    },
    /// A key that the manager would not take.
    #[error(
        "the key {key:?} is empty, longer than {bytes_max} bytes, or not of letters, digits, `-`, `_` and `.` alone"
    )]
    BadKey {
        /// The key, cut where it is long.
        key: String,
        /// What is left of the manager's limit.
        bytes_max: usize,
    },
    /// A value that is longer than is meant for a process manager.
    #[error("a value of {bytes} bytes is too long for a process manager: at most {VALUE_BYTES_MAX}")]
    LongValue {
        /// Its length.
        bytes: usize,
    },
    /// Nobody has put this before the last barrier.
    #[error("no rank has put {key:?}: whoever should have ended before, or runs another version of the program")]
    Missing {
        /// The key.
        key: String,
    },
    /// A value that this client has not put.
    #[error(
        "the value of {key:?} is {value:?}, which is not what longarm puts: the ranks are of different programs or versions"
    )]
    ForeignValue {
        /// The key.
        key: String,
        /// The value, cut where it is long.
        value: String,
    },
}
