//! A way between the ranks and the server of a node that can be met by faults at any byte: connections are reset, closed,
//! closed on one side, silent for a while; nobody answers for a while; bytes come one by one.
//!
//! One thread a connection moves the bytes of both directions. What happens to a connection stands in its [`Fate`],
//! which is decided when it is taken in.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::work::Outcome;

/// Bytes that one direction takes in before it has passed them on.
const BUFFER_BYTES: usize = 64 << 10;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The directions.
pub const TO_SERVER: usize = 0;
pub const TO_RANK: usize = 1;

/// What happens to a connection at one of its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Both sides get a reset, as from a machine that knows nothing of the connection.
    Reset,
    /// Both sides see an orderly end.
    Close,
    /// The side that this direction leads to sees an orderly end; the other one goes on sending, to nobody.
    CloseOneSide,
    /// Nothing moves in this direction for so many milliseconds.
    StallOneWay(u64),
    /// Nothing moves in either one.
    Stall(u64),
    /// All connections to this node are reset, and for so many milliseconds nobody answers at its address.
    Restart(u64),
}

/// What a connection will go through.
#[derive(Clone, Debug, Default)]
pub struct Fate {
    /// Direction, after how many of its bytes, what. In the order of the bytes of each direction.
    pub faults: Vec<(usize, u64, Fault)>,
    /// Of the first so many bytes of each direction, each comes alone.
    pub single_bytes: u64,
    /// Every piece comes so many milliseconds late.
    pub delay_ms: u64,
}

/// Decides what a node's next connection goes through, by its number.
pub type Decide = Arc<dyn Fn(u32, u64) -> Fate + Send + Sync>;

/// See the module.
pub struct Proxy {
    shared: Arc<Shared>,
    pub address: SocketAddr,
}

struct Shared {
    node: u32,
    server: SocketAddr,
    decide: Decide,
    closed: AtomicBool,
    /// Its end makes all connections of the present end.
    alive: Mutex<Option<(Arc<OwnedFd>, OwnedFd)>>,
    /// When there is to be somebody at the address again.
    back_at: Mutex<Option<Instant>>,
    connections: AtomicU64,
    faults: Arc<AtomicU64>,
}

impl Proxy {
    /// In front of this server. What it does to connections is counted in `fault_injection`.
    pub fn open(node: u32, server: SocketAddr, decide: Decide, faults: Arc<AtomicU64>) -> Outcome<Proxy> {
        let socket = reserve(SocketAddr::new(server.ip(), 0))?;
        rustix::net::listen(&socket, BACKLOG)?;
        let listener = TcpListener::from(socket);
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            node,
            server,
            decide,
            faults,
            closed: AtomicBool::new(false),
            alive: Mutex::new(Some(life()?)),
            back_at: Mutex::new(None),
            connections: AtomicU64::new(0),
        });
        let for_thread = Arc::clone(&shared);
        std::thread::spawn(move || for_thread.listen(listener, address));
        Ok(Proxy { shared, address })
    }

    /// Ends all connections, and listens no more.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.alive.lock().expect("no thread panics").take();
    }
}

/// Both ends of a pipe: the first one hangs up when the second is dropped.
fn life() -> Outcome<(Arc<OwnedFd>, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((Arc::new(reader), writer))
}

/// A socket that has this address, and does not listen yet. Another one that was reserved may have it too, and listen: a process that another thread
/// is just starting has a copy of the listener until its program begins.
fn reserve(address: SocketAddr) -> Outcome<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Connections of the listener before are still there.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

impl Shared {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn listen(self: Arc<Shared>, mut listener: TcpListener, address: SocketAddr) {
        while !self.is_closed() {
            let life = self.alive.lock().expect("no thread panics").as_ref().map(|(reader, _)| Arc::clone(reader));
            let Some(life) = life else { return };
            let mut events = [PollFd::new(&listener, PollFlags::IN), PollFd::new(&*life, PollFlags::empty())];
            if poll(&mut events, None).is_err() {
                continue;
            }
            if events[1].revents().is_empty() {
                let Ok((rank, _)) = listener.accept() else { continue };
                let shared = Arc::clone(&self);
                std::thread::spawn(move || shared.serve(rank, &life));
                continue;
            }
            // A restart, or the end.
            let back_at = self.back_at.lock().expect("no thread panics").take();
            let Some(back_at) = back_at else { return };
            // Before the port is free for somebody else.
            let socket = reserve(address).expect("the port is the listener's");
            // Who calls from now on is refused.
            drop(listener);
            // The pause is the fault.
            std::thread::park_timeout(back_at.saturating_duration_since(Instant::now()));
            rustix::net::listen(&socket, BACKLOG).expect("the address is reserved");
            listener = TcpListener::from(socket);
            let mut alive = self.alive.lock().expect("no thread panics");
            if self.is_closed() {
                return;
            }
            *alive = life_or_none();
        }
    }

    fn restart(&self, pause_ms: u64) {
        let mut alive = self.alive.lock().expect("no thread panics");
        if !self.is_closed() && alive.is_some() {
            *self.back_at.lock().expect("no thread panics") = Some(Instant::now() + Duration::from_millis(pause_ms));
            alive.as_mut().expect("checked above").1 = null();
        }
    }

    fn serve(&self, rank: TcpStream, life: &OwnedFd) {
        let number = self.connections.fetch_add(1, Ordering::AcqRel);
        let fate = (self.decide)(self.node, number);
        // A server that is gone: so is its way.
        let Ok(server) = TcpStream::connect(self.server) else { return reset(&rank) };
        let mut crossing = Crossing::new([rank, server], fate);
        let ended = crossing.run(life, |fault| {
            self.faults.fetch_add(1, Ordering::AcqRel);
            if let Fault::Restart(pause_ms) = fault {
                self.restart(pause_ms);
            }
        });
        if ended.is_err() {
            crossing.ends.iter().for_each(reset);
        }
    }
}

fn life_or_none() -> Option<(Arc<OwnedFd>, OwnedFd)> {
    life().ok()
}

/// A descriptor of no use, in place of one that is to be closed.
fn null() -> OwnedFd {
    std::fs::File::open("/dev/null").expect("every system has it").into()
}

/// Dropped, it leaves the other end with a reset.
fn reset(end: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(end, Some(Duration::ZERO));
}

/// The end of a crossing that is no orderly one.
struct Cut;

impl From<std::io::Error> for Cut {
    fn from(_: std::io::Error) -> Cut {
        Cut
    }
}

/// One direction.
struct Flow {
    buffer: Vec<u8>,
    passed: u64,
    /// What it came from is at its end.
    ended: bool,
    /// So is what it leads to: the rest is thrown away.
    deaf: bool,
    stalled_until: Option<Instant>,
    due: Option<Instant>,
    faults: std::vec::IntoIter<(usize, u64, Fault)>,
    next: Option<(usize, u64, Fault)>,
}

/// One connection: ends 0 at the rank, 1 at the server. Direction d leads from end d to the other.
struct Crossing {
    ends: [TcpStream; 2],
    flows: [Flow; 2],
    fate: Fate,
}

impl Crossing {
    fn new(ends: [TcpStream; 2], fate: Fate) -> Crossing {
        let flow = |way: usize| {
            let faults: Vec<_> = fate.faults.iter().filter(|fault| fault.0 == way).copied().collect();
            let mut faults = faults.into_iter();
            let next = faults.next();
            Flow {
                buffer: Vec::new(),
                passed: 0,
                ended: false,
                deaf: false,
                stalled_until: None,
                due: None,
                faults,
                next,
            }
        };
        for end in &ends {
            let _ = end.set_nonblocking(true);
            let _ = end.set_nodelay(true);
        }
        Crossing { flows: [flow(TO_SERVER), flow(TO_RANK)], ends, fate }
    }

    fn run(&mut self, life: &OwnedFd, mut injected: impl FnMut(Fault)) -> Result<(), Cut> {
        loop {
            let now = Instant::now();
            for way in [TO_SERVER, TO_RANK] {
                self.read(way, now)?;
                while self.write(way, now)? {
                    if let Some(fault) = self.take_fault(way) {
                        self.inject(way, fault, now, &mut injected)?;
                    }
                }
            }
            if self.flows.iter().all(|flow| flow.ended && flow.buffer.is_empty()) {
                return Ok(());
            }
            self.sleep(life, now)?;
        }
    }

    /// Takes in what is there, if what was there before is passed on.
    fn read(&mut self, way: usize, now: Instant) -> Result<(), Cut> {
        let flow = &mut self.flows[way];
        if flow.ended || !flow.buffer.is_empty() || flow.is_stalled(now) {
            return Ok(());
        }
        flow.buffer.resize(BUFFER_BYTES, 0);
        match self.ends[way].read(&mut flow.buffer) {
            Ok(0) => {
                flow.buffer.clear();
                flow.ended = true;
                let _ = self.ends[1 - way].shutdown(Shutdown::Write);
            }
            Ok(bytes) => {
                flow.buffer.truncate(bytes);
                flow.due = (self.fate.delay_ms > 0).then(|| now + Duration::from_millis(self.fate.delay_ms));
            }
            Err(error) => {
                flow.buffer.clear();
                if error.kind() != ErrorKind::WouldBlock {
                    return Err(Cut);
                }
            }
        }
        Ok(())
    }

    /// Passes on as much as goes up to the next fault. True if anything moved.
    fn write(&mut self, way: usize, now: Instant) -> Result<bool, Cut> {
        let flow = &mut self.flows[way];
        if flow.buffer.is_empty() || flow.is_stalled(now) || flow.due.is_some_and(|due| now < due) {
            return Ok(false);
        }
        if flow.deaf {
            flow.buffer.clear();
            return Ok(true);
        }
        let until_fault = flow.next.map_or(u64::MAX, |(_, at, _)| at.saturating_sub(flow.passed).max(1));
        let piece = if flow.passed < self.fate.single_bytes { 1 } else { until_fault };
        let bytes = flow.buffer.len().min(usize::try_from(piece.min(until_fault)).unwrap_or(usize::MAX));
        match self.ends[1 - way].write(&flow.buffer[..bytes]) {
            Ok(written) => {
                flow.buffer.drain(..written);
                flow.passed += written as u64;
                Ok(written > 0)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(_) => Err(Cut),
        }
    }

    /// What happens at this byte.
    fn take_fault(&mut self, way: usize) -> Option<Fault> {
        let flow = &mut self.flows[way];
        let (_, at, fault) = flow.next?;
        if flow.passed < at {
            return None;
        }
        flow.next = flow.faults.next();
        Some(fault)
    }

    fn inject(&mut self, way: usize, fault: Fault, now: Instant, injected: &mut impl FnMut(Fault)) -> Result<(), Cut> {
        injected(fault);
        let until = |pause_ms| Some(now + Duration::from_millis(pause_ms));
        match fault {
            Fault::Reset | Fault::Restart(_) => return Err(Cut),
            Fault::Close => {
                for (end, flow) in self.ends.iter().zip(&mut self.flows) {
                    let _ = end.shutdown(Shutdown::Write);
                    flow.deaf = true;
                }
            }
            Fault::CloseOneSide => {
                let _ = self.ends[1 - way].shutdown(Shutdown::Write);
                self.flows[way].deaf = true;
            }
            Fault::StallOneWay(pause_ms) => self.flows[way].stalled_until = until(pause_ms),
            Fault::Stall(pause_ms) => self.flows.iter_mut().for_each(|flow| flow.stalled_until = until(pause_ms)),
        }
        Ok(())
    }

    fn sleep(&self, life: &OwnedFd, now: Instant) -> Result<(), Cut> {
        let mut events = vec![PollFd::new(life, PollFlags::empty())];
        let mut wakes: Option<Instant> = None;
        for (way, flow) in self.flows.iter().enumerate() {
            let later = [flow.stalled_until, flow.due.filter(|_| !flow.buffer.is_empty())];
            let later = later.into_iter().flatten().filter(|at| *at > now).max();
            if let Some(later) = later {
                wakes = Some(wakes.map_or(later, |wakes| wakes.min(later)));
            } else if !flow.buffer.is_empty() {
                events.push(PollFd::from_borrowed_fd(self.ends[1 - way].as_fd(), PollFlags::OUT));
            } else if !flow.ended {
                events.push(PollFd::from_borrowed_fd(self.ends[way].as_fd(), PollFlags::IN));
            }
        }
        let wait = wakes.map(|wakes| wakes.saturating_duration_since(now) + Duration::from_micros(100));
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        let _ = poll(&mut events, wait.as_ref());
        if events[0].revents().is_empty() { Ok(()) } else { Err(Cut) }
    }
}

impl Flow {
    fn is_stalled(&self, now: Instant) -> bool {
        self.stalled_until.is_some_and(|until| now < until)
    }
}
