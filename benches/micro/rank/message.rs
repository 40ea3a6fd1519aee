//! Active messages there and back: a handler at the target replies, and the reply's handler says so. Both ranks wait for what
//! handlers do, and run them meanwhile.

use std::sync::Arc;

use longarm::ffi::sync::{AtomicBool, Ordering};

use super::Job;
use crate::Failure;

const PING: u32 = 1;
const PONG: u32 = 2;
/// No more of them.
const DONE: u32 = 3;

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let (world, target) = (job.world, job.arguments.target);
    let came = Arc::new(AtomicBool::new(false));
    let is_there = || came.swap(false, Ordering::AcqRel).then_some(());
    world.register_handler(PING, |message| {
        message.reply(PONG, message.arguments(), message.payload()).expect("the one who asked is there");
    })?;
    for number in [PONG, DONE] {
        let comes = Arc::clone(&came);
        world.register_handler(number, move |_| comes.store(true, Ordering::Release))?;
    }
    world.barrier_collective()?;
    if job.measures() {
        for bytes in [8, 1 << 10] {
            let payload = vec![1; bytes];
            let trip = job.effort.measure(|count| {
                for _ in 0..count {
                    world.send_message(target, PING, &[], &payload)?;
                    world.run_handlers_until(is_there)?;
                }
                Ok(())
            })?;
            job.tell("am_roundtrip", bytes, &trip);
        }
        world.send_message(target, DONE, &[], &[])?;
    }
    if world.rank() == target {
        world.run_handlers_until(is_there)?;
    }
    world.barrier_collective()?;
    Ok(())
}
