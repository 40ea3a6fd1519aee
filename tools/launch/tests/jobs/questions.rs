//! Questions with types: answers, errors, ranks that break the rules, and many at once.

use futures_lite::future::block_on;
use longarm::error::{AskError, MessageError};
use longarm::{Question, World};
use serde::{Deserialize, Serialize};

use super::support::{ahead, barrier, ranks};

#[derive(Serialize, Deserialize)]
struct Divide {
    by: i64,
    numbers: Vec<i64>,
    name: String,
}

impl Question for Divide {
    const NUMBER: u32 = 1;
    type Answer = (u32, Vec<i64>);
    type Error = Refused;
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
enum Refused {
    ByZero { asker: u32 },
}

/// The same number as [`Divide`], but of other bytes.
#[derive(Serialize, Deserialize)]
struct Wrong(u8);

impl Question for Wrong {
    const NUMBER: u32 = 1;
    type Answer = String;
    type Error = ();
}

#[derive(Serialize, Deserialize)]
struct Late;

impl Question for Late {
    const NUMBER: u32 = 2;
    type Answer = u32;
    type Error = ();
}

/// All ask all, one by one and many at once, short and long.
pub fn answers(world: &World) {
    serve(world);
    let size = world.size();
    for count in [0, 1, 300, 20_000] {
        let question = |by: i64| Divide { by, numbers: (0..count).map(|at| at * 6).collect(), name: "n".repeat(70) };
        // Those that are asked last are waited for first.
        let asked: Vec<_> = ranks(world).map(|rank| world.ask(rank, &question(i64::from(rank) + 1))).collect();
        for (rank, asked) in (0..size).zip(asked).rev() {
            let (from, quotients) = asked.wait().expect("an answer");
            let expected: Vec<i64> = (0..count).map(|at| at * 6 / (i64::from(rank) + 1)).collect();
            assert_eq!((from, quotients), (rank, expected));
        }
    }
    let right = ahead(world, 1);
    let by_zero = Divide { by: 0, numbers: vec![1], name: String::new() };
    let refused = block_on(async { world.ask(right, &by_zero).await });
    assert!(matches!(refused, Err(AskError::Answered(Refused::ByZero { asker })) if asker == world.rank()));
    // Nobody wants to know.
    drop(world.ask(right, &by_zero));
    // It waits for its handler.
    let late = world.ask(right, &Late);
    barrier(world);
    assert!(!late.test());
    barrier(world);
    let me = world.rank();
    world.answer::<Late>(move |_, Late| Ok(me)).expect("a handler");
    assert_eq!(late.wait().expect("an answer"), right);
    barrier(world);
}

fn serve(world: &World) {
    let me = world.rank();
    let divide = move |asker, question: Divide| match question.by {
        0 => Err(Refused::ByZero { asker }),
        by => Ok((me, question.numbers.iter().map(|number| number / by).collect())),
    };
    world.answer::<Divide>(divide).expect("a handler");
}

/// What cannot be asked, read or answered is an error that names the rank, and nobody panics or waits.
pub fn errors(world: &World) {
    serve(world);
    let right = ahead(world, 1);
    match world.ask(right, &Wrong(200)).wait() {
        Err(AskError::UnreadableQuestion { rank, .. }) => assert_eq!(rank.0, right),
        other => panic!("{other:?}"),
    }
    let nobody = world.ask(world.size(), &Late).wait();
    assert!(matches!(nobody, Err(AskError::Message(MessageError::Transfer(_)))));
    let taken = world.answer::<Wrong>(|_, _| Err(()));
    assert!(matches!(taken, Err(MessageError::HandlerExists { handler: 1 })));
    assert!(matches!(world.register_handler(u32::MAX, |_| ()), Err(MessageError::HandlerExists { .. })));
    // What a broken rank may send: questions that are none, and answers that nobody has asked for.
    for arguments in [&[][..], &[0], &[0, 0], &[u64::MAX, 7, 9]] {
        for payload in [&[][..], b"x", &[0xff; 100]] {
            world.send_message(right, Divide::NUMBER, arguments, payload).expect("a message");
            world.send_message(right, u32::MAX, arguments, payload).expect("a message");
        }
    }
    let question = Divide { by: 2, numbers: vec![8], name: String::new() };
    assert_eq!(world.ask(right, &question).wait().expect("an answer"), (right, vec![4]));
    let error = longarm::Error::from(world.ask(right, &Wrong(1)).wait().expect_err("it cannot be read"));
    assert!(error.to_string().contains(&format!("rank {right}")), "{error}");
    barrier(world);
}
