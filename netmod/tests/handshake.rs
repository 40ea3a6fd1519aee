//! Both ends of the handshake together, over every network.

use std::thread;
use std::time::Duration;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{
    Acceptor, AcceptorStep, Admission, AdmissionError, DialError, Interest, Introduction, Link, LinkError, Listener,
    Netmod, Poller, Sim, Tcp, TcpOptions, connect_authenticated,
};
use longarm_proto::{HELLO_BYTES, Identity, JobId, NodeId, Rank, Reception, Secret, Session};

const SECRET: Secret = Secret([7; 32]);
const JOB: JobId = JobId(77);
const CALLED: NodeId = NodeId(2);
const CALLER: Identity = Identity { job: JOB, rank: Rank(5), node: NodeId(1) };
const SESSION: Session = Session { number: 0x1234, attempt: 3, is_known: true, received_bytes: 99 };
const RECEPTION: Reception = Reception::Resumed { received_bytes: 12_345 };
/// Longer than any test takes: these tests are not about it.
const PATIENCE: Duration = Duration::from_secs(3600);

fn networks() -> Vec<Box<dyn Netmod>> {
    let mut networks: Vec<Box<dyn Netmod>> = vec![Box::new(Tcp::new(TcpOptions::default()))];
    networks.extend((0..50).map(|seed| Box::new(Sim::new(seed)) as Box<dyn Netmod>));
    networks
}

fn dial(netmod: &dyn Netmod, address: &str, secret: &Secret, me: Identity) -> Result<Box<dyn Link>, DialError> {
    connect_authenticated(netmod, address, &introduction(secret, me), PATIENCE).map(|(link, reception)| {
        assert_eq!(reception, RECEPTION);
        link
    })
}

fn introduction(secret: &Secret, me: Identity) -> Introduction<'_> {
    Introduction { secret, me, peer: CALLED, session: SESSION, encrypted: false, nonce: [1; 32] }
}

fn admission() -> Admission {
    Admission { secret: SECRET, job: JOB, me: CALLED, encrypted: false }
}

fn accept(listener: &mut dyn Listener) -> Box<dyn Link> {
    loop {
        if let Some(link) = listener.accept().unwrap() {
            return link;
        }
        thread::yield_now();
    }
}

fn acceptor(link: Box<dyn Link>) -> Acceptor {
    Acceptor::new(link, &admission(), [2; 32], 1000)
}

fn decide(mut acceptor: Acceptor) -> Result<(Box<dyn Link>, Identity), AdmissionError> {
    loop {
        match acceptor.poll(0) {
            AcceptorStep::Pending => thread::yield_now(),
            AcceptorStep::Refused(error) => return Err(error),
            AcceptorStep::Proven { session, .. } => {
                assert_eq!(session, SESSION);
                acceptor.welcome(RECEPTION);
            }
            AcceptorStep::Admitted { link, identity, session } => {
                assert_eq!(session, SESSION);
                return Ok((link, identity));
            }
        }
    }
}

/// A caller on another thread, and the server's side here.
type Outcome = (Result<Box<dyn Link>, DialError>, Result<(Box<dyn Link>, Identity), AdmissionError>);

fn meet(netmod: &dyn Netmod, secret: &Secret, me: Identity) -> Outcome {
    let mut listener = netmod.listen().unwrap();
    let address = listener.address().to_owned();
    thread::scope(|scope| {
        let caller = scope.spawn(|| dial(netmod, &address, secret, me));
        let called = decide(acceptor(accept(&mut *listener)));
        (caller.join().unwrap(), called)
    })
}

fn receive_whole<const N: usize>(link: &mut dyn Link) -> [u8; N] {
    let (mut bytes, mut received) = ([0; N], 0);
    while received < N {
        received += link.receive(&[RegionMut::from_slice(&mut bytes[received..])]).unwrap();
        thread::yield_now();
    }
    bytes
}

fn send_whole(link: &mut dyn Link, bytes: &[u8]) {
    let mut sent = 0;
    while sent < bytes.len() {
        sent += link.send(&[Region::from_slice(&bytes[sent..])]).unwrap();
        thread::yield_now();
    }
}

#[test]
fn a_caller_of_the_job_is_admitted_with_its_identity_and_the_links_carry_on() {
    for netmod in networks() {
        let (caller, called) = meet(&*netmod, &SECRET, CALLER);
        let mut caller = caller.unwrap();
        let (mut called, identity) = called.unwrap();
        assert_eq!((identity.job, identity.rank, identity.node), (JOB, CALLER.rank, CALLER.node));
        thread::scope(|scope| {
            scope.spawn(|| send_whole(&mut *caller, b"first frame"));
            assert_eq!(&receive_whole::<11>(&mut *called), b"first frame");
        });
        thread::scope(|scope| {
            scope.spawn(|| send_whole(&mut *called, b"reply"));
            assert_eq!(&receive_whole::<5>(&mut *caller), b"reply");
        });
    }
}

#[test]
fn a_caller_with_another_secret_gets_nowhere() {
    for netmod in networks() {
        let (caller, called) = meet(&*netmod, &Secret([8; 32]), CALLER);
        // Who finds out first depends on the order of the proofs; neither side gets a link.
        assert!(matches!(caller.err().unwrap(), DialError::HungUp | DialError::Handshake(_)));
        assert!(matches!(called.err().unwrap(), AdmissionError::Handshake(_) | AdmissionError::Link(_)));
    }
}

#[test]
fn a_caller_of_another_job_is_refused_and_sees_a_hang_up() {
    for netmod in networks() {
        let (caller, called) = meet(&*netmod, &SECRET, Identity { job: JobId(78), ..CALLER });
        assert!(matches!(caller.err().unwrap(), DialError::HungUp | DialError::Handshake(_)));
        assert!(matches!(called.err().unwrap(), AdmissionError::Handshake(_) | AdmissionError::Link(_)));
    }
}

#[test]
fn an_acceptor_reads_nothing_behind_the_handshake() {
    for netmod in networks() {
        let mut listener = netmod.listen().unwrap();
        let address = listener.address().to_owned();
        thread::scope(|scope| {
            let caller = scope.spawn(|| {
                // The caller speaks at once after its proof was taken, while the acceptor may still be polled.
                let mut link = dial(&*netmod, &address, &SECRET, CALLER).unwrap();
                send_whole(&mut *link, b"right behind");
                link
            });
            let link = accept(&mut *listener);
            let (mut link, _) = decide(acceptor(link)).unwrap();
            assert_eq!(&receive_whole::<12>(&mut *link), b"right behind");
            caller.join().unwrap();
        });
    }
}

#[test]
fn a_silent_caller_is_refused_at_the_deadline_and_not_before() {
    for netmod in networks() {
        let mut listener = netmod.listen().unwrap();
        let address = listener.address().to_owned();
        let mut caller = thread::scope(|scope| scope.spawn(|| netmod.connect(&address)).join().unwrap()).unwrap();
        let mut acceptor = acceptor(accept(&mut *listener));
        assert_eq!((acceptor.deadline_ms(), acceptor.interest()), (1000, Interest::READABLE));
        let mut sent = 0;
        while sent < HELLO_BYTES - 1 {
            sent += caller.send(&[Region::from_slice(&[0; HELLO_BYTES - 1][sent..])]).unwrap();
            assert!(matches!(acceptor.poll(0), AcceptorStep::Pending));
        }
        assert!(matches!(acceptor.poll(999), AcceptorStep::Pending));
        assert!(matches!(acceptor.poll(1000), AcceptorStep::Refused(AdmissionError::TimedOut)));
        assert!(acceptor.descriptor().is_none() && acceptor.peer_name().is_empty(), "the link is closed");
    }
}

#[test]
fn a_caller_that_goes_away_halfway_is_refused() {
    for netmod in networks() {
        let mut listener = netmod.listen().unwrap();
        let address = listener.address().to_owned();
        let mut caller = thread::scope(|scope| scope.spawn(|| netmod.connect(&address)).join().unwrap()).unwrap();
        let mut acceptor = acceptor(accept(&mut *listener));
        let mut sent = 0;
        while sent < HELLO_BYTES / 2 {
            sent += caller.send(&[Region::from_slice(&[0; HELLO_BYTES / 2][sent..])]).unwrap();
            assert!(matches!(acceptor.poll(0), AcceptorStep::Pending));
        }
        drop(caller);
        assert!(matches!(decide(acceptor), Err(AdmissionError::Link(LinkError::Closed))));
    }
}

#[test]
fn an_acceptor_can_be_slept_on() {
    let tcp = Tcp::new(TcpOptions::default());
    let mut listener = tcp.listen().unwrap();
    let address = listener.address().to_owned();
    thread::scope(|scope| {
        let caller = scope.spawn(|| dial(&tcp, &address, &SECRET, CALLER));
        let poller = Poller::new().unwrap();
        poller.add(listener.descriptor().unwrap(), 0, Interest::READABLE).unwrap();
        let (mut ready, mut acceptors) = (Vec::new(), Vec::new());
        let identity = 'admitted: loop {
            poller.wait(&mut ready, None).unwrap();
            for event in &ready {
                if event.token == 0 {
                    let acceptor = acceptor(listener.accept().unwrap().unwrap());
                    poller.add(acceptor.descriptor().unwrap(), 1, acceptor.interest()).unwrap();
                    acceptors.push(acceptor);
                    continue;
                }
                match acceptors[0].poll(0) {
                    AcceptorStep::Pending => {
                        let (acceptor, token) = (&acceptors[0], event.token);
                        poller.modify(acceptor.descriptor().unwrap(), token, acceptor.interest()).unwrap();
                    }
                    AcceptorStep::Proven { .. } => {
                        acceptors[0].welcome(RECEPTION);
                        let acceptor = &acceptors[0];
                        poller.modify(acceptor.descriptor().unwrap(), event.token, acceptor.interest()).unwrap();
                    }
                    AcceptorStep::Refused(error) => panic!("{error}"),
                    AcceptorStep::Admitted { identity, .. } => break 'admitted identity,
                }
            }
        };
        assert_eq!(identity.rank, CALLER.rank);
        assert!(caller.join().unwrap().is_ok());
    });
}

#[test]
fn a_server_that_never_answers_is_left_at_the_deadline() {
    for netmod in networks() {
        let listener = netmod.listen().unwrap();
        let short = Duration::from_millis(1);
        let outcome = connect_authenticated(&*netmod, listener.address(), &introduction(&SECRET, CALLER), short);
        assert_eq!(outcome.err(), Some(DialError::TimedOut));
    }
}

#[test]
fn dialling_nobody_says_so() {
    for netmod in networks() {
        let address = netmod.listen().unwrap().address().to_owned();
        let outcome = dial(&*netmod, &address, &SECRET, CALLER);
        assert_eq!(outcome.err(), Some(DialError::Connect(LinkError::Refused)));
    }
}

#[test]
fn a_link_cut_anywhere_in_the_handshake_leaves_no_one_sided_admission_unnoticed() {
    let whole_bytes = {
        use longarm_proto::{CHALLENGE_BYTES, PROOF_BYTES, WELCOME_BYTES};
        (HELLO_BYTES + CHALLENGE_BYTES + PROOF_BYTES + WELCOME_BYTES) as u64
    };
    for bytes in 0..whole_bytes {
        let sim = Sim::new(bytes);
        let mut listener = sim.listen().unwrap();
        let address = listener.address().to_owned();
        thread::scope(|scope| {
            let mut first = sim.connect(&address).unwrap();
            let called = accept(&mut *listener);
            assert_eq!(sim.cut_after(first.peer_name(), bytes), 1);
            let acceptor = scope.spawn(|| decide(acceptor(called)));
            let caller = run_caller(&mut *first);
            // The caller has sent all it had to only if the challenge reached it; it never gets the whole welcome.
            assert_eq!(caller, Err(LinkError::Reset), "cut after {bytes} bytes");
            // The server may have sent its whole welcome, and lost it. Then its link is broken all the same.
            if let Ok((mut link, _)) = acceptor.join().unwrap() {
                assert_eq!(link.send(&[Region::from_slice(b"x")]), Err(LinkError::Reset));
            }
        });
    }
}

/// The caller's half, by hand, as the link was made by the test.
fn run_caller(link: &mut dyn Link) -> Result<(), LinkError> {
    let (mut handshake, hello) =
        longarm_proto::InitiatorHandshake::start(&SECRET, CALLER, CALLED, SESSION, false, [1; 32]);
    send_all(link, &hello)?;
    let mut challenge = [0; longarm_proto::CHALLENGE_BYTES];
    receive_all(link, &mut challenge)?;
    let proof = handshake.handle_challenge(&challenge).expect("a challenge that arrives whole is right");
    send_all(link, &proof)?;
    let mut welcome = [0; longarm_proto::WELCOME_BYTES];
    receive_all(link, &mut welcome)
}

fn send_all(link: &mut dyn Link, mut bytes: &[u8]) -> Result<(), LinkError> {
    while !bytes.is_empty() {
        let sent = link.send(&[Region::from_slice(bytes)])?;
        bytes = &bytes[sent..];
        thread::yield_now();
    }
    Ok(())
}

fn receive_all(link: &mut dyn Link, bytes: &mut [u8]) -> Result<(), LinkError> {
    let mut received = 0;
    while received < bytes.len() {
        received += link.receive(&[RegionMut::from_slice(&mut bytes[received..])])?;
        thread::yield_now();
    }
    Ok(())
}
