//! What has come to a rank and was not asked for yet, and how messages are taken apart.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use longarm_memory::Region;
use longarm_proto::Rank;

use super::{ActiveMessage, Letter, Slot};

/// What a letter is for: the first byte of its head.
pub(super) const COLLECTIVE: u8 = 1;
pub(super) const ACTIVE: u8 = 2;
pub(super) const ACTIVE_REPLY: u8 = 3;

#[derive(Default)]
pub(super) struct Inbox {
    pub(super) partial: HashMap<u32, Partial>,
    pub(super) letters: HashMap<(Slot, Rank), VecDeque<Letter>>,
    /// How many letters these are.
    pub(super) letter_count: usize,
    /// How many letters have come so far.
    pub(super) arrived: u64,
}

/// A message that has come in part: its head, with its length in front, and its body.
#[derive(Default)]
pub(super) struct Partial {
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
}

impl Partial {
    /// Adds the next piece of a message of so many bytes. True: it is whole.
    pub(super) fn add(&mut self, piece: Region<'_>, message_bytes: u64) -> bool {
        let mut done = 0;
        // A piece may end in the middle of the head.
        loop {
            let head_bytes = self.head.first().map_or(1, |bytes| 1 + usize::from(*bytes));
            let part = (head_bytes - self.head.len()).min(piece.len() - done);
            if part == 0 {
                break;
            }
            append(&mut self.head, piece.slice(done, part));
            done += part;
        }
        if done < piece.len() {
            self.body.reserve_exact(message_bytes as usize - self.head.len() - self.body.len());
            append(&mut self.body, piece.slice(done, piece.len() - done));
        }
        (self.head.len() + self.body.len()) as u64 >= message_bytes
    }
}

fn append(target: &mut Vec<u8>, bytes: Region<'_>) {
    let from = target.len();
    target.resize(from + bytes.len(), 0);
    bytes.copy_to_slice(&mut target[from..]);
}

/// A letter that a thread waits for, which it takes as it comes, past the table.
pub(super) struct Wanted {
    pub(super) place: (Slot, Rank),
    pub(super) found: Option<Letter>,
}

/// Little-endian fields of a head, in order.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }

    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }
}

impl Inbox {
    pub(super) fn keep_letter(&mut self, place: (Slot, Rank), total_bytes: u64, body: Cow<'_, [u8]>) {
        let letter = Letter { total_bytes, body: body.into_owned(), arrival: self.arrived };
        self.arrived += 1;
        self.letter_count += 1;
        self.letters.entry(place).or_default().push_back(letter);
    }

    pub(super) fn take_letter(&mut self, place: (Slot, Rank)) -> Option<Letter> {
        if self.letters.is_empty() {
            return None;
        }
        let letters = self.letters.get_mut(&place)?;
        let letter = letters.pop_front();
        self.letter_count -= usize::from(letter.is_some());
        if letters.is_empty() {
            self.letters.remove(&place);
        }
        letter
    }

    /// Puts a whole message where it belongs; active messages are given back.
    pub(super) fn sort(
        &mut self,
        source: Rank,
        head: &[u8],
        body: Cow<'_, [u8]>,
        wanted: Option<&mut Wanted>,
    ) -> Option<ActiveMessage> {
        let bytes = body.len();
        let sorted = self.try_sort(source, Reader(head), body, wanted);
        // Ranks of one job run the same code: only our own bug can send a message that is not one.
        assert!(sorted.is_some(), "a message of rank {source} with {bytes} bytes of data is none");
        sorted.flatten()
    }

    fn try_sort(
        &mut self,
        source: Rank,
        mut head: Reader<'_>,
        body: Cow<'_, [u8]>,
        wanted: Option<&mut Wanted>,
    ) -> Option<Option<ActiveMessage>> {
        match head.u8()? {
            COLLECTIVE => {
                let slot = Slot { group: head.u64()?, sequence: head.u64()?, step: head.u32()? };
                let (place, total_bytes) = ((slot, source), head.u64()?);
                match wanted {
                    Some(Wanted { place: wanted, found: found @ None }) if *wanted == place => {
                        *found = Some(Letter { total_bytes, body: body.into_owned(), arrival: self.arrived });
                    }
                    _ => self.keep_letter(place, total_bytes, body),
                }
                Some(None)
            }
            kind @ (ACTIVE | ACTIVE_REPLY) => {
                let handler = head.u32()?;
                let count = head.u8()?;
                let arguments = (0..count).map(|_| head.u64()).collect::<Option<Vec<u64>>>()?;
                let payload = body.into_owned();
                let is_reply = kind == ACTIVE_REPLY;
                Some(Some(ActiveMessage { source, handler, is_reply, arguments, payload }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_put_together_wherever_it_was_cut() {
        let head = [3, 7, 8, 9];
        let body: Vec<u8> = (0..40).collect();
        let whole = [&head[..], &body].concat();
        for (first, second) in
            (1..whole.len()).flat_map(|first| (first..whole.len()).map(move |second| (first, second)))
        {
            let mut partial = Partial::default();
            let pieces = [&whole[..first], &whole[first..second], &whole[second..]];
            let added = pieces.map(|piece| partial.add(Region::from_slice(piece), whole.len() as u64));
            assert_eq!(added, [false, false, true], "cut at {first} and {second}");
            assert_eq!((&partial.head[..], &partial.body), (&head[..], &body), "cut at {first} and {second}");
        }
    }

    #[test]
    fn a_letter_that_is_wanted_is_not_put_into_the_table() {
        let slot = Slot { group: 1, sequence: 2, step: 3 };
        let head =
            [&[COLLECTIVE][..], &1_u64.to_le_bytes(), &2_u64.to_le_bytes(), &3_u32.to_le_bytes(), &9_u64.to_le_bytes()];
        let (head, place) = (head.concat(), (slot, Rank(5)));
        let mut inbox = Inbox::default();
        let mut wanted = Wanted { place, found: None };
        for (source, body) in [(Rank(4), b"other"), (Rank(5), b"first"), (Rank(5), b"later")] {
            assert!(inbox.sort(source, &head, Cow::Borrowed(body), Some(&mut wanted)).is_none());
        }
        let found = wanted.found.expect("it came");
        assert_eq!((found.total_bytes, &found.body[..]), (9, &b"first"[..]));
        assert_eq!(inbox.letter_count, 2);
        assert_eq!(inbox.take_letter(place).expect("the next one waits").body, b"later");
        assert!(inbox.take_letter(place).is_none());
        assert_eq!(inbox.take_letter((slot, Rank(4))).expect("it waits").body, b"other");
        assert_eq!(inbox.letter_count, 0);
    }
}
