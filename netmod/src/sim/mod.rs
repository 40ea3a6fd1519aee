//! `sim`: a network inside the process, made to be as awkward as a real one may be.
//!
//! Every call moves a part that dice choose, often nothing, so that each message is cut in each place; pipes are
//! small, so that senders meet back-pressure; links can be cut, at once or after a number of bytes. The dice start
//! from a seed: the same seed and the same calls give the same run. Each end of each link has dice of its own, so
//! threads that use different links do not disturb each other's luck.
//!
//! There is nothing to sleep on here. A caller that waits has to try again, and luck never lasts: a call that could move bytes
//! moves some after a few tries.

pub(crate) mod dice;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use longarm_memory::{Region, RegionMut};
use parking_lot::Mutex;

use crate::link_error::LinkError;
use crate::traits::{Capabilities, Link, Listener, Netmod};
use dice::Dice;
use wire::{Side, Wire};

/// The capacity of a pipe is a power of two up to this one, in bytes.
const PIPE_BYTES_MAX_LOG2: u64 = 16;

/// The seeded netmod. Clones are the same network.
#[derive(Clone)]
pub struct Sim {
    network: Arc<Mutex<Network>>,
}

struct Network {
    seed: u64,
    pipe_bytes_min: usize,
    listeners: BTreeMap<String, Arc<Mutex<Backlog>>>,
    listener_count: u64,
    links: BTreeMap<String, Weak<Mutex<Wire>>>,
}

/// Links that wait to be accepted.
struct Backlog {
    waiting: VecDeque<SimLink>,
    link_count: u64,
}

impl Sim {
    /// A network of its own, whose luck follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Sim::with_pipes(seed, 1)
    }

    /// The same, but every pipe has room for at least so many bytes: for who sends in pieces that make no sense in part.
    pub fn with_pipes(seed: u64, pipe_bytes_min: usize) -> Self {
        let (listeners, links) = (BTreeMap::new(), BTreeMap::new());
        let network = Network { seed, pipe_bytes_min, listeners, listener_count: 0, links };
        Self { network: Arc::new(Mutex::new(network)) }
    }

    /// Breaks links at once. `name` is one link ([`Link::peer_name`], the same at both ends) or a listener's address,
    /// for all links that were made through it. Of what was under way in each direction, dice choose how much still
    /// arrives; then both ends see [`LinkError::Reset`]. Returns how many links were broken.
    pub fn cut(&self, name: &str) -> usize {
        self.cut_after(name, 0)
    }

    /// Breaks links as [`Sim::cut`] does, but only once each has accepted `bytes` more, both directions together.
    /// Returns how many links that will happen to.
    pub fn cut_after(&self, name: &str, bytes: u64) -> usize {
        let wires: Vec<_> = {
            let mut network = self.network.lock();
            network.links.retain(|_, wire| wire.strong_count() > 0);
            let through = format!("{name}/");
            let named = network.links.iter().filter(|(link, _)| *link == name || link.starts_with(&through));
            named.filter_map(|(_, wire)| wire.upgrade()).collect()
        };
        wires.into_iter().filter(|wire| wire.lock().cut_after(bytes)).count()
    }
}

impl Netmod for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        let mut network = self.network.lock();
        network.listener_count += 1;
        let address = format!("sim:{}", network.listener_count);
        let dice = Dice::of(network.seed, &address);
        let backlog = Arc::new(Mutex::new(Backlog { waiting: VecDeque::new(), link_count: 0 }));
        network.listeners.insert(address.clone(), Arc::clone(&backlog));
        Ok(Box::new(SimListener { sim: self.clone(), backlog, address, dice }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        let mut network = self.network.lock();
        if address.strip_prefix("sim:").is_none_or(|number| number.parse::<u64>().is_err()) {
            return Err(LinkError::BadAddress);
        }
        let backlog = Arc::clone(network.listeners.get(address).ok_or(LinkError::Refused)?);
        let mut backlog = backlog.lock();
        backlog.link_count += 1;
        let name = format!("{address}/{}", backlog.link_count);
        let mut dice = Dice::of(network.seed, &name);
        let capacity_bytes = [(); 2].map(|()| (1 << dice.below(PIPE_BYTES_MAX_LOG2 + 1)).max(network.pipe_bytes_min));
        let wire = Arc::new(Mutex::new(Wire::new(capacity_bytes, dice.fork())));
        network.links.insert(name.clone(), Arc::downgrade(&wire));
        let ours = SimLink { wire: Arc::clone(&wire), side: Side::Caller, dice: dice.fork(), name: name.clone() };
        backlog.waiting.push_back(SimLink { wire, side: Side::Called, dice: dice.fork(), name });
        Ok(Box::new(ours))
    }
}

struct SimListener {
    sim: Sim,
    backlog: Arc<Mutex<Backlog>>,
    address: String,
    dice: Dice,
}

impl Listener for SimListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        if self.dice.below(2) == 0 {
            return Ok(None);
        }
        let next = self.backlog.lock().waiting.pop_front();
        Ok(next.map(|link| Box::new(link) as Box<dyn Link>))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        // Nobody can find the backlog from here on, so what waits in it now is all there will be.
        self.sim.network.lock().listeners.remove(&self.address);
        let waiting = std::mem::take(&mut self.backlog.lock().waiting);
        drop(waiting);
    }
}

struct SimLink {
    wire: Arc<Mutex<Wire>>,
    side: Side,
    dice: Dice,
    name: String,
}

impl Link for SimLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        self.wire.lock().send(self.side, regions, &mut self.dice)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        self.wire.lock().receive(self.side, regions, &mut self.dice)
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
        self.wire.lock().close(self.side);
    }
}
