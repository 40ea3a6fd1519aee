//! Words that many ranks read, modify and write, and what must be true of the old values that they got.

use std::collections::{HashMap, HashSet};

use super::dice::Dice;
use super::number::{Deed, Kind};
use super::program::{Form, PartOfSlot};

/// How a word is used in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Added to. With `told`, every old value is known, so that they form one chain.
    Counter { told: bool },
    /// Every value written is unique.
    Token,
    /// One kind of bitwise update.
    Bits(Deed),
    /// Read and written, one rank at a time, under a mutex.
    Locked { host: u32, number: u64 },
}

#[derive(Clone, Copy, Debug)]
pub struct Word {
    pub place: PartOfSlot,
    pub offset: usize,
    pub kind: Kind,
    pub usage: Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordDeed {
    FetchAdd(u64),
    AccumulateSum(u64),
    SignalAdd(u64),
    Fetch,
    Get,
    Bits(Deed, u64),
    AccumulateBits(Deed, u64),
    Swap(u64),
    /// Fetches, then replaces what it saw.
    CompareSwap(u64),
    Set(u64),
    Put(u64),
    SignalSet(u64),
    LockedAdd,
}

/// Mutexes that each rank hosts.
pub const MUTEXES: u64 = 2;

pub fn draw_use(dice: &mut Dice, ranks: u32) -> Use {
    match dice.below(10) {
        0..=1 => Use::Counter { told: true },
        2..=3 => Use::Counter { told: false },
        4..=6 => Use::Token,
        7..=8 => Use::Bits(*dice.pick(&[Deed::And, Deed::Or, Deed::Xor, Deed::Min, Deed::Max])),
        _ => Use::Locked { host: dice.below(ranks as usize) as u32, number: dice.below(MUTEXES as usize) as u64 },
    }
}

impl Word {
    /// What it holds before anybody touches it.
    pub fn start(&self, number: usize) -> u64 {
        match self.usage {
            Use::Counter { .. } | Use::Locked { .. } => number as u64 % 5,
            // No rank has number 0 in the values that are drawn.
            Use::Token => number as u64,
            Use::Bits(Deed::And | Deed::Min) => u64::MAX,
            Use::Bits(_) => 0x0100 << (number % 8),
        }
    }

    /// Its index as an element of its kind.
    pub fn index(&self) -> usize {
        self.offset / self.kind.bytes()
    }

    /// A value as the word holds it.
    pub fn cut(&self, value: u64) -> u64 {
        if self.kind == Kind::U32 { value & u64::from(u32::MAX) } else { value }
    }
}

/// What a rank does with a word, in which form. `unique` is a number that no one else has.
pub fn draw_word_deed(dice: &mut Dice, word: &Word, unique: u64, form: Form) -> (WordDeed, Form) {
    // Where every old value has to be known, none is thrown away.
    let kept = if form == Form::Dropped { Form::Handle } else { form };
    let wide = word.kind == Kind::U64;
    let amount = dice.within(1, 7) as u64;
    match word.usage {
        Use::Counter { told: true } => match dice.below(10) {
            0 => (WordDeed::Get, Form::Blocking),
            1 => (WordDeed::Fetch, kept),
            _ => (WordDeed::FetchAdd(amount), kept),
        },
        Use::Counter { told: false } => match dice.below(10) {
            0 => (WordDeed::Get, Form::Blocking),
            1 => (WordDeed::Fetch, kept),
            2..=4 => (WordDeed::AccumulateSum(amount), form),
            5..=6 if wide => (WordDeed::SignalAdd(amount), Form::Blocking),
            _ => (WordDeed::FetchAdd(amount), form),
        },
        Use::Token => match dice.below(12) {
            0..=1 => (WordDeed::Fetch, kept),
            2 if wide => (WordDeed::Get, Form::Blocking),
            3..=5 => (WordDeed::CompareSwap(unique), Form::Blocking),
            6 => (WordDeed::Set(unique), form),
            7 if wide => (WordDeed::Put(unique), form),
            8 if wide => (WordDeed::SignalSet(unique), Form::Blocking),
            _ => (WordDeed::Swap(unique), form),
        },
        Use::Bits(deed) => {
            let one = 1_u64 << dice.below(64);
            let bits = match deed {
                Deed::And => !one,
                Deed::Min | Deed::Max => dice.word(),
                _ => one,
            };
            match dice.below(10) {
                0..=2 => (WordDeed::AccumulateBits(deed, bits), form),
                3 => (WordDeed::Fetch, kept),
                _ => (WordDeed::Bits(deed, bits), form),
            }
        }
        Use::Locked { .. } => (WordDeed::LockedAdd, Form::Blocking),
    }
}

/// What a rank saw of a word or did to it, in its program order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    pub word: usize,
    pub rank: u32,
    pub what: What,
    /// What it saw; nothing for blind writes.
    pub old: u64,
    /// What it added or wrote.
    pub new: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The old value was replaced, by addition or exchange.
    Changed = 1,
    /// Only looked at.
    Seen = 2,
    /// Written without a look.
    Written = 3,
}

impl Sight {
    pub fn encode(&self) -> [u64; 4] {
        let what = self.what as u64;
        [self.word as u64, u64::from(self.rank) << 8 | what, self.old, self.new]
    }

    pub fn decode(words: &[u64]) -> Sight {
        let what = match words[1] & 0xff {
            1 => What::Changed,
            2 => What::Seen,
            3 => What::Written,
            other => panic!("{other} is nothing that a rank does to a word"),
        };
        Sight { word: words[0] as usize, rank: (words[1] >> 8) as u32, what, old: words[2], new: words[3] }
    }
}

/// Whether the old values of a word that was only added to are those of some order, one behind the other.
pub fn check_counter(start: u64, sights: &[Sight], last: u64) -> Result<(), String> {
    let mut steps: Vec<&Sight> = sights.iter().filter(|sight| sight.what == What::Changed).collect();
    steps.sort_by_key(|sight| sight.old);
    let mut value = start;
    for step in steps {
        if step.old != value {
            return Err(format!("the value {value} was due as an old value, but the next one is that of {step:?}"));
        }
        value += step.new;
    }
    if value != last {
        return Err(format!("the old values lead to {value}, but the word is {last}"));
    }
    Ok(())
}

/// Whether the old values of a word whose values are unique can be: each was written by someone, was replaced with a
/// witness at most once, and no rank saw what it had overwritten itself.
pub fn check_token(start: u64, sights: &[Sight], last: u64) -> Result<(), String> {
    let mut written: HashSet<u64> =
        sights.iter().filter(|sight| sight.what != What::Seen).map(|sight| sight.new).collect();
    written.insert(start);
    let mut replaced = HashMap::new();
    let mut gone: HashMap<u32, HashSet<u64>> = HashMap::new();
    let mut known: HashMap<u32, Vec<u64>> = HashMap::new();
    for sight in sights {
        let gone = gone.entry(sight.rank).or_default();
        if sight.what != What::Written {
            if !written.contains(&sight.old) {
                return Err(format!("nobody wrote the old value of {sight:?}"));
            }
            if gone.contains(&sight.old) {
                return Err(format!("this rank had overwritten the old value of {sight:?} before"));
            }
        }
        if sight.what == What::Changed
            && let Some(other) = replaced.insert(sight.old, *sight)
        {
            return Err(format!("two replaced the same value: {other:?} and {sight:?}"));
        }
        let known = known.entry(sight.rank).or_insert_with(|| vec![start]);
        if sight.what != What::Written {
            known.push(sight.old);
        }
        if sight.what != What::Seen {
            gone.extend(known.drain(..));
            known.push(sight.new);
        }
    }
    if !written.contains(&last) {
        return Err(format!("nobody wrote the last value {last}"));
    }
    if let Some(sight) = replaced.get(&last) {
        return Err(format!("the last value {last} was replaced before: {sight:?}"));
    }
    let blind = sights.iter().any(|sight| sight.what == What::Written);
    if !blind && replaced.len() + 1 != written.len() {
        return Err(format!("{} values were written, but {} were replaced", written.len(), replaced.len()));
    }
    Ok(())
}
