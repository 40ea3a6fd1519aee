//! The agreement of a group that is on one node: all meet once, in shared memory.
//!
//! Each member shows the digest of what it calls, and what little data it has. So everybody sees whether there are
//! differences, and only then are there messages about them.

use longarm_client::Lost;

use super::agree::Load;
use super::call::Call;
use super::elements::{INLINE_BYTES, LoadBytes};
use crate::error::CollectiveError;

/// Words of data that a member can show, behind the digest and the number of bytes.
const DATA_WORDS: usize = 5;
/// The digest and the number of bytes.
const HEAD_WORDS: usize = 2;
/// Which of them is the number.
pub(super) const COUNT_AT: usize = 1;
pub(super) const DATA_BYTES: usize = DATA_WORDS * 8;
const _: () = assert!(DATA_BYTES <= INLINE_BYTES);

/// In the word of the number of bytes: this member has laid out what it stages.
const OFFERED: u64 = 1 << 63;
/// In the same word: what this member has lies in its area (`laid_out.rs`), and it can read those of the others.
const LAID_OUT: u64 = 1 << 61;
/// In the same word: this is what the leader of a node tells the others, and not what it calls.
const TOLD: u64 = 1 << 62;

/// What one member shows: a word of its own, how many bytes it shows, with [`OFFERED`] and [`TOLD`] or not, and these bytes.
pub(super) struct Shown {
    words: [u64; HEAD_WORDS + DATA_WORDS],
    bytes: usize,
}

impl Shown {
    /// `bytes` that fit, or none. `count` is how many it says they are.
    #[inline]
    fn new(word: u64, (bytes, count): (&[u8], usize), offered: bool) -> Shown {
        let bytes = if bytes.len() <= DATA_BYTES { bytes } else { &[] };
        let mut words = [0; HEAD_WORDS + DATA_WORDS];
        (words[0], words[COUNT_AT]) = (word, count as u64 | if offered { OFFERED } else { 0 });
        let (whole, rest) = bytes.as_chunks::<8>();
        words[HEAD_WORDS..].iter_mut().zip(whole).for_each(|(word, piece)| *word = u64::from_ne_bytes(*piece));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            words[HEAD_WORDS + whole.len()] = u64::from_ne_bytes(last);
        }
        Shown { words, bytes: bytes.len() }
    }

    /// What a member shows whose call has this digest, and this load. What does not fit is laid out by `lay_out`, which says whether it is, and
    /// whether this member can read that of the others.
    #[inline]
    fn of(digest: u64, load: &Load, offered: bool, lay_out: impl FnOnce() -> bool) -> Shown {
        let mut shown = Shown::new(digest, (load.bytes(), load.laid_out().len()), offered);
        let fits = match load {
            Load::Empty => true,
            Load::ToEach { .. } => false,
            Load::OfOne { .. } | Load::OfAll(_) | Load::Merged { .. } | Load::Reduced { .. } => {
                load.wanted(0).1 <= DATA_BYTES
            }
        };
        if !fits && lay_out() {
            shown.words[COUNT_AT] |= LAID_OUT;
        }
        shown
    }

    /// The same to the leader of its node, which it sends what does not fit.
    pub(super) fn to_leader(digest: u64, load: &Load, offered: bool) -> Shown {
        Shown::new(digest, (load.bytes(), load.bytes().len()), offered)
    }

    /// What the leader of a node tells the others. `bytes` as for [`Shown::new`].
    pub(super) fn told(word: u64, bytes: &[u8]) -> Shown {
        let mut shown = Shown::new(word, (bytes, bytes.len()), false);
        shown.words[COUNT_AT] |= TOLD;
        shown
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words[..HEAD_WORDS + self.bytes.div_ceil(8)]
    }
}

/// Adds the bytes that a member shows, if they fit. `count`: its [`shown_count`], which is read once: a broken member may change it.
#[inline]
fn add_shown_bytes(bytes: &mut LoadBytes, word: impl Fn(usize) -> u64, count: u64) {
    if count > DATA_BYTES as u64 {
        return;
    }
    let (count, mut shown) = (count as usize, [0; DATA_BYTES]);
    let pieces = shown.as_chunks_mut().0.iter_mut().take(count.div_ceil(8));
    pieces.zip(HEAD_WORDS..).for_each(|(piece, at)| *piece = word(at).to_ne_bytes());
    bytes.extend_from_slice(&shown[..count]);
}

/// How many bytes a member shows, or says that it sends, given its word at [`COUNT_AT`].
pub(super) fn shown_count(word: u64) -> u64 {
    word & !(OFFERED | TOLD | LAID_OUT)
}

/// What the leader of a node tells the others: its word, and its bytes. `None`: it is at another barrier.
pub(super) fn told(word: &dyn Fn(usize) -> u64) -> Option<(u64, LoadBytes)> {
    let bytes = || {
        let mut bytes = LoadBytes::new();
        add_shown_bytes(&mut bytes, word, shown_count(word(COUNT_AT)));
        bytes
    };
    (word(COUNT_AT) & TOLD != 0).then(|| (word(0), bytes()))
}

/// What a barrier came to.
pub(super) enum Met {
    /// Not all call the same.
    Differ,
    /// All do. Whether all have laid out their staging buffer.
    Agree { offered: bool },
    /// A member shows another number of bytes than there are.
    Wrong { member: u32, found: u64, due: usize },
}

impl Met {
    /// What members come to, of which `me` has this load. `bytes` gets what they show, one's behind the
    /// other's in the order of `members`, but for those that do not fit.
    #[inline]
    pub(super) fn read(
        word: impl Fn(u32, usize) -> u64,
        (me, load): (u32, &Load),
        members: impl Iterator<Item = u32>,
        bytes: &mut LoadBytes,
    ) -> Met {
        let (digest, own_count) = (word(me, 0), shown_count(word(me, COUNT_AT)) as usize);
        // Of one, those who do not have it show nothing. What is for each is never in the lines.
        let (due, or_nothing, are_shown) = match load {
            Load::OfOne { due, .. } => (*due, true, true),
            Load::OfAll(_) | Load::Merged { .. } | Load::Reduced { .. } => (own_count, false, true),
            Load::Empty | Load::ToEach { .. } => (own_count, false, false),
        };
        let (mut offered, mut wrong) = (true, None);
        for member in members {
            if word(member, 0) != digest {
                return Met::Differ;
            }
            let count = word(member, COUNT_AT);
            offered &= count & OFFERED != 0;
            let found = shown_count(count);
            if found != due as u64 && !(found == 0 && or_nothing) {
                wrong = wrong.or(Some((member, found)));
            } else if are_shown {
                add_shown_bytes(bytes, |at| word(member, at), found);
            }
        }
        match wrong {
            Some((member, found)) => Met::Wrong { member, found, due },
            None => Met::Agree { offered },
        }
    }
}

impl Call<'_> {
    /// `offered`: this member's staging buffer is laid out. Gives whether all members' are; `None` if the load did not come.
    pub(super) fn meet(&mut self, load: &mut Load, offered: bool) -> Result<Option<bool>, CollectiveError> {
        let (me, size, client) = (self.me(), self.size(), &self.group.inner.client);
        let death = || -> Option<Lost> { self.group.death() };
        // Of this one, of the one before it, and so on around; without a division, which would be seen.
        let around = (0..size).map(|back| if back <= me { me - back } else { me + size - back });
        let (digest, load_here, mut bytes) = (self.signature.digest(), &*load, LoadBytes::new());
        let show = |barrier: Option<u64>| {
            let lay_out = || barrier.is_some_and(|barrier| self.lay_out_load(barrier, load_here));
            Shown::of(digest, load_here, offered, lay_out)
        };
        let barriers = self.group.barriers().expect("its members can meet");
        let met = client.meet(barriers, (show, Shown::words), self.name(), &death, |barrier, words| {
            let word = |member, at| words.word(member, at);
            let met = Met::read(word, (me, load_here), around.clone(), &mut bytes);
            if bytes.is_empty() && !load_here.is_empty() && matches!(met, Met::Agree { .. }) {
                bytes = self.read_if_laid_out(barrier, load_here, word, around);
            }
            met
        })?;
        match met {
            Met::Wrong { member, found, due } => Err(self.bad_message(member, found, due.to_string())),
            Met::Differ => Err(self.find_differences()),
            Met::Agree { offered } => Ok(load.fill(bytes).then_some(offered)),
        }
    }

    /// The load, if it has not come with the lines: empty unless all members have laid out what they have, and can read it.
    fn read_if_laid_out(
        &self,
        barrier: u64,
        load: &Load,
        word: impl Fn(u32, usize) -> u64,
        around: impl Iterator<Item = u32> + Clone,
    ) -> LoadBytes {
        if !around.clone().all(|member| word(member, COUNT_AT) & LAID_OUT != 0) {
            return LoadBytes::new();
        }
        // Of one: that of the first who says that it has it.
        if matches!(load, Load::OfOne { .. }) {
            let has_it = |member: &u32| shown_count(word(*member, COUNT_AT)) > 0;
            return self.read_loads(barrier, load, around.filter(has_it).take(1));
        }
        self.read_loads(barrier, load, around)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: u64 = 77;

    fn shows(load: &Load, offered: bool) -> Vec<u64> {
        Shown::of(DIGEST, load, offered, || false).words().to_vec()
    }

    /// What member 0 makes of the words of all; its own are the first.
    fn read(load: &Load, words: &[Vec<u64>]) -> (Met, Vec<u8>) {
        let word = |member: u32, at: usize| words[member as usize].get(at).copied().unwrap_or(0);
        let mut bytes = LoadBytes::new();
        let met = Met::read(word, (0, load), 0..words.len() as u32, &mut bytes);
        (met, bytes.to_vec())
    }

    fn of_all(bytes: &[u8]) -> Load {
        Load::OfAll(LoadBytes::from_slice(bytes))
    }

    #[test]
    fn what_all_show_is_read_in_their_order_whatever_its_length() {
        for length in 0..=DATA_BYTES {
            let of = |member: u8| of_all(&vec![member; length]);
            let words: Vec<Vec<u64>> = (1..=3).map(|member| shows(&of(member), member != 2)).collect();
            let (met, bytes) = read(&of(1), &words);
            assert!(matches!(met, Met::Agree { offered: false }), "{length} bytes");
            assert_eq!(bytes, [1, 2, 3].map(|member| vec![member; length]).concat());
        }
        let (met, _) = read(&Load::Empty, &[shows(&Load::Empty, true), shows(&Load::Empty, true)]);
        assert!(matches!(met, Met::Agree { offered: true }));
    }

    #[test]
    fn of_one_is_read_from_who_has_it() {
        let has = |bytes: Option<&[u8]>| Load::OfOne { bytes: bytes.map(LoadBytes::from_slice), due: 3 };
        let (met, bytes) = read(&has(None), &[shows(&has(None), false), shows(&has(Some(b"abc")), false)]);
        assert!(matches!(met, Met::Agree { .. }) && bytes == b"abc");
        let (met, bytes) = read(&has(None), &[shows(&has(None), false), shows(&has(None), false)]);
        assert!(matches!(met, Met::Agree { .. }) && bytes.is_empty(), "nobody has it");
        let (met, _) = read(&has(None), &[shows(&has(None), false), shows(&has(Some(b"ab")), false)]);
        assert!(matches!(met, Met::Wrong { member: 1, found: 2, due: 3 }));
    }

    #[test]
    fn who_calls_something_else_counts_more_than_who_shows_too_much() {
        let (two, three) = (of_all(b"ab"), of_all(b"abc"));
        let mut other = shows(&two, false);
        other[0] += 1;
        let words = [shows(&two, false), shows(&three, false), other];
        assert!(matches!(read(&two, &words[..2]).0, Met::Wrong { member: 1, found: 3, due: 2 }));
        assert!(matches!(read(&two, &words).0, Met::Differ));
        // More than fits is never read, whatever it says.
        let long = of_all(&[1; DATA_BYTES + 1]);
        let (met, bytes) = read(&long, &[shows(&long, false), shows(&long, false)]);
        assert!(matches!(met, Met::Agree { .. }) && bytes.is_empty());
    }

    #[test]
    fn shares_are_never_in_the_lines() {
        let shares = |count| Load::ToEach { share_bytes: 1, shares: vec![1; count], got: None };
        let (met, bytes) = read(&shares(2), &[shows(&shares(2), false), shows(&shares(2), false)]);
        assert!(matches!(met, Met::Agree { .. }) && bytes.is_empty());
        let (met, _) = read(&shares(2), &[shows(&shares(2), false), shows(&shares(3), false)]);
        assert!(matches!(met, Met::Wrong { member: 1, found: 3, due: 2 }));
    }
}
