//! Read-modify-writes: one after the other, and some at once; by the server, and by the device where there is one.

use std::collections::BTreeMap;

use longarm_client::{Awaited, Completion, DeviceRmwError, Operation};
use longarm_netmod::DeviceRmw;
use longarm_proto::{Rank, Rmw, RmwOp, RmwWidth};

use super::{Program, Stop};
use crate::book::{self, Extreme, Kind};
use crate::network;
use crate::plan::{CHAINS, COUNTERS, PEAKS, Shape};

/// Read-modify-writes that are on their way at once, at most.
const AT_ONCE_MAX: u64 = 8;

const fn rmw(op: RmwOp, operand: u64, compare: u64) -> Rmw {
    Rmw { op, width: RmwWidth::W64, operand, compare }
}

impl Program {
    /// By the device, in a word that processors update too: all that happens in a run takes turns.
    fn device_fetch_add(&mut self, target: Rank) -> Result<u32, Stop> {
        let (half, number) = (self.half(), self.dice.below(COUNTERS));
        let offset = Shape::counter_at(half, number);
        let least = book::with(|book| book.counter(target, half, number).begin());
        book::start(self.rank.0, Kind::DeviceRmw, target, offset);
        let node = self.shape.node_of(target.0);
        let left = || network::with(|network| network.updates_left(self.rank.0, node));
        let left_before = left();
        let old = match self.client.device_rmw(&self.window, target, offset / 8, DeviceRmw::FetchAdd(1)) {
            Ok(old) => old,
            Err(error @ (DeviceRmwError::ValueLost { .. } | DeviceRmwError::Unknown { .. }))
                if left() > left_before =>
            {
                book::with(|book| {
                    if matches!(error, DeviceRmwError::ValueLost { .. }) {
                        book.values_lost += 1;
                        book.counter(target, half, number).end_unheard();
                    } else {
                        book.fates_unknown += 1;
                    }
                });
                book::finish(self.rank.0, Kind::DeviceRmw, u64::MAX);
                return Ok(1);
            }
            Err(error) => return Err(self.failed(Kind::DeviceRmw, target, &error)),
        };
        let fine = book::with(|book| book.counter(target, half, number).end(least, old));
        fine.map_err(|what| self.violated(Kind::DeviceRmw, target, &format!("counter {number}: {what}")))?;
        book::finish(self.rank.0, Kind::DeviceRmw, old);
        Ok(1)
    }

    pub(super) fn fetch_add(&mut self, target: Rank) -> Result<u32, Stop> {
        let node = self.shape.node_of_rank[target.0 as usize];
        if self.shape.direct && node != self.shape.node_of_rank[self.rank.0 as usize] && self.dice.one_in(2) {
            return self.device_fetch_add(target);
        }
        let (half, number) = (self.half(), self.dice.below(COUNTERS));
        let offset = Shape::counter_at(half, number);
        let least = book::with(|book| book.counter(target, half, number).begin());
        book::start(self.rank.0, Kind::FetchAdd, target, offset);
        let old = self.client.rmw(&self.window, target, offset, rmw(RmwOp::FetchAdd, 1, 0));
        let old = old.map_err(|error| self.failed(Kind::FetchAdd, target, &error))?;
        let fine = book::with(|book| book.counter(target, half, number).end(least, old));
        fine.map_err(|what| self.violated(Kind::FetchAdd, target, &format!("counter {number}: {what}")))?;
        book::finish(self.rank.0, Kind::FetchAdd, old);
        Ok(1)
    }

    /// Several fetch-and-adds on their way at once. Those of one counter are done in the order in which they were started.
    pub(super) fn fetch_adds(&mut self, target: Rank) -> Result<u32, Stop> {
        let half = self.half();
        let count = self.dice.between(2, AT_ONCE_MAX);
        let mut under_way = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let number = self.dice.below(COUNTERS);
            let offset = Shape::counter_at(half, number);
            let least = book::with(|book| book.counter(target, half, number).begin());
            book::start(self.rank.0, Kind::FetchAdd, target, offset);
            let (completion, part) = Completion::begin();
            let add = rmw(RmwOp::FetchAdd, 1, 0);
            let begun = self.client.start_rmw(&self.window, target, offset, add, &part);
            drop(part);
            begun.map_err(|error| self.failed(Kind::FetchAdd, target, &error))?;
            under_way.push((number, least, completion));
        }
        let mut before = BTreeMap::new();
        for (number, least, completion) in under_way {
            self.client.wait_completion(Awaited::rank(Operation::Rmw, target), &completion);
            if let Some(outcome) = completion.failure() {
                let error = self.client.explain(outcome, Operation::Rmw, target);
                return Err(self.failed(Kind::FetchAdd, target, &error));
            }
            let old = completion.value();
            if before.insert(number, old).is_some_and(|before| before >= old) {
                return Err(self.violated(Kind::FetchAdd, target, &format!("counter {number}: {old} came too late")));
            }
            let fine = book::with(|book| book.counter(target, half, number).end(least, old));
            fine.map_err(|what| self.violated(Kind::FetchAdd, target, &format!("counter {number}: {what}")))?;
            book::finish(self.rank.0, Kind::FetchAdd, old);
        }
        Ok(count as u32)
    }

    pub(super) fn fetch(&mut self, target: Rank) -> Result<u32, Stop> {
        let (half, number) = (self.half(), self.dice.below(COUNTERS));
        let offset = Shape::counter_at(half, number);
        let least = book::with(|book| book.counter(target, half, number).least());
        book::start(self.rank.0, Kind::Fetch, target, offset);
        let value = self.client.rmw(&self.window, target, offset, rmw(RmwOp::Fetch, 0, 0));
        let value = value.map_err(|error| self.failed(Kind::Fetch, target, &error))?;
        let fine = book::with(|book| book.counter(target, half, number).read(least, value));
        fine.map_err(|what| self.violated(Kind::Fetch, target, &format!("counter {number}: {what}")))?;
        book::finish(self.rank.0, Kind::Fetch, value);
        Ok(1)
    }

    /// A value that nobody else stores.
    fn fresh_value(&mut self) -> u64 {
        self.stored += 1;
        u64::from(self.rank.0 + 1) << 32 | self.stored
    }

    pub(super) fn swap(&mut self, target: Rank) -> Result<u32, Stop> {
        let (half, number, value) = (self.half(), self.dice.below(CHAINS), self.fresh_value());
        let offset = Shape::chain_at(half, number);
        book::start(self.rank.0, Kind::Swap, target, offset);
        let began = network::now_ns();
        let old = self.client.rmw(&self.window, target, offset, rmw(RmwOp::Swap, value, 0)).map_err(|error| {
            book::with(|book| book.chain(target, half, number).doubt(value));
            self.failed(Kind::Swap, target, &error)
        })?;
        let ended = network::now_ns();
        book::with(|book| book.chain(target, half, number).swapped(old, value, began, ended));
        book::finish(self.rank.0, Kind::Swap, old);
        Ok(1)
    }

    pub(super) fn compare_swap(&mut self, target: Rank) -> Result<u32, Stop> {
        let (half, number, value) = (self.half(), self.dice.below(CHAINS), self.fresh_value());
        let offset = Shape::chain_at(half, number);
        let compare = book::with(|book| book.chain(target, half, number).latest);
        book::start(self.rank.0, Kind::CompareSwap, target, offset);
        let began = network::now_ns();
        let swap = rmw(RmwOp::CompareSwap, value, compare);
        let old = self.client.rmw(&self.window, target, offset, swap).map_err(|error| {
            book::with(|book| book.chain(target, half, number).doubt(value));
            self.failed(Kind::CompareSwap, target, &error)
        })?;
        let ended = network::now_ns();
        book::with(|book| {
            let chain = book.chain(target, half, number);
            if old == compare { chain.swapped(old, value, began, ended) } else { chain.saw(old, began, ended) }
        });
        book::finish(self.rank.0, Kind::CompareSwap, old);
        Ok(1)
    }

    /// A minimum or maximum, of a value that may win or of one that never does.
    pub(super) fn extreme(&mut self, target: Rank) -> Result<u32, Stop> {
        let (half, number) = (self.half(), self.dice.below(PEAKS));
        let (offset, extreme) = (Shape::peak_at(half, number), Extreme::of(number));
        // Later ones are higher, whoever brings them; some come from a while ago.
        self.stored += 1;
        let age = if self.dice.one_in(3) { 20 } else { 0 };
        let height = (self.stored + 100 - age) << 32 | u64::from(self.rank.0 + 1) << 12 | (self.stored % 4096);
        let loses = self.dice.one_in(6);
        let operand = if loses { extreme.loser() } else { extreme.value(height) };
        let least = book::with(|book| {
            let peak = book.peak(target, half, number);
            if loses { peak.least() } else { peak.begin(height) }
        });
        book::start(self.rank.0, Kind::Extreme, target, offset);
        let old = self.client.rmw(&self.window, target, offset, rmw(extreme.op(), operand, 0));
        let old = old.map_err(|error| self.failed(Kind::Extreme, target, &error))?;
        let fine = extreme.height(old).and_then(|old| {
            book::with(|book| {
                let peak = book.peak(target, half, number);
                if loses { peak.saw(least, old) } else { peak.end(least, height, old) }
            })
        });
        fine.map_err(|what| {
            self.violated(Kind::Extreme, target, &format!("{extreme:?}, operand {operand:#x}: {what}"))
        })?;
        book::finish(self.rank.0, Kind::Extreme, old);
        Ok(1)
    }
}
