//! The connections of a thread as its desk sees them: sockets of the simulated network.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use longarm_control::desk::{Readiness, Sockets, Surroundings};
use longarm_control::proof::ProofError;

use super::job::ANSWER_NS;
use super::network::Network;

/// Which connection has which number at a desk, and which of its ends is there.
#[derive(Default)]
pub(super) struct Numbers {
    number_of: BTreeMap<u32, u64>,
    connection_of: BTreeMap<u64, (u32, usize)>,
}

impl Numbers {
    pub(super) fn insert(&mut self, number: u64, connection: u32, end: usize) {
        self.number_of.insert(connection, number);
        self.connection_of.insert(number, (connection, end));
    }

    pub(super) fn number_of(&self, connection: u32) -> Option<u64> {
        self.number_of.get(&connection).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.number_of.len()
    }

    /// Forgets all of them, and gives them.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (u32, usize)> + use<> {
        self.number_of.clear();
        std::mem::take(&mut self.connection_of).into_values()
    }
}

/// See the module.
pub(super) struct SimSockets<'stage> {
    pub(super) network: &'stage mut Network,
    pub(super) numbers: &'stage mut Numbers,
    /// The time at which the network's began.
    pub(super) began: Instant,
    /// Whether the coordinator has the job ended.
    pub(super) ends_job: bool,
}

impl<'stage> SimSockets<'stage> {
    pub(super) fn new(
        network: &'stage mut Network,
        numbers: &'stage mut Numbers,
        began: Instant,
    ) -> SimSockets<'stage> {
        SimSockets { network, numbers, began, ends_job: false }
    }

    fn end(&self, number: u64) -> io::Result<(u32, usize)> {
        self.numbers.connection_of.get(&number).copied().ok_or(io::ErrorKind::NotConnected.into())
    }
}

impl Sockets for SimSockets<'_> {
    fn now(&self) -> Instant {
        self.began + Duration::from_nanos(self.network.now_ns())
    }

    fn read(&mut self, number: u64, chunk: &mut [u8]) -> io::Result<usize> {
        let (connection, end) = self.end(number)?;
        let (bytes, is_over) = self.network.receive(connection, end, chunk.len());
        if bytes.is_empty() && !is_over {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        chunk[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    /// There is always room.
    fn write(&mut self, number: u64, bytes: &[u8]) -> io::Result<usize> {
        let (connection, end) = self.end(number)?;
        self.network.send(connection, end, bytes);
        Ok(bytes.len())
    }

    /// What is told follows from what has come.
    fn watch(&mut self, _: u64, _: Readiness) {}

    fn close(&mut self, number: u64) {
        if let Some((connection, end)) = self.numbers.connection_of.remove(&number) {
            self.numbers.number_of.remove(&connection);
            self.network.close(connection, end);
        }
    }
}

impl Surroundings for SimSockets<'_> {
    fn say(&mut self, _: &str) {}

    fn refuse(&mut self, _: u64, _: &ProofError) {}

    fn answer(&mut self, _: u64, _: &str) {
        unreachable!("nobody asks");
    }

    fn end_job(&mut self, _: i32) {
        self.ends_job = true;
    }

    fn note_message(&mut self) {
        self.network.work(ANSWER_NS);
    }
}
