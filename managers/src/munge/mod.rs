//! MUNGE: who a peer is, as the daemons of a cluster's hosts vouch for.
//!
//! Its daemon on one host makes a credential with the user of the process that asks, and a payload; that on another one says both.
//! Hosts share a key that users cannot read. What it proves is the user, not the process: the payload has to say for which job it is
//! meant. A credential is good for some minutes, and once on each host: a second process that shows the same one is refused.
//!
//! The library is looked for at run time, so that a program starts where there is none.

use std::ffi::CString;

// Two modules of the crate call functions of libraries that are found at run time; this is one.
#[allow(unsafe_code)]
mod sys;

pub use sys::NoLibrary;
use sys::{EXPIRED, Library, NO_SOCKET, REPLAYED, REWOUND, SUCCESS, Status, UNAUTHORIZED};

/// Bytes of a payload, at most.
pub const PAYLOAD_BYTES_MAX: usize = 4 << 10;
/// Bytes of a credential that is looked at, at most.
pub const CREDENTIAL_BYTES_MAX: usize = 16 << 10;

/// What a credential says of who made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The user of the process.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// What it wanted to be told.
    pub payload: Vec<u8>,
}

/// Why there is no credential, or a credential is not good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MungeError {
    /// The library is not there.
    #[error(transparent)]
    NoLibrary(#[from] NoLibrary),
    /// The daemon is not there.
    #[error("the daemon of MUNGE does not answer on this host ({said}); have munged started here")]
    NoDaemon {
        /// What the library says.
        said: String,
    },
    /// It was made too long ago.
    #[error("the credential has expired: it was made too long ago, or the clocks of the two hosts differ")]
    Expired,
    /// It will be made.
    #[error("the credential is of the future: the clocks of the two hosts differ")]
    FromFuture,
    /// It was shown before on this host.
    #[error(
        "the credential was used before on this host: each connection needs one of its own, and who shows it a second time may have stolen it"
    )]
    Replayed,
    /// It is for another user.
    #[error("the credential is meant for another user than that of this process")]
    ForAnotherUser,
    /// The hosts have different keys, or it is none.
    #[error(
        "the credential is not good here: {said} ({status}); the hosts may have different keys (/etc/munge/munge.key)"
    )]
    Invalid {
        /// The library's number.
        status: i32,
        /// What it calls that.
        said: String,
    },
    /// More than is ever meant.
    #[error(
        "{bytes} bytes are too many for MUNGE: a payload has at most {PAYLOAD_BYTES_MAX}, a credential {CREDENTIAL_BYTES_MAX}"
    )]
    TooLong {
        /// How many there are.
        bytes: usize,
    },
    /// It is no text.
    #[error("the credential has a zero byte in it")]
    NoText,
}

/// Whether the library is there. Its daemon is not asked.
///
/// # Errors
/// [`NoLibrary`], which says what to install.
pub fn look() -> Result<(), NoLibrary> {
    Library::get().map(|_| ())
}

/// A credential of this process with a payload, that only processes of one user can decode.
///
/// # Errors
/// [`MungeError`].
///
/// ```no_run
/// use longarm_managers::munge;
///
/// let credential = munge::encode(b"job 7, step 0, rank 3", 1000)?;
/// let shown = munge::decode(&credential)?;
/// assert_eq!((shown.uid, shown.payload.as_slice()), (1000, b"job 7, step 0, rank 3".as_slice()));
/// # Ok::<(), munge::MungeError>(())
/// ```
pub fn encode(payload: &[u8], uid: u32) -> Result<String, MungeError> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(MungeError::TooLong { bytes: payload.len() });
    }
    let library = Library::get()?;
    library.encode_for(payload, uid).map_err(|status| error_of(library, status))
}

/// What a credential says of who made it. It is good once.
///
/// # Errors
/// [`MungeError`]; whatever a bad credential says is not believed, and not told.
pub fn decode(credential: &str) -> Result<Credential, MungeError> {
    if credential.len() > CREDENTIAL_BYTES_MAX {
        return Err(MungeError::TooLong { bytes: credential.len() });
    }
    let text = CString::new(credential).map_err(|_| MungeError::NoText)?;
    let library = Library::get()?;
    let decoded = library.decode_any(&text);
    match decoded.status {
        SUCCESS if decoded.payload.len() > PAYLOAD_BYTES_MAX => {
            Err(MungeError::TooLong { bytes: decoded.payload.len() })
        }
        SUCCESS => Ok(Credential { uid: decoded.user, gid: decoded.group, payload: decoded.payload }),
        status => Err(error_of(library, status)),
    }
}

fn error_of(library: &Library, status: Status) -> MungeError {
    let said = library.error_string(status);
    match status {
        NO_SOCKET => MungeError::NoDaemon { said },
        EXPIRED => MungeError::Expired,
        REWOUND => MungeError::FromFuture,
        REPLAYED => MungeError::Replayed,
        UNAUTHORIZED => MungeError::ForAnotherUser,
        status => MungeError::Invalid { status, said },
    }
}
