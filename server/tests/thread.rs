//! The server's thread beside threads that drive its engine while they wait.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use longarm_netmod::flow::Costs;
use longarm_proto::{AccessKey, Generation, JobId, NodeId, Rank, Secret, WindowId};
use longarm_server::door::{Door, DoorRequest, door_name, window_of_server};
use longarm_server::{Engine, EngineOptions, Server};
use longarm_shm::{NodeSegment, NodeWindow};
use rustix::thread::{CpuSet, gettid, sched_getcpu, sched_setaffinity};

const NODE: NodeId = NodeId(0);
const CALLS: usize = 300;

fn server(job: JobId) -> Server {
    server_of(job, &Arc::new(NodeSegment::create(job, 2, 2).unwrap()))
}

fn server_of(job: JobId, segment: &Arc<NodeSegment>) -> Server {
    server_that_spins(job, segment, Duration::ZERO)
}

/// With a processor of its own.
fn server_that_spins(job: JobId, segment: &Arc<NodeSegment>, spin: Duration) -> Server {
    Server::new(engine(job, segment), Duration::ZERO, spin).unwrap()
}

fn engine(job: JobId, segment: &Arc<NodeSegment>) -> Engine {
    let engine = Engine::new(EngineOptions {
        job,
        secret: Secret([0x42; 32]),
        node: NODE,
        node_of_rank: vec![NODE; 2],
        segment: Arc::clone(segment),
        listener: None,
        door: door_name(job, NODE),
        half_open_max: 4,
        handshake_timeout_ms: 1 << 40,
        session_keep_ms: 300,
        encrypted: false,
        costs: Costs::TYPICAL,
        remote_memory: None,
    });
    engine.unwrap()
}

/// Another thread takes the engine, drives it or does not, and gives it back, now with others to be woken and now without.
/// Whatever its thread finds when it is woken, every call at the door is answered.
#[test]
fn what_comes_while_a_thread_has_the_engine_is_served_when_it_is_given_back() {
    let job = JobId(u64::from(std::process::id()) << 32 | 0x7472);
    let (server, over) = (server(job), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| server.run());
        scope.spawn(|| {
            for turn in 0_u32.. {
                if over.load(Ordering::Acquire) {
                    break;
                }
                server.suppress_wakeups(turn.is_multiple_of(3));
                if let Some(mut assistant) = server.assist() {
                    std::thread::yield_now();
                    if turn.is_multiple_of(5) {
                        assistant.turn();
                    }
                }
                server.suppress_wakeups(false);
                std::thread::yield_now();
            }
        });
        for _ in 0..CALLS {
            let door = Door::connect(&door_name(job, NODE)).unwrap();
            door.call(&DoorRequest::NodeSegment { job: job.0 }).unwrap().unwrap();
        }
        // Nobody drives it any more but its own thread.
        over.store(true, Ordering::Release);
        let before = server.moves();
        let door = Door::connect(&door_name(job, NODE)).unwrap();
        door.call(&DoorRequest::NodeSegment { job: job.0 }).unwrap().unwrap();
        assert_ne!(server.moves(), before);
        server.stop();
    });
}

/// The server's thread looks for more work for longer than this test may take, on a processor of its own. Who waits has the engine all the same,
/// again and again, and the thread ends when it is told to.
#[test]
fn a_server_that_looks_for_more_work_gives_the_engine_to_who_waits() {
    let job = JobId(u64::from(std::process::id()) << 32 | 0x776e);
    let segment = Arc::new(NodeSegment::create(job, 2, 2).unwrap());
    let server = server_that_spins(job, &segment, Duration::from_secs(3600));
    std::thread::scope(|scope| {
        scope.spawn(|| server.run());
        for _ in 0..CALLS {
            let door = Door::connect(&door_name(job, NODE)).unwrap();
            door.call(&DoorRequest::NodeSegment { job: job.0 }).unwrap().unwrap();
            while server.assist().is_none() {
                std::thread::yield_now();
            }
        }
        // Also while it rests, or somebody asks for something all the time.
        let is_told = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let door = Door::connect(&door_name(job, NODE)).unwrap();
                while !is_told.load(Ordering::Acquire) {
                    door.call(&DoorRequest::NodeSegment { job: job.0 }).unwrap().unwrap();
                }
            });
            server.rest(true);
            (0..CALLS).for_each(|_| server.note_death(Rank(1)));
            server.rest(false);
            is_told.store(true, Ordering::Release);
        });
        server.stop();
    });
}

/// The server's thread looks for more work on the processor of a thread that rests, for longer than this test may take. When that thread is notified
/// it has its processor back: the server's goes to sleep.
#[test]
fn a_server_that_looks_for_more_work_leaves_the_processor_to_who_is_notified() {
    let job = JobId(u64::from(std::process::id()) << 32 | 0x7267);
    let segment = Arc::new(NodeSegment::create(job, 2, 2).unwrap());
    let server = Server::new(engine(job, &segment), Duration::from_secs(3600), Duration::ZERO).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // Threads have the processors of who spawns them.
        let mut processors = CpuSet::new();
        processors.set(sched_getcpu());
        sched_setaffinity(None, &processors).unwrap();
        scope.spawn(|| {
            tell.send(gettid()).unwrap();
            server.run();
        });
        let thread = told.recv().unwrap().as_raw_nonzero();
        let sleeps = || {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('S')
        };
        for eventcount in [segment.eventcount(0), segment.window_eventcount(0)] {
            server.rest(true);
            let door = Door::connect(&door_name(job, NODE)).unwrap();
            door.call(&DoorRequest::NodeSegment { job: job.0 }).unwrap().unwrap();
            (0..CALLS).for_each(|_| assert!(!sleeps(), "it looks for more"));
            eventcount.notify();
            while !sleeps() {
                std::thread::yield_now();
            }
            server.rest(false);
        }
        server.stop();
    });
}

/// A thread sleeps in the place of the server's, again and again, until it is notified often enough; others drive the engine meanwhile,
/// notify it by the descriptor that they get at the door, and call there. No call stays without an answer, and no notification is lost.
#[test]
fn a_thread_that_sleeps_in_the_servers_place_serves_what_comes_and_hears_every_notification() {
    let job = JobId(u64::from(std::process::id()) << 32 | 0x736c);
    let segment = Arc::new(NodeSegment::create(job, 2, 2).unwrap());
    let (server, told, heard) = (server_of(job, &segment), AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| server.run());
        scope.spawn(|| {
            let eventcount = segment.eventcount(0);
            while heard.load(Ordering::Acquire) < CALLS as u32 {
                let Some(mut assistant) = server.assist() else { continue };
                let (seen, mut can) = (eventcount.sequence(), true);
                let before = heard.load(Ordering::Relaxed);
                let is_told = || told.load(Ordering::Relaxed) > before;
                if !is_told() {
                    eventcount.listen_unless(seen, is_told, || can = assistant.sleep(None));
                    assert!(can, "no other thread sleeps there");
                    assistant.turn_after_sleep();
                }
                if is_told() {
                    heard.store(before + 1, Ordering::Release);
                }
            }
        });
        scope.spawn(|| {
            while heard.load(Ordering::Acquire) < CALLS as u32 {
                if let Some(mut assistant) = server.assist() {
                    assistant.turn();
                }
                std::thread::yield_now();
            }
        });
        for call in 0..CALLS as u32 {
            let door = Door::connect(&door_name(job, NODE)).unwrap();
            let neighbour = NodeSegment::attach(ask(&door, &DoorRequest::NodeSegment { job: job.0 })).unwrap();
            neighbour.set_ringer(ask(&door, &DoorRequest::Ringer));
            told.store(call + 1, Ordering::Relaxed);
            neighbour.eventcount(0).notify_if_sleeping();
            while heard.load(Ordering::Acquire) <= call {
                std::thread::yield_now();
            }
        }
        server.stop();
    });
}

/// What the server's own process asks for is done at once, and the memory is found by the number that it was told, as long as it is that
/// window's.
#[test]
fn a_window_is_found_by_the_number_that_the_server_has_it_under_and_no_other_one_is() {
    let job = JobId(u64::from(std::process::id()) << 32 | 0x666e);
    let server = server(job);
    let create = |generation| {
        let parts = vec![(0, 100), (1, 5000)];
        let request = DoorRequest::Create { window: 7, generation, key: 1, parts, aligned: false, room: None };
        server.ask(&request).expect("nobody drives the engine").unwrap().expect("memory")
    };
    let find =
        |number, generation| window_of_server(std::process::id(), number, job, (WindowId(7), Generation(generation)));
    let made = create(1);
    let found = find(made.number, 1).expect("it is there");
    let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
    assert_eq!(inode(&found), inode(&made.file));
    assert!(find(made.number, 2).is_none() && find(0, 1).is_none() && find(i32::MAX, 1).is_none());
    let address = made.address;
    assert_eq!(
        NodeWindow::attach_at(found, &[100, 5000], None, address).map(|memory| memory.part_bytes(1)).ok(),
        Some(5000)
    );
    assert!(server.ask(&DoorRequest::Free { window: 7, generation: 1 }).unwrap().unwrap().is_none());
    let next = create(2);
    assert!(find(made.number, 1).is_none(), "that window was freed");
    assert!(find(next.number, 2).is_some());
    // While another thread drives the engine the door has to be asked.
    let _assistant = server.assist().unwrap();
    assert!(server.ask(&DoorRequest::Free { window: 7, generation: 2 }).is_none());
}

/// Freed memory with room goes to the next window of the same ranks, as zeros; what no window wants goes back to the system.
#[test]
fn a_window_has_the_memory_of_the_one_before_it_and_what_is_spare_takes_no_pages_after_a_while() {
    let job = JobId(u64::from(std::process::id()) << 32 | 0x7370);
    let server = server(job);
    let sizes = |swapped: bool| if swapped { [5000, 70] } else { [70, 5000] };
    let room = NodeWindow::room_for(&sizes(false));
    let ask = |request| server.ask(&request).expect("nobody drives the engine").unwrap();
    let create = |window, swapped: bool, room| {
        let parts = (0..).zip(sizes(swapped)).collect();
        let request = DoorRequest::Create { window, generation: 1, key: 1, parts, aligned: false, room };
        let handed = ask(request).expect("memory");
        let status = rustix::fs::fstat(&handed.file).unwrap();
        let memory = NodeWindow::attach_at(handed.file, &sizes(swapped), room, handed.address).unwrap();
        (memory, (status.st_ino, handed.address, handed.number), handed.made_for)
    };
    let free = |window| assert!(ask(DoorRequest::Free { window, generation: 1 }).is_none());
    let (first, place, made_for) = create(1, false, room);
    assert_eq!(made_for, (WindowId(1), Generation(1)));
    first.part(1).whole().copy_from_slice(&[7; 5000]);
    let (_beside, other, _) = create(2, false, room);
    assert_ne!(other.0, place.0, "the first one is in use");
    free(1);
    drop(first);
    let (own, own_place, _) = create(3, false, None);
    assert_ne!(own_place.0, place.0, "it is to have memory of its own");
    drop(own);
    let (next, next_place, next_made_for) = create(4, true, room);
    assert_eq!((next_place, next_made_for), (place, made_for));
    let mut seen = [1; 5000];
    next.part(0).whole().as_region().copy_to_slice(&mut seen);
    assert_eq!(seen, [0; 5000]);
    next.part(0).whole().copy_from_slice(&[8; 5000]);
    let file = window_of_server(std::process::id(), place.2, job, made_for).expect("it is there");
    free(4);
    let pages = || rustix::fs::fstat(&file).unwrap().st_blocks;
    assert_ne!(pages(), 0, "the next window would find it warm");
    std::thread::scope(|scope| {
        scope.spawn(|| server.run());
        while pages() > 0 {
            std::thread::yield_now();
        }
        server.stop();
    });
    seen.fill(1);
    next.part(0).whole().as_region().copy_to_slice(&mut seen);
    assert_eq!(seen, [0; 5000]);
}

/// A window that is served before it is known how large its parts are has memory of a freed one of the same ranks and room, or is not there.
#[test]
fn a_window_is_served_ahead_in_memory_that_is_spare_and_only_there() {
    let server = server(JobId(u64::from(std::process::id()) << 32 | 0x6168));
    let ranks = [Rank(0), Rank(1)];
    let sizes = [70, 5000];
    let room = NodeWindow::room_for(&sizes).unwrap();
    let identity = |window| (WindowId(window), Generation(1), AccessKey(1));
    let ahead = |window, ranks: &[Rank], room| server.serve_ahead(identity(window), ranks, room);
    let ask = |request| server.ask(&request).expect("nobody drives the engine");
    let free = |window| assert!(ask(DoorRequest::Free { window, generation: 1 }).unwrap().is_none());
    assert_eq!(ahead(1, &ranks, room), None, "nothing was freed yet");
    let parts = (0..).zip(sizes).collect();
    let request = DoorRequest::Create { window: 2, generation: 1, key: 1, parts, aligned: false, room: Some(room) };
    let made_for = ask(request).unwrap().expect("memory").made_for;
    assert_eq!(ahead(1, &ranks, room), None, "the memory is in use");
    free(2);
    assert_eq!(ahead(1, &ranks, 2 * room), None, "a part would have no room");
    assert_eq!(ahead(1, &ranks[1..], room), None, "it has parts of other ranks");
    assert_eq!(ahead(1, &ranks, room), Some(made_for));
    assert_eq!(ahead(1, &ranks, room), None, "there is a window of this name");
    let handed = ask(DoorRequest::Attach { window: 1, generation: 1 }).unwrap().expect("memory");
    assert_eq!(handed.made_for, made_for);
    // Withdrawn, it leaves the memory to another one.
    free(1);
    assert!(ask(DoorRequest::Attach { window: 1, generation: 1 }).is_err());
    let assistant = server.assist().unwrap();
    assert_eq!(ahead(3, &ranks, room), None, "another thread drives the engine");
    drop(assistant);
    assert_eq!(ahead(3, &ranks, room), Some(made_for));
}

fn ask(door: &Door, request: &DoorRequest) -> OwnedFd {
    door.call(request).unwrap().unwrap().file
}
