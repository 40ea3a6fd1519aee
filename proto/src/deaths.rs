//! Which ranks are dead, as one node's server knows it, and since when nothing of theirs can arrive any more.
//!
//! ```text
//!   alive ── note ──► dead, its connection may still bring what it had sent ── settle ──► gone
//! ```
//!
//! A rank is *gone* once its connection here has ended, for what it had sent before has been applied then, or once
//! [`SETTLE_MS`] have passed and the caller has cut it off. What a gone rank held may be handed on: the rank that gets it
//! sees all that the dead one wrote here.
//!
//! Nothing is forgotten: a rank dies once a job, and the job has a known number of them.

use crate::ids::Rank;
use std::collections::BTreeMap;

/// How long the connection of a dead rank may bring what was on its way, in milliseconds.
pub const SETTLE_MS: u64 = 1000;

/// The dead. Without a clock: feed it [`Deaths::note`], and [`Deaths::settle`] in every turn while
/// [`Deaths::is_settling`].
#[derive(Debug, Default)]
pub struct Deaths {
    dead: BTreeMap<Rank, Phase>,
    settling: usize,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// No turn has seen it yet, so nobody knows the time.
    Noted,
    /// Its connection may last until then.
    Settling {
        until_ms: u64,
    },
    Gone,
}

impl Deaths {
    /// Everybody lives.
    pub const fn new() -> Deaths {
        Deaths { dead: BTreeMap::new(), settling: 0 }
    }

    /// A rank died. False if that was known.
    pub fn note(&mut self, rank: Rank) -> bool {
        let new = !self.dead.contains_key(&rank);
        if new {
            self.dead.insert(rank, Phase::Noted);
            self.settling += 1;
        }
        new
    }

    /// Whether it died.
    pub fn is_dead(&self, rank: Rank) -> bool {
        self.dead.contains_key(&rank)
    }

    /// Whether it died and nothing of it can arrive any more.
    pub fn is_gone(&self, rank: Rank) -> bool {
        self.dead.get(&rank) == Some(&Phase::Gone)
    }

    /// Whether somebody is dead and not gone: [`Deaths::settle`] has work.
    pub fn is_settling(&self) -> bool {
        self.settling > 0
    }

    /// Those that are gone from now on. The caller first ends what connections they may still have, all of them, and
    /// only then hands on what they held. `now_ms` counts from any fixed moment; `connected` says whose connection has not ended.
    pub fn settle(&mut self, now_ms: u64, connected: impl Fn(Rank) -> bool) -> Vec<Rank> {
        let mut gone = Vec::new();
        for (rank, phase) in &mut self.dead {
            let until_ms = match *phase {
                Phase::Gone => continue,
                Phase::Noted => now_ms.saturating_add(SETTLE_MS),
                Phase::Settling { until_ms } => until_ms,
            };
            if now_ms < until_ms && connected(*rank) {
                *phase = Phase::Settling { until_ms };
            } else {
                *phase = Phase::Gone;
                gone.push(*rank);
            }
        }
        self.settling -= gone.len();
        gone
    }
}
