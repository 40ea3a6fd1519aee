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

use crate::sys::{Context, Line, NoManager, Queue, Report, Reports, local_addresses};

/// Where peers call this process, and who waits for them.
pub(crate) struct Manager {
    reports: Arc<Reports>,
    _listens: Line,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    awaited: Mutex<HashMap<u64, Arc<Awaited>>>,
    /// Strangers are spoken of once: they fill no log.
    told: Once,
}

/// A call that somebody waits for.
struct Awaited {
    line: Mutex<Option<Line>>,
    /// Told when it has come, as anybody who looks may find it.
    waker: Waker,
}

impl Manager {
    /// Listens at an address of the device.
    ///
    /// # Errors
    /// No library, or the system's; `ADDRNOTAVAIL` if the device has no address.
    pub(crate) fn open(context: &Context) -> Result<Arc<Manager>, NoManager> {
        let reports = Reports::new()?;
        let mut why = Errno::ADDRNOTAVAIL;
        for address in local_addresses() {
            let listens = Line::new(&reports).map_err(NoManager::System)?;
            match listens.listen(address, context) {
                Ok(port) => {
                    let awaited = Mutex::default();
                    let told = Once::new();
                    return Ok(Arc::new(Manager { reports, _listens: listens, address, port, awaited, told }));
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
        while let Some(report) = self.reports.take() {
            let Report::Called { line, number } = report else { continue };
            let awaited = self.awaited.lock().get(&number).map(Arc::clone);
            match awaited {
                Some(awaited) => {
                    *awaited.line.lock() = Some(line);
                    awaited.waker.wake();
                }
                None => self.told.call_once(|| {
                    tracing::warn!("somebody whom nobody knows has called the RDMA device, and was turned away");
                }),
            }
        }
    }
}

/// A connection that is being made.
pub(crate) struct Joining {
    manager: Arc<Manager>,
    reports: Arc<Reports>,
    number: u64,
    reads: u8,
    step: Step,
}

enum Step {
    Called(Arc<Awaited>),
    /// The manager has the line, and reports.
    Under(Line),
    /// Both are with who has it now.
    Over,
}

/// A connection that was made, while it stands.
pub(crate) struct Joined {
    line: Line,
    reports: Arc<Reports>,
    has_ended: bool,
}

impl Joining {
    /// Calls the peer that listens there.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn call(manager: &Arc<Manager>, to: SocketAddr, number: u64, reads: u8) -> Result<Joining, Errno> {
        let reports = manager.reports.another()?;
        let line = Line::new(&reports)?;
        line.find_address(manager.address, to)?;
        Ok(Joining { manager: Arc::clone(manager), reports, number, reads, step: Step::Under(line) })
    }

    /// Waits for the peer's call.
    ///
    /// # Errors
    /// The system's, when descriptors run out.
    pub(crate) fn await_call(manager: &Arc<Manager>, number: u64, reads: u8) -> Result<Joining, Errno> {
        let system = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let awaited = Arc::new(Awaited { line: Mutex::default(), waker: Waker::new().map_err(system)? });
        let reports = manager.reports.another()?;
        manager.awaited.lock().insert(number, Arc::clone(&awaited));
        // The kernel keeps so many calls that nobody has looked at, and turns others away. Those of strangers make room before
        // the peer is told where to call.
        manager.hand_out();
        Ok(Joining { manager: Arc::clone(manager), reports, number, reads, step: Step::Called(awaited) })
    }

    /// Has a poller watch for what it waits for.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn watch(&self, poller: &Poller, token: u64) -> std::io::Result<()> {
        poller.add(self.reports.descriptor(), token, Interest::READABLE)?;
        if let Step::Called(awaited) = &self.step {
            poller.add(self.manager.reports.descriptor(), token, Interest::READABLE)?;
            poller.add(awaited.waker.descriptor(), token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// Has it watch no more for what others wait for too.
    fn unwatch(&self, poller: &Poller) {
        if let Step::Called(awaited) = &self.step {
            let _ = poller.remove(self.manager.reports.descriptor());
            let _ = poller.remove(awaited.waker.descriptor());
        }
    }

    /// Goes as far as is possible now. True once both queues are connected.
    ///
    /// # Errors
    /// What the manager says; nothing comes of it any more.
    pub(crate) fn advance(&mut self, poller: &Poller, queue: &Queue) -> Result<bool, Errno> {
        if let Step::Called(awaited) = &self.step {
            self.manager.hand_out();
            let line = awaited.line.lock().take();
            let Some(mut line) = line else { return Ok(false) };
            self.unwatch(poller);
            line.accept(&self.reports, queue, self.reads)?;
            self.step = Step::Under(line);
        }
        let Step::Under(line) = &mut self.step else { unreachable!("it was taken above") };
        while let Some(report) = self.reports.take() {
            match report {
                Report::AddressFound => line.find_route()?,
                Report::RouteFound => line.connect(queue, self.number, self.reads)?,
                Report::Established => return Ok(true),
                Report::Ended(why) => return Err(why),
                Report::Called { .. } | Report::Other => {}
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
        let Step::Under(line) = std::mem::replace(&mut self.step, Step::Over) else {
            unreachable!("asked when it was made")
        };
        Joined { line, reports: Arc::clone(&self.reports), has_ended: false }
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
        while let Some(report) = self.reports.take() {
            self.has_ended |= matches!(report, Report::Ended(_));
        }
        self.has_ended
    }

    /// What becomes readable when it ends.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.reports.descriptor()
    }

    /// Ends it in order.
    pub(crate) fn hang_up(&self) {
        self.line.hang_up();
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
            eprintln!("no device of iWARP on this machine: nothing is tested here");
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
        assert!(manager.reports.take().is_none(), "strangers take the places of peers");
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
