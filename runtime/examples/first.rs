//! The smallest program: every rank tells its right neighbour a number.

use longarm::prelude::*;

fn main() -> longarm::Result<()> {
    let world = longarm::init()?;
    let window = world.allocate_collective::<u64>(4)?;
    let right = (world.rank() + 1) % world.size();
    window.put(right, 1, &[u64::from(world.rank()) + 100])?;
    world.barrier_collective()?;
    let got = window.get_one(world.rank(), 1)?;
    println!("rank {} of {} on node {} was told {got}", world.rank(), world.size(), world.node());
    let old = window.fetch_add(0, 0, 1)?;
    window.accumulate(0, 3, Update::Sum, &[2])?;
    let mut sum = [u64::from(world.rank())];
    world.allreduce_collective(Reduction::Sum, &mut sum)?;
    world.barrier_collective()?;
    println!(
        "rank {} old {old} counter {} acc {} sum {}",
        world.rank(),
        window.fetch(0, 0)?,
        window.get_one(0, 3)?,
        sum[0]
    );
    Ok(world.finalize()?)
}
