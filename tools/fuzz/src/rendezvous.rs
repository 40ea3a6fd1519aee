//! Ranks that say anything to their launcher, in any order, and end in any way.
//!
//! What must hold: no panic; only ranks of the job are spoken to; each is started once, hears of each death once, and is
//! let go once, after everybody has left; each hears once of a rank that cannot reach its node; who breaks the rules has failed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use longarm_control::messages::{CONTROL_VERSION, FromRank, KindTraffic, NodeCard, PeerTraffic, ToRank, Wait, Whom};

use crate::choices::{Choices, Script};
use longarm_control::how_ended::HowEnded;
use longarm_control::plan::Plan;
use longarm_control::rendezvous::{Failure, Job, Membership, Rendezvous};

const RANKS_MAX: u8 = 6;

/// Plays the choices.
pub fn rendezvous(data: &[u8]) {
    let mut choices = Choices::new(data);
    let ranks = 1 + u32::from(choices.byte() % RANKS_MAX);
    let policy = choices.byte();
    let mut job = Watched::new(ranks, 1 + u32::from(policy & 0x7f) % ranks, policy & 0x80 != 0);
    while !choices.is_over() {
        let rank = u32::from(choices.byte()) % ranks;
        match choices.byte() % 17 {
            16 => {
                let cut = FromRank::CannotReach { node: node(&mut choices), how: text(&mut choices) };
                job.hear(rank, &serde_json::to_vec(&cut).expect("a message can be written"));
            }
            15 => job.end(rank, if choices.byte() < 128 { HowEnded::Exited(0) } else { HowEnded::Killed(9) }),
            14 => job.hear(rank, choices.bytes()),
            kind => {
                if kind == 12 {
                    job.inquire();
                }
                let mut line = serde_json::to_vec(&message(kind, &mut choices)).expect("a message can be written");
                if kind == 13 {
                    let at = usize::from(choices.short()) % line.len();
                    line[at] ^= choices.byte();
                }
                job.hear(rank, &line);
            }
        }
    }
    // First those for whom the others wait.
    for rank in (0..ranks).filter(|rank| !job.left.contains(rank)).collect::<Vec<_>>() {
        job.end(rank, HowEnded::Exited(0));
    }
    let waiting = job.left.difference(&job.ended);
    assert!(waiting.into_iter().all(|rank| job.released.contains(rank)), "whoever waits is let go in the end");
    for rank in 0..ranks {
        job.end(rank, HowEnded::Exited(0));
    }
}

fn message(kind: u8, choices: &mut Choices<'_>) -> FromRank {
    match kind {
        0..=3 => FromRank::Join { version: CONTROL_VERSION + u32::from(choices.byte() == 1), pid: 1 },
        4..=6 => FromRank::Publish { card: card(choices) },
        7 | 8 => FromRank::Fetch { first: node(choices), count: choices.byte().into() },
        9 => FromRank::Abort { reason: text(choices), status: choices.word() as i32 },
        10 | 11 => FromRank::Leave { traffic: Vec::new(), network: Vec::new() },
        12 => {
            let whom = [Whom::Rank(node(choices)), Whom::HolderAt(0), Whom::Anyone][usize::from(choices.byte() % 3)];
            FromRank::Waits { inquiry: 7, waits: vec![Wait { call: text(choices), whom, waited_ms: choices.word() }] }
        }
        13 => FromRank::Orphaned,
        _ => {
            let kinds = vec![KindTraffic { operations: choices.word(), bytes: choices.word() }];
            let traffic = vec![PeerTraffic { peer: node(choices), kinds }];
            FromRank::Leave { traffic, network: vec![("puts".to_owned(), choices.word())] }
        }
    }
}

fn node(choices: &mut Choices<'_>) -> u32 {
    match choices.byte() {
        255 => u32::MAX,
        node => u32::from(node % 8),
    }
}

fn card(choices: &mut Choices<'_>) -> NodeCard {
    NodeCard {
        node: node(choices),
        server_pid: 1,
        address: "127.0.0.1:1".to_owned(),
        host: String::new(),
        door: "door".to_owned(),
    }
}

fn text(choices: &mut Choices<'_>) -> String {
    String::from_utf8_lossy(choices.bytes()).into_owned()
}

/// The launcher's half, and what has been seen of it.
struct Watched {
    rendezvous: Rendezvous,
    ranks: u32,
    survivors_go_on: bool,
    now: Instant,
    ended: BTreeSet<u32>,
    /// Who has failed, or lost its server with another.
    dead: BTreeSet<u32>,
    /// Each rank whose Leave was taken, and that has not joined again.
    left: BTreeSet<u32>,
    started: BTreeSet<u32>,
    released: BTreeSet<u32>,
    /// Who was told of whose death.
    told: BTreeSet<(u32, u32)>,
    /// Who has got which node's card in this world.
    cards: BTreeSet<(u32, u32)>,
    /// Which rank cannot reach whose node, as it was told in this world.
    cut_off: BTreeSet<(u32, u32)>,
}

impl Watched {
    fn new(ranks: u32, nodes: u32, survivors_go_on: bool) -> Watched {
        let plan = Plan::new(ranks, Some(nodes), None).expect("no more nodes than ranks");
        let job =
            Job { number: 5, secret: "ab".to_owned(), processors: vec![vec![0, 1]], stats: true, survivors_go_on };
        Watched {
            rendezvous: Rendezvous::new(plan, job),
            ranks,
            survivors_go_on,
            now: Instant::now(),
            ended: BTreeSet::new(),
            dead: BTreeSet::new(),
            left: BTreeSet::new(),
            started: BTreeSet::new(),
            released: BTreeSet::new(),
            told: BTreeSet::new(),
            cards: BTreeSet::new(),
            cut_off: BTreeSet::new(),
        }
    }

    /// A rank says a line. Nothing comes from a process that is gone.
    fn hear(&mut self, rank: u32, line: &[u8]) {
        if self.ended.contains(&rank) {
            return;
        }
        self.now += Duration::from_millis(1);
        let failure = self.rendezvous.handle_line(rank, line, self.now);
        if self.survivors_go_on && self.dead.contains(&rank) {
            assert_eq!((failure, self.rendezvous.poll_message()), (None, None), "the dead are not heard");
            assert_eq!(self.rendezvous.poll_waits(), None);
            return;
        }
        let message = serde_json::from_slice::<FromRank>(line);
        let has_left = failure.is_none() && matches!(message, Ok(FromRank::Leave { .. }));
        if has_left {
            assert!(
                self.started.contains(&rank) && self.left.insert(rank),
                "a rank leaves what it has joined, and once"
            );
        }
        assert!(message.is_ok() || failure.is_some(), "who says what is no message has failed");
        self.check(failure);
        if let Ok(FromRank::Join { version: CONTROL_VERSION, .. }) = message {
            assert!(self.started.contains(&rank), "who joins is told what the job looks like");
        }
    }

    /// Asks those who are there what they wait for.
    fn inquire(&mut self) {
        let present = self.rendezvous.present();
        self.rendezvous.inquire(&present, 7);
        self.check(None);
    }

    /// A process ends, once.
    fn end(&mut self, rank: u32, how: HowEnded) {
        if self.ended.insert(rank) {
            let failure = self.rendezvous.handle_end(rank, how);
            self.check(failure);
        }
    }

    fn check(&mut self, failure: Option<Failure>) {
        if let Some(failure) = failure {
            // Only who ends the job on purpose can end it well.
            let fits = failure.status & 0xff != 0 || (failure.status == 0 && failure.how.starts_with("is done"));
            assert!(failure.rank < self.ranks && fits && !failure.how.is_empty(), "{failure:?}");
            assert!(failure.taken_along.is_empty() || self.survivors_go_on, "{failure:?}");
            self.dead.insert(failure.rank);
            for mate in &failure.taken_along {
                assert!(*mate < self.ranks && !self.ended.contains(mate) && self.dead.insert(*mate), "{failure:?}");
            }
        }
        while let Some((rank, _, _)) = self.rendezvous.poll_waits() {
            assert!(self.started.contains(&rank), "whoever answers is part of the job");
        }
        while let Some((to, message)) = self.rendezvous.poll_message() {
            assert!(to < self.ranks);
            match message {
                ToRank::Start(start) => {
                    // Once, and again after it was let go.
                    let again = self.released.remove(&to) && self.left.remove(&to);
                    if again {
                        self.told.retain(|(told, _)| *told != to);
                        self.cards.retain(|(got, _)| *got != to);
                        self.cut_off.retain(|(told, _)| *told != to);
                    }
                    assert!((self.started.insert(to) || again) && start.rank == to && start.is_sound(), "{start:?}");
                }
                ToRank::Cards { cards } => {
                    for NodeCard { node, .. } in cards {
                        assert!(node < self.ranks);
                        assert!(self.cards.insert((to, node)), "rank {to} gets the card of node {node} once");
                    }
                }
                ToRank::Died { rank, .. } => {
                    assert_ne!(rank, to, "nobody is told of its own death");
                    assert!(self.told.insert((to, rank)), "rank {to} is told once of the death of rank {rank}");
                }
                ToRank::CannotReachYou { rank, .. } => {
                    let is_there = matches!(self.rendezvous.membership(to), Membership::Inside);
                    assert!(rank != to && rank < self.ranks && is_there, "only who is part of the job is told");
                    assert!(self.cut_off.insert((to, rank)), "rank {to} is told once of rank {rank}");
                }
                ToRank::Inquire { .. } => {
                    let is_there = matches!(self.rendezvous.membership(to), Membership::Inside | Membership::Finished);
                    assert!(is_there && self.started.contains(&to), "only who is part of the job is asked");
                }
                ToRank::Told => panic!("who is told by way of whom is the coordinator's affair"),
                ToRank::Goodbye => {
                    assert!(self.left.contains(&to) && self.released.insert(to), "let go once, after leaving");
                    let all = (0..self.ranks).all(|rank| self.left.contains(&rank) || self.ended.contains(&rank));
                    assert!(all, "nobody is let go while somebody is still part of the job");
                }
            }
        }
    }
}

/// A job that goes well, and some that do not.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let job = |ranks: u8, nodes: u8| {
        let script = Script::default().byte(ranks - 1).byte(nodes - 1);
        (0..ranks).fold(script, |script, rank| script.byte(rank).byte(0).byte(0))
    };
    let publish = |script: Script, rank: u8, node: u8| script.byte(rank).byte(4).byte(node);
    let fetch = |script: Script, rank: u8, node: u8| script.byte(rank).byte(7).byte(node);
    let leave = |script: Script, rank: u8| script.byte(rank).byte(10);
    let well = publish(fetch(publish(job(4, 2), 0, 0), 0, 1), 2, 1);
    let well = (0..4).fold(well, leave);
    let killed = fetch(job(3, 1), 1, 0).byte(0).byte(15).byte(200);
    let surviving = |ranks: u8, nodes: u8| {
        let script = Script::default().byte(ranks - 1).byte(0x80 | (nodes - 1));
        (0..ranks).fold(script, |script, rank| script.byte(rank).byte(0).byte(0))
    };
    let goes_on = leave(leave(surviving(4, 2).byte(2).byte(15).byte(200), 0), 1).byte(3).byte(14).bytes(b"too late");
    let asked = job(2, 1).byte(1).byte(12).byte(0).byte(1).bytes(b"lock").word(9);
    let cut_off = surviving(3, 2).byte(2).byte(16).byte(0).bytes(b"it was reset").byte(1).byte(15).byte(200);
    let aborted = job(2, 2).byte(1).byte(9).bytes(b"no memory").word(3);
    vec![
        ("a_job_that_ends_well", well.written()),
        ("a_rank_is_killed", leave(killed, 2).written()),
        ("a_node_dies_and_the_others_go_on", goes_on.written()),
        ("asked_what_it_waits_for", leave(leave(asked, 0), 1).written()),
        ("a_rank_aborts", aborted.written()),
        ("a_node_is_out_of_reach", cut_off.written()),
        ("joined_twice", job(2, 1).byte(0).byte(0).byte(0).written()),
        ("a_card_of_another", publish(job(2, 2), 0, 1).written()),
        ("a_node_that_is_none", fetch(job(2, 1), 0, 255).written()),
        ("another_version", Script::default().byte(0).byte(0).byte(0).byte(0).byte(1).written()),
        ("no_message", job(1, 1).byte(0).byte(14).bytes(b"{\"Leave\":[]}").written()),
        ("with_traffic", job(2, 1).byte(0).byte(13).word(1).word(2).byte(1).word(3).short(9).byte(0).written()),
    ]
}
