//! Which memory peers may reach: what is published here, and what is known of others.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longarm_memory::RegionMut;
use longarm_netmod::{Reach, Waker};
use longarm_proto::rdma::{Purpose, RemotePart};
use longarm_proto::{AccessKey, Generation, Rank, WindowId, WindowRef};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::fabric::Fabric;
use crate::sys::{Access, Pages, Registration};

type Name = (WindowId, Generation, Rank);

/// Registering on the thread that serves may take as long as this.
const AT_ONCE_NS: u64 = 200_000;

/// Parts that are remembered. Beyond that everything is forgotten and asked again.
const KNOWN_MAX: usize = 1 << 16;

fn name(part: &WindowRef) -> Name {
    (part.window, part.generation, part.rank)
}

/// What this process lets its peers reach.
#[derive(Default)]
pub(crate) struct Published {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parts: HashMap<Name, Part>,
    /// Parts that were ever published: the number of the last one.
    number: u64,
    /// Of the parts that are kept in memory, or are about to be.
    pinned_bytes: u64,
}

struct Part {
    number: u64,
    key: AccessKey,
    start: usize,
    bytes: usize,
    /// How many of them count as kept in memory.
    pinned_bytes: u64,
    registered: Registered,
    /// What the first peer that asked wanted; others are held to it.
    access: Access,
}

/// Whether a part is registered, which it is when a peer first asks.
enum Registered {
    Not,
    /// A thread is at it, and these are told.
    Soon(Vec<(WindowRef, Arc<Answers>)>),
    Yes(Result<Registration, Errno>),
}

/// What a peer is told. An error says why memory that is there cannot be reached.
pub(crate) type Answer = Result<Option<RemotePart>, Errno>;

impl Part {
    fn answer(&self) -> Answer {
        let Registered::Yes(registration) = &self.registered else { unreachable!("asked when it was tried") };
        let registration = registration.as_ref().map_err(|errno| *errno)?;
        let (start, bytes) = (self.start as u64, self.bytes as u64);
        Ok(Some(RemotePart { start, bytes, key: registration.remote_key() }))
    }

    /// It was tried to keep it in memory. Returns how many bytes it does not take after all.
    fn done(&mut self, registration: Result<Registration, Errno>) -> u64 {
        let is_kept = registration.is_ok();
        self.registered = Registered::Yes(registration);
        if is_kept { 0 } else { std::mem::take(&mut self.pinned_bytes) }
    }
}

impl Published {
    /// Until the guard is dropped.
    pub(crate) fn publish(self: &Arc<Published>, part: WindowRef, memory: RegionMut<'_>) -> Box<dyn Send + Sync> {
        let mut state = self.state.lock();
        state.number += 1;
        let entry = Part {
            number: state.number,
            key: part.key,
            start: memory.as_mut_ptr().expose_provenance(),
            bytes: memory.len(),
            pinned_bytes: 0,
            registered: Registered::Not,
            access: Access::Remote,
        };
        state.parts.insert(name(&part), entry);
        Box::new(Withdrawal { published: Arc::clone(self), name: name(&part) })
    }

    /// The answer to a peer's question. `None`: it comes later, to the given place.
    ///
    /// Words are updated by the device, or they are read and written: who asks for the other is told that it cannot be.
    pub(crate) fn ask(
        self: &Arc<Published>,
        fabric: &Arc<Fabric>,
        (part, purpose): (&WindowRef, Purpose),
        answers: &mut Option<Arc<Answers>>,
    ) -> Option<Answer> {
        let access = match purpose {
            Purpose::Transfer => Access::Remote,
            Purpose::Rmw => Access::RemoteAtomic,
        };
        let mut state = self.state.lock();
        let state = &mut *state;
        let found = state.parts.get_mut(&name(part)).filter(|entry| entry.key == part.key);
        let Some(entry) = found else { return Some(Ok(None)) };
        let is_new = matches!(entry.registered, Registered::Not);
        let cannot = access == Access::RemoteAtomic && !fabric.limits.atomics;
        if entry.bytes == 0 || cannot || !(is_new || entry.access == access) {
            return Some(Ok(None));
        }
        entry.access = access;
        // A device may do all else with pages that come and go, and no updates.
        if is_new
            && access == Access::Remote
            && let Some(registration) = on_demand(fabric, (entry.start, entry.bytes))
        {
            entry.registered = Registered::Yes(Ok(registration));
        }
        if matches!(entry.registered, Registered::Yes(_)) {
            return Some(entry.answer());
        }
        if entry.bytes as u64 > fabric.options.pinned_bytes_max {
            return Some(Err(Errno::NOMEM));
        }
        if matches!(entry.registered, Registered::Not) {
            let pinned_bytes = state.pinned_bytes + entry.bytes as u64;
            if pinned_bytes > fabric.options.pinned_together_bytes_max {
                return Some(Err(Errno::NOMEM));
            }
            state.pinned_bytes = pinned_bytes;
            entry.pinned_bytes = entry.bytes as u64;
        }
        let is_quick = fabric.costs.registering_ns(entry.bytes) <= AT_ONCE_NS;
        let is_first = matches!(entry.registered, Registered::Not);
        if !(is_quick && is_first)
            && let Some(answers) = Answers::of(answers)
        {
            let asker = (*part, Arc::clone(answers));
            if let Registered::Soon(askers) = &mut entry.registered {
                askers.push(asker);
                return None;
            }
            let (fabric, published) = (Arc::clone(fabric), Arc::clone(self));
            let (name, number, memory) = (name(part), entry.number, (entry.start, entry.bytes, access));
            let body = move || published.register(&fabric, (name, number), memory);
            if has_started(body) {
                entry.registered = Registered::Soon(vec![asker]);
                return None;
            }
        }
        if !is_first {
            // No descriptor is left to be told by, and a question without an answer would hold up what waits for it. The peer takes
            // the window for one that is served.
            return Some(Err(Errno::MFILE));
        }
        let registration = register(fabric, (entry.start, entry.bytes, access));
        state.pinned_bytes -= entry.done(registration);
        Some(entry.answer())
    }

    /// Registers a part without holding others up, and tells those that asked. It may be withdrawn meanwhile: then nobody has
    /// heard of the registration, and it goes.
    fn register(&self, fabric: &Fabric, (name, number): (Name, u64), memory: (usize, usize, Access)) {
        let registration = register(fabric, memory);
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(entry) = state.parts.get_mut(&name).filter(|entry| entry.number == number) else { return };
        let before = std::mem::replace(&mut entry.registered, Registered::Not);
        state.pinned_bytes -= entry.done(registration);
        let answer = entry.answer();
        if let Registered::Soon(askers) = before {
            askers.iter().for_each(|(part, answers)| answers.tell(*part, answer));
        }
    }
}

/// False: the system starts no more threads.
fn has_started(body: impl FnOnce() + Send + 'static) -> bool {
    #[cfg(test)]
    if crate::sys::mock::refuses_threads() {
        return false;
    }
    std::thread::Builder::new().name("longarm-register".into()).spawn(body).is_ok()
}

fn register(fabric: &Fabric, (start, bytes, access): (usize, usize, Access)) -> Result<Registration, Errno> {
    let made = Registration::new(&fabric.domain, (start, bytes), access, Pages::Kept);
    fabric.counters.windows_kept.add(usize::from(made.is_ok()));
    made
}

/// No page is made or locked for it, so the thread that serves does it, in some hundredths of the time that keeping takes. `None`: the device does not do that, or not for this memory.
fn on_demand(fabric: &Fabric, memory: (usize, usize)) -> Option<Registration> {
    if !fabric.paging.is_used() {
        return None;
    }
    match Registration::new(&fabric.domain, memory, Access::Remote, Pages::OnDemand) {
        Ok(made) => {
            fabric.counters.windows_on_demand.add(1);
            Some(made)
        }
        Err(errno) => {
            tracing::debug!(bytes = memory.1, %errno, "a window cannot be registered on demand; its pages are to stay in memory");
            None
        }
    }
}

struct Withdrawal {
    published: Arc<Published>,
    name: Name,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        let mut state = self.published.state.lock();
        let removed = state.parts.remove(&self.name);
        state.pinned_bytes -= removed.as_ref().map_or(0, |part| part.pinned_bytes);
        drop(state);
        if let Some(Part { registered: Registered::Soon(askers), .. }) = removed {
            askers.iter().for_each(|(part, answers)| answers.tell(*part, Ok(None)));
        }
    }
}

/// Answers to a peer that could not be given at once.
pub(crate) struct Answers {
    told: Mutex<Vec<(WindowRef, Answer)>>,
    waker: Waker,
}

impl Answers {
    /// Those of a connection, made when it first needs some. `None`: the system has no descriptor left.
    fn of(place: &mut Option<Arc<Answers>>) -> Option<&Arc<Answers>> {
        if place.is_none() {
            *place = Waker::new().ok().map(|waker| Arc::new(Answers { told: Mutex::default(), waker }));
        }
        place.as_ref()
    }

    fn tell(&self, part: WindowRef, answer: Answer) {
        let mut told = self.told.lock();
        told.push((part, answer));
        // Under the lock, so that who takes it clears this wake too.
        self.waker.wake();
    }

    /// What has been told since the last time.
    pub(crate) fn take(&self) -> Vec<(WindowRef, Answer)> {
        let mut told = self.told.lock();
        if !told.is_empty() {
            self.waker.clear();
        }
        std::mem::take(&mut told)
    }

    /// Readable while there is something to be taken.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.waker.descriptor()
    }
}

/// What one peer has said of its windows. Kept from one connection to the next: its keys do not change.
#[derive(Default)]
pub(crate) struct Known {
    parts: Mutex<HashMap<WindowRef, Option<RemotePart>>>,
    asked: Mutex<Vec<WindowRef>>,
}

impl Known {
    pub(crate) fn find(&self, part: &WindowRef) -> Option<RemotePart> {
        self.parts.lock().get(part).copied().flatten()
    }

    /// Whether it can be reached; `true` beside it if the peer has to be asked now.
    pub(crate) fn reach(&self, part: &WindowRef) -> (Reach, bool) {
        match self.parts.lock().get(part) {
            Some(Some(_)) => return (Reach::Yes, false),
            Some(None) => return (Reach::No, false),
            None => {}
        }
        let mut asked = self.asked.lock();
        let is_new = !asked.contains(part);
        if is_new {
            asked.push(*part);
        }
        (Reach::Asked, is_new)
    }

    pub(crate) fn answered(&self, part: WindowRef, answer: Option<RemotePart>) {
        self.asked.lock().retain(|other| *other != part);
        let mut parts = self.parts.lock();
        if parts.len() >= KNOWN_MAX {
            parts.clear();
        }
        parts.insert(part, answer);
    }

    /// Nothing is known any more: all is asked again.
    pub(crate) fn forget(&self) {
        self.parts.lock().clear();
        self.forget_questions();
    }

    /// A connection has gone: what was asked over it is asked again.
    pub(crate) fn forget_questions(&self) {
        self.asked.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(window: u64) -> WindowRef {
        WindowRef { rank: Rank(3), window: WindowId(window), generation: Generation(2), key: AccessKey(u64::MAX - 1) }
    }

    #[test]
    fn a_peer_is_asked_once_until_the_connection_goes() {
        let known = Known::default();
        assert_eq!(known.reach(&part(1)), (Reach::Asked, true));
        assert_eq!(known.reach(&part(1)), (Reach::Asked, false));
        known.forget_questions();
        assert_eq!(known.reach(&part(1)), (Reach::Asked, true));
        let answer = RemotePart { start: 1, bytes: 2, key: 3 };
        known.answered(part(1), Some(answer));
        assert_eq!((known.reach(&part(1)), known.find(&part(1))), ((Reach::Yes, false), Some(answer)));
        known.answered(part(2), None);
        assert_eq!((known.reach(&part(2)), known.find(&part(2))), ((Reach::No, false), None));
    }
}
