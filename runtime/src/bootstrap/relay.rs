//! The thread of a rank's process through which the other ranks of its node speak with rank 0: they connect to it over an abstract
//! socket, and it alone has a connection to the coordinator. [`super::assembly`] starts it. What it passes on stands in `longarm_control::relay`, its turns in `longarm_control::desk`; here are its sockets.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Instant;

use longarm_control::desk::{COORDINATOR, FLUSH, Readiness, RelayDesk, Sockets};
use longarm_memory::Unshared;
use longarm_netmod::{Interest, Poller, Ready, is_of_own_user};
use longarm_shm::sync::{AtomicBool, Ordering};
use parking_lot::{Condvar, Mutex};
use rustix::net::SendFlags;

use super::own_end;
use super::serving::{NOTHING, REST, Serving, Turns, interest, readiness};

/// So many are taken in or sent away before anything else is done.
const ACCEPTED_MAX: usize = 1024;
const WAKER: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;

/// The thread, from outside.
pub(crate) struct RelayThread {
    serving: Serving,
    shared: Arc<Shared>,
}

/// What the rank of the relay's process says to its thread.
#[derive(Default)]
struct Shared {
    all_have_come: AtomicBool,
    leader_goes_by_itself: AtomicBool,
    /// Nobody is behind this process any more.
    is_alone: Mutex<bool>,
    left_alone: Condvar,
}

impl Shared {
    fn tell_whether_alone(&self, is_alone: bool) {
        *self.is_alone.lock() = is_alone;
        if is_alone {
            self.left_alone.notify_all();
        }
    }

    fn await_others(&self, until: Instant) {
        let mut is_alone = self.is_alone.lock();
        while !*is_alone && !self.left_alone.wait_until(&mut is_alone, until).timed_out() {}
    }
}

impl RelayThread {
    /// Passes on what goes between the members that come to a listener and the coordinator at the other end of a connection, which has let
    /// the relay of this rank in. Gives the rank's own connection to it.
    pub(crate) fn start(
        coordinator: Unshared<TcpStream>,
        rank: u32,
        listener: Unshared<UnixListener>,
        members_max: usize,
    ) -> io::Result<(RelayThread, UnixStream)> {
        let (turns, shared) = (Turns::new()?, Arc::<Shared>::default());
        let of_thread = (Arc::clone(&turns), Arc::clone(&shared));
        let mut thread = Thread::new(coordinator, rank, listener, members_max, of_thread)?;
        let (own, others) = UnixStream::pair()?;
        thread.take_in(others)?;
        let serving = Serving::start("longarm-relay", turns, move || thread.run())?;
        Ok((RelayThread { serving, shared }, own))
    }

    /// All ranks have met: nobody is taken in any more.
    pub(crate) fn all_have_come(&self) {
        self.shared.all_have_come.store(true, Ordering::Release);
        self.serving.turns().wake();
    }

    /// The relay's own rank has another connection to the coordinator, which may bring its goodbye before those of the others have come.
    pub(crate) fn leader_goes_by_itself(&self) {
        self.shared.leader_goes_by_itself.store(true, Ordering::Release);
    }

    /// Its own rank was let go. Where that came over another connection, waits until the others are gone, or for [`FLUSH`].
    pub(crate) fn await_others(&self) {
        if self.shared.leader_goes_by_itself.load(Ordering::Acquire) {
            self.shared.await_others(Instant::now() + FLUSH);
        }
    }

    /// What waits until all that was said before has been passed on.
    pub(crate) fn turns(&self) -> &Arc<Turns> {
        self.serving.turns()
    }
}

/// The thread's own.
struct Thread {
    desk: RelayDesk,
    sockets: RelaySockets,
    rank: u32,
    listener: Option<Unshared<UnixListener>>,
    /// Until when nobody is taken in.
    rests: Option<Instant>,
    turns: Arc<Turns>,
    shared: Arc<Shared>,
}

/// Its connections, and what tells of them.
struct RelaySockets {
    poller: Poller,
    /// Until it has ended.
    coordinator: Option<Unshared<TcpStream>>,
    members: HashMap<u64, Unshared<UnixStream>>,
}

impl Thread {
    fn new(
        coordinator: Unshared<TcpStream>,
        rank: u32,
        listener: Unshared<UnixListener>,
        members_max: usize,
        (turns, shared): (Arc<Turns>, Arc<Shared>),
    ) -> io::Result<Thread> {
        let poller = Poller::new()?;
        coordinator.set_nonblocking(true)?;
        listener.set_nonblocking(true)?;
        poller.add(&coordinator, COORDINATOR, Interest::READABLE)?;
        poller.add(&listener, LISTENER, Interest::READABLE)?;
        poller.add(turns.waker().descriptor(), WAKER, Interest::READABLE)?;
        let sockets = RelaySockets { poller, coordinator: Some(coordinator), members: HashMap::new() };
        let desk = RelayDesk::new(rank, members_max);
        Ok(Thread { desk, sockets, rank, listener: Some(listener), rests: None, turns, shared })
    }

    fn run(mut self) {
        let mut ready = Vec::new();
        self.desk.end_turn(&mut self.sockets);
        while !(self.turns.stops() || self.desk.is_cut_off() && self.desk.is_alone()) {
            let due = self.desk.deadline().into_iter().chain(self.rests).min();
            let rest = due.map(|at| at.saturating_duration_since(Instant::now()));
            if let Err(error) = self.sockets.poller.wait(&mut ready, rest) {
                own_end::say_last(&format!("the relay in rank {} can hear nothing any more: {error}", self.rank));
                break;
            }
            self.desk.begin_turn();
            for one in std::mem::take(&mut ready) {
                self.handle_ready(one);
            }
            self.desk.end_turn(&mut self.sockets);
            self.handle_time(Instant::now());
            if self.desk.is_cut_off() || self.shared.all_have_come.load(Ordering::Acquire) {
                self.listener = None;
            }
            self.turns.end_turn(self.desk.is_behind());
            self.shared.tell_whether_alone(self.desk.is_alone());
        }
        // Whoever is left hears that it is this process's will.
        self.desk.end(&mut self.sockets);
        self.shared.tell_whether_alone(true);
        self.turns.end();
    }

    fn handle_time(&mut self, now: Instant) {
        if self.rests.take_if(|until| *until <= now).is_some() {
            self.watch_listener(Interest::READABLE);
        }
    }

    fn watch_listener(&self, interest: Interest) {
        if let Some(listener) = &self.listener {
            // What cannot be watched lets nobody in: who waits there goes to rank 0 by itself.
            let _ = self.sockets.poller.modify(listener, LISTENER, interest);
        }
    }

    fn handle_ready(&mut self, ready: Ready) {
        match ready.token {
            WAKER => self.turns.waker().clear(),
            LISTENER => self.accept(),
            connection => {
                if let Err(error) = self.desk.handle_ready(&mut self.sockets, connection, readiness(ready)) {
                    tracing::error!(%error, "the coordinator says to the relay what nobody understands");
                }
            }
        }
    }

    /// All users of the host see the listener and can fill its queue, in which the node's ranks wait too. So it is emptied faster than it is
    /// filled: those of others are sent away before anything else is done for them.
    fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            let Some(accepted) = self.listener.as_ref().map(|listener| listener.accept()) else { return };
            match accepted {
                Ok((stream, _)) if !is_of_own_user(&stream) => {}
                Ok((stream, _)) => {
                    if let Err(error) = self.take_in(stream) {
                        tracing::warn!(%error, "a rank of this node could not be taken in, and goes to rank 0 by itself");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(%error, "a connection to the relay cannot be taken in now");
                    self.watch_listener(NOTHING);
                    self.rests = Some(Instant::now() + REST);
                    return;
                }
            }
        }
    }

    fn take_in(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let stream = Unshared::new(stream)?;
        self.desk.take_in(&mut self.sockets, |sockets, member| {
            sockets.poller.add(&stream, member, Interest::READABLE)?;
            sockets.members.insert(member, stream);
            Ok(())
        })
    }
}

impl Sockets for RelaySockets {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn read(&mut self, number: u64, chunk: &mut [u8]) -> io::Result<usize> {
        let gone = Err(io::ErrorKind::NotConnected.into());
        match number {
            COORDINATOR => self.coordinator.as_mut().map_or(gone, |stream| stream.read(chunk)),
            member => self.members.get_mut(&member).map_or(gone, |stream| stream.read(chunk)),
        }
    }

    fn write(&mut self, number: u64, bytes: &[u8]) -> io::Result<usize> {
        let gone = Err(io::ErrorKind::NotConnected.into());
        // A member that is gone is no reason for a signal.
        let send = |stream: &Unshared<UnixStream>| Ok(rustix::net::send(stream, bytes, SendFlags::NOSIGNAL)?);
        match number {
            COORDINATOR => self.coordinator.as_mut().map_or(gone, |stream| stream.write(bytes)),
            member => self.members.get(&member).map_or(gone, send),
        }
    }

    fn watch(&mut self, number: u64, readiness: Readiness) {
        let interest = interest(readiness);
        // A connection that cannot be watched any more is one that has ended.
        let _ = match (number, &self.coordinator) {
            (COORDINATOR, None) => return,
            (COORDINATOR, Some(stream)) => self.poller.modify(stream, COORDINATOR, interest),
            (member, _) => match self.members.get(&member) {
                Some(stream) => self.poller.modify(stream, member, interest),
                None => return,
            },
        };
    }

    fn close(&mut self, number: u64) {
        if number == COORDINATOR {
            self.coordinator = None;
        } else {
            self.members.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_member_is_told_of_when_it_takes_something_again_and_is_not_read_of_while_held() {
        let (own, mut member) = UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        let own = Unshared::new(own).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&own, 3, Interest::READABLE).unwrap();
        let mut sockets = RelaySockets { poller, coordinator: None, members: HashMap::from([(3, own)]) };
        let taken: usize = std::iter::from_fn(|| sockets.write(3, &[1; 1 << 16]).ok()).sum();
        member.write_all(b"hello").unwrap();
        sockets.watch(3, Readiness { readable: false, writable: true });
        let told = |sockets: &RelaySockets| {
            let mut ready = Vec::new();
            sockets.poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
            ready.into_iter().map(|ready| (ready.token, readiness(ready))).next()
        };
        assert_eq!(told(&sockets), None);
        member.read_exact(&mut vec![0; taken]).unwrap();
        assert_eq!(told(&sockets), Some((3, Readiness { readable: false, writable: true })));
        sockets.watch(3, Readiness::READABLE);
        assert_eq!(told(&sockets), Some((3, Readiness::READABLE)));
        sockets.close(3);
        assert!(sockets.read(3, &mut [0]).is_err() && sockets.write(3, &[0]).is_err());
    }

    #[test]
    fn where_the_leader_goes_by_itself_its_process_waits_for_those_behind_it() {
        let shared = Arc::new(Shared::default());
        shared.tell_whether_alone(false);
        let waiting = Arc::clone(&shared);
        let waits = std::thread::spawn(move || waiting.await_others(Instant::now() + Duration::from_secs(3600)));
        shared.tell_whether_alone(true);
        waits.join().unwrap();
        shared.tell_whether_alone(false);
        shared.await_others(Instant::now());
        assert!(!*shared.is_alone.lock(), "nor for ever");
    }
}
