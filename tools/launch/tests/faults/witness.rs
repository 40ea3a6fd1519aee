//! Ranks that see another one die or end the job, where nothing of ours has started them.

use longarm::{Compare, Window, World};

use super::deaths::die;

/// Where those who are ready are counted, at the victim.
const READY: usize = 0;
/// Where nothing ever happens.
const SILENT: usize = 1;

/// Words of a window in which ranks count themselves at a victim.
pub fn window(world: &World) -> Window<u64> {
    let window = world.allocate_collective::<u64>(2).expect("memory is enough");
    world.barrier_collective().expect("all live");
    window
}

/// At the victim: until all others wait for it.
pub fn await_others(world: &World, window: &Window<u64>) {
    let others = u64::from(world.size()) - 1;
    window.wait_until(READY, Compare::Equal, others).expect("all live");
}

/// At the others: says so to the victim, which may be gone before the answer is, and with it the server that gives it.
pub fn be_counted(window: &Window<u64>, victim: u32) {
    let _ = window.fetch_add(victim, READY, 1);
}

/// The victim is killed when all others wait for it, and they say what their calls return.
pub fn see_a_death(world: &World, victim: u32) {
    let window = window(world);
    if world.rank() == victim {
        await_others(world, &window);
        die("killed");
    }
    be_counted(&window, victim);
    let error = window.wait_until(SILENT, Compare::NotEqual, 0).expect_err("nobody changes this word");
    println!("wait: {error}");
    let error = world.barrier_collective().expect_err("a member is dead");
    println!("barrier: {error}");
}

/// Waits for a rank that ends the job, says what comes of that, and does not end by itself.
pub fn hear_of_the_end(world: &World) -> ! {
    let waited = world.barrier_collective();
    println!("barrier: {}", waited.expect_err("a member has ended the job"));
    stay()
}

/// Until somebody else ends this process.
pub fn stay() -> ! {
    loop {
        std::thread::park();
    }
}
