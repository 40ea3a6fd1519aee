//! A link whose bytes are encrypted.

use std::os::fd::BorrowedFd;

use longarm_memory::{Region, RegionMut};

use super::keys::Keys;
use super::receiver::Receiver;
use super::sender::Sender;
use crate::beacon::Beacon;
use crate::interest::Interest;
use crate::link_error::LinkError;
use crate::traits::Link;

/// See the module above.
pub(super) struct SealedLink {
    link: Box<dyn Link>,
    keys: Keys,
    sender: Sender,
    receiver: Receiver,
    /// An error is final, whatever the link below says afterwards.
    ended: Option<LinkError>,
}

impl SealedLink {
    pub(super) fn new(link: Box<dyn Link>, keys: Keys) -> Self {
        Self { link, keys, sender: Sender::new(), receiver: Receiver::new(), ended: None }
    }

    /// Bytes of all buffers.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.sender.kept_bytes() + self.receiver.kept_bytes()
    }

    fn end_with<T>(&mut self, outcome: Result<T, LinkError>) -> Result<T, LinkError> {
        if let Err(error) = &outcome {
            self.ended = Some(*error);
        }
        outcome
    }
}

impl Link for SealedLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        // What the peer has sent before it went can still be received, as from any link.
        if self.ended == Some(LinkError::Forged) {
            return Err(LinkError::Forged);
        }
        self.sender.send(&mut *self.link, &mut self.keys.0, regions)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        if let Some(error) = self.ended
            && regions.iter().any(|region| !region.is_empty())
        {
            return Err(error);
        }
        let outcome = self.receiver.receive(&mut *self.link, &mut self.keys.0, regions);
        self.end_with(outcome)
    }

    fn holds_bytes(&self) -> bool {
        self.ended.is_none() && (self.receiver.holds_bytes() || self.link.holds_bytes())
    }

    fn arm(&mut self) -> bool {
        self.link.arm()
    }

    fn abandon(&mut self) {
        self.link.abandon();
    }

    fn stands_alone(&self) -> bool {
        self.link.stands_alone()
    }

    fn beacon(&self) -> Option<&Beacon> {
        self.link.beacon()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn awaits(&self, wanted: Interest) -> Interest {
        self.link.awaits(wanted)
    }

    fn peer_name(&self) -> &str {
        self.link.peer_name()
    }
}
