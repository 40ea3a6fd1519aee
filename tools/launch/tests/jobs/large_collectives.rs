//! Collectives on much data: every size around which the way changes, on groups that overlap, without barriers, and from
//! several threads.

use longarm::{Element, Group, Reduction, World};

use super::support::{Dice, arbitrary, assert_same, barrier};

/// What a round takes at most: `HALF_BYTES` in `runtime/src/collective/staging_buffer.rs`.
const ROUND: usize = (1 << 20) + (4 << 10);
/// Bytes around which collectives go another way, or take another round.
const BYTES: [usize; 9] =
    [(8 << 10) - 8, 8 << 10, (32 << 10) - 8, 32 << 10, ROUND - 8, ROUND, ROUND + 8, 40_000, (5 << 19) + 24];

/// One collective after the other, now of all, now of some.
pub fn in_a_row(world: &World) {
    let me = world.rank();
    // All of one node and the first or last ranks of the others, in an order in which the nodes take turns.
    let is_uneven = world.node() == 0 || me + 1 == world.size() || me % 4 == 2;
    let groups = [
        world.group().clone(),
        world.split_collective(Some(me % 2), -i64::from(me)).expect("a split").expect("a group"),
        world.split_collective(Some(world.node()), 0).expect("a split").expect("a group"),
        world.split_collective(Some(u32::from(is_uneven)), i64::from(me * 7 % 5)).expect("a split").expect("a group"),
    ];
    // Many ranks would move gigabytes.
    let sizes = if world.size() > 5 { &BYTES[..4] } else { &BYTES };
    for (round, bytes) in (0..).zip(sizes) {
        for (number, group) in (0..).zip(&groups) {
            check::<u64>(group, 10 * round + number, bytes / 8);
            // Nothing on the last of them: the next one begins while others are still in this one.
            group.allreduce_collective(Reduction::Max, &mut [round]).expect("a maximum");
        }
    }
    check::<[u8; 3]>(world.group(), 1000, 50_000);
    barrier(world);
}

fn of_member<T: Element>(group: &Group, tag: u64, from: u32, count: usize) -> Vec<T> {
    let first = group.world_rank(0).expect("groups have members");
    arbitrary(&mut Dice::new(&[tag, u64::from(from), u64::from(first)]), count)
}

/// What `of` says of each member, one behind the other.
fn each<T: Element>(size: u32, of: impl Fn(u32) -> Vec<T>) -> Vec<T> {
    (0..size).map(of).collect::<Vec<_>>().concat()
}

fn check<T: Element>(group: &Group, tag: u64, count: usize) {
    let (me, size) = (group.rank(), group.size());
    let what = |call: &str| format!("{call} of {count}, {tag}");
    let root = tag as u32 % size;
    let mut bytes = of_member::<T>(group, tag, me, count);
    group.broadcast_collective(root, &mut bytes).expect("a broadcast");
    assert_same(&bytes, &of_member(group, tag, root, count), format_args!("{}", what("broadcast")));
    sums(group, tag, count, root);
    let mine = of_member::<T>(group, tag, me, count);
    let all = group.allgather_collective(&mine).expect("an allgather");
    let expected: Vec<T> = each(size, |from| of_member(group, tag, from, count));
    assert_same(&all, &expected, format_args!("{}", what("allgather")));
    // What was there before is of others.
    let mut room = all;
    room.rotate_left(1);
    group.allgather_into_collective(&mine, &mut room).expect("an allgather into memory");
    assert_same(&room, &expected, format_args!("{}", what("allgather into memory")));
    // All of one, nothing of the next, a little of the others.
    let count_of = |from: u32| [count, 0, 5][(from as usize + tag as usize) % 3];
    let all = group.allgatherv_collective(&mine[..count_of(me)]).expect("an allgatherv");
    for (from, part) in (0..).zip(&all) {
        let expected = of_member(group, tag, from, count);
        assert_same(part, &expected[..count_of(from)], format_args!("{} from {from}", what("allgatherv")));
    }
    let share = |from: u32, to: u32| of_member::<T>(group, tag + 100 * u64::from(to + 1), from, count);
    let packed: Vec<T> = each(size, |to| share(me, to));
    let all = group.alltoall_collective(&packed).expect("an alltoall");
    let expected: Vec<T> = each(size, |from| share(from, me));
    assert_same(&all, &expected, format_args!("{}", what("alltoall")));
    let mut room = all;
    room.rotate_left(1);
    group.alltoall_into_collective(&packed, &mut room).expect("an alltoall into memory");
    assert_same(&room, &expected, format_args!("{}", what("alltoall into memory")));
    let count_of = |from: u32, to: u32| [count, 7, 0][(from as usize + 2 * to as usize) % 3];
    let shares: Vec<Vec<T>> = (0..size).map(|to| share(me, to)[..count_of(me, to)].to_vec()).collect();
    let mut all = group.alltoallv_collective(&shares).expect("an alltoallv");
    // Once more into the same lists, which were another member's before.
    for form in ["alltoallv", "alltoallv into lists"] {
        for (from, part) in (0..).zip(&all) {
            let expected = share(from, me);
            assert_same(part, &expected[..count_of(from, me)], format_args!("{} from {from}", what(form)));
        }
        all.rotate_left(1);
        group.alltoallv_into_collective(&shares, &mut all).expect("an alltoallv into lists");
    }
}

/// Sums that depend on their order in the last bits: the order is that of the tree, whatever the size.
fn sums(group: &Group, tag: u64, count: usize, root: u32) {
    const PERIOD: u32 = 31;
    let size = group.size();
    let element = |place: u32, index: u32| 10_f64.powi(((place * 7 + index) % PERIOD) as i32 - 15) / 3.0;
    let repeated = |period: Vec<f64>| period.into_iter().cycle().take(count).collect::<Vec<f64>>();
    let mine = || repeated((0..PERIOD).map(|index| element(group.rank(), index)).collect());
    let expected = |root: u32| {
        let of_all = |index| (0..size).map(|turn| element((root + turn) % size, index)).collect::<Vec<f64>>();
        repeated((0..PERIOD).map(|index| by_tree(of_all(index))).collect())
    };
    let mut sum = mine();
    group.allreduce_collective(Reduction::Sum, &mut sum).expect("an allreduce");
    assert_same(&sum, &expected(0), format_args!("allreduce of {count}, {tag}"));
    let mut sum = mine();
    group.reduce_collective(root, Reduction::Sum, &mut sum).expect("a reduce");
    if group.rank() == root {
        assert_same(&sum, &expected(root), format_args!("reduce of {count} to {root}, {tag}"));
    }
}

/// Each combines what those 1, 2, 4 and so on places behind it have combined.
fn by_tree(mut values: Vec<f64>) -> f64 {
    let mut distance = 1;
    while distance < values.len() {
        for place in (0..values.len() - distance).step_by(2 * distance) {
            values[place] += values[place + distance];
        }
        distance *= 2;
    }
    values[0]
}

/// Threads of each rank, each with its own group.
pub fn of_threads(world: &World) {
    let groups: Vec<Group> =
        (0..3).map(|_| world.split_collective(Some(0), 0).expect("a split").expect("a group")).collect();
    let rounds = if world.size() > 5 { 3 } else { 20 };
    std::thread::scope(|scope| {
        for (number, group) in groups.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..rounds {
                    let count = [6000, 40_000, 200_000][(number + round) % 3];
                    let place = (number + round) as u64;
                    let mut sum: Vec<u64> = (0..count).map(|index| index + place).collect();
                    group.allreduce_collective(Reduction::Sum, &mut sum).expect("a sum");
                    let size = u64::from(group.size());
                    let expected: Vec<u64> = (0..count).map(|index| (index + place) * size).collect();
                    assert_same(&sum, &expected, format_args!("sum {round} of thread {number}"));
                    let mine = vec![u64::from(group.rank()) << 32 | place; count as usize / 2];
                    let all = group.allgather_collective(&mine).expect("an allgather");
                    let whose = |from: u64| std::iter::repeat_n(from << 32 | place, mine.len());
                    assert!(all.into_iter().eq((0..size).flat_map(whose)), "gathering {round} of thread {number}");
                }
            });
        }
    });
    barrier(world);
}
