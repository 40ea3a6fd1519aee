//! Connections between devices of iWARP, as one process has them.
//!
//! ```text
//!   caller                                        called
//!     │── record, with a random number (TCP) ──────►│  waits for a call with this number
//!     │◄─ record: address and port (TCP) ───────────│
//!     │── call, with the number (manager) ─────────►│  takes it: both queues are connected
//!     │── first message (queue) ───────────────────►│  and sends from here on
//! ```
//!
//! Who calls with a number that nobody waits for is turned away, at the latest when somebody is waited for. The number went over
//! a connection that was proven before.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Once};

use longarm_netmod::{Interest, Poller, Waker};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::sys::{Context, ManagerEvent, ManagerEvents, ManagerId, NoManager, Queue, local_addresses};

/// Where peers call this process, and who waits for them.
pub(crate) struct Manager {
    events: Arc<ManagerEvents>,
    _listener: ManagerId,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    awaited: Mutex<HashMap<u64, Arc<Awaited>>>,
    /// Strangers are spoken of once: they fill no log.
    told: Once,
}

/// A call that somebody waits for.
struct Awaited {
    id: Mutex<Option<ManagerId>>,
    /// Told when it has come, as anybody who looks may find it.
    waker: Waker,
}

impl Manager {
    /// Listens at an address of the device.
    ///
    /// # Errors
    /// No library, or the system's; `ADDRNOTAVAIL` if the device has no address.
    pub(crate) fn open(context: &Context) -> Result<Arc<Manager>, NoManager> {
        let events = ManagerEvents::new()?;
        let mut why = Errno::ADDRNOTAVAIL;
        for address in local_addresses() {
            let listener = ManagerId::new(&events).map_err(NoManager::System)?;
            match listener.listen(address, context) {
                Ok(port) => {
                    let awaited = Mutex::default();
                    let told = Once::new();
                    return Ok(Arc::new(Manager { events, _listener: listener, address, port, awaited, told }));
                }
                // Another device's.
                Err(Errno::NODEV) => {}
                Err(errno) => why = errno,
            }
        }
        Err(NoManager::System(why))
    }

    /// Hands calls to those that wait for them.
    fn hand_out(&self) {
        while let Some(event) = self.events.take() {
            let ManagerEvent::ConnectRequest { id, number } = event else { continue };
            let awaited = self.awaited.lock().get(&number).map(Arc::clone);
            match awaited {
                Some(awaited) => {
                    *awaited.id.lock() = Some(id);
                    awaited.waker.wake();
                }
                None => self.told.call_once(|| {
                    tracing::warn!(
                        address = %self.address,
                        port = self.port,
                        "turned away a call over RDMA: it names no connection that this process waits for. The next ones \
                         are turned away without a word"
                    );
                }),
            }
        }
    }
}

/// A connection that is being made.
pub(crate) struct Joining {
    manager: Arc<Manager>,
    events: Arc<ManagerEvents>,
    number: u64,
    reads: u8,
    step: Step,
}

enum Step {
    Awaiting(Arc<Awaited>),
    /// The manager has it, and says by events how far it is.
    Connecting(ManagerId),
    /// Both are with who has it now.
    Finished,
}

/// A connection that was made, while it stands.
pub(crate) struct Joined {
    id: ManagerId,
    events: Arc<ManagerEvents>,
    has_ended: bool,
}

impl Joining {
    /// Calls the peer that listens there.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn call(manager: &Arc<Manager>, to: SocketAddr, number: u64, reads: u8) -> Result<Joining, Errno> {
        let events = manager.events.another()?;
        let id = ManagerId::new(&events)?;
        id.resolve_address(manager.address, to)?;
        Ok(Joining { manager: Arc::clone(manager), events, number, reads, step: Step::Connecting(id) })
    }

    /// Waits for the peer's call.
    ///
    /// # Errors
    /// The system's, when descriptors run out.
    pub(crate) fn await_call(manager: &Arc<Manager>, number: u64, reads: u8) -> Result<Joining, Errno> {
        let system = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let awaited = Arc::new(Awaited { id: Mutex::default(), waker: Waker::new().map_err(system)? });
        let events = manager.events.another()?;
        manager.awaited.lock().insert(number, Arc::clone(&awaited));
        // The kernel keeps so many calls that nobody has looked at, and turns others away. Those of strangers make room before
        // the peer is told where to call.
        manager.hand_out();
        Ok(Joining { manager: Arc::clone(manager), events, number, reads, step: Step::Awaiting(awaited) })
    }

    /// Has a poller watch for what it waits for.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn watch(&self, poller: &Poller, token: u64) -> std::io::Result<()> {
        poller.add(self.events.descriptor(), token, Interest::READABLE)?;
        if let Step::Awaiting(awaited) = &self.step {
            poller.add(self.manager.events.descriptor(), token, Interest::READABLE)?;
            poller.add(awaited.waker.descriptor(), token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// Has it watch no more for what others wait for too.
    fn unwatch(&self, poller: &Poller) {
        if let Step::Awaiting(awaited) = &self.step {
            let _ = poller.remove(self.manager.events.descriptor());
            let _ = poller.remove(awaited.waker.descriptor());
        }
    }

    /// Goes as far as is possible now. True once both queues are connected.
    ///
    /// # Errors
    /// What the manager says; nothing comes of it any more.
    pub(crate) fn advance(&mut self, poller: &Poller, queue: &Queue) -> Result<bool, Errno> {
        if let Step::Awaiting(awaited) = &self.step {
            self.manager.hand_out();
            let id = awaited.id.lock().take();
            let Some(mut id) = id else { return Ok(false) };
            self.unwatch(poller);
            id.accept(&self.events, queue, self.reads)?;
            self.step = Step::Connecting(id);
        }
        let Step::Connecting(id) = &mut self.step else { unreachable!("it was taken above") };
        while let Some(event) = self.events.take() {
            match event {
                ManagerEvent::AddressResolved => id.resolve_route()?,
                ManagerEvent::RouteResolved => id.connect(queue, self.number, self.reads)?,
                ManagerEvent::Established => return Ok(true),
                ManagerEvent::Ended(why) => return Err(why),
                ManagerEvent::ConnectRequest { .. } | ManagerEvent::Other => {}
            }
        }
        Ok(false)
    }

    /// Nothing is to come of it.
    pub(crate) fn give_up(self, poller: &Poller) {
        self.unwatch(poller);
    }

    /// The connection that was made.
    pub(crate) fn finish(mut self) -> Joined {
        let Step::Connecting(id) = std::mem::replace(&mut self.step, Step::Finished) else {
            unreachable!("asked when it was made")
        };
        Joined { id, events: Arc::clone(&self.events), has_ended: false }
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        self.manager.awaited.lock().remove(&self.number);
    }
}

impl Joined {
    /// Whether the manager says that it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        while let Some(event) = self.events.take() {
            self.has_ended |= matches!(event, ManagerEvent::Ended(_));
        }
        self.has_ended
    }

    /// What becomes readable when it ends.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.events.descriptor()
    }

    /// Ends it in order.
    pub(crate) fn disconnect(&self) {
        self.id.disconnect();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;
    use crate::fabric::Fabric;
    use crate::options::VerbsOptions;
    use crate::stream::Promised;
    use crate::sys::BACKLOG;

    /// Somebody who calls. The joining goes before its queue.
    struct Caller {
        joining: Joining,
        queue: Promised,
        poller: Poller,
    }

    impl Caller {
        fn new(fabric: &Arc<Fabric>, number: u64) -> Caller {
            let manager = fabric.manager.as_ref().unwrap();
            let queue = fabric.queue().unwrap();
            queue.0.prepare(fabric.port.number).unwrap();
            let joining = Joining::call(manager, (manager.address, manager.port).into(), number, 1).unwrap();
            Caller { joining, queue, poller: Poller::new().unwrap() }
        }

        fn advance(&mut self) -> Result<bool, Errno> {
            self.joining.advance(&self.poller, &self.queue.0)
        }
    }

    #[test]
    fn strangers_who_call_an_iwarp_device_are_turned_away_before_a_peer_is_told_where_to_call() {
        let devices = crate::devices().unwrap_or_default();
        let Some(device) = devices.into_iter().find(|device| device.is_iwarp) else {
            crate::skipped::skipped("no device of iWARP on this machine");
            return;
        };
        let fabric = Fabric::open(&VerbsOptions { device: device.name, ..VerbsOptions::default() }).unwrap();
        let manager = fabric.manager.as_ref().unwrap();
        // Some say nothing at all, and others call with numbers that nobody waits for, until the kernel takes no more.
        let silent: Vec<_> = (0..16).map(|_| TcpStream::connect((manager.address, manager.port)).unwrap()).collect();
        let mut strangers: Vec<_> = (0..=BACKLOG as u64).map(|number| Caller::new(&fabric, number)).collect();
        while !strangers.iter_mut().any(|stranger| stranger.advance().is_err()) {
            std::thread::yield_now();
        }
        let queue = fabric.queue().unwrap();
        queue.0.prepare(fabric.port.number).unwrap();
        let poller = Poller::new().unwrap();
        let mut called = Joining::await_call(manager, 1 << 32, 1).unwrap();
        assert!(manager.events.take().is_none(), "strangers take the places of peers");
        called.watch(&poller, 0).unwrap();
        let mut caller = Caller::new(&fabric, 1 << 32);
        let (mut is_here, mut is_there) = (false, false);
        while !(is_here && is_there) {
            is_here = is_here || caller.advance().expect("the call is taken");
            is_there = is_there || called.advance(&poller, &queue.0).expect("as above");
        }
        drop((called, silent));
    }
}
