//! The cache as its callers see it, and how a registration is made.

use std::fmt;
use std::mem;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use crate::error::{CacheError, RegisterError};
use crate::extent::Extent;
use crate::options::{Options, Watch};
use crate::registrar::Registrar;
use crate::shared::{CacheState, Entry, Pending, Reservation};
use crate::statistics::{Statistics, Watched};
use crate::system::ForkMark;
use crate::threads;
use crate::watcher::Watcher;

/// However many are asked for: the lists that hold them are made at the beginning.
const ENTRIES_MAX: usize = 1 << 16;

/// Registrations by address. See the head of this crate.
pub struct Cache<R: Registrar> {
    shared: Arc<CacheState<R>>,
    threads: Vec<JoinHandle<()>>,
}

/// A registration in use: as long as this lives, it is not deregistered. Cheap to clone.
///
/// One that is invalidated meanwhile is never handed out again, and deregistered when its last guard is dropped.
pub struct Pinned<R: Registrar>(Arc<Entry<R>>);

/// Memory of which the caller has said that it stays: see [`Cache::hold`].
pub struct Hold<R: Registrar> {
    shared: Arc<CacheState<R>>,
    held: Option<Extent>,
}

impl<R: Registrar> Cache<R> {
    /// A cache, empty, with its threads where it watches memory.
    ///
    /// # Errors
    /// Watching was demanded and is refused, or the system is out of pages, or of threads where watching was demanded.
    pub fn new(registrar: R, options: Options) -> Result<Cache<R>, CacheError> {
        let is_demanded = options.watch == Watch::Userfault;
        let mut cache = Cache::without_threads(registrar, options)?;
        if cache.shared.watcher.is_none() {
            return Ok(cache);
        }
        match threads::start(&cache.shared) {
            Ok(threads) => cache.threads = threads,
            Err(error) if is_demanded => return Err(error),
            Err(error) => {
                tracing::warn!("no threads to watch memory ({error}); each transfer registers its memory anew");
                // Threads that could not be started, or have ended, hold nothing of it any more.
                let shared = Arc::get_mut(&mut cache.shared).expect("nobody else knows it yet");
                (shared.watched, shared.watcher) = (Watched::Off, None);
            }
        }
        Ok(cache)
    }

    fn without_threads(registrar: R, options: Options) -> Result<Cache<R>, CacheError> {
        let mark = ForkMark::new().map_err(|errno| CacheError::System { errno: errno.raw_os_error() })?;
        let mut watcher = None;
        let watched = match options.watch {
            Watch::Off => Watched::Off,
            Watch::Caller => Watched::Interposed,
            Watch::Device => Watched::Device,
            Watch::Auto | Watch::Userfault => match Watcher::open(mark.extent()) {
                Ok(opened) => {
                    watcher = Some(Arc::new(opened));
                    Watched::Userfaultfd
                }
                Err(errno) => {
                    let error = CacheError::Userfault { errno: errno.raw_os_error() };
                    if options.watch == Watch::Userfault {
                        return Err(error);
                    }
                    tracing::warn!("{error}; until then each transfer registers its memory anew");
                    Watched::Off
                }
            },
        };
        let options = Options { entries_max: options.entries_max.min(ENTRIES_MAX), ..options };
        let shared = Arc::new(CacheState::new(registrar, options, watched, watcher, mark));
        Ok(Cache { shared, threads: Vec::new() })
    }

    /// The registration of these bytes: a known one, or a new one, of whole pages and with what it touches.
    ///
    /// It is kept for the next time where its memory can be watched.
    ///
    /// # Errors
    /// A bound or a limit is reached though all that is unused was let go; the registrar's errors; and any use in a child
    /// process. The transfer then has to go another way.
    pub fn acquire(&self, start: usize, bytes: usize) -> Result<Pinned<R>, RegisterError> {
        let shared = &self.shared;
        if shared.mark.is_in_child() {
            return Err(RegisterError::Forked);
        }
        let wanted = Extent::around(start, bytes).ok_or(RegisterError::BadRange { start, bytes })?;
        let mut state = shared.lock();
        if let Some(entry) = shared.find(&mut state, wanted) {
            return Ok(Pinned(entry));
        }
        let is_kept = shared.watched != Watched::Off || state.is_held(wanted);
        drop(state);
        if !is_kept {
            return self.counted(self.register_uncached(wanted, None));
        }
        let _turn = shared.making.lock().unwrap_or_else(PoisonError::into_inner);
        let made = self.make(wanted);
        // What it has replaced.
        shared.reap();
        self.counted(made)
    }

    /// The registration of these bytes if it is known.
    pub fn lookup(&self, start: usize, bytes: usize) -> Option<Pinned<R>> {
        let shared = &self.shared;
        if shared.mark.is_in_child() {
            return None;
        }
        let wanted = Extent::around(start, bytes)?;
        shared.find(&mut shared.lock(), wanted).map(Pinned)
    }

    /// [`Options::is_one_thread`], said later.
    pub fn rely_on_one_thread(&self) {
        if !self.shared.mark.is_in_child() {
            self.shared.lock().is_one_thread = true;
        }
    }

    /// The caller's word that these bytes stay where they are, with the pages that they have, until the guard is dropped:
    /// memory that it has mapped itself. It is kept without being watched, also where other processes share it or nothing can
    /// be watched, and finding it asks the kernel nothing. Where too much is held already this does nothing.
    ///
    /// When the drop of the guard returns, nothing of it is handed out any more, and what nobody uses is deregistered.
    pub fn hold(&self, start: usize, bytes: usize) -> Hold<R> {
        let shared = &self.shared;
        let extent = Extent::around(start, bytes).filter(|_| !shared.mark.is_in_child());
        let held = extent.filter(|extent| {
            let mut state = shared.lock();
            let has_room = state.held.len() < state.held.capacity();
            if has_room {
                state.held.push(*extent);
            }
            has_room
        });
        Hold { shared: Arc::clone(shared), held }
    }

    /// Lets go of all that shares a page with these bytes: when this returns it is not handed out any more, and what
    /// nobody uses is deregistered.
    pub fn invalidate(&self, start: usize, bytes: usize) {
        let shared = &self.shared;
        if shared.mark.is_in_child() {
            return;
        }
        // Bytes behind the last address are none.
        let bytes = bytes.min((usize::MAX - rustix::param::page_size()).saturating_sub(start));
        if let Some(changed) = Extent::around(start, bytes) {
            shared.forget_changed(&mut shared.lock(), changed);
            shared.settle();
        }
    }

    /// What has been done so far. In a child process, nothing.
    pub fn statistics(&self) -> Statistics {
        self.shared.statistics()
    }

    fn counted(&self, made: Result<Arc<Entry<R>>, RegisterError>) -> Result<Pinned<R>, RegisterError> {
        if matches!(made, Err(RegisterError::Limit { .. } | RegisterError::Full { .. })) {
            self.shared.lock().refused += 1;
        }
        made.map(Pinned)
    }

    /// Finds or makes it. The caller's turn at making lasts until this returns.
    fn make(&self, wanted: Extent) -> Result<Arc<Entry<R>>, RegisterError> {
        let shared = &self.shared;
        let mut state = shared.lock();
        // Whoever had the turn before may have made it.
        if let Some(entry) = shared.find(&mut state, wanted) {
            return Ok(entry);
        }
        if !state.is_held(wanted) && !shared.may_keep(&mut state) {
            drop(state);
            return self.register_uncached(wanted, None);
        }
        let merged = shared.merged(&state, wanted);
        let room = if merged == wanted { None } else { shared.reserve(&mut state, merged.bytes()) };
        if let Some(reservation) = room {
            state.pending = Some(Pending { extent: merged, is_changed: false, is_held: state.is_held(merged) });
            drop(state);
            if self.watch(merged)
                && let Ok(handle) = shared.registrar.register(merged.start, merged.bytes())
            {
                return Ok(self.keep(merged, handle, reservation));
            }
            self.give_up(merged);
            drop(reservation);
            state = shared.lock();
        }
        state.pending = Some(Pending { extent: wanted, is_changed: false, is_held: state.is_held(wanted) });
        drop(state);
        let made = self.make_alone(wanted);
        if made.is_err() {
            self.give_up(wanted);
        }
        made
    }

    /// Makes it as it was asked for, with nothing that it touches.
    fn make_alone(&self, wanted: Extent) -> Result<Arc<Entry<R>>, RegisterError> {
        let reservation = self.make_room(wanted)?;
        if !self.watch(wanted) {
            self.give_up(wanted);
            return self.register_uncached(wanted, Some(reservation));
        }
        let handle = self.register(wanted)?;
        Ok(self.keep(wanted, handle, reservation))
    }

    /// From now on changes of this memory are told; `false` where they cannot be.
    fn watch(&self, extent: Extent) -> bool {
        let shared = &self.shared;
        let mut state = shared.lock();
        if state.pending.is_some_and(|pending| pending.is_held) {
            return true;
        }
        let Some(watcher) = &shared.watcher else { return shared.watched != Watched::Off };
        state.has_watched = true;
        drop(state);
        // In this order: what is mapped there after the look comes with an event.
        watcher.userfault.watch(extent).is_ok() && watcher.maps.are_private(extent)
    }

    /// Room within the bounds, at the cost of others if need be.
    fn make_room(&self, wanted: Extent) -> Result<Reservation<R>, RegisterError> {
        let shared = &self.shared;
        let options = &shared.options;
        let bytes = wanted.bytes();
        let full = RegisterError::Full { bytes, bytes_max: options.bytes_max, entries_max: options.entries_max };
        if bytes > options.bytes_max {
            return Err(full);
        }
        loop {
            let mut state = shared.lock();
            if let Some(reservation) = shared.reserve(&mut state, bytes) {
                return Ok(reservation);
            }
            let is_evicted = shared.evict(&mut state);
            drop(state);
            let were_dropped = shared.settle();
            if !is_evicted && !were_dropped {
                return Err(full);
            }
        }
    }

    /// Has it registered, at the cost of others if a limit is reached.
    fn register(&self, extent: Extent) -> Result<R::Handle, RegisterError> {
        let shared = &self.shared;
        loop {
            let made = shared.registrar.register(extent.start, extent.bytes());
            if !matches!(made, Err(RegisterError::Limit { .. })) {
                return made;
            }
            let is_evicted = shared.evict(&mut shared.lock());
            let were_dropped = shared.settle();
            if !is_evicted && !were_dropped {
                return made;
            }
        }
    }

    /// A registration for one use.
    fn register_uncached(&self, wanted: Extent, room: Option<Reservation<R>>) -> Result<Arc<Entry<R>>, RegisterError> {
        let reservation = room.map_or_else(|| self.make_room(wanted), Ok)?;
        let handle = self.register(wanted)?;
        self.shared.lock().uncached += 1;
        Ok(Arc::new(Entry { extent: wanted, handle: Some(handle), is_held: false, reservation }))
    }

    /// Puts a new registration in the place of all that it overlaps, unless its memory has changed meanwhile.
    fn keep(&self, extent: Extent, handle: R::Handle, reservation: Reservation<R>) -> Arc<Entry<R>> {
        let shared = &self.shared;
        let mut state = shared.lock();
        let is_held = state.pending.is_some_and(|pending| pending.is_held);
        drop(state);
        let entry = Arc::new(Entry { extent, handle: Some(handle), is_held, reservation });
        state = shared.lock();
        if state.pending.is_none_or(|pending| pending.is_changed) {
            // Good for this request, which began after the change or races with it, and for no other.
            state.pending = None;
            state.uncached += 1;
            shared.unwatch_unused(&state, extent);
            return entry;
        }
        let among = state.map.overlapping(extent);
        for _ in among.clone() {
            // The watch goes over to the new one, which is still pending.
            shared.retire(&mut state, among.start, None);
        }
        state.pending = None;
        state.misses += 1;
        state.map.insert(extent, Arc::clone(&entry));
        entry
    }

    /// Nothing came of making this.
    fn give_up(&self, extent: Extent) {
        let shared = &self.shared;
        let mut state = shared.lock();
        state.pending = None;
        shared.unwatch_unused(&state, extent);
    }
}

impl<R: Registrar> Drop for Hold<R> {
    fn drop(&mut self) {
        let Some(extent) = self.held.take() else { return };
        let shared = &self.shared;
        if shared.mark.is_in_child() {
            // As for the cache itself.
            mem::forget(Arc::clone(shared));
            return;
        }
        let mut state = shared.lock();
        if let Some(at) = state.held.iter().position(|held| *held == extent) {
            state.held.swap_remove(at);
        }
        shared.forget_changed(&mut state, extent);
        drop(state);
        shared.settle();
    }
}

impl<R: Registrar> Drop for Cache<R> {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.mark.is_in_child() {
            // Another thread may have been in the middle of anything when this copy was made. Nothing of it is touched.
            mem::forget(Arc::clone(shared));
            mem::forget(mem::take(&mut self.threads));
            return;
        }
        let mut state = shared.lock();
        state.is_stopping = true;
        for _ in 0..state.map.len() {
            shared.retire(&mut state, 0, None);
        }
        shared.has_dead.notify_all();
        let has_watched = state.has_watched;
        drop(state);
        // Handles are dropped while events are still read: a drop may unmap.
        shared.settle();
        if let Some(watcher) = &shared.watcher {
            watcher.stop();
        }
        for thread in self.threads.drain(..) {
            // A panic of a thread has been reported by itself.
            let _ = thread.join();
        }
        if let Some(watcher) = shared.watcher.as_ref().filter(|_| has_watched) {
            threads::start_draining(Arc::clone(watcher));
        }
    }
}

impl<R: Registrar> Pinned<R> {
    /// The registration.
    ///
    /// # Panics
    /// Never: it is there as long as a guard is.
    pub fn handle(&self) -> &R::Handle {
        self.0.handle.as_ref().expect("taken by the drop alone")
    }

    /// The first address that is registered: at or below the one asked for.
    pub fn start(&self) -> usize {
        self.0.extent.start
    }

    /// How many bytes are registered from there.
    pub fn bytes(&self) -> usize {
        self.0.extent.bytes()
    }
}

impl<R: Registrar> Clone for Pinned<R> {
    fn clone(&self) -> Self {
        Pinned(Arc::clone(&self.0))
    }
}

impl<R: Registrar> fmt::Debug for Pinned<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pinned").field("start", &self.start()).field("bytes", &self.bytes()).finish()
    }
}

impl<R: Registrar> fmt::Debug for Cache<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cache").field("statistics", &self.statistics()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::mapping::{self, Mapping};

    struct Free;

    impl Registrar for Free {
        type Handle = ();
        fn register(&self, _start: usize, _bytes: usize) -> Result<(), RegisterError> {
            Ok(())
        }
    }

    /// What a lookup finds after another thread has unmapped the pages, and before anybody has read its event.
    fn found_while_unmapping(is_one_thread: bool) -> Option<bool> {
        let options = Options { watch: Watch::Userfault, is_one_thread, ..Options::default() };
        let cache = match Cache::without_threads(Free, options) {
            Ok(cache) => cache,
            Err(error) => {
                eprintln!("skipped: {error}");
                return None;
            }
        };
        let mapping = Mapping::new(4);
        let page_bytes = mapping::page_bytes();
        drop(cache.acquire(mapping.start, mapping.bytes).unwrap());
        assert!(cache.lookup(mapping.page(1), page_bytes).is_some());
        let is_found = std::thread::scope(|scope| {
            let unmapping = scope.spawn(|| mapping.unmap(1, 1));
            // Free for others, although the call has not returned: nobody has read the event.
            while !mapping.map_again(1, 1) {
                std::thread::yield_now();
            }
            let is_found = cache.lookup(mapping.page(1), page_bytes).is_some();
            while !unmapping.is_finished() {
                cache.shared.serve(&mut cache.shared.lock());
                std::thread::yield_now();
            }
            is_found
        });
        assert!(cache.lookup(mapping.page(1), page_bytes).is_none());
        Some(is_found)
    }

    #[test]
    fn memory_mapped_anew_while_the_old_is_still_being_unmapped_is_not_found() {
        assert_ne!(found_while_unmapping(false), Some(true));
    }

    #[test]
    fn without_the_question_to_the_kernel_it_would_be_found() {
        // Why `is_one_thread` is a promise, and that the test above looks at the right moment.
        assert_ne!(found_while_unmapping(true), Some(false));
    }

    #[test]
    fn what_changes_while_it_is_registered_is_not_kept() {
        struct Changing(Mapping);
        impl Registrar for Changing {
            type Handle = ();
            fn register(&self, _start: usize, _bytes: usize) -> Result<(), RegisterError> {
                self.0.discard(1, 1);
                Ok(())
            }
        }
        let mapping = Mapping::new(4);
        let (start, bytes) = (mapping.start, mapping.bytes);
        let options = Options { watch: Watch::Userfault, ..Options::default() };
        let Ok(cache) = Cache::new(Changing(mapping), options).map_err(|error| eprintln!("skipped: {error}")) else {
            return;
        };
        assert_eq!(cache.acquire(start, bytes).unwrap().bytes(), bytes);
        assert!(cache.lookup(start, bytes).is_none());
        let statistics = cache.statistics();
        assert_eq!((statistics.uncached, statistics.misses, statistics.bytes), (1, 0, 0));
    }
}
