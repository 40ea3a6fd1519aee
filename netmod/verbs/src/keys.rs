//! Which memory peers may reach: what is published here, and what is known of others.

use std::collections::HashMap;
use std::sync::Arc;

use longarm_memory::RegionMut;
use longarm_netmod::Reach;
use longarm_proto::{AccessKey, Generation, Rank, WindowId, WindowRef};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::fabric::Fabric;
use crate::sys::{Access, Registration};

/// How a part of a peer's window is named in requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RemotePart {
    /// The peer's address of its first byte.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) key: u32,
}

type Name = (WindowId, Generation, Rank);

fn name(part: &WindowRef) -> Name {
    (part.window, part.generation, part.rank)
}

/// What this process lets its peers reach.
#[derive(Default)]
pub(crate) struct Published {
    parts: Mutex<HashMap<Name, Part>>,
}

struct Part {
    key: AccessKey,
    start: usize,
    bytes: usize,
    /// Made when a peer first asks.
    registration: Option<Result<Registration, Errno>>,
}

impl Published {
    /// Until the guard is dropped.
    pub(crate) fn publish(self: &Arc<Published>, part: WindowRef, memory: RegionMut<'_>) -> Box<dyn Send> {
        let entry = Part {
            key: part.key,
            start: memory.as_mut_ptr().expose_provenance(),
            bytes: memory.len(),
            registration: None,
        };
        self.parts.lock().insert(name(&part), entry);
        Box::new(Withdrawal { published: Arc::clone(self), name: name(&part) })
    }

    /// The answer to a peer's question. `Err` says why memory that is there cannot be reached.
    pub(crate) fn ask(&self, fabric: &Fabric, part: &WindowRef) -> Result<Option<RemotePart>, Errno> {
        let mut parts = self.parts.lock();
        let Some(entry) = parts.get_mut(&name(part)).filter(|entry| entry.key == part.key) else { return Ok(None) };
        if entry.bytes == 0 || entry.bytes as u64 > fabric.options.pinned_bytes_max {
            return Ok(None);
        }
        let (start, bytes) = (entry.start, entry.bytes);
        let make = || Registration::new(&fabric.domain, (start, bytes), start as u64, Access::Remote);
        let registration = entry.registration.get_or_insert_with(make);
        let registration = registration.as_ref().map_err(|errno| *errno)?;
        Ok(Some(RemotePart { start: start as u64, bytes: bytes as u64, key: registration.remote_key() }))
    }
}

struct Withdrawal {
    published: Arc<Published>,
    name: Name,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        self.published.parts.lock().remove(&self.name);
    }
}

/// What one peer has said of its windows. Kept from one connection to the next: its keys do not change.
#[derive(Default)]
pub(crate) struct Known {
    parts: Mutex<HashMap<WindowRef, Option<RemotePart>>>,
    asked: Mutex<Vec<WindowRef>>,
}

/// Parts that are remembered. Beyond that everything is forgotten and asked again.
const KNOWN_MAX: usize = 1 << 16;

impl Known {
    pub(crate) fn find(&self, part: &WindowRef) -> Option<RemotePart> {
        self.parts.lock().get(part).copied().flatten()
    }

    /// Whether it can be reached; `true` beside it if the peer has to be asked now.
    pub(crate) fn reach(&self, part: &WindowRef) -> (Reach, bool) {
        match self.parts.lock().get(part) {
            Some(Some(_)) => return (Reach::Yes, false),
            Some(None) => return (Reach::No, false),
            None => {}
        }
        let mut asked = self.asked.lock();
        let is_new = !asked.contains(part);
        if is_new {
            asked.push(*part);
        }
        (Reach::Asked, is_new)
    }

    pub(crate) fn answered(&self, part: WindowRef, answer: Option<RemotePart>) {
        self.asked.lock().retain(|other| *other != part);
        let mut parts = self.parts.lock();
        if parts.len() >= KNOWN_MAX {
            parts.clear();
        }
        parts.insert(part, answer);
    }

    /// A connection has gone: what was asked over it is asked again.
    pub(crate) fn forget_questions(&self) {
        self.asked.lock().clear();
    }
}

/// Bytes of a question or an answer.
pub(crate) const NOTE_BYTES: usize = 48;

/// What the two sides tell each other beside the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    Ask(WindowRef),
    Answer(WindowRef, Option<RemotePart>),
}

impl Note {
    pub(crate) fn encode(&self) -> [u8; NOTE_BYTES] {
        let mut bytes = [0; NOTE_BYTES];
        let (part, answer, kind) = match self {
            Note::Ask(part) => (part, None, 1),
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

    pub(crate) fn decode(bytes: &[u8; NOTE_BYTES]) -> Option<Note> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let part = WindowRef {
            rank: Rank(word(4)),
            window: WindowId(long(8)),
            key: AccessKey(long(16)),
            generation: Generation(word(24)),
        };
        match word(0) {
            1 => Some(Note::Ask(part)),
            2 => Some(Note::Answer(part, None)),
            3 => {
                let (start, bytes, key) = (long(32), long(40), word(28));
                start.checked_add(bytes)?;
                Some(Note::Answer(part, Some(RemotePart { start, bytes, key })))
            }
            _ => None,
        }
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
        for note in [Note::Ask(part(1)), Note::Answer(part(2), None), Note::Answer(part(3), Some(answer))] {
            assert_eq!(Note::decode(&note.encode()), Some(note));
        }
    }

    #[test]
    fn a_note_that_makes_no_sense_is_none() {
        assert_eq!(Note::decode(&[0; NOTE_BYTES]), None);
        let beyond = RemotePart { start: u64::MAX, bytes: 2, key: 1 };
        assert_eq!(Note::decode(&Note::Answer(part(1), Some(beyond)).encode()), None, "it would wrap");
    }

    #[test]
    fn a_peer_is_asked_once_until_the_connection_goes() {
        let known = Known::default();
        assert_eq!(known.reach(&part(1)), (Reach::Asked, true));
        assert_eq!(known.reach(&part(1)), (Reach::Asked, false));
        known.forget_questions();
        assert_eq!(known.reach(&part(1)), (Reach::Asked, true));
        let answer = RemotePart { start: 1, bytes: 2, key: 3 };
        known.answered(part(1), Some(answer));
        assert_eq!((known.reach(&part(1)), known.find(&part(1))), ((Reach::Yes, false), Some(answer)));
        known.answered(part(2), None);
        assert_eq!((known.reach(&part(2)), known.find(&part(2))), ((Reach::No, false), None));
    }
}
