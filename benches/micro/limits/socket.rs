//! Ping-pongs and streams over raw sockets of the loopback interface.

use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use memmap2::MmapMut;

use super::Waiting;
use super::wire::{ANSWER_BYTES, Ask, Link, PAYLOAD_BYTES_MAX, encode};
use crate::Failure;
use crate::line::{Key, LIMIT, Line};
use crate::micro::rank::ops::BYTES;
use crate::micro::sample::{Effort, Sample, seconds_behind_computing};
use crate::micro::{buffer, processors};

const TRANSPORT: &str = "tcp";
const MIB: usize = 1 << 20;

/// One pair of processes.
struct Setup {
    server: Waiting,
    client: Waiting,
    /// Each on a processor of its own, or wherever the system puts them.
    pinned: bool,
    /// The server's processor computes besides.
    busy: bool,
}

const SPIN: Setup = Setup { server: Waiting::Spin, client: Waiting::Spin, pinned: true, busy: false };
const BLOCK: Setup = Setup { server: Waiting::Block, client: Waiting::Block, pinned: true, busy: false };
const BLOCK_ANYWHERE: Setup = Setup { pinned: false, ..BLOCK };
const EPOLL: Setup = Setup { server: Waiting::Epoll, client: Waiting::Spin, pinned: true, busy: false };
const EPOLL_BUSY: Setup = Setup { busy: true, ..EPOLL };

/// Measures all of them. The calling thread must be free to go to every processor.
pub(crate) fn measure(effort: Effort, quick: bool, emit: &mut (dyn FnMut(Line) + Send)) -> Result<(), Failure> {
    let mut tell = |op: &str, bytes: usize, sample: Sample| {
        emit(Line::new(LIMIT, Key { transport: TRANSPORT, op, bytes: bytes as u64 }, &sample));
    };
    with(&SPIN, |client| {
        for bytes in BYTES {
            tell("put", bytes, client.measure(effort, Ask::Put, bytes)?);
            tell("get", bytes, client.measure(effort, Ask::Get, bytes)?);
        }
        // One round trip is what each of these takes at least; a lock and its unlock take two.
        let trip = client.measure(effort, Ask::Get, 8)?;
        for op in ["fadd", "cas", "swap"] {
            tell(op, 8, trip);
        }
        tell("roundtrip_spin", 8, trip);
        tell("am_roundtrip", 8, trip);
        tell("barrier2", 0, trip);
        tell("lockpair", 0, Sample { seconds: trip.seconds * 2.0, seconds_min: trip.seconds_min * 2.0, ..trip });
        Ok(())
    })?;
    for (name, setup) in [("block", &BLOCK), ("block_anywhere", &BLOCK_ANYWHERE)] {
        with(setup, |client| {
            tell(&format!("roundtrip_{name}"), 8, client.measure(effort, Ask::Get, 8)?);
            tell(&format!("put_{name}"), MIB, client.measure(effort, Ask::Put, MIB)?);
            tell(&format!("get_{name}"), MIB, client.measure(effort, Ask::Get, MIB)?);
            Ok(())
        })?;
    }
    let limit = Duration::from_millis(if quick { 200 } else { 800 });
    for (name, setup) in [("roundtrip_epoll", &EPOLL), ("roundtrip_epoll_busy", &EPOLL_BUSY)] {
        with(setup, |client| {
            tell(name, 8, client.measure_singly(effort, limit, Ask::Get, 8)?);
            tell(&format!("{name}_get"), MIB, client.measure_singly(effort, limit, Ask::Get, MIB)?);
            tell(&format!("{name}_passive"), 8, client.measure_behind_computing(effort, Ask::Get, 8)?);
            Ok(())
        })?;
    }
    Ok(())
}

/// Runs `body` against a server of its own, on a thread that may be pinned.
fn with(setup: &Setup, body: impl FnOnce(&mut Client) -> Result<(), Failure> + Send) -> Result<(), Failure> {
    let pair = processors::pair()?;
    let server = Server::start(setup, pair[1])?;
    let on_its_own_thread = || {
        if setup.pinned {
            processors::stay_on(pair[0])?;
        }
        body(&mut Client::connect(server.port, setup.client)?)
    };
    std::thread::scope(|scope| scope.spawn(on_its_own_thread).join().map_err(|_| "a limit has panicked")?)
}

struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(setup: &Setup, processor: usize) -> Result<Server, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("server").arg(setup.server.name()).stdin(Stdio::null()).stdout(Stdio::piped());
        if setup.pinned {
            command.arg("--processor").arg(processor.to_string());
        }
        if setup.busy {
            command.arg("--busy");
        }
        let mut process = command.spawn()?;
        let mut line = String::new();
        let stdout = process.stdout.take().expect("it is a pipe");
        let port = BufReader::new(stdout).read_line(&mut line).map(|_| line.trim().parse());
        // From here on dropping ends the process.
        let mut server = Server { process, port: 0 };
        server.port = port??;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One end of a connection to a plain server on this machine.
pub(crate) struct Client {
    link: Link,
    memory: MmapMut,
}

impl Client {
    pub(crate) fn connect(port: u16, waiting: Waiting) -> Result<Client, Failure> {
        let link = Link::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?, waiting)?;
        Ok(Client { link, memory: buffer::private(PAYLOAD_BYTES_MAX)? })
    }

    fn measure(&mut self, effort: Effort, ask: Ask, bytes: usize) -> Result<Sample, Failure> {
        effort.measure(|count| {
            for _ in 0..count {
                self.once(ask, bytes)?;
            }
            Ok(())
        })
    }

    fn measure_singly(&mut self, effort: Effort, limit: Duration, ask: Ask, bytes: usize) -> Result<Sample, Failure> {
        effort.measure_singly(limit, || self.once(ask, bytes))
    }

    fn measure_behind_computing(&mut self, effort: Effort, ask: Ask, bytes: usize) -> Result<Sample, Failure> {
        let seconds = (0..effort.passes()).map(|_| seconds_behind_computing(&mut || self.once(ask, bytes)));
        Ok(Sample::of_batches(seconds.collect::<Result<_, _>>()?))
    }

    /// Asks, and waits for the answer.
    pub(crate) fn once(&mut self, ask: Ask, bytes: usize) -> Result<(), Failure> {
        let mut answer = [0; ANSWER_BYTES];
        let memory = &mut self.memory[..black_box(bytes)];
        match ask {
            Ask::Put => {
                self.link.write(&encode(ask, bytes), memory)?;
                self.link.read(&mut answer, &mut [])?;
            }
            Ask::Get => {
                self.link.write(&encode(ask, bytes), &[])?;
                self.link.read(&mut answer, memory)?;
            }
        }
        black_box(&answer);
        Ok(())
    }
}
