//! What the ranks do while they are met by faults: a mix of all operations, whose result follows from the seed to the last
//! bit. What is lost or done twice shows: counters give out every number once, sums are exact, bytes have a pattern.

use std::error::Error;

use longarm::{Compare, Handle, Mutexes, Patch, Reduction, Update, Window, World, wait_all};

use super::dice::{Dice, filled, key};

/// Shared counters at each rank.
const COUNTERS: usize = 3;
/// Words that are summed into, at each rank.
const SUM_WORDS: usize = 4000;
/// Bytes of the page that each rank keeps for each other one.
const PAGE: usize = 24 << 10;
/// The second half of a page is written in rows of so many bytes, every other one.
const ROW: usize = 64;
const ROWS: usize = PAGE / 4 / ROW;
/// A handler's number.
const ASK: u32 = 1;
const ANSWER: u32 = 2;
/// Words of the tray where handlers count: messages heard, the sum of their payloads, answers.
const HEARD: usize = 0;
const PAYLOADS: usize = 1;
const ANSWERS: usize = 2;

/// What keeps the lists of dice apart.
const ADD: u64 = 1;
const SUM: u64 = 2;
const SIGNAL: u64 = 3;
const PUT: u64 = 4;
const READ: u64 = 5;
const LOCK: u64 = 6;
const TELL: u64 = 7;

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What is wanted of a job.
#[derive(Clone, Copy, Debug)]
pub struct Orders {
    pub seed: u64,
    pub rounds: u64,
    /// The largest single transfer.
    pub bytes_max: usize,
}

impl Orders {
    /// As a word for the ranks, and back.
    pub fn to_words(self) -> String {
        format!("{} {} {}", self.seed, self.rounds, self.bytes_max)
    }

    pub fn from_words(words: &str) -> Option<Orders> {
        let mut numbers = words.split(' ').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Orders { seed: next()?, rounds: next()?, bytes_max: next()? as usize })
    }
}

/// One rank's share of the job.
pub struct Work {
    world: World,
    orders: Orders,
    counters: Window<u64>,
    sums: Window<i64>,
    slots: Window<u8>,
    signals: Window<u64>,
    pages: Window<u8>,
    guarded: Window<u64>,
    tray: Window<u64>,
    mutexes: Mutexes,
    /// By counter of the whole job: how often this rank has added, and the sum of what it got.
    added: Vec<u64>,
    gotten: Vec<u64>,
    /// By rank: how often this one has held its mutex.
    held: Vec<u64>,
    asked: u64,
}

fn wrong<T>(what: String) -> Outcome<T> {
    Err(format!("WRONG: {what}").into())
}

fn same(found: &[u8], wanted: &[u8], what: &str) -> Outcome<()> {
    if found == wanted {
        return Ok(());
    }
    let at = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
    wrong(format!("{what}: {} bytes instead of {}, the first difference is at {at:?}", found.len(), wanted.len()))
}

/// Every other row of the second half of a page.
fn rows(start: usize) -> Patch {
    Patch::new(start + PAGE / 2, &[ROW, ROWS], &[1, 2 * ROW as isize])
}

impl Work {
    /// Collective.
    pub fn begin(world: &World, orders: Orders) -> Outcome<Work> {
        let ranks = world.size() as usize;
        let tray = world.allocate_collective(3)?;
        let (at, me) = (tray.clone(), world.rank());
        world.register_handler(ASK, move |message| {
            let sum: u64 = message.payload().iter().copied().map(u64::from).sum();
            // An error comes up in the next call of this rank too.
            let _ = at.fetch_add(me, PAYLOADS, sum + message.arguments()[0]);
            let _ = at.fetch_add(me, HEARD, 1);
            let _ = message.reply(ANSWER, &[sum], &[]);
        })?;
        let at = tray.clone();
        world.register_handler(ANSWER, move |_| drop(at.fetch_add(me, ANSWERS, 1)))?;
        let work = Work {
            counters: world.allocate_collective(COUNTERS)?,
            sums: world.allocate_collective(SUM_WORDS)?,
            slots: world.allocate_collective(ranks * orders.bytes_max)?,
            signals: world.allocate_collective(ranks)?,
            pages: world.allocate_collective(ranks * PAGE)?,
            guarded: world.allocate_collective(1)?,
            tray,
            mutexes: world.mutexes_collective(1)?,
            added: vec![0; ranks * COUNTERS],
            gotten: vec![0; ranks * COUNTERS],
            held: vec![0; ranks],
            asked: 0,
            world: world.clone(),
            orders,
        };
        world.barrier_collective()?;
        Ok(work)
    }

    fn dice(&self, what: u64, rank: u32, round: u64) -> Dice {
        Dice::new(&[self.orders.seed, what, u64::from(rank), round])
    }

    fn pattern(&self, what: u64, from: u32, to: u32, round: u64) -> u64 {
        key(&[self.orders.seed, what, u64::from(from), u64::from(to), round])
    }

    fn me(&self) -> u32 {
        self.world.rank()
    }

    fn ranks(&self) -> u32 {
        self.world.size()
    }

    fn some_rank(&self, dice: &mut Dice) -> u32 {
        dice.below(self.ranks() as usize) as u32
    }

    /// One round of everything.
    pub fn round(&mut self, round: u64) -> Outcome<()> {
        let adds = self.start_adds(round)?;
        self.accumulate(round)?;
        self.signal(round)?;
        self.finish_adds(adds)?;
        self.write_pages(round)?;
        self.guard(round)?;
        self.tell(round)?;
        self.world.barrier_collective()?;
        self.read_pages(round)?;
        self.meet(round)?;
        if round % 2 == 1 {
            self.borrow_memory(round)?;
        }
        Ok(())
    }

    fn start_adds(&mut self, round: u64) -> Outcome<Vec<(usize, Handle<u64>)>> {
        let mut dice = self.dice(ADD, self.me(), round);
        let mut started = Vec::new();
        for number in 0..12 {
            let (target, counter) = (self.some_rank(&mut dice), dice.below(COUNTERS));
            let place = target as usize * COUNTERS + counter;
            self.added[place] += 1;
            if number % 2 == 0 {
                self.gotten[place] += self.counters.fetch_add(target, counter, 1)?;
            } else {
                started.push((place, self.counters.start_fetch_add(target, counter, 1)?));
            }
        }
        Ok(started)
    }

    fn finish_adds(&mut self, started: Vec<(usize, Handle<u64>)>) -> Outcome<()> {
        for (place, handle) in started {
            self.gotten[place] += handle.wait()?;
        }
        Ok(())
    }

    /// What a rank sums in a round: target, first word, number of words, value.
    fn sums_of(&self, rank: u32, round: u64) -> Vec<(u32, usize, usize, i64)> {
        let mut dice = self.dice(SUM, rank, round);
        let mut sums = Vec::new();
        for number in 0..5 {
            let target = self.some_rank(&mut dice);
            let count = dice.within(1, if number == 0 { SUM_WORDS } else { 200 });
            let at = dice.below(SUM_WORDS - count + 1);
            sums.push((target, at, count, dice.within(1, 1000) as i64 - 500));
        }
        sums
    }

    fn accumulate(&self, round: u64) -> Outcome<()> {
        let mut started = Vec::new();
        for (number, (target, at, count, value)) in self.sums_of(self.me(), round).into_iter().enumerate() {
            if number % 2 == 0 {
                started.push(self.sums.start_accumulate(target, at, Update::Sum, vec![value; count])?);
            } else {
                // Scaled: the words are doubled on their way in.
                self.sums.accumulate(target, at, Update::Scaled(2), &vec![value; count])?;
            }
        }
        wait_all(started)?;
        Ok(())
    }

    /// Bytes that a rank sends with its signal.
    fn signal_bytes(&self, rank: u32, round: u64) -> usize {
        let mut dice = self.dice(SIGNAL, rank, round);
        match dice.below(6) {
            0 => self.orders.bytes_max - dice.below(64),
            1 => dice.within(1, 64),
            2 => (16 << 10) + dice.below(64) - 32,
            _ => dice.within(1, 64 << 10),
        }
        .min(self.orders.bytes_max)
    }

    /// Puts with a signal around a ring, each round another distance.
    fn signal(&self, round: u64) -> Outcome<()> {
        let ranks = u64::from(self.ranks());
        let distance = if ranks > 1 { 1 + round % (ranks - 1) } else { 0 };
        let ahead = ((u64::from(self.me()) + distance) % ranks) as u32;
        let behind = ((u64::from(self.me()) + ranks - distance) % ranks) as u32;
        let slot = |origin: u32| origin as usize * self.orders.bytes_max;
        let bytes = filled(self.signal_bytes(self.me(), round), self.pattern(SIGNAL, self.me(), ahead, round));
        self.slots.put_signal_add(ahead, slot(self.me()), &bytes, (&self.signals, self.me() as usize), 1)?;
        let before = (0..=round).filter(|earlier| ranks == 1 || 1 + earlier % (ranks - 1) == distance).count() as u64;
        self.signals.wait_until(behind as usize, Compare::GreaterOrEqual, before)?;
        let wanted = filled(self.signal_bytes(behind, round), self.pattern(SIGNAL, behind, self.me(), round));
        let found = self.slots.get_vec(self.me(), slot(behind)..slot(behind) + wanted.len())?;
        same(&found, &wanted, &format!("what rank {behind} put with a signal in round {round}"))
    }

    /// The page that one rank writes at another in a round.
    fn page(&self, from: u32, to: u32, round: u64) -> Vec<u8> {
        let mut page = filled(PAGE, self.pattern(PUT, from, to, round));
        for row in 0..2 * ROWS {
            if row % 2 == 1 {
                page[PAGE / 2 + row * ROW..][..ROW].fill(0);
            }
        }
        page
    }

    fn write_pages(&self, round: u64) -> Outcome<()> {
        let start = self.me() as usize * PAGE;
        let pages: Vec<(u32, Vec<u8>)> = (0..self.ranks()).map(|to| (to, self.page(self.me(), to, round))).collect();
        // From a scope, with a handle, and at once.
        self.world.scope(|scope| {
            for (to, page) in &pages {
                scope.put(&self.pages, *to, start, &page[..PAGE / 8]);
            }
        })?;
        let mut started = Vec::new();
        for (to, page) in &pages {
            started.push(self.pages.start_put(*to, start + PAGE / 8, page[PAGE / 8..PAGE / 4].to_vec())?);
            self.pages.put(*to, start + PAGE / 4, &page[PAGE / 4..PAGE / 2])?;
            self.pages.put(*to, rows(start).with_buffer(&rows(0)), page)?;
        }
        wait_all(started)?;
        Ok(())
    }

    /// After a barrier: every rank looks at its own page, and at those of others.
    fn read_pages(&self, round: u64) -> Outcome<()> {
        let mut dice = self.dice(READ, self.me(), round);
        for from in 0..self.ranks() {
            let found = self.pages.get_vec(self.me(), from as usize * PAGE..from as usize * PAGE + PAGE)?;
            same(&found, &self.page(from, self.me(), round), &format!("the page of rank {from} in round {round}"))?;
        }
        let mut started = Vec::new();
        for _ in 0..4 {
            let (at, from) = (self.some_rank(&mut dice), self.some_rank(&mut dice));
            let start = from as usize * PAGE;
            started.push((at, from, self.pages.start_get(at, start, vec![0; PAGE])?));
            let mut found = vec![0; PAGE];
            self.pages.get(at, rows(start).with_buffer(&rows(0)), &mut found)?;
            let mut wanted = self.page(from, at, round);
            wanted[..PAGE / 2].fill(0);
            same(&found, &wanted, &format!("rows of rank {from}'s page at rank {at} in round {round}"))?;
        }
        for (at, from, handle) in started {
            let wanted = self.page(from, at, round);
            same(&handle.wait()?, &wanted, &format!("rank {from}'s page at rank {at} in round {round}"))?;
        }
        let (at, from) = (self.some_rank(&mut dice), self.some_rank(&mut dice));
        self.read_slot(at, from)?;
        self.world.barrier_collective()?;
        Ok(())
    }

    /// Large gets: nothing is said of the bytes, which come from any round, but that they come.
    fn read_slot(&self, at: u32, from: u32) -> Outcome<()> {
        let bytes = self.orders.bytes_max;
        let found = self.slots.get_vec(at, from as usize * bytes..from as usize * bytes + bytes)?;
        if found.len() == bytes { Ok(()) } else { wrong(format!("a get of {bytes} bytes has {}", found.len())) }
    }

    /// A sum that is right only if the mutex lets one at a time through.
    fn guard(&mut self, round: u64) -> Outcome<()> {
        let mut dice = self.dice(LOCK, self.me(), round);
        for _ in 0..2 {
            let host = self.some_rank(&mut dice);
            let guard = self.mutexes.lock(host, 0)?;
            let before = self.guarded.get_one(host, 0)?;
            self.guarded.put_one(host, 0, before + 1)?;
            self.world.quiet_rank(host)?;
            guard.unlock()?;
            self.held[host as usize] += 1;
        }
        Ok(())
    }

    /// What a rank tells in a round: whom, a number, and how many bytes.
    fn messages_of(&self, rank: u32, round: u64) -> Vec<(u32, u64, Vec<u8>)> {
        let mut dice = self.dice(TELL, rank, round);
        let mut messages = Vec::new();
        for _ in 0..3 {
            let (to, number) = (self.some_rank(&mut dice), dice.below(1 << 20) as u64);
            messages.push((to, number, filled(dice.below(6000), number)));
        }
        messages
    }

    fn tell(&mut self, round: u64) -> Outcome<()> {
        for (to, number, payload) in self.messages_of(self.me(), round) {
            self.world.send_message(to, ASK, &[number], &payload)?;
            self.asked += 1;
        }
        self.tray.wait_until(ANSWERS, Compare::GreaterOrEqual, self.asked)?;
        Ok(())
    }

    fn meet(&self, round: u64) -> Outcome<()> {
        let (me, ranks) = (u64::from(self.me()), u64::from(self.ranks()));
        let mut sum = [me + round, 1];
        self.world.allreduce_collective(Reduction::Sum, &mut sum)?;
        if sum != [ranks * (ranks - 1) / 2 + ranks * round, ranks] {
            return wrong(format!("the sum over all ranks in round {round} is {sum:?}"));
        }
        let root = (round % ranks) as u32;
        let wanted = filled(9000, self.pattern(PUT, root, root, round));
        let mut bytes = if self.me() == root { wanted.clone() } else { vec![0; wanted.len()] };
        self.world.broadcast_collective(root, &mut bytes)?;
        same(&bytes, &wanted, &format!("the broadcast of round {round}"))?;
        let mine: Vec<u64> = (0..ranks).map(|to| me * 1000 + to + round).collect();
        let all = self.world.alltoall_collective(&mine)?;
        let wanted: Vec<u64> = (0..ranks).map(|from| from * 1000 + me + round).collect();
        if all == wanted { Ok(()) } else { wrong(format!("all to all in round {round} is {all:?}")) }
    }

    fn borrow_memory(&self, round: u64) -> Outcome<()> {
        let window = self.world.allocate_collective::<u64>(self.ranks() as usize)?;
        for to in 0..self.ranks() {
            window.put_one(to, self.me() as usize, round * 100 + u64::from(self.me()))?;
        }
        self.world.barrier_collective()?;
        let found = window.get_vec(self.me(), 0..self.ranks() as usize)?;
        let wanted: Vec<u64> = (0..u64::from(self.ranks())).map(|from| round * 100 + from).collect();
        window.free_collective()?;
        if found == wanted { Ok(()) } else { wrong(format!("a window of round {round} has {found:?}")) }
    }

    /// Compares everything with what it has to be. Collective.
    pub fn check(&self) -> Outcome<String> {
        self.world.barrier_collective()?;
        let (mut added, mut gotten, mut held) = (self.added.clone(), self.gotten.clone(), self.held.clone());
        for counts in [&mut added, &mut gotten, &mut held] {
            self.world.allreduce_collective(Reduction::Sum, counts)?;
        }
        for (place, (added, gotten)) in added.iter().zip(&gotten).enumerate() {
            let (rank, counter) = ((place / COUNTERS) as u32, place % COUNTERS);
            let value = self.counters.get_one(rank, counter)?;
            if value != *added || *gotten != added * added.saturating_sub(1) / 2 {
                return wrong(format!("{added} adds make {value}, and gave numbers with the sum {gotten}"));
            }
        }
        for (host, held) in (0..).zip(held) {
            let value = self.guarded.get_one(host, 0)?;
            if value != held {
                return wrong(format!("the word behind rank {host}'s mutex is {value} after {held} turns"));
            }
        }
        self.check_messages()?;
        let total = self.check_sums()?;
        self.world.barrier_collective()?;
        Ok(format!("{} adds, sum {total}", added.iter().sum::<u64>()))
    }

    fn check_messages(&self) -> Outcome<()> {
        let (mut heard, mut payloads) = (0, 0);
        for (round, from) in self.all_rounds() {
            for (_, number, payload) in self.messages_of(from, round).iter().filter(|(to, ..)| *to == self.me()) {
                heard += 1;
                payloads += number + payload.iter().copied().map(u64::from).sum::<u64>();
            }
        }
        let found = self.tray.get_vec(self.me(), 0..3)?;
        if found == [heard, payloads, self.asked] {
            return Ok(());
        }
        wrong(format!("the handlers counted {found:?} instead of {heard}, {payloads}, {}", self.asked))
    }

    fn all_rounds(&self) -> impl Iterator<Item = (u64, u32)> {
        (0..self.orders.rounds).flat_map(|round| (0..self.ranks()).map(move |rank| (round, rank)))
    }

    fn check_sums(&self) -> Outcome<i64> {
        let mut wanted = vec![0; SUM_WORDS];
        for (round, from) in self.all_rounds() {
            for (number, (target, at, count, value)) in self.sums_of(from, round).into_iter().enumerate() {
                if target == self.me() {
                    let value = if number % 2 == 0 { value } else { 2 * value };
                    wanted[at..at + count].iter_mut().for_each(|word| *word += value);
                }
            }
        }
        let found = self.sums.get_vec(self.me(), 0..SUM_WORDS)?;
        if let Some(at) = (0..SUM_WORDS).find(|at| found[*at] != wanted[*at]) {
            return wrong(format!("word {at} of the sums is {} instead of {}", found[at], wanted[at]));
        }
        Ok(found.iter().sum())
    }
}
