//! A process that has nobody beside it.

use longarm_control::messages::{CONTROL_VERSION, Start};

use crate::error::InitError;

/// A job of one rank.
pub(crate) fn alone() -> Result<Start, InitError> {
    let mut random = [0; 40];
    getrandom::fill(&mut random).map_err(|_| InitError::Random)?;
    let (job, secret) = random.split_first_chunk().expect("there are 40 bytes");
    let secret = Start::spell_secret(secret.try_into().expect("there are 32 behind the job's 8"));
    Ok(Start {
        version: CONTROL_VERSION,
        job: u64::from_le_bytes(*job),
        secret,
        rank: 0,
        node_of_rank: vec![0].into(),
        machines: 1,
        ranks_on_machine: 1,
        processors: crate::topology::processors_allowed(),
        stats: false,
        survivors_go_on: false,
    })
}
