//! Order and completion: program order to one place, fence, quiet, quiet_rank, barrier, sync.

use longarm::{Handle, Update, Window, World};

use super::support::{self, Dice, ahead, arbitrary, assert_same, ranks};

/// Long chains of different operations, blocking and not, small and large, to overlapping places of one rank, with
/// nothing waited for in between. Each place belongs to one origin, so that the end is known.
pub fn program_order(world: &World) {
    const ELEMENTS: usize = 5000;
    let window = world.allocate_collective::<u64>(ELEMENTS * world.size() as usize).expect("a window");
    let base = world.rank() as usize * ELEMENTS;
    let mut dice = Dice::new(&[u64::from(world.rank()), 3]);
    let chains = if world.size() > 4 { 8 } else { 24 };
    for chain in 0..chains {
        let target = ahead(world, chain);
        let mut model = arbitrary::<u64>(&mut dice, ELEMENTS);
        window.put(target, base, &model).expect("the start");
        let mut open: Vec<Handle<Vec<u64>>> = Vec::new();
        for step in 0..60 {
            step_of_chain((&window, target, base), &mut model, &mut dice, &mut open);
            if step % 20 == 19 {
                world.fence();
            }
        }
        let found = window.get_vec(target, base..base + ELEMENTS).expect("the end");
        assert_same(&found, &model, format_args!("chain {chain} to rank {target}"));
        open.into_iter().for_each(|handle| drop(handle.wait().expect("a handle")));
    }
    support::barrier(world);
}

fn step_of_chain(
    (window, target, base): (&Window<u64>, u32, usize),
    model: &mut [u64],
    dice: &mut Dice,
    open: &mut Vec<Handle<Vec<u64>>>,
) {
    let count = [1, 1, 8, 100, 2048, 2500][dice.below(6)];
    let at = dice.below(model.len() - count + 1);
    let source = arbitrary::<u64>(dice, count);
    match dice.below(8) {
        0 => {
            window.put(target, base + at, &source).expect("a put");
            model[at..at + count].copy_from_slice(&source);
        }
        1 => {
            model[at..at + count].copy_from_slice(&source);
            open.push(window.start_put(target, base + at, source).expect("a put"));
        }
        2 | 3 => {
            for (to, from) in model[at..].iter_mut().zip(&source) {
                *to = to.wrapping_add(*from);
            }
            open.push(window.start_accumulate(target, base + at, Update::Sum, source).expect("an accumulate"));
        }
        4 => {
            for (to, from) in model[at..].iter_mut().zip(&source) {
                *to ^= from;
            }
            window.accumulate(target, base + at, Update::Xor, &source).expect("an accumulate");
        }
        5 => {
            assert_eq!(window.fetch_add(target, base + at, source[0]).expect("an rmw"), model[at]);
            model[at] = model[at].wrapping_add(source[0]);
        }
        6 => {
            drop(window.start_swap(target, base + at, source[0]).expect("an rmw"));
            model[at] = source[0];
        }
        _ => {
            let found = window.get_vec(target, base + at..base + at + count).expect("a get");
            assert_same(&found, &model[at..at + count], "in the middle of a chain");
        }
    }
}

/// After quiet_rank or quiet a third rank sees everything. It is told by a collective message, which goes another way.
pub fn quiet(world: &World) {
    // Megabytes take a target's server several turns, in which it also serves the others' messages.
    const ELEMENTS: usize = 600_000;
    let window = world.allocate_collective::<u32>(ELEMENTS + 2).expect("a window");
    for round in 0..world.size().min(6) * 3 {
        // In each round one rank writes to all, and all look at what the others got.
        let writer = round % world.size();
        let contents = |target: u32| {
            let count = [3, 5000, ELEMENTS][(round / world.size().min(6)) as usize % 3];
            arbitrary::<u32>(&mut Dice::new(&[u64::from(round), u64::from(target)]), count)
        };
        if world.rank() == writer {
            for target in ranks(world) {
                let source = contents(target);
                match round % 3 {
                    0 => window.put(target, 1, &source).expect("a put"),
                    1 => drop(window.start_put(target, 1, source).expect("a put")),
                    _ => std::mem::forget(window.start_accumulate(target, 1, Update::Replace, source).expect("a put")),
                }
                if round % 2 == 0 {
                    world.quiet_rank(target).expect("quiet");
                }
            }
            if round % 2 == 1 {
                world.quiet().expect("quiet");
            }
        }
        // Sync completes nothing by itself: it is quiet that did.
        world.sync_collective().expect("the barrier");
        for target in [world.rank(), ahead(world, 1)] {
            let expected = contents(target);
            let found = window.get_vec(target, 1..1 + expected.len()).expect("a look");
            assert_same(&found, &expected, format_args!("round {round}, at rank {target}"));
        }
        world.sync_collective().expect("the next round");
    }
    let nobody = world.quiet_rank(world.size());
    assert!(matches!(nobody, Err(longarm::error::TransferError::NoSuchRank { ranks, .. }) if ranks == world.size()));
    support::barrier(world);
}

/// All ranks issue everything without waiting for anything; after the barrier all of it is there.
pub fn barrier(world: &World) {
    let size = world.size() as usize;
    let block = 3000;
    let window = world.allocate_collective::<u64>(size * block).expect("a window");
    let contents = |round: u64, origin: u32, target: u32| {
        arbitrary::<u64>(&mut Dice::new(&[round, u64::from(origin), u64::from(target)]), block)
    };
    for round in 0..8 {
        for target in ranks(world) {
            let source = contents(round, world.rank(), target);
            let index = world.rank() as usize * block;
            if round % 2 == 0 {
                drop(window.start_put(target, index, source).expect("a put"));
            } else {
                window.put(target, index, &source).expect("a put");
            }
        }
        support::barrier(world);
        for origin in ranks(world) {
            let found =
                window.get_vec(world.rank(), origin as usize * block..origin as usize * block + block).expect("mine");
            assert_same(&found, &contents(round, origin, world.rank()), format_args!("round {round} of rank {origin}"));
        }
        support::barrier(world);
    }
    // A barrier of one is allowed too, and so are many in a row.
    for _ in 0..50 {
        world.sync_collective().expect("a barrier");
        support::barrier(world);
    }
}
