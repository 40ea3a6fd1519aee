//! What the two ends of a queue pair tell each other beside their stream: which memory of a window requests may name.

use crate::{AccessKey, Generation, Rank, WindowId, WindowRef};

/// How a part of a peer's window is named in requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemotePart {
    /// The peer's address of its first byte.
    pub start: u64,
    /// How many there are.
    pub bytes: u64,
    /// What the peer's device asks for.
    pub key: u32,
}

/// Bytes of a question or an answer.
pub const NOTE_BYTES: usize = 48;

/// What a peer wants to do with a part of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To read and write it.
    Transfer,
    /// To have the device do read-modify-writes of its words.
    Rmw,
}

/// What the two sides tell each other beside the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// May this be reached for that, and how is it named?
    Ask(WindowRef, Purpose),
    /// So, or not at all.
    Answer(WindowRef, Option<RemotePart>),
}

impl Note {
    /// Its bytes.
    pub fn encode(&self) -> [u8; NOTE_BYTES] {
        let mut bytes = [0; NOTE_BYTES];
        let (part, answer, kind) = match self {
            Note::Ask(part, Purpose::Transfer) => (part, None, 1),
            Note::Ask(part, Purpose::Rmw) => (part, None, 4),
            Note::Answer(part, None) => (part, None, 2),
            Note::Answer(part, Some(answer)) => (part, Some(answer), 3),
        };
        bytes[..4].copy_from_slice(&u32::to_le_bytes(kind));
        bytes[4..8].copy_from_slice(&part.rank.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&part.window.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&part.key.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&part.generation.0.to_le_bytes());
        if let Some(answer) = answer {
            bytes[28..32].copy_from_slice(&answer.key.to_le_bytes());
            bytes[32..40].copy_from_slice(&answer.start.to_le_bytes());
            bytes[40..48].copy_from_slice(&answer.bytes.to_le_bytes());
        }
        bytes
    }

    /// Reads a note; none if the bytes make no sense.
    pub fn decode(bytes: &[u8; NOTE_BYTES]) -> Option<Note> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let part = WindowRef {
            rank: Rank(word(4)),
            window: WindowId(long(8)),
            key: AccessKey(long(16)),
            generation: Generation(word(24)),
        };
        let note = match word(0) {
            1 => Note::Ask(part, Purpose::Transfer),
            2 => Note::Answer(part, None),
            3 => Note::Answer(part, Some(RemotePart { start: long(32), bytes: long(40), key: word(28) })),
            4 => Note::Ask(part, Purpose::Rmw),
            _ => return None,
        };
        let ends = |answer: RemotePart| answer.start.checked_add(answer.bytes).is_some();
        let makes_sense = !matches!(note, Note::Answer(_, Some(answer)) if !ends(answer));
        // What it leaves open is zero.
        (makes_sense && note.encode() == *bytes).then_some(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(window: u64) -> WindowRef {
        WindowRef { rank: Rank(3), window: WindowId(window), generation: Generation(2), key: AccessKey(u64::MAX - 1) }
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let answer = RemotePart { start: 0x7fff_0000_1000, bytes: 4096, key: 77 };
        let asked = [Purpose::Transfer, Purpose::Rmw].map(|purpose| Note::Ask(part(1), purpose));
        let answers = [Note::Answer(part(2), None), Note::Answer(part(3), Some(answer))];
        for note in asked.into_iter().chain(answers) {
            assert_eq!(Note::decode(&note.encode()), Some(note));
        }
    }

    #[test]
    fn a_note_that_makes_no_sense_is_none() {
        assert_eq!(Note::decode(&[0; NOTE_BYTES]), None);
        let beyond = RemotePart { start: u64::MAX, bytes: 2, key: 1 };
        assert_eq!(Note::decode(&Note::Answer(part(1), Some(beyond)).encode()), None, "it would wrap");
        let mut bytes = Note::Ask(part(1), Purpose::Transfer).encode();
        bytes[47] = 1;
        assert_eq!(Note::decode(&bytes), None, "nothing may stand there");
    }
}
