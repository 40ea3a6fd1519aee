//! The buffers that the two ends of a queue pair have for each other's messages.
//!
//! ```text
//!   we send      send ──────► takes one of the peer's, and tells how many of ours were given back
//!   they send    receive ───► takes one of ours: bytes of the stream, or a note ──► give_back ──► told with our next message
//! ```
//!
//! A process offers its buffers to all its peers at once, and a device does not know whose turn it is: a peer that sends
//! more than it was told to fills buffers that others were promised. So each message is counted here, and the first one
//! too many ends the connection that brought it.

use thiserror::Error;

use super::note::{NOTE_BYTES, Note};

/// Marks a message that is no part of the stream. The other bits count buffers that were given back.
const NOTE: u32 = 1 << 31;

/// What a peer did that nobody may. Its connection is of no more use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Breach {
    /// It sent a message without having a buffer for it.
    #[error("the peer sends more messages than it has credits for")]
    Overdraft,
    /// It gave more buffers back than we have filled.
    #[error("the peer gives back more buffers than it has")]
    Returns,
    /// A message is no note although it says so, or is too short for what stands in each.
    #[error("a message of the peer is garbled")]
    Garbled,
}

impl Breach {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Breach::Overdraft => "the peer sends more messages than it has credits for",
            Breach::Returns => "the peer gives back more buffers than it has",
            Breach::Garbled => "a message of the peer is garbled",
        }
    }
}

/// What a message was. Its buffer is to be given back: at once, or when the bytes were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Bytes of the stream.
    Bytes,
    /// A word beside it.
    Note(Note),
    /// It only gave buffers back.
    Empty,
}

/// One end's count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffers {
    /// Messages that the peer may send before we tell it of buffers that were given back.
    granted: u32,
    /// Buffers of ours that were given back and not told.
    untold: u32,
    /// Messages that we may send.
    free: u32,
    /// Buffers that the peer has for us in all.
    theirs: u32,
}

impl Buffers {
    /// Where each end has said how many buffers it has for the other.
    pub fn new(ours: u16, theirs: u16) -> Buffers {
        Buffers { granted: ours.into(), untold: 0, free: theirs.into(), theirs: theirs.into() }
    }

    /// Messages that we may send.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Buffers of ours that the peer could use again and does not know of.
    pub fn untold(&self) -> u32 {
        self.untold
    }

    /// Takes a buffer of the peer for a message. Returns what goes beside it.
    ///
    /// # Panics
    /// If there is none: who sends asks first.
    pub fn send(&mut self, is_note: bool) -> u32 {
        self.free = self.free.checked_sub(1).expect("a message needs a buffer of the peer");
        let told = std::mem::take(&mut self.untold);
        self.granted += told;
        told | if is_note { NOTE } else { 0 }
    }

    /// A message has come, with this beside it. `note` copies out what it says, if it is as long as a note.
    ///
    /// # Errors
    /// [`Breach`], behind which nothing counts any more.
    pub fn receive(
        &mut self,
        beside: u32,
        bytes: usize,
        note: impl FnOnce(&mut [u8; NOTE_BYTES]),
    ) -> Result<Message, Breach> {
        self.granted = self.granted.checked_sub(1).ok_or(Breach::Overdraft)?;
        let free = self.free.checked_add(beside & !NOTE).filter(|free| *free <= self.theirs);
        self.free = free.ok_or(Breach::Returns)?;
        if beside & NOTE == 0 {
            return Ok(if bytes == 0 { Message::Empty } else { Message::Bytes });
        }
        let mut said = [0; NOTE_BYTES];
        if bytes != NOTE_BYTES {
            return Err(Breach::Garbled);
        }
        note(&mut said);
        Note::decode(&said).map(Message::Note).ok_or(Breach::Garbled)
    }

    /// The buffer of a message is free again.
    pub fn give_back(&mut self) {
        self.untold += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::Purpose;
    use crate::{AccessKey, Generation, Rank, WindowId, WindowRef};

    fn no_note(_: &mut [u8; NOTE_BYTES]) {
        panic!("it is none")
    }

    #[test]
    fn a_peer_that_sends_more_than_it_was_told_to_is_found_out_with_the_first_message_too_many() {
        let mut ours = Buffers::new(4, 8);
        for _ in 0..4 {
            assert_eq!(ours.receive(0, 10, no_note), Ok(Message::Bytes));
            ours.give_back();
        }
        assert_eq!(ours.receive(0, 10, no_note), Err(Breach::Overdraft), "given back, and not told");
        let mut ours = Buffers::new(4, 8);
        for round in 0..20 {
            assert_eq!(ours.receive(u32::from(round > 0), 10, no_note), Ok(Message::Bytes), "round {round}");
            ours.give_back();
            assert_eq!(ours.send(false), 1, "told with the next message");
        }
    }

    #[test]
    fn a_peer_that_gives_back_what_it_does_not_have_is_found_out() {
        let mut ours = Buffers::new(4, 8);
        ours.send(false);
        assert_eq!(ours.receive(1, 0, no_note), Ok(Message::Empty));
        assert_eq!(ours.free(), 8);
        assert_eq!(ours.receive(1, 0, no_note), Err(Breach::Returns));
        assert_eq!(Buffers::new(4, 8).receive(u32::MAX >> 1, 0, no_note), Err(Breach::Returns), "nor does it wrap");
    }

    #[test]
    fn a_note_is_read_and_one_that_is_garbled_ends_the_connection() {
        let part = WindowRef { rank: Rank(3), window: WindowId(7), generation: Generation(2), key: AccessKey(5) };
        let ask = Note::Ask(part, Purpose::Transfer);
        let mut theirs = Buffers::new(8, 4);
        let beside = theirs.send(true);
        let mut ours = Buffers::new(4, 8);
        assert_eq!(ours.receive(beside, NOTE_BYTES, |said| *said = ask.encode()), Ok(Message::Note(ask)));
        assert_eq!(ours.receive(beside, NOTE_BYTES, |said| *said = [0xff; NOTE_BYTES]), Err(Breach::Garbled));
        assert_eq!(ours.receive(beside, NOTE_BYTES - 1, no_note), Err(Breach::Garbled));
    }

    #[test]
    fn what_goes_wrong_reads_alike_in_both_forms() {
        for breach in [Breach::Overdraft, Breach::Returns, Breach::Garbled] {
            assert_eq!(breach.to_string(), breach.words());
        }
    }
}
