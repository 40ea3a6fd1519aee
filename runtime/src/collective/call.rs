//! One collective in progress: what its members send each other.

use longarm_client::mail::Slot;
use longarm_client::{Expecting, WaitingCall};
use longarm_proto::{NodeId, Rank};

use super::signature::Signature;
use crate::element::Element;
use crate::error::CollectiveError;
use crate::group::Group;

/// A longer body goes in several letters, which arrive in order.
pub(crate) const LETTER_BYTES_MAX: usize = 256 << 20;

/// One collective call in progress.
pub(crate) struct Call<'a> {
    pub(super) group: &'a Group,
    pub(super) slot: Slot,
    pub(super) signature: Signature,
}

impl<'a> Call<'a> {
    pub(crate) fn new(group: &'a Group, slot: Slot, signature: Signature) -> Call<'a> {
        Call { group, slot, signature }
    }

    /// What this rank is in while it waits.
    pub(super) fn name(&self) -> WaitingCall {
        WaitingCall::Collective(self.signature.name())
    }

    pub(super) fn me(&self) -> u32 {
        self.group.shared.index
    }

    pub(super) fn size(&self) -> u32 {
        self.group.size()
    }

    pub(super) fn member(&self, place: u32) -> Rank {
        self.group.shared.members[place as usize]
    }

    /// The next step: its messages are told apart from those of every other.
    pub(super) fn next_step(&mut self) {
        self.slot.step += 1;
    }

    /// Does something in another step than this one.
    pub(super) fn in_step<R>(&mut self, step: u32, work: impl FnOnce(&mut Self) -> R) -> R {
        let now = std::mem::replace(&mut self.slot.step, step);
        let done = work(self);
        self.slot.step = now;
        done
    }

    pub(super) fn send(&self, to: u32, body: &[u8]) -> Result<(), CollectiveError> {
        let client = &self.group.inner.client;
        let pieces = body.chunks(LETTER_BYTES_MAX).chain(body.is_empty().then_some(body));
        for piece in pieces {
            // A dead member explains more than the connection that broke.
            let sent = client.send_letter(self.member(to), self.slot, body.len() as u64, piece);
            sent.map_err(|error| self.group.death().map_or(error.into(), CollectiveError::Lost))?;
        }
        Ok(())
    }

    /// Before something short is sent and then something is waited for from a member.
    pub(super) fn expect(&self, from: u32) -> Option<Expecting<'a>> {
        self.group.inner.client.expect_from(self.member(from))
    }

    /// Sends one body and receives another one. Neither waits for the other.
    pub(super) fn exchange(&self, to: u32, body: &[u8], from: u32) -> Result<Vec<u8>, CollectiveError> {
        if body.len() > LETTER_BYTES_MAX {
            self.send(to, body)?;
            return self.receive(from);
        }
        let client = &self.group.inner.client;
        let place = (self.member(to), self.slot);
        let exchanged = client.send_letter_during(place, body.len() as u64, body, || self.receive(from));
        exchanged.map_err(|error| self.group.death().map_or(error.into(), CollectiveError::Lost))?
    }

    pub(super) fn receive(&self, from: u32) -> Result<Vec<u8>, CollectiveError> {
        self.receive_if(from, |_| Ok(()))
    }

    /// The same of a body that has so many bytes.
    pub(super) fn receive_exactly(&self, from: u32, bytes: usize) -> Result<Vec<u8>, CollectiveError> {
        self.receive_if(from, |found| self.check_bytes(from, found, bytes))
    }

    /// Receives a body whose length passes a check, which is made before all of it has come.
    pub(super) fn receive_if(
        &self,
        from: u32,
        check: impl FnOnce(u64) -> Result<(), CollectiveError>,
    ) -> Result<Vec<u8>, CollectiveError> {
        let client = &self.group.inner.client;
        let receive = || client.receive_letter(self.member(from), self.slot, self.name(), &|| self.group.death());
        let first = receive()?;
        check(first.total_bytes)?;
        let (total, mut body) = (first.total_bytes, first.body);
        while (body.len() as u64) < total {
            let next = receive()?;
            let missing = total - body.len() as u64;
            let found = next.body.len() as u64;
            if next.total_bytes != total || !(1..=missing).contains(&found) {
                return Err(self.bad_message(from, found, format!("the rest, {missing} bytes at most,")));
            }
            body.extend_from_slice(&next.body);
        }
        Ok(body)
    }

    pub(super) fn check_bytes(&self, from: u32, found: u64, due: usize) -> Result<(), CollectiveError> {
        if found == due as u64 { Ok(()) } else { Err(self.bad_message(from, found, due.to_string())) }
    }

    /// A member sent something else than is due.
    #[cold]
    pub(super) fn bad_message(&self, from: u32, found: u64, due: String) -> CollectiveError {
        let (rank, node) = self.named(from);
        CollectiveError::BadMessage { rank, node, operation: self.operation(), found, due }
    }

    /// A member by its place, and its node.
    pub(super) fn named(&self, place: u32) -> (Rank, NodeId) {
        let rank = self.member(place);
        (rank, self.group.inner.client.layout().node_of(rank))
    }

    /// What this rank called.
    pub(super) fn operation(&self) -> String {
        self.signature.name().iter().take_while(|byte| **byte != 0).map(|byte| *byte as char).collect()
    }

    /// Elements that a member says it has.
    pub(super) fn zeroed<T: Element>(&self, place: u32, count: u64) -> Result<Vec<T>, CollectiveError> {
        let made = usize::try_from(count).ok().and_then(|count| T::new_vec_zeroed(count).ok());
        made.ok_or_else(|| {
            let ((rank, node), bytes) = (self.named(place), count.saturating_mul(size_of::<T>() as u64));
            CollectiveError::NoRoom { rank, node, operation: self.operation(), bytes }
        })
    }

    /// Makes a list as long as what a member says it has, in the memory that it has if that is enough.
    pub(super) fn fit<T: Element>(&self, list: &mut Vec<T>, place: u32, count: u64) -> Result<(), CollectiveError> {
        match usize::try_from(count) {
            Ok(count) if count <= list.capacity() => list.resize_with(count, T::new_zeroed),
            _ => *list = self.zeroed(place, count)?,
        }
        Ok(())
    }
}
