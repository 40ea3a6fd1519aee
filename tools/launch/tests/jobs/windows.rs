//! Windows: made, freed, made again, too large, and hardly used.

use longarm::error::{RmwError, TransferError, WaitError, WindowError};
use longarm::{Compare, Patch, Segment, Update, World};

use super::support::{Dice, ahead, arbitrary, assert_same, barrier, ranks};

/// Every operation on a freed window is refused, whoever is the target.
pub fn freed(world: &World) {
    let window = world.allocate_collective::<u64>(100).expect("a window");
    let signals = world.allocate_collective::<u64>(1).expect("signals");
    let clone = window.clone();
    window.put(ahead(world, 1), 0, &[1; 100]).expect("it is used");
    drop(window.start_put(ahead(world, 1), 0, vec![2; 100]).expect("a put that is still open"));
    assert!(!window.is_freed());
    window.free_collective().expect("it is freed");
    assert!(window.is_freed() && clone.is_freed());
    let again = clone.free_collective();
    assert!(matches!(again, Err(WindowError::FreedWindow { .. })), "{again:?}");
    // Another window takes its place in the tables.
    let other = world.allocate_collective::<u64>(100).expect("a window");
    let packed = Patch::packed(&[10]);
    let piece = [Segment { target: 0, origin: 0, count: 1 }; 2];
    for target in ranks(world) {
        let mut buffer = vec![5; 10];
        let refusals = [
            window.put(target, 0, &buffer).err(),
            window.put(target, 0, &[]).err(),
            window.get(target, 0, &mut buffer).err(),
            window.accumulate(target, 0, Update::Sum, &buffer).err(),
            window.put(target, packed.with_buffer(&packed), &buffer).err(),
            window.get(target, packed.with_buffer(&packed), &mut buffer).err(),
            window.accumulate(target, packed.with_buffer(&packed), Update::Min, &buffer).err(),
            window.put(target, &piece, &buffer).err(),
            window.get(target, &piece, &mut buffer).err(),
            window.accumulate(target, &piece, Update::Max, &buffer).err(),
            window.start_put(target, 0, buffer.clone()).err(),
            window.start_get(target, 0, buffer.clone()).err(),
            window.start_accumulate(target, 0, Update::Sum, buffer.clone()).err(),
            window.start_put(target, packed.with_buffer(&packed), buffer.clone()).err(),
            window.start_get(target, &piece, buffer.clone()).err(),
            world.scope(|scope| scope.put(&window, target, 0, &buffer)).err(),
            clone.cast::<u8>().put(target, 0, &[1]).err(),
            rmw(window.fetch_add(target, 0, 1).err()),
            rmw(window.compare_swap(target, 0, 1, 2).err()),
            rmw(window.set(target, 0, 2).err()),
            rmw(window.start_swap(target, 0, 2).err()),
            rmw(window.put_signal_set(target, 0, &[1], (&signals, 0), 9).err()),
            rmw(signals.put_signal_set(target, 0, &[], (&window, 0), 9).err()),
        ];
        for (number, refusal) in refusals.into_iter().enumerate() {
            match refusal {
                Some(TransferError::FreedWindow { rank, .. }) => assert_eq!(rank.0, target),
                other => panic!("operation {number} on a freed window gave {other:?}"),
            }
        }
    }
    let wait = window.wait_until(0, Compare::Equal, 1);
    assert!(matches!(wait, Err(WaitError::Transfer(TransferError::FreedWindow { .. }))), "{wait:?}");
    assert!(window.wait_until_any(&[0], Compare::Equal, 1).is_err());
    barrier(world);
    assert_same(&other.get_vec(world.rank(), 0..100).expect("mine"), &[0; 100], "the other window");
    assert_eq!(signals.get_one(world.rank(), 0), Ok(0), "no signal was given");
    barrier(world);
}

fn rmw(error: Option<RmwError>) -> Option<TransferError> {
    match error {
        Some(RmwError::Transfer(error)) => Some(error),
        other => panic!("an rmw gave {other:?}"),
    }
}

/// Numbers are used again with another generation; new windows are empty; old handles stay refused.
pub fn reuse(world: &World) {
    let me = world.rank();
    let mut old = Vec::new();
    let rounds = if world.size() > 4 { 10 } else { 40 };
    for round in 1..=rounds {
        let window = world.allocate_collective::<u32>(1000).expect("a window");
        assert_same(&window.get_vec(me, 0..1000).expect("mine"), &[0; 1000], format_args!("round {round}"));
        world.sync_collective().expect("all have looked");
        window.put(ahead(world, 1), 0, &[round; 1000]).expect("a put");
        barrier(world);
        assert_same(&window.get_vec(me, 0..1000).expect("mine"), &[round; 1000], format_args!("round {round}"));
        window.free_collective().expect("it is freed");
        for window in &old {
            let window: &longarm::Window<u32> = window;
            assert!(matches!(window.get_one(ahead(world, 1), 0), Err(TransferError::FreedWindow { .. })));
        }
        old.push(window);
    }
    // Many at once, freed in another order.
    let windows: Vec<_> =
        (0..20).map(|count| world.allocate_collective::<u8>(count * 100).expect("a window")).collect();
    for (number, window) in windows.iter().enumerate().skip(1) {
        window.put(ahead(world, 1), 0, &vec![number as u8; number * 100]).expect("a put");
    }
    barrier(world);
    for (number, window) in windows.iter().enumerate().rev() {
        let found = window.get_vec(me, 0..number * 100).expect("mine");
        assert_same(&found, &vec![number as u8; number * 100], format_args!("window {number}"));
        if number % 2 == 1 {
            window.free_collective().expect("it is freed");
        }
    }
    for window in windows.iter().step_by(2) {
        window.free_collective().expect("it is freed");
    }
    barrier(world);
}

/// How many elements each rank has in a round: of about the same room for all in most rounds, of very different ones in others, and in
/// two of five the same.
fn unequal(round: u64, ranks: u32) -> Vec<usize> {
    let mut dice = Dice::new(&[round]);
    let most = [10, 1000, 5000, 40_000][dice.below(4)];
    if round % 5 < 2 {
        return vec![most; ranks as usize];
    }
    let least = if round.is_multiple_of(3) { 0 } else { most / 2 };
    (0..ranks).map(|_| if dice.below(8) == 0 { 0 } else { least + dice.below(most - least) + 1 }).collect()
}

/// Windows one after the other, whose parts are larger and smaller than those before and than each other: each is empty, is written to its
/// last byte by another rank, and read by a third.
pub fn one_after_the_other(world: &World) {
    let (me, right) = (world.rank(), ahead(world, 1));
    let mut kept: Vec<longarm::Window<u64>> = Vec::new();
    for round in 0..if world.size() > 4 { 20 } else { 60_u64 } {
        let lengths = unequal(round, world.size());
        let contents = |rank: u32| arbitrary::<u64>(&mut Dice::new(&[round, u64::from(rank)]), lengths[rank as usize]);
        let window = world.allocate_collective::<u64>(lengths[me as usize]).expect("a window");
        let mine = window.get_vec(me, 0..lengths[me as usize]).expect("mine");
        assert_same(&mine, &vec![0; mine.len()], format_args!("new in round {round}"));
        world.sync_collective().expect("all have looked");
        window.put(right, 0, &contents(right)).expect("a part");
        assert!(window.put_one(right, lengths[right as usize], 1).is_err(), "one past the part of rank {right}");
        barrier(world);
        let left = ahead(world, world.size() - 1);
        for rank in [me, left] {
            let found = window.get_vec(rank, 0..lengths[rank as usize]).expect("a part");
            assert_same(&found, &contents(rank), format_args!("the part of rank {rank} in round {round}"));
        }
        // Up to two stay for a while, so that the next one has other memory.
        kept.push(window);
        if round % 2 == 0 {
            kept.swap_remove(round as usize / 2 % kept.len()).free_collective().expect("it is freed");
        }
        if kept.len() > 2 {
            kept.remove(0).free_collective().expect("it is freed");
        }
        barrier(world);
    }
    kept.iter().for_each(|window| window.free_collective().expect("it is freed"));
}

/// A window in memory that one had before is made in one collective, and freed in another.
pub fn one_collective(world: &World) {
    let mut least = u64::MAX;
    for _ in 0..50 {
        let before = world.group().collectives_begun();
        world.allocate_collective::<u64>(1000).expect("a window").free_collective().expect("it is freed");
        least = least.min(world.group().collectives_begun() - before);
    }
    // Not each time: another thread may have the server just then. Devices hold on to memory, which is made anew.
    let devices = std::env::var("LONGARM_NETMOD").is_ok_and(|netmod| netmod == "verbs");
    assert_eq!(least, if devices { 3 } else { 2 });
}

/// What cannot be had is an error everywhere, also where only one rank wants too much, and the job lives on.
pub fn too_large(world: &World) {
    let me = world.rank();
    let kept = world.allocate_collective::<u64>(10).expect("a window");
    kept.put(ahead(world, 1), 0, &[u64::from(me); 10]).expect("contents");
    for round in 0..3 {
        let wanted = if round < 2 || me == world.size() / 2 { 1_usize << 60 } else { 10 };
        let refused = if round == 1 {
            world.allocate_collective::<[u64; 16]>(usize::MAX).map(drop)
        } else {
            world.allocate_collective::<u8>(wanted).map(drop)
        };
        match refused {
            Err(WindowError::TooLarge { rank, bytes, bytes_max }) => {
                assert!(bytes > bytes_max);
                assert!(round < 2 || rank.0 == world.size() / 2, "{rank} is blamed");
            }
            Err(WindowError::OutOfMemory { .. }) => {}
            other => panic!("round {round} gave {other:?}"),
        }
    }
    // Below the bound that is set, but beyond every address space: the system refuses.
    let huge = world.allocate_collective::<u8>(world.config().window_bytes_max as usize);
    if let Err(error) = &huge {
        assert!(matches!(error, WindowError::OutOfMemory { .. }), "{error}");
    }
    let outcomes = world.allgather_collective(&[u8::from(huge.is_ok())]).expect("the job lives on");
    assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]), "all ranks get an error, or none: {outcomes:?}");
    drop(huge);
    let window = world.allocate_collective::<u64>(10).expect("a window of usual size");
    window.put(ahead(world, 1), 0, &[1; 10]).expect("a put");
    barrier(world);
    assert_eq!(window.get_vec(me, 0..10), Ok(vec![1; 10]));
    let left = u64::from(ahead(world, world.size() - 1));
    assert_eq!(kept.get_vec(me, 0..10), Ok(vec![left; 10]));
    barrier(world);
}

/// Shared memory that this process has touched, in bytes.
fn touched_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("RssShmem:")).expect("a line of shared memory");
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kibibytes * 1024
}

/// Windows of 4 GiB at every rank cost what is touched of them.
pub fn sparse(world: &World) {
    const BYTES: usize = 4 << 30;
    let me = world.rank();
    let before = touched_bytes();
    let windows: Vec<_> = (0..3).map(|_| world.allocate_collective::<u8>(BYTES).expect("a sparse window")).collect();
    for window in &windows {
        for target in ranks(world) {
            for place in [0, BYTES / 2 + 4095, BYTES - world.size() as usize] {
                window.put(target, place + me as usize, &[me as u8 + 1]).expect("one byte");
            }
        }
    }
    barrier(world);
    let expected: Vec<u8> = (1..=world.size() as u8).collect();
    for window in &windows {
        for target in ranks(world) {
            for place in [0, BYTES / 2 + 4095, BYTES - world.size() as usize] {
                let found = window.get_vec(target, place..place + expected.len()).expect("some bytes");
                assert_same(&found, &expected, format_args!("at {place} of rank {target}"));
            }
        }
        assert_eq!(window.get_one(me, BYTES / 3), Ok(0));
    }
    let touched = touched_bytes() - before.min(touched_bytes());
    assert!(touched < 256 << 20, "{touched} bytes were touched");
    barrier(world);
    windows.iter().for_each(|window| window.free_collective().expect("it is freed"));
}

/// The ranks of a node map a window at the same address, also while they still hold windows that were freed.
pub fn addresses(world: &World) {
    let mut old = Vec::new();
    for round in 0..10_usize {
        // One part has no bytes in some rounds, and the parts differ in size.
        let bytes = (world.rank() as usize + round) % 5 * 3_000_000;
        let window = world.allocate_collective::<u8>(bytes).expect("a window");
        check_addresses(world, &window, round);
        if round % 3 != 0 {
            window.free_collective().expect("it is freed");
        }
        old.push(window);
    }
    barrier(world);
}

/// All ranks of a node see each part of it at the same address.
fn check_addresses(world: &World, window: &longarm::Window<u8>, round: usize) {
    let seen: Vec<u64> = ranks(world)
        .map(|rank| window.pointer_at(rank).expect("a part").map_or(0, |part| part.addr() as u64))
        .collect();
    let all = world.allgather_collective(&seen).expect("what all see");
    for (rank, theirs) in ranks(world).zip(all.chunks(seen.len())) {
        let same_node = world.node_of(rank) == Some(world.node());
        assert_eq!(seen[rank as usize] != 0, same_node, "round {round}, rank {rank}");
        if same_node && all_bytes(world, window) > 0 {
            assert_same(theirs, &seen, format_args!("round {round}, rank {rank}"));
        }
    }
    barrier(world);
}

/// Memory that a node has from one window and another node from another one is found again at its address by the windows after them.
pub fn memory_that_differs(world: &World) {
    let make = |bytes| world.allocate_collective::<u8>(bytes).expect("a window");
    let free = |window: longarm::Window<u8>| window.free_collective().expect("it is freed");
    for round in 0..3 {
        let first = make(3000);
        check_addresses(world, &first, round);
        // On the first node in memory like that of the first one, on the others in larger one.
        let second = make(if world.node() == 0 { 3000 } else { 9000 });
        check_addresses(world, &second, round);
        free(first);
        free(second);
        for _ in 0..3 {
            let window = make(3000);
            check_addresses(world, &window, round);
            assert_eq!(window.get_vec(ahead(world, 1), 0..3000), Ok(vec![0; 3000]));
            world.sync_collective().expect("all have looked");
            window.put(ahead(world, 1), 0, &[7; 3000]).expect("a part");
            barrier(world);
            free(window);
        }
    }
}

/// Bytes of all parts on this node.
fn all_bytes(world: &World, window: &longarm::Window<u8>) -> usize {
    let here = ranks(world).filter(|rank| world.node_of(*rank) == Some(world.node()));
    here.filter_map(|rank| window.len_at(rank)).sum()
}
