//! The shared structures between real processes, some of which are killed halfway.
//!
//! The other process is this same test binary, started again with a role in its environment. It opens the memfds of its
//! parent by the links that the system keeps of open files.
#![cfg(not(loom))]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use longarm_memory::Region;
use longarm_proto::{AccumulateOp, ElementType, JobId, Kernel, Rank, Rmw, RmwOp, RmwWidth, Scale};
use longarm_shm::{CELLS_PER_RANK, CellHead, CounterKind, NodeSegment, NodeWindow, Popped, Producer, ShortMessage};

const ROLE: &str = "LONGARM_SHM_TEST_ROLE";
const NODE: &str = "LONGARM_SHM_TEST_NODE";
const WINDOW: &str = "LONGARM_SHM_TEST_WINDOW";

/// Elements of the windows of these tests.
const ELEMENTS: usize = 64 << 10;
/// Elements that an accumulate combines at a time.
const CHUNK_ELEMENTS: usize = 64;
/// One part that all share, and one with flags.
const PART_BYTES: [u64; 2] = [ELEMENTS as u64 * 8, 64];

struct Node {
    node: NodeSegment,
    window: NodeWindow,
}

impl Node {
    fn create() -> Node {
        Node {
            node: NodeSegment::create(JobId(5), 4, 4).unwrap(),
            window: NodeWindow::create("longarm-test", &PART_BYTES).unwrap(),
        }
    }

    fn attach() -> Node {
        Node::attach_at(None)
    }

    fn attach_at(address: Option<u64>) -> Node {
        let open = |name: &str| -> OwnedFd {
            let path = std::env::var(name).unwrap();
            std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap().into()
        };
        Node {
            node: NodeSegment::attach(open(NODE)).unwrap(),
            window: NodeWindow::attach_at(open(WINDOW), &PART_BYTES, None, address).unwrap(),
        }
    }

    /// Starts this binary again in the given role.
    fn start(&self, role: &str) -> Other {
        let path = |file: BorrowedFd<'_>| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["the_other_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(NODE, path(self.node.file()))
            .env(WINDOW, path(self.window.file()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Other(child)
    }

    fn push(&self, from: u32, to: u32, number: u64) -> bool {
        let head = CellHead { source: from, words: [number, 0, 0], ..CellHead::default() };
        let payload = [number as u8; 1000];
        self.node.try_push(Producer::Local(from), to, head, &[Region::from_slice(&payload)]).is_ok()
    }

    /// Sends a number by the fastbox, unless it is full.
    fn send_short(&self, from: u32, to: u32, number: u64) -> bool {
        let message = ShortMessage::of([&number.to_le_bytes(), b"short"]).unwrap();
        self.node.try_send_short(from, to, Rank(from), &message)
    }

    /// Pops what comes next, by cell or by fastbox, and adds who sent which number.
    fn pop_any(&self, local: u32, taken: &mut Vec<(u32, u64)>) -> Popped {
        self.node.try_pop(local, &mut |head, payload| {
            let mut bytes = vec![0; payload.len()];
            payload.copy_to_slice(&mut bytes);
            let number = if head.message_bytes == 0 {
                assert_eq!(bytes, [head.words[0] as u8; 1000], "the payload belongs to its head");
                head.words[0]
            } else {
                assert_eq!(bytes[8..], *b"short", "the message is whole");
                u64::from_le_bytes(*bytes.first_chunk().unwrap())
            };
            taken.push((head.source, number));
        })
    }

    /// Pops one cell and returns who sent which number.
    fn pop(&self, local: u32) -> Result<(u32, u64), Popped> {
        let mut taken = None;
        let popped = self.node.try_pop(local, &mut |head, payload| {
            let mut bytes = [0; 1000];
            payload.copy_to_slice(&mut bytes);
            assert_eq!(bytes, [head.words[0] as u8; 1000], "the payload belongs to its head");
            taken = Some((head.source, head.words[0]));
        });
        taken.ok_or(popped)
    }

    fn flag(&self, operand: u64) -> u64 {
        let rmw = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand, compare: 0 };
        self.window.part(1).rmw(0, rmw).unwrap()
    }

    fn add_ones(&self, who: Rank, ones: &[u8]) {
        let kernel = Kernel::new(ElementType::F64, AccumulateOp::Sum).unwrap();
        let scale = Scale::one(ElementType::F64);
        let stripes = self.node.stripes();
        self.window.part(0).accumulate(0, kernel, &scale, Region::from_slice(ones), &stripes, who).unwrap();
    }

    fn elements(&self) -> Vec<f64> {
        let mut bytes = vec![0; ELEMENTS * 8];
        self.window.part(0).region(0, bytes.len() as u64).unwrap().copy_to_slice(&mut bytes);
        bytes.chunks(8).map(|chunk| f64::from_le_bytes(chunk.try_into().unwrap())).collect()
    }
}

/// Another process; killed when dropped, so that a failed test leaves none behind.
struct Other(Child);

impl Other {
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn finish(mut self) {
        assert!(self.0.wait().unwrap().success());
    }

    /// Gives the processor away until something holds; fails if the other process has ended before.
    fn wait_until(&mut self, mut holds: impl FnMut() -> bool) {
        while !holds() {
            assert!(self.0.try_wait().unwrap().is_none() || holds(), "the other process ended early");
            std::thread::yield_now();
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // Both fail if it is gone already, which is just as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ones() -> Vec<u8> {
    1_f64.to_le_bytes().repeat(ELEMENTS)
}

/// What the other process does; nothing where it is run as a test.
#[test]
fn the_other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if role == "agree" {
        let here = Node::attach_at(Some(ADDRESS));
        assert!(here.window.is_at(ADDRESS));
        let address = here.window.part(1).load_u64(0).unwrap();
        assert_eq!(address, word_address(&here.window));
        let add = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: address + 8, compare: 0 };
        assert_eq!(here.window.part(1).rmw(8, add), Ok(0));
        return;
    }
    let here = Node::attach();
    match role.as_str() {
        "mix" => {
            for number in 0.. {
                // Every third one is long, and what the box has no room for goes the same way.
                let long = number % 3 == 0;
                while !(!long && here.send_short(1, 0, number) || here.push(1, 0, number)) {
                    std::thread::yield_now();
                }
            }
        }
        "push" => {
            let mut number = 0;
            loop {
                if here.push(1, 0, number) {
                    number += 1;
                } else {
                    std::thread::yield_now();
                }
            }
        }
        "pop" => loop {
            if here.pop(1).is_err() {
                std::thread::yield_now();
            }
        },
        "echo" => {
            for number in 0..ECHOES {
                let answer = loop {
                    let seen = here.node.eventcount(1).sequence();
                    match here.pop(1) {
                        Ok((_, number)) => break number,
                        Err(_) => here.node.eventcount(1).sleep(seen, None),
                    }
                };
                assert_eq!(answer, number);
                assert!(here.push(1, 0, number + 1));
                here.node.counters(1).add(Rank(0), CounterKind::Message, 1000, true);
            }
        }
        "accumulate" => {
            let ones = ones();
            loop {
                here.add_ones(Rank(1), &ones);
                here.flag(1);
            }
        }
        "hold" => {
            std::mem::forget(here.node.stripes().lock(0, Rank(1)));
            here.flag(1);
            here.node.eventcount(1).sleep(0, None);
            unreachable!("nobody notifies, so only a kill ends the sleep");
        }
        "add" => {
            let ones = ones();
            (0..ROUNDS).for_each(|_| here.add_ones(Rank(1), &ones));
        }
        other => panic!("no such role: {other}"),
    }
}

const ECHOES: u64 = 500;
const ROUNDS: usize = 20;
/// Where both processes map a window.
const ADDRESS: u64 = 0x2200_0000_0000;

/// The window a second time, as the process of the server's host maps it.
fn agreed(here: &Node) -> NodeWindow {
    let file = here.window.file().try_clone_to_owned().unwrap();
    NodeWindow::attach_at(file, &PART_BYTES, None, Some(ADDRESS)).unwrap()
}

/// The address of the first word of part 1.
fn word_address(window: &NodeWindow) -> u64 {
    window.part(1).start_pointer().addr() as u64
}

#[test]
fn two_processes_see_each_others_stores_at_the_same_address() {
    let here = Node::create();
    let mine = agreed(&here);
    assert!(mine.is_at(ADDRESS) && !here.window.is_at(ADDRESS));
    assert_eq!(word_address(&mine), ADDRESS + PART_BYTES[0]);
    let swap = |operand| Rmw { op: RmwOp::Swap, width: RmwWidth::W64, operand, compare: 0 };
    mine.part(1).rmw(0, swap(word_address(&mine))).unwrap();
    here.start("agree").finish();
    // The other has found the address of the word in the word, and left the next one's in the next.
    assert_eq!(mine.part(1).load_u64(8), Ok(word_address(&mine) + 8));
}

#[test]
fn two_processes_that_sleep_between_messages_always_wake_each_other() {
    let here = Node::create();
    let other = here.start("echo");
    for number in 0..ECHOES {
        assert!(here.push(0, 1, number));
        loop {
            let seen = here.node.eventcount(0).sequence();
            match here.pop(0) {
                Ok(answer) => break assert_eq!(answer, (1, number + 1)),
                Err(_) => here.node.eventcount(0).sleep(seen, None),
            }
        }
    }
    other.finish();
    assert_eq!(here.node.counters(1).read(Rank(0), CounterKind::Message), (ECHOES, 1000 * ECHOES));
}

#[test]
fn a_sender_killed_while_it_pushes_leaves_an_inbox_that_others_go_on_using() {
    for round in 0..30 {
        let here = Node::create();
        let mut other = here.start("push");
        let mut next = 0;
        let mut take = |here: &Node| {
            let popped = here.pop(0);
            if let Ok(message) = popped {
                assert_eq!(message, (1, next), "in order, nothing lost, nothing twice");
                next += 1;
            }
            popped
        };
        // A different number each time, so that the kill comes at different places.
        let mut wanted = 100 + 17 * round;
        other.wait_until(|| {
            wanted -= i32::from(take(&here).is_ok());
            wanted == 0
        });
        other.kill();
        loop {
            match take(&here) {
                Ok(_) => {}
                Err(Popped::Empty) => break,
                // The gap can only be the dead one's, as nobody else sends.
                Err(_) => assert!(here.node.mend(0, |producer| producer == Producer::Local(1))),
            }
        }
        // More than fit the cells of one sender: they go round.
        for number in 0..u64::from(3 * CELLS_PER_RANK) {
            assert!(here.push(2, 0, number));
            assert_eq!(here.pop(0), Ok((2, number)));
        }
        assert!(here.node.inbox_is_empty(0));
    }
}

#[test]
fn a_sender_killed_between_short_and_long_messages_loses_nothing_that_it_sent_and_no_order() {
    for round in 0..30 {
        let here = Node::create();
        let mut other = here.start("mix");
        let mut taken = Vec::new();
        let wanted = 300 + 37 * round;
        other.wait_until(|| {
            here.pop_any(0, &mut taken);
            taken.len() >= wanted
        });
        other.kill();
        loop {
            match here.pop_any(0, &mut taken) {
                Popped::Taken => {}
                Popped::Empty => break,
                // The gap can only be the dead one's, as nobody else sends.
                Popped::Broken => assert!(here.node.mend(0, |producer| producer == Producer::Local(1))),
            }
        }
        assert!(taken.iter().zip(0..).all(|(message, number)| *message == (1, number)), "in order, all of them, once");
        taken.clear();
        for number in 0..100 {
            assert!(here.send_short(2, 0, number));
            here.pop_any(0, &mut taken);
        }
        assert!(taken.iter().zip(0..).all(|(message, number)| *message == (2, number)) && taken.len() == 100);
    }
}

#[test]
fn a_receiver_killed_while_it_pops_gives_all_cells_but_one_back_to_their_owner() {
    for round in 0..30 {
        let here = Node::create();
        let mut other = here.start("pop");
        let mut wanted = 300 + 17 * round;
        other.wait_until(|| {
            wanted -= i32::from(here.push(0, 1, 0));
            wanted == 0
        });
        other.kill();
        here.node.take_over(1);
        while here.pop(1).is_ok() {}
        assert_eq!(here.pop(1), Err(Popped::Empty));
        let free = (0..).take_while(|&number| here.push(0, 2, number)).count();
        assert!(free as u32 >= CELLS_PER_RANK - 1, "{free} cells are free");
    }
}

#[test]
fn a_rank_killed_in_an_accumulate_adds_to_no_element_twice_and_stops_nobody() {
    let ones = ones();
    for passes in 1..10 {
        let here = Node::create();
        let mut other = here.start("accumulate");
        other.wait_until(|| here.flag(0) >= passes);
        other.kill();
        let freed = here.node.release_of_dead(Rank(1));
        assert!(freed <= 1, "a rank holds one stripe at a time");
        let done = here.flag(0) as f64;
        let before = here.elements();
        assert!(before.iter().all(|&element| element == done || element == done + 1.0));
        // It works from the front to the back, chunk by chunk; only within the chunk that it died in is no order. It may
        // also have died between the end of a pass and the flag.
        let old = before.iter().position(|&element| element == done).unwrap_or(ELEMENTS);
        let new = before.iter().rposition(|&element| element != done).unwrap_or(0);
        assert!(new <= old || new / CHUNK_ELEMENTS == old / CHUNK_ELEMENTS, "old at {old}, new at {new}");
        here.add_ones(Rank(0), &ones);
        assert!(here.elements().iter().zip(before).all(|(&after, before)| after == before + 1.0));
    }
}

#[test]
fn a_stripe_of_a_killed_holder_is_free_for_who_waits_for_it() {
    let here = Node::create();
    let mut other = here.start("hold");
    other.wait_until(|| here.flag(0) == 1);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| here.add_ones(Rank(0), &ones()));
        assert!(!waiter.is_finished());
        other.kill();
        assert_eq!(here.node.release_of_dead(Rank(2)), 0);
        assert_eq!(here.node.release_of_dead(Rank(1)), 1);
        waiter.join().unwrap();
    });
    assert!(here.elements().iter().all(|&element| element == 1.0));
    // The sleeper that was killed is still counted; notifying and sleeping go on all the same.
    let eventcount = here.node.eventcount(1);
    let seen = eventcount.sequence();
    eventcount.notify();
    assert_eq!(eventcount.sequence(), seen + 1);
    eventcount.sleep(seen + 1, Some(Duration::from_millis(1)));
}

#[test]
fn sums_of_two_processes_are_exact() {
    let here = Node::create();
    let other = here.start("add");
    let ones = ones();
    (0..ROUNDS).for_each(|_| here.add_ones(Rank(0), &ones));
    other.finish();
    assert!(here.elements().iter().all(|&element| element == 2.0 * ROUNDS as f64));
}
