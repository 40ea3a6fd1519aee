use std::collections::HashMap;

use longarm_memory::{Region, RegionMut};
use longarm_proto::{JobId, Rank, Reception};

use super::*;
use crate::accept::{Acceptor, AcceptorStep, Admission};
use crate::tcp::{Tcp, TcpOptions};
use crate::traits::{Capabilities, Link, Listener};

const SECRET: Secret = Secret([7; 32]);
const ME: Identity = Identity { job: JobId(1), rank: Rank(0), node: NodeId(0) };
const PEER: NodeId = NodeId(1);

/// Whether what is behind it is let through.
type Latch = Arc<Mutex<bool>>;

/// What is behind a way.
#[derive(Clone)]
enum Behind {
    /// Nothing ever answers.
    Silence,
    /// The system says at once that there is no way.
    NoRoute,
    /// Somebody takes the connection and says nothing.
    Mute,
    /// A listener.
    Server(String),
    /// The same, but the connection takes until it is let through.
    Slow(String, Latch),
}

/// A network in which one address has several ways.
struct SeveralAddresses {
    tcp: Tcp,
    behind: Mutex<HashMap<String, Behind>>,
    names: Vec<String>,
    begun: Mutex<Vec<String>>,
}

impl SeveralAddresses {
    fn to(behind: &[(&str, Behind)]) -> Arc<SeveralAddresses> {
        let names = behind.iter().map(|(name, _)| (*name).to_owned()).collect();
        let behind = behind.iter().map(|(name, behind)| ((*name).to_owned(), behind.clone())).collect();
        Arc::new(SeveralAddresses {
            tcp: Tcp::new(TcpOptions::default()),
            behind: Mutex::new(behind),
            names,
            begun: Mutex::default(),
        })
    }

    fn begun(&self) -> String {
        std::mem::take(&mut *self.begun.lock()).join(" ")
    }
}

impl Netmod for SeveralAddresses {
    fn name(&self) -> &'static str {
        "ways"
    }

    fn capabilities(&self) -> Capabilities {
        self.tcp.capabilities()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        self.tcp.listen()
    }

    fn ways(&self, _: &str) -> Result<Vec<String>, LinkError> {
        Ok(self.names.clone())
    }

    fn connect_by(&self, _: &str, way: &str) -> Result<Box<dyn Link>, LinkError> {
        self.begun.lock().push(way.to_owned());
        let behind = self.behind.lock()[way].clone();
        match behind {
            Behind::Silence => Ok(Box::new(Odd { takes: false, then: None })),
            Behind::Mute => Ok(Box::new(Odd { takes: true, then: None })),
            Behind::NoRoute => Err(LinkError::System { errno: rustix::io::Errno::HOSTUNREACH.raw_os_error() }),
            Behind::Server(address) => self.tcp.connect(&address),
            Behind::Slow(address, opens) => {
                Ok(Box::new(Odd { takes: false, then: Some((self.tcp.connect(&address)?, opens)) }))
            }
        }
    }

    fn connect(&self, _: &str) -> Result<Box<dyn Link>, LinkError> {
        unreachable!("a call goes by its ways")
    }
}

/// A link to nobody, or to somebody once a gate is open.
struct Odd {
    takes: bool,
    then: Option<(Box<dyn Link>, Latch)>,
}

impl Odd {
    fn behind(&mut self) -> Option<&mut dyn Link> {
        self.then.as_mut().filter(|(_, opens)| *opens.lock()).map(|(link, _)| &mut **link as _)
    }
}

impl Link for Odd {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        if let Some(link) = self.behind() {
            return link.send(regions);
        }
        Ok(if self.takes { regions.iter().map(|region| region.len()).sum() } else { 0 })
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        self.behind().map_or(Ok(0), |link| link.receive(regions))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn peer_name(&self) -> &str {
        "odd"
    }
}

/// A server of the job, or of another one.
struct Server {
    listener: Box<dyn Listener>,
    acceptors: Vec<Acceptor>,
    secret: Secret,
}

impl Server {
    fn of(secret: Secret) -> Server {
        Server { listener: Tcp::new(TcpOptions::default()).listen().unwrap(), acceptors: Vec::new(), secret }
    }

    fn behind(&self) -> Behind {
        Behind::Server(self.listener.address().to_owned())
    }

    fn turn(&mut self) {
        while let Some(link) = self.listener.accept().unwrap() {
            let secret = self.secret.clone();
            let admission = Admission { secret, job: ME.job, me: PEER, encrypted: false };
            self.acceptors.push(Acceptor::new(link, &admission, [3; 32], u64::MAX));
        }
        self.acceptors.retain_mut(|acceptor| match acceptor.poll(0) {
            AcceptorStep::Proven { .. } => {
                acceptor.welcome(Reception::Fresh);
                true
            }
            AcceptorStep::Pending => true,
            AcceptorStep::Refused(_) | AcceptorStep::Admitted { .. } => false,
        });
    }
}

fn call(calls: &Arc<Calls>, now_ms: u64) -> Call {
    let session = Session { number: 1, attempt: 1, is_known: false, received_bytes: 0 };
    let guest = Guest { secret: SECRET.clone(), me: ME, peer: PEER, session, encrypted: false };
    calls.start("somewhere", guest, now_ms).unwrap()
}

/// Polls until the call has an end, while time stands still.
fn end(call: &mut Call, servers: &mut [&mut Server], now_ms: u64) -> Result<(), DialError> {
    loop {
        match call.poll(now_ms) {
            CallerStep::Proven { .. } => return Ok(()),
            CallerStep::Failed(error) => return Err(error),
            CallerStep::Pending => servers.iter_mut().for_each(|server| server.turn()),
        }
    }
}

#[test]
fn a_way_that_the_system_refuses_costs_no_time_and_is_not_tried_first_again() {
    let mut server = Server::of(SECRET);
    let ways = SeveralAddresses::to(&[("dead", Behind::NoRoute), ("live", server.behind())]);
    let calls = Calls::new(ways.clone());
    assert_eq!(end(&mut call(&calls, 0), &mut [&mut server], 0), Ok(()));
    assert_eq!(ways.begun(), "dead live");
    assert_eq!(end(&mut call(&calls, 0), &mut [&mut server], 0), Ok(()));
    assert_eq!(ways.begun(), "live");
}

#[test]
fn a_silent_way_is_waited_for_a_while_and_then_the_next_is_tried_beside_it() {
    let mut server = Server::of(SECRET);
    let ways = SeveralAddresses::to(&[("silent", Behind::Silence), ("live", server.behind())]);
    let mut call = call(&Calls::new(ways.clone()), 1000);
    assert!(matches!(call.poll(1000), CallerStep::Pending));
    assert!(matches!(call.poll(999 + WAY_PATIENCE_MS), CallerStep::Pending));
    assert_eq!(ways.begun(), "silent");
    assert_eq!(call.met().collect::<Vec<_>>(), [("silent", None)]);
    assert_eq!(end(&mut call, &mut [&mut server], 1000 + WAY_PATIENCE_MS), Ok(()));
    assert_eq!(ways.begun(), "live");
}

#[test]
fn a_way_that_takes_longer_than_the_patience_still_comes_through() {
    let mut server = Server::of(SECRET);
    let opens = Arc::new(Mutex::new(false));
    let slow = Behind::Slow(server.listener.address().to_owned(), Arc::clone(&opens));
    let ways = SeveralAddresses::to(&[("slow", slow), ("silent", Behind::Silence), ("dead", Behind::NoRoute)]);
    let mut call = call(&Calls::new(ways.clone()), 0);
    for turn in 0..10 {
        assert!(matches!(call.poll(turn * WAY_PATIENCE_MS), CallerStep::Pending));
    }
    assert_eq!(ways.begun(), "slow silent dead", "each is begun once");
    *opens.lock() = true;
    assert_eq!(end(&mut call, &mut [&mut server], 10_000), Ok(()));
}

#[test]
fn somebody_else_at_an_address_of_the_list_does_not_end_the_call() {
    let (mut other, mut server) = (Server::of(Secret([8; 32])), Server::of(SECRET));
    let ways = SeveralAddresses::to(&[("other", other.behind()), ("live", server.behind())]);
    assert_eq!(end(&mut call(&Calls::new(ways), 0), &mut [&mut other, &mut server], 0), Ok(()));
}

#[test]
fn a_call_that_is_given_up_over_a_mute_stranger_is_made_by_another_way_the_next_time() {
    let mut server = Server::of(SECRET);
    let ways = SeveralAddresses::to(&[("mute", Behind::Mute), ("mute too", Behind::Mute), ("live", server.behind())]);
    let calls = Calls::new(ways.clone());
    for mute in ["mute", "mute too"] {
        let mut given_up = call(&calls, 0);
        assert!(matches!(given_up.poll(0), CallerStep::Pending));
        assert!(matches!(given_up.poll(10 * WAY_PATIENCE_MS), CallerStep::Pending));
        assert!(given_up.is_connected());
        assert_eq!(ways.begun(), mute, "who is in the handshake is not raced");
    }
    assert_eq!(end(&mut call(&calls, 0), &mut [&mut server], 0), Ok(()));
    assert_eq!(ways.begun(), "live");
}

#[test]
fn a_call_without_a_way_says_what_each_of_them_said() {
    let other = Server::of(SECRET);
    let refusing = other.behind();
    drop(other);
    let ways = SeveralAddresses::to(&[("dead", Behind::NoRoute), ("refusing", refusing)]);
    let mut call = call(&Calls::new(ways), 0);
    let no_route = LinkError::System { errno: rustix::io::Errno::HOSTUNREACH.raw_os_error() };
    assert_eq!(end(&mut call, &mut [], 0), Err(DialError::Connect(no_route)));
    let met: Vec<_> = call.met().map(|(way, error)| (way.to_owned(), error.unwrap())).collect();
    assert_eq!(met[0], ("dead".to_owned(), DialError::Connect(no_route)));
    assert_eq!(met[1], ("refusing".to_owned(), DialError::Connect(LinkError::Refused)));
}

#[test]
fn one_descriptor_tells_of_every_way_that_moves() {
    let mut server = Server::of(SECRET);
    let ways = SeveralAddresses::to(&[("silent", Behind::Silence), ("live", server.behind())]);
    let mut call = call(&Calls::new(ways), 0);
    assert!(matches!(call.poll(0), CallerStep::Pending));
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while is_done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                server.turn();
                std::thread::yield_now();
            }
        });
        while let CallerStep::Pending = call.poll(WAY_PATIENCE_MS) {
            let outer = Poller::new().unwrap();
            outer.add(call.descriptor().unwrap(), 0, call.interest()).unwrap();
            // Ends only when something is ready.
            outer.wait(&mut Vec::new(), None).unwrap();
        }
        assert!(call.met().all(|(_, error)| error.is_none()), "it has not failed");
        drop(done);
    });
}
