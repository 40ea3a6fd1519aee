//! Active messages: words, payloads, replies, order, late handlers, and handlers beside computation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use longarm::World;
use longarm::error::MessageError;

use super::support::{Dice, ahead, arbitrary, assert_same, barrier, ranks};

/// Waits in longarm for something that handlers do.
fn until(world: &World, done: impl Fn() -> bool) {
    while !done() {
        // A call that works for longarm.
        world.quiet().expect("quiet");
        std::thread::yield_now();
    }
}

fn payload(source: u32, number: u64, bytes: usize) -> Vec<u8> {
    arbitrary(&mut Dice::new(&[u64::from(source), number]), bytes)
}

/// All numbers of words, and payloads around every limit, from all to all, and to oneself.
pub fn sizes(world: &World) {
    const BYTES: [usize; 12] = [0, 1, 7, 64, 3900, 4096, 5000, 16_384, 16_385, 65_537, (1 << 20) - 1, 1 << 20];
    let arrived = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&arrived);
    let me = world.rank();
    world
        .register_handler(1, move |message| {
            let (words, bytes) = (message.arguments(), message.payload());
            let number = if words.is_empty() { bytes.len() as u64 } else { words[0] };
            let expected: Vec<u64> = (0..words.len() as u64).map(|index| number + index * (u64::MAX / 16)).collect();
            assert_eq!(words, expected, "words of rank {}", message.source());
            assert_same(bytes, &payload(message.source(), number, bytes.len()), "a payload");
            counting.fetch_add(1 + (bytes.len() as u64 + 1) * 1000 + words.len() as u64, Ordering::SeqCst);
        })
        .expect("a handler");
    let mut expected = 0;
    let words_of = |number: u64, count: usize| -> Vec<u64> {
        (0..count as u64).map(|index| number.wrapping_add(index.wrapping_mul(u64::MAX / 16))).collect()
    };
    for target in ranks(world) {
        for count in 0..=16 {
            // Every count with some payload, and every payload with some count.
            for (place, bytes) in BYTES.into_iter().enumerate() {
                let large = bytes > 70_000;
                let wanted = if large { place + count == BYTES.len() + 4 } else { (place + count) % 4 == 0 };
                if wanted && !(large && world.size() > 5 && target != ahead(world, 5)) {
                    let number = if count == 0 { bytes as u64 } else { (count * 100 + place) as u64 };
                    let body = payload(me, number, bytes);
                    world.send_message(target, 1, &words_of(number, count), &body).expect("a message");
                }
            }
        }
    }
    for source in ranks(world) {
        for count in 0..=16 {
            for (place, bytes) in BYTES.into_iter().enumerate() {
                let large = bytes > 70_000;
                let wanted = if large { place + count == BYTES.len() + 4 } else { (place + count) % 4 == 0 };
                if wanted && !(large && world.size() > 5 && me != (source + 5) % world.size()) {
                    expected += 1 + (bytes as u64 + 1) * 1000 + count as u64;
                }
            }
        }
    }
    until(world, || arrived.load(Ordering::SeqCst) >= expected);
    barrier(world);
    assert_eq!(arrived.load(Ordering::SeqCst), expected);
    let too_many = world.send_message(me, 1, &[0; 17], &[]);
    assert_eq!(too_many, Err(MessageError::TooManyArguments { found: 17 }));
    assert!(matches!(world.register_handler(1, |_| ()), Err(MessageError::HandlerExists { handler: 1 })));
    assert!(matches!(world.send_message(world.size(), 1, &[], &[]), Err(MessageError::Transfer(_))));
    barrier(world);
}

/// Requests are answered from within the handler, small and large, and an answer cannot be answered.
pub fn replies(world: &World) {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let (keeping, me) = (Arc::clone(&answers), world.rank());
    world
        .register_handler(10, move |message| {
            let doubled: Vec<u64> = message.arguments().iter().map(|word| word * 2).collect();
            let turned: Vec<u8> = message.payload().iter().rev().copied().collect();
            message.reply(11, &doubled, &turned).expect("a reply");
            if message.arguments()[0] % 5 == 0 {
                message.reply(11, &[u64::MAX], &[]).expect("a second reply");
            }
        })
        .expect("a handler");
    world
        .register_handler(11, move |message| {
            assert_eq!(message.reply(10, &[], &[]), Err(MessageError::ReplyToReply));
            let answer = (message.source(), message.arguments().to_vec(), message.payload().to_vec());
            keeping.lock().expect("no panic").push(answer);
        })
        .expect("a handler");
    let rounds = if world.size() > 5 { 10 } else { 40_u64 };
    let bytes_of = |round: u64| [0, 3, 5000, 40_000][round as usize % 4];
    for round in 0..rounds {
        for target in ranks(world) {
            world.send_message(target, 10, &[round, 7], &payload(me, round, bytes_of(round))).expect("a message");
        }
    }
    let second = rounds.div_ceil(5);
    let count = (rounds + second) as usize * world.size() as usize;
    until(world, || answers.lock().expect("no panic").len() >= count);
    barrier(world);
    let answers = answers.lock().expect("no panic");
    assert_eq!(answers.len(), count);
    for source in ranks(world) {
        let theirs: Vec<_> = answers.iter().filter(|answer| answer.0 == source).collect();
        let direct: Vec<_> = theirs.iter().filter(|answer| answer.1.len() == 2).collect();
        assert_eq!(theirs.len() - direct.len(), second as usize, "second replies of rank {source}");
        for (round, answer) in (0..rounds).zip(&direct) {
            assert_eq!(answer.1, [round * 2, 14], "replies of rank {source} are in order");
            let mut expected = payload(me, round, bytes_of(round));
            expected.reverse();
            assert_same(&answer.2, &expected, "the payload of a reply");
        }
    }
}

/// A rank waits in collectives with a lock that its handlers take: they run on longarm's own thread, and wait for it there.
pub fn locks(world: &World) {
    let rounds = if world.size() > 5 { 5 } else { 30 };
    let counter = Arc::new(Mutex::new(0));
    let counting = Arc::clone(&counter);
    world
        .register_handler(30, move |_| {
            assert_eq!(std::thread::current().name(), Some("longarm-messages"));
            *counting.lock().expect("no panic") += 1;
        })
        .expect("a handler");
    for round in 0..rounds {
        let held = counter.lock().expect("no panic");
        for target in ranks(world) {
            world.send_message(target, 30, &[round], &[7; 5000]).expect("a message");
        }
        // By the second one all messages of the first are there.
        barrier(world);
        barrier(world);
        drop(held);
    }
    let expected = rounds * u64::from(world.size());
    until(world, || *counter.lock().expect("no panic") == expected);
    barrier(world);
}

/// Who waits for what handlers do is woken by it, whichever thread has run them.
pub fn waits_for_handlers(world: &World) {
    let rounds = if world.size() > 5 { 20 } else { 200 };
    let (me, answers) = (world.rank(), Arc::new(AtomicU64::new(0)));
    world
        .register_handler(31, |message| message.reply(32, message.arguments(), &[]).expect("a reply"))
        .expect("a handler");
    let answered = Arc::clone(&answers);
    let sums = move |message: &longarm::Message<'_>| {
        answered.fetch_add(message.arguments()[0], Ordering::SeqCst);
    };
    world.register_handler(32, sums).expect("a handler");
    let mut expected = 0;
    for round in 0..rounds {
        let target = ahead(world, round as u32);
        world.send_message(target, 31, &[round], &[]).expect("a message");
        expected += round;
        let sum = world.run_handlers_until(|| Some(answers.load(Ordering::SeqCst)).filter(|sum| *sum == expected));
        assert_eq!(sum.expect("all live"), expected, "rank {me}, round {round}");
    }
    barrier(world);
}

/// Messages of one source to one target are handled in the order in which they were sent, whatever their size.
pub fn order(world: &World) {
    let seen: Arc<Mutex<Vec<u64>>> = Arc::new(Mutex::new(vec![0; world.size() as usize]));
    let running = Arc::new(AtomicBool::new(false));
    let (counting, guard) = (Arc::clone(&seen), Arc::clone(&running));
    for handler in [20, 21] {
        let (counting, guard) = (Arc::clone(&counting), Arc::clone(&guard));
        world
            .register_handler(handler, move |message| {
                assert!(!guard.swap(true, Ordering::SeqCst), "two handlers run at once");
                let mut seen = counting.lock().expect("no panic");
                let next = &mut seen[message.source() as usize];
                assert_eq!(message.arguments()[0], *next, "order of the messages of rank {}", message.source());
                *next += 1;
                guard.store(false, Ordering::SeqCst);
            })
            .expect("a handler");
    }
    // Between two handlers there is an order only when both are there.
    barrier(world);
    let count = if world.size() > 5 { 100 } else { 600 };
    for number in 0..count {
        let bytes = [0, 0, 10, 4500, 0, 20_000, 1][number as usize % 7];
        for target in ranks(world) {
            let handler = 20 + number as u32 / 3 % 2;
            world.send_message(target, handler, &[number], &vec![0; bytes]).expect("a message");
        }
    }
    until(world, || seen.lock().expect("no panic").iter().all(|seen| *seen >= count));
    barrier(world);
    assert_eq!(*seen.lock().expect("no panic"), vec![count; world.size() as usize]);
}

/// Messages that come before their handler are kept, and handled in order with those that come while it is
/// registered.
pub fn late_handler(world: &World) {
    let (early, late) = (200_u64, if world.size() > 5 { 100 } else { 1000_u64 });
    for handler in [30, 31, 32] {
        for number in 0..early {
            world.send_message(ahead(world, 1), handler, &[number], &[1, 2, 3]).expect("a message");
        }
        // All early messages have been sent; many have been taken in by the barrier.
        barrier(world);
        let seen = Arc::new(AtomicU64::new(0));
        let counting = Arc::clone(&seen);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in early..early + late {
                    world.send_message(ahead(world, 1), handler, &[number], &[1, 2, 3]).expect("a message");
                }
            });
            world
                .register_handler(handler, move |message| {
                    let next = counting.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(message.arguments(), [next], "messages that waited come first");
                    assert_eq!(message.payload(), [1, 2, 3]);
                })
                .expect("a handler");
        });
        until(world, || seen.load(Ordering::SeqCst) >= early + late);
        barrier(world);
        assert_eq!(seen.load(Ordering::SeqCst), early + late);
    }
}

/// A rank that computes without a call still handles messages: it stops computing when a handler says so.
pub fn computing(world: &World) {
    let stop = Arc::new(AtomicBool::new(false));
    let handled = Arc::new(AtomicU64::new(0));
    let (stopping, counting) = (Arc::clone(&stop), Arc::clone(&handled));
    let answered = Arc::new(AtomicU64::new(0));
    let hearing = Arc::clone(&answered);
    world
        .register_handler(40, move |message| {
            counting.fetch_add(1, Ordering::SeqCst);
            message.reply(41, &[], &[]).expect("a reply");
        })
        .expect("a handler");
    world.register_handler(41, move |_| _ = hearing.fetch_add(1, Ordering::SeqCst)).expect("a handler");
    world.register_handler(42, move |_| stopping.store(true, Ordering::SeqCst)).expect("a handler");
    barrier(world);
    for computer in ranks(world).take(4) {
        if world.rank() == computer {
            while !stop.swap(false, Ordering::SeqCst) {
                super::support::compute(1000);
            }
        } else if world.rank() == (computer + 1) % world.size() {
            // Every request is answered before the next one is sent.
            let before = answered.load(Ordering::SeqCst);
            for number in 1..=20 {
                world.send_message(computer, 40, &[], &[]).expect("a message");
                until(world, || answered.load(Ordering::SeqCst) == before + number);
            }
            world.send_message(computer, 42, &[], &[]).expect("a message");
        }
        barrier(world);
    }
    let computed = world.rank() < world.size().min(4);
    assert_eq!(handled.load(Ordering::SeqCst), if computed { 20 } else { 0 });
    barrier(world);
}

/// A handler waits in the thread that is in a barrier, without a call of longarm, until another node has got from a neighbour
/// on its node: the node's server goes on.
pub fn handler_waits(world: &World) {
    let window = Arc::new(world.allocate_collective::<u64>(1).expect("a window"));
    let mine = Arc::clone(&window);
    let me = world.rank();
    world
        .register_handler(50, move |message| {
            let turn = message.arguments()[0];
            while mine.get_one(me, 0).expect("a look") < turn {
                std::thread::yield_now();
            }
        })
        .expect("a handler");
    barrier(world);
    for turn in 1..=20 {
        if me == world.size() - 1 {
            world.send_message(0, 50, &[turn], &[]).expect("a message");
            assert_eq!(window.get_one(1, 0).expect("the neighbour's word"), 0);
            window.put_one(0, 0, turn).expect("the word that is waited for");
        }
        barrier(world);
    }
}
