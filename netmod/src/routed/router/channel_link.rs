//! The links of a process: those of a server, and of the rank that has the router or a line to it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use parking_lot::Mutex;

use super::{Arrived, Router};
use crate::beacon::Beacon;
use crate::interest::Interest;
use crate::link_error::LinkError;
use crate::routed::channel::Here;
use crate::routed::line;
use crate::routed::table::ChannelKey;
use crate::traits::Link;

/// A [`Link`] through the router of this process. It moves bytes while somebody drives the router: the server's thread does, and
/// who calls it.
struct ChannelLink {
    router: Arc<Mutex<Router>>,
    key: ChannelKey,
    beacon: Arc<Beacon>,
    name: String,
}

impl ChannelLink {
    fn new(router: Arc<Mutex<Router>>, key: ChannelKey, beacon: Arc<Beacon>, name: String) -> ChannelLink {
        ChannelLink { router, key, beacon, name }
    }
}

impl Link for ChannelLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        self.router.lock().send(self.key, regions)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        self.router.lock().receive(self.key, regions)
    }

    fn holds_bytes(&self) -> bool {
        self.router.lock().holds_bytes(self.key)
    }

    fn beacon(&self) -> Option<&Beacon> {
        Some(&self.beacon)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.beacon.descriptor().ok()
    }

    fn awaits(&self, wanted: Interest) -> Interest {
        self.router.lock().want(self.key, wanted);
        if wanted == Interest::default() { wanted } else { Interest::READABLE }
    }

    fn peer_name(&self) -> &str {
        &self.name
    }
}

impl Drop for ChannelLink {
    fn drop(&mut self) {
        self.router.lock().end(self.key);
    }
}

impl Router {
    /// Does what there is to do, and gives the next who has come for the server.
    pub(crate) fn accept(this: &Arc<Mutex<Router>>) -> Option<Box<dyn Link>> {
        let mut router = this.lock();
        // Also while ranks wait who call by themselves: the router has others to see to.
        if router.arrived.is_empty() {
            router.turn();
        }
        match router.arrived.pop_front() {
            Some(Arrived::Channel { key, beacon, name }) => {
                Some(Box::new(ChannelLink::new(Arc::clone(this), key, beacon, name)))
            }
            Some(Arrived::Host(link)) => Some(Box::new(link)),
            None => router.take_in_rank(),
        }
    }

    /// Opens a channel to an address from inside this process.
    pub(crate) fn connect(this: &Arc<Mutex<Router>>, address: &str) -> Result<Box<dyn Link>, LinkError> {
        let mut router = this.lock();
        if router.is_own_address(address) {
            let (here, there) = line::pair(address)?;
            router.arrive(Arrived::Host(there));
            return Ok(Box::new(here));
        }
        let (here, beacon) = Here::new();
        // A rank sleeps on the descriptor: without one connecting fails now.
        beacon.descriptor()?;
        let begun = router.begin_here(address, here);
        // Also if none has begun: the trunk before may have ended.
        router.settle();
        drop(router);
        let key = begun?;
        Ok(Box::new(ChannelLink::new(Arc::clone(this), key, beacon, address.to_owned())))
    }
}
