//! What an interface with symmetric addresses needs beside windows: waiting for words that it looks at itself, groups that
//! their members make without a collective call, and memory that could not be made part of a window.

use std::sync::Arc;

use longarm_client::{ExposedParts, OriginBytes, OriginBytesMut};
use longarm_memory::RegionMut;
use longarm_proto::{Rank, SignalOp};

use crate::error::{CollectiveError, RmwError, TransferError, WaitError};
use crate::exposed::permit_attaching;
use crate::group::Group;
use crate::inner::Inner;
use crate::window::Window;
use crate::world::World;

#[doc(hidden)]
impl World {
    /// Waits until `check` gives something; it looks at words of this rank's own memory. Meanwhile the rank works for
    /// longarm. [`World::ring`] wakes it at once, a plain store of another rank within a few milliseconds.
    ///
    /// # Errors
    /// [`WaitError`]: a rank died that might have been the one to change the word.
    pub fn wait_for_words<R>(&self, mut check: impl FnMut() -> Option<R>) -> Result<R, WaitError> {
        self.inner.client.wait_words(|| Ok(check()))
    }

    /// Wakes a rank of this node that sleeps until a word of its memory changes. For a caller that has changed one by a
    /// sequentially consistent read-modify-write, or has put such a fence behind its store.
    #[inline]
    pub fn notify(&self, rank: u32) {
        self.inner.client.ring_window(Rank(rank));
    }

    /// As [`World::wait_for_words`] for what is no word of a window: [`World::notify_barrier`] wakes it at once, a plain store
    /// within a few milliseconds.
    ///
    /// # Errors
    /// [`WaitError`]: a rank died that might have been the one that is waited for.
    pub fn wait_at_barrier<R>(&self, check: impl FnMut() -> Option<R>) -> Result<R, WaitError> {
        self.inner.client.wait_at_barrier(check)
    }

    /// Wakes a rank of this node that sleeps in [`World::wait_at_barrier`].
    #[inline]
    pub fn notify_barrier(&self, rank: u32) {
        self.inner.client.ring_mail(Rank(rank));
    }

    /// The group of these ranks, made without a word to the others: all members make it with the same ranks and the same
    /// `tag`, and no two groups of the same ranks that are in use at once have the same tag. `None` if this rank is not
    /// listed.
    pub fn group_among(&self, ranks: &[u32], tag: u64) -> Option<Group> {
        Group::among(&self.inner, ranks, tag)
    }
}

/// Memory of every rank that stays where it is as long as the process, and that the ranks of its node read and write by
/// cross-memory attach, as they do what is [`Exposed`](crate::Exposed).
pub struct ExposedForGood {
    inner: Arc<Inner>,
    parts: ExposedParts,
}

#[doc(hidden)]
impl World {
    /// Shows this rank's memory, which may be empty, to the ranks of its node. Collective.
    ///
    /// # Errors
    /// As [`World::expose_collective`].
    pub fn expose_for_good_collective(&self, memory: RegionMut<'static>) -> Result<ExposedForGood, CollectiveError> {
        let exchange = |mine| self.group().exchange_notices::<u8>(mine);
        let parts = ExposedParts::expose_for_good(memory, permit_attaching(), exchange)?;
        Ok(ExposedForGood { inner: Arc::clone(&self.inner), parts: parts.ok_or(CollectiveError::BrokenNotice)? })
    }
}

#[doc(hidden)]
impl ExposedForGood {
    /// Writes to the memory of a rank of this node.
    ///
    /// # Errors
    /// As [`Exposed::put`](crate::Exposed::put).
    pub fn put(&self, rank: u32, offset: u64, source: OriginBytes<'_>) -> Result<(), TransferError> {
        self.inner.client.put_exposed(&self.parts, Rank(rank), offset, source)
    }

    /// Reads the memory of a rank of this node.
    ///
    /// # Errors
    /// As [`Exposed::put`](crate::Exposed::put).
    pub fn get(&self, rank: u32, offset: u64, target: OriginBytesMut<'_>) -> Result<(), TransferError> {
        self.inner.client.get_exposed(&self.parts, Rank(rank), offset, target)
    }
}

#[doc(hidden)]
impl Window<u8> {
    /// [`Window::put_signal_set`] or [`Window::put_signal_add`] of bytes that a C program vouches for.
    ///
    /// # Errors
    /// As [`Window::put_signal_set`].
    pub fn put_signal_bytes(
        &self,
        (rank, offset): (u32, u64),
        source: OriginBytes<'_>,
        (signals, signal_offset): (&Window<u8>, u64),
        (op, value): (SignalOp, u64),
    ) -> Result<(), RmwError> {
        let data = (&*self.shared.window, offset);
        let word = (&*signals.shared.window, signal_offset);
        self.shared.client.put_signal(data, word, (op, value), Rank(rank), source)
    }
}
