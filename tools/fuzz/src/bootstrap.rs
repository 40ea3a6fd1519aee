//! What a rank is told when it starts by its launcher, line by line.
//!
//! What must hold: no panic, and whatever is taken for the start of a job is one of which a world can be made.

use longarm::bootstrap::control::{CONTROL_VERSION, NodeCard, Start, ToRank};
use longarm_client::Layout;
use longarm_proto::{NodeId, Rank};

use crate::choices::{Choices, Script};

/// Ranks that a start may speak of and a layout is made of: enough for every form.
const RANKS_MAX: usize = 64;

/// Takes the bytes for a line of the launcher, as it is or made of choices.
pub fn control(data: &[u8]) {
    let mut choices = Choices::new(data);
    let line = match choices.byte() % 4 {
        0 => choices.rest().to_vec(),
        1 => serde_json::to_vec(&ToRank::Start(Box::new(start(&mut choices)))).expect("a message can be written"),
        kind => {
            let mut line = serde_json::to_vec(&message(kind, &mut choices)).expect("a message can be written");
            let at = usize::from(choices.short()) % line.len();
            line[at] ^= choices.byte();
            line
        }
    };
    let Ok(message) = serde_json::from_slice::<ToRank>(&line) else { return };
    let again = serde_json::to_vec(&message).expect("a message can be written");
    assert_eq!(serde_json::from_slice::<ToRank>(&again).expect("and read again"), message);
    if let ToRank::Start(start) = message {
        check_start(&start);
    }
}

fn message(kind: u8, choices: &mut Choices<'_>) -> ToRank {
    match (kind, choices.byte() % 6) {
        (2, _) => ToRank::Start(Box::new(start(choices))),
        (_, 0) => ToRank::Cards { cards: vec![card(choices)] },
        (_, 1) => ToRank::Died { rank: choices.word() as u32, how: text(choices) },
        (_, 3) => ToRank::CannotReachYou { rank: choices.word() as u32, how: text(choices) },
        (_, 2) => ToRank::Inquire { inquiry: choices.word() },
        (_, 4) => ToRank::Goodbye,
        _ => ToRank::Told,
    }
}

fn start(choices: &mut Choices<'_>) -> Start {
    let secret = match choices.byte() {
        0..128 => Start::spell_secret(&[7; 32]),
        _ => text(choices),
    };
    let (rank, extreme) = (choices.byte().into(), choices.byte());
    let mut node_of_rank: Vec<u32> = choices.bytes().iter().map(|node| u32::from(*node)).collect();
    if extreme == 255 {
        node_of_rank.push(u32::MAX);
    }
    Start {
        version: CONTROL_VERSION,
        job: choices.word(),
        secret,
        rank,
        node_of_rank: node_of_rank.into(),
        machines: 1,
        ranks_on_machine: choices.short().into(),
        processors: choices.bytes().iter().map(|processor| u32::from(*processor) << 4).collect(),
        stats: false,
        survivors_go_on: extreme % 2 == 1,
    }
}

fn card(choices: &mut Choices<'_>) -> NodeCard {
    let node = choices.word() as u32;
    NodeCard {
        node,
        server_pid: choices.short().into(),
        address: text(choices),
        host: text(choices),
        door: text(choices),
    }
}

fn text(choices: &mut Choices<'_>) -> String {
    String::from_utf8_lossy(choices.bytes()).into_owned()
}

fn check_start(start: &Start) {
    if let Some(secret) = start.read_secret() {
        assert_eq!(Start::spell_secret(&secret), start.secret, "a secret has one spelling");
    }
    if !start.is_sound() || start.node_of_rank.len() > RANKS_MAX {
        return;
    }
    let nodes: Vec<NodeId> = start.node_of_rank.iter().map(|node| NodeId(*node)).collect();
    let layout = Layout::new(Rank(start.rank), &nodes);
    let mut ranks: Vec<Rank> =
        (0..layout.node_count()).flat_map(|node| layout.ranks_of(NodeId(node)).to_vec()).collect();
    ranks.sort_unstable();
    assert!(ranks.into_iter().eq((0..layout.rank_count()).map(Rank)), "each rank is on one node");
}

/// One line of each kind.
pub(crate) fn control_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let line = |message: &ToRank| serde_json::to_vec(message).expect("a message can be written");
    let plain = |message: &ToRank| Script::default().byte(0).plain(&line(message)).written();
    let nodes =
        |nodes: &[u8]| Script::default().byte(1).byte(0).byte(0).byte(0).bytes(nodes).word(5).short(2).bytes(&[0, 1]);
    let card = NodeCard {
        node: 1,
        server_pid: 2,
        address: "127.0.0.1:1".to_owned(),
        host: "here".to_owned(),
        door: "door".to_owned(),
    };
    vec![
        ("start", nodes(&[0, 0, 1]).written()),
        ("start_with_a_gap", nodes(&[0, 2]).written()),
        ("start_of_nobody", nodes(&[]).written()),
        ("start_far_away", Script::default().byte(1).byte(0).byte(0).byte(255).bytes(&[0]).written()),
        ("start_changed", Script::default().byte(2).byte(0).byte(0).byte(0).byte(0).bytes(&[0]).written()),
        ("card", plain(&ToRank::Cards { cards: vec![card] })),
        ("died", plain(&ToRank::Died { rank: 1, how: "was killed".to_owned() })),
        ("cannot_reach_you", plain(&ToRank::CannotReachYou { rank: 1, how: "was reset".to_owned() })),
        ("goodbye", plain(&ToRank::Goodbye)),
        ("told", plain(&ToRank::Told)),
        ("inquire", plain(&ToRank::Inquire { inquiry: 7 })),
    ]
}
