//! Put with signal, and waiting for words of one's own memory.

use longarm_proto::{Rank, Rmw, RmwOp, RmwWidth, Run, Signal, SignalOp};

use crate::client::Client;
use crate::error::{Lost, LostHow, Operation, RmwError, WaitError};
use crate::origin_bytes::{Lender, OriginBytes};
use crate::path::{Aim, Location};
use crate::progress::pace::Drive;
use crate::progress::waits::Awaited;
use crate::put::Writing;
use crate::shapes::Shapes;
use crate::window::ClientWindow;

/// The usual comparisons of a wait. `SHMEM_CMP_EQ` and its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    /// Equal.
    Equal,
    /// Not equal.
    NotEqual,
    /// Greater than.
    Greater,
    /// Greater or equal.
    GreaterOrEqual,
    /// Less than.
    Less,
    /// Less or equal.
    LessOrEqual,
}

impl Compare {
    /// Whether `left` stands in this relation to `right`.
    pub fn holds<T: PartialOrd>(self, left: T, right: T) -> bool {
        match self {
            Compare::Equal => left == right,
            Compare::NotEqual => left != right,
            Compare::Greater => left > right,
            Compare::GreaterOrEqual => left >= right,
            Compare::Less => left < right,
            Compare::LessOrEqual => left <= right,
        }
    }
}

/// Size of a word that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WordWidth {
    /// Four bytes.
    W32,
    /// Eight bytes.
    W64,
}

impl WordWidth {
    /// Size in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            WordWidth::W32 => 4,
            WordWidth::W64 => 8,
        }
    }
}

impl Client {
    /// Writes bytes, then updates an aligned 64-bit signal at the same rank: who sees the signal sees the bytes.
    /// Local completion as put. `shmem_putmem_signal`.
    pub fn put_signal(
        &self,
        (window, offset): (&ClientWindow, u64),
        word: (&ClientWindow, u64),
        signal: (SignalOp, u64),
        rank: Rank,
        source: OriginBytes<'_>,
    ) -> Result<(), RmwError> {
        let run = Run { offset, bytes: source.len() as u64 };
        let written = Writing::Signal(signal_of(word, signal, rank)?);
        self.write(written, (window, rank), Shapes::contiguous(run), source)?;
        self.update_signal_here(word, signal, rank)
    }

    /// Starts [`Client::put_signal`]; the source is let go of as by [`Client::start_put`].
    pub fn start_put_signal(
        &self,
        (window, offset): (&ClientWindow, u64),
        word: (&ClientWindow, u64),
        signal: (SignalOp, u64),
        rank: Rank,
        source: &Lender<'_>,
    ) -> Result<(), RmwError> {
        let run = Run { offset, bytes: source.source().len() as u64 };
        let written = Writing::Signal(signal_of(word, signal, rank)?);
        self.start_write(written, (window, rank), Shapes::contiguous(run), source)?;
        self.update_signal_here(word, signal, rank)
    }

    /// The word behind bytes that were written on this node; at other nodes their server does it.
    fn update_signal_here(
        &self,
        (window, offset): (&ClientWindow, u64),
        (op, value): (SignalOp, u64),
        rank: Rank,
    ) -> Result<(), RmwError> {
        if let Location::Here(part) = self.place(Aim { operation: Operation::Put, window, rank })? {
            let op = match op {
                SignalOp::Set => RmwOp::Set,
                SignalOp::Add => RmwOp::FetchAdd,
            };
            // The update is a full barrier on the processor: the bytes before it are seen by who sees it.
            let rmw = Rmw { op, width: RmwWidth::W64, operand: value, compare: 0 };
            part.rmw(offset, rmw).expect("checked before");
            self.local.ring_window(rank);
        }
        Ok(())
    }

    /// Reads an aligned word of this rank's own part, zero-extended: what others wrote before it is seen after it.
    pub fn load_word(&self, window: &ClientWindow, offset: u64, width: WordWidth) -> Result<u64, WaitError> {
        let me = self.local.layout.me();
        let word_bytes = width.bytes();
        let identity = window.identity();
        let window_bytes = window.bytes_of(me).unwrap_or(0);
        if window.is_freed() {
            window.check(Operation::Wait, me, offset, offset)?;
        }
        if offset.checked_add(word_bytes).is_none_or(|end| end > window_bytes) {
            return Err(WaitError::OutsideWindow { window: identity.window, offset, window_bytes });
        }
        if !offset.is_multiple_of(word_bytes) {
            return Err(WaitError::Misaligned { window: identity.window, offset, word_bytes });
        }
        let part = window.part_here(Operation::Wait, me)?.expect("one's own part is on one's own node");
        let value = match width {
            WordWidth::W32 => part.load_u32(offset).map(u64::from),
            WordWidth::W64 => part.load_u64(offset),
        };
        Ok(value.expect("checked just now"))
    }

    /// Waits until `check` gives something; it looks at words of this rank's memory by [`Client::load_word`].
    /// Signals and read-modify-writes wake the sleeper at once, plain puts within a moment.
    pub fn wait_words<R>(&self, mut check: impl FnMut() -> Result<Option<R>, WaitError>) -> Result<R, WaitError> {
        self.wait_for(Drive::Stores, Awaited::anyone(Operation::Wait), || match check() {
            Ok(Some(result)) => Some(Ok(result)),
            Ok(None) => self.first_death(Operation::Wait).map(|lost| Err(lost.into())),
            Err(error) => Some(Err(error)),
        })
    }

    /// Waits until `check` gives something, which others bring about by stores that [`Client::ring_mail`] may follow. Unlike one
    /// who waits for words it is not woken by what happens to this rank's windows.
    pub fn wait_at_barrier<R>(&self, mut check: impl FnMut() -> Option<R>) -> Result<R, WaitError> {
        self.wait_for(Drive::FlagBarrier, Awaited::anyone(Operation::Collective), || match check() {
            Some(result) => Some(Ok(result)),
            None => self.first_death(Operation::Collective).map(|lost| Err(lost.into())),
        })
    }

    /// Waits until `check` gives something, and runs the handlers of active messages meanwhile: what they bring about ends the wait
    /// at once, anything else within a moment.
    pub fn wait_running_handlers<R>(&self, mut check: impl FnMut() -> Option<R>) -> Result<R, WaitError> {
        self.wait_for(Drive::Handlers, Awaited::anyone(Operation::Message), || match check() {
            Some(result) => Some(Ok(result)),
            None => self.first_death(Operation::Message).map(|lost| Err(lost.into())),
        })
    }

    /// The first death of a rank of the world that was not acknowledged, or else a node that was lost, as an error.
    pub(crate) fn first_death(&self, operation: Operation) -> Option<Lost> {
        let Some(death) = self.local.failures.first_unacknowledged() else {
            return self.progress.lost_any(operation);
        };
        let node = self.local.layout.node_of(death.rank);
        Some(Lost { rank: death.rank, node, operation, how: LostHow::Died(death.how) })
    }
}

/// The signal as a request names it.
fn signal_of(
    (window, offset): (&ClientWindow, u64),
    (op, value): (SignalOp, u64),
    rank: Rank,
) -> Result<Signal, RmwError> {
    Aim { operation: Operation::Put, window, rank }.check_word(offset, 8)?;
    let identity = window.identity();
    Ok(Signal { window: identity.window, generation: identity.generation, key: identity.key, offset, op, value })
}

#[cfg(test)]
#[path = "signal_tests.rs"]
mod tests;
