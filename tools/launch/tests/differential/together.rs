//! What a rank does that involves others: words, signals, collectives, and the checks at the end of a phase.

use longarm::{Compare, Reduction, Update, Window, Word as WindowWord};

use super::dice::filled;
use super::model::Look;
use super::number::{Deed, Kind};
use super::program::{Form, Op, PartOfSlot, Phase, Together};
use super::rank::{Finding, Outcome, Runner, compare, differ, said, wait};
use super::words::{Sight, Use, What, Word, WordDeed, check_counter, check_token};

/// Writers of a wrong byte that a message names.
const WRITERS_SHOWN: usize = 12;
/// Bytes of another rank's part that are looked at after a phase.
const REMOTE_BYTES: usize = 48 << 10;

/// What gives no old value.
fn write_word<T: WindowWord>(window: &Window<T>, word: &Word, (deed, form): (WordDeed, Form)) -> Outcome {
    let (rank, index) = (word.place.rank, word.index());
    let value = |value: u64| T::from_bits(word.cut(value));
    let (update, operand) = match deed {
        WordDeed::AccumulateSum(amount) => (Update::Sum, amount),
        WordDeed::AccumulateBits(Deed::And, bits) => (Update::And, bits),
        WordDeed::AccumulateBits(Deed::Or, bits) => (Update::Or, bits),
        WordDeed::AccumulateBits(Deed::Min, bits) => (Update::Min, bits),
        WordDeed::AccumulateBits(Deed::Max, bits) => (Update::Max, bits),
        WordDeed::AccumulateBits(_, bits) => (Update::Xor, bits),
        WordDeed::Set(new) if form == Form::Blocking => return window.set(rank, index, value(new)).map_err(said),
        WordDeed::Set(new) => return window.start_set(rank, index, value(new)).map(drop).map_err(said),
        WordDeed::Put(new) if form == Form::Blocking => return window.put_one(rank, index, value(new)).map_err(said),
        WordDeed::Put(new) => return window.start_put(rank, index, vec![value(new)]).map(drop).map_err(said),
        WordDeed::SignalSet(new) => {
            return window.put_signal_set(rank, 0, &[], (&window.cast(), index), new).map_err(said);
        }
        WordDeed::SignalAdd(amount) => {
            return window.put_signal_add(rank, 0, &[], (&window.cast(), index), amount).map_err(said);
        }
        _ => unreachable!("these deeds give an old value"),
    };
    if form == Form::Blocking {
        return window.accumulate(rank, index, update, &[value(operand)]).map_err(said);
    }
    window.start_accumulate(rank, index, update, vec![value(operand)]).map(drop).map_err(said)
}

impl Runner {
    /// Does to a word what the operation says, and notes what was seen.
    pub fn touch_word<T: WindowWord>(
        &mut self,
        phase: &Phase,
        number: usize,
        (deed, form): (WordDeed, Form),
        op: &Op,
    ) -> Outcome {
        let word = &phase.words[number];
        let (window, rank, index) = (self.window::<T>(word.place), word.place.rank, word.index());
        match deed {
            WordDeed::LockedAdd => self.add_under_lock(&window, phase, number, op),
            WordDeed::Get => {
                let old = window.get_one(rank, index).map_err(said)?.to_bits();
                self.saw(phase, number, (2 * op.number, What::Seen), (old, 0))
            }
            WordDeed::CompareSwap(new) => {
                let seen = window.fetch(rank, index).map_err(said)?;
                self.saw(phase, number, (2 * op.number, What::Seen), (seen.to_bits(), 0))?;
                let new = word.cut(new);
                let old = window.compare_swap(rank, index, seen, T::from_bits(new)).map_err(said)?;
                let what = if old == seen { What::Changed } else { What::Seen };
                self.saw(phase, number, (2 * op.number + 1, what), (old.to_bits(), new))
            }
            WordDeed::FetchAdd(_) | WordDeed::Swap(_) | WordDeed::Fetch | WordDeed::Bits(..) => {
                self.exchange_word(&window, phase, number, (deed, form), op)
            }
            WordDeed::Set(new) | WordDeed::Put(new) | WordDeed::SignalSet(new) => {
                self.saw(phase, number, (2 * op.number, What::Written), (0, word.cut(new)))?;
                write_word(&window, word, (deed, form))
            }
            WordDeed::AccumulateSum(_) | WordDeed::AccumulateBits(..) | WordDeed::SignalAdd(_) => {
                write_word(&window, word, (deed, form))
            }
        }
    }

    /// What gives an old value.
    fn exchange_word<T: WindowWord>(
        &mut self,
        window: &Window<T>,
        phase: &Phase,
        number: usize,
        (deed, form): (WordDeed, Form),
        op: &Op,
    ) -> Outcome {
        let word = &phase.words[number];
        let (rank, index) = (word.place.rank, word.index());
        let (what, operand) = match deed {
            WordDeed::FetchAdd(operand) | WordDeed::Swap(operand) | WordDeed::Bits(_, operand) => {
                (What::Changed, word.cut(operand))
            }
            _ => (What::Seen, 0),
        };
        let value = T::from_bits(operand);
        if form == Form::Blocking {
            let old = match deed {
                WordDeed::FetchAdd(_) => window.fetch_add(rank, index, value),
                WordDeed::Swap(_) => window.swap(rank, index, value),
                WordDeed::Bits(Deed::And, _) => window.fetch_and(rank, index, value),
                WordDeed::Bits(Deed::Or, _) => window.fetch_or(rank, index, value),
                WordDeed::Bits(Deed::Min, _) => window.fetch_min(rank, index, value),
                WordDeed::Bits(Deed::Max, _) => window.fetch_max(rank, index, value),
                WordDeed::Bits(..) => window.fetch_xor(rank, index, value),
                _ => window.fetch(rank, index),
            };
            let old = old.map_err(said)?.to_bits();
            return self.saw(phase, number, (2 * op.number, what), (old, operand));
        }
        let handle = match deed {
            WordDeed::FetchAdd(_) => window.start_fetch_add(rank, index, value),
            WordDeed::Swap(_) => window.start_swap(rank, index, value),
            WordDeed::Bits(Deed::And, _) => window.start_fetch_and(rank, index, value),
            WordDeed::Bits(Deed::Or, _) => window.start_fetch_or(rank, index, value),
            WordDeed::Bits(Deed::Min, _) => window.start_fetch_min(rank, index, value),
            WordDeed::Bits(Deed::Max, _) => window.start_fetch_max(rank, index, value),
            WordDeed::Bits(..) => window.start_fetch_xor(rank, index, value),
            _ => window.start_fetch(rank, index),
        };
        let handle = handle.map_err(said)?;
        if form == Form::Dropped {
            // Nobody will know what it replaced.
            return match deed {
                WordDeed::Swap(_) => self.saw(phase, number, (2 * op.number, What::Written), (0, operand)),
                _ => Ok(()),
            };
        }
        let finding = self.finding(phase, number, (2 * op.number, what), operand);
        self.pending.push(Box::new(move |patience| {
            let old = wait(handle, patience)?.to_bits();
            Ok(Some(finding(old)))
        }));
        Ok(())
    }

    fn saw(&mut self, phase: &Phase, number: usize, when: (usize, What), (old, new): (u64, u64)) -> Outcome {
        let finding = self.finding(phase, number, when, new)(old);
        self.findings.push(finding);
        Ok(())
    }

    /// What will have been found out once the old value is known.
    fn finding(
        &self,
        phase: &Phase,
        number: usize,
        (order, what): (usize, What),
        new: u64,
    ) -> impl FnOnce(u64) -> Finding + use<> {
        let word = phase.words[number];
        let least = self.model.element(word.place, word.kind, word.index()).to_vec();
        let rank = self.me;
        move |old| {
            let deed = match word.usage {
                Use::Counter { told: true } | Use::Token => {
                    return Finding::Sight(order, Sight { word: number, rank, what, old, new });
                }
                Use::Counter { told: false } | Use::Locked { .. } => Deed::Sum,
                Use::Bits(deed) => deed,
            };
            let seen = old.to_le_bytes()[..word.kind.bytes()].to_vec();
            Finding::Look(Look {
                op: order / 2,
                place: word.place,
                kind: word.kind,
                deed,
                index: word.index(),
                least,
                seen,
            })
        }
    }

    /// Reads, adds and writes, one rank at a time.
    fn add_under_lock<T: WindowWord>(&mut self, window: &Window<T>, phase: &Phase, number: usize, op: &Op) -> Outcome {
        let word = &phase.words[number];
        let Use::Locked { host, number: mutex } = word.usage else { unreachable!("drawn for such words only") };
        let (rank, index) = (word.place.rank, word.index());
        let mutexes = self.mutexes.clone();
        let guard = match mutexes.try_lock(host, mutex).map_err(said)? {
            Some(guard) => guard,
            None => mutexes.lock(host, mutex).map_err(said)?,
        };
        let old = window.get_one(rank, index).map_err(said)?.to_bits();
        window.put_one(rank, index, T::from_bits(word.cut(old + 1))).map_err(said)?;
        self.world.quiet_rank(rank).map_err(said)?;
        guard.unlock().map_err(said)?;
        self.saw(phase, number, (2 * op.number, What::Changed), (old, 1))
    }

    pub fn send_mail(&mut self, phase: &Phase, number: usize) -> Outcome {
        let mail = &phase.mails[number];
        let bytes = filled(mail.bytes, mail.key);
        let (window, rank) = (self.window::<u8>(mail.place), mail.place.rank);
        if mail.ahead > 0 {
            drop(window.start_put(rank, mail.first, bytes[..mail.ahead].to_vec()).map_err(said)?);
            self.world.fence();
        }
        let (first, rest) = (mail.first + mail.ahead, &bytes[mail.ahead..]);
        let word = (&self.signals, self.signal_index(mail.from, mail.adds));
        if mail.adds {
            window.put_signal_add(rank, first, rest, word, 1).map_err(said)
        } else {
            window.put_signal_set(rank, first, rest, word, mail.value).map_err(said)
        }
    }

    fn signal_index(&self, from: u32, adds: bool) -> usize {
        (if adds { from + self.world.size() } else { from }) as usize
    }

    pub fn await_mail(&mut self, phase: &Phase, number: usize) -> Outcome {
        let mail = &phase.mails[number];
        let index = self.signal_index(mail.from, mail.adds);
        let seen = self.signals.wait_until(index, Compare::GreaterOrEqual, mail.value).map_err(said)?;
        if seen != mail.value {
            return Err(format!("the signal is {seen}, but it is set to {} in this phase", mail.value));
        }
        let found =
            self.window::<u8>(mail.place).get_vec(self.me, mail.first..mail.first + mail.bytes).map_err(said)?;
        compare(&found, &filled(mail.bytes, mail.key)).map_err(|what| format!("{mail:?}, after its signal: {what}"))
    }

    /// One collective whose result is known beforehand.
    pub fn meet(&mut self, collective: Together) -> Outcome {
        self.collectives += 1;
        let salt = self.collectives;
        let group = if salt.is_multiple_of(3) { &self.parity } else { self.world.group() };
        let (me, size) = (u64::from(group.rank()), u64::from(group.size()));
        let root = (salt % size) as u32;
        let count = (salt * 37 % 400) as usize;
        let mine: Vec<u64> = (0..count as u64).map(|at| at + salt + me).collect();
        let of = |rank: u64| (0..count as u64).map(move |at| at + salt + rank);
        let sums = || (0..count as u64).map(|at| (at + salt) * size + size * (size - 1) / 2);
        let mut moved = mine.clone();
        let due: Vec<u64> = match collective {
            Together::Barrier => return group.barrier_collective().map_err(said),
            Together::Sync => return group.sync_collective().map_err(said),
            Together::Broadcast => {
                group.broadcast_collective(root, &mut moved).map_err(said)?;
                of(u64::from(root)).collect()
            }
            Together::Reduce => {
                group.reduce_collective(root, Reduction::Sum, &mut moved).map_err(said)?;
                if group.rank() != root {
                    return Ok(());
                }
                sums().collect()
            }
            Together::Allreduce => {
                group.allreduce_collective(Reduction::Sum, &mut moved).map_err(said)?;
                sums().collect()
            }
            Together::Allgather => {
                moved = group.allgather_collective(&mine).map_err(said)?;
                (0..size).flat_map(of).collect()
            }
            Together::Alltoall => {
                let shares: Vec<u64> = (0..size).flat_map(|to| [me * size + to, salt]).collect();
                moved = group.alltoall_collective(&shares).map_err(said)?;
                (0..size).flat_map(|from| [from * size + me, salt]).collect()
            }
        };
        if moved == due { Ok(()) } else { Err(format!("{collective:?} brought {moved:?}, not {due:?}")) }
    }

    /// Judges what was found out about words, together with all others.
    pub fn check_words(&mut self, phase: &Phase, starts: &[u64]) -> Outcome {
        let mut sights = Vec::new();
        for finding in std::mem::take(&mut self.findings) {
            match finding {
                Finding::Sight(order, sight) => sights.push((order, sight)),
                Finding::Look(look) if self.model.allows(&look) => {}
                Finding::Look(look) => {
                    let last = self.model.element(look.place, look.kind, look.index);
                    let Look { op, place, kind, deed, index, least, seen } = &look;
                    return Err(format!(
                        "#{op} saw {seen:02x?} in {kind:?} element {index} of {place:?}, which is updated by {deed:?}; \
                         own updates alone had made {least:02x?} of it, and in the end it is {last:02x?}"
                    ));
                }
            }
        }
        sights.sort_by_key(|(order, _)| *order);
        let mut mine: Vec<u64> = sights.iter().flat_map(|(_, sight)| sight.encode()).collect();
        // The owner of a word of unique values says what it holds in the end.
        for (number, word) in phase.words.iter().enumerate() {
            if word.place.rank == self.me && word.usage == Use::Token {
                let last = self.fetch(word.place, word.kind, word.index())?;
                mine.extend([number as u64, u64::MAX, 0, last]);
            }
        }
        let all: Vec<u64> = self.world.allgatherv_collective(&mine).map_err(said)?.concat();
        let (ends, sights): (Vec<&[u64]>, Vec<&[u64]>) = all.chunks_exact(4).partition(|words| words[1] == u64::MAX);
        ends.iter().for_each(|words| self.model.set_word(phase, words[0] as usize, words[3]));
        let sights: Vec<Sight> = sights.into_iter().map(Sight::decode).collect();
        for (number, word) in phase.words.iter().enumerate().filter(|(_, word)| word.place.rank == self.me) {
            let of_word: Vec<Sight> = sights.iter().filter(|sight| sight.word == number).copied().collect();
            let (start, last) = (starts[number], self.model.word(phase, number));
            match word.usage {
                Use::Token => check_token(start, &of_word, last),
                Use::Counter { told: true } => check_counter(start, &of_word, last),
                _ => Ok(()),
            }
            .map_err(|what| format!("{word:?}: {what}"))?;
        }
        Ok(())
    }

    fn fetch(&self, place: PartOfSlot, kind: Kind, index: usize) -> Result<u64, String> {
        match kind {
            Kind::U64 => self.window::<u64>(place).fetch(place.rank, index),
            _ => self.window::<u32>(place).fetch(place.rank, index).map(u64::from),
        }
        .map_err(said)
    }

    /// Compares all of this rank's memory with the model, and a piece of somebody else's.
    pub fn check_memory(&mut self, phase: &Phase) -> Outcome {
        for slot in 0..self.windows.len() {
            let Some(window) = &self.windows[slot] else { continue };
            let place = PartOfSlot { slot, rank: self.me };
            let bytes = self.model.part(place).len();
            if window.len_at(self.me) != Some(bytes) {
                return Err(format!("{place:?} has {:?} bytes, not {bytes}", window.len_at(self.me)));
            }
            let found = window.get_vec(self.me, 0..bytes).map_err(said)?;
            self.judge(phase, place, 0, &found)?;
        }
        let slot = self.dice.below(self.windows.len());
        let Some(window) = self.windows[slot].clone() else { return Ok(()) };
        let rank = *self.dice.pick(&window.group().members());
        let place = PartOfSlot { slot, rank };
        let bytes = self.model.part(place).len();
        let first = self.dice.below(bytes + 1);
        let found = window.get_vec(rank, first..first + REMOTE_BYTES.min(bytes - first)).map_err(said)?;
        self.judge(phase, place, first, &found)
    }

    fn judge(&self, phase: &Phase, place: PartOfSlot, first: usize, found: &[u8]) -> Outcome {
        let expected = &self.model.part(place)[first..first + found.len()];
        let Some((at, shown)) = differ(found, expected) else { return Ok(()) };
        let byte = first + at;
        let mut writers = Vec::new();
        for (rank, lists) in phase.preparations.iter().zip(&phase.lists).enumerate() {
            let writes = |op: &&Op| op.writes(phase, place, byte);
            let of_rank = lists.0.iter().chain(lists.1).filter(writes);
            writers.extend(of_rank.map(|op| format!("\n  rank {rank}: {op}")));
        }
        let left_out = writers.len().saturating_sub(WRITERS_SHOWN);
        let writers = writers.split_off(left_out).concat();
        Err(format!(
            "after the phase, from byte {first} of {place:?}: {shown}\nbyte {byte} is written by ({left_out} earlier \
             ones left out):{writers}"
        ))
    }
}
