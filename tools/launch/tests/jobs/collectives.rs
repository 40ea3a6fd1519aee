//! Collectives: every one, every size, every root, every reduction, on several groups.

use std::collections::VecDeque;

use longarm::error::CollectiveError;
use longarm::{Complex32, Complex64, Element, Group, Number, Reduction, World};

use super::support::{Dice, arbitrary, assert_same, barrier, compute};

const COUNTS: [usize; 5] = [0, 1, 1000, 2048, 100_000];

pub fn every(world: &World) {
    // 100,000 elements everywhere would be gigabytes for 16 ranks.
    let counts = if world.size() > 5 { &COUNTS[..4] } else { &COUNTS[..] };
    for count in counts {
        check::<u64>(world.group(), *count);
        check::<[u8; 3]>(world.group(), *count);
    }
    if world.size() > 5 {
        broadcasts::<u64>(world.group(), 100_000);
        allreduce(world.group(), 100_000);
    }
    barrier(world);
}

/// Sums of floats have the bits that the order of the tree gives, whatever the layout and however many they are.
pub fn same_bits(world: &World) {
    // Their sums depend on the order in their last bits.
    let value = |member: usize, at: usize| 10_f64.powi(((member * 7 + at * 5) % 31) as i32 - 15) / 3.0;
    // What the member on this place of the tree comes to with those behind it.
    fn by_tree(size: usize, place: usize, value: &dyn Fn(usize) -> f64) -> f64 {
        let children = (0..).map(|bit| 1 << bit).take_while(|distance| *distance < size && place & distance == 0);
        let present = children.map(|distance| place + distance).filter(|child| *child < size);
        present.fold(value(place), |sum, child| sum + by_tree(size, child, value))
    }
    let me = world.rank();
    let halves = world.split_collective(Some(me % 2), -i64::from(me)).expect("a split").expect("a group");
    for group in [world.group(), &halves] {
        let size = group.size() as usize;
        // Around all bounds of what travels with an agreement.
        for count in [1, 5, 6, 25, 26, 100, 256, 257, 512, 513, 600, 1024, 1025, 20_480] {
            let mine: Vec<f64> = (0..count).map(|at| value(group.rank() as usize, at)).collect();
            for root in [0, group.size() - 1] {
                let turn = |place: usize, at: usize| value((place + root as usize) % size, at);
                let due = |at: usize| by_tree(size, 0, &|place| turn(place, at));
                let mut sums = mine.clone();
                group.reduce_collective(root, Reduction::Sum, &mut sums).expect("sums");
                if group.rank() == root {
                    assert_same(&sums, &(0..count).map(due).collect::<Vec<_>>(), format_args!("{count} to {root}"));
                }
            }
            let due = |at: usize| by_tree(size, 0, &|place| value(place, at));
            let mut sums = mine.clone();
            group.allreduce_collective(Reduction::Sum, &mut sums).expect("sums");
            assert_same(&sums, &(0..count).map(due).collect::<Vec<_>>(), format_args!("{count} to all"));
        }
    }
    barrier(world);
}

pub fn on_groups(world: &World) {
    let me = world.rank();
    let groups = [
        world.split_collective(Some(me % 2), -i64::from(me)).expect("a split").expect("a group"),
        world.split_collective(Some(u32::from(me == 0)), 0).expect("a split").expect("a group"),
        world.split_collective(Some(world.node()), 0).expect("a split").expect("a group"),
    ];
    for group in &groups {
        for count in [0, 1, 1000] {
            check::<u32>(group, count);
        }
        check::<f64>(group, 20_000);
    }
    // Every rank uses its groups in its own time, so that messages of several groups are under way together.
    for round in 0..20_u64 {
        for group in &groups {
            let mut sum = [round, u64::from(group.rank())];
            group.allreduce_collective(Reduction::Sum, &mut sum).expect("a sum");
            let size = u64::from(group.size());
            assert_eq!(sum, [round * size, size * (size - 1) / 2]);
        }
    }
    barrier(world);
}

fn contents<T: Element>(group: &Group, tag: u64, from: u32, count: usize) -> Vec<T> {
    let first = group.world_rank(0).expect("groups have members");
    arbitrary(&mut Dice::new(&[tag, u64::from(from), u64::from(first)]), count)
}

fn check<T: Element>(group: &Group, count: usize) {
    let (me, size) = (group.rank(), group.size());
    broadcasts::<T>(group, count);
    allreduce(group, count);
    let mine = contents::<T>(group, 2, me, count);
    let all = group.allgather_collective(&mine).expect("an allgather");
    let expected: Vec<T> = (0..size).flat_map(|from| contents(group, 2, from, count)).collect();
    assert_same(&all, &expected, format_args!("allgather of {count}"));
    let mut room = all;
    room.reverse();
    group.allgather_into_collective(&mine, &mut room).expect("an allgather into memory");
    assert_same(&room, &expected, format_args!("allgather of {count} into memory"));
    // Different numbers from each, none from some.
    let count_of = |from: u32| if from % 3 == 1 { 0 } else { count / (from as usize + 1) };
    let all = group.allgatherv_collective(&contents::<T>(group, 3, me, count_of(me))).expect("an allgatherv");
    assert_eq!(all.len(), size as usize);
    for (from, part) in (0..).zip(&all) {
        assert_same(part, &contents(group, 3, from, count_of(from)), format_args!("allgatherv from {from}"));
    }
    let share = |from: u32, to: u32| contents::<T>(group, 100 + u64::from(to), from, count / size as usize + 1);
    let packed: Vec<T> = (0..size).flat_map(|to| share(me, to)).collect();
    let all = group.alltoall_collective(&packed).expect("an alltoall");
    let expected: Vec<T> = (0..size).flat_map(|from| share(from, me)).collect();
    assert_same(&all, &expected, format_args!("alltoall of {count}"));
    let mut room = all;
    room.reverse();
    group.alltoall_into_collective(&packed, &mut room).expect("an alltoall into memory");
    assert_same(&room, &expected, format_args!("alltoall of {count} into memory"));
    let count_of = |from: u32, to: u32| count * ((from + 2 * to) % 4) as usize / 3;
    let share = |from: u32, to: u32| contents::<T>(group, 200 + u64::from(to), from, count_of(from, to));
    let shares: Vec<Vec<T>> = (0..size).map(|to| share(me, to)).collect();
    let all = group.alltoallv_collective(&shares).expect("an alltoallv");
    assert_eq!(all.len(), size as usize);
    for (from, part) in (0..).zip(&all) {
        assert_same(part, &share(from, me), format_args!("alltoallv from {from}"));
    }
    // Lists that are too long, too short and too many are as long as what comes.
    let mut lists = vec![vec![T::new_zeroed(); 5]; size as usize + 2];
    for _ in 0..2 {
        group.alltoallv_into_collective(&shares, &mut lists).expect("an alltoallv into lists");
        assert_eq!(lists.len(), size as usize);
        for (from, part) in (0..).zip(&lists) {
            assert_same(part, &share(from, me), format_args!("alltoallv into a list from {from}"));
        }
    }
    let empty: Vec<T> = group.alltoall_collective(&[]).expect("an empty alltoall");
    assert!(empty.is_empty());
}

fn broadcasts<T: Element>(group: &Group, count: usize) {
    for root in 0..group.size() {
        let mut elements = contents::<T>(group, u64::from(root), group.rank(), count);
        group.broadcast_collective(root, &mut elements).expect("a broadcast");
        assert_same(&elements, &contents(group, u64::from(root), root, count), format_args!("broadcast from {root}"));
    }
}

fn allreduce(group: &Group, count: usize) {
    let size = u64::from(group.size());
    let mut elements: Vec<u64> = (0..count as u64).map(|index| index * 10 + u64::from(group.rank())).collect();
    group.allreduce_collective(Reduction::Sum, &mut elements).expect("an allreduce");
    let expected: Vec<u64> = (0..count as u64).map(|index| index * 10 * size + size * (size - 1) / 2).collect();
    assert_same(&elements, &expected, format_args!("allreduce of {count}"));
}

/// Every reduction of every type, to every root and to all, against the plain sum over the members.
pub fn reductions(world: &World) {
    use Reduction::{And, Max, Min, Or, Product, Sum, Xor};
    const INTEGER: [Reduction; 7] = [Sum, Product, Min, Max, And, Or, Xor];
    integers(
        world,
        |dice| dice.roll() as i32,
        &INTEGER,
        |left, right, reduction| match reduction {
            Sum => left.wrapping_add(right),
            Product => left.wrapping_mul(right),
            other => bitwise_or_order(left, right, other, |a, b| a & b, |a, b| a | b, |a, b| a ^ b),
        },
    );
    integers(
        world,
        |dice| dice.roll() as u32,
        &INTEGER,
        |left, right, reduction| match reduction {
            Sum => left.wrapping_add(right),
            Product => left.wrapping_mul(right),
            other => bitwise_or_order(left, right, other, |a, b| a & b, |a, b| a | b, |a, b| a ^ b),
        },
    );
    integers(
        world,
        |dice| dice.roll() as i64,
        &INTEGER,
        |left, right, reduction| match reduction {
            Sum => left.wrapping_add(right),
            Product => left.wrapping_mul(right),
            other => bitwise_or_order(left, right, other, |a, b| a & b, |a, b| a | b, |a, b| a ^ b),
        },
    );
    integers(
        world,
        |dice| dice.roll(),
        &INTEGER,
        |left, right, reduction| match reduction {
            Sum => left.wrapping_add(right),
            Product => left.wrapping_mul(right),
            other => bitwise_or_order(left, right, other, |a, b| a & b, |a, b| a | b, |a, b| a ^ b),
        },
    );
    // Small whole numbers, so that every order gives the same.
    const FLOAT: [Reduction; 4] = [Sum, Product, Min, Max];
    integers(
        world,
        |dice| [1.0_f32, -1.0, 2.0][dice.below(3)],
        &FLOAT,
        |left, right, reduction| match reduction {
            Sum => left + right,
            Product => left * right,
            other => bitwise_or_order(left, right, other, none, none, none),
        },
    );
    integers(
        world,
        |dice| dice.below(8) as f64 - 3.0,
        &FLOAT,
        |left, right, reduction| match reduction {
            Sum => left + right,
            Product => left * right,
            other => bitwise_or_order(left, right, other, none, none, none),
        },
    );
    let unit32 = [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)].map(|(re, im)| Complex32 { re, im });
    integers(
        world,
        |dice| unit32[dice.below(3)],
        &[Sum, Product],
        |left, right, reduction| match reduction {
            Sum => Complex32 { re: left.re + right.re, im: left.im + right.im },
            _ => Complex32 { re: left.re * right.re - left.im * right.im, im: left.re * right.im + left.im * right.re },
        },
    );
    let unit64 = [(1.0, 1.0), (0.0, 1.0), (-1.0, 0.0)].map(|(re, im)| Complex64 { re, im });
    integers(
        world,
        |dice| unit64[dice.below(3)],
        &[Sum, Product],
        |left, right, reduction| match reduction {
            Sum => Complex64 { re: left.re + right.re, im: left.im + right.im },
            _ => Complex64 { re: left.re * right.re - left.im * right.im, im: left.re * right.im + left.im * right.re },
        },
    );
    for wrong in [And, Or, Xor] {
        assert!(matches!(world.allreduce_collective(wrong, &mut [1.0_f64]), Err(CollectiveError::BadArgument { .. })));
    }
    for wrong in [Min, Max, And, Or, Xor] {
        let refusal = world.reduce_collective(0, wrong, &mut [Complex64::default()]);
        assert!(matches!(refusal, Err(CollectiveError::BadArgument { .. })));
    }
    inexact(world);
}

fn none<T>(_: T, _: T) -> T {
    unreachable!("floats have no bits to combine")
}

fn bitwise_or_order<T: PartialOrd>(
    left: T,
    right: T,
    reduction: Reduction,
    and: impl Fn(T, T) -> T,
    or: impl Fn(T, T) -> T,
    xor: impl Fn(T, T) -> T,
) -> T {
    match reduction {
        Reduction::Min => {
            if right < left {
                right
            } else {
                left
            }
        }
        Reduction::Max => {
            if right > left {
                right
            } else {
                left
            }
        }
        Reduction::And => and(left, right),
        Reduction::Or => or(left, right),
        Reduction::Xor => xor(left, right),
        Reduction::Sum | Reduction::Product => unreachable!("done by the caller"),
    }
}

fn integers<T: Number>(
    world: &World,
    sample: impl Fn(&mut Dice) -> T,
    reductions: &[Reduction],
    step: impl Fn(T, T, Reduction) -> T,
) {
    const COUNT: usize = 100;
    let of = |rank: u32| -> Vec<T> {
        let mut dice = Dice::new(&[u64::from(rank), 77]);
        (0..COUNT).map(|_| sample(&mut dice)).collect()
    };
    for reduction in reductions.iter().copied() {
        let expected = (1..world.size()).fold(of(0), |all, rank| {
            all.into_iter().zip(of(rank)).map(|(left, right)| step(left, right, reduction)).collect()
        });
        let mut elements = of(world.rank());
        world.allreduce_collective(reduction, &mut elements).expect("an allreduce");
        // Compared as numbers: two zeros of different sign are the same.
        assert_eq!(elements, expected, "{reduction:?} of {:?} to all", T::TYPE);
        let root = (reduction as u32 + 1) % world.size();
        let mut elements = of(world.rank());
        world.reduce_collective(root, reduction, &mut elements).expect("a reduce");
        if world.rank() == root {
            assert_eq!(elements, expected, "{reduction:?} of {:?} to rank {root}", T::TYPE);
        }
    }
}

/// Sums whose last bits depend on the order: all members get the same ones, every time.
fn inexact(world: &World) {
    let mine: Vec<f64> = {
        let mut dice = Dice::new(&[u64::from(world.rank()), 99]);
        (0..500).map(|_| dice.roll() as f64 / 3.7 * 10_f64.powi(dice.below(30) as i32 - 15)).collect()
    };
    let mut first = mine.clone();
    world.allreduce_collective(Reduction::Sum, &mut first).expect("an allreduce");
    let mut again = mine;
    world.allreduce_collective(Reduction::Sum, &mut again).expect("an allreduce");
    assert_same(&again, &first, "the same sum again");
    let all = world.allgather_collective(&first).expect("what all got");
    for theirs in all.chunks(first.len()) {
        assert_same(theirs, &first, "the sum at another rank");
    }
}

/// One after the other without a barrier in between, large and small ones mixed, from changing roots.
pub fn back_to_back(world: &World) {
    let size = world.size();
    let rounds = if size > 4 { 30 } else { 120 };
    for round in 0..rounds {
        let root = round % size;
        let count = [1, 5, 3000, 40][round as usize % 4];
        let mut word = [if world.rank() == root { u64::from(round) } else { 0 }];
        world.broadcast_collective(root, &mut word).expect("a broadcast");
        assert_eq!(word[0], u64::from(round));
        let mut many = vec![if world.rank() == root { round } else { 0 }; count];
        world.broadcast_collective(root, &mut many).expect("a broadcast");
        assert_eq!(many, vec![round; count]);
        let mut sum = vec![u64::from(world.rank() + round); count];
        world.reduce_collective(root, Reduction::Sum, &mut sum).expect("a reduce");
        if world.rank() == root {
            let expected = u64::from(size * (size - 1) / 2 + size * round);
            assert_eq!(sum, vec![expected; count]);
        }
        let all = world.allgather_collective(&[round * 100 + world.rank()]).expect("an allgather");
        assert!(all.into_iter().eq((0..size).map(|rank| round * 100 + rank)));
        let all = world.alltoallv_collective(&vec![vec![world.rank(); count]; size as usize]).expect("an alltoallv");
        assert!(all.iter().zip(0..).all(|(part, rank)| *part == vec![rank; count]));
    }
    barrier(world);
}

/// A word that tells whose it is, in which round.
fn word(round: u32, from: u32, to: u32, at: usize) -> u64 {
    (u64::from(round) << 40) + (u64::from(from) << 32) + (u64::from(to) << 24) + at as u64
}

/// One collective with a load whose size is at or near a bound of how it travels. All members have the same dice.
fn loaded_round(group: &Group, dice: &mut Dice, round: u32) {
    let (me, size) = (group.rank(), group.size());
    // Lines, slots of sync areas, areas of the world, and those for all shares together.
    let share_max = |bytes: usize| bytes / 8 / size as usize;
    let (slot, area) = (share_max(4 << 10), share_max(64 << 10));
    let counts = [5, 6, 7, 128, 511, 512, 513, 1023, 1024, 2047, 2048, 2049, slot, slot + 1, area - 1, area, area + 1];
    let (count, root) = (counts[dice.below(counts.len())], dice.below(size as usize) as u32);
    let words = |from: u32, to: u32| (0..count).map(move |at| word(round, from, to, at));
    let all_of = |to: u32| (0..size).flat_map(move |from| words(from, to));
    match dice.below(6) {
        0 => {
            let mut got: Vec<u64> = if me == root { words(root, 0).collect() } else { vec![0; count] };
            group.broadcast_collective(root, &mut got).expect("a broadcast");
            assert!(got.into_iter().eq(words(root, 0)), "round {round}, {count} words");
        }
        1 => {
            let mut sums: Vec<u64> = words(me, 0).collect();
            group.allreduce_collective(Reduction::Sum, &mut sums).expect("an allreduce");
            let due = |at| (0..size).map(|from| word(round, from, 0, at)).sum::<u64>();
            assert!(sums.into_iter().eq((0..count).map(due)), "round {round}, {count} words");
        }
        2 => {
            let got = group.allgather_collective(&words(me, 0).collect::<Vec<_>>()).expect("an allgather");
            assert!(got.into_iter().eq(all_of(0)), "round {round}, {count} words");
        }
        3 => {
            let shares: Vec<u64> = (0..size).flat_map(|to| words(me, to)).collect();
            let got = group.alltoall_collective(&shares).expect("an all-to-all");
            assert!(got.into_iter().eq(all_of(me)), "round {round}, {count} words");
        }
        4 => {
            // On a worker, while this thread comes to the one behind it.
            let started = group.start_allgather_collective(words(me, 1).collect::<Vec<_>>());
            group.sync_collective().expect("all meet");
            assert!(started.wait().expect("an allgather").into_iter().eq(all_of(1)), "round {round}, {count} words");
        }
        _ => {
            let lists = group.allgatherv_collective(&words(me, 0).collect::<Vec<_>>()).expect("an allgatherv");
            assert!(lists.into_iter().flatten().eq(all_of(0)), "round {round}, {count} words");
        }
    }
}

/// Loads around every bound of how they travel in a world of one node, in the same areas of memory one after the other, with other contents
/// each time: who reads late must not read what belongs to the next.
pub fn laid_out(world: &World) {
    let (me, size) = (world.rank(), world.size());
    let mut dice = Dice::new(&[77]);
    let rounds = if size > 4 { 150 } else { 1500 };
    for round in 0..rounds {
        loaded_round(world.group(), &mut dice, round);
        if dice.below(size as usize) as u32 == me {
            compute(2000);
        }
    }
    barrier(world);
}

/// The largest loads that members of a node lay out for each other take a flag barrier and no message; the next larger reduction takes messages.
pub fn laid_out_without_messages(world: &World) {
    let (me, size) = (world.rank(), world.size() as usize);
    // A letter counts as a collective with its receiver, a flag barrier as one with oneself.
    let counted = |with_oneself: bool| {
        let with = world.traffic().into_iter().filter(|with| (with.peer == me) == with_oneself);
        with.flat_map(|with| with.kinds).map(|kind| kind.operations).sum::<u64>()
    };
    let (sent, barriers) = (|| counted(false), || counted(true));
    let other = world.split_collective(Some(0), 0).expect("a split").expect("a color");
    for (group, room) in [(world.group(), 64 << 10), (&other, 4 << 10)] {
        let of_root = room.min(16 << 10) / 8;
        let (of_each, for_each) = (of_root.min((64 << 10) / 8 / size), room / 8 / size);
        let before = (barriers(), sent());
        group.broadcast_collective(1, &mut vec![1_u64; of_root]).expect("a broadcast");
        group.allreduce_collective(Reduction::Sum, &mut vec![1_u64; of_each]).expect("an allreduce");
        group.allgather_collective(&vec![1_u64; of_each]).expect("an allgather");
        group.alltoall_collective(&vec![1_u64; size * for_each]).expect("an all-to-all");
        assert_eq!((barriers(), sent()), (before.0 + 4, before.1), "in a group that lays out {room} bytes");
    }
    let before = sent();
    other.allreduce_collective(Reduction::Sum, &mut [1_u64; (4 << 10) / 8 + 1]).expect("an allreduce");
    assert!(sent() > before, "messages are counted");
    barrier(world);
}

/// Loads in groups, of which there are several at once that overlap, more than a node has sync areas for, and ones that have the areas of
/// others before them. Groups are of two halves, of neighbours, and of all in another order.
pub fn laid_out_in_groups(world: &World) {
    let (me, size) = (world.rank(), world.size());
    let mut dice = Dice::new(&[78]);
    let mut kept: VecDeque<Group> = VecDeque::new();
    let rounds = if size > 4 { 60 } else { 300 };
    for round in 0..rounds {
        let color = match dice.below(3) {
            0 => u32::from(me >= size / 2),
            1 => me / 2,
            _ => 0,
        };
        let group = world.split_collective(Some(color), -i64::from(me)).expect("a split").expect("a color");
        kept.push_back(group);
        // In a third of the rounds all but some go, with their areas.
        let most = if dice.below(30) == 0 { 2 } else { 40 };
        while kept.len() > most {
            kept.pop_front();
        }
        for _ in 0..4 {
            let group = &kept[dice.below(kept.len())];
            // Of each group its own, because groups of one color differ in size.
            let mut own = Dice::new(&[79, u64::from(round), dice.below(1 << 20) as u64]);
            loaded_round(group, &mut own, round);
        }
        if dice.below(size as usize) as u32 == me {
            compute(2000);
        }
    }
    barrier(world);
}

/// All members hear of a mismatch, whichever of them is the odd one, and the group goes on.
pub fn mismatches(world: &World) {
    let me = world.rank();
    let odd_ones = [0, world.size() - 1, world.size() / 2];
    for (round, odd) in odd_ones.into_iter().enumerate() {
        let is_odd = me == odd;
        let refused: Vec<(&str, Result<(), CollectiveError>)> = vec![
            ("roots", world.broadcast_collective(u32::from(is_odd), &mut [1_u32; 4])),
            ("counts", world.broadcast_collective(0, &mut vec![1_u32; if is_odd { 5 } else { 4 }])),
            (
                "sizes of elements",
                match is_odd {
                    true => world.broadcast_collective(0, &mut [1_u16; 4]),
                    false => world.broadcast_collective(0, &mut [1_u32; 4]),
                },
            ),
            (
                "types",
                match is_odd {
                    true => world.allreduce_collective(Reduction::Sum, &mut [1_i64; 4]),
                    false => world.allreduce_collective(Reduction::Sum, &mut [1_f64; 4]),
                },
            ),
            ("reductions", {
                let reduction = if is_odd { Reduction::Min } else { Reduction::Max };
                world.allreduce_collective(reduction, &mut [1_i32; 4])
            }),
            (
                "operations",
                match is_odd {
                    true => world.barrier_collective(),
                    false => world.allgather_collective(&[1_u8]).map(drop),
                },
            ),
            (
                "sync and barrier",
                match is_odd {
                    true => world.sync_collective(),
                    false => world.barrier_collective(),
                },
            ),
            (
                "shares",
                world.alltoall_collective(&vec![1_u8; world.size() as usize * if is_odd { 2 } else { 1 }]).map(drop),
            ),
            (
                "much data and none",
                match is_odd {
                    true => world.barrier_collective(),
                    false => world.allgather_collective(&[0_u8; 40_000]).map(drop),
                },
            ),
            ("amounts around which another way is taken", {
                let bytes = (8 << 10) - usize::from(is_odd);
                world.broadcast_collective(0, &mut vec![0_u8; bytes])
            }),
            (
                "lengths of each and none",
                match is_odd {
                    true => world.sync_collective(),
                    false => world.allgatherv_collective(&[0_u8; 3]).map(drop),
                },
            ),
            (
                "operations on windows",
                match is_odd {
                    true => world.sync_collective(),
                    false => match world.allocate_collective::<u8>(10) {
                        Err(longarm::error::WindowError::Collective(error)) => Err(error),
                        other => panic!("a mismatch was not seen: {other:?}"),
                    },
                },
            ),
        ];
        for (what, refusal) in refused {
            match refusal {
                Err(CollectiveError::Mismatch { mine, rank, theirs }) => {
                    assert_ne!(mine, theirs, "{what}");
                    assert!(rank.0 < world.size() && rank.0 != me, "{what}: {rank}");
                    assert_eq!(rank.0 == odd, !is_odd, "{what}: the odd one is named to the others");
                }
                other => panic!("different {what} in round {round} gave {other:?}"),
            }
        }
        let mut sum = [1_u64];
        world.allreduce_collective(Reduction::Sum, &mut sum).expect("the group lives on");
        assert_eq!(sum[0], u64::from(world.size()));
    }
    let nobody = world.broadcast_collective(world.size(), &mut [0_u8]);
    let found = u64::from(world.size());
    assert!(matches!(nobody, Err(CollectiveError::BadArgument { found: wrong, .. }) if wrong == found));
    if world.size() > 1 {
        let uneven = world.alltoall_collective(&vec![0_u8; world.size() as usize + 1]);
        assert!(matches!(uneven, Err(CollectiveError::BadArgument { .. })));
        assert!(matches!(world.alltoallv_collective::<u8>(&[]), Err(CollectiveError::BadArgument { .. })));
        let no_room = world.allgather_into_collective(&[0_u8; 2], &mut [0; 3]);
        assert!(matches!(no_room, Err(CollectiveError::WrongRoom { found: 3, .. })));
        let no_room = world.alltoall_into_collective(&vec![0_u8; world.size() as usize], &mut []);
        assert!(matches!(no_room, Err(CollectiveError::WrongRoom { found: 0, due }) if due == u64::from(world.size())));
    }
    // Data was not moved by any of these.
    let mut kept = [me];
    let _ = world.broadcast_collective(u32::from(me == 0), &mut kept);
    assert_eq!(kept, [me], "a refused broadcast changes nothing");
    // Windows can be made afterwards, and are new.
    let window = world.allocate_collective::<u32>(5).expect("a window");
    assert_eq!(window.get_vec(me, 0..5).expect("mine"), [0; 5]);
    barrier(world);
}

/// What rank 1 sends in place of what its pair with rank 0 calls: in which step, how long the whole is said to be, and how many
/// bytes come.
const BROKEN: [(u32, u64, usize); 9] = [
    (0, 0, 0),
    (0, 1, 1),
    (0, 8, 8),
    (1, 0, 0),
    (1, 1, 1),
    (1, 17, 17),
    (1, 70_000, 70_000),
    (1, 1 << 40, 3),
    (1, u64::MAX, 16),
];

type Pair<'a> = (&'static str, u32, &'a dyn Fn(&Group) -> Result<(), CollectiveError>);

/// Rank 1 sends in the middle of a collective what nobody sends, before it does what is due. Rank 0 gets an error, and the world
/// goes on.
pub fn with_a_broken_member(world: &World) {
    // More than travels with the agreement, and less than is staged.
    let bytes = if world.node_of(0) == world.node_of(1) { 4_000 } else { 20_000 };
    let (words, numbers) = (vec![world.rank(); bytes / 4], vec![1_u64; bytes / 8]);
    let lists = [vec![1_u32; 500], vec![2; 500]];
    // With the first step in which other messages than those of the agreement come.
    let collectives: [Pair<'_>; 8] = [
        ("a broadcast", 1, &|pair| pair.broadcast_collective(1, &mut words.clone())),
        ("a broadcast of little", 0, &|pair| pair.broadcast_collective(1, &mut words[..9].to_vec())),
        ("a reduction", 1, &|pair| pair.reduce_collective(0, Reduction::Sum, &mut numbers.clone())),
        ("an allgather", 1, &|pair| pair.allgather_collective(&numbers).map(drop)),
        ("an allgather of little", 0, &|pair| pair.allgather_collective(&[1_u64; 9]).map(drop)),
        ("an all-to-all", 1, &|pair| pair.alltoall_collective(&words).map(drop)),
        ("a split", 0, &|pair| pair.split_collective(Some(0), 0).map(drop)),
        ("a sync", 0, &|pair| pair.sync_collective()),
    ];
    // Nothing is sent for what is shown in lines.
    let two = |world: &World| {
        let pair = world.split_collective(Some(world.rank().min(2) / 2), 0).expect("a split").expect("a group");
        pair.without_area()
    };
    for (what, last_step, call) in &collectives {
        for (step, total_bytes, bytes) in BROKEN.into_iter().filter(|broken| broken.0 <= *last_step) {
            let pair = two(world);
            if world.rank() == 1 {
                pair.send_as_if_broken(0, step, total_bytes, &vec![0xa5; bytes]).expect("rank 0 lives");
                // The rest of what was announced, which is more than that.
                pair.send_as_if_broken(0, step, total_bytes.min(2), &[1, 2][..total_bytes.min(2) as usize])
                    .expect("rank 0 lives");
                // How it ends here says nothing. Behind an agreement that failed nothing comes from rank 0.
                if step == *last_step {
                    let _ = call(&pair);
                }
            }
            if world.rank() == 0 {
                let error = call(&pair).expect_err("rank 1 has not sent what was due");
                let named = matches!(&error, CollectiveError::BadMessage { rank, node, .. }
                    if rank.0 == 1 && Some(node.0) == world.node_of(1));
                assert!(named, "{what}, {bytes} of {total_bytes} bytes in step {step}: {error}");
            }
        }
    }
    tell_first_as_if_broken(world);
    give_as_if_broken(world);
    reduce_as_if_broken(world);
    // As many as each says: here it is the number of bytes in front of each that can be wrong.
    for length in [1, 17, 1 << 40, u64::MAX - 7, u64::MAX] {
        let pair = two(world);
        if world.rank() == 1 {
            let body = [&length.to_le_bytes()[..], &[7; 16]].concat();
            pair.send_as_if_broken(0, 1, body.len() as u64, &body).expect("rank 0 lives");
            let _ = pair.alltoallv_collective(&lists);
        }
        if world.rank() == 0 {
            // Whether the members tell each other the lengths with the agreement depends on the world; neither way panics.
            let _ = pair.alltoallv_collective(&lists);
        }
    }
    barrier(world);
}

/// Rank 1 gives rank 0, which takes the shares of both of them to another node, too few bytes: both get an error, and the other node waits
/// for nobody.
fn give_as_if_broken(world: &World) {
    // Behind the agreement, and in it what a member gives its leader.
    const GIVEN: u32 = 1 + 256 + 1;
    let (last, me) = (world.size() - 1, world.rank());
    if world.node_of(0) != world.node_of(1) || world.node_of(0) == world.node_of(last) {
        return;
    }
    for bytes in [0, 5, 70_000] {
        let is_in = [0, 1, last].contains(&me);
        let Some(group) = world.split_collective(is_in.then_some(0), 0).expect("a split") else { continue };
        let group = group.without_area();
        if me == 1 {
            group.send_as_if_broken(0, GIVEN, bytes as u64, &vec![0xa5; bytes]).expect("rank 0 lives");
        }
        let all = group.alltoall_collective(&[u64::from(me); 3]);
        if me == last {
            assert_eq!(all.expect("another node")[2], u64::from(me));
        } else {
            let error = all.expect_err("rank 1 has not given what was due");
            let is_named = matches!(&error, CollectiveError::BadMessage { rank, .. } if rank.0 == 1);
            assert!(is_named, "{bytes} bytes, rank {me}: {error}");
        }
    }
}

/// Rank 1 gives rank 0, which combines what both of them have for another node, something of another length.
fn reduce_as_if_broken(world: &World) {
    let (last, me) = (world.size() - 1, world.rank());
    if world.node_of(0) != world.node_of(1) || world.node_of(0) == world.node_of(last) {
        return;
    }
    let is_in = [0, 1, last].contains(&me);
    for bytes in [0, 40, 56, 4000] {
        let Some(group) = world.split_collective(is_in.then_some(0), 0).expect("a split") else { continue };
        let group = group.without_area();
        if me == 1 {
            group.send_as_if_broken(0, 0, bytes as u64, &vec![0xa5; bytes]).expect("rank 0 lives");
        }
        // The other node would wait for what rank 0 does not tell it then.
        if me != last {
            let sum = group.allreduce_collective(Reduction::Sum, &mut [1_u64; 6]);
            let error = sum.expect_err("rank 1 has not sent 48 bytes");
            let is_named = matches!(&error, CollectiveError::BadMessage { rank, .. } if rank.0 == 1);
            assert!(is_named, "{bytes} bytes, rank {me}: {error}");
        }
    }
    // And what rank 0 tells rank 1 that all have come to: more of it, or nothing, where 8 bytes are due.
    for told in [16_u64, 0] {
        let Some(group) = world.split_collective(is_in.then_some(0), 0).expect("a split") else { continue };
        let group = group.without_area();
        if me == 0 {
            // All have called the same, which is known, and it is told.
            let words = [0x101, told | 1 << 62, 5, 6].map(u64::to_le_bytes).concat();
            let words = &words[..16 + told as usize];
            group.send_as_if_broken(1, 1, words.len() as u64, words).expect("rank 1 lives");
        }
        if me == 1 {
            let mut sum = [1_u64];
            let error = group.allreduce_collective(Reduction::Sum, &mut sum).expect_err("rank 0 has told nonsense");
            let is_named = matches!(&error, CollectiveError::BadMessage { rank, .. } if rank.0 == 0);
            assert!(is_named, "{told} bytes: {error}");
        }
    }
}

/// Rank 1 tells rank 0, which speaks for both of them with another node, what nobody tells.
fn tell_first_as_if_broken(world: &World) {
    let (last, me) = (world.size() - 1, world.rank());
    if world.node_of(0) != world.node_of(1) || world.node_of(0) == world.node_of(last) {
        return;
    }
    let is_in = [0, 1, last].contains(&me);
    // No whole word, more words than there are, and far more.
    for (total_bytes, bytes) in [(7, 7), (64, 64), (1 << 40, 56)] {
        let Some(group) = world.split_collective(is_in.then_some(0), 0).expect("a split") else { continue };
        let group = group.without_area();
        if me == 1 {
            group.send_as_if_broken(0, 1, total_bytes, &vec![0xa5; bytes]).expect("rank 0 lives");
        }
        if me == 0 {
            let error = group.sync_collective().expect_err("rank 1 has told nothing of the kind");
            let is_named = matches!(&error, CollectiveError::BadMessage { rank, .. } if rank.0 == 1);
            assert!(is_named, "{bytes} of {total_bytes} bytes: {error}");
        }
    }
}
