//! Contexts: streams of operations that are ordered and completed apart from one another.
//!
//! A handle is a number below [`CONTEXTS_MAX`], and 1 is the default context. What goes to PEs of this node is done when the
//! call returns, whatever the context. What is under way to others is kept by each context for itself, behind a lock of its
//! own that no operation on this node takes.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;

use longarm::error::Operation;
use longarm::ffi::sync::{AtomicBool, AtomicPtr, Ordering};
use longarm::ffi::{Completion, CompletionPart, Region, RegionMut};
use parking_lot::Mutex;

use crate::boundary::{end, or_end};
use crate::process::Process;
use crate::teams::{self, Team};

/// The default context, as in the header.
pub(crate) const DEFAULT: usize = 1;
pub(crate) const INVALID: usize = 0;
const CONTEXTS_MAX: usize = 1 << 14;
/// Old values of a context that are on their way: the next one waits for the first.
const FETCHES_MAX: usize = 1 << 12;

/// See the module.
pub(crate) struct Context {
    /// Whose numbers name the PEs; `None` for those of the world.
    team: Option<&'static Team>,
    pub(crate) team_handle: usize,
    /// What was started towards other nodes and not waited for.
    pending: Mutex<Option<CompletionPart>>,
    /// Old values that were asked for and not waited for, the oldest first.
    fetches: Mutex<VecDeque<Fetch>>,
    /// Something was issued towards another node since the last quiet. PAIR context-sent: set (Release) after the issue, taken
    /// (Acquire) before the quiet that covers it.
    is_dirty: AtomicBool,
    /// Held over a quiet: what one thread has taken to wait for, another finds gone, and waits for the first.
    quieting: Mutex<()>,
}

/// An old value that is written to memory of the caller when it has come, at the latest by quiet.
struct Fetch {
    completion: Arc<Completion>,
    target: u32,
    to: RegionMut<'static>,
}

impl Fetch {
    fn end(self, name: &'static str, process: &Process) {
        or_end(name, process.world.wait_for_completion(Operation::Rmw, self.target, &self.completion));
        let old = self.completion.value().to_le_bytes();
        self.to.copy_from(Region::from_slice(&old[..self.to.len()]));
    }
}

/// By handle. PAIR context-set: a context is stored (Release) before its handle is given out, and loaded (Acquire).
pub(crate) struct Contexts {
    places: Box<[AtomicPtr<Context>]>,
    free: Mutex<Vec<usize>>,
}

impl Context {
    fn new(team: Option<&'static Team>, team_handle: usize) -> Context {
        Context {
            team,
            team_handle,
            pending: Mutex::new(None),
            fetches: Mutex::new(VecDeque::new()),
            is_dirty: AtomicBool::new(false),
            quieting: Mutex::new(()),
        }
    }

    /// Something was issued towards another node.
    #[inline]
    pub(crate) fn note_sent(&self) {
        // PAIR context-sent.
        self.is_dirty.store(true, Ordering::Release);
    }

    /// Starts operations as parts of what quiet waits for.
    pub(crate) fn start<E>(&self, body: impl FnOnce(&CompletionPart) -> Result<(), E>) -> Result<(), E> {
        // Held while parts are added: quiet takes the first one away.
        let mut pending = self.pending.lock();
        let started = body(pending.get_or_insert_with(|| Completion::begin().1));
        self.note_sent();
        started
    }

    /// Starts an update whose old value is to be in memory when quiet returns.
    pub(crate) fn start_fetch<E>(
        &self,
        (name, process): (&'static str, &Process),
        (target, to): (u32, RegionMut<'static>),
        body: impl FnOnce(&CompletionPart) -> Result<(), E>,
    ) -> Result<(), E> {
        let (completion, part) = Completion::begin();
        // Held over the start, and over the wait for the first one: quiet finds all that were started before it.
        let mut fetches = self.fetches.lock();
        body(&part)?;
        drop(part.done());
        if fetches.len() == FETCHES_MAX
            && let Some(first) = fetches.pop_front()
        {
            first.end(name, process);
        }
        fetches.push_back(Fetch { completion, target, to });
        self.note_sent();
        Ok(())
    }

    /// Everything that was issued in this context is complete on return.
    #[inline]
    pub(crate) fn quiet(&self, name: &'static str, process: &Process) {
        // Stores to mapped memory are visible to all before anything behind this.
        longarm::ffi::sync::fence(Ordering::SeqCst);
        self.quiet_before_handing_on(name, process);
    }

    /// The same before an exchange or a message that hands a lock on: whoever receives it sees what was stored to mapped memory
    /// before.
    #[inline]
    pub(crate) fn quiet_before_handing_on(&self, name: &'static str, process: &Process) {
        // PAIR lock-word; see `lock.rs`.
        longarm::ffi::sync::fence(Ordering::Release);
        if !process.is_one_node {
            self.quiet_between_nodes(name, process);
        }
    }

    #[inline(never)]
    fn quiet_between_nodes(&self, name: &'static str, process: &Process) {
        let _one_at_a_time = self.quieting.lock();
        if let Some(part) = self.pending.lock().take() {
            let completion = part.done();
            let completed = process.world.wait_for_completion(Operation::Quiet, process.me, &completion);
            if completed.is_err() {
                // The connection that failed says whose it is.
                or_end(name, process.world.quiet());
            }
            or_end(name, completed);
        }
        let fetches = std::mem::take(&mut *self.fetches.lock());
        fetches.into_iter().for_each(|fetch| fetch.end(name, process));
        // PAIR context-sent.
        if self.is_dirty.swap(false, Ordering::Acquire) {
            or_end(name, process.world.quiet());
        }
    }
}

impl Contexts {
    pub(crate) fn new() -> Contexts {
        let places: Box<[AtomicPtr<Context>]> =
            (0..CONTEXTS_MAX).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        let contexts = Contexts { places, free: Mutex::new((DEFAULT + 1..CONTEXTS_MAX).rev().collect()) };
        contexts.put(DEFAULT, Context::new(None, teams::WORLD));
        contexts
    }

    fn put(&self, handle: usize, context: Context) {
        let context: &'static mut Context = Box::leak(Box::new(context));
        // PAIR context-set.
        self.places[handle].store(context, Ordering::Release);
    }

    /// The context of a handle. Contexts are leaked: a thread may still look at one while another destroys it.
    #[inline]
    pub(crate) fn find(&self, handle: usize) -> Option<&'static Context> {
        // PAIR context-set.
        let context = self.places.get(handle)?.load(Ordering::Acquire);
        // SAFETY: the pointer is null or comes from `Box::leak` in `put`.
        unsafe { context.as_ref() }
    }

    #[inline]
    pub(crate) fn get(&self, name: &'static str, handle: usize) -> &'static Context {
        match self.find(handle) {
            Some(context) => context,
            None => no_such_context(name, handle),
        }
    }

    /// The context of a call, and its PE as a number of the world.
    #[inline]
    pub(crate) fn resolve(&self, name: &'static str, handle: usize, pe: c_int) -> (&'static Context, c_int) {
        let context = self.get(name, handle);
        match context.team {
            None => (context, pe),
            Some(team) => match team.world_pe(pe) {
                Some(rank) => (context, rank as c_int),
                None => team.no_such_pe(name, pe),
            },
        }
    }

    /// A new context, for PEs of a team; `None` if there are too many.
    pub(crate) fn add(&self, team: &'static Team, team_handle: usize) -> Option<usize> {
        let free = self.free.lock().pop()?;
        let of_team = (team_handle != teams::WORLD).then_some(team);
        self.put(free, Context::new(of_team, team_handle));
        Some(free)
    }

    /// A context is no more, and its handle may be given out again. The context itself stays: another thread may still look at it.
    pub(crate) fn remove(&self, handle: usize) {
        self.places[handle].store(std::ptr::null_mut(), Ordering::Release);
        self.free.lock().push(handle);
    }

    /// Every context that there is.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Context> + '_ {
        (DEFAULT..CONTEXTS_MAX).filter_map(|handle| self.find(handle))
    }
}

#[cold]
fn no_such_context(name: &'static str, handle: usize) -> ! {
    match handle {
        INVALID => end(name, "the context is SHMEM_CTX_INVALID"),
        handle => end(name, format_args!("there is no context {handle:#x}; was it destroyed before?")),
    }
}
