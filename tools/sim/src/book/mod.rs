//! What the ranks have done, and whether what they saw can be.
//!
//! The book knows of every operation when it began, when it ended and what it brought, in the one order of simulated
//! time. Each checker holds little for each word and answers at once where that can be; chains of swaps are looked at
//! when their round is over.
//!
//! An operation that ended with an error because somebody is gone may have been done or not: that is the difference
//! between the bounds that every checker keeps.

mod chain;
mod counter;
mod mutex;
mod peak;
mod register;
mod sum;

use std::cell::RefCell;

use longarm_proto::Rank;

pub use chain::Chain;
pub use counter::Counter;
pub use mutex::MutexBook;
pub use peak::{Extreme, Peak};
pub use register::Register;
pub use sum::Sum;

use crate::network;
use crate::plan::{CHAINS, COUNTERS, MUTEXES, PEAKS, REGISTERS, SUMS, Shape};
use crate::trace::{What, Who};

macro_rules! kinds {
    ($($variant:ident = $name:literal,)+) => {
        /// What a rank does.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "their names say it")]
        pub enum Kind {
            $($variant,)+
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Kind] = &[$(Kind::$variant),+];

            /// What it is called in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$variant => $name,)+
                }
            }
        }
    };
}

kinds! {
    Put = "put", Get = "get", Peek = "get of another's word",
    PutBlock = "put, long", GetBlock = "get, long",
    PutStrided = "put, strided", GetStrided = "get, strided",
    PutVector = "put, vector", GetVector = "get, vector",
    AccumulateInteger = "accumulate, i64", AccumulateFloat = "accumulate, f64", AccumulateStrided = "accumulate, strided",
    FetchAdd = "fetch and add", Fetch = "fetch", Swap = "swap", CompareSwap = "compare and swap",
    Extreme = "fetch and min or max",
    DeviceRmw = "rmw by the device",
    Signal = "put with signal", Wait = "wait for a signal",
    Lock = "lock", TryLock = "try lock", Unlock = "unlock",
    Quiet = "quiet", QuietRank = "quiet of a rank", Fence = "fence",
    Active = "active message", Barrier = "barrier",
    Allocate = "window made", Free = "window freed",
    StaleWindow = "stale window", WrongKey = "wrong key",
}

/// Something that cannot be.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What was seen, and what should have been.
    pub what: String,
    /// Whom it is about.
    pub ranks: Vec<u32>,
}

/// See the module.
#[derive(Default)]
pub struct Book {
    /// Operations that were checked, by kind.
    pub counts: Vec<u64>,
    /// Operations that ended because somebody is gone.
    pub lost: u64,
    /// Updates by devices that were done, and whose old values were lost with their link.
    pub values_lost: u64,
    /// Updates by devices of which nobody knows whether they were done.
    pub fates_unknown: u64,
    violation: Option<Violation>,
    closed: bool,
    counters: Vec<Counter>,
    chains: Vec<Chain>,
    peaks: Vec<Peak>,
    sums: Vec<Sum>,
    registers: Vec<Register>,
    mutexes: Vec<MutexBook>,
    /// The next active message of each pair that is to be sent, and to be run.
    active: Vec<(u64, u64)>,
    /// What each rank does now.
    doing: Vec<Option<(Kind, u32)>>,
    /// Parts of windows that nodes serve now.
    pub windows: u32,
    /// How many ranks have come to each barrier.
    entered: Vec<u32>,
    /// Whose programs have ended well.
    ended: Vec<bool>,
    ranks: u32,
}

thread_local! {
    static BOOK: RefCell<Book> = RefCell::new(Book::default());
}

/// Works on the book of this thread's run.
#[inline]
pub fn with<R>(work: impl FnOnce(&mut Book) -> R) -> R {
    BOOK.with(|book| work(&mut book.borrow_mut()))
}

/// Begins a run on this thread.
pub fn begin(shape: &Shape) {
    let ranks = shape.plan.ranks as usize;
    let each = |count: u64| ranks * 2 * count as usize;
    with(|book| {
        *book = Book {
            counts: vec![0; Kind::ALL.len()],
            counters: vec![Counter::default(); each(COUNTERS)],
            chains: vec![Chain::default(); each(CHAINS)],
            peaks: vec![Peak::default(); each(PEAKS)],
            sums: vec![Sum::default(); each(2 * SUMS)],
            registers: vec![Register::default(); shape.pairs() as usize * REGISTERS as usize],
            mutexes: vec![MutexBook::default(); ranks * MUTEXES as usize],
            active: vec![(0, 0); shape.pairs() as usize],
            doing: vec![None; ranks],
            ranks: shape.plan.ranks,
            ended: vec![false; ranks],
            ..Book::default()
        };
    });
}

/// Notes that a rank begins an operation.
pub fn start(rank: u32, kind: Kind, target: Rank, place: u64) {
    with(|book| book.doing[rank as usize] = Some((kind, target.0)));
    let detail = (kind as u64) << 56 | u64::from(target.0) << 32 | place;
    network::with(|network| network.note(What::Begin, Who::Rank(rank), detail));
}

/// Notes that it has ended well, and what it brought.
pub fn finish(rank: u32, kind: Kind, value: u64) {
    with(|book| {
        book.counts[kind as usize] += 1;
        book.doing[rank as usize] = None;
    });
    network::with(|network| network.note(What::End, Who::Rank(rank), value));
}

/// Notes that it has ended because somebody is gone.
pub fn lose(rank: u32, kind: Kind) {
    with(|book| {
        book.lost += 1;
        book.doing[rank as usize] = None;
    });
    network::with(|network| network.note(What::Fail, Who::Rank(rank), kind as u64));
}

/// Notes what cannot be. The first of a run counts.
pub fn violate(ranks: &[u32], what: String) {
    with(|book| {
        if !book.closed {
            book.violation.get_or_insert(Violation { what, ranks: ranks.to_vec() });
        }
    });
}

impl Book {
    /// What is found from now on does not count.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// It counts again.
    pub fn open(&mut self) {
        self.closed = false;
    }

    /// What was found, if anything.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// What a rank does now.
    pub fn doing(&self, rank: u32) -> Option<(Kind, u32)> {
        self.doing[rank as usize]
    }

    /// A rank's program has ended well.
    pub fn end_well(&mut self, rank: u32) {
        self.ended[rank as usize] = true;
    }

    /// Whether it has.
    pub fn ended_well(&self, rank: u32) -> bool {
        self.ended[rank as usize]
    }

    /// Who has a mutex now.
    pub fn holders(&self) -> impl Iterator<Item = u32> + '_ {
        self.mutexes.iter().filter_map(MutexBook::holder)
    }

    /// A rank is dead: what it held is another's.
    pub fn bury(&mut self, rank: u32) {
        self.mutexes.iter_mut().for_each(|mutex| mutex.bury(rank));
    }

    /// A rank comes to a barrier.
    pub fn enter_barrier(&mut self, number: u64) {
        if self.entered.len() <= number as usize {
            self.entered.resize(number as usize + 1, 0);
        }
        self.entered[number as usize] += 1;
    }

    /// A rank leaves it, having counted it.
    pub fn leave_barrier(&mut self, rank: u32, count: u64) {
        let entered = self.entered[count as usize - 1];
        if entered != self.ranks {
            let what = format!("rank {rank} left barrier {}, to which {entered} ranks had come", count - 1);
            self.violation.get_or_insert(Violation { what, ranks: vec![rank] });
        }
    }

    /// A word for fetch-and-add of a rank.
    pub fn counter(&mut self, rank: Rank, half: u64, number: u64) -> &mut Counter {
        &mut self.counters[((u64::from(rank.0) * 2 + half) * COUNTERS + number) as usize]
    }

    /// A word for swaps of a rank.
    pub fn chain(&mut self, rank: Rank, half: u64, number: u64) -> &mut Chain {
        &mut self.chains[((u64::from(rank.0) * 2 + half) * CHAINS + number) as usize]
    }

    /// A word for minima and maxima of a rank.
    pub fn peak(&mut self, rank: Rank, half: u64, number: u64) -> &mut Peak {
        &mut self.peaks[((u64::from(rank.0) * 2 + half) * PEAKS + number) as usize]
    }

    /// An element for accumulates of a rank.
    pub fn sum(&mut self, rank: Rank, half: u64, float: bool, number: u64) -> &mut Sum {
        &mut self.sums[(((u64::from(rank.0) * 2 + half) * 2 + u64::from(float)) * SUMS + number) as usize]
    }

    /// A word of a pair.
    pub fn register(&mut self, pair: usize, number: u64) -> &mut Register {
        &mut self.registers[pair * REGISTERS as usize + number as usize]
    }

    /// A mutex of a rank.
    pub fn mutex(&mut self, rank: Rank, number: u64) -> &mut MutexBook {
        &mut self.mutexes[(u64::from(rank.0) * MUTEXES + number) as usize]
    }

    /// The number of the next active message that a pair's caller sends.
    pub fn send_active(&mut self, pair: usize) -> u64 {
        self.active[pair].0 += 1;
        self.active[pair].0
    }

    /// An active message of a pair is run. Whether it is the one that was due.
    pub fn run_active(&mut self, pair: usize, number: u64) -> bool {
        self.active[pair].1 += 1;
        self.active[pair].1 == number
    }

    /// Whether all active messages of some pairs were run.
    pub fn all_run(&self, pairs: impl Iterator<Item = usize>) -> bool {
        let mut pairs = pairs;
        pairs.all(|pair| self.active[pair].0 == self.active[pair].1)
    }
}
