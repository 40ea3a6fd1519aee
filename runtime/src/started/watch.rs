//! Waits for words that nobody blocks in: one worker looks at all of them, and sleeps as a blocking wait does.

use std::sync::Arc;

use longarm_client::{Client, Lost, LostHow, Operation, WaitError, unseen};
use longarm_shm::sync::{AtomicBool, Ordering, fence};
use parking_lot::Mutex;

use super::lane::{Lane, Workers};
use super::{Promised, Started, promise};

/// Somebody who waits.
trait Watcher: Send {
    /// Looks. True: it is over.
    fn look(&mut self) -> bool;

    /// Tells it so; by this error, if it has not come to an end itself. Runs wakers of the program.
    fn tell(self: Box<Self>, error: Option<&WaitError>);
}

type Watchers = Vec<Box<dyn Watcher>>;

/// See the module.
pub(crate) struct Watch {
    watchers: Mutex<Watchers>,
    workers: Workers,
    lane: Arc<Lane>,
    stopping: AtomicBool,
}

struct Waiting<R, C> {
    check: C,
    result: Option<Result<R, WaitError>>,
    promised: Promised<R, WaitError>,
}

impl<R: Send, C: FnMut() -> Result<Option<R>, WaitError> + Send> Watcher for Waiting<R, C> {
    fn look(&mut self) -> bool {
        self.result = (self.check)().transpose();
        self.result.is_some() || self.promised.is_dropped()
    }

    fn tell(self: Box<Self>, error: Option<&WaitError>) {
        if let Some(result) = self.result.or_else(|| error.cloned().map(Err)) {
            self.promised.keep(result);
        }
    }
}

impl Watch {
    pub(crate) fn new(workers: Workers) -> Arc<Watch> {
        Arc::new(Watch { watchers: Mutex::default(), workers, lane: Lane::new(), stopping: AtomicBool::new(false) })
    }

    /// The threads that look.
    pub(crate) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Waits until `check` gives something: it looks at words of this rank.
    pub(crate) fn start<R: Send + 'static>(
        self: &Arc<Self>,
        client: &Arc<Client>,
        mut check: impl FnMut() -> Result<Option<R>, WaitError> + Send + 'static,
    ) -> Started<R, WaitError> {
        if let Some(result) = check().transpose() {
            return Started::with(result);
        }
        let (started, promised) = promise();
        let mut watchers = self.watchers.lock();
        let is_first = watchers.is_empty();
        watchers.push(Box::new(Waiting { check, result: None, promised }));
        drop(watchers);
        if is_first {
            let (watch, client) = (Arc::clone(self), Arc::clone(client));
            self.workers.start(&self.lane, move || watch.run(&client));
        } else {
            // SeqCst fence: the word may have changed before its watcher was there, or the worker may be about to sleep.
            fence(Ordering::SeqCst);
            client.ring_window(client.layout().me());
        }
        started
    }

    /// As long as there are any.
    fn run(&self, client: &Client) {
        while !self.watchers.lock().is_empty() {
            let over = client.wait_words(|| {
                if self.stopping.load(Ordering::Acquire) {
                    return Err(finalized(client));
                }
                let _unseen = unseen();
                let over: Watchers = self.watchers.lock().extract_if(.., |watcher| watcher.look()).collect();
                Ok((!over.is_empty()).then_some(over))
            });
            // Without the lock, and out of the call: those who are woken may call straight back.
            match over {
                Ok(over) => over.into_iter().for_each(|watcher| watcher.tell(None)),
                Err(error) => {
                    let failed = std::mem::take(&mut *self.watchers.lock());
                    failed.into_iter().for_each(|watcher| watcher.tell(Some(&error)));
                }
            }
        }
    }

    /// The world ends: whoever waits gets an error.
    pub(crate) fn stop(&self, client: &Client) {
        self.stopping.store(true, Ordering::Release);
        client.wake_all();
        self.workers.stop();
    }
}

fn finalized(client: &Client) -> WaitError {
    let (layout, rank) = (client.layout(), client.layout().me());
    Lost { rank, node: layout.node_of(rank), operation: Operation::Wait, how: LostHow::Finalized }.into()
}
