//! How a process becomes a rank: who it is, where the others are, and the node it shares memory with.

pub mod control;
mod exchange;
mod launcher;
mod node;

use std::sync::Arc;

use self::control::{NodeCard, PeerTraffic};
use crate::error::InitError;

pub use exchange::Exchange;
pub(crate) use exchange::Exchanged;
#[doc(hidden)]
pub use exchange::{cards_from_records, start_from_records};
pub(crate) use launcher::Launcher;
pub(crate) use node::{Dialer, Node, NodeOptions, tcp};

/// What is called with a rank that died and how.
pub(crate) type OnDeath = Arc<dyn Fn(u32, &str) + Send + Sync>;

/// Where the ranks of a job find each other, and by whom it is ended.
pub(crate) trait Rendezvous: Send + Sync {
    /// The card of this rank's node, if this rank hosts its server. Every rank calls it once, before [`Self::card`].
    fn publish(&self, card: Option<NodeCard>) -> Result<(), InitError>;

    /// The card of a node, as soon as it is known. A death meanwhile is an error: its host may be the one.
    fn card(&self, node: u32) -> Result<NodeCard, InitError>;

    /// From now on `on_death` hears of every death, those before included.
    fn watch_deaths(&self, on_death: OnDeath);

    /// Says that this rank ends well, and waits until all do, or one has died.
    fn leave(&self, traffic: Vec<PeerTraffic>);

    /// Ends the job: this rank cannot go on.
    fn abort(&self, reason: &str, status: i32);
}
