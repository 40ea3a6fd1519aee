//! Read-modify-write: each one's meaning, and what many of them do together.

use longarm::error::RmwError;
use longarm::{Handle, Update, Window, Word, World, wait_all};

use super::form::{Form, finish};
use super::support::{Dice, ahead, assert_same, barrier, compute, ranks};

/// Every operation on every word type and target, blocking and in all forms with a handle.
pub fn each(world: &World) {
    meaning::<i32>(world);
    meaning::<u32>(world);
    meaning::<i64>(world);
    meaning::<u64>(world);
}

/// The operations, to go through them.
#[derive(Clone, Copy, Debug)]
enum Op {
    FetchAdd,
    Swap,
    FetchAnd,
    FetchOr,
    FetchXor,
    FetchMin,
    FetchMax,
    CompareSwapHit,
    CompareSwapMiss,
    Fetch,
    Set,
}

const OPS: [Op; 11] = [
    Op::FetchAdd,
    Op::Swap,
    Op::FetchAnd,
    Op::FetchOr,
    Op::FetchXor,
    Op::FetchMin,
    Op::FetchMax,
    Op::CompareSwapHit,
    Op::CompareSwapMiss,
    Op::Fetch,
    Op::Set,
];

impl Op {
    fn outcome<T: Word>(self, old: T, value: T) -> u64 {
        let smaller_first = if old < value { [old, value] } else { [value, old] };
        let (old, value) = (old.to_bits(), value.to_bits());
        match self {
            Op::FetchMin => smaller_first[0].to_bits(),
            Op::FetchMax => smaller_first[1].to_bits(),
            Op::FetchAdd => old.wrapping_add(value),
            Op::Swap | Op::Set | Op::CompareSwapHit => value,
            Op::FetchAnd => old & value,
            Op::FetchOr => old | value,
            Op::FetchXor => old ^ value,
            Op::CompareSwapMiss | Op::Fetch => old,
        }
    }

    /// Gives the old value, where the operation does.
    fn run<T: Word>(self, window: &Window<T>, rank: u32, index: usize, old: T, value: T) -> Result<T, RmwError> {
        match self {
            Op::FetchAdd => window.fetch_add(rank, index, value),
            Op::Swap => window.swap(rank, index, value),
            Op::FetchAnd => window.fetch_and(rank, index, value),
            Op::FetchOr => window.fetch_or(rank, index, value),
            Op::FetchXor => window.fetch_xor(rank, index, value),
            Op::FetchMin => window.fetch_min(rank, index, value),
            Op::FetchMax => window.fetch_max(rank, index, value),
            Op::CompareSwapHit => window.compare_swap(rank, index, old, value),
            Op::CompareSwapMiss => window.compare_swap(rank, index, T::from_bits(!old.to_bits()), value),
            Op::Fetch => window.fetch(rank, index),
            Op::Set => window.set(rank, index, value).map(|()| old),
        }
    }

    fn start<T: Word>(
        self,
        window: &Window<T>,
        rank: u32,
        index: usize,
        old: T,
        value: T,
    ) -> Result<Handle<T>, RmwError> {
        match self {
            Op::FetchAdd => window.start_fetch_add(rank, index, value),
            Op::Swap => window.start_swap(rank, index, value),
            Op::FetchAnd => window.start_fetch_and(rank, index, value),
            Op::FetchOr => window.start_fetch_or(rank, index, value),
            Op::FetchXor => window.start_fetch_xor(rank, index, value),
            Op::FetchMin => window.start_fetch_min(rank, index, value),
            Op::FetchMax => window.start_fetch_max(rank, index, value),
            Op::CompareSwapHit => window.start_compare_swap(rank, index, old, value),
            Op::CompareSwapMiss => window.start_compare_swap(rank, index, T::from_bits(!old.to_bits()), value),
            Op::Fetch => window.start_fetch(rank, index),
            Op::Set => window.start_set(rank, index, value),
        }
    }
}

fn meaning<T: Word>(world: &World) {
    // Each rank has three words in every part; the middle one is updated.
    let window = world.allocate_collective::<T>(3 * world.size() as usize).expect("a window");
    let first = 3 * world.rank() as usize;
    let mut dice = Dice::new(&[u64::from(world.rank()), T::TYPE as u64]);
    let word = |dice: &mut Dice| T::from_bits(dice.roll());
    for form in Form::EVERY.into_iter().filter(|form| *form != Form::Scope) {
        for op in OPS {
            for target in ranks(world) {
                let before = [word(&mut dice), word(&mut dice), word(&mut dice)];
                let value = word(&mut dice);
                let what = format!("{op:?} on {:?} at rank {target} as {form:?}", T::TYPE);
                window.put(target, first, &before).expect("three words");
                let old = match form {
                    Form::Blocking => Some(op.run(&window, target, first + 1, before[1], value).expect("an rmw")),
                    form => {
                        let handle = op.start(&window, target, first + 1, before[1], value).expect("a start");
                        finish(world, form, vec![handle]).map(|old| old[0])
                    }
                };
                if let Some(old) = old.filter(|_| !matches!(op, Op::Set)) {
                    assert_eq!(old, before[1], "the old value of {what}");
                }
                let expected = op.outcome(before[1], value);
                let after = window.get_vec(target, first..first + 3).expect("three words");
                assert_same(&after, &[before[0], T::from_bits(expected), before[2]], what);
            }
        }
    }
    barrier(world);
}

/// Counters that all ranks draw numbers from: each number is drawn once.
pub fn concurrent(world: &World) {
    tickets::<i32>(world);
    tickets::<u32>(world);
    tickets::<i64>(world);
    tickets::<u64>(world);
    swaps(world);
    compare_swaps(world);
    extremes::<i32>(world);
    extremes::<u64>(world);
    bits::<u32>(world);
    bits::<u64>(world);
}

fn draws(world: &World) -> usize {
    if world.size() > 4 { 40 } else { 150 }
}

fn tickets<T: Word>(world: &World) {
    let window = world.allocate_collective::<T>(2).expect("a window");
    let one = T::from_bits(1);
    let count = draws(world);
    let mut drawn: Vec<Vec<u64>> = ranks(world).map(|_| Vec::new()).collect();
    for round in 0..count {
        for target in ranks(world) {
            if round % 2 == 0 {
                drawn[target as usize].push(window.fetch_add(target, 1, one).expect("a ticket").to_bits());
            } else if round % 8 == 1 {
                let handles: Vec<_> =
                    (0..4).map(|_| window.start_fetch_add(target, 1, one).expect("a ticket")).collect();
                let tickets: Vec<u64> =
                    wait_all(handles).expect("tickets").iter().map(|ticket| ticket.to_bits()).collect();
                assert!(tickets.is_sorted(), "operations of one rank to one word take effect in order");
                drawn[target as usize].extend(tickets);
            }
        }
    }
    barrier(world);
    for target in ranks(world) {
        let mut all = world.allgatherv_collective(&drawn[target as usize]).expect("all tickets").concat();
        all.sort_unstable();
        let sum = window.get_one(target, 1).expect("the counter");
        assert_eq!(sum.to_bits(), all.len() as u64, "the counter of rank {target}");
        assert!(all.iter().copied().eq(0..all.len() as u64), "each ticket of rank {target} was drawn once: {all:?}");
        assert_eq!(window.get_one(target, 0).expect("a neighbour").to_bits(), 0);
    }
    barrier(world);
}

/// Values that are swapped around: none is lost, none is there twice.
fn swaps(world: &World) {
    let window = world.allocate_collective::<u64>(1).expect("a window");
    let count = draws(world) as u64;
    let mut seen = Vec::new();
    for round in 0..count {
        let mine = 1 + round * u64::from(world.size()) + u64::from(world.rank());
        seen.push(window.swap(0, 0, mine).expect("a swap"));
    }
    barrier(world);
    if world.rank() == 0 {
        seen.push(window.get_one(0, 0).expect("the last one"));
    }
    let mut all = world.allgatherv_collective(&seen).expect("all values").concat();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..=count * u64::from(world.size())), "each value was seen once");
    barrier(world);
}

/// A counter by compare-and-swap, on the last rank.
fn compare_swaps(world: &World) {
    let window = world.allocate_collective::<i32>(1).expect("a window");
    let host = world.size() - 1;
    let count = draws(world) as i32 / 2;
    for _ in 0..count {
        let mut seen = window.fetch(host, 0).expect("a look");
        loop {
            let old = window.compare_swap(host, 0, seen, seen + 1).expect("a try");
            if old == seen {
                break;
            }
            seen = old;
        }
    }
    barrier(world);
    assert_eq!(window.fetch(host, 0).expect("the counter"), count * world.size() as i32);
    barrier(world);
}

/// All ranks raise one word and lower another one, by values that nobody else brings: an old value that was replaced was so once, and
/// nobody sees its own value as an old one, which who did an operation twice would.
fn extremes<T: Word>(world: &World) {
    let window = world.allocate_collective::<T>(2).expect("a window");
    let host = world.size() - 1;
    let (count, size, me) = (draws(world) as u64, u64::from(world.size()), u64::from(world.rank()));
    if world.rank() == host {
        window.put_one(host, 1, T::from_bits(1 << 30)).expect("the word that is lowered");
    }
    barrier(world);
    let mut replaced = Vec::new();
    for round in 0..count {
        let distance = 1 + round * size + me;
        let (high, low) = (T::from_bits(distance), T::from_bits((1 << 30) - distance));
        let old = window.fetch_max(host, 0, high).expect("a max");
        assert!(old != high, "it was done twice");
        if old < high {
            replaced.push(old.to_bits());
        }
        let handle = window.start_fetch_min(host, 1, low).expect("a min");
        let old = handle.wait().expect("a min");
        assert!(old != low, "it was done twice");
    }
    barrier(world);
    let end = window.get_vec(host, 0..2).expect("both words");
    assert_same(&end, &[T::from_bits(count * size), T::from_bits((1 << 30) - count * size)], "the extremes");
    let mut all = world.allgatherv_collective(&replaced).expect("all old values").concat();
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "a value was replaced twice: {all:?}");
    assert_eq!(all.first(), Some(&0), "the first one was replaced");
    barrier(world);
}

/// Each rank owns a bit, and sees it as it left it, whatever the others do to theirs.
fn bits<T: Word>(world: &World) {
    let window = world.allocate_collective::<T>(1).expect("a window");
    let host = world.size() / 2;
    let mine = 1_u64 << world.rank();
    for _ in 0..draws(world) / 2 {
        let old = window.fetch_or(host, 0, T::from_bits(mine)).expect("or").to_bits();
        assert_eq!(old & mine, 0, "the bit was cleared");
        let old = window.fetch_and(host, 0, T::from_bits(!mine)).expect("and").to_bits();
        assert_eq!(old & mine, mine, "the bit was set");
        for expected in [0, mine] {
            let old = window.fetch_xor(host, 0, T::from_bits(mine)).expect("xor").to_bits();
            assert_eq!(old & mine, expected, "the bit was flipped");
        }
    }
    barrier(world);
    assert_eq!(window.fetch(host, 0).expect("all bits").to_bits(), 0);
    barrier(world);
}

/// Integer accumulates meet rmws on one word, and puts of a whole word are seen whole.
pub fn mixed(world: &World) {
    let window = world.allocate_collective::<u64>(2).expect("a window");
    let count = draws(world) as u64;
    let target = ahead(world, 1);
    for round in 0..count {
        for rank in ranks(world) {
            match round % 3 {
                0 => drop(window.fetch_add(rank, 0, 1).expect("an rmw")),
                1 => window.accumulate(rank, 0, Update::Sum, &[1]).expect("an accumulate"),
                _ => drop(window.start_fetch_add(rank, 0, 1).expect("an rmw")),
            }
        }
        // Both halves of the word are the same in every value that is put.
        let value = round << 32 | round;
        window.put_one(target, 1, value).expect("a put");
        let seen = window.get_one(world.rank(), 1).expect("a get");
        assert_eq!(seen >> 32, seen & 0xffff_ffff, "half of a word was seen");
        compute(round % 7);
    }
    barrier(world);
    assert_eq!(window.get_one(world.rank(), 0).expect("the counter"), count * u64::from(world.size()));
    barrier(world);
}
