//! What the callers and the two threads of a cache share: the lock, and everything that happens under it.
//!
//! RULE no-allocator: whoever holds the lock of [`State`] neither allocates nor frees nor drops an [`Entry`]; the crate's
//! head says why. Entries that leave the map go to `State::dead`, and are dropped by [`CacheState::reap`] without the lock.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::extent::Extent;
use crate::map::IntervalMap;
use crate::options::Options;
use crate::registrar::Registrar;
use crate::statistics::{Statistics, Watched};
use crate::system::{Event, ForkMark};
use crate::watcher::Watcher;

/// How often a hit waits for changes of the memory that are under way, before it counts as a miss.
const TRIES_MAX: u32 = 16;

/// Pieces of memory that are held at a time.
const HELD_MAX: usize = 1024;

pub(crate) struct CacheState<R: Registrar> {
    pub(crate) mark: ForkMark,
    pub(crate) registrar: R,
    pub(crate) options: Options,
    pub(crate) watched: Watched,
    /// There if `watched` says userfaultfd.
    pub(crate) watcher: Option<Arc<Watcher>>,
    /// Held while a registration is made. Taken before `state`, and by no thread of ours.
    pub(crate) making: Mutex<()>,
    state: Mutex<State<R>>,
    /// Told when there are dead, and at the end.
    pub(crate) has_dead: Condvar,
    /// Told when the last of those that were being dropped is gone.
    has_dropped: Condvar,
}

pub(crate) struct State<R: Registrar> {
    pub(crate) map: IntervalMap<Arc<Entry<R>>>,
    /// Out of the map, and not dropped yet. Never longer than the map may be.
    pub(crate) dead: Vec<Arc<Entry<R>>>,
    /// Memory that stays, as its owner has said. Never longer than it was made for.
    pub(crate) held: Vec<Extent>,
    /// [`Options::is_one_thread`], which may be said later too.
    pub(crate) is_one_thread: bool,
    /// The registration that is being made.
    pub(crate) pending: Option<Pending>,
    /// How many dead ones are being dropped at this moment.
    dropping: usize,
    /// Bytes and registrations that exist, or are being made.
    bytes: usize,
    registrations: usize,
    pub(crate) is_stopping: bool,
    /// Whether the kernel was ever asked to watch something.
    pub(crate) has_watched: bool,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) uncached: u64,
    pub(crate) evictions: u64,
    pub(crate) invalidations: u64,
    pub(crate) refused: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) extent: Extent,
    /// Something happened to its memory meanwhile.
    pub(crate) is_changed: bool,
    /// It lies in memory that is held.
    pub(crate) is_held: bool,
}

/// One registration. Dropping it deregisters, in the process that made it.
pub(crate) struct Entry<R: Registrar> {
    pub(crate) extent: Extent,
    /// There until the drop.
    pub(crate) handle: Option<R::Handle>,
    /// Its memory was held when it was made. It leaves the map when that ends.
    pub(crate) is_held: bool,
    pub(crate) reservation: Reservation<R>,
}

/// Room for one registration within the bounds, given back when dropped.
pub(crate) struct Reservation<R: Registrar> {
    shared: Arc<CacheState<R>>,
    bytes: usize,
}

/// What becomes of the mapping whose memory changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mapping {
    /// Something else may be mapped there by now, so it is left alone.
    Gone,
    Stays,
}

impl<R: Registrar> State<R> {
    /// Whether all of this stays, as its owner has said.
    pub(crate) fn is_held(&self, extent: Extent) -> bool {
        self.held.iter().any(|held| held.covers(extent))
    }

    fn holds_some_of(&self, extent: Extent) -> bool {
        self.held.iter().any(|held| held.overlaps(extent))
    }
}

impl<R: Registrar> CacheState<R> {
    pub(crate) fn new(
        registrar: R,
        options: Options,
        watched: Watched,
        watcher: Option<Arc<Watcher>>,
        mark: ForkMark,
    ) -> Self {
        let state = State {
            map: IntervalMap::new(options.entries_max),
            dead: Vec::with_capacity(options.entries_max),
            held: Vec::with_capacity(HELD_MAX),
            is_one_thread: options.is_one_thread,
            pending: None,
            dropping: 0,
            bytes: 0,
            registrations: 0,
            is_stopping: false,
            has_watched: false,
            hits: 0,
            misses: 0,
            uncached: 0,
            evictions: 0,
            invalidations: 0,
            refused: 0,
        };
        CacheState {
            mark,
            registrar,
            options,
            watched,
            watcher,
            making: Mutex::new(()),
            state: Mutex::new(state),
            has_dead: Condvar::new(),
            has_dropped: Condvar::new(),
        }
    }

    /// The lock. Only in the process that made it: in a child some thread that does not exist may hold it.
    ///
    /// The standard library's, because it waits without allocating.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<R>> {
        debug_assert!(!self.mark.is_in_child());
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known about these pages, if it can be trusted at this moment.
    pub(crate) fn find(&self, state: &mut State<R>, wanted: Extent) -> Option<Arc<Entry<R>>> {
        let is_held = state.map.find(wanted)?.is_held;
        if !is_held && !state.is_one_thread && !self.is_steady(state) {
            return None;
        }
        // Looked for again, because an event may have come in.
        let entry = Arc::clone(state.map.find(wanted)?);
        state.hits += 1;
        Some(entry)
    }

    /// Whether a registration of memory that nobody holds may be kept: changes of it are told, and all that were have been acted
    /// upon.
    pub(crate) fn may_keep(&self, state: &mut State<R>) -> bool {
        self.watched != Watched::Off && self.is_steady(state)
    }

    /// Whether all that has happened to watched memory up to now has been acted upon.
    pub(crate) fn is_steady(&self, state: &mut State<R>) -> bool {
        let Some(watcher) = &self.watcher else { return true };
        for _ in 0..TRIES_MAX {
            if !watcher.userfault.is_changing() {
                return true;
            }
            self.serve(state);
            // The thread that changes memory may not have queued its event yet.
            std::thread::yield_now();
        }
        !watcher.userfault.is_changing()
    }

    /// Reads the events that there are, and acts upon them before anybody can look up.
    pub(crate) fn serve(&self, state: &mut State<R>) {
        let Some(watcher) = &self.watcher else { return };
        while watcher.userfault.read(|event| self.on_event(state, event)) > 0 {}
        if !state.dead.is_empty() {
            self.has_dead.notify_one();
        }
    }

    fn on_event(&self, state: &mut State<R>, event: Event) {
        match event {
            Event::Unmapped(extent) => self.forget(state, extent, Mapping::Gone),
            Event::Discarded(extent) => self.forget(state, extent, Mapping::Stays),
            Event::Moved(from, to) => {
                self.forget(state, from, Mapping::Gone);
                // Somebody may have registered it there already, and this takes the watch off.
                self.forget(state, to, Mapping::Stays);
                self.unwatch(to, &[state.pending.map(|pending| pending.extent)]);
            }
        }
    }

    /// Takes out all that overlaps this, because its memory changes or goes.
    pub(crate) fn forget_changed(&self, state: &mut State<R>, changed: Extent) {
        self.forget(state, changed, Mapping::Stays);
        if !state.dead.is_empty() {
            self.has_dead.notify_one();
        }
    }

    fn forget(&self, state: &mut State<R>, changed: Extent, mapping: Mapping) {
        if let Some(pending) = &mut state.pending
            && pending.extent.overlaps(changed)
        {
            pending.is_changed = true;
        }
        let among = state.map.overlapping(changed);
        state.invalidations += among.len() as u64;
        let kept = (mapping == Mapping::Gone).then_some(changed);
        for _ in among.clone() {
            self.retire(state, among.start, kept);
        }
    }

    /// Takes one out of the map. What it alone had watched is watched no more, `kept` excepted.
    pub(crate) fn retire(&self, state: &mut State<R>, at: usize, kept: Option<Extent>) {
        let (extent, entry) = state.map.take(at);
        let was_watched = !entry.is_held;
        // Every entry holds one of the `entries_max` reservations.
        assert!(state.dead.len() < state.dead.capacity());
        state.dead.push(entry);
        if !was_watched {
            return;
        }
        self.unwatch(extent, &[kept, state.pending.map(|pending| pending.extent)]);
    }

    fn unwatch(&self, extent: Extent, kept: &[Option<Extent>]) {
        let Some(watcher) = &self.watcher else { return };
        extent.for_each_outside(kept, |piece| watcher.userfault.unwatch(piece));
    }

    /// How far a registration reaches that swallows what it overlaps, and what it touches if that stays small.
    pub(crate) fn merged(&self, state: &State<R>, wanted: Extent) -> Extent {
        let mut merged = wanted;
        for at in state.map.overlapping(wanted) {
            merged = merged.union(state.map.extent(at));
        }
        for neighbour in state.map.touching(merged).into_iter().flatten() {
            let both = merged.union(neighbour);
            if both.bytes() <= self.options.merge_bytes_max {
                merged = both;
            }
        }
        // What is held stays apart from what is watched.
        let is_alike = if state.is_held(wanted) { state.is_held(merged) } else { !state.holds_some_of(merged) };
        if is_alike { merged } else { wanted }
    }

    /// Takes the watch off an extent that was not registered after all, as far as no entry needs it.
    pub(crate) fn unwatch_unused(&self, state: &State<R>, extent: Extent) {
        let kept = [state.pending.map(|pending| pending.extent)];
        let mut start = extent.start;
        for at in state.map.overlapping(extent) {
            let live = state.map.extent(at);
            if start < live.start {
                self.unwatch(Extent { start, end: live.start }, &kept);
            }
            start = live.end;
        }
        if start < extent.end {
            self.unwatch(Extent { start, end: extent.end }, &kept);
        }
    }

    /// Takes out the unused one whose last use lies furthest back.
    pub(crate) fn evict(&self, state: &mut State<R>) -> bool {
        // The map's own reference is the only one, and others are made from it alone, under the lock we hold.
        let Some(at) = state.map.oldest(|entry| Arc::strong_count(entry) == 1) else { return false };
        state.evictions += 1;
        self.retire(state, at, None);
        true
    }

    /// Drops all dead, one after the other, and each without the lock.
    pub(crate) fn reap(&self) {
        loop {
            let mut state = self.lock();
            let Some(entry) = state.dead.pop() else { return };
            state.dropping += 1;
            drop(state);
            drop(entry);
            let mut state = self.lock();
            state.dropping -= 1;
            if state.dropping == 0 {
                self.has_dropped.notify_all();
            }
        }
    }

    /// Drops all dead and waits for those that other threads are dropping. Whether there were any.
    pub(crate) fn settle(&self) -> bool {
        let mut state = self.lock();
        let were_any = !state.dead.is_empty() || state.dropping > 0;
        drop(state);
        self.reap();
        state = self.lock();
        while state.dropping > 0 {
            state = self.has_dropped.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        were_any
    }

    /// Room for one more registration of this size, if there is any without letting go of another.
    pub(crate) fn reserve(self: &Arc<Self>, state: &mut State<R>, bytes: usize) -> Option<Reservation<R>> {
        let bytes_left = self.options.bytes_max.saturating_sub(state.bytes);
        if bytes > bytes_left || state.registrations >= self.options.entries_max {
            return None;
        }
        state.bytes += bytes;
        state.registrations += 1;
        Some(Reservation { shared: Arc::clone(self), bytes })
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let none = Statistics {
            hits: 0,
            misses: 0,
            uncached: 0,
            evictions: 0,
            invalidations: 0,
            refused: 0,
            bytes: 0,
            entries: 0,
            watch: Watched::Off,
        };
        if self.mark.is_in_child() {
            return none;
        }
        let state = self.lock();
        Statistics {
            hits: state.hits,
            misses: state.misses,
            uncached: state.uncached,
            evictions: state.evictions,
            invalidations: state.invalidations,
            refused: state.refused,
            bytes: state.bytes,
            entries: state.map.len(),
            watch: self.watched,
        }
    }
}

impl<R: Registrar> Drop for Entry<R> {
    fn drop(&mut self) {
        if self.reservation.shared.mark.is_in_child() {
            // They are the parent's: whatever their drops would do, the device would do to the parent.
            std::mem::forget(self.handle.take());
            std::mem::forget(Arc::clone(&self.reservation.shared));
        }
        // Else the handle deregisters first, and then the reservation gives the room back: in this order for the bounds'
        // sake.
    }
}

impl<R: Registrar> Drop for Reservation<R> {
    fn drop(&mut self) {
        if self.shared.mark.is_in_child() {
            return;
        }
        let mut state = self.shared.lock();
        state.bytes -= self.bytes;
        state.registrations -= 1;
    }
}
