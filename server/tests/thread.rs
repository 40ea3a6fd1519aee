//! The server's thread beside threads that drive its engine while they wait.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longarm_netmod::flow::Costs;
use longarm_proto::{JobId, NodeId, Secret};
use longarm_server::door::{Door, DoorRequest, door_name};
use longarm_server::{Engine, EngineOptions, Server};
use longarm_shm::NodeSegment;

const NODE: NodeId = NodeId(0);
const CALLS: usize = 300;

fn server(job: JobId) -> Server {
    let segment = Arc::new(NodeSegment::create(job, 2, 2).unwrap());
    let engine = Engine::new(EngineOptions {
        job,
        secret: Secret([0x42; 32]),
        node: NODE,
        node_of_rank: vec![NODE; 2],
        segment,
        listener: None,
        door: door_name(job, NODE),
        half_open_max: 4,
        handshake_timeout_ms: 1 << 40,
        session_keep_ms: 300,
        encrypted: false,
        costs: Costs::TYPICAL,
        remote_memory: None,
    });
    Server::new(engine.unwrap(), Duration::ZERO).unwrap()
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
