//! When a request goes out.

use super::state::State;

/// What was copied stays corked until so many bytes wait. Each send, and what it wakes, costs as much as to copy some KiB.
pub(super) const CORKED_BYTES_MAX: usize = 64 << 10;
/// The same for payloads that are sent from their places.
pub(super) const CORKED_STREAM_BYTES_MAX: u64 = 256 << 10;
/// Nonblocking payloads up to this are corked. Longer ones keep a connection busy each by itself: to wait for others would only let it rest.
const CORKED_PAYLOAD_BYTES_MAX: u64 = 48 << 10;
/// More bytes than these, waiting in their places, are for the helper to send, not for who goes on: to wake it takes less time. A payload of up to so
/// many is sent by its caller if nothing else is under way, or somebody has waited just before.
const CALLER_SENDS_BYTES_MAX: u64 = 128 << 10;
const _: () =
    assert!(CORKED_PAYLOAD_BYTES_MAX < CALLER_SENDS_BYTES_MAX && CALLER_SENDS_BYTES_MAX < CORKED_STREAM_BYTES_MAX);

/// When a request goes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sending {
    /// At once.
    Now,
    /// At once, and the server is asked whether it has it, unless it was asked a moment ago: a quiet behind it has only to
    /// wait.
    Confirmed,
    /// Together with those that follow, unless nothing else is under way or it is the first since somebody waited: nobody
    /// waits for it yet.
    Soon,
    /// The same for a payload that is sent from its place. It waits for more bytes.
    SoonInPlace,
    /// At once where [`Sending::SoonInPlace`] would go out because it is alone. Else it is the helper's, which begins with it unless
    /// something is corked, and the caller goes on.
    AloneOrByHelper,
    /// When somebody waits, or the helper comes by.
    Later,
}

impl Sending {
    /// When a payload of so many bytes goes out, which is sent from its place and which nobody waits for.
    pub(crate) fn unawaited_in_place(bytes: u64) -> Sending {
        if bytes <= CORKED_PAYLOAD_BYTES_MAX {
            Sending::SoonInPlace
        } else if bytes <= CALLER_SENDS_BYTES_MAX {
            Sending::AloneOrByHelper
        } else {
            Sending::Later
        }
    }

    /// Whether it may be corked.
    pub(super) fn may_be_corked(self) -> bool {
        matches!(self, Sending::Soon | Sending::SoonInPlace)
    }

    /// Whether nobody waits for it yet, so that others may follow.
    pub(super) fn may_have_company(self) -> bool {
        self.may_be_corked() || self == Sending::AloneOrByHelper
    }
}

impl State {
    /// Whether what nobody waits for is sent at once all the same. Behind what somebody waited for it may be the only one, and to
    /// wake a thread that sends it later takes more time than to send it.
    pub(super) fn goes_alone(&self) -> bool {
        let is_first = !self.several && !self.has_coalesced() && self.outgoing.is_sent();
        is_first || self.is_idle()
    }

    /// Whether so much payload waits in its place that it is sent. Far more waits only where the link took no more before: each further try would
    /// be in vain, and the helper goes on when there is room.
    fn is_stream_uncorked(&self) -> bool {
        (CORKED_STREAM_BYTES_MAX..2 * CORKED_STREAM_BYTES_MAX).contains(&self.outgoing.unsent_stream_bytes())
    }

    /// Whether what waits in its place is for the helper to send.
    pub(super) fn has_much_to_send(&self) -> bool {
        let for_caller = if self.left_to_helper { 0 } else { CALLER_SENDS_BYTES_MAX };
        self.outgoing.unsent_stream_bytes() > for_caller
    }

    /// Whether a request that was just begun goes out now, and with it the question for which a quiet behind it only waits.
    /// `goes_alone`: what [`State::goes_alone`] said before.
    pub(super) fn goes_out(&mut self, sending: Sending, goes_alone: bool, has_reply: bool) -> bool {
        self.several = sending.may_have_company();
        self.left_to_helper = sending == Sending::AloneOrByHelper && !goes_alone;
        if sending == Sending::Confirmed || (sending == Sending::Soon && goes_alone && !has_reply) {
            self.acknowledge_if_none_is_due();
        }
        match sending {
            Sending::Now | Sending::Confirmed => true,
            Sending::Soon => goes_alone || self.unsent_bytes() >= CORKED_BYTES_MAX,
            Sending::SoonInPlace => goes_alone || self.is_stream_uncorked(),
            Sending::AloneOrByHelper => goes_alone,
            Sending::Later => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_of_48_to_128_kib_that_nobody_waits_for_are_neither_corked_nor_left_to_the_helper_alone() {
        let sending = |kib: u64, more: u64| Sending::unawaited_in_place((kib << 10) + more);
        assert_eq!((sending(16, 0), sending(48, 0)), (Sending::SoonInPlace, Sending::SoonInPlace));
        assert_eq!((sending(48, 1), sending(128, 0)), (Sending::AloneOrByHelper, Sending::AloneOrByHelper));
        assert_eq!((sending(128, 1), sending(1024, 0)), (Sending::Later, Sending::Later));
    }
}
