//! Put with signal, and waiting for words.

use longarm::error::WaitError;
use longarm::{Compare, Word, World};

use super::support::{Dice, ahead, arbitrary, assert_same, barrier, compute, ranks};

/// Rounds around the ring: the right neighbour waits for the signal, and then finds all bytes. It answers by a
/// signal of its own, so that the next round does not overwrite what it has not read.
pub fn put_signal(world: &World) {
    const LENGTHS: [usize; 7] = [0, 1, 100, 2047, 2049, 20_000, 200_000];
    let data = world.allocate_collective::<u64>(200_000 + 2).expect("data");
    let signals = world.allocate_collective::<u64>(4).expect("signals");
    let (me, right) = (world.rank(), ahead(world, 1));
    let left = ahead(world, world.size() - 1);
    let contents = |origin: u32, round: usize, length: usize| {
        arbitrary::<u64>(&mut Dice::new(&[u64::from(origin), round as u64]), length)
    };
    let rounds = if world.size() > 4 { 14 } else { 49 };
    for round in 0..rounds {
        let length = LENGTHS[round % LENGTHS.len()];
        let source = contents(me, round, length);
        let number = round as u64 + 1;
        // One word is set, the other counts.
        if round % 2 == 0 {
            data.put_signal_set(right, 1, &source, (&signals, 1), number).expect("a put with signal");
        } else {
            data.put_signal_add(right, 1, &source, (&signals, 2), 1).expect("a put with signal");
        }
        if round % 2 == 0 {
            signals.wait_until(1, Compare::Equal, number).expect("the signal");
        } else {
            signals.wait_until(2, Compare::GreaterOrEqual, number / 2).expect("the signal");
        }
        let found = data.get_vec(me, 0..length + 2).expect("one's own part");
        assert_same(&found[1..=length], &contents(left, round, length), format_args!("round {round}"));
        assert_eq!(found[0], 0, "the element in front");
        signals.fetch_add(left, 3, 1).expect("an answer");
        signals.wait_until(3, Compare::GreaterOrEqual, number).expect("the answer");
    }
    barrier(world);
    let words = signals.get_vec(me, 0..4).expect("the signals");
    let last_set = (rounds as u64 - 1) / 2 * 2 + 1;
    assert_eq!(words, [0, last_set, rounds as u64 / 2, rounds as u64]);
    many_to_one(world);
}

/// All ranks put to rank 0 and add to one signal.
fn many_to_one(world: &World) {
    let size = world.size() as usize;
    let data = world.allocate_collective::<u32>(size * 10).expect("data");
    let signals = world.allocate_collective::<u64>(1).expect("signals");
    for round in 1..=10_u64 {
        let source = [round as u32 * 100 + world.rank(); 10];
        data.put_signal_add(0, world.rank() as usize * 10, &source, (&signals, 0), 1).expect("a put with signal");
        if world.rank() == 0 {
            signals.wait_until(0, Compare::Equal, round * size as u64).expect("all signals");
            for rank in ranks(world) {
                let found = data.get_vec(0, rank as usize * 10..rank as usize * 10 + 10).expect("a share");
                assert_same(&found, &[round as u32 * 100 + rank; 10], format_args!("share of rank {rank}"));
            }
        }
        world.sync_collective().expect("the next round");
    }
    barrier(world);
}

/// Each comparison with a value that does not hold first, and does after the neighbour has changed the word, by a
/// signal, an rmw, an accumulate or a plain put.
pub fn comparisons(world: &World) {
    compared::<i32>(world);
    compared::<u32>(world);
    compared::<i64>(world);
    compared::<u64>(world);
}

fn compared<T: Word>(world: &World) {
    // Comparison, the word before, the word after, the value compared with.
    let minus = |value: u64| T::from_bits(0_u64.wrapping_sub(value));
    let plain = T::from_bits;
    let least = if minus(1) < plain(0) { minus(5) } else { plain(0) };
    let cases = [
        (Compare::Equal, plain(1), plain(7), plain(7)),
        (Compare::NotEqual, plain(7), minus(1), plain(7)),
        (Compare::Greater, plain(7), plain(8), plain(7)),
        (Compare::GreaterOrEqual, plain(6), plain(7), plain(7)),
        (Compare::Less, plain(7), least, plain(7)),
        (Compare::LessOrEqual, plain(8), plain(7), plain(7)),
    ];
    let window = world.allocate_collective::<T>(3).expect("a window");
    let (me, right) = (world.rank(), ahead(world, 1));
    for (round, (compare, before, after, value)) in cases.iter().copied().cycle().take(24).enumerate() {
        window.set(me, 1, before).expect("the word before");
        assert!(!window.test_until(1, compare, value).expect("a look"), "{compare:?} holds too early");
        barrier(world);
        compute(((me * 7919 + round as u32 * 104_729) % 1000).into());
        match round / 6 {
            0 => window.set(right, 1, after).expect("an rmw"),
            1 => window.put_one(right, 1, after).expect("a put"),
            2 => drop(window.start_swap(right, 1, after).expect("an rmw")),
            _ => window.accumulate(right, 1, longarm::Update::Replace, &[after]).expect("an accumulate"),
        }
        let seen = window.wait_until(1, compare, value).expect("a wait");
        assert_eq!(seen, after, "{compare:?}");
        assert!(window.test_until(1, compare, value).expect("a look"));
        barrier(world);
    }
    let outside = window.wait_until(3, Compare::Equal, plain(0));
    assert!(
        matches!(outside, Err(WaitError::OutsideWindow { window_bytes, .. }) if window_bytes == 3 * size_of::<T>() as u64)
    );
    assert!(window.test_until(usize::MAX, Compare::Equal, plain(0)).is_err());
    barrier(world);
}

/// Words that become what is waited for in an order that the others choose.
pub fn several_words(world: &World) {
    let size = world.size() as usize;
    let window = world.allocate_collective::<u64>(size).expect("a window");
    let me = world.rank();
    let all: Vec<usize> = (0..size).collect();
    assert_eq!(window.wait_until_any(&[], Compare::Equal, 1), Ok(None));
    assert_eq!(window.wait_until_some(&[], Compare::Equal, 1), Ok(Vec::new()));
    assert_eq!(window.wait_until_all(&[], Compare::Equal, 1), Ok(()));
    for round in 1..=30_u64 {
        for distance in 0..world.size() {
            let target = (me * 3 + distance) % world.size();
            window.set(target, me as usize, round).expect("a word");
        }
        match round % 3 {
            0 => window.wait_until_all(&all, Compare::Equal, round).expect("all words"),
            1 => {
                let mut left = all.clone();
                while let Some(place) = window.wait_until_any(&left, Compare::GreaterOrEqual, round).expect("a word") {
                    let index = left.remove(place);
                    assert_eq!(window.get_one(me, index).expect("the word"), round);
                }
                assert!(left.is_empty());
            }
            _ => {
                let mut left = all.clone();
                while !left.is_empty() {
                    let places = window.wait_until_some(&left, Compare::GreaterOrEqual, round).expect("words");
                    assert!(!places.is_empty() && places.is_sorted(), "some, in order");
                    for place in places.into_iter().rev() {
                        let index = left.remove(place);
                        assert_eq!(window.get_one(me, index).expect("the word"), round);
                    }
                }
            }
        }
        world.sync_collective().expect("the next round");
    }
    assert!(window.wait_until_any(&[0, size], Compare::Equal, 0).is_err(), "the second word is outside");
    assert!(window.wait_until_all(&[size], Compare::Equal, 0).is_err());
    barrier(world);
}
