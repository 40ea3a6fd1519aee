//! What was asked of the device, counted: the same on every device, however fast it is.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// What the links of a process have asked of the device so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Requests: messages, writes, reads and atomics.
    pub requests: u64,
    /// Of these, messages into buffers of the peer.
    pub messages: u64,
    /// Of these, writes into memory of the peer.
    pub writes: u64,
    /// Of these, reads from memory of the peer.
    pub reads: u64,
    /// Of these, read-modify-writes of words of the peer, by its device.
    pub atomics: u64,
    /// Of these, requests that carry their bytes in themselves.
    pub inline: u64,
    /// Times that the device was told of new requests.
    pub doorbells: u64,
    /// Completions that were fetched: of requests, and of messages that came.
    pub completions: u64,
    /// Bytes copied into and out of preregistered buffers.
    pub copied_bytes: u64,
    /// Bytes that the device has moved from, or to, where the program has them.
    pub zero_copy_bytes: u64,
    /// Windows that were registered so that all their pages stay in memory.
    pub windows_kept: u64,
    /// Windows that were registered on demand.
    pub windows_on_demand: u64,
}

/// The same, as links count it. Numbers that stand alone: nothing is ordered by them.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) messages: Counter,
    pub(crate) writes: Counter,
    pub(crate) reads: Counter,
    pub(crate) atomics: Counter,
    pub(crate) inline: Counter,
    pub(crate) doorbells: Counter,
    pub(crate) completions: Counter,
    pub(crate) copied_bytes: Counter,
    pub(crate) zero_copy_bytes: Counter,
    pub(crate) windows_kept: Counter,
    pub(crate) windows_on_demand: Counter,
}

#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, number: usize) {
        self.0.fetch_add(number as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn read(&self) -> Counts {
        let (messages, writes) = (self.messages.get(), self.writes.get());
        let (reads, atomics) = (self.reads.get(), self.atomics.get());
        Counts {
            requests: messages + writes + reads + atomics,
            messages,
            writes,
            reads,
            atomics,
            inline: self.inline.get(),
            doorbells: self.doorbells.get(),
            completions: self.completions.get(),
            copied_bytes: self.copied_bytes.get(),
            zero_copy_bytes: self.zero_copy_bytes.get(),
            windows_kept: self.windows_kept.get(),
            windows_on_demand: self.windows_on_demand.get(),
        }
    }
}
