//! Active messages there and back: a handler at the target replies, and the reply's handler counts.

use longarm::Compare;

use super::Job;
use crate::Failure;

const PING: u32 = 1;
const PONG: u32 = 2;

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let (world, target) = (job.world, job.arguments.target);
    let counts = world.allocate_collective::<u64>(1)?;
    let (mine, me) = (counts.clone(), world.rank());
    world.register_handler(PING, |message| {
        message.reply(PONG, message.arguments(), message.payload()).expect("the one who asked is there");
    })?;
    world.register_handler(PONG, move |_| {
        mine.fetch_add(me, 0, 1).expect("a rank has its own window");
    })?;
    world.barrier_collective()?;
    if job.measures() {
        for bytes in [8, 1 << 10] {
            let payload = vec![1; bytes];
            let trip = job.effort.measure(|count| {
                for _ in 0..count {
                    world.send_message(target, PING, &[], &payload)?;
                    counts.wait_until(0, Compare::GreaterOrEqual, 1)?;
                    counts.set(me, 0, 0)?;
                }
                Ok(())
            })?;
            job.tell("am_roundtrip", bytes, &trip);
        }
    }
    world.barrier_collective()?;
    Ok(())
}
