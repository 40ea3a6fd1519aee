//! Peers who do not know the secret, over both roles of the handshake: nobody gets in.

use longarm_netmod::{Acceptor, AcceptorStep, Admission, DialError, Introduction, connect_authenticated};
use longarm_proto::*;
use std::time::Duration;

use crate::choices::{Choices, Script};
use crate::wire::{self, Scripted};

const SECRET: Secret = Secret([0x5a; 32]);
/// Nonces of the connection that is attacked, and of an older one that the attacker has recorded.
const NONCES: [([u8; 32], [u8; 32]); 2] = [([1; 32], [2; 32]), ([3; 32], [4; 32])];
const ME: Identity = Identity { job: JobId(1), rank: Rank(2), node: NodeId(3) };
const PEER: NodeId = NodeId(4);

/// What both connections carry: one session, which the later one resumes.
const SESSIONS: [Session; 2] = [
    Session { number: 5, attempt: 2, is_known: true, received_bytes: 40 },
    Session { number: 5, attempt: 1, is_known: false, received_bytes: 0 },
];
const RECEPTIONS: [Reception; 2] = [Reception::Resumed { received_bytes: 99 }, Reception::Fresh];

/// The messages of one handshake that succeeds, in their order.
struct Exchange {
    hello: [u8; HELLO_BYTES],
    challenge: [u8; CHALLENGE_BYTES],
    proof: [u8; PROOF_BYTES],
    welcome: [u8; WELCOME_BYTES],
}

impl Exchange {
    fn recorded(which: usize) -> Exchange {
        let (ours, theirs) = NONCES[which];
        let (mut initiator, hello) = start(ours, SESSIONS[which]);
        let (responder, challenge) = respond(theirs, &hello).expect("both are of one job");
        let proof = initiator.handle_challenge(&challenge).expect("the challenge is the responder's");
        let proven = responder.handle_proof(&proof).expect("the proof is the initiator's");
        assert_eq!(proven, (ME, SESSIONS[which]));
        let welcome = responder.welcome(RECEPTIONS[which]);
        assert_eq!(initiator.check_welcome(&welcome), Ok(RECEPTIONS[which]));
        Exchange { hello, challenge, proof, welcome }
    }

    fn messages(&self) -> [&[u8]; 4] {
        [&self.hello, &self.challenge, &self.proof, &self.welcome]
    }
}

fn start(nonce: [u8; 32], session: Session) -> (InitiatorHandshake, [u8; HELLO_BYTES]) {
    InitiatorHandshake::start(&SECRET, ME, PEER, session, false, nonce)
}

fn respond(
    nonce: [u8; 32],
    hello: &[u8; HELLO_BYTES],
) -> Result<(ResponderHandshake, [u8; CHALLENGE_BYTES]), HandshakeError> {
    ResponderHandshake::start(&SECRET, ME.job, PEER, false, nonce, hello)
}

/// Takes the bytes for the messages of a peer who does not know the secret, message by message.
pub fn handshake_bytes(data: &[u8]) {
    let (ours, theirs) = NONCES[0];
    let (mut initiator, own_hello) = start(ours, SESSIONS[0]);
    let Some((hello, rest)) = data.split_first_chunk::<HELLO_BYTES>() else { return };
    let started = respond(theirs, hello);
    let Some((challenge, rest)) = rest.split_first_chunk::<CHALLENGE_BYTES>() else { return };
    let answered = initiator.handle_challenge(challenge);
    let Some((proof, rest)) = rest.split_first_chunk::<PROOF_BYTES>() else { return };
    // The seeds hold one true proof, of exactly our own hello.
    if let Ok((responder, _)) = started
        && let Ok((identity, session)) = responder.handle_proof(proof)
    {
        assert_eq!((identity, session, hello), (ME, SESSIONS[0], &own_hello));
    }
    let Some(welcome) = rest.first_chunk::<WELCOME_BYTES>() else { return };
    if answered.is_ok()
        && let Ok(reception) = initiator.check_welcome(welcome)
    {
        assert_eq!(reception, RECEPTIONS[0]);
        let own = respond(theirs, &own_hello).expect("our hello is sound");
        assert_eq!(challenge, &own.1);
    }
}

/// Changes recorded messages by the choices, cuts them anywhere, and says them to both ends over a link. Whoever is let
/// in has said exactly what was recorded of this very connection.
pub fn handshake_edits(data: &[u8]) {
    let exchanges = [0, 1].map(Exchange::recorded);
    let mut choices = Choices::new(data);
    let piece_bytes = usize::from(choices.byte()).max(1);
    let mut said: Vec<u8> = Vec::new();
    // At the responder's door the initiator's two messages succeed, at the initiator's the responder's two.
    let at_responder = choices.byte().is_multiple_of(2);
    let due: [usize; 2] = if at_responder { [0, 2] } else { [1, 3] };
    for place in due {
        let edit = choices.byte();
        let recorded = exchanges.each_ref().map(Exchange::messages);
        let mut message = recorded[usize::from(edit & 1)][place].to_vec();
        match edit >> 1 & 7 {
            // As it was recorded.
            0..=2 => {}
            // One bit, or one byte.
            3 | 4 => {
                let at = usize::from(choices.byte()) % message.len();
                message[at] ^= choices.byte();
            }
            // Cut short, so that what follows stands at the wrong place.
            5 => message.truncate(usize::from(choices.byte()) % message.len()),
            // A message of the other role, or of another step.
            6 => message = recorded[usize::from(edit & 1)][usize::from(choices.byte()) % 4].to_vec(),
            // Anything.
            _ => message = choices.bytes().to_vec(),
        }
        said.extend(message);
    }
    said.extend_from_slice(choices.rest());
    let [now, _] = &exchanges;
    if at_responder {
        let true_bytes = [&now.hello[..], &now.proof].concat();
        ask_acceptor(&said, &true_bytes, piece_bytes);
    } else {
        let true_bytes = [&now.challenge[..], &now.welcome].concat();
        ask_dialer(&said, &true_bytes, piece_bytes);
    }
}

/// The server's side of a connection hears what was said.
fn ask_acceptor(said: &[u8], true_bytes: &[u8], piece_bytes: usize) {
    let (mut caller, called) = wire::link(piece_bytes, wire::UNBOUNDED_BYTES);
    caller.say(said);
    caller.hang_up_behind();
    let admission = Admission { secret: SECRET, job: ME.job, me: PEER, encrypted: false };
    let mut acceptor = Acceptor::new(Box::new(called), &admission, NONCES[0].1, 1);
    let mut proven = None;
    let admitted = loop {
        match acceptor.poll(0) {
            AcceptorStep::Pending => assert!(caller.has_unheard(), "an acceptor waits for nobody who has gone"),
            AcceptorStep::Refused(_) => break None,
            AcceptorStep::Proven { identity, session } => {
                assert_eq!(proven.replace((identity, session)), None, "a peer is proven once");
                acceptor.welcome(RECEPTIONS[0]);
            }
            AcceptorStep::Admitted { identity, session, .. } => break Some((identity, session)),
        }
    };
    assert_eq!(admitted.is_some(), said.starts_with(true_bytes), "who is let in knows the secret, and who does is");
    assert_eq!(admitted, proven);
    assert!(admitted.is_none_or(|proven| proven == (ME, SESSIONS[0])));
}

/// The caller's side of a connection hears what was said, whatever it says itself.
fn ask_dialer(said: &[u8], true_bytes: &[u8], piece_bytes: usize) {
    let network = Scripted::new(said, piece_bytes);
    let (session, nonce) = (SESSIONS[0], NONCES[0].0);
    let introduction = Introduction { secret: &SECRET, me: ME, peer: PEER, session, encrypted: false, nonce };
    let dialed = connect_authenticated(&network, "", &introduction, Duration::from_secs(1 << 20));
    let dialed = dialed.map(|(_, reception)| assert_eq!(reception, RECEPTIONS[0]));
    assert_eq!(dialed.is_ok(), said.starts_with(true_bytes), "who is believed knows the secret, and who does is");
    assert!(!matches!(dialed, Err(DialError::Connect(_) | DialError::TimedOut)));
}

/// The one exchange that succeeds, and one that does not.
pub(crate) fn byte_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let exchange = Exchange::recorded(0).messages().concat();
    let mut wrong_proof = exchange.clone();
    wrong_proof[HELLO_BYTES + CHALLENGE_BYTES] ^= 1;
    vec![("exchange", exchange), ("wrong_proof", wrong_proof)]
}

/// Each way to change a message, in each role.
pub(crate) fn edit_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let script = |role: u8| Script::default().byte(255).byte(role);
    vec![
        ("responder_true", script(0).byte(0).byte(0).written()),
        ("initiator_true", script(1).byte(0).byte(0).plain(b"and more").written()),
        ("responder_flipped", script(0).byte(3 << 1).byte(9).byte(1).byte(0).written()),
        ("initiator_flipped", script(1).byte(0).byte(3 << 1).byte(31).byte(0x80).written()),
        ("responder_old_proof", script(0).byte(0).byte(1).written()),
        ("initiator_old_session", script(1).byte(1).byte(1).written()),
        ("initiator_reflected", script(1).byte(6 << 1).byte(0).byte(6 << 1).byte(2).written()),
        ("responder_cut", Script::default().byte(1).byte(0).byte(5 << 1).byte(10).byte(0).written()),
        ("responder_text", script(0).byte(7 << 1).bytes(b"GET / HTTP/1.1\r\n\r\n").byte(0).written()),
    ]
}
