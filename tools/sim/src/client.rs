//! The real client of a simulated rank.

use std::rc::Rc;
use std::sync::Arc;

use longarm_client::mail::ActiveMessage;
use longarm_client::{Client, ClientOptions, EndpointOptions, Failures, Layout};
use longarm_netmod::flow::Costs;
use longarm_proto::{Identity, Rank};
use longarm_shm::sync::AtomicU64;

use crate::book;
use crate::dice::{Dice, mix};
use crate::hooks::{SimDial, SimTime};
use crate::job::{self, Job, SECRET};
use crate::plan::Shape;
use crate::routed::RankNetwork;

/// How long a first connection may take.
const CONNECT_MS: u64 = 5_000;
/// How long a connection that broke may take to be made anew.
const RECONNECT_MS: u64 = 5_000;
/// How long a server may be silent before its connection counts as broken.
const SILENCE_MS: u64 = 200;

/// A rank's client, which calls over the simulated network.
///
/// # Errors
/// When a descriptor could not be had.
pub fn make_client(job: &Rc<Job>, layout: &Layout, routed: Option<Arc<RankNetwork>>) -> Result<Arc<Client>, String> {
    let rank = layout.me();
    let mut dice = Dice::of(job.shape.plan.seed, 51, rank.0.into());
    let dial = SimDial {
        run: job.run,
        secret: SECRET.clone(),
        encrypted: job.shape.encrypted,
        identity: Identity { job: job.id, rank, node: layout.my_node() },
        dice: AtomicU64::new(dice.roll()),
        by_any_way: routed.map(|routed| routed.by_any_way(job::address)),
    };
    let client = Client::new(ClientOptions {
        layout: layout.clone(),
        segment: job::with_node(layout.my_node().0, |node| Arc::clone(&node.segment)),
        dial: Arc::new(dial),
        assist: None,
        failures: Failures::new(layout.rank_count(), false),
        spin_us: 0,
        eager_bytes: 1 << dice.between(6, 13),
        endpoint: EndpointOptions {
            caller: rank,
            buffered_bytes_max: 1 << dice.between(10, 16),
            connect_ms: CONNECT_MS,
            reconnect_ms: RECONNECT_MS,
            silence_ms: SILENCE_MS,
            costs: Costs { call_ns: dice.between(1, 10_000), pack_kib_ns: dice.between(1, 1000) },
        },
        processors: Vec::new(),
        ranks_on_machine: 0,
        time: Arc::new(SimTime),
    });
    client.map_err(|error| error.to_string())
}

/// What runs the active messages of a rank: each must be the one that is due, with the payload that it was sent with.
pub fn dispatch(me: Rank, shape: &Rc<Shape>) -> longarm_client::mail::Dispatch {
    let callers = shape.callers[me.0 as usize].clone();
    let first_pair = shape.first_pair[me.0 as usize] as usize;
    Arc::new(move |message: Option<ActiveMessage>| {
        let Some(ActiveMessage { source, handler, is_reply, arguments, payload }) = message else { return };
        let place = callers.binary_search(&source);
        let (Ok(place), [number, bytes]) = (place, arguments.as_slice()) else {
            book::violate(&[me.0, source.0], format!("rank {me} got a message of rank {source} that nobody sent"));
            return;
        };
        let due = book::with(|book| book.run_active(first_pair + place, *number));
        let whole = payload.len() as u64 == *bytes
            && (0..).zip(&payload).all(|(at, byte)| *byte == mix(number ^ at) as u8)
            && handler == 1
            && !is_reply;
        if !due || !whole {
            let what = format!("message {number} of rank {source} to rank {me}: due {due}, whole {whole}");
            book::violate(&[me.0, source.0], what);
        }
    })
}
