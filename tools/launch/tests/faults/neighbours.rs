//! A job that something else has started, as MPI does: its ranks notice by themselves when one of their node dies.
//!
//! The trial is that something: it starts the ranks, and is the hub of their all-gather, over the stdin of each.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use libtest_mimic::{Failed, Trial};
use longarm::World;
use longarm::bootstrap::Exchange;

use super::outside::NO_HURRY;
use super::witness;
use crate::{BODY, PARAMETERS};

const RANKS: u32 = 4;

/// The rank's half of the all-gather.
struct ByHub {
    rank: u32,
    socket: Mutex<BufReader<UnixStream>>,
}

impl ByHub {
    fn new(rank: u32) -> ByHub {
        let socket: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor is left");
        ByHub { rank, socket: Mutex::new(BufReader::new(UnixStream::from(socket))) }
    }

    /// Until the hub hangs up: nobody may end before all have said what they saw.
    fn wait_for_the_end(&self) {
        let _ = self.socket.lock().expect("nobody panics").read_to_end(&mut Vec::new());
    }
}

impl Exchange for ByHub {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        RANKS
    }

    fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut socket = self.socket.lock().expect("nobody panics");
        let line = serde_json::to_string(mine).map_err(|error| error.to_string())?;
        writeln!(socket.get_mut(), "{line}").map_err(|error| error.to_string())?;
        let mut all = String::new();
        socket.read_line(&mut all).map_err(|error| error.to_string())?;
        serde_json::from_str(&all).map_err(|error| error.to_string())
    }

    fn abort(&self, status: i32) {
        std::process::exit(status);
    }
}

/// The rank's side. Parameters: its number, and the victim if there is one.
pub fn body(parameters: &str) {
    let (rank, victim) = parameters.split_once(' ').expect("a rank and a victim");
    let hub = Arc::new(ByHub::new(rank.parse().expect("a rank")));
    let world = longarm::init_inside(Arc::clone(&hub) as Arc<dyn Exchange>).expect("the hub lets all meet");
    match victim.parse() {
        Err(_) if victim.starts_with("deserter") => desert_or_sleep(world, hub.rank),
        Ok(victim) => {
            witness::see_a_death(&world, victim);
            hub.wait_for_the_end();
            // As a process that is killed by whoever started it.
            std::process::exit(0);
        }
        Err(_) => {
            let deaths = world.clone();
            world.finalize().expect("all live");
            println!("deaths: {:?}", deaths.deaths());
        }
    }
}

/// Rank 1 ends the job, after all have met; the others wait for it, and whatever comes of that they do not end.
fn desert_or_sleep(world: World, rank: u32) {
    world.barrier_collective().expect("all live");
    if rank == 1 {
        drop(world);
        unreachable!("who leaves without finalize ends the job");
    }
    witness::hear_of_the_end(&world)
}

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let death = |victim: u32| {
        let name = format!("without_our_launcher_all_of_a_node_notice_that_its_rank_{victim}_dies");
        Trial::test(name, move || notice(victim))
    };
    let end = Trial::test("without_our_launcher_the_ends_of_a_job_that_ends_well_are_no_deaths", end_well);
    let name = "without_our_launcher_who_sleeps_for_a_rank_that_ends_the_job_is_woken_and_ends_too";
    let deserted = Trial::test(name, || end_when_deserted(true));
    let unheard = "without_our_launcher_a_rank_ends_the_job_though_nobody_reads_why";
    vec![death(0), death(2), end, deserted, Trial::test(unheard, || end_when_deserted(false))]
}

/// The ranks of a job, and the hub's ends of their sockets.
fn start(victim: &str) -> Result<Vec<(Child, UnixStream)>, Failed> {
    let ranks = (0..RANKS).map(|rank| {
        let (hub, inherited) = UnixStream::pair()?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .env(BODY, "neighbours")
            .env(PARAMETERS, format!("{rank} {victim}"))
            .env_remove("LONGARM_NODES")
            .env(NO_HURRY.0, NO_HURRY.1);
        command.stdin(Stdio::from(OwnedFd::from(inherited))).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok((command.spawn()?, hub))
    });
    ranks.collect()
}

/// One round of the all-gather.
fn gather(ranks: &[(Child, UnixStream)]) -> Result<(), Failed> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for (_, socket) in ranks {
        let mut line = String::new();
        // A rank says nothing more before it has its answer.
        BufReader::new(socket).read_line(&mut line)?;
        all.push(serde_json::from_str(&line)?);
    }
    let line = serde_json::to_string(&all)?;
    for (_, mut socket) in ranks.iter().map(|(process, socket)| (process, socket)) {
        writeln!(socket, "{line}")?;
    }
    Ok(())
}

fn notice(victim: u32) -> Result<(), Failed> {
    let mut ranks = start(&victim.to_string())?;
    gather(&ranks)?;
    gather(&ranks)?;
    let how = format!("failed: rank {victim} (node 0) has ended without finalizing");
    for (process, _) in ranks.iter_mut().enumerate().filter(|(rank, _)| *rank != victim as usize).map(|(_, rank)| rank)
    {
        let mut lines = BufReader::new(process.stdout.as_mut().expect("stdout is piped")).lines();
        for call in ["wait", "barrier"] {
            let line = lines.next().ok_or("a rank ended early")??;
            if !line.starts_with(&format!("{call}: ")) || !line.ends_with(&how) {
                return Err(format!("a rank says `{line}`").into());
            }
        }
    }
    for (mut process, socket) in ranks {
        drop(socket);
        process.wait()?;
    }
    Ok(())
}

/// Nothing here ends a rank: all of them do it by themselves.
fn end_when_deserted(reads_errors: bool) -> Result<(), Failed> {
    let mut ranks = start("deserter")?;
    if !reads_errors {
        ranks.iter_mut().for_each(|(process, _)| drop(process.stderr.take()));
    }
    gather(&ranks)?;
    gather(&ranks)?;
    for (rank, (process, _socket)) in ranks.into_iter().enumerate() {
        let output = process.wait_with_output()?;
        let (stdout, stderr) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
        let is_well = match rank {
            1 => output.status.code() == Some(1) && (!reads_errors || stderr.contains("rank 1 ends the job: it left")),
            _ => output.status.signal() == Some(9) && stdout.contains("barrier: ") && stdout.contains("rank 1 "),
        };
        if !is_well {
            return Err(format!("rank {rank}: {}: {stdout}{stderr}", output.status).into());
        }
    }
    Ok(())
}

fn end_well() -> Result<(), Failed> {
    let ranks = start("none")?;
    for _exchange in ["who is where", "where the servers are", "the end"] {
        gather(&ranks)?;
    }
    for (process, _socket) in ranks {
        let output = process.wait_with_output()?;
        let (stdout, stderr) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
        if !output.status.success() || stdout != "deaths: []\n" || !stderr.is_empty() {
            return Err(format!("{}: {stdout}{stderr}", output.status).into());
        }
    }
    Ok(())
}
