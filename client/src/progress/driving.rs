//! Driving connections, and telling the threads that sleep what came of it; and what the server of this process is told meanwhile.

use std::time::Duration;

use longarm_proto::{NodeId, Rank};
use longarm_shm::sync::Ordering;
use rustix::event::PollFlags;

use super::Progress;
use super::assist::{Assistant, Expecting};
use super::link_sleep::BatchNap;
use super::pace::CALL_NAP;
use super::watched::{Announced, Watched};
use crate::endpoint::{Driven, Endpoint, Prepared};

/// As many calls a server counts as asked after it was asked.
const ASKED_CALLS: u32 = 4;

impl Progress {
    /// For how long nobody may look at connections: several times within the time after which silence counts, or it could not be told from
    /// our own absence.
    pub(crate) fn unseen_max(&self) -> Duration {
        Duration::from_millis(self.endpoint_options.silence_ms / 8).max(CALL_NAP)
    }

    /// For a thread that is about to send something and to wait for mail, requests or replies of another rank: the server of this
    /// process, if there is one, wakes no other thread meanwhile.
    pub(crate) fn expect_from(&self, from: Rank) -> Option<Expecting<'_>> {
        if self.local.same_node(from) {
            return None;
        }
        let assist = self.assist.as_deref()?;
        assist.suppress_wakeups(true);
        Some(Expecting(assist))
    }

    /// For a thread that is about to ask another node for something and to wait for the answer. Where others have asked this
    /// node's server, if it is here, since the last time, they may do the same at the same time: as [`Progress::expect_from`],
    /// and the thread answers them while it waits, from the beginning.
    pub(crate) fn expect_answer(&self) -> Option<Expecting<'_>> {
        let assist = self.assist.as_deref()?;
        // Relaxed: guesses, also those of several threads.
        let (moves, calls) = (assist.moves(), self.asked.calls.load(Ordering::Relaxed));
        if self.asked.moves.load(Ordering::Relaxed) != moves {
            self.asked.moves.store(moves, Ordering::Relaxed);
            self.asked.calls.store(ASKED_CALLS, Ordering::Relaxed);
        } else if calls == 0 {
            return None;
        } else {
            self.asked.calls.store(calls - 1, Ordering::Relaxed);
        }
        if self.spin_us == 0 {
            return None;
        }
        assist.suppress_wakeups(true);
        Some(Expecting(assist))
    }

    /// For a thread that sends something and does not wait. What others have asked here meanwhile it answers, rather than have
    /// the server's thread woken, for which it may have to wait a moment later.
    pub(crate) fn while_asked<R>(&self, send: impl FnOnce() -> R) -> R {
        let expecting = self.expect_answer();
        let result = send();
        if expecting.is_some()
            && let Some(mut assistant) = self.assist.as_ref().and_then(|assist| Assistant::take(&**assist))
        {
            assistant.turn.turn();
        }
        result
    }

    /// From here on the server's thread is woken again, whoever expects something.
    pub(crate) fn allow_wakeups(&self) {
        if let Some(assist) = &self.assist {
            assist.suppress_wakeups(false);
        }
    }

    /// Sleeps, and lets the server of this process, if there is one, have the processor.
    pub(crate) fn rest<R>(&self, sleep: impl FnOnce() -> R) -> R {
        if let Some(assist) = &self.assist {
            assist.rest(true);
        }
        let result = sleep();
        if let Some(assist) = &self.assist {
            assist.rest(false);
        }
        result
    }

    pub(crate) fn drive_endpoint(&self, endpoint: &Endpoint) -> bool {
        self.note_driven(endpoint, endpoint.drive())
    }

    pub(crate) fn drive_busy(&self) -> bool {
        let mut progress = false;
        for endpoint in self.occupied_endpoints().filter(|endpoint| endpoint.is_busy()) {
            progress |= self.drive_endpoint(endpoint);
        }
        progress
    }

    /// Drives the endpoints that a sleep has found something for, or all that are busy.
    pub(crate) fn drive_announced(&self, announced: Announced) -> bool {
        match announced {
            Announced::Anything => self.drive_busy(),
            Announced::These(nodes) => {
                let endpoints =
                    nodes.into_iter().filter_map(|node| self.endpoints.of(node)).filter(|endpoint| endpoint.is_busy());
                endpoints.fold(false, |progress, endpoint| self.drive_endpoint(endpoint) | progress)
            }
        }
    }

    /// Those endpoints that concern a sleeper, as it sees them.
    pub(crate) fn watched(&self, concerns: impl Fn(&Endpoint) -> bool) -> Vec<Watched> {
        let watched = self.occupied_endpoints().filter(|endpoint| concerns(endpoint));
        watched
            .map(|endpoint| {
                let (node, is_up, is_first_call) = (endpoint.node(), endpoint.is_up(), !endpoint.is_known());
                match endpoint.prepare_sleep() {
                    None => Watched { node, is_up, is_first_call, is_driven_elsewhere: true, ..Watched::default() },
                    Some(Prepared { descriptor, wanted, ready }) => {
                        let mut flags = PollFlags::empty();
                        flags.set(PollFlags::IN, wanted.readable);
                        flags.set(PollFlags::OUT, wanted.writable);
                        Watched { node, is_up, is_first_call, is_driven_elsewhere: false, descriptor, flags, ready }
                    }
                }
            })
            .collect()
    }

    /// As [`Progress::watched`], for a thread that others can wake by now. A node card may have come just before that, and woken nobody: so calls
    /// that lack a descriptor go on here once more.
    pub(crate) fn watched_after_calls(&self, concerns: impl Fn(&Endpoint) -> bool + Copy) -> Vec<Watched> {
        let watched = self.watched(concerns);
        let lacking: Vec<NodeId> =
            watched.iter().filter(|watched| watched.lacks_descriptor()).map(|watched| watched.node).collect();
        if lacking.is_empty() {
            return watched;
        }
        self.drive_announced(Announced::These(lacking));
        self.watched(concerns)
    }

    /// Whether something is in progress towards a server to which there is no connection now: it is called.
    pub(crate) fn is_calling(&self) -> bool {
        self.occupied_endpoints().any(|endpoint| endpoint.is_busy() && !endpoint.is_up())
    }

    /// Whether all that the helper drives is calls of servers that were never reached.
    pub(crate) fn has_only_first_calls(&self) -> bool {
        let mut helped = self.occupied_endpoints().filter(|endpoint| endpoint.needs_helper()).peekable();
        helped.peek().is_some() && helped.all(|endpoint| !endpoint.is_known())
    }

    /// What threads that wait for many first calls sleep by, where threads outnumber processors.
    pub(crate) fn batch_nap(&self) -> Option<&BatchNap> {
        (self.spin_us == 0).then_some(&self.batch_nap)
    }

    /// Looks after what was sent and has not been acknowledged, although nobody waits, and after nodes from which
    /// somebody waits for mail or a changed word, or an answer is due. Often enough to notice a broken connection in time; the helper thread
    /// does it where time is real.
    pub(crate) fn tend(&self) -> bool {
        let mut tended = false;
        for endpoint in self.occupied_endpoints().filter(|endpoint| endpoint.is_unacknowledged()) {
            tended = true;
            // Calls are made by whoever drives. Hundreds of helpers that looked after them as well would keep the processors from who is to answer.
            if endpoint.is_up() {
                self.note_driven(endpoint, endpoint.tend());
            }
        }
        // Not those who have just begun to wait: thousands may wait for the same node, and their questions would keep its server busy.
        let waits = self.waits.seen_for(self.endpoint_options.silence_ms / 4, self.time.now_ms());
        for endpoint in self.awaited_endpoints(&waits).into_iter().filter(|endpoint| !endpoint.is_busy()) {
            tended = true;
            self.note_driven(endpoint, endpoint.ask());
        }
        tended
    }

    /// Wakes who may have to know what driving came to. True if anything moved.
    pub(crate) fn note_driven(&self, endpoint: &Endpoint, driven: Option<Driven>) -> bool {
        let Some(Driven { progress, completed, .. }) = driven else { return false };
        if completed && endpoint.broken().is_some() {
            self.wake_all();
        } else if completed {
            self.sleepers.completed();
        }
        progress
    }
}
