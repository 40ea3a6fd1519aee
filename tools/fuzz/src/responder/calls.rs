//! How a peer calls, up to what the server makes of it.

use longarm_proto::{CHALLENGE_BYTES, Identity, InitiatorHandshake, NodeId, Rank, Reception, Session, WELCOME_BYTES};

use crate::node::{NODE, Node, SECRET};
use crate::wire::End;

/// Beyond the number of its own: sessions that nobody has.
pub(super) const STRAY_SESSION: u64 = 0xdead;

/// How wide a link is: bytes that one receive brings, and that a direction holds.
pub(super) type Pipes = (usize, usize);

/// What became of a call.
pub(super) enum Call {
    Refused,
    /// The link, and what came over it behind the welcome.
    Welcomed(End, Reception, Vec<u8>),
}

/// The first call of a session.
pub(super) fn begin(node: &mut Node, rank: Rank, session: Session, pipes: Pipes) -> End {
    match call(node, rank, session, pipes) {
        Call::Welcomed(link, Reception::Fresh, rest) if rest.is_empty() => link,
        _ => panic!("who is new and knows the secret is welcomed, and told nothing more"),
    }
}

/// Ends a session of a rank that has hung up: nobody can have received so much.
pub(super) fn sweep(node: &mut Node, rank: Rank, number: u64) {
    let session = Session { number, attempt: u32::MAX, is_known: true, received_bytes: u64::MAX };
    let ended = call(node, rank, session, (4096, 4096));
    assert!(matches!(ended, Call::Welcomed(_, Reception::Gone, _)), "nothing can be made of that");
    drop(ended);
    node.settle();
}

pub(super) fn call(node: &mut Node, rank: Rank, session: Session, pipes: Pipes) -> Call {
    let (mut link, handshake) = prove(node, rank, session, pipes);
    let Some((welcome, rest)) = answer::<WELCOME_BYTES>(node, &mut link) else { return Call::Refused };
    let reception = handshake.check_welcome(&welcome).expect("the server knows the secret");
    Call::Welcomed(link, reception, rest)
}

/// As far as to the proof, which has been sent and perhaps not been read.
pub(super) fn prove(
    node: &mut Node,
    rank: Rank,
    session: Session,
    (piece, capacity): Pipes,
) -> (End, InitiatorHandshake) {
    let me = Identity { job: node.job, rank, node: NodeId(NODE.0 + 1) };
    let mut link = node.porch.call(piece, capacity);
    let nonce = [rank.0 as u8 + 1; 32];
    let (mut handshake, hello) = InitiatorHandshake::start(&SECRET, me, NODE, session, false, nonce);
    link.say(&hello);
    let (challenge, rest) = answer::<CHALLENGE_BYTES>(node, &mut link).expect("the server answers who says hello");
    assert!(rest.is_empty(), "the server says nothing more before its turn");
    link.say(&handshake.handle_challenge(&challenge).expect("the server is who it should be"));
    (link, handshake)
}

/// What the server says next in the handshake, and what came behind it. `None`: it has hung up.
fn answer<const BYTES: usize>(node: &mut Node, link: &mut End) -> Option<([u8; BYTES], Vec<u8>)> {
    let mut heard = Vec::new();
    loop {
        if let Some((answer, rest)) = heard.split_first_chunk::<BYTES>() {
            return Some((*answer, rest.to_vec()));
        }
        let moved = node.turn();
        let more = link.hear();
        if more.is_empty() && link.is_left() {
            return None;
        }
        assert!(moved || !more.is_empty(), "the server answers who says hello");
        heard.extend(more);
    }
}
