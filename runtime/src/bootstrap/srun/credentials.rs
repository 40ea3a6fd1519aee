//! MUNGE as the credentials that vouches for users, and how its credentials travel.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use longarm_control::vouching::{HEADER_BYTES, Kind, frame, read_header};
use longarm_managers::munge::{self, Credential, MungeError};

/// Makes and reads credentials.
pub(super) trait Credentials: Send + Sync {
    /// A credential of this process's user with a payload, which `user` alone can read.
    fn vouch(&self, payload: &[u8], user: u32) -> Result<String, MungeError>;

    /// What a credential says. It is good once.
    fn read(&self, credential: &str) -> Result<Credential, MungeError>;
}

/// MUNGE's daemon on this host.
pub(super) struct Munge;

impl Credentials for Munge {
    fn vouch(&self, payload: &[u8], user: u32) -> Result<String, MungeError> {
        munge::encode(payload, user)
    }

    fn read(&self, credential: &str) -> Result<Credential, MungeError> {
        munge::decode(credential)
    }
}

/// Sends one message, whole or not at all.
pub(super) fn write_message(stream: &mut TcpStream, kind: Kind, body: &[u8], until: Instant) -> Result<(), String> {
    let rest = until.saturating_duration_since(Instant::now());
    let limited =
        if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { stream.set_write_timeout(Some(rest)) };
    limited.and_then(|()| stream.write_all(&frame(kind, body))).map_err(|error| error.to_string())
}

/// The next message, which is there in time.
pub(super) fn read_message(
    stream: &mut TcpStream,
    bytes_max: usize,
    until: Instant,
) -> Result<(Kind, Vec<u8>), String> {
    let mut header = [0; HEADER_BYTES];
    read_all(stream, &mut header, until)?;
    let (kind, bytes) = read_header(&header, bytes_max).map_err(|error| error.to_string())?;
    let mut body = vec![0; bytes];
    read_all(stream, &mut body, until)?;
    Ok((kind, body))
}

/// However slowly the bytes come, all of them are there by then.
fn read_all(stream: &mut TcpStream, mut into: &mut [u8], until: Instant) -> Result<(), String> {
    let said_nothing = || "it does not say all that it has to say in time".to_owned();
    while !into.is_empty() {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(said_nothing());
        }
        stream.set_read_timeout(Some(rest)).map_err(|error| error.to_string())?;
        match stream.read(into) {
            Ok(0) => return Err("it has hung up".to_owned()),
            Ok(bytes) => into = &mut into[bytes..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(said_nothing());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}
