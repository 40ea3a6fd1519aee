//! Who gets in and, above all, who does not.

use longarm_proto::*;
use proptest::prelude::*;

const SECRET: Secret = Secret([7; 32]);
const JOB: JobId = JobId(0x1234_5678_9abc_def0);
const ME: Identity = Identity { job: JOB, rank: Rank(5), node: NodeId(1) };
const PEER: NodeId = NodeId(3);
const SESSION: Session = Session { number: 0x55, attempt: 2, is_known: true, received_bytes: 1000 };
const RECEPTION: Reception = Reception::Resumed { received_bytes: 77 };

/// A whole exchange in which each message passes through `change` with its number from 0 on.
fn exchange(
    ours: &Secret,
    theirs: &Secret,
    mut change: impl FnMut(usize, &mut [u8]),
) -> Result<Identity, (&'static str, HandshakeError)> {
    let at_responder = |error| ("responder", error);
    let at_initiator = |error| ("initiator", error);
    let (mut initiator, mut hello) = InitiatorHandshake::start(ours, ME, PEER, SESSION, false, [1; 32]);
    change(0, &mut hello);
    let (responder, mut challenge) =
        ResponderHandshake::start(theirs, JOB, PEER, false, [2; 32], &hello).map_err(at_responder)?;
    change(1, &mut challenge);
    let mut proof = initiator.handle_challenge(&challenge).map_err(at_initiator)?;
    change(2, &mut proof);
    let (identity, session) = responder.handle_proof(&proof).map_err(at_responder)?;
    assert_eq!(session, SESSION);
    let mut welcome = responder.welcome(RECEPTION);
    change(3, &mut welcome);
    assert_eq!(initiator.check_welcome(&welcome).map_err(at_initiator)?, RECEPTION);
    Ok(identity)
}

#[test]
fn two_who_know_the_secret_meet() {
    assert_eq!(exchange(&SECRET, &SECRET, |_, _| ()), Ok(ME));
}

#[test]
fn a_wrong_secret_is_found_by_the_responder_before_it_proves_itself() {
    let wrong = exchange(&Secret([8; 32]), &SECRET, |_, _| ());
    assert_eq!(wrong, Err(("responder", HandshakeError::WrongProof)));
}

#[test]
fn a_responder_without_the_secret_is_found_by_the_initiator() {
    let (mut initiator, hello) = InitiatorHandshake::start(&SECRET, ME, PEER, SESSION, false, [1; 32]);
    let (_, challenge) = ResponderHandshake::start(&Secret([8; 32]), JOB, PEER, false, [2; 32], &hello).unwrap();
    let proof = initiator.handle_challenge(&challenge).unwrap();
    // It can only guess, or send back what it has.
    assert_eq!(initiator.check_welcome(&[0; WELCOME_BYTES]), Err(HandshakeError::WrongProof));
    let mut sent_back = [0; WELCOME_BYTES];
    sent_back[..PROOF_BYTES].copy_from_slice(&proof);
    assert_eq!(initiator.check_welcome(&sent_back), Err(HandshakeError::WrongProof));
}

#[test]
fn any_flipped_bit_of_any_message_keeps_the_two_apart() {
    for (message, bytes) in [HELLO_BYTES, CHALLENGE_BYTES, PROOF_BYTES, WELCOME_BYTES].into_iter().enumerate() {
        // One of many where each takes long.
        for bit in (0..bytes * 8).step_by(if cfg!(miri) { 97 } else { 1 }) {
            let flipped = exchange(&SECRET, &SECRET, |number, content| {
                if number == message {
                    content[bit / 8] ^= 1 << (bit % 8);
                }
            });
            assert!(flipped.is_err(), "bit {bit} of message {message}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let put = |message: usize, at: usize, value: u8| {
        exchange(&SECRET, &SECRET, |number, content| {
            if number == message {
                content[at] = value;
            }
        })
    };
    assert!(matches!(put(0, 0, 0), Err(("responder", HandshakeError::NotLongarm { .. }))));
    assert!(matches!(put(1, 0, 0), Err(("initiator", HandshakeError::NotLongarm { .. }))));
    let version = HandshakeError::Version { ours: PROTOCOL_VERSION, found: 9 };
    assert_eq!(put(0, 4, 9), Err(("responder", version)));
    assert_eq!(put(1, 4, 9), Err(("initiator", version)));
    let job = HandshakeError::OtherJob { ours: JOB, found: JobId(JOB.0 & !0xff) };
    assert_eq!(put(0, 8, 0), Err(("responder", job)));
    let node = HandshakeError::OtherNode { expected: NodeId(4), found: PEER };
    assert_eq!(put(0, 24, 4), Err(("responder", node)));
    let node = HandshakeError::OtherNode { expected: PEER, found: NodeId(4) };
    assert_eq!(put(1, 8, 4), Err(("initiator", node)));
    assert_eq!(put(0, 28, 1), Err(("responder", HandshakeError::Sealed)));
    assert_eq!(put(0, 28, 2), Err(("responder", HandshakeError::Spare { found: 2 })));
    assert_eq!(put(0, 84, 2), Err(("responder", HandshakeError::Spare { found: 2 })));
    assert_eq!(put(0, 88, 1), Err(("responder", HandshakeError::Spare { found: 1 })));
    // The session and what was received of it are proven, too.
    for at in [64, 72, 80] {
        assert_eq!(put(0, at, 6), Err(("responder", HandshakeError::WrongProof)));
    }
    for at in [32, 40] {
        assert_eq!(put(3, at, 6), Err(("initiator", HandshakeError::WrongProof)));
    }
    assert_eq!(put(1, 12, 1), Err(("initiator", HandshakeError::Spare { found: 1 })));
    // Somebody in between who claims another rank breaks the proof.
    assert_eq!(put(0, 16, 6), Err(("responder", HandshakeError::WrongProof)));
    assert_eq!(put(0, 20, 6), Err(("responder", HandshakeError::WrongProof)));
}

#[test]
fn a_recorded_exchange_opens_no_second_connection() {
    let mut recorded = Vec::new();
    exchange(&SECRET, &SECRET, |_, content| recorded.push(content.to_vec())).unwrap();
    let hello: [u8; HELLO_BYTES] = recorded[0].clone().try_into().unwrap();
    let proof: [u8; PROOF_BYTES] = recorded[2].clone().try_into().unwrap();
    let (responder, _) = ResponderHandshake::start(&SECRET, JOB, PEER, false, [3; 32], &hello).unwrap();
    assert_eq!(responder.handle_proof(&proof).unwrap_err(), HandshakeError::WrongProof);
    // Nor does a recorded responder convince an initiator.
    let challenge: [u8; CHALLENGE_BYTES] = recorded[1].clone().try_into().unwrap();
    let welcome: [u8; WELCOME_BYTES] = recorded[3].clone().try_into().unwrap();
    let (mut initiator, _) = InitiatorHandshake::start(&SECRET, ME, PEER, SESSION, false, [4; 32]);
    initiator.handle_challenge(&challenge).unwrap();
    assert_eq!(initiator.check_welcome(&welcome), Err(HandshakeError::WrongProof));
}

#[test]
fn messages_sent_back_to_their_maker_prove_nothing() {
    let (mut initiator, hello) = InitiatorHandshake::start(&SECRET, ME, PEER, SESSION, false, [1; 32]);
    // Our hello as a challenge is no challenge, and our nonce in a challenge is noticed.
    let cut: [u8; CHALLENGE_BYTES] = hello[..CHALLENGE_BYTES].try_into().unwrap();
    assert!(matches!(initiator.handle_challenge(&cut), Err(HandshakeError::NotLongarm { .. })));
    let (_, mut challenge) = ResponderHandshake::start(&SECRET, JOB, PEER, false, [2; 32], &hello).unwrap();
    challenge[16..].copy_from_slice(&[1; 32]);
    assert_eq!(initiator.handle_challenge(&challenge), Err(HandshakeError::ReflectedNonce));
    let reflected = ResponderHandshake::start(&SECRET, JOB, PEER, false, [1; 32], &hello);
    assert_eq!(reflected.unwrap_err(), HandshakeError::ReflectedNonce);
}

#[test]
fn a_server_that_is_used_to_answer_a_challenge_does_not_help() {
    // Mallory, without the secret, is dialled as node 3. She opens a connection to the real node 3 with the same
    // hello and passes its challenge on: only then both ends agree, and she has relayed, not proven. As any other
    // node, or with a hello of her own, she fails.
    let (mut victim, hello) = InitiatorHandshake::start(&SECRET, ME, PEER, SESSION, false, [1; 32]);
    let mut own = hello;
    own[16] = 9;
    let (real, challenge) = ResponderHandshake::start(&SECRET, JOB, PEER, false, [2; 32], &own).unwrap();
    let proof = victim.handle_challenge(&challenge).unwrap();
    assert_eq!(real.handle_proof(&proof).unwrap_err(), HandshakeError::WrongProof);
    let elsewhere = ResponderHandshake::start(&SECRET, JOB, NodeId(4), false, [2; 32], &hello);
    let error = HandshakeError::OtherNode { expected: PEER, found: NodeId(4) };
    assert_eq!(elsewhere.unwrap_err(), error);
}

#[test]
fn another_job_with_the_same_secret_is_refused() {
    let other = Identity { job: JobId(1), ..ME };
    let (_, hello) = InitiatorHandshake::start(&SECRET, other, PEER, SESSION, false, [1; 32]);
    let error = ResponderHandshake::start(&SECRET, JOB, PEER, false, [2; 32], &hello).unwrap_err();
    assert_eq!(error, HandshakeError::OtherJob { ours: JOB, found: JobId(1) });
}

#[test]
fn the_secret_and_what_follows_from_it_are_not_printed() {
    let secret = Secret([0xa5; 32]);
    let (initiator, hello) = InitiatorHandshake::start(&secret, ME, PEER, SESSION, false, [1; 32]);
    let (responder, _) = ResponderHandshake::start(&secret, JOB, PEER, false, [2; 32], &hello).unwrap();
    let printed = format!("{secret:?} {initiator:?} {responder:?}");
    assert!(printed.starts_with("Secret(..) "));
    assert!(!printed.contains("165") && !printed.contains("a5"), "{printed}");
}

#[test]
#[should_panic(expected = "after the challenge was taken")]
fn a_welcome_before_the_challenge_is_our_own_bug() {
    let (initiator, _) = InitiatorHandshake::start(&SECRET, ME, PEER, SESSION, false, [1; 32]);
    let _ = initiator.check_welcome(&[0; WELCOME_BYTES]);
}

proptest! {
    #[test]
    fn any_two_meet_over_any_secret_and_nonces(
        secret in prop::array::uniform32(any::<u8>()),
        nonces in prop::array::uniform2(prop::array::uniform32(any::<u8>())),
        (job, rank, node, peer) in any::<(u64, u32, u32, u32)>(),
    ) {
        prop_assume!(nonces[0] != nonces[1]);
        let me = Identity { job: JobId(job), rank: Rank(rank), node: NodeId(node) };
        let secret = Secret(secret);
        let (mut initiator, hello) = InitiatorHandshake::start(&secret, me, NodeId(peer), SESSION, true, nonces[0]);
        let (responder, challenge) =
            ResponderHandshake::start(&secret, me.job, NodeId(peer), true, nonces[1], &hello).unwrap();
        let proof = initiator.handle_challenge(&challenge).unwrap();
        prop_assert_eq!(responder.handle_proof(&proof).unwrap(), (me, SESSION));
        for reception in [Reception::Fresh, RECEPTION, Reception::Gone] {
            let welcome = responder.welcome(reception);
            prop_assert_eq!(initiator.check_welcome(&welcome), Ok(reception));
            prop_assert_ne!(&proof[..], &welcome[..PROOF_BYTES]);
        }
    }

    #[test]
    fn random_bytes_let_nobody_in(
        hello in prop::collection::vec(any::<u8>(), HELLO_BYTES),
        challenge in prop::collection::vec(any::<u8>(), CHALLENGE_BYTES),
        proof in prop::array::uniform32(any::<u8>()),
    ) {
        let hello: [u8; HELLO_BYTES] = hello.try_into().unwrap();
        prop_assert!(ResponderHandshake::start(&SECRET, JOB, PEER, false, [2; 32], &hello).is_err());
        let (mut initiator, hello) = InitiatorHandshake::start(&SECRET, ME, PEER, SESSION, false, [1; 32]);
        let challenge: [u8; CHALLENGE_BYTES] = challenge.try_into().unwrap();
        prop_assert!(initiator.handle_challenge(&challenge).is_err());
        let (responder, _) = ResponderHandshake::start(&SECRET, JOB, PEER, false, [2; 32], &hello).unwrap();
        prop_assert!(responder.handle_proof(&proof).is_err());
    }
}
