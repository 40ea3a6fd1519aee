//! Where the ranks of a job find each other, whatever has started them.

use std::sync::Arc;

use longarm_control::messages::{NodeCard, PeerTraffic, Start, Wait};

use crate::error::InitError;

/// Where the ranks meet, and what the job looks like.
pub(crate) type Found = (Option<Arc<dyn Rendezvous>>, Start);

/// What is called with a rank that died and how.
pub(crate) type OnDeath = Arc<dyn Fn(u32, &str) + Send + Sync>;

/// What is called with a rank that can reach this node no more, and why. It may be in no call, and holds no lock.
pub(crate) type OnLoss = Arc<dyn Fn(u32, &str) + Send + Sync>;

/// What is called when a card has come that was asked for.
pub(crate) type OnNodeCard = Arc<dyn Fn() + Send + Sync>;

/// What is called to learn who waits in a call of this process.
pub(crate) type OnInquiry = Arc<dyn Fn() -> Vec<Wait> + Send + Sync>;

/// What a rank and its network have counted.
#[derive(Default)]
pub(crate) struct Counted {
    pub(crate) traffic: Vec<PeerTraffic>,
    pub(crate) network: Vec<(String, u64)>,
}

/// Where the ranks of a job find each other, and by whom it is ended.
pub(crate) trait Rendezvous: Send + Sync {
    /// The card of this rank's node, if this rank hosts its server. Every rank calls it once, before [`Self::card`].
    fn publish(&self, card: Option<NodeCard>) -> Result<(), InitError>;

    /// The card of a node; waits until it is known. The death of its host meanwhile is an error. Not for who holds anything that
    /// the telling of deaths needs, such as the server.
    fn card(&self, node: u32) -> Result<NodeCard, InitError>;

    /// The card of a node, if it is known. Else it is asked for, and there at some later call. The death of its host is an error.
    fn ask_card(&self, node: u32) -> Result<Option<NodeCard>, InitError>;

    /// From now on `on_node_card` hears when a card has come that [`Self::ask_card`] has asked for.
    fn watch_node_cards(&self, on_node_card: OnNodeCard);

    /// The host of a node's server hung up: how it died, as soon as that is told. `None`: it is not.
    fn death_of_server(&self, node: u32) -> Option<(u32, String)>;

    /// Whether deaths anywhere in the job are told. If not, a server that refuses connections counts as dead.
    fn tells_deaths(&self) -> bool;

    /// From now on `on_death` hears of every death, those before included.
    fn watch_deaths(&self, on_death: OnDeath);

    /// From now on `on_loss` hears of every rank that can reach this node no more, those before included.
    fn watch_losses(&self, on_loss: OnLoss);

    /// Says that this rank can reach a node no more, to the ranks there.
    fn tell_loss(&self, node: u32, how: &str);

    /// Whether it says how a rank ended, also of one that has ended the job itself.
    fn explains_deaths(&self) -> bool;

    /// From now on `on_inquiry` answers whoever asks what this rank waits for.
    fn answer_inquiries(&self, on_inquiry: OnInquiry);

    /// Says that this rank ends well, and, if somebody wants to know, what was counted. Waits until all have left or died, or one has died where
    /// that ends the job.
    fn leave(&self, counted: &dyn Fn() -> Counted);

    /// Nobody of this process's world hears or answers any more: it has left.
    fn forget_world(&self);

    /// Ends the job: this rank cannot go on.
    fn abort(&self, reason: &str, status: i32);
}
