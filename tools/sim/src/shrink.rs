//! The smallest run that still fails: fewer ranks, fewer operations, fewer kinds of fault, as long as that helps.

use crate::fault::FaultSet;
use crate::plan::Plan;
use crate::run::{Outcome, run};

/// Runs that are tried at most.
const TRIES_MAX: u32 = 60;
/// Seeds that are tried for a smaller size: with other numbers a seed is another run.
const SEEDS_PER_SIZE: u64 = 4;

/// The command that repeats a run.
pub fn command(plan: &Plan) -> String {
    let Plan { seed, ranks, ops, faults, routed } = plan;
    let routed = if *routed { " --routed" } else { "" };
    format!("cargo run --release -p longarm-sim -- --seed {seed} --ranks {ranks} --ops {ops} --faults {faults}{routed}")
}

/// Looks for a smaller run that fails too. The one given has failed.
pub fn shrink(failed: Outcome) -> Outcome {
    let mut best = failed;
    let mut tries = 0;
    loop {
        let plan = best.plan;
        let Some(smaller) = candidates(&plan).into_iter().find_map(|plan| fails(plan, &mut tries)) else { return best };
        best = smaller;
    }
}

/// Smaller plans, the smallest first.
fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for ranks in [2, plan.ranks / 8, plan.ranks / 4, plan.ranks / 2] {
        if ranks >= 2 && ranks < plan.ranks {
            plans.push(Plan { ranks, ..*plan });
        }
    }
    for ops in [plan.ops / 16, plan.ops / 4, plan.ops / 2] {
        if ops >= 4 && ops < plan.ops {
            plans.push(Plan { ops, ..*plan });
        }
    }
    if plan.faults != FaultSet::NONE {
        plans.push(Plan { faults: FaultSet::NONE, ..*plan });
        plans.extend(plan.faults.iter().map(|fault| Plan { faults: plan.faults.without(fault), ..*plan }));
    }
    plans
}

fn fails(plan: Plan, tries: &mut u32) -> Option<Outcome> {
    for seed in 0..SEEDS_PER_SIZE {
        if *tries >= TRIES_MAX {
            return None;
        }
        *tries += 1;
        let plan = Plan { seed: plan.seed.wrapping_add(seed), ..plan };
        if let Ok(outcome) = run(plan, &mut || {})
            && outcome.failure.is_some()
        {
            return Some(outcome);
        }
    }
    None
}
