//! What a rank is told when it starts: by its launcher, line by line, and by the other ranks of a job that something
//! else has started.
//!
//! What must hold: no panic, and whatever is taken for the start of a job is one of which a world can be made.

use longarm::bootstrap::control::{CONTROL_VERSION, NodeCard, Start, ToRank};
use longarm::bootstrap::{cards_from_records, pids_of_neighbours, start_from_records};
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
    match (kind, choices.byte() % 4) {
        (2, _) => ToRank::Start(Box::new(start(choices))),
        (_, 0) => ToRank::Card { card: card(choices) },
        (_, 1) => ToRank::Died { rank: choices.word() as u32, how: text(choices) },
        (_, 2) => ToRank::Inquire { inquiry: choices.word() },
        _ => ToRank::Goodbye,
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
        node_of_rank,
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

/// Takes the bytes for what the ranks of a job have said in an exchange: `{` begins a record as it is, any other byte one
/// that is made of choices.
pub fn exchange(data: &[u8]) {
    let mut choices = Choices::new(data);
    let rank = choices.byte();
    let cards = choices.byte() % 4 == 3;
    let mut records: Vec<Vec<u8>> = Vec::new();
    while !choices.is_over() && records.len() < RANKS_MAX {
        records.push(record(&mut choices, cards));
    }
    if cards {
        if let Ok(cards) = cards_from_records(&records) {
            assert!(cards.len() <= records.len() && cards.iter().all(|(node, card)| *node == card.node));
        }
        return;
    }
    let Ok(start) = start_from_records(rank.into(), &records) else { return };
    assert!(start.is_sound() && start.read_secret().is_some(), "{start:?}");
    let me = usize::from(rank);
    assert_eq!((start.rank, start.node_of_rank.len()), (rank.into(), records.len()));
    assert!((1..=records.len()).contains(&(start.ranks_on_machine as usize)));
    check_start(&start);
    let neighbours = pids_of_neighbours(&start, &records).expect("they were read once before");
    let is_other = |rank: u32| rank != start.rank && start.node_of_rank[rank as usize] == start.node_of_rank[me];
    assert!(neighbours.is_sorted_by(|left, right| left.0 < right.0));
    assert!(neighbours.iter().all(|(rank, _)| is_other(*rank)), "neighbours are other ranks of this node");
}

fn record(choices: &mut Choices<'_>, cards: bool) -> Vec<u8> {
    let kind = choices.byte();
    if kind == b'{' {
        return [b"{", choices.bytes()].concat();
    }
    if cards {
        let card = kind.is_multiple_of(2).then(|| card(choices));
        return serde_json::to_vec(&card).expect("a card can be written");
    }
    let random_bytes = if kind == 1 { usize::from(choices.byte()) } else { RANDOM_BYTES };
    let random = format!("{:?}", vec![kind; random_bytes]);
    let nodes = if kind == 2 { choices.word() } else { u64::from(choices.byte()) };
    let version = if kind == 3 { choices.short().into() } else { CONTROL_VERSION };
    let (machine, processors) = (kind >> 5, choices.byte());
    let process = match kind & 0x1f {
        4 => format!(",\"pid\":{},\"pid_space\":\"p{}\"", choices.word() as u32, choices.byte() % 2),
        _ => String::new(),
    };
    format!(
        "{{\"version\":{version},\"machine\":\"m{machine}\",\"processors\":[{processors},0],\"random\":{random},\
         \"nodes\":{nodes}{process}}}"
    )
    .into_bytes()
}

/// Random bytes that each rank brings: job and secret.
const RANDOM_BYTES: usize = 40;

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
        ("card", plain(&ToRank::Card { card })),
        ("died", plain(&ToRank::Died { rank: 1, how: "was killed".to_owned() })),
        ("goodbye", plain(&ToRank::Goodbye)),
        ("inquire", plain(&ToRank::Inquire { inquiry: 7 })),
    ]
}

/// Records of sound jobs and of others.
pub(crate) fn exchange_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let job = |rank: u8| Script::default().byte(rank).byte(0);
    let said = |script: Script, machine: u8, nodes: u8| script.byte(machine << 5).byte(nodes).byte(1);
    let named = |script: Script, pid: u64, space: u8| script.byte(4).byte(1).byte(1).word(pid).byte(space);
    let cards = Script::default().byte(0).byte(3);
    let card =
        |script: Script, node: u8| script.byte(0).word(node.into()).short(1).bytes(b"127.0.0.1:1").bytes(b"door");
    vec![
        ("one_machine", said(said(said(job(1), 0, 2), 0, 2), 0, 2).written()),
        ("two_machines", said(said(said(job(0), 1, 1), 2, 1), 1, 1).written()),
        ("neighbours", named(named(named(job(1), 3, 0), 4, 0), 5, 1).written()),
        ("a_rank_that_is_none", said(job(7), 0, 1).written()),
        ("nobody", job(0).written()),
        ("too_little_luck", job(0).byte(1).byte(8).byte(1).byte(0).written()),
        ("very_many_nodes", job(0).byte(2).word(u64::MAX).byte(0).written()),
        ("another_version", job(0).byte(3).byte(1).short(9).byte(0).written()),
        ("a_record_cut_short", job(0).byte(b'{').bytes(b"\"version\":1").written()),
        ("cards", card(card(cards, 0).byte(1), 1).written()),
    ]
}
