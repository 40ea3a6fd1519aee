//! The connections of a desk: what waits to be sent over each, and which are closed when it is sent.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::time::Instant;

use super::sockets::{CHUNK_BYTES, FLUSH, Readiness, Sockets};

/// A connection, and what could not be sent yet.
#[derive(Debug)]
struct Line {
    unsent: Vec<u8>,
    watched: Readiness,
    /// Nothing is heard of it any more, and it is closed when all is sent, or then.
    closes: Option<Instant>,
}

/// What came over a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard<'chunk> {
    Nothing,
    Bytes(&'chunk [u8]),
    /// It has ended, and is closed.
    End,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// In their order, so that all of them are closed in the same one in each run of a simulator.
    lines: BTreeMap<u64, Line>,
    /// Those with something unsent.
    behind: HashSet<u64>,
    /// Those that close, in this order. Some may be closed already.
    closing: VecDeque<(Instant, u64)>,
    /// Nothing is read of any.
    are_held: bool,
}

impl Lines {
    /// A connection of which is told when something comes.
    pub(super) fn insert(&mut self, number: u64) {
        self.lines.insert(number, Line { unsent: Vec::new(), watched: Readiness::READABLE, closes: None });
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        self.lines.keys().copied().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether something waits to be sent.
    pub(super) fn are_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    /// How many bytes wait to be sent over a connection.
    pub(super) fn waiting(&self, number: u64) -> usize {
        self.lines.get(&number).map_or(0, |line| line.unsent.len())
    }

    /// Has bytes wait to be sent, unless the connection closes.
    pub(super) fn queue(&mut self, number: u64, bytes: &[u8]) {
        if let Some(line) = self.lines.get_mut(&number).filter(|line| line.closes.is_none()) {
            line.unsent.extend_from_slice(bytes);
        }
    }

    /// Reads once: what is left is told again.
    pub(super) fn read<'chunk>(
        &mut self,
        sockets: &mut impl Sockets,
        number: u64,
        chunk: &'chunk mut [u8; CHUNK_BYTES],
    ) -> Heard<'chunk> {
        if self.lines.get(&number).is_none_or(|line| line.closes.is_some()) {
            return Heard::Nothing;
        }
        match sockets.read(number, chunk) {
            Ok(bytes @ 1..) => Heard::Bytes(&chunk[..bytes]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Heard::Nothing
            }
            Ok(0) | Err(_) => {
                self.remove(sockets, number);
                Heard::End
            }
        }
    }

    /// Sends what there is room for. Gives how much waits then; nothing, of one that closes.
    pub(super) fn send(&mut self, sockets: &mut impl Sockets, number: u64) -> usize {
        let Some(line) = self.lines.get_mut(&number) else { return 0 };
        let mut sent = 0;
        while sent < line.unsent.len() {
            match sockets.write(number, &line.unsent[sent..]) {
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // That it is gone shows when it is read, if it still is.
                Err(_) => sent = line.unsent.len(),
            }
        }
        line.unsent.drain(..sent);
        let (waiting, closes) = (line.unsent.len(), line.closes.is_some());
        if closes && waiting == 0 {
            self.remove(sockets, number);
            return 0;
        }
        if waiting > 0 {
            self.behind.insert(number);
        } else {
            self.behind.remove(&number);
        }
        self.watch(sockets, number);
        if closes { 0 } else { waiting }
    }

    /// Closes a connection when what it has to be told is sent, or after a while.
    pub(super) fn close(&mut self, sockets: &mut impl Sockets, number: u64) {
        let Some(line) = self.lines.get_mut(&number).filter(|line| line.closes.is_none()) else { return };
        let until = sockets.now() + FLUSH;
        line.closes = Some(until);
        self.closing.push_back((until, number));
        // What it has said and nobody has read would have the system throw away what is on its way to it.
        let _ = sockets.read(number, &mut [0; CHUNK_BYTES]);
        self.send(sockets, number);
    }

    /// Closes a connection at once.
    pub(super) fn remove(&mut self, sockets: &mut impl Sockets, number: u64) {
        if self.lines.remove(&number).is_some() {
            self.behind.remove(&number);
            sockets.close(number);
        }
    }

    /// Nothing is read of any until they are held no longer.
    pub(super) fn hold(&mut self, sockets: &mut impl Sockets, are_held: bool) {
        self.are_held = are_held;
        self.numbers().into_iter().for_each(|number| self.watch(sockets, number));
    }

    /// Those that close and have had their time are closed.
    pub(super) fn handle_time(&mut self, sockets: &mut impl Sockets, now: Instant) {
        while let Some((until, number)) = self.closing.front().copied().filter(|(until, _)| *until <= now) {
            self.closing.pop_front();
            // Its number may be another one's by now.
            if self.lines.get(&number).is_some_and(|line| line.closes == Some(until)) {
                self.remove(sockets, number);
            }
        }
    }

    /// When [`Lines::handle_time`] may have something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.closing.front().map(|(until, _)| *until)
    }

    fn watch(&mut self, sockets: &mut impl Sockets, number: u64) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        let readable = !self.are_held && line.closes.is_none();
        let readiness = Readiness { readable, writable: !line.unsent.is_empty() };
        if readiness != std::mem::replace(&mut line.watched, readiness) {
            sockets.watch(number, readiness);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::mock::MockSockets;

    /// Connection 7, which takes so many bytes.
    fn line(room: usize) -> (Lines, MockSockets) {
        let (mut lines, mut sockets) = (Lines::default(), MockSockets::new());
        lines.insert(7);
        sockets.of(7).room = room;
        (lines, sockets)
    }

    #[test]
    fn what_was_to_be_said_is_sent_before_a_connection_is_closed() {
        let (mut lines, mut sockets) = line(3);
        // It has said something that nobody reads any more.
        sockets.of(7).incoming = b"hello".to_vec();
        lines.queue(7, b"farewell");
        lines.close(&mut sockets, 7);
        assert!(!sockets.of(7).is_closed && sockets.of(7).incoming.is_empty() && lines.are_behind());
        assert_eq!(sockets.of(7).watched, Readiness { readable: false, writable: true });
        lines.queue(7, b" and more");
        assert_eq!(lines.read(&mut sockets, 7, &mut [0; CHUNK_BYTES]), Heard::Nothing);
        sockets.of(7).room = 100;
        lines.send(&mut sockets, 7);
        assert!(sockets.of(7).is_closed && lines.is_empty() && !lines.are_behind());
        assert_eq!(sockets.of(7).sent, b"farewell");
    }

    #[test]
    fn one_that_closes_and_takes_nothing_is_let_go_of_after_a_while() {
        let (mut lines, mut sockets) = line(0);
        lines.queue(7, b"farewell");
        lines.close(&mut sockets, 7);
        let until = lines.deadline().expect("its end is waited for");
        assert_eq!(until, sockets.now + FLUSH);
        lines.handle_time(&mut sockets, until - FLUSH / 2);
        assert!(!sockets.of(7).is_closed);
        lines.handle_time(&mut sockets, until);
        assert!(sockets.of(7).is_closed && lines.is_empty() && lines.deadline().is_none());
    }

    #[test]
    fn the_end_of_one_is_not_that_of_another_with_its_number() {
        let (mut lines, mut sockets) = line(100);
        lines.close(&mut sockets, 7);
        assert!(std::mem::take(&mut sockets.of(7).is_closed));
        lines.insert(7);
        sockets.pass(FLUSH);
        let now = sockets.now;
        lines.handle_time(&mut sockets, now);
        assert!(!sockets.of(7).is_closed && !lines.is_empty());
    }

    #[test]
    fn what_waits_is_counted_and_told_of_when_there_is_room() {
        let (mut lines, mut sockets) = line(2);
        lines.queue(7, b"words");
        assert_eq!((lines.send(&mut sockets, 7), lines.waiting(7), lines.are_behind()), (3, 3, true));
        assert_eq!(sockets.of(7).watched, Readiness { readable: true, writable: true });
        lines.hold(&mut sockets, true);
        assert_eq!(sockets.of(7).watched, Readiness { readable: false, writable: true });
        lines.hold(&mut sockets, false);
        sockets.of(7).room = 3;
        assert_eq!((lines.send(&mut sockets, 7), lines.are_behind()), (0, false));
        assert_eq!((sockets.of(7).watched, &sockets.of(7).sent[..]), (Readiness::READABLE, &b"words"[..]));
    }

    #[test]
    fn what_comes_is_heard_and_then_the_end() {
        let (mut lines, mut sockets) = line(0);
        sockets.of(7).incoming = vec![5; CHUNK_BYTES + 1];
        sockets.of(7).has_ended = true;
        let mut chunk = [0; CHUNK_BYTES];
        assert_eq!(lines.read(&mut sockets, 7, &mut chunk), Heard::Bytes(&[5; CHUNK_BYTES]));
        assert_eq!(lines.read(&mut sockets, 7, &mut chunk), Heard::Bytes(&[5]));
        assert_eq!(lines.read(&mut sockets, 7, &mut chunk), Heard::End);
        assert!(sockets.of(7).is_closed && lines.is_empty());
        assert_eq!(lines.read(&mut sockets, 7, &mut chunk), Heard::Nothing);
    }
}
