//! Connections that break, fall silent, or come byte by byte, while the way to every server goes through a proxy. All of
//! it is survived: the result is right to the last bit.

use std::sync::Arc;

use libtest_mimic::Failed;

use super::dice::Dice;
use super::job::{Ended, Job, Plan};
use super::proxy::{Decide, Fate, Fault};
use super::work::Orders;

/// Connections of each node that are met by faults; later ones are not, so that the job comes to its end.
const FAULTY: u64 = 7;

/// What happens to the connections of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Resets, ends on both sides or on one.
    Breaks,
    /// Nothing moves for a while.
    Stalls,
    /// Nobody answers for a while.
    Restarts,
    /// Bytes come one by one or late, and then it breaks.
    Pieces,
}

/// How long silence counts as a break, in the jobs that stall.
const SILENCE_MS: u64 = 120;

/// Ranks and nodes.
const LAYOUTS: [(u32, u32); 6] = [(2, 2), (2, 2), (3, 2), (3, 3), (4, 2), (4, 4)];
/// Those of every twentieth job.
const LARGE: [(u32, u32); 2] = [(8, 4), (16, 4)];

/// Ranks and nodes, and how many connections these may have, of which each rank has one or two.
const PARTLY_ROUTED: [(u32, u32, &str); 3] = [(4, 4, "2"), (3, 3, "1"), (8, 4, "3")];

/// A place in the stream: as likely among the first bytes as among the first thousand or million.
fn place(dice: &mut Dice, bits_max: usize) -> u64 {
    let bits = dice.within(3, bits_max);
    1 + dice.word() % (1 << bits)
}

fn fault(kind: Kind, dice: &mut Dice) -> Fault {
    match kind {
        Kind::Breaks | Kind::Pieces => *dice.pick(&[Fault::Reset, Fault::Reset, Fault::Close, Fault::CloseOneSide]),
        Kind::Stalls => {
            let pause_ms = dice.within(20, 4 * SILENCE_MS as usize) as u64;
            if dice.chance(50) { Fault::Stall(pause_ms) } else { Fault::StallOneWay(pause_ms) }
        }
        Kind::Restarts => Fault::Restart(dice.within(1, 250) as u64),
    }
}

fn decide(kind: Kind, seed: u64) -> Decide {
    Arc::new(move |node, number| {
        let mut dice = Dice::new(&[seed, u64::from(node), number]);
        if number >= FAULTY || (number > 0 && dice.chance(15)) {
            return Fate::default();
        }
        let mut fate = Fate::default();
        // The first one breaks early, so that none of the jobs goes unhurt.
        let bits_max = if number == 0 { 9 } else { 20 };
        for _ in 0..if kind == Kind::Stalls { 2 } else { 1 } {
            fate.faults.push((dice.below(2), place(&mut dice, bits_max), fault(kind, &mut dice)));
        }
        fate.faults.sort_by_key(|(_, at, _)| *at);
        if kind == Kind::Pieces {
            fate.single_bytes = dice.within(1, 3000) as u64;
            fate.delay_ms = if dice.chance(20) { 1 } else { 0 };
        }
        fate
    })
}

/// The job of a seed.
pub fn plan(kind: Kind, seed: u64) -> Plan {
    let mut dice = Dice::new(&[seed, kind as u64]);
    let (ranks, nodes) = *dice.pick(if seed.is_multiple_of(20) { &LARGE[..] } else { &LAYOUTS[..] });
    let mut variables = Vec::new();
    if kind == Kind::Stalls {
        variables.push(("LONGARM_SILENCE_MS", SILENCE_MS.to_string()));
    }
    if dice.chance(25) {
        variables.push(("LONGARM_ENCRYPT", "yes".to_owned()));
    }
    match dice.below(4) {
        // Other ways for the same operations.
        0 => variables.extend([
            ("LONGARM_EAGER_BYTES", "64".to_owned()),
            ("LONGARM_SEND_RING_BYTES", "64k".to_owned()),
            ("LONGARM_SOCKET_BUFFER_BYTES", "8k".to_owned()),
        ]),
        1 => variables.extend([("LONGARM_SPIN_US", "50".to_owned()), ("LONGARM_SERVER_THREADS", "3".to_owned())]),
        _ => {}
    }
    let orders = if ranks > 4 {
        Orders { seed, rounds: 2, bytes_max: 64 << 10 }
    } else {
        Orders { seed, rounds: 3, bytes_max: *dice.pick(&[64 << 10, 256 << 10, 1 << 20]) }
    };
    Plan { ranks, nodes, orders, variables, decide: Some(decide(kind, seed)), wrapper: Vec::new() }
}

/// Fails unless every rank found everything right.
pub fn expect_right(ended: &Ended, ranks: u32) -> Result<(), Failed> {
    let Ended { status, stdout, stderr, .. } = ended;
    let right = |rank| stdout.lines().any(|line| line.starts_with(&format!("rank {rank} is right")));
    if *status == 0 && (0..ranks).all(right) {
        return Ok(());
    }
    Err(format!("the status is {status}, stdout:\n{stdout}stderr:\n{stderr}").into())
}

/// One trial.
pub fn run(kind: Kind, seed: u64) -> Result<(), Failed> {
    run_plan(&plan(kind, seed))
}

/// One trial in which only servers connect: what breaks are the connections that all ranks of a node share.
pub fn run_routed(seed: u64) -> Result<(), Failed> {
    let mut plan = plan(Kind::Breaks, seed);
    plan.variables.push(("LONGARM_CONNECTIONS_MAX", "0".to_owned()));
    run_plan(&plan)
}

/// One trial in which ranks have some connections of their own, and share the others: both break.
pub fn run_partly_routed(seed: u64) -> Result<(), Failed> {
    let mut plan = plan(Kind::Breaks, seed);
    let (ranks, nodes, connections_max) = PARTLY_ROUTED[seed as usize % PARTLY_ROUTED.len()];
    (plan.ranks, plan.nodes) = (ranks, nodes);
    plan.variables.push(("LONGARM_CONNECTIONS_MAX", connections_max.to_owned()));
    run_plan(&plan)
}

fn run_plan(plan: &Plan) -> Result<(), Failed> {
    let ended = Job::start(plan)?.end()?;
    expect_right(&ended, plan.ranks)?;
    if ended.faults == 0 {
        return Err("no fault was injected".into());
    }
    Ok(())
}
