//! What goes over the connections to rank 0 when a job starts, beside what is counted with the coordinator alone; and a job of
//! hydra's whose ranks outlive one of them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::thread::JoinHandle;

use libtest_mimic::{Failed, Trial};
use longarm::World;
use longarm_control::arrival::Arrival;
use longarm_control::messages::{FromRank, NodeCard, ToRank};
use longarm_control::proof::{CHALLENGE_BYTES, HELLO_BYTES, PROOF_BYTES};
use longarm_control::scale::{Job, is_of_start};

use super::started_by_others::{Coming, Told};
use super::witness;
use crate::{BODY, PARAMETERS};

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (ranks, nodes) in [(2, 1), (8, 1), (9, 3), (32, 4)] {
        let name = format!("a_start_costs_what_was_counted_for_it ({nodes} x {})", ranks / nodes);
        trials.push(Trial::test(name, move || compare(ranks, nodes)));
    }
    trials.push(Trial::test("under_hydra_those_who_are_to_go_on_outlive_a_rank", outlive));
    trials
}

/// All say it to rank 0 once the victim is dead, and go on to the end.
pub fn go_on(world: World, victim: u32) {
    let window = witness::window(&world);
    if world.rank() == victim {
        witness::await_others(&world, &window);
        // One that a signal ends takes all others with it, by hydra's hand.
        super::deaths::die("exits");
    }
    witness::be_counted(&window, victim);
    while window.get_one(victim, 0).is_ok() {
        std::thread::yield_now();
    }
    window.fetch_add(0, 1, 1).expect("rank 0 lives");
    while window.get_one(0, 1).expect("rank 0 lives") < u64::from(world.size()) - 1 {
        std::thread::yield_now();
    }
    println!("rank {} goes on", world.rank());
    drop(window);
    let _ = world.finalize();
}

fn outlive() -> Result<(), Failed> {
    let there = Command::new("mpiexec.hydra").arg("--version").output();
    if !there.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: under_hydra_those_who_are_to_go_on_outlive_a_rank: there is no mpiexec.hydra");
        return Ok(());
    }
    let mut command = Command::new("mpiexec.hydra");
    command.args(["-n", "4", "-disable-auto-cleanup"]).arg(std::env::current_exe()?);
    command.env(BODY, "started by others").env(PARAMETERS, "go on 2").env("LONGARM_ON_FAILURE", "continue");
    let output = command.output()?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for rank in [0, 1, 3] {
        if !said.contains(&format!("rank {rank} goes on")) {
            return Err(format!("rank {rank} does not go on:\n{said}\n{errors}").into());
        }
    }
    if !errors.contains("rank 2 ") || !errors.contains("; the others go on") {
        return Err(format!("the dead rank is not named:\n{errors}").into());
    }
    if output.status.code() == Some(3) { Ok(()) } else { Err(format!("mpiexec ends with {}", output.status).into()) }
}

/// What went over one connection.
struct Heard {
    to_root: Vec<u8>,
    from_root: Vec<u8>,
}

/// Passes everything on between those who connect and rank 0, and keeps it.
fn listen_in(root: &str, guests: u32) -> Result<(String, JoinHandle<Vec<Heard>>), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (at, root) = (listener.local_addr()?.to_string(), root.to_owned());
    let listening = std::thread::spawn(move || {
        let mut passing = Vec::new();
        while passing.len() < guests as usize {
            let (guest, _) = listener.accept().expect("ranks come");
            // Until rank 0 listens nobody is let in.
            let Ok(host) = TcpStream::connect(&root) else { continue };
            let (from_guest, from_host) = (guest.try_clone(), host.try_clone());
            let up = std::thread::spawn(move || pass_on(from_guest.expect("there is room"), host));
            let down = std::thread::spawn(move || pass_on(from_host.expect("there is room"), guest));
            passing.push((up, down));
        }
        let heard = passing.into_iter().map(|(up, down)| Heard {
            to_root: up.join().expect("passing on does not panic"),
            from_root: down.join().expect("passing on does not panic"),
        });
        heard.collect()
    });
    Ok((at, listening))
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) -> Vec<u8> {
    let (mut all, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(bytes @ 1..) = from.read(&mut chunk) {
        all.extend_from_slice(&chunk[..bytes]);
        if to.write_all(&chunk[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    all
}

fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    BufReader::new(bytes).split(b'\n').map_while(Result::ok).collect()
}

/// A real start, and the same counted.
fn compare(ranks: u32, nodes: u32) -> Result<(), Failed> {
    let mut job = Told::new(Coming::Alone)?;
    let (at, listening) = listen_in(job.root(), ranks - 1)?;
    // The others say themselves where rank 0 is to be found: at the listener.
    job.add(0, ranks, nodes, "work", &[])?;
    for rank in 1..ranks {
        job.add(rank, ranks, nodes, "work", &[("LONGARM_ROOT", &at)])?;
    }
    job.end()?;
    let heard = listening.join().expect("listening does not panic");
    let (counted, of_rank) = count(&heard, ranks)?;
    for (rank, heard) in of_rank {
        let (node, talk) = (counted.node_of_rank[rank as usize], counted.talks[rank as usize]);
        let is_own = |line: &Vec<u8>| is_of_start(line, node);
        let from_root = heard.from_root[CHALLENGE_BYTES + PROOF_BYTES..].to_vec();
        let told: Vec<_> = lines(&from_root).into_iter().filter(is_own).collect();
        let told_bytes = CHALLENGE_BYTES + PROOF_BYTES + told.iter().map(|line| line.len() + 1).sum::<usize>();
        let said: Vec<_> = lines(&heard.to_root[HELLO_BYTES + PROOF_BYTES..]).into_iter().take(3).collect();
        let said_bytes = HELLO_BYTES + PROOF_BYTES + said.iter().map(|line| line.len() + 1).sum::<usize>();
        let real = (said_bytes as u64, said.len() as u64 + 2, told_bytes as u64, told.len() as u64 + 2);
        let (to, from) = (talk.to_root, talk.from_root);
        if real != (to.bytes, to.messages, from.bytes, from.messages) {
            let told: Vec<_> = told.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
            return Err(format!("rank {rank}: {real:?} is not {talk:?}: {told:?}").into());
        }
    }
    Ok(())
}

/// What was counted for a job.
struct Counted {
    node_of_rank: Vec<u32>,
    talks: Vec<longarm_control::scale::Talk>,
}

/// The same job, of what its ranks have said of themselves.
fn count(heard: &[Heard], ranks: u32) -> Result<(Counted, HashMap<u32, &Heard>), Failed> {
    let (mut arrivals, mut cards, mut of_rank) = (HashMap::new(), HashMap::new(), HashMap::new());
    let (mut number, mut node_of_rank) = (0, Vec::new());
    for one in heard {
        let rank = u32::from_le_bytes(one.to_root[16..20].try_into()?);
        of_rank.insert(rank, one);
        let said = lines(&one.to_root[HELLO_BYTES + PROOF_BYTES..]);
        arrivals.insert(rank, Arrival::read(&said[0])?);
        for line in said.iter().filter_map(|line| serde_json::from_slice(line).ok()) {
            if let FromRank::Publish { card } = line {
                cards.insert(card.node, card);
            }
        }
        for line in lines(&one.from_root[CHALLENGE_BYTES + PROOF_BYTES..]) {
            match serde_json::from_slice(&line) {
                Ok(ToRank::Start(start)) => (number, node_of_rank) = (start.job, start.node_of_rank.to_vec()),
                Ok(ToRank::Card { card }) => drop(cards.insert(card.node, card)),
                _ => {}
            }
        }
    }
    // Rank 0 is on the same machine as all others, and is not listened to. Its own number of a process changes nothing for them.
    let own = arrivals.get(&1).cloned().ok_or("rank 1 has said nothing")?;
    let arrivals = (0..ranks).map(|rank| arrivals.get(&rank).cloned().unwrap_or_else(|| own.clone())).collect();
    let unknown = NodeCard { node: 0, server_pid: 0, address: String::new(), host: String::new(), door: String::new() };
    let count = node_of_rank.iter().max().map_or(1, |node| node + 1);
    let cards = (0..count).map(|node| cards.get(&node).cloned().unwrap_or_else(|| unknown.clone())).collect();
    let talks = Job { number, arrivals, cards }.start(std::time::Instant::now());
    Ok((Counted { node_of_rank, talks }, of_rank))
}
