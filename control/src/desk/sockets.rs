//! What a desk wants of the sockets of its thread.

use std::io;
use std::time::{Duration, Instant};

/// What is read of a connection at a time.
pub const CHUNK_BYTES: usize = 64 << 10;
/// What may wait for one rank that does not read. A job of very many ranks has long lines.
pub const UNSENT_BYTES_MAX: usize = 64 << 20;
/// How long a closed connection waits for what it has still to be told, and a process that ends for what has still to be sent.
pub const FLUSH: Duration = Duration::from_secs(1);

/// What is to be told, or is told, of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// That something has come, or its end.
    pub readable: bool,
    /// That it takes something.
    pub writable: bool,
}

impl Readiness {
    /// Only what comes.
    pub const READABLE: Readiness = Readiness { readable: true, writable: false };
}

/// The sockets of a thread, each with a number that the desk gives it. Nothing here waits.
pub trait Sockets {
    /// The time.
    fn now(&self) -> Instant;

    /// Reads what has come, as [`io::Read::read`].
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing has; any other means that the connection is gone.
    fn read(&mut self, number: u64, chunk: &mut [u8]) -> io::Result<usize>;

    /// Sends what there is room for, as [`io::Write::write`].
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none; any other means that the connection is gone.
    fn write(&mut self, number: u64, bytes: &[u8]) -> io::Result<usize>;

    /// From now on this is to be told of a connection. One that cannot be watched any more is one that has ended.
    fn watch(&mut self, number: u64, readiness: Readiness);

    /// Closes a connection. What was written to it still arrives.
    fn close(&mut self, number: u64);
}
