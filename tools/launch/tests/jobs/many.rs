//! Lists of single elements in one call.

use futures_lite::future::block_on;
use longarm::error::TransferError;
use longarm::{Complex32, Number, Update, Window, World};

use super::support::{Dice, Said, arbitrary, assert_same, barrier, ranks};

/// Lists of every length do what single calls do, for words, floats, and elements that are no words.
pub fn every(world: &World) {
    puts_and_gets::<u64>(world);
    puts_and_gets::<f32>(world);
    puts_and_gets::<[u8; 3]>(world);
    puts_and_gets::<[u64; 129]>(world);
    updates::<i64>(world, &[Update::Sum, Update::Scaled(3), Update::Min, Update::Max, Update::Xor, Update::Replace]);
    updates::<u32>(world, &[Update::Sum, Update::And, Update::Or, Update::Max]);
    // Whole numbers, whose sums are exact in any order.
    updates::<f64>(world, &[Update::Sum, Update::Scaled(0.5)]);
    updates::<Complex32>(world, &[Update::Sum]);
}

/// Elements of each part that belong to one rank.
const STRIP: usize = 40;
/// Around the runs that fit one request.
const LENGTHS: [usize; 7] = [0, 1, 2, 30, 253, 254, 1000];

fn puts_and_gets<T: longarm::Element>(world: &World) {
    let window = world.allocate_collective::<T>(STRIP * world.size() as usize).expect("a window");
    let first = STRIP * world.rank() as usize;
    let mut dice = Dice::new(&[u64::from(world.rank()), size_of::<T>() as u64]);
    // What this rank's strips of all parts hold.
    let mut model: Vec<Vec<T>> = ranks(world).map(|_| vec![T::new_zeroed(); STRIP]).collect();
    for length in LENGTHS {
        let mut list = Vec::new();
        for _ in 0..length {
            // Some places are in the list more than once: the last one counts.
            let (rank, at) = (dice.below(world.size() as usize), dice.below(STRIP));
            let element: T = arbitrary(&mut dice, 1)[0];
            model[rank][at] = element;
            list.push((rank as u32, first + at, element));
        }
        let list = if length % 2 == 0 {
            window.put_many(&list).expect("a list");
            list
        } else {
            block_on(window.start_put_many(list).expect("a list")).expect("it comes back")
        };
        let places: Vec<_> = list.iter().rev().map(|(rank, index, _)| (*rank, *index)).collect();
        let expected: Vec<T> = places.iter().map(|(rank, index)| model[*rank as usize][index - first]).collect();
        let found = window.get_many(&places).expect("a list");
        assert_same(&found, &expected, format_args!("{length} elements of {} bytes", size_of::<T>()));
        let (first_half, second_half) = places.split_at(length / 2);
        let [one, other] = [first_half, second_half].map(|half| window.start_get_many(half.to_vec()).expect("a list"));
        let other = block_on(other).expect("a list");
        let found = [one.wait().expect("a list"), other].concat();
        assert_same(&found, &expected, format_args!("{length} elements of {} bytes, awaited", size_of::<T>()));
        for rank in ranks(world) {
            let found = window.get_vec(rank, first..first + STRIP).expect("a strip");
            assert_same(
                &found,
                &model[rank as usize],
                format_args!("the strip at rank {rank} after {length} elements"),
            );
        }
    }
    barrier(world);
}

fn updates<T: Number + Small>(world: &World, all: &[Update<T>]) {
    let count = STRIP * world.size() as usize;
    let together = world.allocate_collective::<T>(count).expect("a window");
    let single = world.allocate_collective::<T>(count).expect("a window");
    let awaited = world.allocate_collective::<T>(count).expect("a window");
    let first = STRIP * world.rank() as usize;
    let mut dice = Dice::new(&[u64::from(world.rank()), T::TYPE as u64]);
    for (update, length) in all.iter().flat_map(|update| LENGTHS.map(|length| (*update, length))) {
        let mut list = Vec::new();
        for _ in 0..length {
            let (rank, at) = (dice.below(world.size() as usize) as u32, dice.below(STRIP));
            list.push((rank, first + at, T::small(dice.below(5) as i8)));
        }
        together.update_many(&list, update).expect("a list");
        let list = block_on(awaited.start_update_many(list, update).expect("a list")).expect("it comes back");
        for (rank, index, operand) in list {
            single.accumulate(rank, index, update, &[operand]).expect("an element");
        }
        for rank in ranks(world) {
            let strip = |window: &Window<T>| window.get_vec(rank, first..first + STRIP).expect("a strip");
            let what = || format!("{length} of {update:?} on {:?} at rank {rank}", T::TYPE);
            assert_same(&strip(&together), &strip(&single), Said(what));
            assert_same(&strip(&awaited), &strip(&single), Said(|| format!("{}, awaited", what())));
        }
    }
    barrier(world);
}

/// Numbers with which every sum is exact.
trait Small {
    fn small(value: i8) -> Self;
}

macro_rules! small {
    ($($type:ty)+) => {$(
        impl Small for $type {
            fn small(value: i8) -> Self {
                value as $type
            }
        }
    )+};
}
small!(i64 u32 f64);

impl Small for Complex32 {
    fn small(value: i8) -> Self {
        Complex32 { re: value.into(), im: -f32::from(value) }
    }
}

/// A list with one place that does not exist: an error that names it, and nothing was written anywhere.
pub fn refused(world: &World) {
    let window = world.allocate_collective::<u32>(8).expect("a window");
    let (me, last) = (world.rank(), world.size() - 1);
    for wrong in [(0, 8), (last, usize::MAX), (world.size(), 0), (u32::MAX, 0)] {
        let list: Vec<_> = ranks(world).map(|rank| (rank, 3, 7)).chain([(wrong.0, wrong.1, 7)]).collect();
        let errors = [
            window.put_many(&list).expect_err("a wrong place"),
            window.update_many(&list, Update::Sum).expect_err("a wrong place"),
            window.get_many(&[(me, 0), wrong]).expect_err("a wrong place"),
            window.start_put_many(list.clone()).expect_err("a wrong place"),
            window.start_update_many(list, Update::Sum).expect_err("a wrong place"),
            window.start_get_many(vec![(me, 0), wrong]).expect_err("a wrong place"),
        ];
        for error in errors {
            match error {
                TransferError::OutsideWindow { rank, window_bytes: 32, .. } => assert_eq!(rank.0, wrong.0),
                TransferError::NoSuchRank { rank, .. } => assert_eq!(rank.0, wrong.0),
                other => panic!("{other}"),
            }
        }
    }
    let floats = window.cast::<f32>();
    assert!(matches!(floats.update_many(&[(last, 0, 1.0)], Update::Xor), Err(TransferError::NoSuchKernel { .. })));
    barrier(world);
    assert_eq!(window.get_vec(me, 0..8).expect("the part"), [0; 8]);
    barrier(world);
    window.free_collective().expect("it is freed");
    assert!(matches!(window.put_many(&[(me, 0, 1)]), Err(TransferError::FreedWindow { .. })));
    assert_eq!(window.put_many(&[]), Ok(()), "nothing is nothing");
}

/// A histogram that all ranks fill, by lists and by single updates.
pub fn concurrent(world: &World) {
    let window = world.allocate_collective::<u64>(64).expect("a window");
    let mut dice = Dice::new(&[u64::from(world.rank())]);
    let (rounds, length) = (10, 300);
    for round in 0..rounds {
        let mut bin = || (dice.below(world.size() as usize) as u32, dice.below(64), 1_u64);
        let list: Vec<_> = (0..length).map(|_| bin()).collect();
        window.update_many(&list, Update::Sum).expect("a list");
        let (rank, index, one) = bin();
        if round % 2 == 0 {
            window.fetch_add(rank, index, one).expect("an rmw");
        } else {
            drop(window.start_accumulate(rank, index, Update::Sum, vec![one]).expect("an accumulate"));
        }
    }
    barrier(world);
    let places: Vec<_> = ranks(world).flat_map(|rank| (0..64).map(move |index| (rank, index))).collect();
    let sum: u64 = window.get_many(&places).expect("all bins").iter().sum();
    assert_eq!(sum, u64::from(world.size()) * rounds * (length + 1), "each update counts once");
    barrier(world);
}
