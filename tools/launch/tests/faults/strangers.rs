//! Strangers call the servers of a job that works: with garbage, with a wrong secret, with nothing at all. They are
//! hung up on, and the job's results are right.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use libtest_mimic::{Failed, Trial};
use longarm::{Reduction, Update, World};
use longarm_proto::{
    CHALLENGE_BYTES, HELLO_BYTES, Identity, InitiatorHandshake, JobId, NodeId, PROOF_BYTES, Rank, Secret, Session,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::outside::Job;

/// Nodes of the job, one rank each.
const NODES: u32 = 4;
const WORDS: usize = 5000;

/// The rank's side: says where it listens, waits for "go", works until "stop".
pub fn body(world: World, _: &str) {
    let (me, ranks) = (world.rank(), world.size());
    let (address, door) = listening();
    println!("{me} {address} {door}");
    if me == 0 {
        read_line();
    }
    world.barrier_collective().expect("strangers do no harm");
    // The first exchange of an allocation opens connections that were not there before.
    let window = world.allocate_collective::<u64>(WORDS).expect("strangers do no harm");
    let stop = AtomicBool::new(false);
    let mut rounds = 0;
    std::thread::scope(|scope| {
        if me == 0 {
            scope.spawn(|| {
                read_line();
                stop.store(true, Ordering::Release);
            });
        }
        let ones = vec![1; WORDS];
        loop {
            for rank in 0..ranks {
                window.accumulate(rank, 0, Update::Sum, &ones).expect("strangers do no harm");
            }
            rounds += 1;
            let mut ends = [u64::from(stop.load(Ordering::Acquire))];
            world.broadcast_collective(0, &mut ends).expect("strangers do no harm");
            if ends[0] != 0 {
                break;
            }
        }
    });
    world.barrier_collective().expect("strangers do no harm");
    for rank in 0..ranks {
        let sums = window.get_vec(rank, 0..WORDS).expect("strangers do no harm");
        assert_eq!(sums, vec![rounds * u64::from(ranks); WORDS]);
    }
    let mut all = [rounds];
    world.allreduce_collective(Reduction::Min, &mut all).expect("strangers do no harm");
    assert_eq!(all[0], rounds);
    world.finalize().expect("strangers do no harm");
    println!("rank {me} is content");
}

fn read_line() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the test says when to go on");
}

/// Where this process listens: address of its server, and name of its door.
fn listening() -> (String, String) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("there is /proc").flatten();
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let own: Vec<String> =
        links.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect();
    let is_own = |inode: &str| own.iter().any(|own| own == inode);
    let table = |name: &str| std::fs::read_to_string(format!("/proc/self/net/{name}")).expect("there is /proc");
    let mut addresses: Vec<String> = table("tcp")
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (ip, port) = fields.get(1)?.split_once(':')?;
            // 0A: it listens.
            (fields.get(3) == Some(&"0A") && is_own(fields.get(9)?)).then(|| {
                let ip = u32::from_str_radix(ip, 16).expect("an address in hexadecimal").to_ne_bytes();
                let port = u16::from_str_radix(port, 16).expect("a port in hexadecimal");
                format!("{}:{port}", std::net::Ipv4Addr::from(ip))
            })
        })
        .collect();
    // 0A again: nothing listens that was not asked for, on any family of addresses.
    let listens =
        |line: &str| line.split_whitespace().nth(3) == Some("0A") && line.split_whitespace().nth(9).is_some_and(is_own);
    assert!(!table("tcp6").lines().any(listens), "nobody asked for IPv6");
    assert_eq!(addresses.len(), 1, "a server listens at one address: {addresses:?}");
    let address = addresses.pop();
    let door = table("unix").lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let name = fields.get(7)?.strip_prefix('@')?;
        // A routed job has a second socket on each node, for its ranks.
        let is_door = name.starts_with("longarm-") && !name.ends_with("-router");
        (is_own(fields.get(6)?) && is_door).then(|| name.to_owned())
    });
    (address.expect("the leader of a node listens"), door.expect("the leader of a node has a door"))
}

/// A node's server, as a stranger finds it.
pub struct Server {
    node: u32,
    address: String,
    pub door: String,
    /// Connections are encrypted, or a stranger would be turned away for not knowing that.
    sealed: bool,
}

impl Server {
    pub fn call(&self) -> Result<TcpStream, Failed> {
        Ok(TcpStream::connect(&self.address)?)
    }

    pub fn job(&self) -> JobId {
        let number = self.door.split('-').nth(1).and_then(|hexadecimal| u64::from_str_radix(hexadecimal, 16).ok());
        JobId(number.expect("the door's name has the number of the job"))
    }

    /// Pretends to be a rank of the job.
    pub fn hello(&self, secret: &Secret) -> (InitiatorHandshake, [u8; HELLO_BYTES]) {
        self.hello_of(self.job(), secret)
    }

    /// A rank of any job.
    pub fn hello_of(&self, job: JobId, secret: &Secret) -> (InitiatorHandshake, [u8; HELLO_BYTES]) {
        let me = Identity { job, rank: Rank(0), node: NodeId(0) };
        let session = Session { number: 77, attempt: 1, is_known: false, received_bytes: 0 };
        InitiatorHandshake::start(secret, me, NodeId(self.node), session, self.sealed, [self.node as u8 + 1; 32])
    }

    /// Up to the proof, which is not sent yet.
    pub fn call_with_hello(&self, secret: &Secret) -> Result<(TcpStream, [u8; PROOF_BYTES]), Failed> {
        let mut stream = self.call()?;
        let (mut handshake, hello) = self.hello(secret);
        stream.write_all(&hello)?;
        let mut challenge = [0; CHALLENGE_BYTES];
        stream.read_exact(&mut challenge)?;
        Ok((stream, handshake.handle_challenge(&challenge)?))
    }
}

/// Reads until the other end hangs up; says what came until then.
pub fn until_hung_up(mut stream: TcpStream) -> Vec<u8> {
    let mut heard = Vec::new();
    // A reset is a way to hang up too.
    let _ = stream.read_to_end(&mut heard);
    heard
}

pub fn expect_silence(who: &str, stream: TcpStream) -> Result<(), Failed> {
    let heard = until_hung_up(stream);
    if heard.is_empty() { Ok(()) } else { Err(format!("{who} was answered: {heard:02x?}").into()) }
}

pub fn start(variables: &[(&str, &str)]) -> Result<(Job, Vec<Server>), Failed> {
    let mut job = Job::start((NODES, NODES), "work", "", variables)?;
    let sealed = variables.contains(&("LONGARM_ENCRYPT", "1"));
    let mut servers = Vec::new();
    for _ in 0..NODES {
        let line = job.line()?;
        let words: Vec<&str> = line.split(' ').collect();
        let [node, address, door] = words[..] else { return Err(format!("no address: {line}").into()) };
        servers.push(Server { node: node.parse()?, address: address.into(), door: door.into(), sealed });
    }
    Ok((job, servers))
}

pub fn finish(mut job: Job) -> Result<(), Failed> {
    job.say("stop")?;
    let ended = job.end()?;
    ended.expect_status(0)?;
    (0..NODES).try_for_each(|rank| ended.expect_line(&format!("rank {rank} "), "is content"))
}

fn garbage() -> Result<(), Failed> {
    let (mut job, servers) = start(&[])?;
    job.say("go")?;
    for round in 0..30_u32 {
        for server in &servers {
            let mut stream = server.call()?;
            let noise: Vec<u8> = (0..4096_u32).map(|at| (at.wrapping_mul(round + 3) >> 3) as u8).collect();
            // It may hang up before it has all.
            let _ = stream.write_all(&noise);
            expect_silence("garbage", stream)?;
        }
    }
    finish(job)
}

fn wrong_secret() -> Result<(), Failed> {
    let (mut job, servers) = start(&[])?;
    job.say("go")?;
    let secret = Secret([0x5a; 32]);
    for server in &servers {
        let (mut stream, proof) = server.call_with_hello(&secret)?;
        stream.write_all(&proof)?;
        expect_silence("a wrong proof", stream)?;
        // The same bytes again: the server has another nonce by now.
        let (mut again, _) = server.call_with_hello(&secret)?;
        again.write_all(&proof)?;
        expect_silence("a proof that was used before", again)?;
        // Another job, another node, another version.
        for byte in [8, 24, 4] {
            let (_, mut hello) = server.hello(&secret);
            hello[byte] ^= 0x40;
            let mut stream = server.call()?;
            stream.write_all(&hello)?;
            expect_silence("a hello that is not for it", stream)?;
        }
    }
    finish(job)
}

fn half_open() -> Result<(), Failed> {
    let max = 4;
    let variables = [("LONGARM_HALF_OPEN_MAX", "4"), ("LONGARM_HANDSHAKE_TIMEOUT_MS", "600000")];
    let (mut job, servers) = start(&variables)?;
    let mut open = Vec::new();
    for server in &servers {
        for number in 0..3 * max {
            let mut stream = server.call()?;
            // Nothing, a part of a hello, a hello without what follows.
            let (_, hello) = server.hello(&Secret([1; 32]));
            stream.write_all(&hello[..[0, 10, HELLO_BYTES][number % 3]])?;
            open.push(stream);
        }
    }
    // Only now the job opens the rest of its connections.
    job.say("go")?;
    finish(job)?;
    drop(open);
    Ok(())
}

fn nothing() -> Result<(), Failed> {
    let (mut job, servers) = start(&[("LONGARM_HANDSHAKE_TIMEOUT_MS", "500")])?;
    job.say("go")?;
    let silent: Vec<TcpStream> = servers.iter().map(Server::call).collect::<Result<_, _>>()?;
    for stream in silent {
        expect_silence("silence", stream)?;
    }
    finish(job)
}

fn at_the_door() -> Result<(), Failed> {
    let (mut job, servers) = start(&[])?;
    job.say("go")?;
    for server in &servers {
        for packet in [&b"knock knock"[..], b"{\"Attach\":{}}", b"\xff\xfe", b"{\"NodeSegment\":{\"job\":1e99}}"] {
            let door = visit(&server.door)?;
            rustix::net::send(&door, packet, SendFlags::NOSIGNAL)?;
            let mut answer = [0; 100];
            let (bytes, _) = rustix::net::recv(&door, &mut answer, RecvFlags::empty())?;
            if bytes > 0 {
                return Err(format!("{packet:02x?} was answered at the door").into());
            }
        }
        let door = visit(&server.door)?;
        rustix::net::send(&door, b"{\"NodeSegment\":{\"job\":12}}", SendFlags::NOSIGNAL)?;
        let mut answer = [0; 100];
        let (bytes, _) = rustix::net::recv(&door, &mut answer, RecvFlags::empty())?;
        let answer = String::from_utf8_lossy(&answer[..bytes]).into_owned();
        if !answer.contains("another job") {
            return Err(format!("the door says {answer:?} to a rank of another job").into());
        }
    }
    finish(job)
}

pub fn visit(door: &str) -> Result<OwnedFd, Failed> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(door.as_bytes())?)?;
    Ok(socket)
}

/// A server is reached at the address that was asked for, and at no other of its machine.
fn one_address() -> Result<(), Failed> {
    for interface in ["127.0.0.1", "127.0.0.2"] {
        let (mut job, servers) = start(&[("LONGARM_INTERFACE", interface)])?;
        for server in &servers {
            let (ip, port) = server.address.split_once(':').expect("an address has a port");
            if ip != interface {
                return Err(format!("a server listens at {ip}, not at {interface}").into());
            }
            if TcpStream::connect(format!("127.0.0.3:{port}")).is_ok() {
                return Err("a server is reached at an address that it was not given".into());
            }
        }
        job.say("go")?;
        finish(job)?;
    }
    Ok(())
}

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("strangers_with_garbage_are_hung_up_on", garbage),
        Trial::test("strangers_with_a_wrong_secret_are_hung_up_on", wrong_secret),
        Trial::test("strangers_that_hold_more_lines_than_there_are_keep_nobody_out", half_open),
        Trial::test("strangers_that_say_nothing_are_hung_up_on", nothing),
        Trial::test("servers_listen_at_the_address_of_the_job_and_at_no_other", one_address),
        Trial::test("visitors_with_garbage_are_turned_away_at_the_door", at_the_door),
    ]
}
