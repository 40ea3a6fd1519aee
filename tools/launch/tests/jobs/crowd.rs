//! Every rank calls the servers of all nodes at once, as soon as the job has begun.

use longarm::World;

use super::support::barrier;

/// Puts a word into every rank, before anybody had a connection to most of them, and looks whether all have come.
pub fn calls(world: &World) {
    let (me, size) = (u64::from(world.rank()), world.size());
    let window = world.allocate_collective::<u64>(size as usize).expect("a window");
    let mut puts = Vec::new();
    for distance in 0..size {
        // Each begins elsewhere, or at the same one: both happen in programs.
        let target = if me.is_multiple_of(2) { (world.rank() + distance) % size } else { distance };
        puts.push(window.start_put(target, me as usize, vec![me + 1]).expect("a put"));
    }
    puts.into_iter().for_each(|put| drop(put.wait().expect("a put")));
    world.quiet().expect("quiet");
    barrier(world);
    let found = window.get_vec(world.rank(), 0..size as usize).expect("own memory");
    assert!(found.into_iter().eq(1..=u64::from(size)), "a word from everybody");
    barrier(world);
}
