//! The end of a step of Slurm's, asked for by one of its tasks.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longarm_managers::slurm::Step;

/// How long `scancel` is waited for, and how often looked at.
const CANCEL_WAIT: Duration = Duration::from_secs(2);
const CANCEL_LOOK: Duration = Duration::from_millis(5);

/// The ranks of how many nodes ask for an end of the step: Slurm's controller is asked by each.
const CANCELLING_NODES: u32 = 4;

/// Whether this task is one of the few that ask for the end of their step where all want it.
pub(crate) fn cancels_for_all(task: &Step) -> bool {
    task.local_id == 0 && task.node_id < CANCELLING_NODES
}

/// Asks Slurm to end the step, and waits at most 2 s for `scancel`. `srun` does not notice that the daemon of a task's step is gone,
/// and waits for it for ever, unless the step is cancelled.
pub(crate) fn cancel(step: &Step) {
    let step = format!("{}.{}", step.job_id, step.step_id);
    let mut cancel = Command::new("scancel");
    cancel.arg(&step).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match cancel.spawn() {
        Err(error) => tracing::warn!(%error, step, "the step cannot be cancelled, and srun may wait for it"),
        // If this process is the last one of the step here, Slurm ends what it has started when it ends.
        Ok(mut cancel) => {
            let until = Instant::now() + CANCEL_WAIT;
            while matches!(cancel.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(CANCEL_LOOK);
            }
        }
    }
}
