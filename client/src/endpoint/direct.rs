//! Transfers with no server involved: begun, and given to the link, or left to the server.

use longarm_memory::Region;
use longarm_netmod::{DirectAccess, DirectSource, Reach, Wish};
use longarm_proto::{Run, WindowRef};

use super::Endpoint;
use super::published::Fact;
use super::request::Driven;
use super::transfers::{Here, Transfers, What, share};
use crate::origin_bytes::Held;
use crate::shapes::RunRequest;

/// Where the bytes of a put are.
pub(crate) enum PutSource<'a> {
    /// The caller's, until the call returns, and which pieces of it.
    Copied(Region<'a>, &'a [Run]),
    /// Lent, likewise.
    Lent(&'a dyn Fn() -> Held, &'a [Run]),
}

impl Endpoint {
    /// Begins puts into the node's memory with no server involved. False: the server has to do all of it, because the link cannot,
    /// or something is under way that must not be overtaken.
    pub(crate) fn put_direct<'a>(
        &self,
        target: &WindowRef,
        requests: &'a [RunRequest],
        source: impl Fn(&'a [Run]) -> PutSource<'a>,
    ) -> (bool, Driven) {
        self.begin_direct(requests, |transfers, access, request| {
            put(transfers, access, (target, request.there), source(&request.here))
        })
    }

    /// Begins gets from the node's memory, likewise. `hold`: what their pieces lie in.
    pub(crate) fn get_direct(
        &self,
        target: &WindowRef,
        requests: &[RunRequest],
        hold: &dyn Fn() -> Held,
    ) -> (bool, Driven) {
        self.begin_direct(requests, |transfers, access, request| {
            get(transfers, access, (target, request.there), (hold, &request.here))
        })
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
        begin: impl Fn(&mut Transfers, &mut dyn DirectAccess, &'a RunRequest) -> bool,
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
        let begun = requests.iter().all(|request| {
            let state = &mut *state;
            // What must not be overtaken may have come up since.
            let access = state.may_go_direct().then(|| state.connection.link()?.direct()).flatten();
            access.is_some_and(|access| begin(&mut state.transfers, access, request))
        });
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

/// Begins a put. False if the memory cannot be reached, or not now. An error of the link is found by who next uses it.
fn put(
    transfers: &mut Transfers,
    access: &mut dyn DirectAccess,
    (target, run): (&WindowRef, Run),
    source: PutSource<'_>,
) -> bool {
    let wish = match &source {
        PutSource::Copied(..) => Wish::PutCopied(run.bytes as usize),
        PutSource::Lent(..) => Wish::PutLent,
    };
    if access.reach(target, wish) != Reach::Yes {
        return false;
    }
    let ticket = transfers.next_ticket();
    let what = match source {
        PutSource::Copied(region, pieces) => {
            let mut bytes = transfers.room();
            gather(region, pieces, run.bytes as usize, &mut bytes);
            let _ = access.put(ticket, target, run, DirectSource::Copied(Region::from_slice(&bytes)));
            What::Copied(bytes)
        }
        PutSource::Lent(hold, pieces) => {
            let (held, here) = (hold(), Here::from(pieces));
            let _ = access.put(ticket, target, run, DirectSource::Lent(share(&held, &here)));
            What::Lent { held, here, is_get: false }
        }
    };
    transfers.push_posted(*target, run, what);
    true
}

/// Copies pieces of memory, one behind the other.
fn gather(region: Region<'_>, pieces: &[Run], bytes: usize, into: &mut Vec<u8>) {
    into.resize(bytes, 0);
    let mut rest = &mut into[..];
    for piece in pieces {
        let (first, behind) = rest.split_at_mut(piece.bytes as usize);
        region.slice(piece.offset as usize, first.len()).copy_to_slice(first);
        rest = behind;
    }
}

/// Begins a get, likewise.
fn get(
    transfers: &mut Transfers,
    access: &mut dyn DirectAccess,
    (target, run): (&WindowRef, Run),
    (hold, pieces): (&dyn Fn() -> Held, &[Run]),
) -> bool {
    if access.reach(target, Wish::Get) != Reach::Yes {
        return false;
    }
    let (held, here) = (hold(), Here::from(pieces));
    let _ = access.get(transfers.next_ticket(), target, run, share(&held, &here));
    transfers.push_posted(*target, run, What::Lent { held, here, is_get: true });
    true
}

#[cfg(test)]
#[path = "transfers_tests.rs"]
mod tests;
