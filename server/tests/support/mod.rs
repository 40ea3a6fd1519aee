//! What tests of the engine begin with: its options, somebody who drives it, a window, a peer's call.

mod turning;

use std::sync::Arc;
use std::time::Duration;

use longarm_netmod::flow::Costs;
use longarm_netmod::{DialError, Introduction, Link, Listener, Netmod, connect_authenticated};
use longarm_proto::{AccessKey, Generation, Identity, JobId, NodeId, Rank, Secret, Session, WindowId, WindowRef};
use longarm_server::door::{Door, DoorRequest, door_name};
use longarm_server::{Engine, EngineOptions};
use longarm_shm::{NodeSegment, NodeWindow};
use turning::turning;

const SECRET: Secret = Secret([0x42; 32]);
pub const NODE: NodeId = NodeId(0);

/// An engine of [`NODE`] that turns nobody away for being slow.
pub fn engine(
    job: JobId,
    node_of_rank: Vec<NodeId>,
    segment: &Arc<NodeSegment>,
    listener: Box<dyn Listener>,
) -> Engine {
    let options = EngineOptions {
        job,
        secret: SECRET,
        node: NODE,
        node_of_rank,
        segment: Arc::clone(segment),
        listener: Some(listener),
        door: door_name(job, NODE),
        half_open_max: 8,
        handshake_timeout_ms: 1 << 40,
        session_keep_ms: 1 << 40,
        encrypted: false,
        costs: Costs::TYPICAL,
        remote_memory: None,
    };
    Engine::new(options).unwrap()
}

/// The window of [`target`], with parts of so many bytes for ranks from 0 on.
pub fn create_window(engine: &mut Engine, job: JobId, part_bytes: &[u64]) -> NodeWindow {
    let create = || {
        let door = Door::connect(&door_name(job, NODE)).unwrap();
        let parts = (0..).zip(part_bytes.iter().copied()).collect();
        let request = DoorRequest::Create { window: 1, generation: 1, key: 1, parts, aligned: false, room: None };
        door.call(&request).unwrap().unwrap().file
    };
    let file = turning(|| engine.turn(0, true), create);
    NodeWindow::attach(file, part_bytes).unwrap()
}

/// The part of rank 0.
pub fn target() -> WindowRef {
    WindowRef { rank: Rank(0), window: WindowId(1), generation: Generation(1), key: AccessKey(1) }
}

/// A rank of node 1 calls. Every connection is a session of its own.
pub fn call(
    engine: &mut Engine,
    now_ms: u64,
    (netmod, address): (&dyn Netmod, &str),
    (job, rank): (JobId, u32),
) -> Result<Box<dyn Link>, DialError> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).unwrap();
    let number = u64::from_le_bytes(*nonce.first_chunk().expect("it is longer"));
    let introduction = Introduction {
        secret: &SECRET,
        me: Identity { job, rank: Rank(rank), node: NodeId(1) },
        peer: NODE,
        session: Session { number, attempt: 1, is_known: false, received_bytes: 0 },
        encrypted: false,
        nonce,
    };
    let dial = || connect_authenticated(netmod, address, &introduction, Duration::from_secs(3600));
    turning(|| engine.turn(now_ms, true), dial).map(|(link, _)| link)
}
