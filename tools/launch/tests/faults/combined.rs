//! A rank is killed while all ranks of its node update one word of another node, which some of them do for others: nobody waits for ever.

use std::sync::atomic::{AtomicU64, Ordering};

use libtest_mimic::{Failed, Trial};
use longarm::World;

use super::deaths::die;
use super::outside::{Job, NO_HURRY};

/// Many more ranks on the second node than have a request of their own under way.
const LAYOUT: (u32, u32) = (48, 2);
const FIRST_OF_SECOND: u32 = 24;
/// Updates after which the victim dies.
const ENOUGH: u64 = 3000;

/// The rank's side. Parameter: the victim.
pub fn body(world: World, parameters: &str) {
    let victim: u32 = parameters.parse().expect("the victim's number");
    let me = world.rank();
    let window = world.allocate_collective::<u64>(1).expect("memory is enough");
    world.barrier_collective().expect("all live");
    if me >= FIRST_OF_SECOND {
        let counted = AtomicU64::new(0);
        let die_at_some_time = || {
            while counted.load(Ordering::Relaxed) < ENOUGH {
                std::thread::yield_now();
            }
            // Wherever the other thread is just then.
            die("killed")
        };
        std::thread::scope(|scope| {
            if me == victim {
                scope.spawn(die_at_some_time);
            }
            while world.deaths().is_empty() {
                match window.fetch_add(0, 0, 1) {
                    Ok(word) => counted.store(word, Ordering::Relaxed),
                    Err(error) => println!("rank {me} failed: {error}"),
                }
            }
        });
        println!("rank {me} knows");
    }
    // The test ends us.
    loop {
        std::thread::park();
    }
}

/// The trials of this module: a rank of the node, and the one that hosts its server.
pub fn trials() -> Vec<Trial> {
    let name = |victim| format!("whoever_updates_one_word_with_rank_{victim}_when_it_is_killed_does_not_wait_for_it");
    [FIRST_OF_SECOND + 1, FIRST_OF_SECOND].map(|victim| Trial::test(name(victim), move || run(victim))).into()
}

fn run(victim: u32) -> Result<(), Failed> {
    let job = Job::start(LAYOUT, "one word", &victim.to_string(), &[NO_HURRY])?;
    let survivors = LAYOUT.0 - FIRST_OF_SECOND - 1;
    let ended = job.end_after(survivors as usize, |line| line.ends_with(" knows"))?;
    ended.expect_status(137)?;
    let is_named = |line: &&str| line.contains(&format!("rank {victim} (node 1) was killed by signal 9 (SIGKILL)"));
    match ended.stdout.lines().filter(|line| line.contains(" failed: ")).find(|line| !is_named(line)) {
        Some(line) => Err(format!("{line}; rank {victim} was killed").into()),
        None => Ok(()),
    }
}
