//! Who comes in: connections of ranks, which prove themselves first, and visitors at the node's door.

use std::os::fd::{AsFd, BorrowedFd};

use longarm_netmod::{Doorman, DoormanStep, Interest, Poller};
use slab::Slab;

use super::{ACCEPTS_PER_TURN, DOOR, Engine, HALF_OPEN, LISTENER, VISITOR};
use crate::door::{self, Arrival};

impl Engine {
    /// Takes in new connections; they prove themselves before anything else is read.
    pub(super) fn accept(&mut self, now_ms: u64) -> bool {
        // A listener that is ended speaks up however little it is watched.
        let Some(listener) = self.listener.as_mut().filter(|_| !self.listener_rests) else { return false };
        let mut progress = false;
        for _ in 0..ACCEPTS_PER_TURN {
            let link = match listener.accept() {
                Ok(Some(link)) => link,
                Ok(None) => break,
                Err(error) => {
                    // Most likely no descriptor is free. The listener stays readable, so it is not watched for a while.
                    tracing::warn!(node = self.node.0, "cannot take in a connection: {error}");
                    self.listener_rests = true;
                    break;
                }
            };
            progress = true;
            if self.half_open.len() >= self.half_open_max {
                let name = drop_oldest(&mut self.half_open, &self.poller);
                let why = format_args!("{name}: too many connections have not proven themselves");
                self.refusals.note(self.node, now_ms, why);
            }
            let mut nonce = [0; 32];
            if getrandom::fill(&mut nonce).is_err() {
                continue;
            }
            let entry = self.half_open.vacant_entry();
            if let Some(descriptor) = link.descriptor()
                && self.poller.add(descriptor, HALF_OPEN | entry.key() as u64, Interest::READABLE).is_err()
            {
                continue;
            }
            let deadline_ms = now_ms + self.handshake_timeout_ms;
            entry.insert(Doorman::new(link, &self.admission, nonce, deadline_ms));
        }
        self.watch_listener();
        progress
    }

    pub(super) fn watch_listener(&self) {
        if let Some(listener) = self.listener.as_ref().and_then(|listener| listener.descriptor()) {
            self.watch(listener, LISTENER, self.listener_rests);
        }
    }

    pub(super) fn watch_door(&self) {
        self.watch(self.door.descriptor(), DOOR, self.door_rests);
    }

    fn watch(&self, descriptor: BorrowedFd<'_>, token: u64, rests: bool) {
        let interest = if rests { Interest::default() } else { Interest::READABLE };
        if let Err(error) = self.poller.modify(descriptor, token, interest) {
            tracing::error!(%error, "cannot watch for who comes in");
        }
    }

    /// Goes on with one handshake.
    pub(super) fn turn_doorman(&mut self, number: usize, now_ms: u64) -> bool {
        let Some(doorman) = self.half_open.get_mut(number) else { return false };
        match doorman.poll(now_ms) {
            DoormanStep::Pending => false,
            DoormanStep::Refused(reason) => {
                self.refusals.note(self.node, now_ms, format_args!("a connection: {reason}"));
                self.dismiss(number);
                true
            }
            DoormanStep::Proven { identity, session } => {
                match self.receive_session(identity, session) {
                    Some(reception) => {
                        self.half_open[number].welcome(reception);
                        self.turn_doorman(number, now_ms);
                    }
                    None => {
                        let rank = identity.rank.0;
                        let why = format_args!("a call in the name of rank {rank}: an old one, or of no living rank");
                        self.refusals.note(self.node, now_ms, why);
                        self.dismiss(number);
                    }
                }
                true
            }
            DoormanStep::Admitted { link, identity, session } => {
                self.half_open.remove(number);
                self.admit(link, identity, session);
                true
            }
        }
    }

    /// A half-open connection is closed.
    pub(super) fn dismiss(&mut self, number: usize) {
        let doorman = self.half_open.remove(number);
        if let Some(descriptor) = doorman.descriptor() {
            let _ = self.poller.remove(descriptor);
        }
    }

    pub(super) fn open_door(&mut self) -> bool {
        let mut progress = false;
        for _ in 0..ACCEPTS_PER_TURN {
            let visitor = match self.door.accept() {
                Ok(Arrival::Visitor(visitor)) => visitor,
                Ok(Arrival::OtherUser { uid }) => {
                    self.refusals.note(self.node, self.now_ms, format_args!("a process of user {uid} at the door"));
                    continue;
                }
                Ok(Arrival::Gone) => continue,
                Ok(Arrival::Nobody) => break,
                Err(errno) => {
                    tracing::warn!(node = self.node.0, "cannot take in a visitor: {errno}");
                    self.door_rests = true;
                    self.watch_door();
                    break;
                }
            };
            progress = true;
            let entry = self.visitors.vacant_entry();
            if self.poller.add(visitor.as_fd(), VISITOR | entry.key() as u64, Interest::READABLE).is_ok() {
                entry.insert(visitor);
            }
        }
        progress
    }

    pub(super) fn turn_visitor(&mut self, number: usize) -> bool {
        let Some(visitor) = self.visitors.get(number) else { return false };
        let outcome = match door::next_request(visitor.as_fd()) {
            Ok(None) => return false,
            Ok(Some(request)) => self.shared.open(self.job, &request).answer(visitor.as_fd()),
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            let visitor = self.visitors.remove(number);
            let _ = self.poller.remove(visitor.as_fd());
        }
        true
    }
}

/// Makes room for a newer caller: one that belongs to the job proves itself at once, or else calls again. Says who went.
fn drop_oldest(half_open: &mut Slab<Doorman>, poller: &Poller) -> String {
    let oldest = half_open.iter().min_by_key(|(_, doorman)| doorman.deadline_ms());
    let Some((number, _)) = oldest else { return String::new() };
    let doorman = half_open.remove(number); // Dropping closes.
    if let Some(descriptor) = doorman.descriptor() {
        let _ = poller.remove(descriptor);
    }
    doorman.peer_name().to_owned()
}
