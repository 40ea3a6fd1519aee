//! What a thread is to its run.

use std::cell::RefCell;
use std::sync::Arc;

use super::job::Job;
use crate::network;

/// What the calling thread is to its run.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) job: Arc<Job>,
    /// The number of a rank's thread. `None`: the scheduler.
    pub(super) thread: Option<usize>,
}

thread_local! {
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// The calling thread takes part in a run from now on.
pub(super) fn enter(place: Place) {
    network::join(place.job.network.clone());
    PLACE.with(|mine| *mine.borrow_mut() = Some(place));
}

/// It does no more.
pub(super) fn leave() {
    let place = PLACE.with(|mine| mine.borrow_mut().take());
    network::join(network::Shared::nobodys());
    drop(place);
}

/// The run of the calling thread.
pub(super) fn place() -> Place {
    PLACE.with(|mine| mine.borrow().clone()).expect(
        "a call of a simulated rank on a thread that the program has started itself: only those of longarm and the one that the \
         program was called on take turns",
    )
}
