//! A rank whose calls are answered by a server that says what it likes.
//!
//! It also breaks links, lets calls wait or fail, and says anything of the session that a new link is to carry.
//!
//! What must hold: no panic and no hang; nothing is written outside of a get's target; an error of a link is the last
//! thing that is asked of it; the session goes on where it was or is lost for good; and while the server is honest, calls
//! succeed and bring what it has said, over however many links.

mod dialing;
mod link;

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longarm_client::{
    AttachError, Awaited, Client, ClientOptions, ClientWindow, Completion, EndpointOptions, Failures, Layout, LostHow,
    MutexError, MutexHome, Operation, Parts, RestOn, RmwError, Time, TransferError, WindowIdentity,
};
use longarm_netmod::flow::Costs;
use longarm_proto::{
    AccessKey, AccumulateOp, ElementType, Generation, JobId, Kernel, NodeId, Rank, RequestKind, Rmw, RmwOp, RmwWidth,
    Scale, WindowId,
};
use longarm_shm::NodeSegment;
use longarm_shm::sync::{AtomicU64, Ordering};

use self::dialing::HostileDial;
use self::link::{Answers, honest_data};
use crate::choices::{Choices, Script};

/// Bytes of a rank's part of the window.
const PART_BYTES: u64 = 64 << 10;
/// Bytes in front of a get's target and behind it, which nobody may touch.
const GUARD_BYTES: usize = 64;
const GUARD: u8 = 0xee;
/// Smaller than by default, so that short puts reach both forms.
const EAGER_BYTES: usize = 256;
const BUFFERED_BYTES_MAX: usize = 4 << 10;
/// What is lost, the server has given up: no play takes so long.
const CONNECT_MS: u64 = 1 << 40;
/// Looks at the clock, each of which takes a millisecond, before a server that says nothing is called again.
const SILENCE_MS: u64 = 64;
/// No call gives up the processor while choices are left.
const SPIN_US: u64 = 1 << 40;

thread_local! {
    /// Memory of the node, which no call of a play touches.
    static SEGMENT: RefCell<Option<Arc<NodeSegment>>> = const { RefCell::new(None) };
}

/// Makes calls by the first choices and answers them by the rest.
pub fn hostile_server(data: &[u8]) {
    let mut choices = Choices::new(data);
    let piece_bytes = usize::from(choices.byte()).max(1);
    let calls = choices.bytes();
    let answers = Arc::new(Mutex::new(Answers::new(choices.rest(), piece_bytes)));
    let mut rank = Caller::new(&answers);
    let mut calls = Choices::new(calls);
    while !calls.is_over() {
        rank.call(&mut calls);
    }
    rank.client.close();
}

/// Time that passes when somebody looks.
#[derive(Default)]
struct Ticks(AtomicU64);

impl Time for Ticks {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    fn rest(&self, _on: RestOn, _timeout: Option<Duration>) -> bool {
        true
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

/// A rank alone on its node, with two others on the hostile server's.
struct Caller {
    client: Arc<Client>,
    window: Arc<ClientWindow>,
    mutexes: MutexHome,
    answers: Arc<Mutex<Answers>>,
    is_lost: bool,
}

impl Caller {
    fn new(answers: &Arc<Mutex<Answers>>) -> Caller {
        let segment = SEGMENT.with_borrow_mut(|segment| {
            let made = || Arc::new(NodeSegment::create(JobId(1), 3, 1).expect("the system has memory for a segment"));
            Arc::clone(segment.get_or_insert_with(made))
        });
        let layout = Layout::new(Rank(0), &[NodeId(0), NodeId(1), NodeId(1)]);
        let identity = WindowIdentity { window: WindowId(7), generation: Generation(1), key: AccessKey(9) };
        let members = [(Rank(1), PART_BYTES), (Rank(2), PART_BYTES)];
        let nowhere = || Err(AttachError::Refused("no part of it is here".to_owned()));
        let window = Arc::new(ClientWindow::new(&layout, identity, Parts::Each(&members), nowhere));
        let ranks = layout.rank_count();
        let client = Client::new(ClientOptions {
            layout,
            segment,
            dial: Arc::new(HostileDial(Arc::clone(answers))),
            time: Arc::new(Ticks::default()),
            assist: None,
            failures: Failures::new(ranks, false),
            spin_us: SPIN_US,
            eager_bytes: EAGER_BYTES,
            endpoint: EndpointOptions {
                caller: Rank(0),
                buffered_bytes_max: BUFFERED_BYTES_MAX,
                connect_ms: CONNECT_MS,
                reconnect_ms: CONNECT_MS,
                silence_ms: SILENCE_MS,
                costs: Costs::TYPICAL,
            },
            processors: Vec::new(),
            ranks_on_machine: 0,
        });
        Caller {
            client: client.expect("the system has a descriptor for a waker"),
            mutexes: MutexHome::new(Arc::clone(&window)),
            window,
            answers: Arc::clone(answers),
            is_lost: false,
        }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&mut self, calls: &mut Choices<'_>) {
        let kind = calls.byte();
        let rank = Rank(1 + u32::from(kind >> 7));
        let (offset, bytes) = (u64::from(calls.short()) & !15, usize::from(calls.short()) & !15);
        let Caller { client, window, mutexes, .. } = &*self;
        let number = offset % 4;
        let outcome = match kind % 10 {
            0 => client.put(window, rank, offset, vec![1; bytes][..].into()).map_err(Refused::of_transfer),
            1 => self.get(rank, offset, bytes),
            2 => {
                let kernel = Kernel::new(ElementType::F64, AccumulateOp::Sum).expect("a sum always makes sense");
                let source = vec![0; bytes];
                let one = Scale::one(ElementType::F64);
                client
                    .accumulate_run(window, rank, offset, (kernel, &one), source[..].into())
                    .map_err(Refused::of_transfer)
            }
            3 => {
                let rmw = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
                client.rmw(window, rank, offset, rmw).map(drop).map_err(Refused::of_rmw)
            }
            4 => client.quiet_rank(rank).map_err(Refused::of_transfer),
            5 => client.lock(mutexes, rank, number).map(drop).map_err(Refused::of_mutex),
            6 => client.try_lock(mutexes, rank, number).map(drop).map_err(Refused::of_mutex),
            7 => client.unlock(mutexes, rank, number).map_err(Refused::of_mutex),
            8 => client.quiet().map_err(Refused::of_transfer),
            _ => self.update_several(rank, offset, 1 + bytes / 16 % 8),
        };
        self.judge(outcome);
        if kind & 0x40 != 0 {
            self.client.tend();
        }
    }

    /// Starts updates, which go together behind the first, and waits for each.
    fn update_several(&self, rank: Rank, offset: u64, count: usize) -> Result<(), Refused> {
        let rmw = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
        let start = |_| {
            let (completion, part) = Completion::begin();
            let begun = self.client.start_rmw(&self.window, rank, offset, rmw, &part);
            begun.map(|()| completion).map_err(Refused::of_rmw)
        };
        let started: Vec<_> = (0..count).map(start).collect();
        let ends = started.into_iter().map(|started| {
            let completion = started?;
            self.client.wait_completion(Awaited::rank(Operation::Rmw, rank), &completion);
            let explain = |outcome| Refused::of_transfer(self.client.explain(outcome, Operation::Rmw, rank));
            completion.failure().map_or(Ok(()), |outcome| Err(explain(outcome)))
        });
        // All are waited for.
        ends.collect::<Vec<_>>().into_iter().collect()
    }

    /// Reads into the middle of a buffer.
    fn get(&self, rank: Rank, offset: u64, bytes: usize) -> Result<(), Refused> {
        let mut buffer = vec![GUARD; GUARD_BYTES + bytes + GUARD_BYTES];
        let target = &mut buffer[GUARD_BYTES..GUARD_BYTES + bytes];
        let outcome = self.client.get(&self.window, rank, offset, target.into());
        let (front, rest) = buffer.split_at(GUARD_BYTES);
        let (target, behind) = rest.split_at(bytes);
        assert!(front == [GUARD; GUARD_BYTES] && behind == front, "a get writes its target and nothing else");
        let answers = self.answers();
        if outcome.is_ok() && bytes > 0 && answers.is_honest {
            let id = answers.last_of(RequestKind::Get).expect("a get was asked for");
            assert!(honest_data(id, bytes) == target, "a get brings what the server has said");
        }
        outcome.map_err(Refused::of_transfer)
    }

    fn judge(&mut self, outcome: Result<(), Refused>) {
        let answers = self.answers();
        if answers.is_honest && !answers.is_over {
            assert!(!matches!(outcome, Err(Refused::Lost | Refused::ByServer)), "an honest server is believed");
        }
        drop(answers);
        match outcome {
            Err(Refused::Lost) => {
                assert!(self.answers().is_over || !self.answers().is_honest, "nothing is lost without a reason");
                self.is_lost = true;
            }
            // Nothing was sent, or nothing had to be.
            Ok(()) | Err(Refused::AtHome | Refused::ByServer) => {}
        }
        if self.is_lost {
            let again = self.client.get(&self.window, Rank(1), 0, (&mut [0; 8][..]).into());
            assert!(matches!(again, Err(TransferError::Lost(_))), "what is lost stays lost: {again:?}");
        }
    }
}

/// Why a call did not succeed.
enum Refused {
    AtHome,
    ByServer,
    Lost,
}

impl Refused {
    fn of_transfer(error: TransferError) -> Refused {
        match error {
            TransferError::Lost(_) => Refused::Lost,
            TransferError::Refused { .. } => Refused::ByServer,
            _ => Refused::AtHome,
        }
    }

    fn of_rmw(error: RmwError) -> Refused {
        match error {
            RmwError::Transfer(error) => Refused::of_transfer(error),
            _ => Refused::AtHome,
        }
    }

    fn of_mutex(error: MutexError) -> Refused {
        match error {
            // The server says that the mutex went with its host.
            MutexError::Transfer(TransferError::Lost(lost)) if matches!(lost.how, LostHow::Gone) => Refused::ByServer,
            MutexError::Transfer(error) => Refused::of_transfer(error),
            MutexError::NotHeld { .. } | MutexError::HeldAlready { .. } => Refused::ByServer,
            _ => Refused::AtHome,
        }
    }
}

/// Calls of every kind, answered well and badly.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let call = |script: Script, kind: u8, bytes: u16| script.byte(kind).short(64).short(bytes);
    let all = (0..10).fold(Script::default(), |script, kind| call(script, kind, 64)).written();
    let large = [0, 1, 2, 8].into_iter().fold(Script::default(), |script, kind| call(script, kind, 16_000)).written();
    let play = |piece: u8, calls: &[u8]| Script::default().byte(piece).bytes(calls);
    let honest = [0; 24];
    let mut seeds = vec![
        ("all_answered", play(255, &all).plain(&honest).written()),
        ("all_answered_in_pieces", play(3, &all).plain(&honest).plain(&honest).written()),
        ("large_answered", play(255, &large).plain(&honest).plain(&honest).written()),
        ("hung_up_on", play(255, &all).written()),
    ];
    for (name, action) in link::ACTIONS {
        let script = play(255, &all).byte(0).byte(0).byte(action).word(0x0102_0304_0506_0708).plain(&honest);
        seeds.push((name, script.written()));
    }
    for (name, action) in dialing::ACTIONS {
        // Two answers, a break that loses some of what was asked for, and what comes of the next call.
        let script = play(255, &all).byte(0).byte(0).byte(0).byte(link::BREAK).short(9).byte(action);
        seeds.push((name, script.word(5).plain(&honest).written()));
        let large = play(9, &large).byte(0).byte(0).byte(link::BREAK).short(700).byte(action);
        if action == dialing::HONEST {
            seeds.push(("welcomed_again_in_the_middle", large.plain(&honest).plain(&honest).written()));
        }
    }
    seeds.push(("does_not_welcome", play(255, &all).byte(dialing::GONE).written()));
    seeds
}
