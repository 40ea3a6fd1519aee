//! Tasks of a step that Slurm's `srun` has started without PMI (`--mpi=none`): each is told where the others are, and nothing is carried
//! between them. Rank 0 listens on the step's first node, and gives its invitation to whom MUNGE knows as the same user.

mod controller;
mod credentials;
mod invitations;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longarm_control::proof::NONCE_BYTES;
use longarm_control::vouching::{Kind, Question, StepName, Users, read_reason};
use longarm_managers::munge::{self, CREDENTIAL_BYTES_MAX};
use longarm_managers::slurm::Step;
use parking_lot::Mutex;

use self::controller::Controller;
use self::credentials::{Credentials, Munge, read_message, write_message};
use self::invitations::{InvitationServer, Terms};
use super::alone::alone;
use super::member::{self, Manager};
use super::neighbours::Neighbours;
use super::rendezvous::Found;
use super::scancel;
use super::signs;
use super::starter::watching_starter;
use super::way::{Bootstrap, NotJoined, Sight, Variables};
use crate::config::Config;

/// How long one attempt to connect, or an answer, may take, before another one is made.
const ATTEMPT: Duration = Duration::from_secs(2);
/// The pause between two rounds through all places where rank 0 may be: from the first to the last.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// See the module.
pub(crate) struct BySrun;

impl Bootstrap for BySrun {
    fn name(&self) -> &'static str {
        "srun without PMI, by MUNGE"
    }

    fn look(&self, variables: Variables<'_>, _config: &Config) -> Sight {
        // Who is told its rank is not told by its step.
        if variables("LONGARM_RANK").is_some() {
            return Sight::Nothing;
        }
        match Step::from_environment(&|name| variables(name)) {
            Ok(None) => Sight::Nothing,
            Ok(Some(step)) if step.size == 1 => Sight::Nothing,
            // What else has started the ranks may have been started by srun itself, once on each host.
            Ok(Some(step)) if told_others(&step, variables) => Sight::Nothing,
            Ok(Some(_)) => match munge::look() {
                Ok(()) => Sight::Usable,
                Err(error) => Sight::Unusable(error.to_string()),
            },
            Err(error) => Sight::Unusable(error.to_string()),
        }
    }

    fn join(&self, variables: Variables<'_>, config: &mut Config) -> Result<Found, NotJoined> {
        let unusable = |reason: String| NotJoined::Unusable(reason);
        let step = Step::from_environment(&|name| variables(name)).map_err(|error| unusable(error.to_string()))?;
        let step = step.ok_or_else(|| unusable("its variables are not set any more".to_owned()))?;
        if step.size == 1 {
            return Ok((None, alone()?));
        }
        if step.rank == 0 && step.node_id != 0 {
            return Err(unusable("rank 0 is not on the step's first node, where the others look for it".to_owned()));
        }
        let own_user = rustix::process::geteuid().as_raw();
        watching_starter(variables, || {
            // The daemon is asked before anybody waits for an answer that nobody can give.
            let asked = Munge.vouch(b"", own_user);
            asked.map_err(|error| unusable(error.to_string()))?;
            Ok(member::join(Arc::new(Stepped::new(step, own_user, Arc::new(Munge), config)), config)?)
        })
    }
}

/// Whether the manager of an MPI tells this process something else.
fn told_others(step: &Step, variables: Variables<'_>) -> bool {
    signs::told_by_mpi(variables).is_some_and(|told| told != (step.rank, step.size))
}

/// One task of a step.
struct Stepped {
    step: Step,
    step_name: StepName,
    own_user: u32,
    credentials: Arc<dyn Credentials>,
    controller: Controller,
    /// For how long the others come.
    meet: Duration,
    /// How long one of them may take to say who it is.
    proof: Duration,
    callers_max: usize,
    /// At rank 0, until all have come.
    server: Mutex<Option<InvitationServer>>,
}

impl Stepped {
    fn new(step: Step, own_user: u32, credentials: Arc<dyn Credentials>, config: &Config) -> Stepped {
        Stepped {
            step_name: StepName { job: step.job_id, step: step.step_id, size: step.size },
            step,
            own_user,
            credentials,
            controller: Controller::new(),
            meet: Duration::from_secs(config.meet_timeout_s),
            proof: Duration::from_millis(config.handshake_timeout_ms),
            callers_max: config.half_open_max as usize,
            server: Mutex::new(None),
        }
    }

    fn is_on_one_node(&self) -> bool {
        self.step.nodes.len() == 1
    }

    fn ports(&self) -> Vec<u16> {
        let reserved = &self.step.reserved_ports;
        if reserved.is_empty() { self.step_name.ports().to_vec() } else { reserved.clone() }
    }

    /// Rank 0: from now on the others get the text.
    fn open(&self, text: &str) -> Result<(), String> {
        let terms = Terms {
            step_name: self.step_name,
            own_user: self.own_user,
            text: text.to_owned(),
            credentials: Arc::clone(&self.credentials),
            proof: self.proof,
            callers_max: self.callers_max,
        };
        let opened = InvitationServer::open(terms, &self.ports(), self.is_on_one_node());
        let server = opened.map_err(|error| {
            format!("rank 0 can listen at none of the ports {:?} of this step on its node: {error}", self.ports())
        })?;
        *self.server.lock() = Some(server);
        Ok(())
    }

    /// Where rank 0 may be, the likeliest first.
    fn places(&self) -> Result<Vec<SocketAddr>, String> {
        let hosts: Vec<IpAddr> = if self.step.node_id == 0 {
            // The name of this node may stand for an address that only others reach, or for none.
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        } else {
            let addresses = self.controller.addresses_of(&self.step.nodes[0])?;
            addresses.into_iter().filter(|address| !address.is_loopback()).collect()
        };
        let ports = self.ports();
        Ok(ports.iter().flat_map(|port| hosts.iter().map(|host| SocketAddr::new(*host, *port))).collect())
    }

    /// Asks rank 0 until it answers.
    fn ask(&self) -> Result<String, String> {
        let until = Instant::now() + self.meet;
        let mut pause = PAUSE_MIN;
        loop {
            let reason = match self.ask_everywhere() {
                Ok(text) => return Ok(text),
                Err(reason) => reason,
            };
            if Instant::now() + pause >= until {
                return Err(format!(
                    "rank 0 was not found on node {} at any of the ports {:?} within {} s (LONGARM_MEET_TIMEOUT_S): {reason}",
                    self.step.nodes[0],
                    self.ports(),
                    self.meet.as_secs()
                ));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Asks once wherever rank 0 may be. An error is the most telling one.
    fn ask_everywhere(&self) -> Result<String, String> {
        let places = self.places()?;
        let mut refused = None;
        let mut answered = None;
        for place in places {
            match TcpStream::connect_timeout(&place, ATTEMPT) {
                Ok(stream) => match self.ask_one(stream) {
                    Ok(text) => return Ok(text),
                    Err(reason) => answered = Some(format!("{place}: {reason}")),
                },
                Err(error) => refused = Some(format!("{place}: {error}")),
            }
        }
        Err(answered.or(refused).unwrap_or_else(|| "its name stands for the loopback alone".to_owned()))
    }

    fn ask_one(&self, mut stream: TcpStream) -> Result<String, String> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|error| error.to_string())?;
        let question = Question { rank: self.step.rank, nonce };
        let vouched = self.credentials.vouch(&self.step_name.ask(&question), self.own_user);
        let credential = vouched.map_err(|error| error.to_string())?;
        let until = Instant::now() + ATTEMPT.max(self.proof);
        write_message(&mut stream, Kind::Question, credential.as_bytes(), until)?;
        let (kind, body) = read_message(&mut stream, CREDENTIAL_BYTES_MAX, until)?;
        match kind {
            Kind::Answer => {
                let credential = std::str::from_utf8(&body).map_err(|_| "its credential is no text".to_owned())?;
                let shown = self.credentials.read(credential).map_err(|error| error.to_string())?;
                let users = Users { vouched: shown.uid, own: self.own_user };
                let answer = self.step_name.check_answer(&question, &shown.payload, users);
                answer.map_err(|error| error.to_string())
            }
            Kind::Refusal => Err(format!("it refuses: {}", read_reason(&body))),
            Kind::Question => Err("it asks, and does not answer".to_owned()),
        }
    }
}

impl Manager for Stepped {
    fn rank(&self) -> u32 {
        self.step.rank
    }

    fn size(&self) -> u32 {
        self.step.size
    }

    fn is_on_one_machine(&self) -> Result<Option<bool>, String> {
        Ok(Some(self.is_on_one_node()))
    }

    fn share(&self, text: Option<String>) -> Result<String, String> {
        match text {
            Some(text) => self.open(&text).map(|()| text),
            None => self.ask(),
        }
    }

    fn neighbours(&self) -> Option<Neighbours> {
        Neighbours::of(Some(self.step.local_id), Some(self.step.local_size()))
    }

    fn all_have_come(&self) {
        self.server.lock().take();
    }

    fn end_without_coordinator(&self) {
        if scancel::cancels_for_all(&self.step) {
            scancel::cancel(&self.step);
        }
    }

    /// Each task that hears of the end ends itself, with a status of its own, unless Slurm is quicker.
    fn abort(&self, _status: i32) -> bool {
        scancel::cancel(&self.step);
        false
    }
}

#[cfg(test)]
mod tests;
