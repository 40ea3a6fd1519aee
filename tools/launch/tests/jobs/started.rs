//! Calls that are started and awaited, several of them on one thread.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use futures_lite::future::{block_on, zip};
use longarm::error::{CollectiveError, HeapError, MutexError, Rank, RmwError, TransferError, WaitError, WindowError};
use longarm::{Compare, Reduction, World};

use super::support::{ahead, barrier, ranks};

/// All collectives give what the blocking ones do; those of a group take effect in their order, blocking ones among them.
pub fn collectives(world: &World) {
    let (me, size) = (u64::from(world.rank()), u64::from(world.size()));
    let root = world.size() / 2;
    let mine = |count: usize| -> Vec<u64> { (0..count as u64).map(|at| at * 100 + me).collect() };
    let sum =
        |count: usize| -> Vec<u64> { (0..count as u64).map(|at| at * 100 * size + size * (size - 1) / 2).collect() };
    block_on(async {
        for count in [1, 5, 3000] {
            let from_root = world.start_broadcast_collective(root, mine(count));
            let reduced = world.start_reduce_collective(root, Reduction::Sum, mine(count));
            let mut blocking = mine(count);
            world.allreduce_collective(Reduction::Sum, &mut blocking).expect("a sum");
            assert!(from_root.test() && reduced.test(), "those that were started before are over");
            assert_eq!(blocking, sum(count));
            let of_root: Vec<u64> = (0..count as u64).map(|at| at * 100 + u64::from(root)).collect();
            assert_eq!(from_root.await.expect("a broadcast"), of_root);
            let reduced = reduced.await.expect("a reduction");
            assert!(world.rank() != root || reduced == sum(count));
            assert_eq!(world.start_allreduce_collective(Reduction::Sum, mine(count)).await.expect("a sum"), sum(count));
            let all = world.start_allgather_collective(mine(count));
            let lists = world.start_allgatherv_collective(vec![me; me as usize]);
            let shares = world.start_alltoall_collective((0..size).map(|to| me * size + to).collect::<Vec<u64>>());
            let lengths = world.start_alltoallv_collective((0..size).map(|to| vec![me; to as usize]).collect());
            // Awaited in another order than they were started.
            assert_eq!(
                lengths.await.expect("lists"),
                (0..size).map(|from| vec![from; me as usize]).collect::<Vec<_>>()
            );
            assert_eq!(shares.await.expect("shares"), (0..size).map(|from| from * size + me).collect::<Vec<_>>());
            assert_eq!(
                lists.await.expect("lists"),
                (0..size).map(|from| vec![from; from as usize]).collect::<Vec<_>>()
            );
            assert_eq!(all.await.expect("all").len(), count * size as usize);
        }
        world.start_sync_collective().await.expect("all come");
        let wrong = world.start_broadcast_collective(world.size(), vec![0_u8]).await;
        assert!(matches!(wrong, Err(CollectiveError::BadArgument { .. })));
    });
    // What is left to itself takes effect all the same, and the world's end waits for it.
    drop(world.start_barrier_collective());
    drop(world.start_allreduce_collective(Reduction::Max, vec![me]));
}

/// Two groups, whose collectives the ranks start in different orders, on one thread: neither waits for the other.
pub fn crossed(world: &World) {
    let parity = world.rank() % 2;
    let first = world.split_collective(Some(0), 0).expect("a group").expect("all are in it");
    let second = world.split_collective(Some(0), 1).expect("a group").expect("all are in it");
    let executor = |work: &mut dyn FnMut()| work();
    executor(&mut || {
        for round in 0..20 {
            let order = Cell::new(Vec::new());
            let note = |name: char| order.set([order.take(), vec![name]].concat());
            let task = async |group: &longarm::Group, name: char| {
                group.start_barrier_collective().await.expect("a barrier");
                let sum = group.start_allreduce_collective(Reduction::Sum, vec![1_u32, round]).await.expect("a sum");
                assert_eq!(sum, [world.size(), round * world.size()]);
                note(name);
            };
            if parity == 0 {
                block_on(zip(task(&first, 'a'), task(&second, 'b')));
            } else {
                block_on(zip(task(&second, 'b'), task(&first, 'a')));
            }
            assert_eq!(order.take().len(), 2);
        }
    });
    // The same under tokio's executor, which has one thread: it would stand still if either blocked it.
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("an executor");
    runtime.block_on(async {
        let (one, other) = (first.clone(), second.clone());
        let tasks = [
            tokio::spawn(async move { one.start_barrier_collective().await }),
            tokio::spawn(async move { other.start_sync_collective().await }),
        ];
        for task in tasks {
            task.await.expect("no panic").expect("all come");
        }
    });
    barrier(world);
}

/// Waits for words and quiets are awaited beside each other on one thread; what one brings about ends the other.
pub fn words(world: &World) {
    let flags = world.allocate_collective::<u64>(4).expect("flags");
    let (me, right) = (world.rank(), ahead(world, 1));
    for round in 1..=10_u64 {
        block_on(async {
            let waits = async {
                let seen = flags.start_wait_until(0, Compare::GreaterOrEqual, round).await.expect("the word comes");
                // Only now does the other wait of this thread come to its end.
                flags.set(me, 1, round).expect("a word");
                seen
            };
            let sends = async {
                flags.put_one(right, 2, round).expect("a put");
                world.start_quiet_rank(right).await.expect("quiet");
                world.start_quiet().await.expect("quiet");
                flags.set(right, 0, round).expect("a signal");
                flags.start_wait_until_all(vec![1, 2], Compare::Equal, round).await.expect("both");
                flags.get_one(me, 2).expect("a look")
            };
            assert_eq!(zip(waits, sends).await, (round, round));
        });
        let places = flags.start_wait_until_some(vec![3, 0, 1], Compare::Equal, round).wait().expect("some");
        assert_eq!(places, [1, 2]);
        let place = flags.start_wait_until_any(vec![3, 1], Compare::Equal, round).wait().expect("any");
        assert_eq!(place, Some(1));
        barrier(world);
    }
    assert_eq!(flags.start_wait_until_any(Vec::new(), Compare::Equal, 0).wait(), Ok(None));
    // One that nobody waits for any more keeps nobody.
    drop(flags.start_wait_until(3, Compare::Equal, 1));
    let outside = flags.start_wait_until(4, Compare::Equal, 1).wait();
    assert!(matches!(outside, Err(WaitError::OutsideWindow { .. })));
    let nobody = world.start_quiet_rank(world.size()).wait();
    assert!(matches!(nobody, Err(TransferError::NoSuchRank { .. })));
    // A window that is freed ends its waits.
    let wait = flags.start_wait_until(3, Compare::Equal, 1);
    barrier(world);
    flags.free_collective().expect("it is freed");
    assert!(matches!(wait.wait(), Err(WaitError::Transfer(TransferError::FreedWindow { .. }))));
}

/// Tasks of one thread, and threads, want the same mutexes.
pub fn locks(world: &World) {
    let mutexes = world.mutexes_collective(1).expect("mutexes");
    let counters = world.allocate_collective::<u64>(1).expect("counters");
    let rounds = if world.size() > 4 { 4 } else { 25 };
    let task = async || {
        for _ in 0..rounds {
            for host in ranks(world) {
                let guard = mutexes.start_lock(host, 0).await.expect("a lock");
                let value = counters.get_one(host, 0).expect("a look");
                // Other tasks of this thread go on meanwhile, and do not come in.
                futures_lite::future::yield_now().await;
                counters.put_one(host, 0, value + 1).expect("one more");
                world.start_quiet_rank(host).await.expect("quiet before unlock");
                guard.start_unlock().await.expect("an unlock");
            }
        }
    };
    let trying = async || {
        for _ in 0..rounds {
            for host in ranks(world) {
                let guard = loop {
                    match mutexes.start_try_lock(host, 0).await.expect("an answer") {
                        Some(guard) => break guard,
                        None => futures_lite::future::yield_now().await,
                    }
                };
                let value = counters.get_one(host, 0).expect("a look");
                futures_lite::future::yield_now().await;
                counters.put_one(host, 0, value + 1).expect("one more");
                world.start_quiet_rank(host).await.expect("quiet before unlock");
                guard.unlock().expect("an unlock");
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| block_on(task()));
        block_on(zip(task(), trying()));
    });
    barrier(world);
    assert_eq!(counters.get_one(world.rank(), 0), Ok(3 * rounds * u64::from(world.size())));
    given_up(world, &mutexes);
    let unknown = MutexError::UnknownMutex { host: Rank(0), number: 1, count: 1 };
    assert_eq!(mutexes.start_lock(0, 1).wait().err(), Some(unknown.clone()));
    assert_eq!(mutexes.start_try_lock(0, 1).wait().err(), Some(unknown));
    barrier(world);
    mutexes.free_collective().expect("the mutexes are freed");
    assert!(matches!(mutexes.start_lock(0, 0).wait(), Err(MutexError::Transfer(_))));
}

/// Windows, groups, mutexes and the heap are made and freed while the thread goes on, in the order in which that was started, blocking
/// calls among it.
pub fn memory_and_groups(world: &World) {
    let (me, size, right) = (world.rank(), world.size(), ahead(world, 1));
    let everybody: Vec<u32> = ranks(world).collect();
    let backwards: Vec<u32> = everybody.iter().rev().copied().collect();
    block_on(async {
        let first = world.start_allocate_collective::<u64>(3);
        let half = world.start_split_collective(Some(me % 2), i64::from(size - me));
        let heap = world.start_heap_collective();
        // None of these waits for the world's; of the same list there are several at once.
        let lists = [world.start_subgroup_collective(&everybody), world.start_subgroup_collective(&backwards)];
        let same = world.subgroup_collective(&everybody).expect("a group");
        let second = world.allocate_collective::<u64>(1).expect("memory is enough");
        assert!(first.test() && half.test() && heap.test(), "those that were started before are over");
        let (first, half) = (first.await.expect("a window"), half.await.expect("a group").expect("a color gives one"));
        first.put(right, 0, &[1, 2, 3]).expect("a put");
        second.put_one(right, 0, u64::from(me)).expect("a put");
        assert_eq!(half.members().len(), half.size() as usize);
        assert!(half.members().is_sorted_by(|one, next| one > next), "by their keys");
        for (list, expected) in lists.into_iter().zip([&everybody, &backwards]) {
            let group = list.await.expect("a group");
            assert_eq!(&group.members(), expected);
            group.start_barrier_collective().await.expect("a barrier");
        }
        same.start_sync_collective().await.expect("all come");
        assert_eq!(first.get_vec(me, 0..3), Ok(vec![1, 2, 3]));
        let freed = first.start_free_collective();
        let again = first.start_free_collective();
        freed.await.expect("it is freed");
        assert!(matches!(again.await, Err(WindowError::FreedWindow { .. })) && first.is_freed());
        let heap = heap.await.expect("a heap");
        let blocks = [heap.start_allocate_collective(100), heap.start_allocate_aligned_collective(4096, 1)];
        let [small, page] = blocks.map(|block| block.wait().expect("a block"));
        assert_eq!((small.bytes(), page.offset() % 4096), (100, 0));
        heap.window::<u8>().put(right, small.offset(), &[7; 100]).expect("a put");
        let grown = heap.start_reallocate_collective(small, 10_000).await.expect("there is room");
        assert_eq!(heap.window::<u8>().get_one(me, grown.offset() + 99), Ok(7));
        let (error, grown) = heap.start_reallocate_collective(grown, usize::MAX).await.expect_err("there is none");
        assert!(matches!(error, HeapError::Exhausted { .. }));
        for block in [grown, page] {
            heap.start_free_collective(block).await.expect("it is given back");
        }
        assert_eq!(heap.free_bytes(), heap.bytes());
        let mutexes = world.start_mutexes_collective(1).await.expect("mutexes");
        mutexes.start_lock(right, 0).await.expect("a lock").unlock().expect("an unlock");
        mutexes.start_free_collective().await.expect("they are freed");
        let large = world.start_allocate_collective::<u64>(usize::MAX).await;
        assert!(matches!(large, Err(WindowError::TooLarge { .. })));
        let twice = world.start_subgroup_collective(&[me, me]).await;
        assert!(matches!(twice, Err(CollectiveError::BadMember { .. })));
        second.free_collective().expect("it is freed");
    });
}

/// Puts with a signal go on beside each other; whoever awaits the signals finds all bytes. Memory in no window is exposed and taken
/// back while the thread goes on.
pub fn signals_and_exposed(world: &World) {
    const LENGTHS: [usize; 4] = [0, 1, 3000, 100_000];
    let total: usize = LENGTHS.iter().sum();
    let data = world.allocate_collective::<u64>(total).expect("data");
    let signals = world.allocate_collective::<u64>(2).expect("signals");
    let (me, right) = (world.rank(), ahead(world, 1));
    let left = ahead(world, world.size() - 1);
    let value = |rank: u32, round: u64| u64::from(rank) << 32 | round;
    let rounds = if world.size() > 4 { 4 } else { 12 };
    for round in 1..=rounds {
        block_on(async {
            let mut at = 0;
            let puts = LENGTHS.map(|length| {
                let source = vec![value(me, round); length];
                let put = data.start_put_signal_add(right, at, source, (&signals, 0), 1).expect("a put with signal");
                at += length;
                put
            });
            let last = data.start_put_signal_set(right, 0, Vec::new(), (&signals, 1), round).expect("a signal alone");
            let sum = round * LENGTHS.len() as u64;
            signals.start_wait_until(0, Compare::Equal, sum).await.expect("all signals");
            signals.start_wait_until(1, Compare::Equal, round).await.expect("the last one");
            let found = data.get_vec(me, 0..total).expect("one's own part");
            assert!(found.iter().all(|element| *element == value(left, round)), "round {round}");
            for (put, length) in puts.into_iter().zip(LENGTHS) {
                assert_eq!(put.await.expect("the buffer comes back"), vec![value(me, round); length]);
            }
            last.await.expect("nothing comes back");
            world.start_barrier_collective().await.expect("the next round");
        });
    }
    let outside = data.start_put_signal_set(right, 0, vec![1], (&signals, 2), 1).map(drop);
    assert!(matches!(outside, Err(RmwError::Transfer(TransferError::OutsideWindow { .. }))), "{outside:?}");
    block_on(async {
        let mine = vec![me; 5000 + me as usize];
        let address = mine.as_ptr().addr();
        let exposing = world.start_expose_collective(mine);
        let summing = world.start_allreduce_collective(Reduction::Sum, vec![1_u32]);
        assert_eq!(summing.await.expect("behind that"), [world.size()]);
        assert!(exposing.test(), "what was started before is over");
        let exposed = exposing.await.expect("memory can be exposed");
        for rank in ranks(world).filter(|rank| world.node_of(*rank) == Some(world.node())) {
            exposed.put(rank, me as usize, &[me + 1000]).expect("a neighbour's memory");
        }
        let mine = exposed.start_withdraw_collective().await.expect("all of them have written");
        assert_eq!((mine.len(), mine.as_ptr().addr()), (5000 + me as usize, address));
        for (index, element) in (0..).zip(&mine) {
            let is_written = world.node_of(index) == Some(world.node());
            assert_eq!(*element, if is_written { index + 1000 } else { me }, "element {index} of rank {me}");
        }
    });
}

/// Who asked for a mutex and went away, in whatever state, leaves it to others.
fn given_up(world: &World, mutexes: &longarm::Mutexes) {
    for host in ranks(world) {
        if world.rank() == 0 {
            let guard = mutexes.lock(host, 0).expect("a lock");
            let mut behind = pin!(mutexes.start_lock(host, 0));
            assert!(behind.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(mutexes.start_lock(host, 0)); // behind that
            barrier(world); // The others ask now, and give up.
            barrier(world);
            guard.unlock().expect("an unlock");
            block_on(behind).expect("its turn").unlock().expect("an unlock");
        } else {
            barrier(world);
            let mut asked = Box::pin(mutexes.start_lock(host, 0));
            assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(asked);
            assert!(mutexes.start_try_lock(host, 0).wait().expect("an answer").is_none(), "rank 0 has it");
            barrier(world);
        }
        // All get it, also those that had given it up.
        mutexes.lock(host, 0).expect("a lock").unlock().expect("an unlock");
        drop(mutexes.start_lock(host, 0));
        drop(mutexes.start_try_lock(host, 0));
        mutexes.start_lock(host, 0).wait().expect("a lock").unlock().expect("an unlock");
        barrier(world);
    }
}
