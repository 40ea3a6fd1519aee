//! What C programs get wrong: nothing, overlap, oneself, odd addresses, ends, sizes.

use longarm::error::{RmwError, TransferError};
use longarm::{Complex64, Patch, Segment, Update, World};

use super::form::{Form, Target};
use super::shape::Shape;
use super::support::{Dice, ahead, arbitrary, assert_same, barrier, ranks};

/// Zero elements: of every operation, at the start, at the end, in parts that have none, in every form.
pub fn nothing(world: &World) {
    let me = world.rank();
    // The parts of odd ranks are empty.
    let window = world.allocate_collective::<u32>(if me.is_multiple_of(2) { 10 } else { 0 }).expect("a window");
    let none = world.allocate_collective::<u32>(0).expect("a window of nothing");
    let contents = arbitrary::<u32>(&mut Dice::new(&[u64::from(me)]), 10);
    if me.is_multiple_of(2) {
        window.put(me, 0, &contents).expect("contents");
    }
    barrier(world);
    let segments = [Segment { target: 0, origin: 0, count: 0 }; 3];
    for target in ranks(world) {
        let length = window.len_at(target).expect("a member");
        for window in [&window, &none] {
            let length = if window.len_at(target) == Some(0) { 0 } else { length };
            for index in [0, length] {
                let place = Target { world, window, rank: target, base: index };
                let empty = Patch::new(index, &[0, 5], &[7, -3]);
                for form in Form::EVERY {
                    let run = || vec![(Shape::Run { target: 0, count: 0 }, Vec::new())];
                    let vector = || vec![(Shape::Vector(Vec::new()), vec![1_u32])];
                    for parts in [run(), vector(), [run(), vector()].concat()] {
                        place.put(form, parts.clone());
                        place.get(form, parts.clone());
                        place.accumulate(form, Update::Sum, parts);
                    }
                }
                let here = Patch::new(0, &[5, 0], &[-1, 2]);
                window.put(target, empty.with_buffer(&here), &[]).expect("an empty patch");
                window.get(target, empty.with_buffer(&Patch::packed(&[0])), &mut []).expect("an empty patch");
                window.accumulate(target, empty.with_buffer(&here), Update::Max, &[9]).expect("an empty patch");
                window.put(target, &segments, &[]).expect("empty segments");
                window.get(target, &segments, &mut [1]).expect("empty segments");
                window.accumulate(target, &[], Update::Xor, &[]).expect("no segments");
            }
        }
        assert!(none.put_one(target, 0, 1).is_err(), "there is no first element");
        assert!(none.fetch_add(target, 0, 1).is_err(), "there is no first word");
    }
    // Nobody waits for anything, and no handle is nothing too.
    assert_eq!(longarm::wait_any::<()>(&[]), None);
    assert_eq!(longarm::wait_some::<()>(&[]), Vec::<usize>::new());
    assert_eq!(longarm::wait_all::<()>([]), Ok(Vec::new()));
    world.scope(|_| ()).expect("an empty scope");
    barrier(world);
    if me.is_multiple_of(2) {
        assert_same(&window.get_vec(me, 0..10).expect("mine"), &contents, "after nothing");
    }
    let signals = world.allocate_collective::<u64>(1).expect("signals");
    none.put_signal_add(ahead(world, 1), 0, &[], (&signals, 0), 5).expect("a signal without data");
    signals.wait_until(0, longarm::Compare::Equal, 5).expect("a signal without data");
    barrier(world);
}

/// Every kind of operation with oneself as the target, in every form, and a copy within one's own part.
pub fn own_target(world: &World) {
    let me = world.rank();
    let window = world.allocate_collective::<u64>(5000).expect("a window");
    let mut dice = Dice::new(&[u64::from(me)]);
    let mut model = arbitrary::<u64>(&mut dice, 5000);
    window.put(me, 0, &model).expect("contents");
    let place = Target { world, window: &window, rank: me, base: 0 };
    for form in Form::EVERY {
        let source = arbitrary::<u64>(&mut dice, 3000);
        place.put(form, vec![(Shape::Run { target: 500, count: 3000 }, source.clone())]);
        model[500..3500].copy_from_slice(&source);
        let got = place.get(form, vec![(Shape::Run { target: 400, count: 4000 }, vec![0; 4000])]);
        for buffer in got.iter().flatten() {
            assert_same(buffer, &model[400..4400], format_args!("one's own elements as {form:?}"));
        }
        place.accumulate(
            form,
            Update::Sum,
            vec![(Shape::Run { target: 3000, count: 3000 - 1000 }, source[..2000].to_vec())],
        );
        for (to, from) in model[3000..].iter_mut().zip(&source[..2000]) {
            *to = to.wrapping_add(*from);
        }
    }
    assert_eq!(window.fetch_add(me, 7, 3).expect("an rmw"), model[7]);
    model[7] = model[7].wrapping_add(3);
    assert_eq!(window.start_swap(me, 8, 1).expect("an rmw").wait().expect("an rmw"), model[8]);
    model[8] = 1;
    // What is got from a part and put back further on, both ways, as a move within memory would do it.
    for (from, to) in [(100, 150), (1000, 400), (2000, 2001), (3001, 3000), (10, 10)] {
        let moved = window.get_vec(me, from..from + 900).expect("a get");
        window.put(me, to, &moved).expect("a put");
        model.copy_within(from..from + 900, to);
    }
    assert_same(&window.get_vec(me, 0..5000).expect("mine"), &model, "after operations on oneself");
    let signals = world.allocate_collective::<u64>(1).expect("signals");
    window.put_signal_set(me, 0, &model[..10], (&signals, 0), 77).expect("a signal to oneself");
    assert_eq!(signals.wait_until(0, longarm::Compare::NotEqual, 0), Ok(77));
    let mutexes = world.mutexes_collective(1).expect("mutexes");
    for _ in 0..10 {
        mutexes.lock(me, 0).expect("one's own mutex").unlock().expect("an unlock");
    }
    barrier(world);
    overlap(world);
}

/// Source and target are the same elements: pieces of one buffer that overlap, at both sides.
fn overlap(world: &World) {
    let window = world.allocate_collective::<u16>(1000).expect("a window");
    let target = ahead(world, 1);
    let source: Vec<u16> = (0..1000).collect();
    // Each piece reads what others read too.
    let segments: Vec<Segment> =
        (0..30).map(|piece| Segment { target: piece * 30, origin: piece * 5, count: 25 }).collect();
    window.put(target, &segments, &source).expect("pieces that share elements");
    let found = window.get_vec(target, 0..1000).expect("what was put");
    for (index, element) in found.iter().enumerate().take(900) {
        let (piece, within) = (index / 30, index % 30);
        assert_eq!(usize::from(*element), if within < 25 { piece * 5 + within } else { 0 }, "element {index}");
    }
    // A window of neighbours that overlap is read as rows: strides shorter than the rows.
    window.put(target, 0, &source).expect("contents");
    let mut rows = vec![0; 50 * 8];
    window
        .get(target, Patch::new(3, &[50, 8], &[2, 1]).with_buffer(&Patch::packed(&[50, 8])), &mut rows)
        .expect("rows");
    for (index, element) in rows.iter().enumerate() {
        assert_eq!(usize::from(*element), 3 + index / 8 * 2 + index % 8);
    }
    // Pieces that overlap at the target are all accumulated.
    let ones = [1_u32; 10];
    let sums = world.allocate_collective::<u32>(20).expect("a window");
    let segments = [(0, 10), (5, 10), (5, 1), (0, 10)].map(|(target, count)| Segment { target, origin: 0, count });
    sums.accumulate(target, &segments, Update::Sum, &ones).expect("pieces that overlap");
    let found = sums.get_vec(target, 0..20).expect("sums");
    assert_eq!(found, [2, 2, 2, 2, 2, 4, 3, 3, 3, 3, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
    // A stride of zero adds all to one place.
    let one = Patch::new(19, &[4, 10], &[0, 0]);
    sums.accumulate(target, one.with_buffer(&Patch::new(0, &[40], &[0])), Update::Scaled(3), &ones).expect("one place");
    assert_eq!(sums.get_one(target, 19).expect("the place"), 120);
    barrier(world);
}

/// Windows of bytes: every start and many lengths, and the same memory as elements of other types.
pub fn unaligned(world: &World) {
    let window = world.allocate_collective::<u8>(20_000).expect("a window");
    let target = ahead(world, 1);
    let mut dice = Dice::new(&[u64::from(world.rank())]);
    let mut model = vec![0_u8; 20_000];
    for start in 0..70 {
        let length = [0, 1, 3, 8, 31, 64, 100, 4097, 17_000][dice.below(9)];
        let skip = dice.below(9);
        let source = arbitrary::<u8>(&mut dice, skip + length);
        window.put(target, start, &source[skip..]).expect("bytes");
        model[start..start + length].copy_from_slice(&source[skip..]);
        let from = dice.below(100);
        let mut found = vec![0; skip + 5000];
        window.get(target, from, &mut found[skip..]).expect("bytes");
        assert_same(&found[skip..], &model[from..from + 5000], format_args!("bytes from {from} on"));
        // Every other byte, backwards, from an odd place.
        let odd = Patch::new(start + 400, &[200], &[-2]);
        window.put(target, odd.with_buffer(&Patch::new(0, &[200], &[0])), &source).unwrap_or_else(|error| {
            assert!(source.is_empty(), "{error}");
        });
        if let Some(first) = source.first() {
            (0..200).for_each(|step| model[start + 400 - 2 * step] = *first);
        }
    }
    assert_same(&window.get_vec(target, 0..20_000).expect("all"), &model, "bytes");
    barrier(world);
    let ours = world.allocate_collective::<u8>(8 * 3 + 7).expect("a window");
    let words = ours.cast::<u64>();
    assert_eq!((words.len_at(target), ours.cast::<[u8; 32]>().len_at(target)), (Some(3), Some(0)));
    words.put(target, 1, &[0x0807_0605_0403_0201]).expect("a word");
    assert_eq!(ours.get_vec(target, 7..17).expect("bytes"), [0, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
    assert_eq!(words.fetch_add(target, 1, 1).expect("an rmw"), 0x0807_0605_0403_0201);
    // The last whole word is inside; the rest behind it is no word.
    assert_eq!(words.fetch(target, 2), Ok(0));
    assert!(matches!(words.fetch(target, 3), Err(RmwError::Transfer(TransferError::OutsideWindow { .. }))));
    // Elements that lie across words and lines.
    let odd = ours.cast::<[u8; 5]>();
    odd.put(target, 1, &[[9; 5], [8; 5], [7; 5]]).expect("odd elements");
    assert_eq!(ours.get_vec(target, 4..21).expect("bytes"), [&[0_u8][..], &[9; 5], &[8; 5], &[7; 5], &[0]].concat());
    barrier(world);
}

/// The last element can be reached in every way, and one past it in none; what was refused changes nothing.
pub fn edges(world: &World) {
    let me = world.rank();
    // No multiple of anything.
    let length = 1237 + 16 * me as usize;
    let window = world.allocate_collective::<u64>(length).expect("a window");
    window.put(me, 0, &vec![7; length]).expect("contents");
    barrier(world);
    for target in ranks(world) {
        let length = 1237 + 16 * target as usize;
        let last = length - 1;
        // Only the rank before it writes, so that the outcome is known.
        if target == ahead(world, 1) {
            window.put_one(target, last, 8).expect("the last element");
            window.accumulate(target, last, Update::Sum, &[1]).expect("the last element");
            window.fetch_add(target, last, 1).expect("the last element");
            window
                .put(target, Patch::new(last, &[2], &[-1]).with_buffer(&Patch::packed(&[2])), &[11, 9])
                .expect("the last two");
            assert_eq!(window.get_vec(target, last - 1..last - 1 + 2), Ok(vec![9, 11]));
            let piece = [Segment { target: last, origin: 1, count: 1 }];
            window.put(target, &piece, &[1, 12]).expect("the last element");
            window.put(target, 0, &vec![7; length - 1]).expect("all but the last");
        }
        refused_outside(world, &window, target, length);
    }
    barrier(world);
    let mut expected = vec![7; length];
    expected[length - 1] = 12;
    assert_same(&window.get_vec(me, 0..length).expect("mine"), &expected, "at the edges");
    barrier(world);
}

fn refused_outside(world: &World, window: &longarm::Window<u64>, target: u32, length: usize) {
    let window_bytes = length as u64 * 8;
    for (index, count) in [
        (length, 1),
        (length - 1, 2),
        (0, length + 1),
        (length + 1, 1),
        (usize::MAX, 1),
        (usize::MAX / 8, 1),
        (usize::MAX / 8 - 1, 2),
        (1 << 61, 1),
        (1 << 60, 5000),
    ] {
        let mut buffer = vec![3; count];
        let place = Patch::new(index, &[count], &[1]);
        let packed = Patch::packed(&[count]);
        let segments = [Segment { target: 0, origin: 0, count: 1 }, Segment { target: index, origin: 0, count }];
        let mut refusals = vec![
            window.put(target, index, &buffer).err(),
            window.get(target, index, &mut buffer).err(),
            window.accumulate(target, index, Update::Sum, &buffer).err(),
            window.put(target, &segments, &buffer).err(),
            window.get(target, &segments, &mut buffer).err(),
            window.accumulate(target, &segments, Update::Sum, &buffer).err(),
            window.start_put(target, index, buffer.clone()).err(),
            window.start_get(target, index, buffer.clone()).err(),
            window.start_accumulate(target, index, Update::Max, buffer.clone()).err(),
            world.scope(|scope| scope.put(window, target, index, &buffer)).err(),
        ];
        if count == 1 {
            let rmws = [window.fetch_add(target, index, 1).err(), window.set(target, index, 1).err()];
            refusals.extend(rmws.into_iter().map(|refusal| match refusal {
                Some(RmwError::Transfer(error)) => Some(error),
                other => panic!("{other:?}"),
            }));
        }
        for refusal in refusals {
            match refusal {
                Some(TransferError::OutsideWindow { rank, window_bytes: found, offset, end, .. }) => {
                    assert_eq!((rank.0, found), (target, window_bytes));
                    assert!(end > window_bytes && offset <= end, "bytes {offset}..{end}");
                }
                other => panic!("{count} elements at {index} of {length} gave {other:?}"),
            }
        }
        // A patch that cannot even be described is refused for that.
        let strided = [
            window.put(target, place.with_buffer(&packed), &buffer).err(),
            window.get(target, place.with_buffer(&packed), &mut buffer).err(),
        ];
        for refusal in strided {
            let known = matches!(refusal, Some(TransferError::OutsideWindow { .. } | TransferError::BadShape { .. }));
            assert!(known, "{count} elements at {index} of {length} gave {refusal:?}");
        }
    }
    for nobody in [world.size(), u32::MAX] {
        let refusal = window.put_one(nobody, 0, 1);
        let known = matches!(refusal, Err(TransferError::NoSuchRank { rank, ranks, .. })
            if rank.0 == nobody && ranks == world.size());
        assert!(known, "{refusal:?}");
        assert!(window.get_one(nobody, 0).is_err() && window.fetch(nobody, 0).is_err());
        assert!(window.start_get(nobody, 0, vec![]).is_err());
    }
}

/// Parts of every size, from none to many pages, none of which reaches into its neighbour.
pub fn sizes(world: &World) {
    let length_of = |rank: u32| [0_usize, 1, 4096, 100_000, 511, 513, 77, 0][rank as usize % 8] + (rank as usize / 8);
    let me = world.rank();
    let window = world.allocate_collective::<Complex64>(length_of(me)).expect("a window");
    let contents = |rank: u32| arbitrary::<Complex64>(&mut Dice::new(&[u64::from(rank)]), length_of(rank));
    // The left neighbour fills each part up to its last byte.
    let right = ahead(world, 1);
    assert_eq!(window.len_at(right), Some(length_of(right)));
    window.put(right, 0, &contents(right)).expect("a part");
    barrier(world);
    for rank in ranks(world) {
        let found = window.get_vec(rank, 0..length_of(rank)).expect("a part");
        assert_same(&found, &contents(rank), format_args!("the part of rank {rank}"));
        assert!(window.get_one(rank, length_of(rank)).is_err(), "one past the part of rank {rank}");
    }
    barrier(world);
}

/// Descriptions that make no sense, and buffers that are too short: refused, with nothing changed.
pub fn impossible(world: &World) {
    let window = world.allocate_collective::<u32>(1000).expect("a window");
    let target = ahead(world, 1);
    let buffer = vec![1_u32; 100];
    let packed = Patch::packed(&[10, 10]);
    // Steps in front of the window.
    for wrong in [
        Patch::new(5, &[10], &[-1]),
        Patch::new(0, &[10, 10], &[10, -1]),
        Patch::new(50, &[2, 10], &[-60, 1]),
        Patch::new(0, &[usize::MAX, 2], &[1, 1]),
        Patch::new(0, &[usize::MAX, usize::MAX], &[0, 0]),
        Patch::new(0, &[2, 2], &[isize::MAX, isize::MAX]),
        Patch::new(999, &[2], &[isize::MIN]),
    ] {
        let refusals = [
            window.put(target, wrong.with_buffer(&packed), &buffer).err(),
            window.accumulate(target, wrong.with_buffer(&packed), Update::Sum, &buffer).err(),
            window.get(target, wrong.with_buffer(&packed), &mut buffer.clone()).err(),
            window.start_put(target, wrong.with_buffer(&packed), buffer.clone()).err(),
            // The same on the local side.
            window.put(target, packed.with_buffer(&wrong), &buffer).err(),
            window.get(target, packed.with_buffer(&wrong), &mut buffer.clone()).err(),
        ];
        for refusal in refusals {
            let known = matches!(
                refusal,
                Some(
                    TransferError::BadShape { .. }
                        | TransferError::LengthMismatch { .. }
                        | TransferError::OutsideWindow { .. }
                )
            );
            assert!(known, "{wrong:?} gave {refusal:?}");
        }
    }
    // The two sides differ, or the buffer is too short.
    let short = [
        window.put(target, Patch::packed(&[9]).with_buffer(&Patch::packed(&[10])), &buffer).err(),
        window.put(target, packed.with_buffer(&packed), &buffer[..99]).err(),
        window.get(target, packed.with_buffer(&packed), &mut [0; 99]).err(),
        window.put(target, &[Segment { target: 0, origin: 95, count: 6 }], &buffer).err(),
        window.get(target, &[Segment { target: 0, origin: usize::MAX, count: 1 }], &mut [0]).err(),
        window.start_put(target, &[Segment { target: 0, origin: 0, count: 101 }; 3], buffer.clone()).err(),
        world.scope(|scope| scope.put(&window, target, packed.with_buffer(&packed), &buffer[..50])).err(),
    ];
    for (number, refusal) in short.into_iter().enumerate() {
        assert!(matches!(refusal, Some(TransferError::LengthMismatch { .. })), "case {number} gave {refusal:?}");
    }
    // An error in a scope does not keep the others from being done.
    let outcome = world.scope(|scope| {
        scope.put(&window, target, 0, &buffer[..10]);
        scope.put(&window, target, 995, &buffer[..10]);
        scope.put(&window, target, 10, &buffer[..10]);
    });
    assert!(matches!(outcome, Err(TransferError::OutsideWindow { .. })));
    barrier(world);
    let mut expected = vec![0; 1000];
    expected[..20].fill(1);
    assert_same(&window.get_vec(world.rank(), 0..1000).expect("mine"), &expected, "after refusals");
    barrier(world);
}

/// A scope that panics is left when what it has begun is done, and all goes on.
pub fn panicking_scope(world: &World) {
    const WORDS: usize = 200_000;
    let window = world.allocate_collective::<u64>(WORDS).expect("a window");
    let me = world.rank();
    let word = |rank: u32, index: usize| u64::from(rank) << 32 | index as u64;
    let mine: Vec<u64> = (0..WORDS).map(|index| word(me, index)).collect();
    window.put(me, 0, &mine).expect("its own part");
    barrier(world);
    let mut targets = vec![vec![0; WORDS]; world.size() as usize];
    let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        world.scope(|scope| {
            for (rank, target) in (0..).zip(&mut targets) {
                scope.get(&window, rank, 0, target);
            }
            std::panic::panic_any(me);
        })
    }));
    let said = left.expect_err("the panic goes on").downcast::<u32>().expect("what it said");
    assert_eq!(*said, me);
    for (rank, target) in (0..).zip(&targets) {
        let expected: Vec<u64> = (0..WORDS).map(|index| word(rank, index)).collect();
        assert_same(target, &expected, format_args!("the part of rank {rank}"));
    }
    barrier(world);
}
