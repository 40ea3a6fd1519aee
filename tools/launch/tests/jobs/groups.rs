//! Groups: from lists, by split, split again, and windows over them.

use longarm::error::{CollectiveError, Rank, TransferError};
use longarm::{Group, Reduction, World};

use super::support::{ahead, assert_same, barrier, ranks};

/// All members of a group see it alike, and can talk.
pub fn check(group: &Group, members: &[u32]) {
    assert_eq!(group.members(), members);
    assert_eq!(group.size() as usize, members.len());
    for (place, member) in members.iter().enumerate() {
        assert_eq!(group.world_rank(place as u32), Some(*member));
        assert_eq!(group.place_of(*member), Some(place as u32));
    }
    assert_eq!(group.world_rank(members.len() as u32), None);
    let heard = group.allgather_collective(&[members[group.rank() as usize]]).expect("all members");
    assert_eq!(heard, members);
    let mut sum = [u64::from(members[group.rank() as usize]) + 1];
    group.allreduce_collective(Reduction::Sum, &mut sum).expect("a sum");
    assert_eq!(sum[0], members.iter().map(|member| u64::from(*member) + 1).sum::<u64>());
    group.barrier_collective().expect("a barrier of the group");
}

/// More splits fail than a node has sync areas; then each two ranks, and each rank with two others, have one.
pub fn meet_in_memory(world: &World) {
    let (me, size) = (world.rank(), world.size());
    for _ in 0..40 {
        let failed = if me == 0 { world.split_collective(Some(0), 0).map(drop) } else { world.barrier_collective() };
        assert!(matches!(failed, Err(CollectiveError::Mismatch { .. })), "{failed:?}");
    }
    let pair = world.split_collective(Some(me / 2), 0).expect("a split").expect("a color");
    let backwards = world.split_collective(Some(0), -i64::from(me)).expect("a split").expect("a color");
    let alone = world.split_collective(Some(me), 0).expect("a split").expect("a color");
    let list: Vec<u32> = (0..size).rev().collect();
    let listed = world.subgroup_collective(&list).expect("a list");
    for group in [&pair, &backwards, &listed] {
        assert!(group.meets_in_memory(), "{:?}", group.members());
        check(group, &group.members());
    }
    assert!(!alone.meets_in_memory(), "there is nobody to meet");
}

/// Ranks fork while they have a group; the children drop their copies. Then there is one sync area less than the node has, not as many.
pub fn forked(world: &World) {
    let group = world.split_collective(Some(0), 0).expect("a split").expect("a color");
    assert!(group.meets_in_memory());
    match fork::fork().expect("the system has room for a process") {
        fork::Fork::Child => {
            drop(group);
            std::process::exit(0);
        }
        fork::Fork::Parent(child) => {
            let child = rustix::process::Pid::from_raw(child);
            rustix::process::waitpid(child, rustix::process::WaitOptions::empty()).expect("it is a child");
        }
    }
    barrier(world);
    let next = || world.split_collective(Some(0), 0).expect("a split").expect("a color");
    let others: Vec<Group> = std::iter::repeat_with(next).take_while(Group::meets_in_memory).collect();
    assert_eq!(others.len(), 31, "a node has 32");
    for group in others.iter().chain([&group]) {
        check(group, &group.members());
    }
}

pub fn lists(world: &World) {
    let (me, size) = (world.rank(), world.size());
    check(world.group(), &ranks(world).collect::<Vec<u32>>());
    // Only the members call.
    let even: Vec<u32> = ranks(world).step_by(2).collect();
    let odd: Vec<u32> = ranks(world).skip(1).step_by(2).collect();
    let mine = if me % 2 == 0 { &even } else { &odd };
    let group = world.subgroup_collective(mine).expect("a group");
    check(&group, mine);
    // Others are told that they are none, without waiting for anybody.
    let theirs = if me % 2 == 0 { &odd } else { &even };
    assert_eq!(world.subgroup_collective(theirs).err(), Some(CollectiveError::NotMember { rank: Rank(me) }));
    assert_eq!(group.place_of(theirs[0]), None);
    for wrong in [vec![me, me], vec![me, size], vec![size], vec![me, u32::MAX]] {
        let refusal = world.subgroup_collective(&wrong).err();
        assert!(matches!(refusal, Some(CollectiveError::BadMember { .. })), "{wrong:?}: {refusal:?}");
    }
    assert!(matches!(world.subgroup_collective(&[]).err(), Some(CollectiveError::NotMember { .. })));
    // The order of the list is the order of the places, and the same list may be used again.
    let backward: Vec<u32> = ranks(world).rev().collect();
    for _ in 0..3 {
        let group = world.subgroup_collective(&backward).expect("a group");
        assert_eq!(group.rank(), size - 1 - me);
        check(&group, &backward);
    }
    // A group of one, and overlapping pairs around the ring: each rank is in two of them.
    check(&world.subgroup_collective(&[me]).expect("alone"), &[me]);
    let pair = |first: u32| [first, (first + 1) % size];
    let (left, right) = (pair(ahead(world, size - 1)), pair(me));
    // Pairs are made in an order in which nobody waits in a ring.
    let order = if me % 2 == 0 { [right, left] } else { [left, right] };
    let groups = order.map(|members| world.subgroup_collective(&members).expect("a pair"));
    for (group, members) in groups.iter().zip(order) {
        check(group, &members);
    }
    // A list over places of a subgroup means its members.
    let places: Vec<u32> = (0..group.size()).rev().collect();
    let turned = group.subgroup_collective(&places).expect("a group of a group");
    check(&turned, &mine.iter().rev().copied().collect::<Vec<u32>>());
    // The larger groups still work beside the smaller ones.
    check(&group, mine);
    barrier(world);
}

pub fn splits(world: &World) {
    let (me, size) = (world.rank(), world.size());
    // By color, ordered by key: backwards.
    let colors = 3.min(size);
    let group = world.split_collective(Some(me % colors), -i64::from(me)).expect("a split").expect("a color");
    let members: Vec<u32> = ranks(world).rev().filter(|rank| rank % colors == me % colors).collect();
    check(&group, &members);
    // Equal keys: by place. No color: no group.
    let some = world.split_collective((me != 0).then_some(7), 5).expect("a split");
    assert_eq!(some.is_none(), me == 0);
    if let Some(some) = some {
        check(&some, &(1..size).collect::<Vec<u32>>());
    }
    // The largest and smallest numbers are colors and keys like others.
    let key = if me == 0 { i64::MAX } else { i64::MIN };
    let all = world.split_collective(Some(u32::MAX), key).expect("a split").expect("a color");
    check(&all, &(1..size).chain([0]).collect::<Vec<u32>>());
    // Halves, and halves of halves, down to one.
    let mut part = world.group().clone();
    let mut members: Vec<u32> = ranks(world).collect();
    while part.size() > 1 {
        let half = part.size() / 2;
        let upper = part.rank() >= half;
        let (low, high) = members.split_at(half as usize);
        members = if upper { high.to_vec() } else { low.to_vec() };
        part = part.split_collective(Some(u32::from(upper)), 0).expect("a split").expect("a half");
        check(&part, &members);
    }
    check(&group, &group.members());
    barrier(world);
}

/// Windows over a group: members have parts, others have none, and indices are world ranks.
pub fn windows(world: &World) {
    let (me, size) = (world.rank(), world.size());
    let group = world.split_collective(Some(me % 2), -i64::from(me)).expect("a split").expect("a color");
    let window = group.allocate_collective::<u64>(10 + me as usize).expect("a window of the group");
    // Both groups have windows at the same time, of the same numbers perhaps: they must not meet.
    for member in group.members() {
        window.put_one(member, me as usize % 10, u64::from(me) + 100).expect("a put");
        assert_eq!(window.len_at(member), Some(10 + member as usize));
    }
    assert_eq!(window.group().members(), group.members());
    group.barrier_collective().expect("a barrier of the group");
    let mut expected = [0_u64; 10];
    for member in group.members() {
        expected[member as usize % 10] = u64::from(member) + 100;
    }
    if size <= 10 {
        assert_same(&window.get_vec(me, 0..10).expect("mine"), &expected, "a window of a group");
    }
    for other in ranks(world).filter(|rank| rank % 2 != me % 2) {
        assert_eq!(window.len_at(other), None);
        let refused = [
            window.put_one(other, 0, 1).err(),
            window.get_one(other, 0).err(),
            window.accumulate(other, 0, longarm::Update::Sum, &[1]).err(),
            window.start_get(other, 0, vec![0; 3]).err(),
            window.put(other, 0, &[]).err(),
        ];
        for refusal in refused {
            let refused_for = matches!(&refusal, Some(TransferError::NotMember { rank, .. }) if rank.0 == other);
            assert!(refused_for, "{refusal:?}");
        }
        assert!(window.fetch_add(other, 0, 1).is_err());
    }
    // A window and mutexes of a group of one, and of all in another order.
    let alone = world.subgroup_collective(&[me]).expect("alone");
    let own = alone.allocate_collective::<f64>(3).expect("a window of one");
    own.put(me, 0, &[1.0, 2.0, 3.0]).expect("a put");
    assert_eq!(own.get_vec(me, 1..3).expect("a get"), [2.0, 3.0]);
    let mutexes = group.mutexes_collective(1).expect("mutexes of the group");
    let counter = group.allocate_collective::<u64>(1).expect("a window of the group");
    let host = group.world_rank(0).expect("a member");
    for _ in 0..20 {
        let guard = mutexes.lock(host, 0).expect("a lock");
        let value = counter.get_one(host, 0).expect("a look");
        counter.put_one(host, 0, value + 1).expect("one more");
        world.quiet().expect("quiet before unlock");
        guard.unlock().expect("an unlock");
    }
    group.barrier_collective().expect("a barrier of the group");
    assert_eq!(counter.get_one(host, 0).expect("the counter"), 20 * u64::from(group.size()));
    own.free_collective().expect("freed alone");
    group.barrier_collective().expect("all have looked");
    window.free_collective().expect("freed by the group");
    barrier(world);
}
