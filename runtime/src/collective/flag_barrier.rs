//! The agreement of a group that is on one node: all meet once, in shared memory.
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
pub(super) const DATA_BYTES: usize = DATA_WORDS * 8;

/// In the word of the number of bytes: this member has laid out what it stages.
const OFFERED: u64 = 1 << 63;
/// In the same word: what this member has lies in its area (`laid_out.rs`), and it can read those of the others.
const LAID_OUT: u64 = 1 << 61;
/// In the same word: this is what the leader of a node tells the others, and not what it calls.
const TOLD: u64 = 1 << 62;

/// What one member shows: a word of its own, how many bytes it shows, with [`OFFERED`] and [`TOLD`] or not, and these bytes.
pub(super) struct Shown {
    words: [u64; 2 + DATA_WORDS],
    bytes: usize,
}

impl Shown {
    /// `bytes` that fit, or none. `count` is how many it says they are.
    fn new(word: u64, (bytes, count): (&[u8], usize), offered: bool) -> Shown {
        let bytes = if bytes.len() <= DATA_BYTES { bytes } else { &[] };
        let mut words = [0; 2 + DATA_WORDS];
        (words[0], words[1]) = (word, count as u64 | if offered { OFFERED } else { 0 });
        for (word, piece) in words[2..].iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..piece.len()].copy_from_slice(piece);
            *word = u64::from_ne_bytes(whole);
        }
        Shown { words, bytes: bytes.len() }
    }

    /// What a member shows that calls this and has this load. What does not fit is laid out by `lay_out`, which says whether it is, and
    /// whether this member can read that of the others.
    fn of(mine: &Signature, load: &Load, offered: bool, lay_out: impl FnOnce() -> bool) -> Shown {
        let mut shown = Shown::new(mine.digest(), (load.bytes(), load.laid_out().len()), offered);
        let fits = match load {
            Load::Empty => true,
            Load::ToEach { .. } => false,
            Load::OfOne { .. } | Load::OfAll(_) | Load::Merged { .. } | Load::Reduced { .. } => {
                load.wanted(0).1 <= DATA_BYTES
            }
        };
        if !fits && lay_out() {
            shown.words[1] |= LAID_OUT;
        }
        shown
    }

    /// The same to the leader of its node, which it sends what does not fit.
    pub(super) fn to_leader(mine: &Signature, load: &Load, offered: bool) -> Shown {
        Shown::new(mine.digest(), (load.bytes(), load.bytes().len()), offered)
    }

    /// What the leader of a node tells the others. `bytes` as for [`Shown::new`].
    pub(super) fn told(word: u64, bytes: &[u8]) -> Shown {
        let mut shown = Shown::new(word, (bytes, bytes.len()), false);
        shown.words[1] |= TOLD;
        shown
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words[..2 + self.bytes.div_ceil(8)]
    }
}

/// Adds the bytes that a member shows, if they fit. `count`: its [`shown_count`], which is read once: a broken member may change it.
fn add_shown_bytes(bytes: &mut Vec<u8>, word: &dyn Fn(usize) -> u64, count: u64) {
    let count = usize::try_from(count).ok().filter(|count| *count <= DATA_BYTES).unwrap_or(0);
    for start in (0..count).step_by(8) {
        bytes.extend_from_slice(&word(2 + start / 8).to_ne_bytes()[..8.min(count - start)]);
    }
}

/// How many bytes a member shows, or says that it sends.
pub(super) fn shown_count(word: &dyn Fn(usize) -> u64) -> u64 {
    word(1) & !(OFFERED | TOLD | LAID_OUT)
}

/// What the leader of a node tells the others: its word, and its bytes. `None`: it is at another barrier.
pub(super) fn told(word: &dyn Fn(usize) -> u64) -> Option<(u64, Vec<u8>)> {
    let bytes = || {
        let mut bytes = Vec::new();
        add_shown_bytes(&mut bytes, word, shown_count(word));
        bytes
    };
    (word(1) & TOLD != 0).then(|| (word(0), bytes()))
}

/// What a barrier came to.
pub(super) enum Met {
    /// Not all call the same.
    Differ,
    /// All do. Whether all have laid out their staging buffer; and the bytes that they show, one's behind the other's, but for those that
    /// do not fit.
    Agree { offered: bool, bytes: Vec<u8> },
    /// A member shows another number of bytes than there are.
    Wrong { member: u32, found: u64, due: usize },
}

impl Met {
    /// What members come to, of which `me` calls `mine` and has a load; `members` in the order of their bytes.
    pub(super) fn read(
        word: &dyn Fn(u32, usize) -> u64,
        (me, mine, load): (u32, &Signature, &Load),
        members: impl Iterator<Item = u32> + Clone,
    ) -> Met {
        let of = |member: u32| move |at: usize| word(member, at);
        let digest = mine.digest();
        if members.clone().any(|member| word(member, 0) != digest) {
            return Met::Differ;
        }
        // Of one, those who do not have it show nothing.
        let (due, or_nothing) = match load {
            Load::OfOne { due, .. } => (*due, true),
            Load::Empty | Load::OfAll(_) | Load::Merged { .. } | Load::Reduced { .. } | Load::ToEach { .. } => {
                (shown_count(&of(me)) as usize, false)
            }
        };
        let is_wrong = |found: u64| found != due as u64 && !(found == 0 && or_nothing);
        let offered = members.clone().all(|member| word(member, 1) & OFFERED != 0);
        let mut bytes = Vec::new();
        for member in members {
            let found = shown_count(&of(member));
            if is_wrong(found) {
                return Met::Wrong { member, found, due };
            }
            // What is for each is never in the lines.
            if !matches!(load, Load::Empty | Load::ToEach { .. }) {
                add_shown_bytes(&mut bytes, &of(member), found);
            }
        }
        Met::Agree { offered, bytes }
    }
}

impl Call<'_> {
    /// `offered`: this member's staging buffer is laid out. Gives whether all members' are; `None` if the load did not come.
    pub(super) fn meet(
        &mut self,
        mine: Signature,
        load: &mut Load,
        offered: bool,
    ) -> Result<Option<bool>, CollectiveError> {
        let (me, size, client) = (self.me(), self.size(), &self.group.inner.client);
        let death = || -> Option<Lost> { self.group.death() };
        // Of this one, of the one before it, and so on around.
        let around = (0..size).map(|back| (me + size - back) % size);
        let load_here = &*load;
        let show = |barrier: Option<u64>| {
            let lay_out = || barrier.is_some_and(|barrier| self.lay_out_load(barrier, load_here));
            Shown::of(&mine, load_here, offered, lay_out)
        };
        let barriers = self.group.barriers().expect("its members can meet");
        let met = client.meet(barriers, (show, Shown::words), self.name, &death, |barrier, word| {
            let met = Met::read(word, (me, &mine, load_here), around.clone());
            match met {
                Met::Agree { offered, bytes } if bytes.is_empty() && !load_here.is_empty() => {
                    Met::Agree { offered, bytes: self.read_if_laid_out(barrier, load_here, word, around) }
                }
                met => met,
            }
        })?;
        match met {
            Met::Wrong { member, found, due } => Err(self.bad_message(member, found, due.to_string())),
            Met::Differ => Err(self.find_differences(mine)),
            Met::Agree { offered, bytes } => Ok(load.fill(bytes).then_some(offered)),
        }
    }

    /// The load, if it has not come with the lines: empty unless all members have laid out what they have, and can read it.
    fn read_if_laid_out(
        &self,
        barrier: u64,
        load: &Load,
        word: &dyn Fn(u32, usize) -> u64,
        around: impl Iterator<Item = u32> + Clone,
    ) -> Vec<u8> {
        if !around.clone().all(|member| word(member, 1) & LAID_OUT != 0) {
            return Vec::new();
        }
        // Of one: that of the first who says that it has it.
        let most = if matches!(load, Load::OfOne { .. }) { 1 } else { usize::MAX };
        let have_it = around.filter(|member| shown_count(&|at| word(*member, at)) > 0);
        self.read_loads(barrier, load, have_it.take(most))
    }
}
