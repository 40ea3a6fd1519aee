//! Encrypted connections: the suite of all networks over them, and how they come about.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{
    Acceptor, AcceptorStep, Admission, AdmissionError, Caller, CallerStep, Capabilities, DialError, Introduction,
    KeyError, Link, LinkError, Listener, Netmod, Sim, SocketBuffers, Tcp, TcpOptions, conformance,
    connect_authenticated,
};
use longarm_proto::{
    CHALLENGE_BYTES, HELLO_BYTES, HandshakeError, Identity, InitiatorHandshake, JobId, NodeId, PROOF_BYTES, Rank,
    Reception, ResponderHandshake, Secret, Session, WELCOME_BYTES,
};

const SECRET: Secret = Secret([7; 32]);
const JOB: JobId = JobId(77);
const CALLED: NodeId = NodeId(2);
const CALLER: Identity = Identity { job: JOB, rank: Rank(5), node: NodeId(1) };
const SESSION: Session = Session { number: 0x1234, attempt: 1, is_known: false, received_bytes: 0 };
/// Longer than any test takes: these tests are not about it.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Bytes of each of the two messages that agree on keys.
const KEY_BYTES: usize = 48;

fn introduction(encrypted: bool) -> Introduction<'static> {
    Introduction { secret: &SECRET, me: CALLER, peer: CALLED, session: SESSION, encrypted, nonce: [1; 32] }
}

fn acceptor(link: Box<dyn Link>, encrypted: bool) -> Acceptor {
    let admission = Admission { secret: SECRET, job: JOB, me: CALLED, encrypted };
    Acceptor::new(link, &admission, [2; 32], 1000)
}

/// A network whose links are those of another one behind a handshake, encrypted.
struct Sealed<N>(N);

struct SealedListener {
    below: Box<dyn Listener>,
    half_open: Vec<Acceptor>,
}

impl<N: Netmod> Netmod for Sealed<N> {
    fn name(&self) -> &'static str {
        "encrypted"
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        Ok(Box::new(SealedListener { below: self.0.listen()?, half_open: Vec::new() }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        match connect_authenticated(&self.0, address, &introduction(true), PATIENCE) {
            Ok((link, _)) => Ok(link),
            Err(DialError::Connect(error)) => Err(error),
            Err(other) => panic!("{other}"),
        }
    }
}

impl Listener for SealedListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        while let Some(link) = self.below.accept()? {
            self.half_open.push(acceptor(link, true));
        }
        for number in 0..self.half_open.len() {
            match self.half_open[number].poll(0) {
                AcceptorStep::Pending => {}
                AcceptorStep::Refused(error) => panic!("{error}"),
                AcceptorStep::Proven { .. } => self.half_open[number].welcome(Reception::Fresh),
                AcceptorStep::Admitted { link, .. } => {
                    self.half_open.remove(number);
                    return Ok(Some(link));
                }
            }
        }
        Ok(None)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.below.descriptor()
    }

    fn address(&self) -> &str {
        self.below.address()
    }
}

#[test]
fn an_encrypted_tcp_conforms_with_large_and_small_buffers() {
    for socket_buffers in [SocketBuffers::Kernel, SocketBuffers::Fixed(16 << 10)] {
        let interfaces = vec![IpAddr::V4(Ipv4Addr::LOCALHOST).into()];
        conformance(&Sealed(Tcp::new(TcpOptions { interfaces, socket_buffers, ..TcpOptions::default() })));
    }
}

#[test]
fn an_encrypted_sim_conforms_with_every_seed() {
    for seed in 0..50 {
        // Shown only if the suite fails.
        println!("seed {seed}");
        // The suite wants one byte to fit into every pipe, and that is a record.
        conformance(&Sealed(Sim::with_pipes(seed, 32)));
    }
}

fn accept(listener: &mut dyn Listener) -> Box<dyn Link> {
    loop {
        if let Some(link) = listener.accept().unwrap() {
            return link;
        }
        thread::yield_now();
    }
}

fn decide(mut acceptor: Acceptor) -> Result<Box<dyn Link>, AdmissionError> {
    loop {
        match acceptor.poll(0) {
            AcceptorStep::Pending => thread::yield_now(),
            AcceptorStep::Refused(error) => return Err(error),
            AcceptorStep::Proven { .. } => acceptor.welcome(Reception::Fresh),
            AcceptorStep::Admitted { link, .. } => return Ok(link),
        }
    }
}

fn send_all(link: &mut dyn Link, mut bytes: &[u8]) -> Result<(), LinkError> {
    while !bytes.is_empty() {
        let sent = link.send(&[Region::from_slice(bytes)])?;
        bytes = &bytes[sent..];
        thread::yield_now();
    }
    Ok(())
}

fn receive_all<const N: usize>(link: &mut dyn Link) -> Result<[u8; N], LinkError> {
    let (mut bytes, mut received) = ([0; N], 0);
    while received < N {
        received += link.receive(&[RegionMut::from_slice(&mut bytes[received..])])?;
        thread::yield_now();
    }
    Ok(bytes)
}

/// The caller's half by hand, up to its proof.
fn prove(link: &mut dyn Link) -> Result<InitiatorHandshake, LinkError> {
    let (mut handshake, hello) = InitiatorHandshake::start(&SECRET, CALLER, CALLED, SESSION, true, [1; 32]);
    send_all(link, &hello)?;
    let challenge = receive_all::<CHALLENGE_BYTES>(link)?;
    let proof = handshake.handle_challenge(&challenge).expect("a challenge that arrives whole is right");
    send_all(link, &proof)?;
    Ok(handshake)
}

#[test]
fn one_who_encrypts_and_one_who_does_not_never_talk() {
    for netmod in [Box::new(Tcp::new(TcpOptions::default())) as Box<dyn Netmod>, Box::new(Sim::new(3))] {
        for encrypted in [true, false] {
            let mut listener = netmod.listen().unwrap();
            let address = listener.address().to_owned();
            thread::scope(|scope| {
                let dial = || connect_authenticated(&*netmod, &address, &introduction(encrypted), PATIENCE);
                let caller = scope.spawn(dial);
                let refused = decide(acceptor(accept(&mut *listener), !encrypted)).err();
                assert_eq!(refused, Some(AdmissionError::Handshake(HandshakeError::Sealed)));
                assert!(caller.join().unwrap().is_err());
            });
        }
    }
}

#[test]
fn a_proof_that_is_passed_on_is_worth_nothing_without_the_key_behind_it() {
    let sim = Sim::new(4);
    let mut listener = sim.listen().unwrap();
    let mut link = sim.connect(listener.address()).unwrap();
    let mut acceptor = acceptor(accept(&mut *listener), true);
    thread::scope(|scope| {
        // Somebody in between lets the proof of a rank pass, and then speaks itself.
        scope.spawn(|| {
            prove(&mut *link).unwrap();
            send_all(&mut *link, &[9; KEY_BYTES]).unwrap();
        });
        let refused = loop {
            match acceptor.poll(0) {
                AcceptorStep::Pending => thread::yield_now(),
                AcceptorStep::Refused(error) => break error,
                // From here on the session of the rank would be taken from its true connection.
                AcceptorStep::Proven { .. } | AcceptorStep::Admitted { .. } => panic!("nobody has proven himself"),
            }
        };
        assert_eq!(refused, AdmissionError::Keys(KeyError));
    });
}

#[test]
fn a_welcome_that_is_passed_on_is_worth_nothing_without_the_answer_behind_it() {
    let sim = Sim::new(5);
    let mut listener = sim.listen().unwrap();
    let address = listener.address().to_owned();
    thread::scope(|scope| {
        let caller = scope.spawn(|| connect_authenticated(&sim, &address, &introduction(true), PATIENCE));
        let mut link = accept(&mut *listener);
        let hello = receive_all::<HELLO_BYTES>(&mut *link).unwrap();
        let (handshake, challenge) =
            ResponderHandshake::start(&SECRET, JOB, CALLED, true, [2; 32], &hello).expect("the hello is right");
        send_all(&mut *link, &challenge).unwrap();
        handshake.handle_proof(&receive_all::<PROOF_BYTES>(&mut *link).unwrap()).expect("the proof is right");
        receive_all::<KEY_BYTES>(&mut *link).unwrap();
        send_all(&mut *link, &handshake.welcome(Reception::Fresh)).unwrap();
        send_all(&mut *link, &[9; KEY_BYTES]).unwrap();
        let failed = caller.join().unwrap().err().expect("nobody is there to talk to");
        assert_eq!(failed, DialError::Keys(KeyError));
        assert!(failed.may_pass(false), "the peer is the right one, and may be reached another time");
    });
}

#[test]
fn an_encrypted_link_cut_anywhere_in_the_handshake_ends_at_both_ends() {
    let whole = HELLO_BYTES + CHALLENGE_BYTES + PROOF_BYTES + KEY_BYTES + WELCOME_BYTES + KEY_BYTES;
    for bytes in 0..whole as u64 {
        let sim = Sim::new(bytes);
        let mut listener = sim.listen().unwrap();
        let first = sim.connect(listener.address()).unwrap();
        let called = accept(&mut *listener);
        assert_eq!(sim.cut_after(first.peer_name(), bytes), 1);
        thread::scope(|scope| {
            let called = scope.spawn(|| decide(acceptor(called, true)));
            let mut caller = Caller::new(first, &introduction(true));
            let failed = loop {
                match caller.poll() {
                    CallerStep::Pending => thread::yield_now(),
                    CallerStep::Failed(error) => break error,
                    CallerStep::Proven { .. } => panic!("it never gets the whole answer, cut after {bytes} bytes"),
                }
            };
            let reset = [DialError::Link(LinkError::Reset), DialError::Connect(LinkError::Reset)];
            assert!(reset.contains(&failed), "{failed} after {bytes} bytes");
            // The server may have sent its whole answer, and lost it. Then its link is broken all the same.
            if let Ok(mut link) = called.join().unwrap() {
                assert_eq!(link.send(&[Region::from_slice(b"x")]), Err(LinkError::Reset));
            }
        });
    }
}
