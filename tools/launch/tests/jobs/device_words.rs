//! Words that RDMA devices update, where there are such devices; and where there are none, that this is said.

use futures_lite::future::block_on;
use longarm::error::{DeviceRmwError, NoDeviceRmw, TransferError, WindowError};
use longarm::{DeviceWords, World};

use super::support::{ahead, barrier, ranks};

/// What a run promises of the devices: `yes`, `no`, or the number of the node that has none. Without it both is right.
const PROMISED: &str = "LONGARM_TEST_DEVICE_WORDS";

/// The words: one that all add to, a lock, a flag of the rank before, and one that wraps around.
const SUM: u64 = 0;
const LOCK: u64 = 1;
const FLAG: u64 = 2;
const AROUND: u64 = 3;
const COUNT: u64 = 4;

/// Of each rank, at each rank.
const ROUNDS: u64 = 20;

/// All that they do, in one job: over devices each job takes its time to begin.
pub fn all(world: &World) {
    let promised = std::env::var(PROMISED).unwrap_or_default();
    let words = match world.device_words_collective(COUNT) {
        Ok(words) => {
            assert!(promised.is_empty() || promised == "yes", "words were made, although {PROMISED} is {promised}");
            words
        }
        Err(error) => return refused(world, &error, &promised),
    };
    assert!(
        ranks(world).all(|rank| words.len_at(rank) == Some(COUNT as usize)) && words.len_at(world.size()).is_none()
    );
    sums(world, &words);
    awaited(world);
    one_at_a_time(world, &words);
    flags(world, &words);
    errors(world, &words);
    freed(world, &words);
    parts(world);
    barrier(world);
}

/// All members hear of the same one, the first that cannot.
fn refused(world: &World, error: &WindowError, promised: &str) {
    assert_ne!(promised, "yes", "{error}");
    let WindowError::NoDeviceRmw { rank, node, reason } = *error else { panic!("it is another error: {error}") };
    assert_eq!(world.node_of(rank.0), Some(node.0));
    let first = match promised.parse() {
        Ok(node) => ranks(world).find(|rank| world.node_of(*rank) == Some(node)).expect("the node has ranks"),
        // All lack the same.
        Err(_) => 0,
    };
    assert_eq!(rank.0, first, "{error}");
    assert_eq!(reason == NoDeviceRmw::Alone, world.size() == 1, "{error}");
    let said = error.to_string();
    assert!(said.contains(&format!("failed: rank {rank} (node {node}) {reason}; ")), "{said}");
    let awaited = world.start_device_words_collective(1).wait().expect_err("as the blocking call");
    assert_eq!(awaited.to_string(), said);
    barrier(world);
    // A group of its own, in which another one is the first.
    if promised.parse::<u32>().is_err() && world.size() > 1 {
        let others: Vec<u32> = (1..world.size()).collect();
        if world.rank() > 0 {
            let group = world.subgroup_collective(&others).expect("a group");
            let error = group.device_words_collective(1).expect_err("these lack it too");
            let WindowError::NoDeviceRmw { rank, .. } = error else { panic!("it is another error: {error}") };
            assert_eq!(rank.0, 1);
        }
    }
    barrier(world);
}

/// Two threads of every rank add to the words of all ranks. Each old value is seen once.
fn sums(world: &World, words: &DeviceWords) {
    let total = u64::from(world.size()) * 2 * ROUNDS;
    let seen = world.allocate_collective::<u64>(total as usize).expect("a window");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    for target in ranks(world) {
                        let old = words.fetch_add(target, SUM, 1).expect("an addition");
                        assert!(old < total, "{old} of {total} additions");
                        seen.fetch_add(target, old as usize, 1).expect("an rmw of another window");
                    }
                }
            });
        }
    });
    barrier(world);
    for target in ranks(world) {
        assert_eq!(words.load(target, SUM), Ok(total), "at rank {target}");
    }
    let mine = seen.get_vec(world.rank(), 0..total as usize).expect("mine");
    assert!(mine.iter().all(|times| *times == 1), "{mine:?}");
    let me = world.rank();
    assert_eq!(words.fetch_add(me, AROUND, u64::MAX), Ok(0));
    assert_eq!(words.fetch_add(me, AROUND, 3), Ok(u64::MAX));
    assert_eq!(words.load(me, AROUND), Ok(2));
}

/// The same without a thread that blocks: updates that were started are done in their order, and before the words are freed.
fn awaited(world: &World) {
    let (right, size) = (ahead(world, 1), u64::from(world.size()));
    block_on(async {
        let words = world.start_device_words_collective(2).await.expect("words, as before");
        for target in ranks(world) {
            drop(words.start_fetch_add(target, 0, 1)); // it is done all the same
        }
        let first = words.start_fetch_add(right, 1, 5);
        let (second, third) = (words.start_compare_swap(right, 1, 5, 7), words.start_load(right, 1));
        assert_eq!((third.await, second.await, first.await), (Ok(7), Ok(5), Ok(0)));
        world.start_barrier_collective().await.expect("a barrier");
        assert_eq!(words.start_load(right, 0).await, Ok(size));
        let last = words.start_fetch_add(right, 0, 1);
        let freed = words.start_free_collective();
        last.await.expect("it was started before they were freed");
        freed.await.expect("they are freed");
        let late = words.start_load(right, 0).await;
        let freed = matches!(late, Err(DeviceRmwError::Transfer(TransferError::FreedWindow { .. })));
        assert!(freed, "{late:?}");
    });
}

/// A lock at the last rank: who holds it changes a plain window.
fn one_at_a_time(world: &World, words: &DeviceWords) {
    let home = world.size() - 1;
    let mine = u64::from(world.rank()) + 1;
    let plain = world.allocate_collective::<u64>(1).expect("a window");
    for _ in 0..ROUNDS / 4 {
        while words.compare_swap(home, LOCK, 0, mine).expect("a swap") != 0 {
            std::thread::yield_now();
        }
        let value = plain.get_one(0, 0).expect("a get");
        plain.put_one(0, 0, value + 1).expect("a put");
        world.quiet().expect("it is there");
        assert_eq!(words.compare_swap(home, LOCK, mine, 0), Ok(mine), "nobody else has touched it");
    }
    barrier(world);
    assert_eq!(plain.get_one(0, 0), Ok(u64::from(world.size()) * (ROUNDS / 4)));
}

/// An update comes behind what its rank has put before, whoever did that.
fn flags(world: &World, words: &DeviceWords) {
    let (me, right) = (world.rank(), ahead(world, 1));
    let window = world.allocate_collective::<u64>(1000).expect("a window");
    for round in 1..=ROUNDS / 4 {
        let filled = vec![round; 1000];
        window.put(right, 0, &filled).expect("a put");
        // Every second time the server has nothing to do, and the device all.
        let is_served = round % 2 == 0;
        if is_served {
            window.accumulate(right, 0, longarm::Update::Sum, &filled).expect("an accumulate");
        }
        words.fetch_add(right, FLAG, 1).expect("an addition");
        while words.load(me, FLAG).expect("a load") < round {
            std::thread::yield_now();
        }
        let found = window.get_vec(me, 0..1000).expect("mine");
        let due = if is_served { 2 * round } else { round };
        assert!(found.iter().all(|value| *value == due), "round {round}: {found:?}");
        barrier(world);
    }
}

fn errors(world: &World, words: &DeviceWords) {
    for target in ranks(world) {
        for index in [COUNT, u64::MAX] {
            let error = words.fetch_add(target, index, 1).expect_err("there is no such word");
            let outside = matches!(error, DeviceRmwError::Transfer(TransferError::OutsideWindow { .. }));
            assert!(outside && error.to_string().starts_with("rmw by the device to rank"), "{error}");
        }
    }
    let error = words.load(world.size(), 0).expect_err("there is no such rank");
    assert!(matches!(error, DeviceRmwError::Transfer(TransferError::NoSuchRank { .. })), "{error}");
    barrier(world);
}

fn freed(world: &World, words: &DeviceWords) {
    let clone = words.clone();
    words.free_collective().expect("they are freed");
    for target in ranks(world) {
        for error in [clone.fetch_add(target, SUM, 1).err(), clone.compare_swap(target, LOCK, 0, 1).err()] {
            let freed = matches!(error, Some(DeviceRmwError::Transfer(TransferError::FreedWindow { .. })));
            assert!(freed, "{error:?}");
        }
    }
    assert!(matches!(clone.free_collective(), Err(WindowError::FreedWindow { .. })));
}

/// Ranks have as many words as they ask for, all zero, also where others were before.
fn parts(world: &World) {
    for _ in 0..3 {
        let words = world.device_words_collective(u64::from(world.rank())).expect("words");
        for target in ranks(world) {
            assert_eq!(words.len_at(target), Some(target as usize));
            assert!(words.load(target, u64::from(target)).is_err());
            for index in 0..u64::from(target) {
                let before = words.fetch_add(target, index, 1).expect("an addition");
                assert!(before < u64::from(world.size()), "{before}");
            }
        }
        barrier(world);
        for index in 0..u64::from(world.rank()) {
            assert_eq!(words.load(world.rank(), index), Ok(u64::from(world.size())));
        }
        words.free_collective().expect("they are freed");
    }
}
