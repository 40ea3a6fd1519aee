//! The turns of a relay's thread.

use std::time::Instant;

use super::lines::{Heard, Lines};
use super::sockets::{CHUNK_BYTES, Readiness, Sockets, UNSENT_BYTES_MAX};
use crate::frames::FrameError;
use crate::relay::{Effect, LAST, Relay};

/// The number of the connection that leads to the coordinator. Those of members are below 2^32.
pub const COORDINATOR: u64 = 1 << 32;
/// With so much waiting for the coordinator, no more is heard of the members.
const TO_COORDINATOR_BYTES_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct RelayDesk {
    relay: Relay,
    /// In whose process it is.
    rank: u32,
    /// That to the coordinator, until it has ended.
    up: Lines,
    members: Lines,
    /// More may have come than was read.
    has_more: bool,
}

impl RelayDesk {
    /// A relay in the process of a rank, for so many members at a time. Its connection to the coordinator is there.
    pub fn new(rank: u32, members_max: usize) -> RelayDesk {
        let (relay, members) = (Relay::new(members_max), Lines::default());
        let mut up = Lines::default();
        up.insert(COORDINATOR);
        RelayDesk { relay, rank, up, members, has_more: false }
    }

    /// A member has connected, and is greeted with the rank that the relay is in. `add` keeps its connection under the number that it gets; it is not called
    /// where there are too many.
    ///
    /// # Errors
    /// That of `add`.
    pub fn take_in<S: Sockets, E>(
        &mut self,
        sockets: &mut S,
        add: impl FnOnce(&mut S, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.is_cut_off() {
            return Ok(());
        }
        let Some(member) = self.relay.handle_member() else { return Ok(()) };
        if let Err(error) = add(sockets, u64::from(member)) {
            self.relay.handle_hang_up(member);
            self.do_effects(sockets);
            return Err(error);
        }
        self.members.insert(u64::from(member));
        self.members.queue(u64::from(member), &self.rank.to_le_bytes());
        self.send(sockets, member);
        self.do_effects(sockets);
        Ok(())
    }

    /// A turn begins.
    pub fn begin_turn(&mut self) {
        self.has_more = false;
    }

    /// Something is to be done about a connection.
    ///
    /// # Errors
    /// When the coordinator says what nobody understands: it counts as gone.
    pub fn handle_ready(
        &mut self,
        sockets: &mut impl Sockets,
        number: u64,
        ready: Readiness,
    ) -> Result<(), FrameError> {
        let mut understood = Ok(());
        if number == COORDINATOR {
            if ready.writable {
                self.send_to_coordinator(sockets);
            }
            if ready.readable {
                understood = self.hear_coordinator(sockets);
            }
        } else {
            let member = number as u32;
            if ready.writable {
                self.send(sockets, member);
            }
            if ready.readable {
                self.hear(sockets, member);
            }
        }
        self.do_effects(sockets);
        understood
    }

    /// Ends a turn: what members said goes to the coordinator together.
    pub fn end_turn(&mut self, sockets: &mut impl Sockets) {
        self.send_to_coordinator(sockets);
        let now = sockets.now();
        self.members.handle_time(sockets, now);
    }

    /// The relay's process wants it so, or rank 0 is gone, or has cut this relay off: all members are told that it is not this process that has ended
    /// by itself.
    pub fn end(&mut self, sockets: &mut impl Sockets) {
        self.do_effects(sockets);
        self.send_to_coordinator(sockets);
        self.up.remove(sockets, COORDINATOR);
        self.members.numbers().into_iter().for_each(|member| self.close(sockets, member as u32));
    }

    /// Whether the coordinator is gone: nobody is taken in any more.
    pub fn is_cut_off(&self) -> bool {
        self.up.is_empty()
    }

    /// Whether nobody is behind the relay.
    pub fn is_alone(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether something could not be sent yet, or was not read.
    pub fn is_behind(&self) -> bool {
        self.has_more || self.up.are_behind() || self.members.are_behind()
    }

    /// When a turn is due without anything else happening.
    pub fn deadline(&self) -> Option<Instant> {
        self.members.deadline()
    }

    fn hear_coordinator(&mut self, sockets: &mut impl Sockets) -> Result<(), FrameError> {
        match self.up.read(sockets, COORDINATOR, &mut [0; CHUNK_BYTES]) {
            Heard::Nothing => {}
            Heard::Bytes(bytes) => {
                self.has_more |= bytes.len() == CHUNK_BYTES;
                let understood = self.relay.handle_root_bytes(bytes);
                if understood.is_err() {
                    self.end(sockets);
                }
                return understood;
            }
            Heard::End => self.end(sockets),
        }
        Ok(())
    }

    fn hear(&mut self, sockets: &mut impl Sockets, member: u32) {
        match self.members.read(sockets, u64::from(member), &mut [0; CHUNK_BYTES]) {
            Heard::Nothing => {}
            Heard::Bytes(bytes) => {
                self.has_more |= bytes.len() == CHUNK_BYTES;
                self.relay.handle_bytes(member, bytes);
            }
            Heard::End => self.relay.handle_hang_up(member),
        }
    }

    fn do_effects(&mut self, sockets: &mut impl Sockets) {
        while let Some(effect) = self.relay.poll_effect() {
            match effect {
                Effect::ToCoordinator(bytes) => self.up.queue(COORDINATOR, &bytes),
                Effect::ToMember { member, bytes } => {
                    self.members.queue(u64::from(member), &bytes);
                    self.send(sockets, member);
                }
                Effect::Close { member } => self.close(sockets, member),
            }
        }
        if self.up.waiting(COORDINATOR) > TO_COORDINATOR_BYTES_MAX {
            self.send_to_coordinator(sockets);
        }
    }

    fn send_to_coordinator(&mut self, sockets: &mut impl Sockets) {
        let was_full = self.up.waiting(COORDINATOR) > TO_COORDINATOR_BYTES_MAX;
        let is_full = self.up.send(sockets, COORDINATOR) > TO_COORDINATOR_BYTES_MAX;
        if was_full || is_full {
            self.members.hold(sockets, is_full);
        }
    }

    /// In good order.
    fn close(&mut self, sockets: &mut impl Sockets, member: u32) {
        self.members.queue(u64::from(member), &[LAST]);
        self.members.close(sockets, u64::from(member));
    }

    fn send(&mut self, sockets: &mut impl Sockets, member: u32) {
        let waiting = self.members.send(sockets, u64::from(member));
        if waiting > UNSENT_BYTES_MAX {
            self.relay.handle_deaf(member, waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::mock::MockSockets;
    use crate::desk::sockets::FLUSH;
    use crate::frames::Decoder;
    use crate::relay::{FromRelay, ToRelay};

    const BOTH: Readiness = Readiness { readable: true, writable: true };

    /// A relay in rank 5 with one member, number 0.
    fn desk() -> (RelayDesk, MockSockets) {
        let (mut desk, mut sockets) = (RelayDesk::new(5, 1), MockSockets::new());
        take_in(&mut desk, &mut sockets);
        (desk, sockets)
    }

    fn take_in(desk: &mut RelayDesk, sockets: &mut MockSockets) -> bool {
        let mut is_in = false;
        let added = desk.take_in(sockets, |_, _| {
            is_in = true;
            Ok::<_, ()>(())
        });
        added.expect("a mock takes all");
        is_in
    }

    fn turn(desk: &mut RelayDesk, sockets: &mut MockSockets, number: u64) {
        desk.begin_turn();
        desk.handle_ready(sockets, number, BOTH).unwrap();
        desk.end_turn(sockets);
    }

    /// What the coordinator was told.
    fn told(sockets: &mut MockSockets) -> Vec<FromRelay> {
        let mut decoder = Decoder::default();
        decoder.feed(&std::mem::take(&mut sockets.of(COORDINATOR).sent));
        std::iter::from_fn(|| decoder.next_frame().unwrap()).collect()
    }

    #[test]
    fn a_member_is_greeted_and_one_too_many_is_not_taken_in() {
        let (mut desk, mut sockets) = desk();
        assert_eq!(sockets.of(0).sent, 5_u32.to_le_bytes());
        assert!(!take_in(&mut desk, &mut sockets));
        sockets.of(0).incoming = b"hi".to_vec();
        turn(&mut desk, &mut sockets, 0);
        let said = FromRelay::Bytes { member: 0, bytes: b"hi".to_vec() };
        assert_eq!(told(&mut sockets), [FromRelay::Member { member: 0 }, said]);
        sockets.of(0).has_ended = true;
        turn(&mut desk, &mut sockets, 0);
        assert!(desk.is_alone() && take_in(&mut desk, &mut sockets));
        assert_eq!(told(&mut sockets), [FromRelay::Gone { member: 0 }]);
    }

    #[test]
    fn of_members_no_more_is_heard_than_rank_0_takes_and_the_rest_when_it_takes_it() {
        let (mut desk, mut sockets) = desk();
        sockets.of(COORDINATOR).room = 100;
        let mut said = 0;
        while sockets.of(0).watched.readable {
            sockets.of(0).incoming = vec![7; CHUNK_BYTES];
            said += CHUNK_BYTES;
            turn(&mut desk, &mut sockets, 0);
            assert!(said < 64 << 20, "nothing bounds what waits");
        }
        let waiting = desk.up.waiting(COORDINATOR);
        assert!(
            waiting > TO_COORDINATOR_BYTES_MAX && waiting <= TO_COORDINATOR_BYTES_MAX + CHUNK_BYTES + 256,
            "{waiting} bytes wait"
        );
        assert!(desk.is_behind() && sockets.of(COORDINATOR).watched.writable);
        sockets.of(COORDINATOR).room = usize::MAX;
        turn(&mut desk, &mut sockets, COORDINATOR);
        assert!(sockets.of(0).watched.readable && !desk.is_behind());
        let bytes = |frame| if let FromRelay::Bytes { bytes, .. } = frame { bytes.len() } else { 0 };
        assert_eq!(told(&mut sockets).into_iter().map(bytes).sum::<usize>(), said);
    }

    #[test]
    fn a_member_that_takes_nothing_is_let_go_of_and_rank_0_told_how_much_waits() {
        const MESSAGE_BYTES: usize = 1 << 20;
        let (mut desk, mut sockets) = desk();
        sockets.of(0).room = 0;
        let frames = ToRelay::message(0, &vec![7; MESSAGE_BYTES]);
        let deaf = loop {
            sockets.of(COORDINATOR).incoming.extend_from_slice(&frames);
            while !sockets.of(COORDINATOR).incoming.is_empty() {
                turn(&mut desk, &mut sockets, COORDINATOR);
            }
            let is_deaf = |frame| if let FromRelay::Deaf { member: 0, waiting } = frame { Some(waiting) } else { None };
            if let Some(waiting) = told(&mut sockets).into_iter().find_map(is_deaf) {
                break waiting as usize;
            }
            assert!(desk.members.waiting(0) <= UNSENT_BYTES_MAX, "nothing bounds what waits");
        };
        assert!(deaf > UNSENT_BYTES_MAX && deaf <= UNSENT_BYTES_MAX + MESSAGE_BYTES, "{deaf} bytes wait");
        assert_eq!(desk.deadline(), Some(sockets.now + FLUSH));
        sockets.pass(FLUSH);
        desk.end_turn(&mut sockets);
        assert!(sockets.of(0).is_closed && desk.is_alone());
    }

    #[test]
    fn whoever_is_left_at_the_end_hears_that_it_is_one_in_good_order() {
        for is_hang_up in [true, false] {
            let (mut desk, mut sockets) = desk();
            sockets.of(0).sent.clear();
            if is_hang_up {
                sockets.of(COORDINATOR).has_ended = true;
            } else {
                sockets.of(COORDINATOR).incoming = vec![255; 64];
            }
            let understood = desk.handle_ready(&mut sockets, COORDINATOR, BOTH);
            assert_eq!(understood.is_ok(), is_hang_up);
            assert_eq!((desk.is_cut_off(), desk.is_alone(), &sockets.of(0).sent[..]), (true, true, &[LAST][..]));
            assert!(sockets.of(0).is_closed && sockets.of(COORDINATOR).is_closed && !take_in(&mut desk, &mut sockets));
        }
    }
}
