//! The thread of a rank's process through which the other ranks of its node speak with rank 0: they connect to it over an abstract
//! socket, and it alone has a connection to the coordinator. [`super::assembly`] starts it. What it passes on stands in `longarm_control::relay`; here are its sockets.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Instant;

use longarm_control::relay::{Effect, LAST, Relay};
use longarm_memory::Unshared;
use longarm_netmod::{Interest, Poller, Ready, is_of_own_user};
use longarm_shm::sync::{AtomicBool, Ordering};
use parking_lot::{Condvar, Mutex};
use rustix::net::SendFlags;

use super::own_end;
use super::serving::{CHUNK_BYTES, FLUSH, NOTHING, REST, Serving, Turns, UNSENT_BYTES_MAX, send_unsent};

/// With so much waiting for the coordinator, no more is heard of the members.
const TO_COORDINATOR_BYTES_MAX: usize = 1 << 20;
/// So many are taken in or sent away before anything else is done.
const ACCEPTED_MAX: usize = 1024;
const WAKER: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const COORDINATOR: u64 = u64::MAX - 2;

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
        let mut desk = Desk::new(coordinator, rank, listener, members_max, (Arc::clone(&turns), Arc::clone(&shared)))?;
        let (own, others) = UnixStream::pair()?;
        desk.take_in(others)?;
        let serving = Serving::start("longarm-relay", turns, move || desk.run())?;
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

/// A member's connection, and what could not be sent yet.
struct Line {
    stream: Unshared<UnixStream>,
    unsent: Vec<u8>,
    interest: Interest,
    /// Nothing is heard of it any more, and it is closed when all is sent, or then.
    closes: Option<Instant>,
}

/// The thread's own.
struct Desk {
    poller: Poller,
    rank: u32,
    /// Nothing, when it has ended.
    coordinator: Option<Unshared<TcpStream>>,
    to_coordinator: Vec<u8>,
    coordinator_interest: Interest,
    /// More may have come than was read.
    has_more: bool,
    listener: Option<Unshared<UnixListener>>,
    relay: Relay,
    lines: HashMap<u32, Line>,
    /// Until when nobody is taken in.
    rests: Option<Instant>,
    turns: Arc<Turns>,
    shared: Arc<Shared>,
}

impl Desk {
    fn new(
        coordinator: Unshared<TcpStream>,
        rank: u32,
        listener: Unshared<UnixListener>,
        members_max: usize,
        (turns, shared): (Arc<Turns>, Arc<Shared>),
    ) -> io::Result<Desk> {
        let poller = Poller::new()?;
        coordinator.set_nonblocking(true)?;
        listener.set_nonblocking(true)?;
        poller.add(&coordinator, COORDINATOR, Interest::READABLE)?;
        poller.add(&listener, LISTENER, Interest::READABLE)?;
        poller.add(turns.waker().descriptor(), WAKER, Interest::READABLE)?;
        Ok(Desk {
            poller,
            rank,
            coordinator: Some(coordinator),
            to_coordinator: Vec::new(),
            coordinator_interest: Interest::READABLE,
            has_more: false,
            listener: Some(listener),
            relay: Relay::new(members_max),
            lines: HashMap::new(),
            rests: None,
            turns,
            shared,
        })
    }

    fn run(mut self) {
        let mut ready = Vec::new();
        self.send_to_coordinator();
        while !self.turns.stops() && (self.coordinator.is_some() || !self.lines.is_empty()) {
            let rest = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
            if let Err(error) = self.poller.wait(&mut ready, rest) {
                own_end::say_last(&format!("the relay in rank {} can hear nothing any more: {error}", self.rank));
                break;
            }
            self.has_more = false;
            self.turn(std::mem::take(&mut ready));
            self.handle_time(Instant::now());
            if self.shared.all_have_come.load(Ordering::Acquire) {
                self.listener = None;
            }
            let has_unsent = !self.to_coordinator.is_empty() || self.lines.values().any(|line| !line.unsent.is_empty());
            self.turns.end_turn(self.has_more || has_unsent);
            self.shared.tell_whether_alone(self.lines.is_empty());
        }
        // Whoever is left hears that it is this process's will.
        self.handle_end_of_coordinator();
        self.shared.tell_whether_alone(true);
        self.turns.end();
    }

    fn deadline(&self) -> Option<Instant> {
        let closing = self.lines.values().filter_map(|line| line.closes).min();
        [closing, self.rests].into_iter().flatten().min()
    }

    fn handle_time(&mut self, now: Instant) {
        self.lines.retain(|_, line| line.closes.is_none_or(|until| until > now));
        if self.rests.take_if(|until| *until <= now).is_some() {
            self.watch_listener(Interest::READABLE);
        }
    }

    fn watch_listener(&self, interest: Interest) {
        if let Some(listener) = &self.listener {
            // What cannot be watched lets nobody in: who waits there goes to rank 0 by itself.
            let _ = self.poller.modify(listener, LISTENER, interest);
        }
    }

    /// What members say goes to the coordinator together.
    fn turn(&mut self, ready: Vec<Ready>) {
        for one in ready {
            self.handle_ready(one);
        }
        self.send_to_coordinator();
    }

    fn handle_ready(&mut self, ready: Ready) {
        match ready.token {
            WAKER => self.turns.waker().clear(),
            LISTENER => self.accept(),
            COORDINATOR => {
                if ready.writable {
                    self.send_to_coordinator();
                }
                if ready.readable {
                    self.hear_coordinator();
                }
            }
            member => {
                let member = member as u32;
                if ready.writable {
                    self.send(member);
                }
                if ready.readable {
                    self.hear(member);
                }
            }
        }
        self.do_effects();
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

    /// A member is greeted with the rank that the relay is in.
    fn take_in(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let stream = Unshared::new(stream)?;
        let Some(member) = self.relay.handle_member() else { return Ok(()) };
        if let Err(error) = self.poller.add(&stream, u64::from(member), Interest::READABLE) {
            self.relay.handle_hang_up(member);
            return Err(error);
        }
        let unsent = self.rank.to_le_bytes().to_vec();
        self.lines.insert(member, Line { stream, unsent, interest: Interest::READABLE, closes: None });
        self.send(member);
        self.do_effects();
        Ok(())
    }

    /// Reads once: what is left is told again.
    fn hear_coordinator(&mut self) {
        let Some(coordinator) = &mut self.coordinator else { return };
        let mut chunk = [0; CHUNK_BYTES];
        match coordinator.read(&mut chunk) {
            Ok(bytes @ 1..) => {
                self.has_more |= bytes == CHUNK_BYTES;
                if let Err(error) = self.relay.handle_root_bytes(&chunk[..bytes]) {
                    tracing::error!(%error, "the coordinator says to the relay what nobody understands");
                    self.handle_end_of_coordinator();
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Ok(0) | Err(_) => self.handle_end_of_coordinator(),
        }
    }

    /// Rank 0 is gone, or has cut this relay off: all members are told that it is not this process that has ended.
    fn handle_end_of_coordinator(&mut self) {
        self.do_effects();
        self.send_to_coordinator();
        self.coordinator = None;
        self.to_coordinator.clear();
        self.listener = None;
        let members: Vec<u32> = self.lines.keys().copied().collect();
        members.into_iter().for_each(|member| self.close(member));
    }

    /// Reads once: what is left is told again.
    fn hear(&mut self, member: u32) {
        let Some(line) = self.lines.get_mut(&member).filter(|line| line.closes.is_none()) else { return };
        let mut chunk = [0; CHUNK_BYTES];
        match line.stream.read(&mut chunk) {
            Ok(bytes @ 1..) => {
                self.has_more |= bytes == CHUNK_BYTES;
                self.relay.handle_bytes(member, &chunk[..bytes]);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Ok(0) | Err(_) => {
                self.lines.remove(&member);
                self.relay.handle_hang_up(member);
            }
        }
    }

    fn do_effects(&mut self) {
        while let Some(effect) = self.relay.poll_effect() {
            match effect {
                Effect::ToCoordinator(bytes) => self.to_coordinator.extend_from_slice(&bytes),
                Effect::ToMember { member, bytes } => {
                    if let Some(line) = self.lines.get_mut(&member).filter(|line| line.closes.is_none()) {
                        line.unsent.extend_from_slice(&bytes);
                    }
                    self.send(member);
                }
                Effect::Close { member } => self.close(member),
            }
        }
        if self.to_coordinator.len() > TO_COORDINATOR_BYTES_MAX {
            self.send_to_coordinator();
        }
    }

    fn send_to_coordinator(&mut self) {
        let Some(coordinator) = &mut self.coordinator else { return self.to_coordinator.clear() };
        let was_full = self.to_coordinator.len() > TO_COORDINATOR_BYTES_MAX;
        // An error shows when it is read.
        send_unsent(&mut self.to_coordinator, |bytes| coordinator.write(bytes));
        let interest = Interest { readable: true, writable: !self.to_coordinator.is_empty() };
        if interest != std::mem::replace(&mut self.coordinator_interest, interest) {
            // A connection that cannot be watched any more is one that has ended.
            let _ = self.poller.modify(&*coordinator, COORDINATOR, interest);
        }
        if was_full || self.to_coordinator.len() > TO_COORDINATOR_BYTES_MAX {
            let members: Vec<u32> = self.lines.keys().copied().collect();
            members.into_iter().for_each(|member| self.watch(member));
        }
    }

    /// Closes a connection when what it has to be told is sent, or after a while.
    fn close(&mut self, member: u32) {
        let Some(line) = self.lines.get_mut(&member).filter(|line| line.closes.is_none()) else { return };
        line.closes = Some(Instant::now() + FLUSH);
        line.unsent.push(LAST);
        self.send(member);
    }

    fn send(&mut self, member: u32) {
        let Some(line) = self.lines.get_mut(&member) else { return };
        let stream = &line.stream;
        // A member that is gone is no reason for a signal.
        let is_gone = send_unsent(&mut line.unsent, |bytes| Ok(rustix::net::send(stream, bytes, SendFlags::NOSIGNAL)?));
        let waiting = if is_gone { 0 } else { line.unsent.len() };
        if line.closes.is_some() && waiting == 0 {
            self.lines.remove(&member);
            return;
        }
        if is_gone {
            line.unsent.clear();
        }
        let closes = line.closes.is_some();
        self.watch(member);
        if waiting > UNSENT_BYTES_MAX && !closes {
            self.relay.handle_deaf(member, waiting);
        }
    }

    /// What is to be told of a member's connection.
    fn watch(&mut self, member: u32) {
        let has_room = self.to_coordinator.len() <= TO_COORDINATOR_BYTES_MAX;
        let Some(line) = self.lines.get_mut(&member) else { return };
        let interest = Interest { readable: has_room && line.closes.is_none(), writable: !line.unsent.is_empty() };
        if interest != std::mem::replace(&mut line.interest, interest) {
            // A connection that cannot be watched any more is one that has ended.
            let _ = self.poller.modify(&line.stream, u64::from(member), interest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    use std::time::Duration;

    use longarm_control::frames::Decoder;
    use longarm_control::relay::{FromRelay, ToRelay};
    use longarm_shm::sync::AtomicU32;

    use super::*;

    /// What one member may have said since the last look at how much waits for the coordinator, with the heads of its frames.
    const TURN_BYTES: usize = CHUNK_BYTES + 256;

    /// A relay whose thread does not run, the coordinator's end of its connection, and its first member's end.
    fn desk() -> (Desk, TcpStream, UnixStream) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let coordinator = TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let (far, _) = door.accept().unwrap();
        let name = format!("longarm-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        let shared = (Turns::new().unwrap(), Arc::default());
        let (coordinator, listener) = (Unshared::new(coordinator).unwrap(), Unshared::new(listener).unwrap());
        let mut desk = Desk::new(coordinator, 0, listener, 1, shared).unwrap();
        let (member, own) = UnixStream::pair().unwrap();
        desk.take_in(own).unwrap();
        (desk, far, member)
    }

    /// Does what there is to do now. Whether there was anything.
    fn turn(desk: &mut Desk) -> bool {
        let mut ready = Vec::new();
        desk.poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        let is_busy = !ready.is_empty();
        desk.turn(ready);
        is_busy
    }

    /// Bytes that were written or read, or none as long as there is no room or nothing there.
    fn moved(outcome: io::Result<usize>) -> usize {
        match outcome {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn of_members_no_more_is_heard_than_rank_0_takes_and_the_rest_when_it_takes_it() {
        let (mut desk, mut far, mut member) = desk();
        member.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let mut said = 0;
        loop {
            let bytes = moved(member.write(&[7; CHUNK_BYTES]));
            said += bytes;
            assert!(said < 64 << 20, "nothing bounds what waits: {} bytes", desk.to_coordinator.len());
            if !turn(&mut desk) && bytes == 0 {
                break;
            }
        }
        let waiting = desk.to_coordinator.len();
        assert!(
            waiting > TO_COORDINATOR_BYTES_MAX && waiting <= TO_COORDINATOR_BYTES_MAX + TURN_BYTES,
            "{waiting} bytes wait"
        );
        let (mut decoder, mut heard, mut chunk) = (Decoder::default(), 0, vec![0; CHUNK_BYTES]);
        while heard < said {
            let bytes = moved(far.read(&mut chunk));
            decoder.feed(&chunk[..bytes]);
            while let Some(frame) = decoder.next_frame().unwrap() {
                heard += if let FromRelay::Bytes { bytes, .. } = frame { bytes.len() } else { 0 };
            }
            turn(&mut desk);
        }
        assert_eq!(heard, said);
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

    #[test]
    fn a_member_that_takes_nothing_is_let_go_of_and_rank_0_told_how_much_waits() {
        const MESSAGE_BYTES: usize = 1 << 20;
        let (mut desk, mut far, _member) = desk();
        let frames = ToRelay::message(0, &vec![7; MESSAGE_BYTES]);
        let mut messages = 0;
        while desk.lines[&0].closes.is_none() {
            messages += 1;
            assert!(messages * MESSAGE_BYTES < 2 * UNSENT_BYTES_MAX, "nothing bounds what waits");
            desk.relay.handle_root_bytes(&frames).unwrap();
            desk.do_effects();
            desk.send_to_coordinator();
        }
        let waiting = desk.lines[&0].unsent.len();
        assert!(waiting > UNSENT_BYTES_MAX && waiting <= UNSENT_BYTES_MAX + MESSAGE_BYTES, "{waiting} bytes wait");
        let (mut decoder, mut chunk) = (Decoder::default(), [0; 64]);
        let deaf = loop {
            match decoder.next_frame().unwrap() {
                Some(FromRelay::Deaf { member, waiting }) => break (member, waiting as usize),
                Some(_) => {}
                None => {
                    let bytes = far.read(&mut chunk).unwrap();
                    decoder.feed(&chunk[..bytes]);
                }
            }
        };
        assert_eq!((deaf.0, deaf.1 > UNSENT_BYTES_MAX), (0, true), "{deaf:?}");
    }
}
