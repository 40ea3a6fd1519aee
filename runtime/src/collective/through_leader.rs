//! The members on a node tell their leader something, the leaders of the nodes speak with each other, and each tells its node
//! what came of it.
//!
//! ```text
//!   node 0:  0 1 2 ── tell ──► 0 ┐                 ┌ 0 ── tell ──► 0 1 2
//!   node 1:  3 4 5 ── tell ──► 3 ┴ messages, gets ─┴ 3 ── tell ──► 3 4 5
//! ```
//!
//! They tell by lines of the node's segment, or, in groups that have none, by messages, which stay on the node as well.

use longarm_client::{Lost, NodeBarriers};

use super::agree::Known;
use super::call::Call;
use super::conclusion::{Conclusion, Context};
use super::flag_barrier::Shown;
use crate::error::CollectiveError;

/// More steps than the leaders take.
const STEPS: u32 = 256;
const WORD_BYTES: usize = size_of::<u64>();

/// How the members on a node tell their leader something, and hear of it.
enum Here<'a> {
    Lines(NodeBarriers<'a>),
    Letters,
}

impl<'a> Here<'a> {
    fn of(call: &Call<'a>, death: &'a dyn Fn() -> Option<Lost>) -> Here<'a> {
        match call.group.barriers() {
            Some(barriers) => Here::Lines(call.group.inner.client.meet_on_node(barriers, call.name(), death)),
            None => Here::Letters,
        }
    }
}

impl Call<'_> {
    /// Shows `words` to the leader, which takes what `read` gets from the words of each (by its place among the members on the node) to the other
    /// leaders, by `speak`. Gives what that came to: at the others without bytes that do not fit into a line.
    pub(super) fn through_leader<M>(
        &mut self,
        words: &[u64],
        read: impl FnOnce(&dyn Fn(u32, usize) -> u64) -> M,
        speak: impl FnOnce(&mut Self, M) -> Result<Known, CollectiveError>,
    ) -> Result<Known, CollectiveError> {
        let (group, begin) = (self.group, self.slot.step);
        let death = || -> Option<Lost> { group.death() };
        let here = Here::of(self, &death);
        let spoken = match self.tell_leader(&here, words, read) {
            Ok(None) => None,
            Ok(Some(met)) => Some(speak(self, met)),
            // An error of the leader is told, too: all come to as many barriers, whatever becomes of the collective.
            Err(error) if group.nodes().is_leader() => Some(Err(error)),
            Err(error) => return Err(error),
        };
        self.after_leader(&here, begin, spoken)
    }

    /// The same of leaders that have to hear nothing.
    pub(super) fn speak_as_leader(
        &mut self,
        speak: impl FnOnce(&mut Self) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        let (group, begin) = (self.group, self.slot.step);
        let death = || -> Option<Lost> { group.death() };
        let here = Here::of(self, &death);
        let spoken = group.nodes().is_leader().then(|| speak(self).map(|()| Known::NOTHING));
        self.after_leader(&here, begin, spoken).map(drop)
    }

    /// What a member does in place of [`Call::speak_as_leader`] that has nothing to hear: all take as many steps.
    pub(super) fn without_leader(&mut self) {
        self.slot.step += STEPS;
    }

    /// `spoken`: what the leader here has come to.
    fn after_leader(
        &mut self,
        here: &Here<'_>,
        begin: u32,
        spoken: Option<Result<Known, CollectiveError>>,
    ) -> Result<Known, CollectiveError> {
        self.slot.step = begin;
        let telling = spoken.as_ref().map(|spoken| Conclusion::of(spoken.as_ref()).shown());
        let heard = self.hear_leader(here, telling.as_ref().map_or(&[], Shown::words));
        self.slot.step = begin + STEPS;
        match (spoken, heard?) {
            // The leader: the others have heard this from it.
            (Some(spoken), _) => spoken,
            (None, Conclusion::Known(known)) => Ok(known),
            (None, Conclusion::Death) => Err(self.hear_of_death(here, begin)),
            (None, other) => Err(self.group.death().map_or_else(|| self.heard_of(&other), CollectiveError::Lost)),
        }
    }

    fn tell_leader<M>(
        &self,
        here: &Here<'_>,
        words: &[u64],
        read: impl FnOnce(&dyn Fn(u32, usize) -> u64) -> M,
    ) -> Result<Option<M>, CollectiveError> {
        if let Here::Lines(lines) = here {
            return Ok(lines.tell_leader(words, read)?);
        }
        let nodes = self.group.nodes();
        if !nodes.is_leader() {
            return self.send_words(nodes.my_leader(), words).map(|()| None);
        }
        let others = nodes.here()[1..].iter().map(|place| self.receive_words(*place));
        let others = others.collect::<Result<Vec<Vec<u64>>, _>>()?;
        let of = |local: u32| if local == 0 { words } else { &others[local as usize - 1] };
        Ok(Some(read(&|local, at| of(local).get(at).copied().unwrap_or(0))))
    }

    /// The leader tells these words.
    fn hear_leader(&self, here: &Here<'_>, words: &[u64]) -> Result<Conclusion, CollectiveError> {
        if let Here::Lines(lines) = here {
            return Ok(lines.hear_leader(words, Conclusion::read)?);
        }
        let nodes = self.group.nodes();
        let of = |words: &[u64]| Conclusion::read(&|at| words.get(at).copied().unwrap_or(0));
        if !nodes.is_leader() {
            return Ok(of(&self.receive_words(nodes.my_leader())?));
        }
        // Each is told, whatever becomes of one of them.
        let told: Vec<_> = nodes.here()[1..].iter().map(|place| self.send_words(*place, words)).collect();
        told.into_iter().collect::<Result<(), _>>()?;
        Ok(of(words))
    }

    fn send_words(&self, to: u32, words: &[u64]) -> Result<(), CollectiveError> {
        let mut body = [0; longarm_shm::flag_barrier::WORDS * WORD_BYTES];
        for (place, word) in body.chunks_exact_mut(WORD_BYTES).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.send(to, &body[..words.len() * WORD_BYTES])
    }

    fn receive_words(&self, from: u32) -> Result<Vec<u64>, CollectiveError> {
        const MOST: usize = longarm_shm::flag_barrier::WORDS;
        let body = self.receive_if(from, |found| {
            let is_sound = found <= (MOST * WORD_BYTES) as u64 && found.is_multiple_of(WORD_BYTES as u64);
            if is_sound { Ok(()) } else { Err(self.bad_message(from, found, format!("{MOST} words at most"))) }
        })?;
        Ok(body.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Waits until the death is known here of which the leader has told.
    fn hear_of_death(&mut self, here: &Here<'_>, begin: u32) -> CollectiveError {
        self.slot.step = begin;
        match here {
            Here::Lines(lines) => lines.hear_of_death().into(),
            Here::Letters => {
                let nodes = self.group.nodes();
                // Nothing more comes from it in this step: the death ends the wait.
                match self.receive(nodes.my_leader()) {
                    Err(error) => error,
                    Ok(body) => self.bad_message(nodes.my_leader(), body.len() as u64, "nothing".into()),
                }
            }
        }
    }

    /// What the leader of this node has told of the error that it got.
    #[cold]
    fn heard_of(&self, conclusion: &Conclusion) -> CollectiveError {
        let layout = self.group.inner.client.layout();
        let leader = self.member(self.group.nodes().my_leader());
        conclusion.explain(Context { layout, members: &self.group.shared.members, leader, operation: self.operation() })
    }
}
