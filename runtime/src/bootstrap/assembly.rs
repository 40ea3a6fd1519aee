//! A rank's way into a job that something else has started: it connects to the coordinator, both prove that they know the secret,
//! and it says where it runs. From then on it speaks as with `longarm run`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use longarm_control::arrival::{Arrival, Met};
use longarm_control::messages::CONTROL_VERSION;
use longarm_control::proof::{CHALLENGE_BYTES, PROOF_BYTES, ProofError, RankProof, Ticket};
use longarm_memory::Unshared;

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
pub(crate) enum Root {
    /// Rank 0 has said so.
    At(Vec<SocketAddr>),
    /// Somebody has set it: a name and a port.
    Named(String),
}

/// A rank that has met the others.
pub(crate) struct Assembly {
    pub(crate) reader: BufReader<Unshared<TcpStream>>,
    pub(crate) writer: Unshared<TcpStream>,
    /// Where rank 0 runs.
    pub(crate) host: String,
    pub(crate) on_several: bool,
}

/// Why an attempt did not succeed.
enum Attempt {
    /// It may the next time.
    Again(String),
    /// It never will.
    Never(String),
}

impl Root {
    pub(crate) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Root::At(addresses) => Ok(addresses.clone()),
            Root::Named(name) => Ok(name.to_socket_addrs()?.collect()),
        }
    }
}

impl std::fmt::Display for Root {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Root::At(addresses) => {
                let shown: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
                formatter.write_str(&shown.join(", "))
            }
            Root::Named(name) => formatter.write_str(name),
        }
    }
}

/// Meets the other ranks of a job: collective over all of them.
///
/// # Errors
/// Who is missing, or why the coordinator cannot be reached or does not let this rank in.
pub(crate) fn meet(root: &Root, ticket: &Ticket, rank: u32, config: &Config) -> Result<Assembly, InitError> {
    let patience = Duration::from_secs(config.meet_timeout_s);
    let until = Instant::now() + patience;
    let mut pause = PAUSE_MIN;
    let stream = loop {
        let reason = match attempt(root, ticket, rank) {
            Ok(stream) => break stream,
            Err(Attempt::Never(reason)) => return Err(InitError::NotLetIn { root: root.to_string(), reason }),
            Err(Attempt::Again(reason)) => reason,
        };
        if Instant::now() + pause >= until {
            let seconds = config.meet_timeout_s;
            return Err(InitError::Unreached { root: root.to_string(), seconds, reason });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    };
    // A child of a fork that outlives this rank would hide its death from the coordinator.
    let stream = Unshared::new(stream).map_err(InitError::Coordinator)?;
    arrive(stream, config, patience + SPARE)
}

fn attempt(root: &Root, ticket: &Ticket, rank: u32) -> Result<TcpStream, Attempt> {
    let again = |error: io::Error| Attempt::Again(error.to_string());
    let addresses = root.resolve().map_err(again)?;
    let mut last = Attempt::Again("the name has no address".to_owned());
    let mut never = None;
    for address in addresses {
        let connected = TcpStream::connect_timeout(&address, ATTEMPT);
        match connected.map_err(again).and_then(|stream| prove(stream, ticket, rank)) {
            Ok(stream) => return Ok(stream),
            // Somebody else may listen there, and rank 0 at another one of these addresses.
            Err(Attempt::Never(reason)) => never = Some(Attempt::Never(reason)),
            Err(error) => last = error,
        }
    }
    Err(never.unwrap_or(last))
}

fn prove(mut stream: TcpStream, ticket: &Ticket, rank: u32) -> Result<TcpStream, Attempt> {
    let again = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Attempt::Again("it lets nobody in; is another job's rank 0 there?".to_owned()),
        _ => Attempt::Again(error.to_string()),
    };
    let never = |error: ProofError| Attempt::Never(error.to_string());
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|_| Attempt::Never("the system gives no random numbers".to_owned()))?;
    keep_alive(&stream);
    stream.set_read_timeout(Some(ATTEMPT)).map_err(again)?;
    let (proof, hello) = RankProof::start(ticket, rank, nonce);
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
fn arrive(mut stream: Unshared<TcpStream>, config: &Config, patience: Duration) -> Result<Assembly, InitError> {
    let arrival = Arrival {
        version: CONTROL_VERSION,
        machine: topology::machine_name(),
        host: topology::host_name(),
        pid: std::process::id(),
        processors: topology::processors_allowed(),
        nodes: config.nodes,
    };
    let mut line = serde_json::to_vec(&arrival).map_err(|_| InitError::LauncherGarbled)?;
    line.push(b'\n');
    stream.write_all(&line).map_err(InitError::Coordinator)?;
    stream.set_read_timeout(Some(patience)).map_err(InitError::Coordinator)?;
    let reading = stream.try_clone().and_then(Unshared::new).map_err(InitError::Coordinator)?;
    let mut reader = BufReader::new(reading);
    let mut line = String::new();
    if reader.read_line(&mut line).map_err(InitError::Coordinator)? == 0 {
        return Err(InitError::Coordinator(io::ErrorKind::UnexpectedEof.into()));
    }
    stream.set_read_timeout(None).map_err(InitError::Coordinator)?;
    match serde_json::from_str(&line).map_err(|_| InitError::LauncherGarbled)? {
        Met::All { host, on_several } => Ok(Assembly { reader, writer: stream, host, on_several }),
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
