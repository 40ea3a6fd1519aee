//! Sockets that are none: what comes over them, and what they take, is said by a test.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use super::coordinator_desk::Surroundings;
use super::sockets::{Readiness, Sockets};
use crate::proof::ProofError;

/// What a test does with one of them.
pub(super) struct MockSocket {
    pub(super) incoming: Vec<u8>,
    pub(super) has_ended: bool,
    /// How many bytes it takes.
    pub(super) room: usize,
    pub(super) sent: Vec<u8>,
    pub(super) watched: Readiness,
    pub(super) is_closed: bool,
}

impl Default for MockSocket {
    fn default() -> MockSocket {
        MockSocket {
            incoming: Vec::new(),
            has_ended: false,
            room: usize::MAX,
            sent: Vec::new(),
            watched: Readiness::READABLE,
            is_closed: false,
        }
    }
}

/// All of them, at a time that stands still.
pub(super) struct MockSockets {
    pub(super) now: Instant,
    pub(super) sockets: BTreeMap<u64, MockSocket>,
    pub(super) said: Vec<String>,
    pub(super) refused: Vec<u64>,
    pub(super) ended_with: Option<i32>,
}

impl MockSockets {
    pub(super) fn new() -> MockSockets {
        let (now, sockets) = (Instant::now(), BTreeMap::new());
        MockSockets { now, sockets, said: Vec::new(), refused: Vec::new(), ended_with: None }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    pub(super) fn of(&mut self, number: u64) -> &mut MockSocket {
        self.sockets.entry(number).or_default()
    }
}

impl Sockets for MockSockets {
    fn now(&self) -> Instant {
        self.now
    }

    fn read(&mut self, number: u64, chunk: &mut [u8]) -> io::Result<usize> {
        let socket = self.of(number);
        let bytes = socket.incoming.len().min(chunk.len());
        if bytes == 0 && !socket.has_ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        chunk[..bytes].copy_from_slice(&socket.incoming[..bytes]);
        socket.incoming.drain(..bytes);
        Ok(bytes)
    }

    fn write(&mut self, number: u64, bytes: &[u8]) -> io::Result<usize> {
        let socket = self.of(number);
        let taken = bytes.len().min(socket.room);
        if taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        socket.room -= taken;
        socket.sent.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn watch(&mut self, number: u64, readiness: Readiness) {
        self.of(number).watched = readiness;
    }

    fn close(&mut self, number: u64) {
        self.of(number).is_closed = true;
    }
}

impl Surroundings for MockSockets {
    fn say(&mut self, line: &str) {
        self.said.push(line.to_owned());
    }

    fn refuse(&mut self, number: u64, _: &ProofError) {
        self.refused.push(number);
    }

    fn answer(&mut self, _: u64, _: &str) {}

    fn end_job(&mut self, status: i32) {
        self.ended_with = Some(status);
    }
}
