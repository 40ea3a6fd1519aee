//! A rank that computes does not delay what others do with its memory. If it did, these jobs would not end.

use std::path::PathBuf;

use longarm::{Compare, Update, World};

use super::support::{assert_same, barrier, compute, ranks};

/// Many operations of every kind towards a rank, each of which needs an answer.
fn visit(world: &World, window: &longarm::Window<u64>, target: u32) {
    let size = world.size() as usize;
    let mine = 1 + world.rank() as usize;
    let rounds = if world.size() > 4 { 20 } else { 100 };
    let block = vec![u64::from(world.rank()); 3000];
    for round in 1..=rounds {
        assert_eq!(window.fetch_add(target, mine, 1).expect("an rmw"), round - 1);
        window.accumulate(target, 0, Update::Sum, &[1]).expect("an accumulate");
        window.put(target, 1 + size + mine * 3000, &block).expect("a put");
        world.quiet_rank(target).expect("quiet");
        assert_eq!(window.get_one(target, mine).expect("a get"), round);
        let found = window.get_vec(target, 1 + size + mine * 3000..1 + size + mine * 3000 + 3000).expect("a get");
        assert_same(&found, &block, "while the target computes");
    }
}

fn window(world: &World) -> longarm::Window<u64> {
    let size = world.size() as usize;
    world.allocate_collective(1 + size + (size + 2) * 3000).expect("a window")
}

/// The rank makes no call of longarm at all. What ends its computation is a file, which the last of the others makes.
pub fn computing(world: &World) {
    let window = window(world);
    let mut process = [std::process::id()];
    world.broadcast_collective(0, &mut process).expect("a number for the file");
    let path = |computer: u32| -> PathBuf {
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("computing-{}-{computer}", process[0]))
    };
    // A leader of a node, and one that is none where there is one.
    for computer in [0, world.size() - 1] {
        barrier(world);
        if world.rank() == computer {
            while !path(computer).exists() {
                compute(20_000);
            }
            std::fs::remove_file(path(computer)).expect("the file is there");
        } else {
            visit(world, &window, computer);
            // The last one to be done, as told by the computing rank's own memory.
            let place = 1 + world.size() as usize;
            if window.fetch_add(computer, place, 1).expect("an rmw") == u64::from(world.size()) - 2 {
                std::fs::write(path(computer), "").expect("a file");
            }
        }
        barrier(world);
        if world.rank() == computer {
            let visits = if world.size() > 4 { 20 } else { 100 };
            let found = window.get_one(computer, 0).expect("the sum");
            assert_eq!(found, visits * u64::from(world.size() - 1));
        }
    }
    barrier(world);
}

/// The rank computes for long, looks at a word of its own memory now and then, and ends when it has changed.
pub fn looking(world: &World) {
    let window = window(world);
    let done = world.allocate_collective::<u64>(1).expect("a window");
    for computer in ranks(world).take(4) {
        barrier(world);
        let before = window.get_one(computer, 0).expect("the sum");
        barrier(world);
        if world.rank() == computer {
            let others = u64::from(world.size() - 1);
            while done.get_one(computer, 0).expect("a look") < others {
                compute(200_000);
            }
            let visits = if world.size() > 4 { 20 } else { 100 };
            assert_eq!(window.get_one(computer, 0).expect("the sum") - before, visits * others);
        } else {
            // Each rank's counter starts anew.
            visit(world, &window, computer);
            world.quiet_rank(computer).expect("quiet");
            done.fetch_add(computer, 0, 1).expect("an rmw");
        }
    }
    barrier(world);
    assert!(done.test_until(0, Compare::GreaterOrEqual, 0).expect("a look"));
}

/// Messages that nobody takes in: more than there are cells, and no more than a connection may have under way beyond them.
const UNREAD: u64 = 400;

/// A rank computes until its neighbour has what a rank of another node puts, reads and updates there. That one has sent the
/// computing rank more mail before than its inbox holds.
pub fn beside_a_full_inbox(world: &World) {
    const FLAG: usize = 4096;
    let (computer, neighbour, origin) = (0, 1, world.size() - 1);
    let node_of = |rank| world.node_of(rank).expect("there is such a rank");
    assert!(node_of(computer) == node_of(neighbour) && node_of(computer) != node_of(origin));
    let window = world.allocate_collective::<u64>(FLAG + 1).expect("a window");
    barrier(world);
    let me = world.rank();
    if me == origin {
        (0..UNREAD).for_each(|number| world.send_tagged(computer, 7, &[number as u8; 1000]).expect("it is sent"));
        for round in 1..=20 {
            let words = vec![round; FLAG];
            window.put(neighbour, 0, &words).expect("a put");
            world.quiet_rank(neighbour).expect("quiet");
            assert_eq!(window.get_vec(neighbour, 0..FLAG).expect("a get"), words);
            window.fetch_add(neighbour, FLAG, 1).expect("an rmw");
        }
    } else if me == neighbour {
        window.wait_until(FLAG, Compare::GreaterOrEqual, 20).expect("the last update");
        window.put(computer, FLAG, &[1]).expect("a put on the node");
    } else if me == computer {
        while window.get_one(computer, FLAG).expect("a look") == 0 {
            compute(20_000);
        }
        for number in 0..UNREAD {
            let (_, body) = world.receive_tagged(Some(origin), 7).expect("it was sent");
            assert_eq!(body, [number as u8; 1000]);
        }
    }
    barrier(world);
}

/// Two ranks of different nodes send each other long messages, and many of them, before either takes one in.
pub fn mail_both_ways(world: &World) {
    let (me, last) = (world.rank(), world.size() - 1);
    let bodies = [3, 70_000, 64 << 10, 1_000_000, 100, 300_000].map(|bytes| vec![me as u8; bytes]);
    if me == 0 || me == last {
        let other = last - me;
        bodies.iter().for_each(|body| world.send_tagged(other, 9, body).expect("it is sent"));
        for mine in &bodies {
            let (_, body) = world.receive_tagged(Some(other), 9).expect("it was sent");
            assert!(body.len() == mine.len() && body.iter().all(|byte| *byte == other as u8));
        }
    }
    barrier(world);
}
