//! One process of a node speaks with Slurm's server of PMIx, and tells the others of the node what it has heard.
//!
//! Each process that meets the server costs the node some milliseconds of a processor, in the process and in the server, and all that
//! a job needs of it is one text. So the leader of a node asks for it, and the others ask that one, at an abstract name that
//! follows from the step. Only processes of the same user are told, and only such a one is believed. Whoever
//! is not told speaks with the server itself.
//!
//! Only Slurm's steps do so: other managers end a job of which some processes have met the server and others have not.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longarm_managers::slurm::Step;
use longarm_memory::Unshared;
use longarm_netmod::is_of_own_user;

use super::neighbours::{Block, Leader, Names};
use super::way::Variables;

/// Bytes of a text, at most.
const TEXT_BYTES_MAX: u32 = 64 << 10;
/// How long one that has come may take to read its text.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);
/// Until it is tried again to take one in, where the system refused that.
const REST: Duration = Duration::from_millis(10);

/// Bytes of what tells a step from others of the same numbers.
const ORIGIN_BYTES_MAX: usize = 32;

/// The processes of a step on this node.
pub(super) struct LocalTasks {
    pub(super) step: Step,
    /// Tells the step from one of the same numbers of another cluster: that one's name, and the port of this step's `srun`.
    origin: String,
}

impl LocalTasks {
    /// Those of this process, if it is Slurm's server of PMIx that the environment names, and not that of another
    /// manager whose own processes are a step's tasks.
    pub(super) fn find(variables: Variables<'_>) -> Option<LocalTasks> {
        // The parts of a heterogeneous step are counted each by itself in some variables, and together in others.
        if variables("SLURM_HET_SIZE").is_some() {
            return None;
        }
        let step = Step::from_environment(&|name| variables(name)).ok().flatten()?;
        let is_of_step = variables("PMIX_NAMESPACE")? == format!("slurm.pmix.{}.{}", step.job_id, step.step_id)
            && variables("PMIX_RANK")?.trim().parse() == Ok(step.rank);
        let origin =
            ["SLURM_CLUSTER_NAME", "SLURM_SRUN_COMM_PORT"].map(|name| variables(name).unwrap_or_default()).join("-");
        is_of_step.then_some(LocalTasks { step, origin })
    }

    /// Whether this process speaks with the server. Rank 0 does, as it alone has something to say.
    pub(super) fn is_speaker(&self) -> bool {
        self.is_leader() || self.step.rank == 0
    }

    fn is_leader(&self) -> bool {
        self.step.local_id == 0
    }

    fn name(&self, what: &str, number: u32) -> String {
        let Step { job_id, step_id, node_id, .. } = &self.step;
        // A name of the system has 107 bytes.
        let origin = self.origin.get(..self.origin.len().min(ORIGIN_BYTES_MAX)).unwrap_or_default();
        format!("longarm-step-{origin}-{job_id}.{step_id}-{node_id}-{what}-{number}")
    }

    fn block(&self) -> Block {
        Block { number: 0, first: 0, end: self.step.local_size() }
    }

    /// Where the others of the node ask from now on. Nothing, where there are none, or this process is not whom they ask.
    pub(super) fn open(&self) -> Option<Leader> {
        if !self.is_leader() || self.step.local_size() < 2 {
            return None;
        }
        let leader = Names(&|what, number| self.name(what, number)).be_leader(&self.block());
        leader.inspect_err(|error| tracing::warn!(%error, "each rank of this node speaks with PMIx itself")).ok()
    }

    /// What the speaker of this node has heard. It is waited for two seconds until it listens, then as long as it lives, until the time is up.
    pub(super) fn hear(&self, until: Instant) -> io::Result<Vec<u8>> {
        let name = |what: &str, number: u32| self.name(what, number);
        let stream = Names(&name).find_leader(&self.block(), self.step.local_id, until)?;
        hear_from(stream, until)
    }
}

fn hear_from(mut stream: UnixStream, until: Instant) -> io::Result<Vec<u8>> {
    let rest = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_read_timeout(Some(rest))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > TEXT_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    Ok(text)
}

/// Tells the others of a node, in a thread of its own, until this is dropped: whoever of them asks, as often as they ask.
pub(super) struct Telling(Arc<Unshared<std::os::unix::net::UnixListener>>);

impl Telling {
    pub(super) fn begin(Leader { listener, .. }: Leader, text: Vec<u8>) -> io::Result<Telling> {
        let listener = Arc::new(listener);
        let theirs = Arc::clone(&listener);
        std::thread::Builder::new().name("longarm-speaker".into()).spawn(move || tell(&theirs, &text))?;
        Ok(Telling(listener))
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        // Who waits for another one hears of it.
        let _ = rustix::net::shutdown(&**self.0, rustix::net::Shutdown::Both);
    }
}

fn tell(listener: &std::os::unix::net::UnixListener, text: &[u8]) {
    loop {
        match listener.accept() {
            // What others of the machine do here is of no account, and one that is not told speaks for itself.
            Ok((stream, _)) => drop(is_of_own_user(&stream).then(|| tell_one(stream, text))),
            // Nobody is told any more: all have come.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Without room for one more descriptor, most likely: those that wait keep waiting.
            Err(_) => std::thread::sleep(REST),
        }
    }
}

fn tell_one(mut stream: UnixStream, text: &[u8]) -> io::Result<()> {
    stream.set_write_timeout(Some(SEND_TIMEOUT))?;
    let length = u32::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(text)?;
    stream.shutdown(Shutdown::Write)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Task `local_id` of three on the second node of a step that no other test has.
    fn task(job_id: u32, local_id: u32) -> LocalTasks {
        let variables = move |name: &str| {
            let value = match name {
                "SLURM_PROCID" => 1 + local_id,
                "SLURM_STEP_NUM_TASKS" => 4,
                "SLURM_LOCALID" => local_id,
                "SLURM_NODEID" => 1,
                "SLURM_JOB_ID" => job_id,
                "SLURM_STEP_ID" => 0,
                "PMIX_RANK" => 1 + local_id,
                "SLURM_STEP_NODELIST" => return Some("n[1-2]".to_owned()),
                "SLURM_STEP_TASKS_PER_NODE" => return Some("1,3".to_owned()),
                "PMIX_NAMESPACE" => return Some(format!("slurm.pmix.{job_id}.0")),
                _ => return None,
            };
            Some(value.to_string())
        };
        LocalTasks::find(&variables).unwrap()
    }

    fn job_of_this_process(test: u32) -> u32 {
        std::process::id() * 8 + test
    }

    fn in_an_hour() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[test]
    fn the_leader_of_a_node_speaks_and_tells_all_others_before_and_after_it_has_heard_itself() {
        let job = job_of_this_process(0);
        assert_eq!([0, 1, 2].map(|id| task(job, id).is_speaker()), [true, false, false]);
        std::thread::scope(|scope| {
            let early = scope.spawn(move || task(job, 1).hear(in_an_hour()).unwrap());
            let leader = task(job, 0).open().unwrap();
            assert_eq!(leader.others, 2);
            let _telling = Telling::begin(leader, b"come in".to_vec()).unwrap();
            assert_eq!(early.join().unwrap(), b"come in");
            assert_eq!(task(job, 2).hear(in_an_hour()).unwrap(), b"come in");
        });
    }

    #[test]
    fn a_speaker_that_ends_without_a_word_is_not_waited_for() {
        let job = job_of_this_process(1);
        let leader = task(job, 0).open().unwrap();
        let heard = std::thread::spawn(move || task(job, 1).hear(in_an_hour()));
        // It has come, and is told nothing.
        drop(leader.listener.accept().unwrap());
        drop(leader);
        assert!(heard.join().unwrap().is_err());
    }

    #[test]
    fn nobody_is_told_any_more_once_all_have_come() {
        let job = job_of_this_process(2);
        let leader = task(job, 0).open().unwrap();
        drop(Telling::begin(leader, b"come in".to_vec()).unwrap());
        // Either the name is gone, or it was not yet and nobody answers.
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(task(job, 1).hear(soon).is_err());
    }

    #[test]
    fn a_task_whose_pmix_is_that_of_another_manager_has_no_local_tasks() {
        let of = |namespace: &'static str, rank: &'static str| {
            let variables = move |name: &str| {
                let value = match name {
                    "PMIX_NAMESPACE" => namespace,
                    "PMIX_RANK" => rank,
                    "SLURM_STEP_NUM_TASKS" => "2",
                    "SLURM_PROCID" | "SLURM_LOCALID" | "SLURM_NODEID" | "SLURM_STEP_ID" => "0",
                    "SLURM_JOB_ID" => "7",
                    "SLURM_STEP_NODELIST" => "n1",
                    "SLURM_STEP_TASKS_PER_NODE" => "2",
                    _ => return None,
                };
                Some(value.to_owned())
            };
            LocalTasks::find(&variables).is_some()
        };
        assert!(of("slurm.pmix.7.0", "0"));
        assert!(!of("prterun-n0-1@1", "0"));
        assert!(!of("slurm.pmix.7.1", "0"));
        assert!(!of("slurm.pmix.7.0", "1"));
    }
}
