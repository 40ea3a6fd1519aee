//! A node's whole server against peers that have proven themselves: well-formed requests, slightly broken ones, cut
//! anywhere, from several connections at once.
//!
//! What must hold: no panic; no byte changes that no sound request named, in a window or between windows; every reply is
//! one that an initiator accepts, and refuses exactly what the rules of the wire refuse; who broke the protocol is hung
//! up on, and nobody else is; a link that breaks anywhere loses nothing and lets nothing be done twice; what waits to be
//! sent is bounded; mail arrives as it was sent; and in the end a newcomer is served.

mod again;
mod ask;
mod calls;
mod peer;
mod reference;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use longarm_proto::Rank;
use longarm_shm::Popped;

use self::peer::Peer;
use self::reference::{COUNTED, FREED, LIVE, OF_FRIEND};
use crate::choices::{Choices, Script};
use crate::node::{Memory, Node};
use crate::wire::End;

/// The rank of the first peer; each next one is one higher.
const FIRST_PEER: Rank = Rank(2);
const PEERS_MAX: u8 = 4;
/// Callers that never prove themselves, at most.
const STRANGERS_MAX: usize = 4;
/// Bytes that the server may copy for replies to one connection: 256 KiB, and what one more step adds to it.
const REPLY_BYTES_MAX: usize = (256 << 10) + (64 << 10);
/// Bytes that a link holds at most.
const LINK_BYTES_MAX: usize = 64 << 10;
/// Rounds after which a play that still moves does not come to rest any more.
const ROUNDS_MAX: u32 = 1 << 20;

thread_local! {
    /// The server of this thread, between two plays.
    static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
}

/// Plays the choices.
pub fn responder(data: &[u8]) {
    let mut choices = Choices::new(data);
    // A play that panics takes its server with it.
    let stage = STAGE.take().unwrap_or_else(Stage::new);
    let mut play = Play::new(stage, &mut choices);
    while !choices.is_over() {
        play.step(&mut choices);
    }
    STAGE.set(Some(play.finish()));
}

/// The server and its windows.
struct Stage {
    node: Node,
    windows: [Memory; 3],
}

impl Stage {
    fn new() -> Stage {
        let mut node = Node::new();
        let visitor = node.visitor();
        let windows = LIVE.map(|name| Memory::new(node.create(&visitor, name)));
        node.create(&visitor, FREED);
        node.free(&visitor, FREED);
        Stage { node, windows }
    }
}

struct Play {
    node: Node,
    windows: [Memory; 3],
    peers: Vec<Peer>,
    strangers: Vec<End>,
    /// What has come for the rank that lives, by sender.
    mail: Vec<(Rank, Vec<u8>)>,
}

impl Play {
    fn new(stage: Stage, choices: &mut Choices<'_>) -> Play {
        let Stage { mut node, windows } = stage;
        node.plays += 1;
        let count = 2 + choices.byte() % (PEERS_MAX - 1);
        let piece_bytes = choices.pick(&[4096, 1, 3, 32, 64, 100, 1000, 70_000]);
        let capacity_bytes = choices.pick(&[1 << 16, 1, 32, 100, 1000, 20_000]);
        let ranks = (FIRST_PEER.0..).map(Rank).take(count.into());
        let peers = ranks.map(|rank| Peer::meet(&mut node, rank, (piece_bytes, capacity_bytes))).collect();
        Play { node, windows, peers, strangers: Vec::new(), mail: Vec::new() }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let number = usize::from(choices.byte()) % self.peers.len();
        let what = choices.byte();
        let Play { node, windows, peers, strangers, .. } = self;
        let peer = &mut peers[number];
        match what % 16 {
            0..=7 => peer.ask(windows, choices),
            8 => peer.ask_again(windows, choices.byte()),
            9 => peer.say(windows, choices.bytes()),
            10 => drop(peer.hear()),
            11 => {
                self.drain_inbox();
            }
            12 => peer.leave(choices.byte()),
            13 if strangers.len() < STRANGERS_MAX => {
                let mut stranger = node.porch.call(64, 64);
                stranger.say(choices.bytes());
                strangers.push(stranger);
            }
            14 => self.step_of_session(number, choices),
            _ => {
                for _ in 0..=what >> 6 {
                    self.turn();
                }
            }
        }
    }

    /// What has to do with sessions: reports, sums, calls, ends.
    fn step_of_session(&mut self, number: usize, choices: &mut Choices<'_>) {
        let Play { node, windows, peers, .. } = self;
        let peer = &mut peers[number];
        match choices.byte() % 8 {
            0 => peer.report(windows, choices),
            1 | 2 => peer.add(windows, choices.byte() % 128),
            3 => peer.lose_link(choices.byte()),
            4 | 5 => peer.call_again(node, choices),
            6 => peer.take_leave(windows),
            _ => {
                node.let_sessions_end();
                for peer in peers.iter_mut().filter(|peer| peer.link.is_none()) {
                    peer.may_be_gone = true;
                }
            }
        }
    }

    fn turn(&mut self) -> bool {
        let progress = self.node.turn();
        let waiting = self.node.engine.census().reply_bytes_waiting_max;
        // Who calls again may want once more what it has heard, or what was on its way.
        let again = self.peers.iter().filter(|peer| peer.calls > 0).map(|peer| peer.heard_bytes as usize).max();
        let bound = REPLY_BYTES_MAX + again.map_or(0, |heard| heard + LINK_BYTES_MAX);
        assert!(waiting <= bound, "{waiting} bytes of replies wait for one connection");
        progress
    }

    /// Everybody reads everything until nothing moves.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut moved = self.turn() | self.drain_inbox();
            for peer in &mut self.peers {
                moved |= peer.hear();
            }
            if !moved {
                return;
            }
        }
        panic!("the server comes to rest when nobody asks for more");
    }

    /// The rank that lives reads its mail. True if there was any.
    fn drain_inbox(&mut self) -> bool {
        let mut any = false;
        let mail = &mut self.mail;
        while let Popped::Taken = self.node.segment.try_pop(0, &mut |head, payload| {
            let from = Rank(head.source);
            let known = mail.iter().position(|(sender, _)| *sender == from).unwrap_or_else(|| {
                mail.push((from, Vec::new()));
                mail.len() - 1
            });
            let bytes = &mut mail[known].1;
            let at = bytes.len();
            bytes.resize(at + payload.len(), 0);
            payload.copy_to_slice(&mut bytes[at..]);
        }) {
            any = true;
        }
        any
    }

    /// Looks at what it came to, and leaves the server as it was.
    fn finish(mut self) -> Stage {
        let Play { node, peers, .. } = &mut self;
        for peer in peers.iter_mut().filter(|peer| peer.link.is_none() && !peer.has_left) {
            let heard_bytes = peer.heard_bytes;
            peer.resume(node, heard_bytes);
        }
        self.settle();
        self.assert_sums();
        for peer in &self.peers {
            peer.assert_served();
            let mail = self.mail.iter().find(|(sender, _)| *sender == peer.rank).map_or(&[][..], |(_, mail)| mail);
            peer.assert_mail(mail);
        }
        for (sender, _) in &self.mail {
            assert!(self.peers.iter().any(|peer| peer.rank == *sender), "mail comes from who has sent some");
        }
        let rank = Rank(FIRST_PEER.0 + u32::from(PEERS_MAX));
        let mut newcomer = Peer::meet(&mut self.node, rank, (4096, 4096));
        newcomer.assert_put_and_get(&mut self.node, &mut self.windows, OF_FRIEND);
        self.windows.iter().for_each(Memory::assert_rest_untouched);
        let sessions: BTreeSet<(Rank, u64)> = self.peers.iter().chain([&newcomer]).flat_map(Peer::sessions).collect();
        drop((newcomer, self.peers, self.strangers));
        self.node.settle();
        for (rank, number) in sessions {
            calls::sweep(&mut self.node, rank, number);
        }
        assert_eq!(self.node.engine.census().connections, 0, "who has hung up is forgotten");
        self.windows.iter_mut().for_each(Memory::restore);
        Stage { node: self.node, windows: self.windows }
    }
}

/// Where several have added to a word it does not matter who did.
type Words<'a> = BTreeMap<(usize, u64), (i64, Vec<&'a Peer>)>;

impl Play {
    /// What was added in the counted window was added once.
    fn assert_sums(&self) {
        let mut words = Words::new();
        for peer in &self.peers {
            for (place, added) in &peer.sums().added {
                let (sum, of) = words.entry(*place).or_default();
                *sum = sum.wrapping_add(*added);
                of.push(peer);
            }
        }
        let counted = LIVE.iter().position(|name| *name == COUNTED).expect("it is there");
        for ((part, offset), (sum, of)) in words {
            let spoiled = self.peers.iter().any(|peer| peer.sums().spoiled.contains(&(part, offset)));
            if !spoiled && of.iter().all(|peer| peer.is_complete()) {
                let found = self.windows[counted].word(part, offset);
                assert_eq!(found, sum, "part {part}, offset {offset}: all is added, and nothing twice");
            }
        }
    }
}

/// Conversations that reach every kind of request and every way to break one.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let play = |piece, capacity| Script::default().byte(0).byte(piece).byte(capacity);
    let all = (0..10_u8).fold(play(0, 0), |script, kind| ask::simple(script, 0, kind)).byte(0).byte(0xff);
    let cut = (0..10_u8).fold(play(1, 1), |script, kind| ask::simple(script, kind % 2, kind)).byte(0).byte(0xff);
    let mut seeds = vec![("each_kind", all.written()), ("each_kind_cut", cut.written())];
    for (name, flaw) in ask::FLAWS {
        let script = ask::flawed(ask::simple(play(3, 0), 0, 0), 0, flaw);
        seeds.push((name, ask::simple(script, 1, 1).written()));
    }
    let lock = |script, peer, kind| ask::simple(script, peer, kind).byte(0).byte(0xff);
    let queue =
        [(0, 5), (1, 5), (0, 7), (1, 7)].into_iter().fold(play(0, 0), |script, (peer, kind)| lock(script, peer, kind));
    seeds.push(("a_mutex_goes_round", queue.written()));
    let left = lock(lock(play(0, 0), 0, 5), 1, 5).byte(1).byte(12).byte(0);
    seeds.push(("a_waiter_leaves", lock(left, 0, 7).written()));
    let flood = ask::simple(play(7, 1), 0, 1).byte(0).byte(8).byte(60);
    seeds.push(("replies_that_nobody_reads", flood.byte(0).byte(0xff).byte(0).byte(0xff).written()));
    let mail = ask::simple(play(7, 0), 0, 8).byte(0).byte(8).byte(200).byte(0).byte(0xff);
    seeds.push(("mail_that_nobody_reads", ask::simple(mail, 1, 4).written()));
    let stranger = ask::simple(play(0, 0), 0, 0).byte(0).byte(13).bytes(b"GET / HTTP/1.1\r\n\r\n").byte(0).byte(0xff);
    let session = |script: Script, peer: u8, what: u8| script.byte(peer).byte(14).byte(what);
    for (name, call, way) in again::seeds() {
        // Half of it has arrived when the link breaks, in one way or the other.
        let adds = session(session(play(3, 2), 0, 1).byte(0), 0, 1).byte(9).byte(0).byte(0xff);
        let heard = session(adds.byte(0).byte(10), 0, 0).byte(0).byte(0).byte(0xff);
        let broken = call(session(session(heard, 0, 1).byte(100).byte(0).byte(15), 0, 4), way | (way & 3) << 3);
        seeds.push((name, session(ask::simple(broken, 0, 1), 0, 1).byte(0).written()));
    }
    let mail = ask::simple(play(3, 1), 0, 8).byte(0).byte(15);
    seeds.push(("mail_over_two_links", session(session(mail, 0, 3).byte(0), 0, 4).byte(0).written()));
    let gone = session(session(session(play(0, 0), 0, 1).byte(0), 0, 3).byte(0).byte(0).byte(0xff), 0, 7);
    seeds.push(("called_too_late", session(gone.byte(0).byte(0xff), 0, 4).byte(0).written()));
    seeds.push(("a_leave", ask::simple(session(ask::simple(play(0, 0), 0, 0), 0, 6), 0, 0).written()));
    seeds.push(("a_report_that_cannot_be", session(play(0, 0), 0, 0).byte(240).written()));
    seeds.push(("a_stranger_calls", ask::simple(stranger, 0, 4).written()));
    seeds
}
