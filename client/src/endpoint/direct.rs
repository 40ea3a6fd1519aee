//! Transfers with no server involved, as the callers see them: begun, or left to the server.

use longarm_proto::{Run, WindowRef};

use super::Endpoint;
use super::published::Fact;
use super::request::Driven;
use super::state::State;
use super::transfers::PutSource;
use crate::origin_bytes::Held;
use crate::shapes::RunRequest;

impl Endpoint {
    /// Begins puts into the node's memory with no server involved. False: the server has to do all of it, because the link cannot,
    /// or something is under way that must not be overtaken.
    pub(crate) fn put_direct<'a>(
        &self,
        target: &WindowRef,
        requests: &'a [RunRequest],
        source: impl Fn(&'a [Run]) -> PutSource<'a>,
    ) -> (bool, Driven) {
        let each =
            |state: &mut State, request: &'a RunRequest| state.put_direct(target, request.there, source(&request.here));
        self.begin_direct(requests, each)
    }

    /// Begins gets from the node's memory, likewise. `hold`: what their pieces lie in.
    pub(crate) fn get_direct(
        &self,
        target: &WindowRef,
        requests: &[RunRequest],
        hold: &dyn Fn() -> Held,
    ) -> (bool, Driven) {
        let each =
            |state: &mut State, request: &RunRequest| state.get_direct(target, request.there, (hold, &request.here));
        self.begin_direct(requests, each)
    }

    /// Whether the network reaches memory of the node with no server involved.
    #[inline]
    pub(crate) fn reaches_memory(&self) -> bool {
        // An old value has the server do it.
        self.published.has(Fact::REACHES)
    }

    fn begin_direct<'a>(
        &self,
        requests: &'a [RunRequest],
        begin: impl Fn(&mut State, &'a RunRequest) -> bool,
    ) -> (bool, Driven) {
        let mut driven = Driven::default();
        if !self.reaches_memory() {
            return (false, driven);
        }
        let mut state = self.lock();
        // What the server had still to do may be over. Who puts, and looks only at its own memory in between, would not hear
        // of it, and be served for ever.
        if !state.may_go_direct() && !state.has_coalesced() && !self.expects_much() {
            driven = self.drive_locked(&mut state, true);
        }
        if self.published.is_broken() {
            return (false, driven);
        }
        // The device is told of several at a time. Where the link has no more room the server does all of it: the same bytes, to
        // the same places.
        let are_several = requests.len() > 1;
        if are_several && let Some(access) = state.access() {
            access.begin_batch();
        }
        let begun = requests.iter().all(|request| begin(&mut state, request));
        if are_several && let Some(access) = state.access() {
            // Who next uses the link finds its error.
            let _ = access.post_batch();
        }
        if !begun {
            return (false, driven);
        }
        // Who puts and never waits would keep them all.
        if state.transfers.are_many() {
            state.take_outcomes(&mut driven);
        }
        (true, driven)
    }

    /// Whether it has to be driven although nobody waits. Transfers that end by themselves are left alone: who looks for
    /// their ends keeps a processor from those who compute, or wait.
    pub(crate) fn needs_helper(&self) -> bool {
        self.published.has(Fact::NEEDS_HELPER)
    }

    /// Whether transfers are under way that no server is involved in.
    pub(crate) fn has_transfers(&self) -> bool {
        self.published.has(Fact::TRANSFERS)
    }
}

#[cfg(test)]
#[path = "transfers_tests.rs"]
mod tests;
