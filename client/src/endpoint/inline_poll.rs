//! Looking for the end of an operation where it was begun: a thread that has asked a device for little looks at that alone for a moment, before it drives
//! anything else, reads a clock, or lends memory for longer.

use longarm_memory::RegionMut;
use longarm_netmod::{DirectAccess, InlinePoll};
use longarm_proto::{Run, WindowRef};

use super::Endpoint;
use super::locked::Locked;
use super::request::Driven;
use super::state::State;

use crate::origin_bytes::Held;

/// What came of a get that is looked for at once.
pub(crate) enum PolledGet<'a> {
    /// The bytes are there.
    Done,
    /// They will come to memory that is lent for it, now.
    UnderWay(Unlent<'a>),
    /// It has to go another way.
    NotBegun,
}

/// A get under way that nobody has lent memory for.
pub(crate) struct Unlent<'a> {
    state: Locked<'a>,
    target: WindowRef,
    run: Run,
}

impl Unlent<'_> {
    /// Its bytes go to this part of lent memory.
    pub(crate) fn lend(mut self, held: Held, here: Run) {
        self.state.lend_polled((self.target, self.run), held, here);
    }
}

impl State {
    /// What reaches the node's memory.
    pub(super) fn access(&mut self) -> Option<&mut dyn DirectAccess> {
        self.connection.link()?.direct()
    }

    /// A get that is looked for at once.
    pub(super) fn get_polling(&mut self, target: &WindowRef, run: Run, into: RegionMut<'_>, looks: u32) -> InlinePoll {
        if !self.may_go_direct() {
            return InlinePoll::NotBegun;
        }
        let Some(access) = self.connection.link().and_then(|link| link.direct()) else { return InlinePoll::NotBegun };
        let came = access.get_polling(target, run, into, looks);
        self.keepalive.moved();
        came
    }

    /// One that takes longer goes on as any other.
    pub(super) fn lend_polled(&mut self, whence: (WindowRef, Run), held: Held, here: Run) {
        let access = self.connection.link().and_then(|link| link.direct()).expect("it was begun there");
        self.transfers.lend_polled(access, whence, held, here);
    }

    /// Looks whether all direct transfers are over, and have ended well.
    pub(super) fn look_for_ends(&mut self, looks: u32, driven: &mut Driven) -> bool {
        let access = self.connection.link().and_then(|link| link.direct());
        if !self.transfers.are_posted() || !access.is_some_and(|access| access.look_for_ends(looks)) {
            return false;
        }
        self.take_outcomes(driven);
        self.transfers.is_empty() && self.refused.is_none()
    }
}

impl Endpoint {
    /// A small get likewise, which looks so many times whether the bytes are there, and at nothing else meanwhile.
    #[inline]
    pub(crate) fn get_polling(&self, target: &WindowRef, run: Run, into: RegionMut<'_>, looks: u32) -> PolledGet<'_> {
        let Some(mut state) = self.try_lock() else { return PolledGet::NotBegun };
        if self.published.is_broken() {
            return PolledGet::NotBegun;
        }
        match state.get_polling(target, run, into, looks) {
            InlinePoll::Done => PolledGet::Done,
            InlinePoll::UnderWay => PolledGet::UnderWay(Unlent { state, target: *target, run }),
            InlinePoll::NotBegun => PolledGet::NotBegun,
        }
    }

    /// Looks so many times whether what no server is involved in is over, and at nothing else meanwhile. False: there is more to
    /// it, or to say. Whatever it says, transfers may have ended for which others wait.
    pub(crate) fn look_for_ends(&self, looks: u32) -> (bool, Driven) {
        let mut driven = Driven::default();
        let Some(mut state) = self.try_lock() else { return (false, driven) };
        let is_over = !self.published.is_broken() && state.look_for_ends(looks, &mut driven);
        (is_over, driven)
    }
}
