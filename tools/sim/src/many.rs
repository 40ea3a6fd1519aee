//! Many runs, some at once: each on a thread of its own, one seed after the other.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use longarm_shm::sync::{AtomicBool, AtomicU64, Ordering};

use crate::plan::Plan;
use crate::report::Report;
use crate::run::{Outcome, run};

/// How long to go on.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// So many seeds.
    Seeds(u64),
    /// So long; the run that is in progress then is finished.
    Elapsed(Duration),
}

/// What came of them.
#[derive(Clone, Debug)]
pub struct Many {
    /// The sum of those that were as they should be.
    pub report: Report,
    /// The first that was not.
    pub failed: Option<Box<Outcome>>,
}

/// Runs `plan` with its seed and those that follow. `tell` is given the operations, the seeds and the time so far.
///
/// # Errors
/// When a job could not be set up.
pub fn run_many(
    plan: Plan,
    until: Until,
    threads: Option<usize>,
    tell: &(dyn Fn(u64, u64, Duration) + Sync),
) -> Result<Many, String> {
    let began = Instant::now();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or(processors).max(1);
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let shared = Mutex::new((Report::default(), None::<Box<Outcome>>, None::<String>));
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let over = match until {
                Until::Seeds(seeds) => number >= seeds,
                Until::Elapsed(elapsed) => began.elapsed() >= elapsed,
            };
            if over {
                return;
            }
            let plan = Plan { seed: plan.seed.wrapping_add(number), ..plan };
            let outcome = run(plan, &mut || {});
            let mut shared = shared.lock().expect("nobody panics with it");
            match outcome {
                Ok(outcome) if outcome.failure.is_none() => {
                    shared.0.add(&outcome);
                    tell(shared.0.operations(), shared.0.seeds(), began.elapsed());
                }
                Ok(outcome) => {
                    // The smallest seed, so that the same failure is told however fast the threads are.
                    if shared.1.as_ref().is_none_or(|known| known.plan.seed > outcome.plan.seed) {
                        shared.1 = Some(Box::new(outcome));
                    }
                    stop.store(true, Ordering::Relaxed);
                }
                Err(message) => {
                    shared.2.get_or_insert(message);
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let (report, failed, error) = shared.into_inner().expect("nobody panics with it");
    match error {
        Some(message) if failed.is_none() => Err(message),
        _ => Ok(Many { report, failed }),
    }
}
