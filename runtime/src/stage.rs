//! What a simulator is to one of its ranks: where the rank's threads wait for each other, who starts them, the door of the node, and the
//! launcher. A thread that is on no stage is one of a process that is a rank: it asks for one only where it is about to sleep, or has
//! found that something is not there yet.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::Context;

use longarm_server::door::{DoorError, DoorRequest, Handed};

/// What is told of a rank that died, and how; or of one that can reach this node no more, and why.
pub type HearDeath = Arc<dyn Fn(u32, &str) + Send + Sync>;

/// What a simulator is to one of its ranks.
pub trait Stage: Send + Sync {
    /// Starts a thread of the rank. It runs when the simulator says so.
    fn start_thread(&self, name: &'static str, work: Box<dyn FnOnce() + Send>);

    /// What stands for random numbers of the system.
    fn random(&self, bytes: &mut [u8]);

    /// The calling thread waits for another one of its rank, and will look again: others run.
    fn nap(&self);

    /// Asks at the door of the rank's node.
    ///
    /// # Errors
    /// As at a real one.
    fn ask_door(&self, request: &DoorRequest) -> Result<Option<Handed>, DoorError>;

    /// How the host of a node's server died, if it did.
    fn death_of_server(&self, node: u32) -> Option<(u32, String)>;

    /// Whom to tell of every death.
    fn watch_deaths(&self, on_death: HearDeath);

    /// Whom to tell of every rank that can reach this rank's node no more.
    fn watch_losses(&self, on_loss: HearDeath);

    /// The rank can reach a node no more: the ranks there are told.
    fn tell_loss(&self, node: u32, how: &str);

    /// The rank ends well: returns when all others have, or are dead.
    fn leave(&self);

    /// The rank ends the job.
    fn abort(&self, reason: &str, status: i32);
}

/// What a thread panics with whose rank ends here, where the process of a real one would.
#[derive(Debug)]
pub struct RankEnds;

thread_local! {
    static STAGE: RefCell<Option<Arc<dyn Stage>>> = const { RefCell::new(None) };
}

/// From now on the calling thread is one of a simulated rank.
pub fn enter(stage: Arc<dyn Stage>) {
    STAGE.with(|place| *place.borrow_mut() = Some(stage));
}

/// It is no more.
pub fn leave() {
    let stage = STAGE.with(|place| place.borrow_mut().take());
    drop(stage);
}

/// The stage of the calling thread, if it is one of a simulated rank.
pub(crate) fn here() -> Option<Arc<dyn Stage>> {
    STAGE.try_with(|stage| stage.borrow().clone()).ok().flatten()
}

/// For who has looked for what is not there: in a simulation others run before the next look.
pub(crate) fn looked_in_vain() {
    if let Some(stage) = here() {
        stage.nap();
    }
}

/// For a future that is pending: in a simulation others run now, for its executor's thread is not to sleep, and it is polled again.
pub(crate) fn pending(context: &Context<'_>) {
    if let Some(stage) = here() {
        stage.nap();
        context.waker().wake_by_ref();
    }
}

/// Instead of the end of a process, where the calling thread is one of a simulated rank: the end of the thread.
pub(crate) fn end_thread_if_simulated() {
    if here().is_some() {
        resume_unwind(Box::new(RankEnds));
    }
}
