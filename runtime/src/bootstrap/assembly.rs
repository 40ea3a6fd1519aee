//! A rank's way into a job that something else has started: it connects to the coordinator, by itself or through the leader of its
//! node, both prove that they know the secret, and it says where it runs. From then on it speaks as with `longarm run`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longarm_control::arrival::{Arrival, Met};
use longarm_control::messages::CONTROL_VERSION;
use longarm_control::proof::{CHALLENGE_BYTES, Caller, PROOF_BYTES, ProofError, RankProof, Ticket};
use longarm_control::relay::LAST;
use longarm_memory::Unshared;
use longarm_shm::sync::{AtomicBool, Ordering};
use rustix::net::SendFlags;

use super::launcher::{is_end, read_line};
use super::neighbours::{self, Leader, Neighbours, Role};
use super::node::raise_descriptor_limit;
use super::relay::RelayThread;
use crate::config::Config;
use crate::error::InitError;
use crate::topology;

/// How long one attempt to connect may take, before another one is made.
const ATTEMPT: Duration = Duration::from_secs(2);
/// The pause between two attempts: from the first to the last.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long the coordinator may take to say what has become of the assembly, beyond the time that it gives to it.
const SPARE: Duration = Duration::from_secs(10);

/// Where the coordinator is.
#[derive(Clone, Debug)]
pub(crate) enum CoordinatorAddress {
    /// Rank 0 has said so.
    At(Vec<SocketAddr>),
    /// Somebody has set it: a name and a port.
    Named(String),
}

/// A rank that has met the others.
pub(crate) struct Assembly {
    pub(crate) reader: Box<dyn BufRead + Send>,
    pub(crate) writer: Box<dyn Write + Send>,
    /// Where rank 0 runs.
    pub(crate) host: String,
    pub(crate) on_several: bool,
    /// The others of its node come through this process.
    pub(crate) relay: Option<RelayThread>,
    /// It comes through another one of its node.
    pub(crate) behind: Option<Behind>,
}

/// The relay that a rank comes through, in another one's process.
#[derive(Clone)]
pub(crate) struct Behind {
    /// Whose process that is.
    pub(crate) rank: u32,
    heard_last: Arc<AtomicBool>,
}

impl Behind {
    /// Whether the relay's process has ended, and nothing else, now that the connection has.
    pub(crate) fn has_ended(&self) -> bool {
        !self.heard_last.load(Ordering::Acquire)
    }
}

/// What leads to the coordinator.
enum Stream {
    Tcp(Unshared<TcpStream>),
    /// Over the relay of this rank's node.
    Unix(Unshared<UnixStream>),
}

impl Stream {
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => Stream::Tcp(Unshared::new(stream.try_clone()?)?),
            Stream::Unix(stream) => Stream::Unix(Unshared::new(stream.try_clone()?)?),
        })
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            // A relay that is gone is no reason for a signal.
            Stream::Unix(stream) => Ok(rustix::net::send(&*stream, bytes, SendFlags::NOSIGNAL)?),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a rank hears once it has proven itself, without a relay's last byte.
struct StreamReader {
    stream: Stream,
    heard_last: Arc<AtomicBool>,
}

impl Read for StreamReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.stream.read(into)?;
        if matches!(self.stream, Stream::Unix(_)) && into[..bytes].last() == Some(&LAST) {
            self.heard_last.store(true, Ordering::Release);
            return Ok(bytes - 1);
        }
        Ok(bytes)
    }
}

/// Why an attempt did not succeed.
enum Attempt {
    /// It may the next time.
    Again(String),
    /// It never will.
    Never(String),
    /// Nobody listens at any address: it will where rank 0 may be yet to come.
    NobodyThere(String),
}

impl CoordinatorAddress {
    pub(crate) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            CoordinatorAddress::At(addresses) => Ok(addresses.clone()),
            CoordinatorAddress::Named(name) => Ok(name.to_socket_addrs()?.collect()),
        }
    }
}

impl std::fmt::Display for CoordinatorAddress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CoordinatorAddress::At(addresses) => {
                let shown: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
                formatter.write_str(&shown.join(", "))
            }
            CoordinatorAddress::Named(name) => formatter.write_str(name),
        }
    }
}

/// Meets the other ranks of a job: collective over all of them.
///
/// # Errors
/// Who is missing, or why the coordinator cannot be reached or does not let this rank in.
pub(crate) fn meet(
    coordinator: &CoordinatorAddress,
    ticket: &Ticket,
    rank: u32,
    neighbours: Option<Neighbours>,
    config: &Config,
) -> Result<Assembly, InitError> {
    let until = Instant::now() + Duration::from_secs(config.meet_timeout_s);
    let approach = Approach { coordinator, ticket, rank, config, until };
    let (mut relay, mut of) = (None, None);
    let machine = topology::machine_name();
    let near = match neighbours::find(neighbours, config.nodes, (ticket, &machine), rank, until) {
        Role::Leader(leader) => approach.begin_relay(leader)?.map(|(thread, stream)| {
            relay = Some(thread);
            stream
        }),
        Role::Behind(stream, first) => {
            of = Some(first);
            Some(stream)
        }
        Role::Alone => None,
    };
    // The relay of this process is let in already, and the others' messages go through it: for its answers this rank waits as long as for the others.
    let rest = until.saturating_duration_since(Instant::now());
    let for_an_answer = if relay.is_some() { rest.max(ATTEMPT) } else { ATTEMPT };
    let near = near.filter(|stream| stream.set_read_timeout(Some(for_an_answer)).is_ok());
    let near = near.and_then(|stream| match prove(stream, Caller::Rank, ticket, rank) {
        Ok(stream) => Some(stream),
        // It shows by itself what is wrong, if anything is but the relay.
        Err(Attempt::Again(reason) | Attempt::Never(reason) | Attempt::NobodyThere(reason)) => {
            tracing::debug!(reason, "the relay of this node leads nowhere: this rank goes to rank 0 by itself");
            None
        }
    });
    if let (None, Some(relay)) = (&near, &relay) {
        relay.leader_goes_by_itself();
    }
    // A child of a fork that outlives this rank would hide its death from the coordinator.
    let stream = match near {
        Some(stream) => Stream::Unix(Unshared::new(stream).map_err(InitError::Coordinator)?),
        None => Stream::Tcp(Unshared::new(approach.connect(Caller::Rank)?).map_err(InitError::Coordinator)?),
    };
    arrive(stream, machine, (relay, of), config)
}

/// What a connection to the coordinator needs.
struct Approach<'a> {
    coordinator: &'a CoordinatorAddress,
    ticket: &'a Ticket,
    rank: u32,
    config: &'a Config,
    until: Instant,
}

impl Approach<'_> {
    /// Connects, and proves itself, as soon as the coordinator is there.
    fn connect(&self, caller: Caller) -> Result<TcpStream, InitError> {
        let mut pause = PAUSE_MIN;
        loop {
            let reason = match attempt(self.coordinator, caller, self.ticket, self.rank) {
                Ok(stream) => return Ok(stream),
                Err(Attempt::Never(reason)) => {
                    return Err(InitError::NotLetIn { coordinator: self.coordinator.to_string(), reason });
                }
                // Rank 0 listens before it says where.
                Err(Attempt::NobodyThere(reason)) if matches!(self.coordinator, CoordinatorAddress::At(_)) => {
                    let reason = format!(
                        "nobody listens there any more ({reason}): either rank 0 has ended, or an earlier program that \
                         was started in the same place was there; start each program with an mpiexec, mpirun or srun of its own"
                    );
                    return Err(InitError::NotLetIn { coordinator: self.coordinator.to_string(), reason });
                }
                Err(Attempt::Again(reason) | Attempt::NobodyThere(reason)) => reason,
            };
            if Instant::now() + pause >= self.until {
                let (coordinator, seconds) = (self.coordinator.to_string(), self.config.meet_timeout_s);
                return Err(InitError::Unreached { coordinator, seconds, reason });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// From now on the others of this node come through this process. Nothing, where the system does not allow it.
    fn begin_relay(&self, leader: Leader) -> Result<Option<(RelayThread, UnixStream)>, InitError> {
        raise_descriptor_limit();
        let connection = Unshared::new(self.connect(Caller::Relay)?).map_err(InitError::Coordinator)?;
        let _ = connection.set_read_timeout(None);
        // Besides the others: this rank itself, and strangers of this user.
        let members_max = leader.others as usize + self.config.half_open_max as usize + 1;
        let begun =
            RelayThread::start(connection, self.rank, leader.listener, members_max).and_then(|(thread, stream)| {
                stream.set_read_timeout(Some(ATTEMPT))?;
                (&stream).read_exact(&mut [0; size_of::<u32>()])?;
                Ok((thread, stream))
            });
        Ok(begun.inspect_err(|error| tracing::warn!(%error, "the ranks of this node go to rank 0 by themselves")).ok())
    }
}

fn attempt(coordinator: &CoordinatorAddress, caller: Caller, ticket: &Ticket, rank: u32) -> Result<TcpStream, Attempt> {
    let again = |error: io::Error| Attempt::Again(error.to_string());
    let addresses = coordinator.resolve().map_err(again)?;
    let mut last = Attempt::Again("the name has no address".to_owned());
    let (mut never, mut all_refuse) = (None, true);
    for address in addresses {
        let connected = TcpStream::connect_timeout(&address, ATTEMPT);
        all_refuse &= connected.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        let proven = connected.map_err(again).and_then(|stream| {
            keep_alive(&stream);
            stream.set_read_timeout(Some(ATTEMPT)).map_err(again)?;
            prove(stream, caller, ticket, rank)
        });
        match proven {
            Ok(stream) => return Ok(stream),
            // Somebody else may listen there, and rank 0 at another one of these addresses.
            Err(Attempt::Never(reason)) => never = Some(Attempt::Never(reason)),
            Err(error) => last = error,
        }
    }
    Err(match (never, last) {
        (Some(never), _) => never,
        (None, Attempt::Again(reason)) if all_refuse => Attempt::NobodyThere(reason),
        (None, last) => last,
    })
}

/// Both prove to each other that they know the secret, over a stream with a time limit for what it reads.
fn prove<S: Read + Write>(mut stream: S, caller: Caller, ticket: &Ticket, rank: u32) -> Result<S, Attempt> {
    let again = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Attempt::Again("it lets nobody in; is another job's rank 0 there?".to_owned()),
        _ => Attempt::Again(error.to_string()),
    };
    let never = |error: ProofError| Attempt::Never(error.to_string());
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|_| Attempt::Never("the system gives no random numbers".to_owned()))?;
    let (proof, hello) = RankProof::start_as(caller, ticket, rank, nonce);
    stream.write_all(&hello).map_err(again)?;
    let mut challenge = [0; CHALLENGE_BYTES];
    stream.read_exact(&mut challenge).map_err(again)?;
    let (welcome, proof) = proof.handle_challenge(&challenge).map_err(never)?;
    stream.write_all(&proof).map_err(again)?;
    let mut answer = [0; PROOF_BYTES];
    match stream.read_exact(&mut answer) {
        Ok(()) => welcome.check(&answer).map(|()| stream).map_err(never),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(Attempt::Never("it does not accept this rank's proof; has it the same secret as rank 0?".to_owned()))
        }
        Err(error) => Err(again(error)),
    }
}

/// Says where this rank runs, and waits for the others.
fn arrive(
    mut stream: Stream,
    machine: String,
    (relay, of): (Option<RelayThread>, Option<u32>),
    config: &Config,
) -> Result<Assembly, InitError> {
    let patience = Duration::from_secs(config.meet_timeout_s) + SPARE;
    let arrival = Arrival {
        version: CONTROL_VERSION,
        machine,
        host: topology::host_name(),
        pid: std::process::id(),
        processors: topology::processors_allowed(),
        nodes: config.nodes,
    };
    let mut line = serde_json::to_vec(&arrival).map_err(|_| InitError::LauncherGarbled)?;
    line.push(b'\n');
    match stream.write_all(&line) {
        // Why it has gone may stand in what it has said before.
        Err(error) if is_end(&error) => {}
        written => written.map_err(InitError::Coordinator)?,
    }
    stream.set_read_timeout(Some(patience)).map_err(InitError::Coordinator)?;
    let heard_last = Arc::new(AtomicBool::new(false));
    let behind = of.filter(|_| matches!(stream, Stream::Unix(_)));
    let behind = behind.map(|rank| Behind { rank, heard_last: Arc::clone(&heard_last) });
    let mut reader =
        BufReader::new(StreamReader { stream: stream.try_clone().map_err(InitError::Coordinator)?, heard_last });
    let line = read_line(&mut reader).map_err(|error| match behind.as_ref().filter(|_| is_end(&error)) {
        Some(behind) if behind.has_ended() => {
            let reason = format!("rank {}, through which this one came, has ended before all had come", behind.rank);
            InitError::NotTogether { reason }
        }
        _ => InitError::Coordinator(error),
    })?;
    stream.set_read_timeout(None).map_err(InitError::Coordinator)?;
    if let Some(relay) = &relay {
        relay.all_have_come();
    }
    match serde_json::from_str(&line).map_err(|_| InitError::LauncherGarbled)? {
        Met::All { host, on_several } => {
            let (reader, writer) = (Box::new(reader), Box::new(stream));
            Ok(Assembly { reader, writer, host, on_several, relay, behind })
        }
        Met::Failed { reason } => Err(InitError::NotTogether { reason }),
    }
}

/// What a connection that may be silent for hours needs: a host that is gone shows within a few seconds.
pub(crate) fn keep_alive(stream: &TcpStream) {
    use rustix::net::sockopt;
    let set = sockopt::set_tcp_nodelay(stream, true)
        .and_then(|()| sockopt::set_socket_keepalive(stream, true))
        .and_then(|()| sockopt::set_tcp_keepidle(stream, Duration::from_secs(3)))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1)))
        .and_then(|()| sockopt::set_tcp_keepcnt(stream, 5))
        .and_then(|()| sockopt::set_tcp_user_timeout(stream, 8000));
    if let Err(error) = set {
        tracing::debug!(%error, "that a host is gone may be noticed late");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a rank says that comes through a relay, whose end of the connection this does something with.
    fn said_behind(relay: impl FnOnce(UnixStream)) -> String {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let stream = Stream::Unix(Unshared::new(ours).expect("it can be noted"));
        relay(theirs);
        match arrive(stream, "machine".to_owned(), (None, Some(3)), &Config::default()) {
            Ok(_) => "it has met the others".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_end_of_a_relay_has_one_text_however_it_shows() {
        let text =
            "the ranks did not come together: rank 3, through which this one came, has ended before all had come";
        assert_eq!(said_behind(drop), text, "before anything is said");
        let reader = |mut relay: UnixStream| {
            std::thread::spawn(move || relay.read_exact(&mut [0]));
        };
        assert_eq!(said_behind(reader), text, "with what it has not read: a reset");
        let partial = |mut relay: UnixStream| relay.write_all(b"{\"Failed\":").expect("there is room");
        assert_eq!(said_behind(partial), text, "in the midst of a line");
    }

    #[test]
    fn a_rank_waits_for_one_that_is_yet_to_come_and_not_where_rank_0_has_been() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a loopback");
        let at = listener.local_addr().expect("it has an address");
        drop(listener);
        let ticket = Ticket { assembly: 1, size: 2, secret: [1; 32] };
        let mut config = Config::default();
        config.meet_timeout_s = 1;
        let meet = |coordinator: &CoordinatorAddress| {
            meet(coordinator, &ticket, 1, None, &config).err().expect("nobody is there")
        };
        let been = meet(&CoordinatorAddress::At(vec![at]));
        assert!(matches!(&been, InitError::NotLetIn { reason, .. } if reason.contains("an earlier program")), "{been}");
        let yet_to_come = meet(&CoordinatorAddress::Named(at.to_string()));
        assert!(matches!(yet_to_come, InitError::Unreached { .. }), "{yet_to_come}");
    }

    #[test]
    fn a_relay_that_lets_a_rank_go_is_not_the_one_that_has_ended() {
        for said in [&[LAST][..], b"{\"Failed\":\x04"] {
            let told = said_behind(|mut relay| relay.write_all(said).expect("there is room"));
            assert!(told.starts_with("the ranks meet at rank 0, and the connection to it fails"), "{told}");
        }
        let reason = b"{\"Failed\":{\"reason\":\"rank 7 is missing\"}}\n\x04";
        let told = said_behind(|mut relay| relay.write_all(reason).expect("there is room"));
        assert_eq!(told, "the ranks did not come together: rank 7 is missing");
    }
}
