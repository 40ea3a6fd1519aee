//! Mutexes: exclusion, turns, threads, and what is said of wrong calls.

use longarm::World;
use longarm::error::{MutexError, Rank};

use super::support::{Dice, ahead, barrier, compute, ranks};

/// A counter that is read and written apart, which only a mutex makes right. Hosts on every rank, the counter
/// somewhere else.
pub fn exclusion(world: &World) {
    let mutexes = world.mutexes_collective(2).expect("mutexes");
    let counters = world.allocate_collective::<u64>(2 * world.size() as usize).expect("counters");
    let mut dice = Dice::new(&[u64::from(world.rank())]);
    let rounds = if world.size() > 4 { 60 } else { 300 };
    let mut added = vec![0_u64; 2 * world.size() as usize];
    for round in 0..rounds {
        // Half of the rounds all go for one mutex.
        let host = if round % 2 == 0 {
            (round / 2 % world.size() as usize) as u32
        } else {
            dice.below(world.size() as usize) as u32
        };
        let number = (round / 2 % 2) as u64;
        let index = 2 * host as usize + number as usize;
        let home = (host + 1) % world.size();
        if round % 5 == 4 {
            let Some(guard) = mutexes.try_lock(host, number).expect("a try") else { continue };
            add(world, &counters, home, index);
            drop(guard);
        } else {
            let guard = mutexes.lock(host, number).expect("a lock");
            add(world, &counters, home, index);
            guard.unlock().expect("an unlock");
        }
        added[index] += 1;
    }
    world.allreduce_collective(longarm::Reduction::Sum, &mut added).expect("the sum of all");
    barrier(world);
    for host in ranks(world) {
        for number in 0..2 {
            let index = 2 * host as usize + number;
            let found = counters.get_one((host + 1) % world.size(), index).expect("the counter");
            assert_eq!(found, added[index], "counter of mutex {number} of rank {host}");
        }
    }
    barrier(world);
    mutexes.free_collective().expect("the mutexes are freed");
}

fn add(world: &World, counters: &longarm::Window<u64>, home: u32, index: usize) {
    let value = counters.get_one(home, index).expect("a look");
    compute(value % 20);
    counters.put_one(home, index, value + 1).expect("one more");
    world.quiet_rank(home).expect("quiet before unlock");
}

/// Everything that can be wrong with a call, and that a wrong call changes nothing.
pub fn errors(world: &World) {
    let me = world.rank();
    // Rank r hosts r mutexes, and one more.
    let mutexes = world.mutexes_collective(u64::from(me) + 1).expect("mutexes");
    let mine = |host: u32| u64::from(host);
    for host in ranks(world) {
        let (rank, count) = (Rank(host), u64::from(host) + 1);
        for number in [count, count + 1, u64::MAX / 64, u64::MAX] {
            let unknown = MutexError::UnknownMutex { host: rank, number, count };
            assert_eq!(mutexes.lock(host, number).err(), Some(unknown.clone()));
            assert_eq!(mutexes.try_lock(host, number).err(), Some(unknown.clone()));
            assert_eq!(mutexes.unlock(host, number), Err(unknown));
        }
        let not_held = MutexError::NotHeld { host: rank, number: mine(host) };
        // Nobody holds it.
        assert_eq!(mutexes.unlock(host, mine(host)), Err(not_held.clone()));
        world.sync_collective().expect("all have tried");
        // One rank holds it, the others do not.
        if me == host {
            mutexes.lock(host, mine(host)).expect("a lock").keep();
        }
        world.sync_collective().expect("it is held");
        if me == host {
            assert_eq!(
                mutexes.lock(host, mine(host)).err(),
                Some(MutexError::HeldAlready { host: rank, number: mine(host) })
            );
            assert!(mutexes.try_lock(host, mine(host)).expect("a try").is_none(), "it is held by this rank");
        } else {
            assert!(mutexes.try_lock(host, mine(host)).expect("a try").is_none(), "it is held by another rank");
            assert_eq!(mutexes.unlock(host, mine(host)), Err(not_held.clone()));
        }
        world.sync_collective().expect("all have tried");
        if me == host {
            mutexes.unlock(host, mine(host)).expect("the holder unlocks");
            assert_eq!(mutexes.unlock(host, mine(host)), Err(not_held), "it was unlocked before");
        }
        world.sync_collective().expect("it is free");
    }
    errors_from_afar(world);
    let count = u64::from(ahead(world, 1)) + 1;
    assert_eq!(
        mutexes.unlock(world.size(), 0),
        Err(MutexError::UnknownMutex { host: Rank(world.size()), number: 0, count: 0 })
    );
    assert!(mutexes.lock(ahead(world, 1), count).is_err());
    // A guard that is dropped unlocks.
    drop(mutexes.lock(me, 0).expect("a lock"));
    mutexes.try_lock(me, 0).expect("a try").expect("it is free").unlock().expect("an unlock");
    barrier(world);
    mutexes.free_collective().expect("the mutexes are freed");
    assert!(matches!(
        mutexes.lock(me, 0),
        Err(MutexError::Transfer(longarm::error::TransferError::FreedWindow { .. }))
    ));
    assert!(matches!(
        mutexes.unlock(me, 0),
        Err(MutexError::Transfer(longarm::error::TransferError::FreedWindow { .. }))
    ));
}

/// The holder is not the host: each rank locks one of its right neighbour and of the farthest rank, twice.
fn errors_from_afar(world: &World) {
    let mutexes = world.mutexes_collective(u64::from(world.size())).expect("mutexes");
    let number = u64::from(world.rank());
    for host in ranks(world) {
        let place = (Rank(host), number);
        let guard = mutexes.lock(host, number).expect("a lock");
        assert_eq!(mutexes.lock(host, number).err(), Some(MutexError::HeldAlready { host: place.0, number: place.1 }));
        assert!(mutexes.try_lock(host, number).expect("a try").is_none());
        guard.unlock().expect("an unlock");
        assert_eq!(mutexes.unlock(host, number), Err(MutexError::NotHeld { host: place.0, number: place.1 }));
    }
    barrier(world);
}

/// A mutex that was unlocked by its guard is free after quiet: whoever tries it next gets it, from whatever node.
pub fn free_after_quiet(world: &World) {
    let mutexes = world.mutexes_collective(1).expect("mutexes");
    for turn in 0..3 * world.size() {
        for host in ranks(world) {
            if world.rank() == turn % world.size() {
                let guard = mutexes.try_lock(host, 0).expect("a try").expect("it was free before");
                if turn % 2 == 0 {
                    guard.keep();
                    mutexes.guard_of_kept(host, 0).expect("it is kept").unlock().expect("an unlock");
                } else {
                    guard.unlock().expect("an unlock");
                }
                world.quiet().expect("it is free");
            }
            world.sync_collective().expect("the next one's turn");
        }
    }
    barrier(world);
    mutexes.free_collective().expect("the mutexes are freed");
}

/// All ranks want one mutex all the time. Whoever has it waits until all others say that they are about to ask,
/// and only then gives it back: an unfair lock would go to the same rank again, a fair one goes around.
pub fn fairness(world: &World) {
    let size = world.size() as usize;
    let turns = turns_of_all(world);
    // All others have their turn in between, but for one of many: who is stopped by the system between its word and its call
    // comes late, without anybody's fault.
    let (unfair, waits) = of_waits(&turns, size, |turns| turns + usize::from(size > 3) < size);
    // Several may be late at a time, but not often, even where many share a processor. A mutex that goes to anybody who waits is above
    // this.
    let some = if size > 5 { 2 } else { 4 };
    assert!(unfair * some < waits, "{unfair} of {waits} waits were not for the others: {turns:?}");
    barrier(world);
}

/// The same where ranks look, and pass the mutex on among themselves in between: nobody waits for long.
pub fn patience(world: &World) {
    let size = world.size() as usize;
    let turns = turns_of_all(world);
    let (late, waits) = of_waits(&turns, size, |turns| turns > 2 * size);
    let (starved, _) = of_waits(&turns, size, |turns| turns > size * TURNS / 3);
    assert!(late * 4 < waits && starved == 0, "{late} of {waits} waits were long, {starved} longer: {turns:?}");
    barrier(world);
}

/// How many of all waits were for a number of turns that is looked for, and how many there were.
fn of_waits(turns: &[u64], size: usize, is_counted: impl Fn(usize) -> bool) -> (usize, usize) {
    let (mut counted, mut waits) = (0, 0);
    for rank in 0..size as u64 {
        let mine: Vec<usize> = (0..turns.len()).filter(|at| turns[*at] == rank).collect();
        assert_eq!(mine.len(), TURNS, "turns of rank {rank}");
        waits += mine.len() - 1;
        counted += mine.windows(2).filter(|pair| is_counted(pair[1] - pair[0])).count();
    }
    (counted, waits)
}

/// How often each rank has the mutex that is watched for who has it.
const TURNS: usize = 25;

/// The ranks that had the mutex, one after the other.
fn turns_of_all(world: &World) -> Vec<u64> {
    let size = world.size() as usize;
    let mutexes = world.mutexes_collective(1).expect("mutexes");
    let host = world.size() / 2;
    // One word a rank that says whether it asks, or is done; the length of the log, and the log.
    let asking = world.allocate_collective::<u64>(size).expect("words");
    let log = world.allocate_collective::<u64>(1 + size * TURNS).expect("a log");
    let me = world.rank();
    // Who finds the mutex taken for the first time has to connect to the server of its node, which takes as long as many turns where all
    // processors are busy. So everybody finds it taken once before it is watched.
    for holder in 0..world.size().min(2) {
        let guard = (me == holder).then(|| mutexes.lock(host, 0).expect("a lock"));
        barrier(world);
        let asked = (me != holder).then(|| mutexes.start_lock(host, 0));
        barrier(world);
        drop(guard);
        drop(asked.map(|asked| asked.wait().expect("a lock")));
        barrier(world);
    }
    for _ in 0..TURNS {
        // Not waited for, so that nothing lies between the word and the call.
        drop(asking.start_set(host, me as usize, 1).expect("a word"));
        let guard = mutexes.lock(host, 0).expect("a lock");
        let length = log.get_one(host, 0).expect("the length");
        log.put_one(host, 1 + length as usize, u64::from(me)).expect("a turn");
        log.put_one(host, 0, length + 1).expect("the length");
        world.quiet_rank(host).expect("quiet before unlock");
        let mut others = vec![0; size];
        while (0..size).any(|rank| rank != me as usize && others[rank] == 0) {
            asking.get(host, 0, &mut others).expect("the words");
            std::thread::yield_now();
        }
        // What they say they are about to do takes them a moment.
        for _ in 0..20 {
            asking.fetch(host, 0).expect("a look");
            compute(5000);
            std::thread::yield_now();
        }
        asking.set(host, me as usize, 0).expect("a word");
        guard.unlock().expect("an unlock");
    }
    asking.set(host, me as usize, 2).expect("a word");
    barrier(world);
    let log = log.get_vec(host, 0..1 + size * TURNS).expect("the log");
    assert_eq!(log[0], (size * TURNS) as u64, "turns were lost");
    log[1..].to_vec()
}

/// Several threads of several ranks want the same mutexes: one thread of the job has each at a time, and none is passed over.
pub fn threads(world: &World) {
    const THREADS: u64 = 3;
    let mutexes = world.mutexes_collective(1).expect("mutexes");
    // At each rank a word that is read and written apart, and one that says who is inside.
    let words = world.allocate_collective::<u64>(2).expect("words");
    let rounds = if world.size() > 4 { 5 } else { 40 };
    let me = world.rank();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (mutexes, words) = (&mutexes, &words);
            scope.spawn(move || {
                for round in 0..rounds {
                    for host in ranks(world) {
                        let guard = match mutexes.try_lock(host, 0).expect("a try") {
                            Some(guard) if round % 3 == 0 => guard,
                            tried => {
                                drop(tried);
                                mutexes.lock(host, 0).expect("a lock")
                            }
                        };
                        let name = 1 + u64::from(me) * THREADS + thread;
                        assert_eq!(words.swap(host, 1, name).expect("a word"), 0, "another thread is inside");
                        add(world, words, host, 0);
                        assert_eq!(words.swap(host, 1, 0).expect("a word"), name, "another thread came in");
                        guard.unlock().expect("an unlock");
                    }
                }
            });
        }
    });
    barrier(world);
    let found = words.get_one(me, 0).expect("the counter");
    assert_eq!(found, THREADS * rounds as u64 * u64::from(world.size()));
    thread_errors(world, &mutexes);
    barrier(world);
    mutexes.free_collective().expect("the mutexes are freed");
}

/// A thread does not wait for itself, and others wait for what it keeps without a guard.
fn thread_errors(world: &World, mutexes: &longarm::Mutexes) {
    let me = world.rank();
    let held = MutexError::HeldAlready { host: Rank(me), number: 0 };
    let guard = mutexes.lock(me, 0).expect("a lock");
    assert_eq!(mutexes.lock(me, 0).err(), Some(held.clone()), "the same thread");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| mutexes.try_lock(me, 0).expect("a try").is_none());
        assert!(other.join().expect("it ends"), "another thread does not get it");
        guard.keep();
        assert_eq!(mutexes.lock(me, 0).err(), Some(held.clone()), "the same thread, without a guard");
        let waits = scope.spawn(|| mutexes.lock(me, 0).expect("its turn comes").unlock());
        // Any thread gives it back.
        let other = scope.spawn(|| mutexes.unlock(me, 0));
        assert_eq!(other.join().expect("it ends"), Ok(()));
        assert_eq!(waits.join().expect("it ends"), Ok(()));
    });
    // A guard that goes to another thread is given back there.
    let guard = mutexes.lock(me, 0).expect("a lock");
    std::thread::scope(|scope| drop(scope.spawn(move || guard.unlock().expect("an unlock"))));
    mutexes.lock(me, 0).expect("it is free").unlock().expect("an unlock");
}
