//! Numbers of packets: which requests a peer's queue has done when it ended, as told by the packet that it would have
//! taken next.

const MASK: u32 = 0x00ff_ffff;

/// The next packet of a connection's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packets {
    next: u32,
    payload_bytes: u64,
}

impl Packets {
    /// Numbers from `first` on, for packets that carry so much.
    pub(crate) fn new(first: u32, mtu_code: u8) -> Packets {
        Packets { next: first & MASK, payload_bytes: 128 << u32::from(mtu_code) }
    }

    /// Counts a request of so many bytes; a read takes as many numbers as its answer has packets. Returns the number behind it.
    pub(crate) fn pass(&mut self, bytes: u64) -> u32 {
        let packets = bytes.div_ceil(self.payload_bytes).max(1);
        self.next = self.next.wrapping_add(packets as u32) & MASK;
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
    fn what_lies_before_the_next_packet_was_done() {
        for next in [0, 5, MASK] {
            assert!(was_done(next, next));
            assert!(was_done(next.wrapping_sub(3) & MASK, next));
            assert!(!was_done(next.wrapping_add(1) & MASK, next));
        }
    }
}
