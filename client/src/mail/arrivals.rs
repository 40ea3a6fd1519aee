//! What has come to a rank and was not asked for yet, and how messages are taken apart.
//!
//! A rank that sends what is no message is broken. None of its mail is taken any more, because what stands behind it means
//! nothing; a call that waits for a message of it gets an error, and the mail of all others goes on.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use longarm_memory::Region;
use longarm_proto::{BadMail, MESSAGE_BYTES_MAX, MailHead, Rank};

use super::message::{ActiveMessage, Letter, Slot};

/// Bytes for which room is made before they have come, at most: a broken rank may announce any number.
const ROOM_BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Arrivals {
    /// Messages that have come in part, by their source.
    pub(super) partial: HashMap<u32, Partial>,
    pub(super) letters: HashMap<(Slot, Rank), VecDeque<Letter>>,
    /// How many letters these are.
    pub(super) letter_count: usize,
    /// How many letters have come so far.
    pub(super) arrived: u64,
    /// Ranks that have sent what is no message.
    pub(super) broken: HashMap<Rank, BadMail>,
}

/// A message that has come in part: its head, with its length in front, and its body.
#[derive(Default)]
pub(super) struct Partial {
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
    message_bytes: usize,
}

impl Partial {
    /// A message of so many bytes, of which none has come.
    fn of(message_bytes: u64) -> Result<Partial, BadMail> {
        if !(1..=MESSAGE_BYTES_MAX).contains(&message_bytes) {
            return Err(BadMail::MessageBytes { found: message_bytes });
        }
        Ok(Partial { message_bytes: message_bytes as usize, ..Partial::default() })
    }

    fn missing_bytes(&self) -> usize {
        self.message_bytes - self.head.len() - self.body.len()
    }

    /// Adds the next piece. True: the message is whole.
    fn add(&mut self, piece: Region<'_>) -> Result<bool, BadMail> {
        if piece.is_empty() || piece.len() > self.missing_bytes() {
            let (found, missing) = (piece.len() as u64, self.missing_bytes() as u64);
            return Err(BadMail::WrongPiece { found, missing });
        }
        let mut done = 0;
        // A piece may end in the middle of the head.
        loop {
            let head_bytes = self.head.first().map_or(1, |bytes| 1 + usize::from(*bytes));
            let part = (head_bytes - self.head.len()).min(piece.len() - done);
            if part == 0 {
                break;
            }
            piece.slice(done, part).append_to(&mut self.head);
            done += part;
        }
        if done < piece.len() {
            if self.body.capacity() - self.body.len() < piece.len() - done {
                self.body.reserve_exact(self.missing_bytes().min(self.body.len().max(ROOM_BYTES_MAX)));
            }
            piece.slice(done, piece.len() - done).append_to(&mut self.body);
        }
        Ok(self.missing_bytes() == 0)
    }
}

/// A letter that a thread waits for, which it takes as it comes, past the table.
pub(super) struct Wanted {
    pub(super) place: (Slot, Rank),
    pub(super) found: Option<Letter>,
}

impl Arrivals {
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

    /// Adds a piece of a message of so many bytes. The message, if it is whole now, without the length of its head.
    pub(super) fn add(
        &mut self,
        source: u32,
        begins: bool,
        piece: Region<'_>,
        message_bytes: u64,
    ) -> Result<Option<Partial>, BadMail> {
        let found = piece.len() as u64;
        if begins {
            // The rest of an older one will not come: its sender's connection was lost in the middle.
            self.partial.insert(source, Partial::of(message_bytes)?);
        }
        let partial = self.partial.get_mut(&source).ok_or(BadMail::WrongPiece { found, missing: 0 })?;
        if partial.message_bytes as u64 != message_bytes {
            let missing = partial.missing_bytes() as u64;
            return Err(BadMail::WrongPiece { found: message_bytes, missing });
        }
        if !partial.add(piece)? {
            return Ok(None);
        }
        let mut whole = self.partial.remove(&source).unwrap_or_default();
        whole.head.remove(0);
        Ok(Some(whole))
    }

    /// Puts a whole message where it belongs; active messages are given back.
    pub(super) fn sort(
        &mut self,
        source: Rank,
        head: &[u8],
        body: Cow<'_, [u8]>,
        wanted: Option<&mut Wanted>,
    ) -> Result<Option<ActiveMessage>, BadMail> {
        let head = MailHead::decode(head)?;
        head.check_body(body.len() as u64)?;
        match head {
            MailHead::Collective { group, sequence, step, total_bytes } => {
                let place = (Slot { group, sequence, step }, source);
                match wanted {
                    Some(Wanted { place: wanted, found: found @ None }) if *wanted == place => {
                        *found = Some(Letter { total_bytes, body: body.into_owned(), arrival: self.arrived });
                    }
                    _ => self.keep_letter(place, total_bytes, body),
                }
                Ok(None)
            }
            MailHead::Active { handler, is_reply, arguments } => {
                Ok(Some(ActiveMessage { source, handler, is_reply, arguments, payload: body.into_owned() }))
            }
        }
    }

    /// A rank has sent what is no message.
    pub(super) fn note_broken(&mut self, source: Rank, why: BadMail) {
        self.partial.remove(&source.0);
        self.broken.insert(source, why);
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
            (1..whole.len()).flat_map(|first| (first + 1..whole.len()).map(move |second| (first, second)))
        {
            let mut partial = Partial::of(whole.len() as u64).unwrap();
            let pieces = [&whole[..first], &whole[first..second], &whole[second..]];
            let added = pieces.map(|piece| partial.add(Region::from_slice(piece)).unwrap());
            assert_eq!(added, [false, false, true], "cut at {first} and {second}");
            assert_eq!((&partial.head[..], &partial.body), (&head[..], &body), "cut at {first} and {second}");
        }
    }

    #[test]
    fn a_letter_that_is_wanted_is_not_put_into_the_table() {
        let slot = Slot { group: 1, sequence: 2, step: 3 };
        let head = [
            &[longarm_proto::MAIL_COLLECTIVE][..],
            &1_u64.to_le_bytes(),
            &2_u64.to_le_bytes(),
            &3_u32.to_le_bytes(),
            &9_u64.to_le_bytes(),
        ];
        let (head, place) = (head.concat(), (slot, Rank(5)));
        let mut inbox = Arrivals::default();
        let mut wanted = Wanted { place, found: None };
        for (source, body) in [(Rank(4), b"other"), (Rank(5), b"first"), (Rank(5), b"later")] {
            assert!(inbox.sort(source, &head, Cow::Borrowed(body), Some(&mut wanted)).unwrap().is_none());
        }
        let found = wanted.found.expect("it came");
        assert_eq!((found.total_bytes, &found.body[..]), (9, &b"first"[..]));
        assert_eq!(inbox.letter_count, 2);
        assert_eq!(inbox.take_letter(place).expect("the next one waits").body, b"later");
        assert!(inbox.take_letter(place).is_none());
        assert_eq!(inbox.take_letter((slot, Rank(4))).expect("it waits").body, b"other");
        assert_eq!(inbox.letter_count, 0);
    }

    fn add(inbox: &mut Arrivals, begins: bool, piece: &[u8], message_bytes: u64) -> Result<bool, BadMail> {
        Ok(inbox.add(3, begins, Region::from_slice(piece), message_bytes)?.is_some())
    }

    #[test]
    fn pieces_that_no_sound_rank_sends_are_errors() {
        let wrong = |found, missing| Err(BadMail::WrongPiece { found, missing });
        let mut inbox = Arrivals::default();
        assert_eq!(add(&mut inbox, false, &[1, 7], 9), wrong(2, 0), "nothing was begun");
        assert_eq!(add(&mut inbox, true, &[1, 7], 9), Ok(false));
        assert_eq!(add(&mut inbox, false, &[1, 7], 8), wrong(8, 7), "another length than at the beginning");
        assert_eq!(add(&mut inbox, false, &[0; 8], 9), wrong(8, 7), "more than is missing");
        assert_eq!(add(&mut inbox, false, &[], 9), wrong(0, 7), "nothing at all");
        assert_eq!(add(&mut inbox, false, &[0; 7], 9), Ok(true));
        for message_bytes in [0, MESSAGE_BYTES_MAX + 1, u64::MAX] {
            let found = add(&mut inbox, true, &[1, 7], message_bytes);
            assert_eq!(found, Err(BadMail::MessageBytes { found: message_bytes }));
        }
    }

    #[test]
    fn a_message_that_begins_takes_the_place_of_one_whose_rest_did_not_come() {
        let mut inbox = Arrivals::default();
        assert_eq!(add(&mut inbox, true, &[1, 7, 5], 9), Ok(false));
        assert_eq!(add(&mut inbox, true, &[1, 8], 4), Ok(false));
        let whole = inbox.add(3, false, Region::from_slice(&[6, 6]), 4).unwrap().expect("it is whole");
        assert_eq!((whole.head, whole.body), (vec![8], vec![6, 6]));
    }

    #[test]
    fn room_is_made_for_what_comes_and_not_for_what_is_announced() {
        let mut inbox = Arrivals::default();
        assert_eq!(add(&mut inbox, true, &[1, 7, 0], MESSAGE_BYTES_MAX), Ok(false));
        assert!(inbox.partial[&3].body.capacity() <= ROOM_BYTES_MAX);
    }
}
