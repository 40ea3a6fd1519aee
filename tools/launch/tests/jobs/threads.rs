//! Several threads of a rank issue operations of all kinds to all targets at once.

use longarm::{Handle, Update, Window, World, wait_all};

use super::form::{Form, Target};
use super::shape::Shape;
use super::support::{Dice, arbitrary, assert_same, barrier, ranks};

const THREADS: usize = 4;
/// Elements of each thread's area in every part.
const AREA: usize = 4000;

pub fn together(world: &World) {
    let all = THREADS * world.size() as usize;
    let areas = world.allocate_collective::<u64>(all * AREA).expect("areas");
    let counters = world.allocate_collective::<u64>(4).expect("counters");
    let mutexes = world.mutexes_collective(1).expect("mutexes");
    let rounds = if world.size() > 4 { 6 } else { 30 };
    let mut locked = 0;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (areas, counters) = (&areas, &counters);
                scope.spawn(move || busy(world, areas, counters, thread, rounds))
            })
            .collect();
        // The main thread has its own business meanwhile: a mutex, which belongs to the rank, and collectives.
        for _ in 0..rounds {
            let guard = mutexes.lock(0, 0).expect("a lock");
            let value = counters.get_one(0, 3).expect("a look");
            counters.put_one(0, 3, value + 1).expect("one more");
            world.quiet_rank(0).expect("quiet before unlock");
            guard.unlock().expect("an unlock");
            locked += 1;
            let mut sum = [1_u64];
            world.allreduce_collective(longarm::Reduction::Sum, &mut sum).expect("a sum");
            assert_eq!(sum[0], u64::from(world.size()));
        }
        threads.into_iter().for_each(|thread| thread.join().expect("a thread of a rank"));
    });
    barrier(world);
    let total = (all * rounds) as u64;
    let mine = counters.get_vec(world.rank(), 0..3).expect("the counters");
    assert_eq!(mine, [total, total * 3, 4 * total], "counters of rank {}", world.rank());
    assert_eq!(counters.get_one(0, 3).expect("the locked counter"), locked * u64::from(world.size()));
    barrier(world);
}

fn busy(world: &World, areas: &Window<u64>, counters: &Window<u64>, thread: usize, rounds: usize) {
    let mut dice = Dice::new(&[u64::from(world.rank()), thread as u64]);
    let base = (world.rank() as usize * THREADS + thread) * AREA;
    for round in 0..rounds {
        let mut open: Vec<Handle<u64>> = Vec::new();
        for target in ranks(world) {
            counters.fetch_add(target, 0, 1).expect("an rmw");
            counters.accumulate(target, 1, Update::Sum, &[3]).expect("an accumulate");
            open.extend((0..4).map(|_| counters.start_fetch_add(target, 2, 1).expect("an rmw")));
            let form = Form::EVERY[(round + thread + target as usize) % Form::EVERY.len()];
            let count = [1, 100, 2500, AREA][dice.below(4)];
            let source = arbitrary::<u64>(&mut dice, count);
            let place = Target { world, window: areas, rank: target, base };
            let shape = Shape::Run { target: 0, count };
            place.put(form, vec![(shape.clone(), source.clone())]);
            place.accumulate(form, Update::Xor, vec![(shape.clone(), vec![u64::MAX; count])]);
            if let Some(got) = place.get(form, vec![(shape, vec![0; count])]) {
                let expected: Vec<u64> = source.iter().map(|word| !word).collect();
                assert_same(&got[0], &expected, format_args!("thread {thread} at rank {target} as {form:?}"));
            }
            if dice.below(4) == 0 {
                world.quiet_rank(target).expect("quiet");
            }
        }
        wait_all(open).expect("all rmws");
    }
    world.quiet().expect("quiet");
}
