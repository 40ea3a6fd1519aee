//! Calls that all ranks make at the same time, and those of one rank beside gets and puts: for profiles.

use std::hint::black_box;
use std::time::Instant;

use longarm::World;

use super::Call;
use crate::Failure;
use crate::cli::CountsArguments;

/// Whether it is one of these.
pub(super) fn is_one(call: Call) -> bool {
    matches!(call, Call::FarFetchAdd | Call::FarLock) || is_of_all(call)
}

fn is_of_all(call: Call) -> bool {
    matches!(call, Call::BothGet8 | Call::BothPut8 | Call::BothFetchAdd | Call::BothPutBarrier | Call::Barrier)
}

/// Makes the call. Not inlined: what is counted is made beside it.
#[inline(never)]
pub(super) fn run(world: &World, arguments: &CountsArguments) -> Result<(), Failure> {
    let (window, mutexes) = (world.allocate_collective::<u64>(1)?, world.mutexes_collective(1)?);
    let (of_all, size) = (is_of_all(arguments.call), world.size());
    let target = if of_all { (world.rank() + size / 2) % size } else { size - 1 };
    let mut buffer = vec![1_u64];
    world.barrier_collective()?;
    let began = Instant::now();
    let mut once = || -> Result<(), Failure> {
        match arguments.call {
            Call::BothPut8 => {
                window.put(target, 0, &buffer)?;
                world.quiet()?;
            }
            Call::BothPutBarrier => {
                world.scope(|scope| scope.put(&window, target, 0, &buffer))?;
                world.barrier_collective()?;
            }
            Call::FarFetchAdd | Call::BothFetchAdd => {
                black_box(window.fetch_add(target, 0, 1)?);
            }
            Call::FarLock => mutexes.lock(target, 0)?.unlock()?,
            Call::BothGet8 => window.get(target, 0, &mut buffer)?,
            _ => world.barrier_collective()?,
        }
        Ok(())
    };
    if of_all || world.rank() == 0 {
        (0..arguments.times).try_for_each(|_| once())?;
    }
    if world.rank() == 0 {
        let each_us = began.elapsed().as_secs_f64() * 1e6 / arguments.times as f64;
        eprintln!("{:?}: {each_us:.3} us each", arguments.call);
    }
    world.barrier_collective()?;
    mutexes.free_collective()?;
    window.free_collective()?;
    Ok(())
}
