//! A rank dies holding mutexes that others host. The others take them all, in turn, and one of them is told.

use libtest_mimic::{Failed, Trial};
use longarm::{Compare, MutexGuard, World};

use super::outside::{Job, NO_HURRY};

/// How the mutexes of each host are asked for, by number.
const WAYS: [&str; 3] = ["waited for", "asked for later", "tried later"];
/// Words of each part: who is ready; then for each mutex its turns, and what its first holder was doing.
const READY: usize = 0;
const TURNS: usize = 8;
const TRACE: usize = 16;
/// What the victim leaves behind.
const LAST_WORDS: u64 = 0xdead;

/// The ranks that host mutexes: the first and the last one that the victim does not take along.
fn hosts((ranks, nodes): (u32, u32), victim: u32) -> [u32; 2] {
    let survives = |host: &u32| *host != victim && host - host % (ranks / nodes) != victim;
    [(0..ranks).find(survives), (0..ranks).rev().find(survives)].map(|host| host.expect("some node survives"))
}

/// The rank's side. Parameter: the victim.
pub fn body(world: World, parameters: &str) {
    let victim: u32 = parameters.parse().expect("the victim's number");
    let (me, others) = (world.rank(), world.size() - 1);
    let hosts = hosts((world.size(), world.node_count()), victim);
    let mutexes = world.mutexes_collective(WAYS.len() as u64).expect("memory is enough");
    let window = world.allocate_collective::<u64>(32).expect("memory is enough");
    if me == victim {
        for host in hosts {
            (0..WAYS.len()).for_each(|number| mutexes.lock(host, number as u64).expect("it is free").keep());
        }
    }
    world.barrier_collective().expect("all live");
    if me == victim {
        window.wait_until(READY, Compare::GreaterOrEqual, u64::from(others)).expect("all live");
        for host in hosts {
            for number in 0..WAYS.len() {
                // Without quiet: the last thing that it does.
                window.put_one(host, TRACE + number, LAST_WORDS).expect("the host lives");
            }
        }
        let me = rustix::process::getpid();
        rustix::process::kill_process(me, rustix::process::Signal::KILL).expect("one may kill oneself");
    }
    // The victim may be gone before it has answered.
    let _ = window.fetch_add(victim, READY, 1);
    let take = |host: u32, number: usize, guard: MutexGuard<'_>| {
        // Two steps, which only a mutex keeps together.
        let turn = window.get_one(host, TURNS + number).expect("the host lives") + 1;
        window.put_one(host, TURNS + number, turn).expect("the host lives");
        let trace = window.get_one(host, TRACE + number).expect("the host lives");
        world.quiet_rank(host).expect("the host lives");
        let told = if guard.previous_holder_died() { "inherited" } else { "given" };
        guard.unlock().expect("the host lives");
        println!("rank {me}, {} at {host}: turn {turn}, {told}, {trace:#x}", WAYS[number]);
    };
    for host in hosts {
        take(host, 0, mutexes.lock(host, 0).expect("the host lives"));
    }
    for host in hosts {
        take(host, 1, mutexes.lock(host, 1).expect("the host lives"));
        let guard = loop {
            match mutexes.try_lock(host, 2).expect("the host lives") {
                Some(guard) => break guard,
                None => std::thread::yield_now(),
            }
        };
        take(host, 2, guard);
    }
    // The test ends us.
    loop {
        std::thread::park();
    }
}

/// Layout and victim: a neighbour of the server on its node, another node's rank, the host of another server.
const CASES: [((u32, u32), u32); 5] = [((4, 1), 2), ((4, 2), 1), ((4, 2), 3), ((4, 2), 2), ((4, 4), 1)];

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let name = |((ranks, nodes), victim): ((u32, u32), u32)| {
        format!("mutexes_that_rank_{victim}_of_{ranks}_on_{nodes}_nodes_held_go_to_the_others_and_one_is_told")
    };
    CASES.into_iter().map(|case| Trial::test(name(case), move || run(case))).collect()
}

fn run((layout, victim): ((u32, u32), u32)) -> Result<(), Failed> {
    let hosts = hosts(layout, victim);
    let takes = (layout.0 as usize - 1) * hosts.len() * WAYS.len();
    let job = Job::start(layout, "heirs", &victim.to_string(), &[NO_HURRY])?;
    let ended = job.end_after(takes, |line| line.contains(": turn "))?;
    ended.expect_status(137)?;
    for host in hosts {
        for way in WAYS {
            let start = format!("{way} at {host}: ");
            let mut said: Vec<&str> =
                ended.stdout.lines().filter_map(|line| line.split_once(", ")?.1.strip_prefix(&start)).collect();
            said.sort_unstable();
            let told = |turn| if turn == 1 { "inherited" } else { "given" };
            let due: Vec<String> =
                (1..layout.0).map(|turn| format!("turn {turn}, {}, {LAST_WORDS:#x}", told(turn))).collect();
            if said != due {
                let (stdout, stderr) = (&ended.stdout, &ended.stderr);
                return Err(format!("{start}{said:?}, not {due:?}; all of it:\n{stdout}\n{stderr}").into());
            }
        }
    }
    Ok(())
}
