//! The simulator's way into the runtime, and nobody else's: a world whose rank is one of many in a process, with links, a launcher and
//! a time that are made up. Client, server and wire are the real ones, and so is all of this crate but what stands here.
//!
//! ```text
//!   program of the user ── World ── real Client ── simulated links ── real Engine
//!                            │
//!                          Stage     where threads wait for each other, who starts them, the door of the node, the launcher
//! ```
//!
//! In a simulation one thread runs at a time, and gives that up where it waits. The client does so by its own time
//! ([`longarm_client::Time`]); the few places of this crate in which a thread waits for another one of its rank, or would start one, ask
//! for the [`Stage`] that the thread is on. They are places where a thread is about to sleep or has found that something is not there
//! yet: what does not wait asks for nothing.

use std::sync::Arc;

use longarm_client::Client;
use longarm_control::messages::NodeCard;
use longarm_netmod::Netmod;
use longarm_proto::Secret;

pub use crate::bootstrap::raise_descriptor_limit;
use crate::bootstrap::{Counted, Node, OnDeath, OnInquiry, OnLoss, OnNodeCard, Rendezvous};
use crate::config::Config;
use crate::error::InitError;
pub use crate::stage::{HearDeath, RankEnds, Stage, enter, leave};
use crate::world::{Parts, World};

/// What a simulated rank is made of.
pub struct SimulatedRank {
    /// The simulator.
    pub stage: Arc<dyn Stage>,
    /// The rank's client, made on the thread that the program runs on.
    pub client: Arc<Client>,
    /// The configuration.
    pub config: Config,
    /// The job's secret.
    pub secret: Secret,
    /// For what it says of itself; the client has its links.
    pub netmod: Arc<dyn Netmod>,
    /// Nodes have routers, as beyond `LONGARM_CONNECTIONS_MAX`.
    pub routed: bool,
}

/// Its world. Collective over all ranks of the simulated job.
///
/// # Errors
/// As [`crate::init`], when ranks die meanwhile.
pub fn world(rank: SimulatedRank) -> Result<World, InitError> {
    let SimulatedRank { stage, client, config, secret, netmod, routed } = rank;
    let node = Node::simulated(Arc::clone(client.segment()), Arc::clone(&stage));
    let rendezvous: Arc<dyn Rendezvous> = Arc::new(Launcher(Arc::clone(&stage)));
    let (rendezvous, stage) = (Some(rendezvous), Some(stage));
    World::begin(Parts { client, node, config, secret: &secret, rendezvous, netmod, routed, stage })
}

/// The simulator as the launcher.
struct Launcher(Arc<dyn Stage>);

impl Rendezvous for Launcher {
    fn publish(&self, _: Option<NodeCard>) -> Result<(), InitError> {
        Ok(())
    }

    fn card(&self, _: u32) -> Result<NodeCard, InitError> {
        Err(InitError::LauncherGarbled) // Its client's own links lead to the servers: nobody asks.
    }

    fn ask_card(&self, _: u32) -> Result<Option<NodeCard>, InitError> {
        Err(InitError::LauncherGarbled)
    }

    fn watch_node_cards(&self, _: OnNodeCard) {} // None comes.

    fn death_of_server(&self, node: u32) -> Option<(u32, String)> {
        self.0.death_of_server(node)
    }

    fn tells_deaths(&self) -> bool {
        true
    }

    fn watch_deaths(&self, on_death: OnDeath) {
        self.0.watch_deaths(on_death);
    }

    fn watch_losses(&self, on_loss: OnLoss) {
        self.0.watch_losses(on_loss);
    }

    fn tell_loss(&self, node: u32, how: &str) {
        self.0.tell_loss(node, how);
    }

    fn explains_deaths(&self) -> bool {
        true
    }

    fn answer_inquiries(&self, _: OnInquiry) {} // The simulator asks the client itself.

    fn leave(&self, _: &dyn Fn() -> Counted) {
        self.0.leave();
    }

    fn forget_world(&self) {}

    fn abort(&self, reason: &str, status: i32) {
        self.0.abort(reason, status);
    }
}
