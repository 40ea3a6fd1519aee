//! Many ranks at once: all call the servers of all nodes as soon as the job has begun, or all use one server, or one word.

use longarm::{Reduction, Update, World};

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

/// All ranks use the memory of rank 0 at once, until its server has a crew; which is gone with the world. On one processor ranks and server
/// take turns, and there is no crowd.
pub fn one_server(world: &World) {
    const WORDS: usize = 3000;
    const STEPS: u64 = 20;
    let (me, size) = (u64::from(world.rank()), u64::from(world.size()));
    let mine = 1 + world.rank() as usize * WORDS..1 + (world.rank() as usize + 1) * WORDS;
    let window = world.allocate_collective::<u64>(1 + size as usize * WORDS).expect("a window");
    let sums = world.allocate_collective::<u64>(WORDS).expect("a window");
    let waits_for_crew = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    let (mut rounds, mut with_crew) = (0, 0);
    while if waits_for_crew { with_crew < 10 } else { rounds < 10 } {
        for step in 0..STEPS {
            let value = rounds * STEPS + step;
            window.put(0, mine.start, &[value + me; WORDS]).expect("a put");
            sums.accumulate(0, 0, Update::Sum, &[1; WORDS]).expect("a sum");
            let old = window.fetch_add(0, 0, 1).expect("an update");
            assert!(old < (rounds + 1) * STEPS * size, "no more than were made");
            assert_eq!(window.get_vec(0, mine.clone()).expect("a get"), [value + me; WORDS], "what was put before");
        }
        rounds += 1;
        let mut found = [u64::from(has_crew())];
        world.allreduce_collective(Reduction::Max, &mut found).expect("a maximum");
        with_crew += found[0];
    }
    world.quiet().expect("quiet");
    barrier(world);
    if me == 0 {
        assert_eq!(window.get_one(0, 0).expect("own memory"), rounds * STEPS * size);
        assert_eq!(sums.get_vec(0, 0..WORDS).expect("own memory"), [rounds * STEPS * size; WORDS]);
    }
    barrier(world);
}

/// All ranks add to one word of rank 0, each something else, and each finds what those before it have left.
pub fn one_word(world: &World) {
    const UPDATES: usize = 200;
    let window = world.allocate_collective::<u64>(1).expect("a window");
    let added = u64::from(world.rank()) + 1;
    barrier(world);
    let found: Vec<u64> = (0..UPDATES).map(|_| window.fetch_add(0, 0, added).expect("an update")).collect();
    assert!(found.is_sorted(), "a rank's own updates are in order");
    let all = world.allgather_collective(&found).expect("what all have found");
    let mut all: Vec<(u64, u64)> = (0..).zip(all).map(|(at, old)| (old, at / UPDATES as u64 + 1)).collect();
    all.sort_unstable();
    let left = all.iter().fold(0, |word, (old, added)| {
        assert_eq!(*old, word, "no update is lost, or done twice");
        word + added
    });
    assert_eq!(window.get_one(0, 0).expect("the word"), left);
    barrier(world);
}

/// Whether the server that this process hosts, if it does, has started its crew.
fn has_crew() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let names = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.into_iter().any(|name| name.trim() == "longarm-crew")
}

/// Its threads may be seen for a moment after they were joined. A crew that outlives its world hangs the job.
pub fn wait_for_the_end_of_the_crew() {
    while has_crew() {
        std::thread::yield_now();
    }
}
