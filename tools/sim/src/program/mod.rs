//! What each simulated rank does: rounds of operations that dice choose, then a barrier, then a look at what its own
//! memory has become. It is straight code that calls the real client and waits in it.

mod collective;
mod mixed;
mod rmw;
mod shapes;
mod sync;

use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;

use longarm_client::{
    Client, ClientWindow, DeviceRmwError, Lost, MutexError, MutexHome, RmwError, TransferError, WaitError,
};
use longarm_proto::Rank;

use crate::book::{self, Extreme, Kind};
use crate::dice::Dice;
use crate::fiber::{self, Step};
use crate::job::{self, Job};
use crate::plan::{CHAINS, COUNTERS, MUTEXES, PEAKS, SUMS, Shape};

/// Ranks of a job in which all may want one mutex.
const QUEUE_RANKS_MAX: u32 = 64;

/// Why a program ended before its time.
#[derive(Debug)]
pub enum Stop {
    /// Somebody is gone.
    Lost,
    /// What was seen cannot be; the book has it.
    Violated,
}

/// What may come out of a call.
pub(crate) trait Failed: Display {
    /// Whether it failed because somebody is gone.
    fn is_lost(&self) -> bool;
}

impl Failed for Lost {
    fn is_lost(&self) -> bool {
        true
    }
}

impl Failed for TransferError {
    fn is_lost(&self) -> bool {
        // What was not mapped when its node's server died cannot be mapped any more.
        matches!(self, TransferError::Lost(_) | TransferError::Unmappable { .. })
    }
}

impl Failed for RmwError {
    fn is_lost(&self) -> bool {
        matches!(self, RmwError::Transfer(error) if error.is_lost())
    }
}

impl Failed for DeviceRmwError {
    fn is_lost(&self) -> bool {
        matches!(self, DeviceRmwError::Transfer(error) if error.is_lost())
    }
}

impl Failed for MutexError {
    fn is_lost(&self) -> bool {
        matches!(self, MutexError::Transfer(error) if error.is_lost())
    }
}

impl Failed for WaitError {
    fn is_lost(&self) -> bool {
        match self {
            WaitError::Lost(_) => true,
            WaitError::Transfer(error) => error.is_lost(),
            _ => false,
        }
    }
}

/// What was added to some elements and is not known to be there.
struct Added {
    target: Rank,
    half: u64,
    float: bool,
    first: u64,
    count: u64,
    step: u64,
    addend: u64,
}

/// A rank's program.
pub struct Program {
    rank: Rank,
    client: Arc<Client>,
    shape: Rc<Shape>,
    job: Rc<Job>,
    dice: Dice,
    window: Arc<ClientWindow>,
    mutexes: Rc<MutexHome>,
    /// What this rank has put into its blocks at its targets.
    mirrors: Vec<Vec<u8>>,
    /// Words that were put and are not confirmed: pair, number, value.
    put: Vec<(usize, u64, u64)>,
    added: Vec<Added>,
    /// Barriers so far.
    barriers: u64,
    round: u32,
    /// Signals that were sent to each target so far.
    signals: u64,
    /// Values that were stored by swaps so far.
    stored: u64,
    scratch: Vec<u8>,
}

/// The whole life of a rank of this thread's job.
pub fn run(rank: Rank, client: Arc<Client>) {
    let outcome = Program::begin(rank, client, job::current()).and_then(Program::live);
    if outcome.is_ok() {
        book::with(|book| book.end_well(rank.0));
    }
}

impl Program {
    fn begin(rank: Rank, client: Arc<Client>, job: Rc<Job>) -> Result<Program, Stop> {
        let shape = Rc::clone(&job.shape);
        let mirrors = shape.targets[rank.0 as usize].iter().map(|_| vec![0; shape.block_bytes as usize]).collect();
        let dice = Dice::of(shape.plan.seed, 20, rank.0.into());
        let mut starter = collective::Starter::new(rank, Arc::clone(&client), Rc::clone(&job));
        let window = starter.allocate(1, 1)?.expect("nothing fails before the first round");
        let mutex_window = starter.allocate(2, 1)?.expect("nothing fails before the first round");
        let mutexes = Rc::new(MutexHome::new(mutex_window));
        Ok(Program {
            rank,
            client,
            dice,
            window,
            mutexes,
            mirrors,
            put: Vec::new(),
            added: Vec::new(),
            barriers: starter.barriers,
            round: 0,
            signals: 0,
            stored: 0,
            scratch: Vec::new(),
            shape,
            job,
        })
    }

    fn live(mut self) -> Result<(), Stop> {
        for round in 0..self.shape.rounds {
            self.round = round;
            let mut together = Dice::of(self.shape.plan.seed, 21, round.into());
            let mut left = self.shape.round_ops;
            while left > 0 {
                left -= self.operation()?.min(left);
                if self.dice.one_in(8) {
                    fiber::pause(Step::Compute(self.dice.between(100, 20_000)));
                }
            }
            if together.one_in(2) {
                self.signal_exchange(together.between(1, 4))?;
            }
            // In a large job the connections would be too many.
            if self.shape.plan.ranks <= QUEUE_RANKS_MAX && together.one_in(2) {
                let host = Rank(together.below(self.shape.plan.ranks.into()) as u32);
                self.queue_up(host, together.between(1, 3))?;
            }
            if together.one_in(4) {
                self.passing_window(round, together.one_in(2))?;
            }
            self.quiet()?;
            self.barrier(false)?;
            self.settle()?;
        }
        self.part()
    }

    /// Which half of the words this round uses. The other one is looked at meanwhile.
    fn half(&self) -> u64 {
        u64::from(self.round % 2)
    }

    /// One of the ranks to which this one goes.
    fn target(&mut self) -> (usize, Rank) {
        let targets = &self.shape.targets[self.rank.0 as usize];
        let number = self.dice.below(targets.len() as u64) as usize;
        (number, targets[number])
    }

    /// The end of an operation that failed.
    fn failed(&self, kind: Kind, target: Rank, error: &dyn Failed) -> Stop {
        failed(self.rank, kind, target, error)
    }

    /// What cannot be, about an operation.
    fn violated(&self, kind: Kind, target: Rank, what: &str) -> Stop {
        let me = self.rank.0;
        book::violate(&[me, target.0], format!("{} of rank {me} at rank {target}: {what}", kind.name()));
        Stop::Violated
    }

    /// Everything issued so far is there.
    fn quiet(&mut self) -> Result<(), Stop> {
        book::start(self.rank.0, Kind::Quiet, self.rank, 0);
        let client = Arc::clone(&self.client);
        client.quiet().map_err(|error| self.failed(Kind::Quiet, self.rank, &error))?;
        book::finish(self.rank.0, Kind::Quiet, 0);
        self.confirm(|_| true);
        Ok(())
    }

    /// What was put and added at some ranks is there.
    fn confirm(&mut self, there: impl Fn(Rank) -> bool) {
        book::with(|book| {
            self.added.retain(|added| {
                if !there(added.target) {
                    return true;
                }
                for number in 0..added.count {
                    let place = added.first + number * added.step;
                    book.sum(added.target, added.half, added.float, place).confirm(added.addend);
                }
                false
            });
            let shape = &self.shape;
            self.put.retain(|(pair, number, value)| {
                let target = shape.target_of_pair(*pair);
                if !there(target) {
                    return true;
                }
                book.register(*pair, *number).confirm(*value);
                false
            });
        });
    }

    /// The words of the round that has ended, in this rank's own part: nobody works on them any more.
    fn settle(&mut self) -> Result<(), Stop> {
        let half = self.half();
        let bytes = self.shape.register_at(0, 0) as usize;
        self.scratch.resize(bytes, 0);
        let mut part = std::mem::take(&mut self.scratch);
        let got = self.client.get(&self.window, self.rank, 0, part.as_mut_slice().into());
        got.map_err(|error| self.failed(Kind::Get, self.rank, &error))?;
        let word = |offset: u64| {
            let bytes = &part[offset as usize..offset as usize + 8];
            u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
        };
        let me = self.rank;
        let settled = book::with(|book| {
            for number in 0..COUNTERS {
                let value = word(Shape::counter_at(half, number));
                book.counter(me, half, number).settle(value).map_err(|what| format!("counter {number}: {what}"))?;
            }
            for number in 0..CHAINS {
                let value = word(Shape::chain_at(half, number));
                book.chain(me, half, number).settle(value).map_err(|what| format!("swapped word {number}: {what}"))?;
            }
            for number in 0..PEAKS {
                let height = Extreme::of(number).height(word(Shape::peak_at(half, number)));
                let settled = height.and_then(|height| book.peak(me, half, number).settle(height));
                settled.map_err(|what| format!("the word of {:?}: {what}", Extreme::of(number)))?;
            }
            for (float, number) in [false, true].into_iter().flat_map(|float| (0..SUMS).map(move |at| (float, at))) {
                let bits = word(Shape::sum_at(half, float, number));
                let value = if float { f64::from_bits(bits) as u64 } else { bits };
                let name = if float { "f64" } else { "i64" };
                book.sum(me, half, float, number).settle(value).map_err(|what| format!("{name} {number}: {what}"))?;
            }
            Ok(())
        });
        self.scratch = part;
        settled.map_err(|what: String| {
            book::violate(&[me.0], format!("after round {}, at rank {me}: {what}", self.round));
            Stop::Violated
        })
    }

    /// The orderly end: all messages have come, all windows go.
    fn part(mut self) -> Result<(), Stop> {
        self.collect_messages()?;
        self.check_guarded()?;
        self.barrier(false)?;
        let (window, mutexes) = (Arc::clone(&self.window), Arc::clone(self.mutexes.window()));
        self.free(&window)?;
        self.free(&mutexes)?;
        self.quiet()
    }

    fn check_guarded(&mut self) -> Result<(), Stop> {
        for number in 0..MUTEXES {
            let mut word = [0; 8];
            let got = self.client.get(&self.window, self.rank, Shape::guarded_at(number), word.as_mut_slice().into());
            got.map_err(|error| self.failed(Kind::Get, self.rank, &error))?;
            let value = u64::from_le_bytes(word);
            let (held, held_most) = book::with(|book| {
                let mutex = book.mutex(self.rank, number);
                (mutex.held, mutex.held_most.max(mutex.held))
            });
            if value < held || value > held_most {
                let what = format!("the word that mutex {number} guards is {value}, not in {held}..={held_most}");
                return Err(self.violated(Kind::Lock, self.rank, &what));
            }
        }
        Ok(())
    }
}

/// The end of an operation that failed: fine if somebody is gone, else a violation.
pub(crate) fn failed(rank: Rank, kind: Kind, target: Rank, error: &dyn Failed) -> Stop {
    if error.is_lost() && job::may_lose() {
        book::lose(rank.0, kind);
        return Stop::Lost;
    }
    book::violate(&[rank.0, target.0], format!("{} of rank {rank} at rank {target} failed: {error}", kind.name()));
    Stop::Violated
}
