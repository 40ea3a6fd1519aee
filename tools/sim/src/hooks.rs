//! What the real client and server are given in place of the system: links, a listener, the time, and a way to dial.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use longarm_client::{Dial, LostHow, RestOn, Time};
use longarm_memory::{Region, RegionMut};
use longarm_netmod::{Link, LinkError, Listener};
use longarm_proto::{CHALLENGE_BYTES, Identity, InitiatorHandshake, NodeId, Secret, WELCOME_BYTES};

use crate::dice::Dice;
use crate::fiber::{self, Step};
use crate::network::{self, Owner};

/// One end of a simulated link.
pub struct SimLink {
    run: u64,
    number: u32,
    end: usize,
    name: String,
}

impl SimLink {
    /// An end of a link of this run.
    pub fn new(run: u64, number: u32, end: usize) -> SimLink {
        SimLink { run, number, end, name: format!("sim:{number}") }
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
        network::with(|network| network.receive(self.number, self.end, regions))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn peer_name(&self) -> &str {
        &self.name
    }
}

impl Drop for SimLink {
    fn drop(&mut self) {
        if network::is_current(self.run) {
            network::with(|network| network.close(self.number, self.end));
        }
    }
}

/// Where a simulated server is reached.
pub struct SimListener {
    run: u64,
    node: u32,
    address: String,
}

impl SimListener {
    /// The listener of a node.
    pub fn new(run: u64, node: u32) -> SimListener {
        SimListener { run, node, address: format!("sim:{node}") }
    }
}

impl Listener for SimListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        let number = network::with(|network| network.accept(self.node));
        Ok(number.map(|number| Box::new(SimLink::new(self.run, number, 1)) as Box<dyn Link>))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn address(&self) -> &str {
        &self.address
    }
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

/// How often a call that broke is made again.
const CALLS_MAX: u32 = 40;

/// Opens connections for a simulated rank.
pub struct SimDial {
    /// Which run it is of.
    pub run: u64,
    /// The job's secret.
    pub secret: Secret,
    /// Who calls.
    pub identity: Identity,
    /// For nonces: no two calls have the same.
    pub dice: longarm_shm::sync::AtomicU64,
}

impl Dial for SimDial {
    fn dial(&self, node: NodeId) -> Result<Box<dyn Link>, LostHow> {
        let mut pause_ns = 1_000_000;
        for _ in 0..CALLS_MAX {
            match self.call(node) {
                Ok(link) => return Ok(link),
                Err(LinkError::Refused) => break,
                // A server that too many call at once hangs up on some.
                Err(_) => fiber::pause(Step::Compute(pause_ns)),
            }
            pause_ns = (2 * pause_ns).min(50_000_000);
        }
        Err(LostHow::Unreachable(format!("node {node} does not answer")))
    }
}

impl SimDial {
    fn call(&self, node: NodeId) -> Result<Box<dyn Link>, LinkError> {
        let number = network::with(|network| network.call(Owner::Rank(self.identity.rank.0), node.0))?;
        let mut link = SimLink::new(self.run, number, 0);
        let (mut handshake, hello) = InitiatorHandshake::start(&self.secret, self.identity, node, self.nonce());
        send_all(&mut link, &hello)?;
        let challenge = receive_all::<CHALLENGE_BYTES>(&mut link)?;
        let proof = handshake.handle_challenge(&challenge).map_err(|_| LinkError::Reset)?;
        send_all(&mut link, &proof)?;
        let welcome = receive_all::<WELCOME_BYTES>(&mut link)?;
        handshake.check_welcome(&welcome).map_err(|_| LinkError::Reset)?;
        Ok(Box::new(link))
    }

    fn nonce(&self) -> [u8; 32] {
        let number = self.dice.fetch_add(1, longarm_shm::sync::Ordering::Relaxed);
        nonce_of(&mut Dice::of(number, 3, self.identity.rank.0.into()))
    }
}

/// Numbers that nobody else has.
pub fn nonce_of(dice: &mut Dice) -> [u8; 32] {
    let mut nonce = [0; 32];
    nonce.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&dice.roll().to_le_bytes()));
    nonce
}

fn send_all(link: &mut SimLink, bytes: &[u8]) -> Result<(), LinkError> {
    let mut sent = 0;
    while sent < bytes.len() {
        match link.send(&[Region::from_slice(&bytes[sent..])])? {
            0 => fiber::pause(Step::Rest(RestOn::Links, None)),
            more => sent += more,
        }
    }
    Ok(())
}

fn receive_all<const BYTES: usize>(link: &mut SimLink) -> Result<[u8; BYTES], LinkError> {
    let mut bytes = [0; BYTES];
    let mut got = 0;
    while got < BYTES {
        match link.receive(&[RegionMut::from_slice(&mut bytes[got..])])? {
            0 => fiber::pause(Step::Rest(RestOn::Links, None)),
            more => got += more,
        }
    }
    Ok(bytes)
}
