//! What comes in: connections of ranks, which prove themselves first, and visitors at the node's door.

use std::os::fd::AsFd;

use longarm_netmod::{Entrance, EntranceStep, Interest};
use longarm_proto::{AccessKey, Generation, Rank, WindowId};

use super::{ACCEPTS_PER_TURN, DOOR, Engine, VISITOR};
use crate::door::{self, Arrival, DoorError, DoorRequest, Handed};
use crate::table::WARM_MS;

impl Engine {
    /// Does something at the entrance, and sees to who has proven himself there.
    pub(super) fn at_entrance(&mut self, what: impl FnOnce(&mut Entrance) -> bool) -> bool {
        let Some(entrance) = &mut self.entrance else { return false };
        let moved = what(entrance);
        while let Some(step) = self.entrance.as_mut().and_then(Entrance::next_step) {
            match step {
                EntranceStep::Proven { number, identity, session } => {
                    let reception = self.receive_session(identity, session);
                    let (entrance, now_ms) = (self.entrance.as_mut().expect("asked just now"), self.now_ms);
                    match reception {
                        Some(reception) => entrance.welcome(number, reception, now_ms),
                        None => {
                            let rank = identity.rank;
                            let why =
                                format_args!("it calls in the name of rank {rank}: an old call, or of no living rank");
                            entrance.dismiss(number, now_ms, why);
                        }
                    }
                }
                EntranceStep::Admitted { link, identity, session } => self.admit(link, identity, session),
            }
        }
        moved
    }

    /// What one turn sends over several connections may go out together.
    pub(super) fn cork(&mut self) {
        if let Some(entrance) = &mut self.entrance {
            entrance.cork();
        }
    }

    pub(super) fn uncork(&mut self) {
        if let Some(entrance) = &mut self.entrance {
            entrance.uncork();
        }
    }

    pub(super) fn watch_door(&self) {
        let interest = if self.door_rests { Interest::default() } else { Interest::READABLE };
        if let Err(error) = self.poller.modify(self.door.descriptor(), DOOR, interest) {
            tracing::error!(%error, "cannot watch for who comes in");
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

    /// What a visitor would ask at the door, for a thread of this process.
    pub(crate) fn ask(&mut self, request: &DoorRequest, now_ms: u64) -> Result<Option<Handed>, DoorError> {
        let handed = self.shared.open(self.job, request, now_ms).hand();
        self.plan_give_back(now_ms);
        // Those who waited for a mutex of a window that is freed.
        self.deliver_grants();
        handed
    }

    /// As [`Server::serve_ahead`](crate::Server::serve_ahead).
    pub(crate) fn serve_ahead(
        &mut self,
        identity: (WindowId, Generation, AccessKey),
        ranks: &[Rank],
        room: u64,
        now_ms: u64,
    ) -> Option<(WindowId, Generation)> {
        let made_for = self.shared.windows.create_ahead(identity, ranks, room, now_ms);
        // Memory that was busy may have become spare.
        self.plan_give_back(now_ms);
        made_for
    }

    /// Memory of freed windows is to be given back some time after they were.
    fn plan_give_back(&mut self, now_ms: u64) {
        if self.give_back_at_ms.is_none() && self.shared.windows.are_warm() {
            self.give_back_at_ms = Some(now_ms + WARM_MS);
        }
    }

    /// Gives back what is due, and finds out when more is.
    pub(super) fn give_back_due(&mut self, now_ms: u64) {
        if self.give_back_at_ms.is_some_and(|at| now_ms >= at) {
            self.shared.windows.give_back_idle(now_ms);
            self.give_back_at_ms = self.shared.windows.are_warm().then_some(now_ms + WARM_MS);
        }
    }

    pub(super) fn turn_visitor(&mut self, number: usize) -> bool {
        let Some(visitor) = self.visitors.get(number) else { return false };
        let outcome = match door::next_request(visitor.as_fd()) {
            Ok(None) => return false,
            Ok(Some(request)) => self.shared.open(self.job, &request, self.now_ms).answer(visitor.as_fd()),
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            let visitor = self.visitors.remove(number);
            let _ = self.poller.remove(visitor.as_fd());
        }
        self.plan_give_back(self.now_ms);
        true
    }
}
