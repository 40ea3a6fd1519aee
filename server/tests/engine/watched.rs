//! A network over TCP that notes what is done with its links.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{Capabilities, Link, LinkError, Listener, Netmod, Tcp};

/// TCP, and what was seen of the server's links.
pub struct Watched {
    pub tcp: Tcp,
    pub seen: Arc<Seen>,
}

#[derive(Default)]
pub struct Seen {
    /// How many were said to be of no more use before they were dropped.
    pub abandoned: AtomicU64,
    /// How many were by the last send.
    pub abandoned_by_last_send: AtomicU64,
    /// Bytes of the largest send.
    pub largest_send: AtomicU64,
}

struct WatchedListener {
    listener: Box<dyn Listener>,
    seen: Arc<Seen>,
}

struct WatchedLink {
    link: Box<dyn Link>,
    seen: Arc<Seen>,
}

impl Netmod for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn capabilities(&self) -> Capabilities {
        self.tcp.capabilities()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        let (listener, seen) = (self.tcp.listen()?, Arc::clone(&self.seen));
        Ok(Box::new(WatchedListener { listener, seen }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        self.tcp.connect(address)
    }
}

impl Listener for WatchedListener {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        let accepted = self.listener.accept()?;
        Ok(accepted.map(|link| Box::new(WatchedLink { link, seen: Arc::clone(&self.seen) }) as _))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.listener.descriptor()
    }

    fn address(&self) -> &str {
        self.listener.address()
    }
}

impl Link for WatchedLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let bytes: usize = regions.iter().map(Region::len).sum();
        self.seen.largest_send.fetch_max(bytes as u64, Ordering::SeqCst);
        self.seen.abandoned_by_last_send.store(self.seen.abandoned.load(Ordering::SeqCst), Ordering::SeqCst);
        self.link.send(regions)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        self.link.receive(regions)
    }

    fn abandon(&mut self) {
        self.seen.abandoned.fetch_add(1, Ordering::SeqCst);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn peer_name(&self) -> &str {
        self.link.peer_name()
    }
}
