//! What a relay and the coordinator say to each other: the frames, the relay with anything for a coordinator, and the coordinator with
//! anything for a relay that has proven itself.
//!
//! What must hold: no panic; how bytes are cut on their way makes no difference; nothing is done for a member that is not there; what the
//! coordinator says to a relay is frames, and none brings bytes to a member whose end it was told; a job ends once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use longarm_control::arrival::Arrival;
use longarm_control::coordinator::{Coordinator, Effect};
use longarm_control::frames::{Decoder, Frame};
use longarm_control::messages::{CONTROL_VERSION, FromRank};
use longarm_control::proof::{CHALLENGE_BYTES, Caller, RankProof, Ticket};
use longarm_control::relay::{Effect as RelayEffect, FromRelay, Relay, ToRelay};

use crate::agents::check_frames;
use crate::choices::{Choices, Script};
use crate::coordinator::settings;
use crate::inputs::Seeds;

const RANKS: u32 = 3;
const MEMBERS_MAX: usize = 3;

/// Plays the choices.
pub fn relay(data: &[u8]) {
    let mut choices = Choices::new(data);
    match choices.byte() % 4 {
        0 => drop(check_frames::<FromRelay>(choices.rest(), 3)),
        1 => drop(check_frames::<ToRelay>(choices.rest(), 3)),
        2 => play_relay(&mut choices),
        _ => Play::new(choices.byte().is_multiple_of(2)).go_on(&mut choices),
    }
}

fn play_relay(choices: &mut Choices<'_>) {
    let mut relay = Relay::new(MEMBERS_MAX);
    let mut there = BTreeSet::new();
    while !choices.is_over() {
        let member = u32::from(choices.byte() % 6);
        match choices.byte() % 6 {
            0 => {
                if let Some(member) = relay.handle_member() {
                    assert!(there.insert(member) && there.len() <= MEMBERS_MAX);
                }
            }
            1 => relay.handle_bytes(member, choices.bytes()),
            2 => {
                relay.handle_hang_up(member);
                there.remove(&member);
            }
            3 => relay.handle_deaf(member, 1 << 26),
            4 => {
                if relay.handle_root_bytes(choices.bytes()).is_err() {
                    return;
                }
            }
            _ => {
                let bytes = ToRelay::message(member, choices.bytes());
                if relay.handle_root_bytes(&bytes).is_err() {
                    return;
                }
            }
        }
        while let Some(effect) = relay.poll_effect() {
            match effect {
                RelayEffect::ToCoordinator(bytes) => assert_eq!(check_frames::<FromRelay>(&bytes, 1).len(), 1),
                RelayEffect::ToMember { member, .. } => assert!(there.contains(&member), "it is there"),
                RelayEffect::Close { member } => assert!(there.remove(&member), "it was there"),
            }
        }
    }
}

/// A coordinator, rank 0 over a connection of its own, and the relay in the process of rank 1.
struct Play {
    coordinator: Coordinator,
    ticket: Ticket,
    now: Instant,
    relay: u64,
    /// What it says is read here too, so that it is known which members there are.
    from_relay: Decoder,
    to_relay: Decoder,
    there: BTreeSet<u32>,
    /// What one of them was told last for what was said last.
    told: Vec<u8>,
    ended: usize,
    /// The coordinator has hung up.
    is_over: bool,
}

impl Play {
    fn new(survivors_go_on: bool) -> Play {
        let (ticket, now) = (Ticket { assembly: 5, size: RANKS, secret: [3; 32] }, Instant::now());
        let mut coordinator = Coordinator::new(settings(&ticket, survivors_go_on, 8), now);
        let relay = coordinator.handle_connection([1; 32], now).expect("there is room");
        let (from_relay, to_relay) = (Decoder::default(), Decoder::default());
        let (there, told) = (BTreeSet::new(), Vec::new());
        let mut play =
            Play { coordinator, ticket, now, relay, from_relay, to_relay, there, told, ended: 0, is_over: false };
        let (proof, hello) = RankProof::start_as(Caller::Relay, &play.ticket, 1, [2; 32]);
        let challenge = play.say_first(&hello).try_into().expect("a challenge has its length");
        let (welcome, proof) = proof.handle_challenge(&challenge).expect("both are of one job");
        let answer = play.say_first(&proof).try_into().expect("a welcome has its length");
        welcome.check(&answer).expect("both know the secret");
        play
    }

    /// Before there are frames.
    fn say_first(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.coordinator.handle_bytes(self.relay, bytes, self.now);
        match self.coordinator.poll_effect() {
            Some(Effect::Send { bytes, .. }) => bytes,
            other => panic!("a relay that proves itself is answered: {other:?}"),
        }
    }

    fn go_on(mut self, choices: &mut Choices<'_>) {
        while !choices.is_over() && !self.is_over {
            let member = u32::from(choices.byte() % 5);
            match choices.byte() % 8 {
                0 => self.pass(&FromRelay::Member { member }),
                1 => self.pass(&FromRelay::Bytes { member, bytes: choices.bytes().to_vec() }),
                2 => self.pass(&FromRelay::Gone { member }),
                3 => self.pass(&FromRelay::Deaf { member, waiting: 1 << 26 }),
                // One by one, so that each frame is answered before the next one.
                4 => choices.bytes().chunks(1).for_each(|byte| self.give(byte)),
                5 => self.come(member, u32::from(choices.byte()) % RANKS),
                6 => self.say(member, &FromRank::Join { version: CONTROL_VERSION, pid: 1 }),
                _ => self.say(member, &FromRank::Leave { traffic: Vec::new(), network: Vec::new() }),
            }
        }
        if !self.is_over {
            self.coordinator.handle_hang_up(self.relay, self.now);
            self.there.clear();
            self.hear();
        }
        self.now += Duration::from_secs(31);
        self.coordinator.handle_time(self.now);
        self.hear();
    }

    /// The straight way of a rank behind the relay.
    fn come(&mut self, member: u32, rank: u32) {
        self.pass(&FromRelay::Member { member });
        let (proof, hello) = RankProof::start(&self.ticket, rank, [2; 32]);
        self.pass(&FromRelay::Bytes { member, bytes: hello.to_vec() });
        let Ok(challenge) = <[u8; CHALLENGE_BYTES]>::try_from(std::mem::take(&mut self.told)) else { return };
        let Ok((_, proof)) = proof.handle_challenge(&challenge) else { return };
        self.pass(&FromRelay::Bytes { member, bytes: proof.to_vec() });
        let (machine, host) = ("m".to_owned(), "h".to_owned());
        self.say(member, &Arrival { version: CONTROL_VERSION, machine, host, pid: 7, processors: vec![0], nodes: 1 });
    }

    fn say(&mut self, member: u32, message: &impl serde::Serialize) {
        let mut bytes = serde_json::to_vec(message).expect("a message can be written");
        bytes.push(b'\n');
        self.pass(&FromRelay::Bytes { member, bytes });
    }

    fn pass(&mut self, frame: &FromRelay) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.give(&bytes);
    }

    /// Gives the coordinator what makes one frame at most.
    fn give(&mut self, bytes: &[u8]) {
        if self.is_over {
            return;
        }
        self.told.clear();
        self.from_relay.feed(bytes);
        let frame = self.from_relay.next_frame();
        match &frame {
            Ok(Some(FromRelay::Member { member })) => drop(self.there.insert(*member)),
            Ok(Some(FromRelay::Gone { member } | FromRelay::Deaf { member, .. })) => drop(self.there.remove(member)),
            _ => {}
        }
        self.coordinator.handle_bytes(self.relay, bytes, self.now);
        self.hear();
        assert!(frame.is_ok() || self.is_over, "nothing is heard of a relay behind what is no frame");
    }

    fn hear(&mut self) {
        while let Some(effect) = self.coordinator.poll_effect() {
            match effect {
                Effect::Send { connection, bytes } => {
                    assert!(connection == self.relay && !self.is_over, "nobody else is there");
                    self.to_relay.feed(&bytes);
                }
                Effect::Close { connection } => self.is_over |= connection == self.relay,
                Effect::End { .. } => self.ended += 1,
                Effect::Answer { .. } | Effect::Say(_) | Effect::Refused { .. } => {}
            }
        }
        while let Some(frame) = self.to_relay.next_frame().expect("what the coordinator says is frames") {
            match frame {
                ToRelay::Bytes { member, bytes } => {
                    assert!(self.there.contains(&member), "it is there");
                    self.told = bytes;
                }
                ToRelay::Close { member } => drop(self.there.remove(&member)),
            }
        }
        assert!(self.ended <= 1, "a job ends once");
    }
}

/// A conversation each way, a relay with members, and ranks that come through one and leave.
pub(crate) fn seeds() -> Seeds {
    let spelled = |kind: u8, bytes: &[u8]| Script::default().byte(kind).plain(bytes).written();
    let (mut from_relay, mut to_relay) = (Vec::new(), ToRelay::message(1, b"{}\n"));
    for frame in [
        FromRelay::Member { member: 1 },
        FromRelay::Bytes { member: 1, bytes: b"{}\n".to_vec() },
        FromRelay::Deaf { member: 1, waiting: 9 },
        FromRelay::Gone { member: 1 },
    ] {
        frame.encode(&mut from_relay);
    }
    ToRelay::Close { member: 1 }.encode(&mut to_relay);
    let members = Script::default().byte(2).byte(0).byte(0).byte(0).byte(0).byte(1).byte(5).bytes(b"hear");
    let members = members.byte(0).byte(1).bytes(b"say").byte(1).byte(2).byte(0).byte(3);
    let come = |script: Script, member: u8, rank: u8| script.byte(member).byte(5).byte(rank);
    let job = |policy: u8| (0..3).fold(Script::default().byte(3).byte(policy), |script, rank| come(script, rank, rank));
    let all = |script: Script, kind: u8| (0..3).fold(script, |script, member| script.byte(member).byte(kind));
    vec![
        ("from_a_relay", spelled(0, &from_relay)),
        ("to_a_relay", spelled(1, &to_relay)),
        ("longer_than_any", spelled(0, &u32::MAX.to_le_bytes())),
        ("members", members.written()),
        ("all_come_and_leave", all(all(job(0), 6), 7).written()),
        ("one_ends", all(job(0), 6).byte(2).byte(2).written()),
        ("one_hears_nothing", all(job(1), 6).byte(2).byte(3).written()),
        ("a_member_that_is_there", job(0).byte(1).byte(0).written()),
        ("nonsense", job(0).byte(0).byte(4).bytes(&[1, 0, 0, 0, 99]).written()),
    ]
}
