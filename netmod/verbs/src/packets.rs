//! Numbers of packets: which requests a peer's queue has done when it ended, as told by the packet that it would have
//! taken next.
//!
//! Over iWARP packets have no numbers that anybody could ask for. There messages are counted, which the peer's program takes up
//! in the order of all requests: what lies before one that it has was done.

/// Bytes of what other devices send as immediate data, and what stands behind the bytes of a message over iWARP.
pub(crate) const IMMEDIATE_BYTES: usize = 4;

const MASK: u32 = 0x00ff_ffff;

/// The next packet, or message, of a connection's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packets {
    next: u32,
    /// `None`: only messages count.
    payload_bytes: Option<u64>,
}

impl Packets {
    /// Numbers from `first` on, for packets that carry so much.
    pub(crate) fn new(first: u32, mtu_code: u8) -> Packets {
        Packets { next: first & MASK, payload_bytes: Some(128 << u32::from(mtu_code)) }
    }

    /// Numbers from `first` on, for messages.
    pub(crate) fn of_messages(first: u32) -> Packets {
        Packets { next: first & MASK, payload_bytes: None }
    }

    /// Counts a request of so many bytes; a read takes as many numbers as its answer has packets. Returns the number behind it.
    /// Where messages count, that is the number behind the next message.
    pub(crate) fn pass(&mut self, bytes: u64) -> u32 {
        let Some(payload_bytes) = self.payload_bytes else { return self.next.wrapping_add(1) & MASK };
        let packets = bytes.div_ceil(payload_bytes).max(1);
        self.next = self.next.wrapping_add(packets as u32) & MASK;
        self.next
    }

    /// Counts a message of so many bytes.
    pub(crate) fn pass_message(&mut self, bytes: u64) -> u32 {
        let behind = self.pass(bytes);
        self.next = behind;
        behind
    }

    /// The number of the next.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }
}

/// Whether a request that ends right before `behind` was done by a queue that would have taken `executed` next.
pub(crate) fn was_done(behind: u32, executed: u32) -> bool {
    // At most half of the numbers are under way, so the shorter way round is the right one.
    (executed.wrapping_sub(behind) & MASK) < MASK / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_takes_a_packet_and_long_ones_take_more() {
        let mut packets = Packets::new(MASK - 1, 5);
        assert_eq!(packets.pass(0), MASK);
        assert_eq!(packets.pass(4096), 0, "the numbers begin anew");
        assert_eq!(packets.pass(4097), 2);
    }

    #[test]
    fn where_messages_count_requests_before_one_were_done_with_it() {
        let mut messages = Packets::of_messages(MASK);
        let (first, second) = (messages.pass(1 << 20), messages.pass(8));
        assert_eq!((first, second), (0, 0), "both lie before the first message");
        assert_eq!(messages.pass_message(8), 0);
        assert_eq!(messages.pass(8), 1);
        // The peer has taken no message, and one.
        assert!(!was_done(first, MASK) && was_done(first, 0) && !was_done(1, 0));
    }

    #[test]
    fn what_lies_before_the_next_packet_was_done() {
        for next in [0, 5, MASK] {
            assert!(was_done(next, next));
            assert!(was_done(next.wrapping_sub(3) & MASK, next));
            assert!(!was_done(next.wrapping_add(1) & MASK, next));
        }
    }
}
