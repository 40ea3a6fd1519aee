//! One operation after the other, as dice choose.

use std::sync::Arc;

use longarm_client::{Awaited, Client, ClientWindow, Lender, Operation, Shapes, TransferError, lend};
use longarm_proto::{AccumulateOp, ElementType, Kernel, Rank, Run, Scale};

use super::{Added, Program, Stop};
use crate::book::{self, Kind};
use crate::plan::{REGISTERS, SUMS, Shape};

impl Program {
    /// One step of the program: one operation, or a few that belong together. How many.
    pub(super) fn operation(&mut self) -> Result<u32, Stop> {
        let (number, target) = self.target();
        match self.dice.below(100) {
            0..20 => self.put_register(target),
            20..30 => self.get_register(target),
            30..36 => self.peek(target),
            36..42 => self.block_put(number, target),
            42..46 => self.block_get(number, target),
            46..58 => self.accumulate(target),
            58..64 => self.fetch_add(target),
            64..76 => self.fetch_adds(target),
            76..80 => self.swap(target),
            80..82 => self.extreme(target),
            82..86 => self.compare_swap(target),
            86..88 => self.fetch(target),
            88..90 => self.guarded(target),
            90..94 => self.active(target),
            94..96 => {
                book::start(self.rank.0, Kind::Fence, target, 0);
                self.client.fence();
                book::finish(self.rank.0, Kind::Fence, 0);
                Ok(1)
            }
            96..99 => self.quiet_rank(target).map(|()| 1),
            _ => self.quiet().map(|()| 1),
        }
    }

    /// The value of a word with one writer: which word, and the number of its write.
    fn register_value(pair: usize, number: u64, written: u64) -> u64 {
        if written == 0 { 0 } else { (pair as u64 * REGISTERS + number) << 32 | written }
    }

    /// The number of the write that stored a value, if it belongs here at all.
    fn written_by(pair: usize, number: u64, value: u64) -> Result<u64, String> {
        let written = value & u64::from(u32::MAX);
        if value == Self::register_value(pair, number, written) {
            return Ok(written);
        }
        Err(format!("value {value:#x}, which nobody has put here"))
    }

    fn put_register(&mut self, target: Rank) -> Result<u32, Stop> {
        let (number, pair) = (self.dice.below(REGISTERS), self.shape.pair(target, self.rank));
        let offset = self.shape.register_at(self.shape.place_of(target, self.rank), number);
        let written = book::with(|book| book.register(pair, number).write());
        let value = Self::register_value(pair, number, written);
        book::start(self.rank.0, Kind::Put, target, offset);
        let bytes = value.to_le_bytes();
        let put = if self.dice.one_in(2) {
            self.unwaited((Operation::Put, target), &bytes, |client, window, source| {
                client.start_put(window, target, Shapes::contiguous(Run { offset, bytes: 8 }), source)
            })
        } else {
            self.client.put(&self.window, target, offset, (&bytes[..]).into())
        };
        put.map_err(|error| self.failed(Kind::Put, target, &error))?;
        book::finish(self.rank.0, Kind::Put, value);
        self.put.push((pair, number, written));
        Ok(1)
    }

    /// Starts a write whose arrival nobody waits for: what is begun behind it finds it under way, or not even sent.
    pub(super) fn unwaited(
        &self,
        (operation, target): (Operation, Rank),
        bytes: &[u8],
        start: impl FnOnce(&Arc<Client>, &ClientWindow, &Lender<'_>) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let client = &self.client;
        let (started, completion) = lend(|lent| {
            let started = start(client, &self.window, &lent.source(bytes.into()));
            let completion = lent.issued();
            // Only until the bytes are no longer needed, which at once they are not if they are few.
            client.wait_completion(Awaited::rank(operation, target), &completion);
            (started, completion)
        });
        started?;
        completion.failure().map_or(Ok(()), |outcome| Err(client.explain(outcome, operation, target)))
    }

    fn get_register(&mut self, target: Rank) -> Result<u32, Stop> {
        let (number, pair) = (self.dice.below(REGISTERS), self.shape.pair(target, self.rank));
        let value = self.get_word(Kind::Get, target, self.rank, number)?;
        let read = Self::written_by(pair, number, value)
            .and_then(|written| book::with(|book| book.register(pair, number).read_own(written)));
        read.map_err(|what| self.violated(Kind::Get, target, &format!("word {number}: {what}")))?;
        Ok(1)
    }

    /// Reads a word that another rank writes.
    fn peek(&mut self, target: Rank) -> Result<u32, Stop> {
        let callers = &self.shape.callers[target.0 as usize];
        let writer = callers[self.dice.below(callers.len() as u64) as usize];
        if writer == self.rank {
            return self.get_register(target);
        }
        let (number, pair) = (self.dice.below(REGISTERS), self.shape.pair(target, writer));
        let least = book::with(|book| book.register(pair, number).begin_read());
        let value = self.get_word(Kind::Peek, target, writer, number)?;
        let read = Self::written_by(pair, number, value)
            .and_then(|written| book::with(|book| book.register(pair, number).end_read(least, written)));
        read.map_err(|what| self.violated(Kind::Peek, target, &format!("word {number} of rank {writer}: {what}")))?;
        Ok(1)
    }

    fn get_word(&mut self, kind: Kind, target: Rank, writer: Rank, number: u64) -> Result<u64, Stop> {
        let offset = self.shape.register_at(self.shape.place_of(target, writer), number);
        let mut word = [0; 8];
        book::start(self.rank.0, kind, target, offset);
        let got = if self.dice.one_in(2) {
            self.get_together(target, offset, &mut word)
        } else {
            self.client.get(&self.window, target, offset, word.as_mut_slice().into())
        };
        got.map_err(|error| self.failed(kind, target, &error))?;
        let value = u64::from_le_bytes(word);
        book::finish(self.rank.0, kind, value);
        Ok(value)
    }

    /// Reads a word behind another one, by gets that wait for each other's company.
    fn get_together(&self, target: Rank, offset: u64, word: &mut [u8; 8]) -> Result<(), TransferError> {
        let (client, mut other) = (&self.client, [0; 8]);
        let (started, completion) = lend(|lent| {
            let places =
                [(0, lent.target(other.as_mut_slice().into())), (offset, lent.target(word.as_mut_slice().into()))];
            let started = places.iter().try_for_each(|(offset, place)| {
                let shapes = Shapes::contiguous(Run { offset: *offset, bytes: 8 });
                client.start_get(&self.window, target, shapes, place)
            });
            let completion = lent.issued();
            client.wait_completion(Awaited::rank(Operation::Get, target), &completion);
            (started, completion)
        });
        started?;
        completion.failure().map_or(Ok(()), |outcome| Err(client.explain(outcome, Operation::Get, target)))
    }

    fn accumulate(&mut self, target: Rank) -> Result<u32, Stop> {
        let float = self.dice.one_in(2);
        let first = self.dice.below(SUMS);
        let step = if self.dice.one_in(4) { 2 } else { 1 };
        let count = self.dice.between(1, (SUMS - first).div_ceil(step));
        let (value, factor, half) = (self.dice.between(1, 99), self.dice.between(1, 3), self.half());
        let addend = value * factor;
        let (element, scale, word) = if float {
            (ElementType::F64, Scale::from(factor as f64), (value as f64).to_le_bytes())
        } else {
            (ElementType::I64, Scale::from(factor as i64), value.to_le_bytes())
        };
        let kernel = Kernel::new(element, AccumulateOp::Sum).expect("numbers can be added");
        let source: Vec<u8> = word.repeat(count as usize);
        let added = Added { target, half, float, first, count, step, addend };
        book::with(|book| {
            (0..count).for_each(|number| book.sum(target, half, float, first + number * step).begin(addend));
        });
        let offset = Shape::sum_at(half, float, first);
        let kind = match (step, float) {
            (1, false) => Kind::AccumulateInteger,
            (1, true) => Kind::AccumulateFloat,
            _ => Kind::AccumulateStrided,
        };
        book::start(self.rank.0, kind, target, offset);
        let (client, bytes) = (Arc::clone(&self.client), source.as_slice().into());
        let done = if step == 1 && self.dice.one_in(2) {
            let one = if float { Scale::from(1.0) } else { Scale::from(1_i64) };
            let whole = if float { (addend as f64).to_le_bytes() } else { addend.to_le_bytes() };
            // The same is added either way, in requests that must not become one.
            let mut ways = [(scale, word), (one, whole)].into_iter().cycle();
            (0..count).map(|number| offset + 8 * number).try_for_each(|offset| {
                let (scale, word) = ways.next().expect("there is no end of them");
                let shapes = Shapes::contiguous(Run { offset, bytes: 8 });
                self.unwaited((Operation::Accumulate, target), &word, |client, window, source| {
                    client.start_accumulate(window, target, shapes, (kernel, scale), source)
                })
            })
        } else if step == 1 {
            client.accumulate_run(&self.window, target, offset, (kernel, &scale), bytes)
        } else {
            let shapes = Self::every_other(offset, count);
            client.accumulate(&self.window, target, shapes, (kernel, scale), bytes)
        };
        done.map_err(|error| self.failed(kind, target, &error))?;
        book::finish(self.rank.0, kind, addend);
        self.added.push(added);
        Ok(1)
    }
}
