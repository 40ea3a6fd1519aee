//! A rank's own part of a window, in place.

use std::panic::{AssertUnwindSafe, catch_unwind};

use longarm::{Compare, Element, World};

use super::support::{Dice, ahead, arbitrary, assert_same, barrier, ranks};

/// Elements of every size are read and written; puts of others are seen, and theirs see what was stored.
pub fn in_place(world: &World) {
    elements::<u8>(world);
    elements::<u16>(world);
    elements::<f32>(world);
    elements::<f64>(world);
    elements::<[u8; 3]>(world);
    elements::<[u32; 3]>(world);
    elements::<[u64; 40]>(world);
    outside(world);
}

const COUNT: usize = 50;

fn elements<T: Element>(world: &World) {
    let window = world.allocate_collective::<T>(COUNT + 1).expect("a window");
    let mine = window.own_part().expect("the own part");
    assert_eq!((mine.len(), mine.is_empty(), mine.iter().len()), (COUNT + 1, false, COUNT + 1));
    let of = |rank: u32| -> Vec<T> { arbitrary(&mut Dice::new(&[u64::from(rank), size_of::<T>() as u64]), COUNT) };
    let here = of(world.rank());
    for (index, element) in here.iter().enumerate().take(20) {
        mine.store(index, *element);
    }
    mine.copy_from(20, &here[20..]);
    barrier(world);
    let left = ahead(world, world.size() - 1);
    assert_same(&window.get_vec(left, 0..COUNT).expect("a get"), &of(left), "what the left neighbour has stored");
    window.put_one(left, COUNT, here[0]).expect("a put");
    barrier(world);
    let from = of(ahead(world, 1))[0];
    assert_same(&[mine.load(COUNT)], &[from], "what the right neighbour has put");
    assert_same(&mine.iter().rev().collect::<Vec<T>>()[..1], &[from], "the same, from the end");
    let mut some = vec![T::new_zeroed(); 7];
    mine.copy_to(11, &mut some);
    assert_same(&some, &here[11..18], "some");
    assert_same(&mine.to_vec(3..COUNT), &here[3..], "a copy");
    mine.fill(5..9, here[1]);
    mine.update(9, |_| here[2]);
    let expected = [&here[..5], &[here[1]; 4], &[here[2]], &here[10..]].concat();
    assert_same(&mine.to_vec(0..COUNT), &expected, "what is filled, and nothing else");
    barrier(world);
}

fn outside(world: &World) {
    // Parts of different sizes: that of rank 0 has none.
    let window = world.allocate_collective::<u32>(world.rank() as usize).expect("a window");
    let mine = window.own_part().expect("the own part");
    let count = mine.len();
    assert_eq!((count, mine.is_empty()), (world.rank() as usize, world.rank() == 0));
    assert!(mine.get(count).is_none() && mine.get(usize::MAX).is_none() && mine.to_vec(count..count).is_empty());
    std::panic::set_hook(Box::new(|_| {}));
    let calls: [&dyn Fn(); 7] = [
        &|| assert_eq!(mine.load(count), 0),
        &|| mine.store(usize::MAX, 1),
        &|| mine.copy_from(count, &[1]),
        &|| mine.copy_to(0, &mut vec![0; count + 1]),
        &|| mine.fill(0..usize::MAX, 1),
        &|| drop(mine.to_vec(0..usize::MAX)),
        &|| assert_eq!(mine.fetch_add(count, 1), 0),
    ];
    for (number, call) in calls.iter().enumerate() {
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "call {number} reaches outside");
    }
    let _ = std::panic::take_hook();
    barrier(world);
    window.free_collective().expect("it is freed");
    assert!(window.own_part().is_err());
}

/// Updates in place meet those of all other ranks, and wake a thread that waits for the word.
pub fn together(world: &World) {
    let window = world.allocate_collective::<u64>(2).expect("a window");
    let mine = window.own_part().expect("the own part");
    let rounds = 200;
    for _ in 0..rounds {
        mine.fetch_add(0, 1);
        for rank in ranks(world).filter(|rank| *rank != world.rank()) {
            drop(window.start_fetch_add(rank, 0, 1).expect("an rmw"));
        }
    }
    barrier(world);
    assert_eq!(mine.load(0), rounds * u64::from(world.size()));
    barrier(world);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| window.wait_until(1, Compare::Equal, 3));
        for _ in 0..3 {
            mine.fetch_add(1, 1);
        }
        assert_eq!(waiter.join().expect("it ends").expect("the word comes"), 3);
    });
    let highest = u64::from(world.rank());
    assert_eq!((mine.fetch_max(1, highest + 10), mine.fetch_min(1, 1)), (3, highest + 10));
    assert_eq!((mine.swap(1, 6), mine.fetch_and(1, 3), mine.fetch_or(1, 8), mine.fetch_xor(1, 2)), (1, 6, 2, 10));
    assert_eq!((mine.compare_swap(1, 8, 9), mine.compare_swap(1, 8, 1), mine.load(1)), (8, 9, 9));
    barrier(world);
}
