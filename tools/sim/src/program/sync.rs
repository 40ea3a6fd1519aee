//! Signals, mutexes and messages.

use std::sync::Arc;

use longarm_client::mail::Slot;
use longarm_client::{Lost, LostHow, Operation, WordWidth};
use longarm_proto::{Rank, SignalOp};

use super::{Program, Stop};
use crate::book::{self, Kind};
use crate::dice::{Dice, mix};
use crate::fiber::{self, Step};
use crate::job;
use crate::network;
use crate::plan::{MUTEXES, SLOT_BYTES, Shape};

/// How long a first call to a server may take, where nothing goes wrong.
const CALL_NS: u64 = 2_000_000;

/// What is put with a signal: follows from who sends and how often he has.
fn slot_bytes(seed: u64, from: Rank, to: Rank, number: u64) -> Vec<u8> {
    let mut dice = Dice::of(seed, 30 ^ u64::from(from.0) << 32, u64::from(to.0) << 32 | number);
    let bytes = dice.between(1, SLOT_BYTES);
    (0..bytes).map(|_| dice.roll() as u8).collect()
}

impl Program {
    /// Everybody sends some signals to each target and waits for those of each caller. Who sees a signal sees the bytes.
    pub(super) fn signal_exchange(&mut self, count: u64) -> Result<(), Stop> {
        let targets = self.shape.targets[self.rank.0 as usize].clone();
        let callers = self.shape.callers[self.rank.0 as usize].clone();
        let seed = self.shape.plan.seed;
        let base = self.signals;
        for number in base + 1..=base + count {
            for target in &targets {
                let place = self.shape.place_of(*target, self.rank);
                let bytes = slot_bytes(seed, self.rank, *target, number);
                let (slot, signal) = (self.shape.slot_at(place, number % 4), self.shape.signal_at(place));
                book::start(self.rank.0, Kind::Signal, *target, slot);
                let change = if self.dice.one_in(2) { (SignalOp::Set, number) } else { (SignalOp::Add, 1) };
                let window = &*self.window;
                let sent =
                    self.client.put_signal((window, slot), (window, signal), change, *target, bytes.as_slice().into());
                sent.map_err(|error| self.failed(Kind::Signal, *target, &error))?;
                book::finish(self.rank.0, Kind::Signal, number);
            }
            for (place, caller) in (0..).zip(&callers) {
                self.await_signal(place, *caller, number)?;
            }
            if self.dice.one_in(2) {
                fiber::pause(Step::Compute(self.dice.between(100, 10_000)));
            }
        }
        self.signals = base + count;
        Ok(())
    }

    fn await_signal(&mut self, place: u64, caller: Rank, number: u64) -> Result<(), Stop> {
        book::start(self.rank.0, Kind::Wait, caller, number);
        let (client, window) = (Arc::clone(&self.client), Arc::clone(&self.window));
        let signal = self.shape.signal_at(place);
        let seen = client.wait_words(|| {
            let value = client.load_word(&window, signal, WordWidth::W64)?;
            Ok((value >= number).then_some(value))
        });
        let seen = seen.map_err(|error| self.failed(Kind::Wait, caller, &error))?;
        let mine = self.shape.callers[self.rank.0 as usize].len() as u64;
        assert!(place < mine, "a caller's place");
        for number in number..=seen {
            let expected = slot_bytes(self.shape.plan.seed, caller, self.rank, number);
            let mut bytes = vec![0; expected.len()];
            let slot = self.shape.slot_at(place, number % 4);
            let got = self.client.get(&self.window, self.rank, slot, bytes.as_mut_slice().into());
            got.map_err(|error| self.failed(Kind::Get, self.rank, &error))?;
            if bytes != expected {
                let what = format!("signal {seen} is here, the bytes of signal {number} are not");
                return Err(self.violated(Kind::Wait, caller, &what));
            }
        }
        book::finish(self.rank.0, Kind::Wait, seen);
        Ok(())
    }

    /// Everybody wants the same mutex a few times.
    pub(super) fn queue_up(&mut self, host: Rank, times: u64) -> Result<(), Stop> {
        for _ in 0..times {
            self.guarded_by(host, 0)?;
        }
        Ok(())
    }

    /// Takes a mutex, adds 1 to the word that it guards by a get and a put, and gives the mutex back.
    pub(super) fn guarded(&mut self, host: Rank) -> Result<u32, Stop> {
        let number = self.dice.below(MUTEXES);
        self.guarded_by(host, number)
    }

    fn guarded_by(&mut self, host: Rank, number: u64) -> Result<u32, Stop> {
        let (me, client, home) = (self.rank.0, Arc::clone(&self.client), std::rc::Rc::clone(&self.mutexes));
        // So that there is a connection, and nothing stands before the request on its way.
        self.fetch(host)?;
        let taken = if self.dice.one_in(4) {
            book::start(me, Kind::TryLock, host, number);
            book::with(|book| book.mutex(host, number).begin_try(me));
            let taken = client.try_lock(&home, host, number);
            let taken = taken.map_err(|error| self.failed(Kind::TryLock, host, &error))?;
            let fine = book::with(|book| book.mutex(host, number).tried(me, taken));
            fine.map_err(|what| self.violated(Kind::TryLock, host, &what))?;
            book::finish(me, Kind::TryLock, u64::from(taken.is_some()));
            let Some(taken) = taken else { return Ok(2) };
            taken
        } else {
            book::start(me, Kind::Lock, host, number);
            // A rank of the host's node may have to call its own server first.
            let call_ns = if client.same_node(host) { CALL_NS } else { 0 };
            let now_ns = network::now_ns();
            book::with(|book| book.mutex(host, number).ask(me, now_ns, call_ns));
            let taken = client.lock(&home, host, number).map_err(|error| {
                book::with(|book| book.mutex(host, number).give_up(me));
                self.failed(Kind::Lock, host, &error)
            })?;
            let slack_ns = job::slack_ns();
            let fine = book::with(|book| book.mutex(host, number).got(me, taken, slack_ns));
            fine.map_err(|what| self.violated(Kind::Lock, host, &what))?;
            book::finish(me, Kind::Lock, 0);
            taken
        };
        self.section(host, number)?;
        book::start(me, Kind::Unlock, host, number);
        let fine = book::with(|book| book.mutex(host, number).release(me));
        fine.map_err(|what| self.violated(Kind::Unlock, host, &what))?;
        if self.dice.one_in(2) {
            client.unlock(&home, host, number).map_err(|error| self.failed(Kind::Unlock, host, &error))?;
        } else {
            let unlocked = client.unlock_taken(&home, taken, host, number);
            unlocked.map_err(|error| self.failed(Kind::Unlock, host, &error))?;
            // It is free when quiet says so, not before.
            client.quiet_rank(host).map_err(|error| self.failed(Kind::Unlock, host, &error))?;
        }
        book::with(|book| book.mutex(host, number).released(me));
        book::finish(me, Kind::Unlock, 0);
        Ok(5)
    }

    fn section(&mut self, host: Rank, number: u64) -> Result<(), Stop> {
        let offset = Shape::guarded_at(number);
        let mut word = [0; 8];
        book::start(self.rank.0, Kind::Get, host, offset);
        let got = self.client.get(&self.window, host, offset, word.as_mut_slice().into());
        got.map_err(|error| self.failed(Kind::Get, host, &error))?;
        let value = u64::from_le_bytes(word);
        let held = book::with(|book| {
            let mutex = book.mutex(host, number);
            mutex.held_most = mutex.held_most.max(mutex.held) + 1;
            mutex.held
        });
        if value != held && !job::may_lose() {
            let what = format!("the word that mutex {number} guards is {value} after {held} turns");
            return Err(self.violated(Kind::Lock, host, &what));
        }
        book::finish(self.rank.0, Kind::Get, value);
        if self.dice.one_in(2) {
            fiber::pause(Step::Compute(self.dice.between(100, 50_000)));
        }
        book::start(self.rank.0, Kind::Put, host, offset);
        let put = self.client.put(&self.window, host, offset, (value + 1).to_le_bytes().as_slice().into());
        put.map_err(|error| self.failed(Kind::Put, host, &error))?;
        book::finish(self.rank.0, Kind::Put, value + 1);
        self.quiet_rank(host)?;
        book::with(|book| book.mutex(host, number).held += 1);
        Ok(())
    }

    pub(super) fn quiet_rank(&mut self, target: Rank) -> Result<(), Stop> {
        book::start(self.rank.0, Kind::QuietRank, target, 0);
        self.client.quiet_rank(target).map_err(|error| self.failed(Kind::QuietRank, target, &error))?;
        book::finish(self.rank.0, Kind::QuietRank, 0);
        self.confirm(|rank| rank == target);
        Ok(())
    }

    /// Sends an active message, whose number is to arrive in its turn.
    pub(super) fn active(&mut self, target: Rank) -> Result<u32, Stop> {
        let pair = self.shape.pair(target, self.rank);
        let number = book::with(|book| book.send_active(pair));
        let bytes = if self.dice.one_in(16) { self.dice.below(10_000) } else { self.dice.below(100) };
        let payload: Vec<u8> = (0..bytes).map(|at| mix(number ^ at) as u8).collect();
        book::start(self.rank.0, Kind::Active, target, number);
        let sent = self.client.send_active(target, 1, false, &[number, bytes], &payload);
        sent.map_err(|error| self.failed(Kind::Active, target, &error))?;
        book::finish(self.rank.0, Kind::Active, number);
        Ok(1)
    }

    /// Waits until every active message that was sent to this rank was run.
    pub(super) fn collect_messages(&mut self) -> Result<(), Stop> {
        let slot = Slot { group: 2, sequence: 0, step: 0 };
        for target in self.shape.targets[self.rank.0 as usize].clone() {
            let sent = self.client.send_letter(target, slot, 0, &[]);
            sent.map_err(|error| self.failed(Kind::Barrier, target, &error))?;
        }
        for caller in self.shape.callers[self.rank.0 as usize].clone() {
            let client = Arc::clone(&self.client);
            let death = || {
                let death = client.failures().first()?;
                let (node, how) = (client.layout().node_of(death.rank), LostHow::Died(death.how));
                Some(Lost { rank: death.rank, node, operation: Operation::Collective, how })
            };
            let got = self.client.receive_letter(caller, slot, super::collective::CALL, &death);
            got.map_err(|error| self.failed(Kind::Barrier, caller, &error))?;
        }
        book::start(self.rank.0, Kind::Active, self.rank, 0);
        let pairs = |me: &Program| {
            let first = me.shape.first_pair[me.rank.0 as usize] as usize;
            first..first + me.shape.callers[me.rank.0 as usize].len()
        };
        while !book::with(|book| book.all_run(pairs(self))) {
            if self.client.failures().any() {
                return Err(Stop::Lost);
            }
            self.client.attend_mail(|| false);
        }
        book::finish(self.rank.0, Kind::Active, 0);
        Ok(())
    }
}
