//! The coordinator of a job that something else has started, with anybody at the other end of its connections; and the texts by
//! which ranks come to it.
//!
//! What must hold: no panic; nothing of a connection counts before its proof; only ranks are spoken to as such, and each is told of
//! a death once; a connection that is over is never spoken of again; what cannot be read leads to an error.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use longarm_control::arrival::{Arrival, Layout, Met};
use longarm_control::coordinator::{Coordinator, Effect, Settings};
use longarm_control::invitation::{INVITATION_BYTES_MAX, Invitation};
use longarm_control::messages::{CONTROL_VERSION, FromRank, NodeCard, ToRank};
use longarm_control::proof::{CHALLENGE_BYTES, PROOF_BYTES, RankProof, RankWelcome, Ticket};

use crate::choices::{Choices, Script};

const RANKS_MAX: u8 = 5;
const HALF_OPEN_MAX: usize = 4;

/// Plays the choices.
pub fn coordinator(data: &[u8]) {
    let mut choices = Choices::new(data);
    let size = 1 + u32::from(choices.byte() % RANKS_MAX);
    let mut play = Play::new(size, choices.byte().is_multiple_of(2));
    while !choices.is_over() {
        let place = usize::from(choices.byte());
        match choices.byte() % 12 {
            0 => play.connect(),
            1 => play.say(place, choices.bytes()),
            2 => play.hello(place, u32::from(choices.byte() % RANKS_MAX)),
            3 => play.prove(place),
            4 => play.say_line(place, &arrival(&mut choices)),
            5 => play.say_line(place, &message(&mut choices)),
            6 => play.hang_up(place),
            7 => play.wait(u64::from(choices.short())),
            8 => play.ask(choices.byte().is_multiple_of(2)),
            // The straight way of a rank, so that a fuzzer finds what lies behind it.
            9 => play.come(u32::from(choices.byte() % RANKS_MAX), &arrival(&mut choices)),
            10 => play.deaf(place),
            _ => play.say_line(place, &FromRank::Join { version: CONTROL_VERSION, pid: 1 }),
        }
    }
    play.end();
}

fn arrival(choices: &mut Choices<'_>) -> Arrival {
    let machine = choices.byte();
    Arrival {
        version: CONTROL_VERSION + u32::from(machine == 255),
        machine: format!("m{}", machine % 3),
        host: format!("h{}", machine % 3),
        pid: 7,
        processors: vec![u32::from(machine), 0],
        nodes: u64::from(choices.byte()),
    }
}

fn message(choices: &mut Choices<'_>) -> FromRank {
    match choices.byte() % 8 {
        0 => FromRank::Join { version: CONTROL_VERSION, pid: 1 },
        1 => {
            let node = u32::from(choices.byte() % 4);
            FromRank::Publish {
                card: NodeCard {
                    node,
                    server_pid: 1,
                    host: String::new(),
                    address: "a:1".to_owned(),
                    door: "d".to_owned(),
                },
            }
        }
        2 => FromRank::Fetch { first: u32::from(choices.byte() % 4), count: u32::from(choices.byte()) },
        3 => FromRank::Abort { reason: "on purpose".to_owned(), status: i32::from(choices.byte()) },
        4 => FromRank::Waits { inquiry: u64::from(choices.byte() % 4), waits: Vec::new() },
        5 => FromRank::Orphaned,
        6 => FromRank::CannotReach { node: u32::from(choices.byte() % 4), how: "on purpose".to_owned() },
        _ => FromRank::Leave { traffic: Vec::new(), network: Vec::new() },
    }
}

/// The other end of a connection, as far as it follows the rules.
enum Peer {
    Fresh,
    Greeted(RankProof),
    Challenged(RankWelcome, [u8; PROOF_BYTES]),
    Proving(RankWelcome),
    Proven,
}

struct Play {
    coordinator: Coordinator,
    ticket: Ticket,
    now: Instant,
    peers: BTreeMap<u64, (Peer, Vec<u8>)>,
    /// Who was told of whose death.
    told: BTreeSet<(u64, u32)>,
    ended: usize,
}

/// A job of this ticket, in which so many connections without a proof are kept.
pub(crate) fn settings(ticket: &Ticket, survivors_go_on: bool, half_open_max: usize) -> Settings {
    Settings {
        ticket: ticket.clone(),
        job: 9,
        survivors_go_on,
        arrival: Duration::from_secs(30),
        proof: Duration::from_secs(2),
        half_open_max,
        report: Duration::from_millis(700),
        watchdog_s: 10,
        pid: 1,
        command: "program".to_owned(),
        is_stopped: |_| false,
    }
}

impl Play {
    fn new(size: u32, survivors_go_on: bool) -> Play {
        let (ticket, now) = (Ticket { assembly: 5, size, secret: [3; 32] }, Instant::now());
        let settings = settings(&ticket, survivors_go_on, HALF_OPEN_MAX);
        let coordinator = Coordinator::new(settings, now);
        Play { coordinator, ticket, now, peers: BTreeMap::new(), told: BTreeSet::new(), ended: 0 }
    }

    fn number(&self, place: usize) -> Option<u64> {
        self.peers.keys().nth(place % self.peers.len().max(1)).copied()
    }

    fn connect(&mut self) {
        let half_open = self.peers.values().filter(|(peer, _)| !matches!(peer, Peer::Proven)).count();
        if let Some(number) = self.coordinator.handle_connection([1; 32], self.now) {
            assert!(half_open < HALF_OPEN_MAX, "those without a proof are few");
            assert!(self.peers.insert(number, (Peer::Fresh, Vec::new())).is_none(), "each has a number of its own");
        }
    }

    fn say(&mut self, place: usize, bytes: &[u8]) {
        let Some(number) = self.number(place) else { return };
        self.coordinator.handle_bytes(number, bytes, self.now);
        self.hear();
    }

    fn say_line(&mut self, place: usize, message: &impl serde::Serialize) {
        let mut line = serde_json::to_vec(message).expect("a message can be written");
        line.push(b'\n');
        self.say(place, &line);
    }

    fn hello(&mut self, place: usize, rank: u32) {
        let Some(number) = self.number(place) else { return };
        let (proof, hello) = RankProof::start(&self.ticket, rank, [2; 32]);
        if let Some((peer @ Peer::Fresh, _)) = self.peers.get_mut(&number) {
            *peer = Peer::Greeted(proof);
        }
        self.say(place, &hello);
    }

    fn prove(&mut self, place: usize) {
        let Some(number) = self.number(place) else { return };
        let Some((peer, _)) = self.peers.get_mut(&number) else { return };
        match std::mem::replace(peer, Peer::Fresh) {
            Peer::Challenged(welcome, proof) => {
                *peer = Peer::Proving(welcome);
                self.say(place, &proof);
            }
            other => *peer = other,
        }
    }

    fn come(&mut self, rank: u32, arrival: &Arrival) {
        let before = self.peers.len();
        self.connect();
        if self.peers.len() > before {
            let last = self.peers.len() - 1;
            self.hello(last, rank);
            self.prove(last);
            self.say_line(last, arrival);
        }
    }

    fn hang_up(&mut self, place: usize) {
        let Some(number) = self.number(place) else { return };
        self.peers.remove(&number);
        self.coordinator.handle_hang_up(number, self.now);
        self.hear();
    }

    fn deaf(&mut self, place: usize) {
        let Some(number) = self.number(place) else { return };
        self.coordinator.handle_deaf(number, 1 << 26, self.now);
        self.hear();
    }

    fn wait(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
        self.coordinator.handle_time(self.now);
        self.hear();
        assert!(self.coordinator.deadline().is_none_or(|at| at > self.now), "what was due is done");
    }

    fn ask(&mut self, is_report: bool) {
        self.coordinator.handle_question(7, is_report, self.now);
        self.hear();
    }

    fn hear(&mut self) {
        while let Some(effect) = self.coordinator.poll_effect() {
            match effect {
                Effect::Send { connection, bytes } => self.take(connection, &bytes),
                Effect::Close { connection } => drop(self.peers.remove(&connection)),
                Effect::Answer { asker, .. } => assert_eq!(asker, 7),
                Effect::End { .. } => self.ended += 1,
                Effect::Say(_) | Effect::Refused { .. } => {}
            }
        }
        assert!(self.ended <= 1, "a job ends once");
    }

    /// What a peer of ours makes of what it hears. One that has said nonsense hears nonsense.
    fn take(&mut self, number: u64, bytes: &[u8]) {
        let (peer, received) = self.peers.get_mut(&number).expect("a connection that is over is not spoken to");
        received.extend_from_slice(bytes);
        match std::mem::replace(peer, Peer::Fresh) {
            Peer::Greeted(proof) if received.len() >= CHALLENGE_BYTES => {
                let challenge = received[..CHALLENGE_BYTES].try_into().expect("there are so many");
                received.drain(..CHALLENGE_BYTES);
                if let Ok((welcome, proof)) = proof.handle_challenge(&challenge) {
                    *peer = Peer::Challenged(welcome, proof);
                }
            }
            Peer::Proving(welcome) if received.len() >= PROOF_BYTES => {
                let found = received[..PROOF_BYTES].try_into().expect("there are so many");
                received.drain(..PROOF_BYTES);
                welcome.check(&found).expect("who has proven itself is welcomed by one who knows the secret");
                *peer = Peer::Proven;
            }
            Peer::Proven => {
                *peer = Peer::Proven;
                let Some(end) = received.iter().position(|byte| *byte == b'\n') else { panic!("lines come whole") };
                let line: Vec<u8> = received.drain(..=end).collect();
                self.take_line(number, &line);
            }
            other => *peer = other,
        }
    }

    fn take_line(&mut self, number: u64, line: &[u8]) {
        if serde_json::from_slice::<Met>(line).is_ok() {
            return;
        }
        let message: ToRank = serde_json::from_slice(line).expect("what a rank is told is a message");
        match message {
            ToRank::Died { rank, .. } => assert!(self.told.insert((number, rank)), "a death is told once"),
            ToRank::Start(start) => {
                // Deaths before this world are told again.
                self.told.retain(|(told, _)| *told != number);
                assert!(start.is_sound() && start.secret.is_empty(), "a sound world, whose secret did not travel");
            }
            _ => {}
        }
    }

    fn end(&mut self) {
        while !self.peers.is_empty() {
            self.hang_up(0);
        }
        self.wait(31_000);
    }
}

/// Takes the bytes for the texts by which ranks come together.
pub fn invitation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let size = u32::from(choices.byte());
    let kind = choices.byte() % 3;
    match kind {
        0 => {
            let text = String::from_utf8_lossy(choices.rest());
            if let Ok(invitation) = Invitation::read(&text, size) {
                let again = Invitation::read(&invitation.write(), size).expect("what was read can be written");
                assert_eq!((&again.ticket, again.at.first()), (&invitation.ticket, invitation.at.first()));
            }
            assert!(Invitation::write_refusal(&text).len() <= INVITATION_BYTES_MAX);
        }
        1 => {
            if let Ok(arrival) = Arrival::read(choices.rest()) {
                let line = serde_json::to_vec(&arrival).expect("an arrival can be written");
                assert_eq!(Arrival::read(&line), Ok(arrival));
            }
        }
        _ => {
            let nodes = choices.word();
            let mut arrivals = Vec::new();
            while !choices.is_over() && arrivals.len() < 64 {
                arrivals.push(arrival(&mut choices));
            }
            if !arrivals.is_empty() {
                check_layout(&arrivals, nodes);
            }
        }
    }
}

fn check_layout(arrivals: &[Arrival], nodes: u64) {
    let Layout { plan, processors } = Layout::of(arrivals, nodes);
    assert_eq!(plan.node_of_rank.len(), arrivals.len());
    assert_eq!(plan.ranks_on_machines().len(), processors.len());
    assert!(plan.node_of_rank.iter().copied().collect::<BTreeSet<_>>().into_iter().eq(0..plan.nodes), "no gap");
    for (rank, arrival) in (0..).zip(arrivals) {
        for (other, beside) in (0..).zip(arrivals) {
            let same = plan.machine_of(rank) == plan.machine_of(other);
            assert_eq!(same, arrival.machine == beside.machine, "machines are told apart by what ranks say of them");
        }
    }
}

/// Jobs that come together and end, and some that do not.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let job = |size: u8, policy: u8| Script::default().byte(size - 1).byte(policy);
    let come = |script: Script, rank: u8, machine: u8| script.byte(0).byte(9).byte(rank).byte(machine).byte(1);
    let join = |script: Script, place: u8| script.byte(place).byte(11);
    let say = |script: Script, place: u8, kind: u8| script.byte(place).byte(5).byte(kind);
    let two = |policy: u8| join(join(come(come(job(2, policy), 0, 0), 1, 1), 0), 1);
    vec![
        ("two_come_and_leave", say(say(two(1), 0, 5), 1, 5).written()),
        ("one_dies", two(1).byte(1).byte(6).byte(0).byte(7).short(800).written()),
        ("one_dies_and_the_other_goes_on", say(two(0).byte(1).byte(6), 0, 5).written()),
        ("one_aborts", say(two(1), 1, 3).byte(9).written()),
        ("they_leave_and_join_again", join(join(say(say(two(1), 0, 5), 1, 5), 0), 1).written()),
        ("a_card_is_asked_for", say(say(two(1), 0, 2).byte(1), 1, 1).byte(1).written()),
        ("one_is_missing", come(job(3, 1), 0, 0).byte(0).byte(7).short(31_000).written()),
        ("two_come_as_one", come(come(job(3, 1), 0, 0), 0, 0).written()),
        ("one_of_another_release", come(job(2, 1), 0, 255).written()),
        ("a_stranger", job(2, 1).byte(0).byte(0).byte(0).byte(1).bytes(b"GET / HTTP/1.1\r\n\r\n").written()),
        ("a_proof_too_late", job(2, 1).byte(0).byte(0).byte(0).byte(2).byte(1).byte(0).byte(7).short(2001).written()),
        ("somebody_asks", two(1).byte(0).byte(8).byte(0).byte(0).byte(8).byte(1).byte(0).byte(7).short(1100).written()),
        ("nonsense_of_a_rank", two(1).byte(1).byte(1).bytes(b"nonsense\n").written()),
    ]
}

/// A text of each kind.
pub(crate) fn invitation_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let ticket = Ticket { assembly: 5, size: 4, secret: [7; 32] };
    let at = vec!["127.0.0.1:1".parse().expect("an address"), "[::1]:2".parse().expect("an address")];
    let text = Invitation { ticket, at }.write();
    let line = b"{\"version\":3,\"machine\":\"m\",\"host\":\"h\",\"pid\":1,\"processors\":[0,1],\"nodes\":1}";
    vec![
        ("invitation", Script::default().byte(4).byte(0).plain(text.as_bytes()).written()),
        ("refusal", Script::default().byte(4).byte(0).plain(Invitation::write_refusal("no").as_bytes()).written()),
        ("arrival", Script::default().byte(4).byte(1).plain(line).written()),
        ("layout", Script::default().byte(4).byte(2).word(2).bytes(&[1, 2, 0]).byte(0).byte(1).written()),
    ]
}
