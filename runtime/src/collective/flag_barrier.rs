//! The agreement of a world that is one node: all meet once, in shared memory.
//!
//! Each member shows the digest of what it calls, and what little data it has. So everybody sees whether there are
//! differences, and only then are there messages about them.

use longarm_client::Lost;

use super::agree::Load;
use super::call::Call;
use super::signature::Signature;
use crate::error::CollectiveError;

/// Words of data that a member can show, behind the digest and the number of bytes.
const DATA_WORDS: usize = 5;
const DATA_BYTES: usize = DATA_WORDS * 8;

/// In the word of the number of bytes: this member has laid out its stage.
const OFFERED: u64 = 1 << 63;

/// Bytes as words, and back.
#[derive(Clone, Copy, Default)]
struct Data([u64; DATA_WORDS]);

impl Data {
    fn of(bytes: &[u8]) -> Data {
        let mut words = [0; DATA_WORDS];
        for (word, piece) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..piece.len()].copy_from_slice(piece);
            *word = u64::from_ne_bytes(whole);
        }
        Data(words)
    }

    fn append_to(self, bytes: &mut Vec<u8>, count: usize) {
        let end = bytes.len() + count;
        for word in self.0 {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.truncate(end);
    }
}

/// What a barrier came to.
enum Met {
    /// Not all call the same.
    Differ,
    /// All do, and the load, if there is one, is still to be carried.
    Agree,
    /// All do, and the load has come.
    Loaded(Load),
    /// A member shows another number of bytes than there are.
    Wrong { member: u32, found: u64, due: usize },
}

impl Call<'_> {
    /// Whether all members have laid out their staging buffer, as this one says by `offered`. `None`: all call the same, but the load is
    /// too much, and has to be carried otherwise.
    pub(super) fn meet(
        &mut self,
        mine: Signature,
        load: &mut Load,
        offered: bool,
    ) -> Result<Option<bool>, CollectiveError> {
        let shown: &[u8] = match &*load {
            Load::OfOne { bytes: Some(bytes), .. } | Load::OfAll(bytes) if bytes.len() <= DATA_BYTES => bytes,
            _ => &[],
        };
        // Of one, those who do not have it show nothing.
        let (due, or_nothing) = match &*load {
            Load::OfOne { due, .. } => (*due, true),
            Load::Empty | Load::OfAll(_) => (shown.len(), false),
        };
        let digest = mine.digest();
        let mut words = [0; 2 + DATA_WORDS];
        (words[0], words[1]) = (digest, shown.len() as u64 | if offered { OFFERED } else { 0 });
        words[2..].copy_from_slice(&Data::of(shown).0);
        let words = &words[..2 + shown.len().div_ceil(8)];
        let (me, size, client) = (self.me(), self.size(), &self.group.inner.client);
        let death = || -> Option<Lost> { self.group.death() };
        let mut all_offered = false;
        let met = client.meet(words, self.name, &death, |word| {
            if (0..size).any(|member| word(member, 0) != digest) {
                return Met::Differ;
            }
            all_offered = (0..size).all(|member| word(member, 1) & OFFERED != 0);
            let count = |member: u32| word(member, 1) & !OFFERED;
            let take = |member: u32, bytes: &mut Vec<u8>| {
                let count = (count(member) as usize).min(DATA_BYTES);
                let mut data = Data::default();
                for (at, place) in data.0[..count.div_ceil(8)].iter_mut().enumerate() {
                    *place = word(member, 2 + at);
                }
                data.append_to(bytes, count);
            };
            let is_wrong = |found: u64| found != due as u64 && !(found == 0 && or_nothing);
            if let Some(member) = (0..size).find(|member| is_wrong(count(*member))) {
                return Met::Wrong { member, found: count(member), due };
            }
            let mut bytes = Vec::new();
            match load {
                Load::Empty => return Met::Agree,
                // One has it; the others show nothing.
                Load::OfOne { .. } => (0..size).for_each(|member| take(member, &mut bytes)),
                // Of this one, of the one before it, and so on around.
                Load::OfAll(_) => (0..size).for_each(|back| take((me + size - back) % size, &mut bytes)),
            }
            match load {
                _ if bytes.is_empty() => Met::Agree,
                Load::OfAll(_) => Met::Loaded(Load::OfAll(bytes)),
                _ => Met::Loaded(Load::OfOne { bytes: Some(bytes), due }),
            }
        })?;
        match met {
            Met::Wrong { member, found, due } => Err(self.bad_message(member, found, due.to_string())),
            Met::Differ => self.find_differences(mine).map(|()| None),
            Met::Agree => Ok(load.is_empty().then_some(all_offered)),
            Met::Loaded(loaded) => {
                *load = loaded;
                Ok(Some(all_offered))
            }
        }
    }
}
