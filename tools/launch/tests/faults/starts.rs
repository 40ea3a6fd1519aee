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
use longarm_control::frames::{Decoder, Frame};
use longarm_control::messages::{FromRank, NodeCard, ToRank};
use longarm_control::proof::{CHALLENGE_BYTES, HELLO_BYTES, PROOF_BYTES};
use longarm_control::relay::{FromRelay, ToRelay};
use longarm_control::scale::{Job, is_of_start};

use super::started_by_others::{Coming, ExplicitJob};
use super::witness;
use crate::{BODY, PARAMETERS};

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (ranks, nodes) in [(2, 1), (8, 1), (9, 3), (32, 4)] {
        let name = format!("a_start_costs_what_was_counted_for_it ({nodes} x {})", ranks / nodes);
        trials.push(Trial::test(name, move || compare(ranks, nodes)));
    }
    for (ranks, nodes) in [(8, 2), (12, 3)] {
        let name = format!("a_start_costs_what_was_counted_for_it ({nodes} x {}){}", ranks / nodes, Coming::Together);
        trials.push(Trial::test(name, move || compare_relayed(ranks, nodes)));
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

/// The head of a frame.
const HEAD_BYTES: u64 = 9;

/// What went over one connection.
struct Heard {
    to_coordinator: Vec<u8>,
    from_coordinator: Vec<u8>,
}

/// Passes everything on between those who connect and rank 0, and keeps it.
fn listen_in(coordinator: &str, guests: u32) -> Result<(String, JoinHandle<Vec<Heard>>), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (at, coordinator) = (listener.local_addr()?.to_string(), coordinator.to_owned());
    let listening = std::thread::spawn(move || {
        let mut passing = Vec::new();
        while passing.len() < guests as usize {
            let (guest, _) = listener.accept().expect("ranks come");
            // Until rank 0 listens nobody is let in.
            let Ok(host) = TcpStream::connect(&coordinator) else { continue };
            let (from_guest, from_host) = (guest.try_clone(), host.try_clone());
            let up = std::thread::spawn(move || pass_on(from_guest.expect("there is room"), host));
            let down = std::thread::spawn(move || pass_on(from_host.expect("there is room"), guest));
            passing.push((up, down));
        }
        let heard = passing.into_iter().map(|(up, down)| Heard {
            to_coordinator: up.join().expect("passing on does not panic"),
            from_coordinator: down.join().expect("passing on does not panic"),
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
    let mut job = ExplicitJob::new(Coming::Alone)?;
    let (at, listening) = listen_in(job.coordinator(), ranks - 1)?;
    // The others say themselves where rank 0 is to be found: at the listener.
    job.add(0, ranks, nodes, "work", &[])?;
    for rank in 1..ranks {
        job.add(rank, ranks, nodes, "work", &[("LONGARM_ROOT", &at)])?;
    }
    job.end()?;
    let heard = listening.join().expect("listening does not panic");
    let (counted, of_rank) = count(&heard)?;
    for (rank, heard) in of_rank {
        let (node, exchange) = (counted.node_of_rank[rank as usize], counted.exchanges[rank as usize]);
        let is_own = |line: &Vec<u8>| is_of_start(line, node);
        let from_coordinator = heard.from_coordinator[CHALLENGE_BYTES + PROOF_BYTES..].to_vec();
        let told: Vec<_> = lines(&from_coordinator).into_iter().filter(is_own).collect();
        let told_bytes = CHALLENGE_BYTES + PROOF_BYTES + told.iter().map(|line| line.len() + 1).sum::<usize>();
        let said: Vec<_> = lines(&heard.to_coordinator[HELLO_BYTES + PROOF_BYTES..]).into_iter().take(3).collect();
        let said_bytes = HELLO_BYTES + PROOF_BYTES + said.iter().map(|line| line.len() + 1).sum::<usize>();
        let real = (said_bytes as u64, said.len() as u64 + 2, told_bytes as u64, told.len() as u64 + 2);
        let (to, from) = (exchange.to_coordinator, exchange.from_coordinator);
        if real != (to.bytes, to.messages, from.bytes, from.messages) {
            let told: Vec<_> = told.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
            return Err(format!("rank {rank}: {real:?} is not {exchange:?}: {told:?}").into());
        }
    }
    Ok(())
}

/// What was counted for a job.
struct Counted {
    node_of_rank: Vec<u32>,
    exchanges: Vec<longarm_control::scale::Exchange>,
}

/// The same job, of what its ranks have said of themselves.
fn count(heard: &[Heard]) -> Result<(Counted, HashMap<u32, &Heard>), Failed> {
    let (mut arrivals, mut cards, mut of_rank) = (HashMap::new(), HashMap::new(), HashMap::new());
    let (mut number, mut node_of_rank) = (0, Vec::new());
    for one in heard {
        let rank = u32::from_le_bytes(one.to_coordinator[16..20].try_into()?);
        of_rank.insert(rank, one);
        let said = lines(&one.to_coordinator[HELLO_BYTES + PROOF_BYTES..]);
        arrivals.insert(rank, Arrival::read(&said[0])?);
        for line in said.iter().filter_map(|line| serde_json::from_slice(line).ok()) {
            if let FromRank::Publish { card } = line {
                cards.insert(card.node, card);
            }
        }
        for line in lines(&one.from_coordinator[CHALLENGE_BYTES + PROOF_BYTES..]) {
            match serde_json::from_slice(&line) {
                Ok(ToRank::Start(start)) => (number, node_of_rank) = (start.job, start.node_of_rank.to_vec()),
                Ok(ToRank::Cards { cards: told }) => cards.extend(told.into_iter().map(|card| (card.node, card))),
                _ => {}
            }
        }
    }
    let exchanges = job_of(number, &arrivals, &cards, &node_of_rank)?.start(std::time::Instant::now());
    Ok((Counted { node_of_rank, exchanges }, of_rank))
}

/// The job as its ranks have described it.
fn job_of(
    number: u64,
    arrivals: &HashMap<u32, Arrival>,
    cards: &HashMap<u32, NodeCard>,
    node_of_rank: &[u32],
) -> Result<Job, Failed> {
    let ranks = node_of_rank.len() as u32;
    // Those on rank 0's node are on the same machine as all others, and not all are listened to. Their own numbers of a process change
    // nothing for the others.
    let own = arrivals.get(&(ranks - 1)).cloned().ok_or("the last rank has said nothing")?;
    let arrivals = (0..ranks).map(|rank| arrivals.get(&rank).cloned().unwrap_or_else(|| own.clone())).collect();
    let unknown = NodeCard { node: 0, server_pid: 0, address: String::new(), host: String::new(), door: String::new() };
    let count = node_of_rank.iter().max().map_or(1, |node| node + 1);
    let cards = (0..count).map(|node| cards.get(&node).cloned().unwrap_or_else(|| unknown.clone())).collect();
    Ok(Job { number, arrivals, cards })
}

/// What went over a relay's connection, behind its own proof: of each member what it said, or heard, and in how many frames.
fn members_of<F: Frame>(
    bytes: &[u8],
    part: impl Fn(F) -> Option<(u32, Vec<u8>)>,
) -> Result<Vec<(Vec<u8>, u64)>, Failed> {
    let (mut decoder, mut members) = (Decoder::default(), Vec::new());
    decoder.feed(bytes);
    while let Some(frame) = decoder.next_frame::<F>().map_err(|error| format!("no frame: {error}"))? {
        let Some((member, bytes)) = part(frame) else { continue };
        members.resize_with(members.len().max(member as usize + 1), Default::default);
        let (all, frames): &mut (Vec<u8>, u64) = &mut members[member as usize];
        all.extend(bytes);
        *frames += 1;
    }
    Ok(members)
}

/// A real start through relays, and the same counted. Listened to are those of all nodes but the first, whose relay is in rank 0's process.
///
/// Each message and its bytes are equal. What differs is how many frames they stand in: the relay puts what it reads at a time into one,
/// and what a member has said in two messages may be there at once. So no more heads of frames go over a connection than were counted.
fn compare_relayed(ranks: u32, nodes: u32) -> Result<(), Failed> {
    let mut job = ExplicitJob::new(Coming::Together)?;
    let (at, listening) = listen_in(job.coordinator(), nodes - 1)?;
    let per_node = ranks / nodes;
    for rank in 0..ranks {
        let through = [("LONGARM_ROOT", at.as_str())];
        job.add(rank, ranks, nodes, "work", if rank < per_node { &[] } else { &through })?;
    }
    job.end()?;
    let (mut talks, mut arrivals, mut cards) = (HashMap::new(), HashMap::new(), HashMap::new());
    let (mut number, mut node_of_rank) = (0, Vec::new());
    for one in listening.join().expect("listening does not panic") {
        let said = members_of(&one.to_coordinator[HELLO_BYTES + PROOF_BYTES..], |frame| match frame {
            FromRelay::Bytes { member, bytes } => Some((member, bytes)),
            _ => None,
        })?;
        let heard = members_of(&one.from_coordinator[CHALLENGE_BYTES + PROOF_BYTES..], |frame| match frame {
            ToRelay::Bytes { member, bytes } => Some((member, bytes)),
            ToRelay::Close { .. } => None,
        })?;
        for (said, heard) in said.into_iter().zip(heard) {
            let rank = u32::from_le_bytes(said.0[16..20].try_into()?);
            arrivals.insert(rank, Arrival::read(&lines(&said.0[HELLO_BYTES + PROOF_BYTES..])[0])?);
            for line in lines(&heard.0[CHALLENGE_BYTES + PROOF_BYTES..]) {
                match serde_json::from_slice(&line) {
                    Ok(ToRank::Start(start)) => (number, node_of_rank) = (start.job, start.node_of_rank.to_vec()),
                    Ok(ToRank::Cards { cards: told }) => cards.extend(told.into_iter().map(|card| (card.node, card))),
                    _ => {}
                }
            }
            talks.insert(rank, (said, heard));
        }
    }
    let counted = job_of(number, &arrivals, &cards, &node_of_rank)?;
    let counted = counted.start_through_relays(per_node, std::time::Instant::now());
    if talks.len() as u32 != ranks - per_node {
        return Err(format!("{} ranks were listened to", talks.len()).into());
    }
    for (rank, (said, heard)) in talks {
        let is_first = rank % per_node == 0;
        let (to, from) = (counted[rank as usize].to_coordinator, counted[rank as usize].from_coordinator);
        let node = node_of_rank[rank as usize];
        let bytes = |lines: &[Vec<u8>]| lines.iter().map(|line| line.len() as u64 + 1).sum::<u64>();
        // That a member is there is a frame of its own, and the relay's proof is in none.
        let (said_lines, heard_lines) =
            (lines(&said.0[HELLO_BYTES + PROOF_BYTES..]), lines(&heard.0[CHALLENGE_BYTES + PROOF_BYTES..]));
        let own_heard: Vec<_> = heard_lines.into_iter().filter(|line| is_of_start(line, node)).collect();
        let own_said = &said_lines[..3];
        let relays = u64::from(is_first);
        let proofs = (HELLO_BYTES + PROOF_BYTES) as u64;
        let (frames_to, frames_from) = (5 + 1, own_heard.len() as u64 + 2);
        let real_to = proofs * (1 + relays) + bytes(own_said) + HEAD_BYTES * frames_to;
        let answers = (CHALLENGE_BYTES + PROOF_BYTES) as u64;
        let real_from = answers * (1 + relays) + bytes(&own_heard) + HEAD_BYTES * frames_from;
        if (real_to, real_from) != (to.bytes, from.bytes) {
            return Err(format!("rank {rank}: {real_to} and {real_from} bytes are not {to:?} and {from:?}").into());
        }
        // One frame a message, and no more.
        let messages = (said_lines.len() as u64 + 2, lines(&heard.0[CHALLENGE_BYTES + PROOF_BYTES..]).len() as u64 + 2);
        if said.1 > messages.0 || heard.1 != messages.1 {
            return Err(format!("rank {rank}: {} and {} frames for {messages:?} messages", said.1, heard.1).into());
        }
    }
    Ok(())
}
