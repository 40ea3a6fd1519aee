//! What the real client and server are given in place of the system: links, a listener, the time, and a way to dial.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use longarm_client::{Dial, DialStep, Dialing, LostHow, RestOn, Time};
use longarm_memory::{Region, RegionMut};
use longarm_netmod::{
    Caller, CallerStep, DEVICE_WORD_BYTES, DeviceRmw, DialError, DirectAccess, DirectOutcome, DirectSource, Guest,
    Interest, Introduction, Link, LinkError, Listener, Loan, Reach, RemoteMemory, Wish,
};
use longarm_proto::{Identity, NodeId, Run, Secret, Session, WindowRef};
use longarm_shm::sync::{AtomicU64, Ordering};

use crate::announced::Announced;
use crate::dice::Dice;
use crate::fiber::{self, Step};
use crate::network::direct::{self, Kind, Source, Task};
use crate::network::{self, Owner, Port, Subject};

/// One end of a simulated link.
pub struct SimLink {
    run: u64,
    number: u32,
    end: usize,
    name: String,
    begun: VecDeque<Begun>,
    announced: Option<Announced>,
}

/// A transfer that this end has begun.
struct Begun {
    ticket: u64,
    number: u64,
    kind: Kind,
    loan: Option<Arc<dyn Loan>>,
}

impl SimLink {
    /// An end of a link of this run.
    pub fn new(run: u64, number: u32, end: usize) -> SimLink {
        SimLink { run, number, end, name: format!("sim:{number}"), begun: VecDeque::new(), announced: None }
    }

    /// One that a descriptor announces.
    ///
    /// # Errors
    /// When there is no descriptor.
    pub fn announced(run: u64, number: u32, end: usize) -> Result<SimLink, LinkError> {
        let mut link = SimLink::new(run, number, end);
        link.announced = Some(Announced::new(Subject::End(number, end))?);
        Ok(link)
    }

    /// The number of the link.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Link for SimLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        network::with(|network| network.send(self.number, self.end, regions))
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        let received = network::with(|network| network.receive(self.number, self.end, regions));
        if let Some(announced) = &self.announced
            && !network::with(|network| network.has_news(self.number, self.end))
        {
            announced.lower();
        }
        received
    }

    fn on_proven(&mut self) {
        if self.end == 0 {
            network::with(|network| network.prove(self.number));
        }
    }

    fn direct(&mut self) -> Option<&mut dyn DirectAccess> {
        let is_direct = self.end == 0 && network::with(|network| network.is_direct(self.number));
        is_direct.then_some(self as &mut dyn DirectAccess)
    }

    fn is_settled(&self) -> bool {
        self.end == 1 || network::with(|network| network.is_settled(self.number))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.announced.as_ref().map(Announced::descriptor)
    }

    /// Its descriptor becomes readable for room too.
    fn awaits(&self, wanted: Interest) -> Interest {
        if wanted == Interest::default() { wanted } else { Interest::READABLE }
    }

    fn peer_name(&self) -> &str {
        &self.name
    }
}

impl DirectAccess for SimLink {
    fn reach(&mut self, target: &WindowRef, wish: Wish) -> Reach {
        network::with(|network| network.reach(self.number, target, wish))
    }

    fn put(&mut self, ticket: u64, target: &WindowRef, run: Run, source: DirectSource<'_>) -> Result<(), LinkError> {
        let (source, loan) = match source {
            DirectSource::Copied(region) => (direct::copied(region), None),
            DirectSource::Lent(loan) => {
                let loan: Arc<dyn Loan> = Arc::from(loan);
                (Source::Lent(Arc::clone(&loan)), Some(loan))
            }
        };
        let number = network::with(|network| network.post(self.number, ticket, (*target, run), Task::Put(source)))?;
        self.begun.push_back(Begun { ticket, number, kind: Kind::Put, loan });
        Ok(())
    }

    fn get(&mut self, ticket: u64, target: &WindowRef, run: Run, into: Box<dyn Loan>) -> Result<(), LinkError> {
        let number = network::with(|network| network.post(self.number, ticket, (*target, run), Task::Get))?;
        self.begun.push_back(Begun { ticket, number, kind: Kind::Get, loan: Some(Arc::from(into)) });
        Ok(())
    }

    fn rmw(&mut self, ticket: u64, target: &WindowRef, offset: u64, rmw: DeviceRmw) -> Result<(), LinkError> {
        let run = Run { offset, bytes: DEVICE_WORD_BYTES };
        let number = network::with(|network| network.post(self.number, ticket, (*target, run), Task::Update(rmw)))?;
        self.begun.push_back(Begun { ticket, number, kind: Kind::Update, loan: None });
        Ok(())
    }

    fn take_outcome(&mut self) -> Option<(u64, DirectOutcome)> {
        if let Some(resolved) = network::with(|network| network.take_resolved(self.number)) {
            return Some(resolved);
        }
        let (number, bytes) = network::with(|network| network.take_done(self.number))?;
        let begun = self.begun.pop_front().expect("it was begun, and all before it have ended");
        assert_eq!(begun.number, number, "ends come in order");
        if let (Some(word), Kind::Update) = (&bytes, begun.kind) {
            let value = u64::from_ne_bytes(word[..].try_into().expect("a word"));
            return Some((begun.ticket, DirectOutcome::Value(value)));
        }
        if let (Some(bytes), Some(loan)) = (bytes, &begun.loan) {
            loan.each(0, bytes.len(), |piece, at| piece.copy_from_slice(&bytes[at..at + piece.len()]));
        }
        Some((begun.ticket, DirectOutcome::Done))
    }
}

impl Drop for SimLink {
    fn drop(&mut self) {
        if !network::is_current(self.run) {
            return;
        }
        if self.end == 0 {
            // What has ended by now has ended, whether anybody has asked or not.
            let finished: Vec<_> = std::iter::from_fn(|| self.take_outcome()).collect();
            let begun = std::mem::take(&mut self.begun);
            let unfinished: Vec<_> = begun.iter().map(|begun| (begun.ticket, begun.number, begun.kind)).collect();
            network::with(|network| network.leave(self.number, &unfinished, &finished));
            drop(begun);
        }
        network::with(|network| network.close(self.number, self.end));
    }
}

/// Where a simulated server says what others may reach.
pub struct SimMemory {
    run: u64,
    node: u32,
}

impl SimMemory {
    /// That of a node.
    pub fn new(run: u64, node: u32) -> SimMemory {
        SimMemory { run, node }
    }
}

struct Withdrawal {
    run: u64,
    node: u32,
    part: WindowRef,
}

impl RemoteMemory for SimMemory {
    fn publish(&self, part: WindowRef, _: RegionMut<'_>) -> Box<dyn Send + Sync> {
        let (run, node) = (self.run, self.node);
        network::with(|network| network.publish(node, part));
        Box::new(Withdrawal { run, node, part })
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if network::is_current(self.run) {
            network::with(|network| network.withdraw(self.node, self.part));
        }
    }
}

/// Where a simulated server is reached.
pub struct SimListener {
    run: u64,
    node: u32,
    port: Port,
    address: String,
    announced: Option<Announced>,
    /// Connections that it has at a time, at most: it hangs up on the next one. They are only counted where there is a limit.
    links_max: Option<usize>,
}

impl SimListener {
    /// The listener of a node.
    pub fn new(run: u64, node: u32) -> SimListener {
        let (port, address) = (Port::Node, address_of(node, Port::Node));
        SimListener { run, node, port, address, announced: None, links_max: None }
    }

    /// One that a descriptor announces, and the links of those who come.
    ///
    /// # Errors
    /// When there is no descriptor.
    pub fn announced(run: u64, node: u32, port: Port) -> Result<SimListener, LinkError> {
        let announced = Some(Announced::new(Subject::Calls(node, port))?);
        let address = address_of(node, port);
        Ok(SimListener { port, address, announced, ..SimListener::new(run, node) })
    }
}

impl Listener for SimListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        let number = loop {
            let Some(number) = network::with(|network| network.accept(self.node, self.port)) else {
                self.announced.iter().for_each(Announced::lower);
                return Ok(None);
            };
            let accepted = || network::with(|network| network.accepted(self.node, self.port));
            if self.links_max.is_none_or(|max| accepted() <= max) {
                break number;
            }
            network::with(|network| network.close(number, 1));
        };
        let link = match &self.announced {
            Some(_) => SimLink::announced(self.run, number, 1)?,
            None => SimLink::new(self.run, number, 1),
        };
        Ok(Some(Box::new(link)))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.announced.as_ref().map(Announced::descriptor)
    }

    fn limit_links(&mut self, max: usize) {
        self.links_max = Some(max);
    }

    fn address(&self) -> &str {
        &self.address
    }
}

/// What marks the address of a server that ranks call by themselves.
const RANKS: &str = ":ranks";

fn address_of(node: u32, port: Port) -> String {
    match port {
        Port::Node => format!("sim:{node}"),
        Port::Ranks => format!("sim:{node}{RANKS}"),
    }
}

/// The node and the port of an address.
pub fn parse_address(address: &str) -> Option<(u32, Port)> {
    let text = address.strip_prefix("sim:")?;
    let (node, port) = text.strip_suffix(RANKS).map_or((text, Port::Node), |node| (node, Port::Ranks));
    Some((node.parse().ok()?, port))
}

/// The time of the run. Who rests lets the scheduler go on.
pub struct SimTime;

impl Time for SimTime {
    fn now_ms(&self) -> u64 {
        network::now_ns() / 1_000_000
    }

    fn rest(&self, on: RestOn, timeout: Option<Duration>) -> bool {
        // Outside a fiber nobody waits for anything: whoever is there looks again, and goes.
        if fiber::is_inside() {
            fiber::pause(Step::Rest(on, timeout));
        }
        true
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

/// Calls servers for a simulated rank.
pub struct SimDial {
    /// Which run it is of.
    pub run: u64,
    /// The job's secret.
    pub secret: Secret,
    /// Who calls.
    pub identity: Identity,
    /// What is sent is encrypted.
    pub encrypted: bool,
    /// For nonces: no two calls have the same.
    pub dice: AtomicU64,
    /// How it calls where nodes have routers.
    pub by_any_way: Option<ByAnyWay>,
}

/// Begins a call to the server of a node, to which several ways may lead.
pub type ByAnyWay = Box<dyn Fn(Guest) -> Result<Box<dyn Dialing>, LostHow> + Send + Sync>;

impl SimDial {
    fn call(&self, node: NodeId) -> Result<Box<dyn Link>, LinkError> {
        let number = network::with(|network| network.call(Owner::Rank(self.identity.rank.0), node.0))?;
        Ok(Box::new(SimLink::new(self.run, number, 0)))
    }
}

impl Dial for SimDial {
    fn start(&self, node: NodeId, session: Session) -> Result<Box<dyn Dialing>, LostHow> {
        if let Some(by_any_way) = &self.by_any_way {
            let (secret, me, encrypted) = (self.secret.clone(), self.identity, self.encrypted);
            return by_any_way(Guest { secret, me, peer: node, session, encrypted });
        }
        let called = self.call(node);
        let number = self.dice.fetch_add(1, Ordering::Relaxed);
        let nonce = nonce_of(&mut Dice::of(number, 3, self.identity.rank.0.into()));
        let (secret, me) = (&self.secret, self.identity);
        let introduction = Introduction { secret, me, peer: node, session, encrypted: self.encrypted, nonce };
        let caller = called.map(|link| Caller::new(link, &introduction));
        Ok(Box::new(Call { caller: Some(caller), is_known: session.is_known }))
    }
}

/// A call on its way.
struct Call {
    /// `None` once it was decided.
    caller: Option<Result<Caller, LinkError>>,
    is_known: bool,
}

impl Dialing for Call {
    fn poll(&mut self) -> DialStep {
        let may_pass = |error: &DialError| error.may_pass(self.is_known);
        let failed = |error: &DialError| DialStep::Failed { reason: error.to_string(), may_pass: may_pass(error) };
        let mut caller = match self.caller.take().expect("a call that was decided is not asked again") {
            Ok(caller) => caller,
            Err(error) => return failed(&DialError::Connect(error)),
        };
        match caller.poll() {
            CallerStep::Pending => {
                self.caller = Some(Ok(caller));
                DialStep::Pending
            }
            CallerStep::Failed(error) => failed(&error),
            CallerStep::Proven { link, reception } => DialStep::Up { link, reception },
        }
    }
}

/// Numbers that nobody else has.
pub fn nonce_of(dice: &mut Dice) -> [u8; 32] {
    let mut nonce = [0; 32];
    nonce.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&dice.roll().to_le_bytes()));
    nonce
}
