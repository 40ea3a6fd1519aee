//! The two threads of a cache that watches memory: one reads events, the other drops what they have taken out.

use std::io;
use std::sync::{Arc, PoisonError, mpsc};
use std::thread::JoinHandle;

use crate::error::CacheError;
use crate::registrar::Registrar;
use crate::shared::CacheState;
use crate::system;
use crate::watcher::Watcher;

/// Starts one, and waits until it runs: a thread that is starting holds locks of the standard library, and the child of a fork at that moment has
/// them locked for ever. It could start no thread.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let (starting, started) = mpsc::channel::<()>();
    let body = move || {
        drop(starting);
        // A handler of the program must not run here: it might unmap watched memory, and wait for this thread.
        system::block_signals();
        work();
    };
    let spawned = std::thread::Builder::new().name(name.into()).spawn(body);
    // Ends where there is no thread, too: the body is gone then.
    let _ = started.recv();
    spawned
}

/// Starts both.
///
/// # Errors
/// Where the system has no thread for us.
pub(crate) fn start<R: Registrar>(shared: &Arc<CacheState<R>>) -> Result<Vec<JoinHandle<()>>, CacheError> {
    let start = |name: &str, run: fn(&CacheState<R>)| {
        let shared = Arc::clone(shared);
        let spawned = spawn(name, move || run(&shared));
        spawned.map_err(|error| CacheError::System { errno: error.raw_os_error().unwrap_or(0) })
    };
    let watching = start("longarm-memwatch", watch)?;
    match start("longarm-memfree", free) {
        Ok(freeing) => Ok(vec![watching, freeing]),
        Err(error) => {
            if let Some(watcher) = &shared.watcher {
                watcher.stop();
            }
            // It has nothing to lose: nobody has used the cache.
            let _ = watching.join();
            Err(error)
        }
    }
}

/// Reads what events still come after the end of a cache, as long as the process lives.
///
/// What it knew of is not watched any more. But memory that was grown by `mremap` stays watched in the part that is
/// new, which nobody tells us; and the watch does not end with our descriptor where a child has a copy of that. Unread,
/// an event would hold up the program for good.
pub(crate) fn start_draining(watcher: Arc<Watcher>) {
    let drain = move || {
        loop {
            watcher.wait_for_event();
            while watcher.userfault.read(|_| {}) > 0 {}
        }
    };
    if let Err(error) = spawn("longarm-memwatch", drain) {
        tracing::warn!("no thread to read the last events about watched memory: {error}");
    }
}

fn watch<R: Registrar>(shared: &CacheState<R>) {
    let Some(watcher) = &shared.watcher else { return };
    while watcher.wait() {
        // First the lock, then the read: the thread that caused the event goes on at the read.
        let mut state = shared.lock();
        shared.serve(&mut state);
    }
}

fn free<R: Registrar>(shared: &CacheState<R>) {
    loop {
        let mut state = shared.lock();
        while state.dead.is_empty() && !state.is_stopping {
            state = shared.has_dead.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_stopping {
            return;
        }
        drop(state);
        shared.reap();
    }
}
