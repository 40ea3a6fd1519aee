//! Transfers that reach the other node's memory with no server involved, and what becomes of them when the link breaks.
//!
//! ```text
//!   begun ──► posted on the link ──► outcome: done, or refused
//!     ▲                │
//!     └── link broke ──┘   the next link says which were done; the others are posted there, before anything is sent
//! ```
//!
//! They keep their order among themselves and with what is sent after them: a link does both in the order of the calls. What
//! was sent before and is not acknowledged might still be under way in the server, so a transfer that comes behind such a
//! request is served too.

use std::collections::VecDeque;
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use longarm_netmod::flow::RunTarget;
use longarm_netmod::{
    DEVICE_WORD_BYTES, DirectAccess, DirectOutcome, DirectSource, Link, LinkError, Loan, Reach, Wish,
};
use longarm_proto::{Mutation, Refusal, Run, WindowRef, mutation};

use super::begun_rmw::BegunRmw;
use super::request::Driven;
use crate::completion::Outcome;
use crate::origin_bytes::Held;

/// Before the next call where a second link in a row has ended nothing.
pub(super) const STALLED_PAUSE_MS: u64 = 50;
/// What is kept of [`Transfers::spare`].
const SPARE_MAX: usize = 64;
/// So many transfers may be over without anybody having noticed.
pub(super) const MANY: usize = 64;

/// See the module.
#[derive(Default)]
pub(super) struct Transfers {
    /// In the order in which they were begun.
    pub(super) begun: VecDeque<Transfer>,
    /// How many of them, from the first on, are posted on the link that there is now.
    posted: usize,
    /// How many of them use lent memory.
    lent: usize,
    next_ticket: u64,
    /// Room of copied puts that are over.
    spare: Vec<Vec<u8>>,
    /// The link is not the one on which they were posted.
    orphaned: bool,
    /// A link that has gone had some of them, and none after it has told what became of these.
    untold: bool,
    /// Since when links have left them and none has ended one.
    stalled_since_ms: Option<u64>,
    /// Why a put has failed whose caller has gone on.
    refused: Option<Outcome>,
}

pub(super) struct Transfer {
    ticket: u64,
    target: WindowRef,
    run: Run,
    what: What,
}

pub(super) enum What {
    /// A put of these bytes.
    Copied(Vec<u8>),
    /// A put of, or a get into, this part of lent memory.
    Lent { held: Held, here: Here, is_get: bool },
    /// A word's, by the device.
    Rmw(BegunRmw),
}

impl What {
    fn wish(&self) -> Wish {
        match self {
            What::Copied(bytes) => Wish::PutCopied(bytes.len()),
            What::Lent { is_get: false, .. } => Wish::PutLent,
            What::Lent { is_get: true, .. } => Wish::Get,
            What::Rmw(_) => Wish::Rmw,
        }
    }
}

/// Which part of lent memory.
#[derive(Clone)]
pub(super) enum Here {
    One(Run),
    /// Several, one after the other.
    Several(Arc<[Run]>),
}

impl From<&[Run]> for Here {
    fn from(pieces: &[Run]) -> Here {
        if let [one] = pieces { Here::One(*one) } else { Here::Several(pieces.into()) }
    }
}

/// A link's share of lent memory: its part is done when the link lets go of it.
struct Share {
    held: Held,
    here: Here,
}

impl Loan for Share {
    fn memory(&self) -> RegionMut<'_> {
        match &self.here {
            Here::One(run) => self.held.region_mut(*run),
            Here::Several(_) => self.held.whole(),
        }
    }

    fn pieces(&self) -> &[Run] {
        match &self.here {
            Here::One(_) => &[],
            Here::Several(pieces) => pieces,
        }
    }
}

pub(super) fn share(held: &Held, here: &Here) -> Box<dyn Loan> {
    Box::new(Share { held: held.again(), here: here.clone() })
}

impl Transfers {
    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    /// Whether all is on its way, so that others may follow.
    pub(super) fn are_posted(&self) -> bool {
        self.posted == self.begun.len() && !self.orphaned
    }

    /// Whether somebody has to look after them although nobody waits: the rest is posted as room comes, or lent memory is given
    /// back. Copied puts that are posted end by themselves; that they have is noticed by who needs room, waits, or tends.
    pub(super) fn need_driving(&self, link: Option<&mut dyn Link>) -> bool {
        let is_posted = |link: &mut dyn Link| link.direct().is_none_or(|access| access.is_all_posted());
        self.lent > 0 || !self.are_posted() || !link.is_none_or(is_posted)
    }

    /// Whether so many are not known to be over that who begins another looks which are.
    pub(super) fn are_many(&self) -> bool {
        self.begun.len() >= MANY
    }

    /// The link has gone. When to make another one; `None` if those of so long a time have ended none of what is under way:
    /// that connections can be made does not mean that the device still does anything.
    pub(super) fn orphan(&mut self, now_ms: u64, limit_ms: u64) -> Option<u64> {
        self.orphaned = !self.begun.is_empty();
        self.untold = self.orphaned && (self.untold || self.posted > 0);
        self.posted = 0;
        if !self.orphaned {
            self.stalled_since_ms = None;
            return Some(now_ms);
        }
        let Some(since_ms) = self.stalled_since_ms else {
            self.stalled_since_ms = Some(now_ms);
            return Some(now_ms);
        };
        (now_ms < since_ms.saturating_add(limit_ms)).then(|| now_ms.saturating_add(STALLED_PAUSE_MS))
    }

    fn push(&mut self, target: WindowRef, run: Run, what: What) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.lent += usize::from(matches!(what, What::Lent { .. }));
        self.begun.push_back(Transfer { ticket, target, run, what });
    }

    /// The number that the next one will have.
    pub(super) fn next_ticket(&self) -> u64 {
        self.next_ticket
    }

    /// One that was posted just now, behind all others.
    pub(super) fn push_posted(&mut self, target: WindowRef, run: Run, what: What) {
        self.push(target, run, what);
        self.posted += 1;
    }

    /// Room for the bytes of a copied put.
    pub(super) fn room(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// A get that is under way already goes on as one of those that were begun.
    pub(super) fn lend_polled(
        &mut self,
        access: &mut dyn DirectAccess,
        (target, run): (WindowRef, Run),
        held: Held,
        here: Run,
    ) {
        let here = Here::One(here);
        access.lend_polled(self.next_ticket, share(&held, &here));
        self.push_posted(target, run, What::Lent { held, here, is_get: true });
    }

    /// Begins an update, which is posted as soon as its word is reached: the server cannot do it. Nothing that begins after it goes
    /// before it.
    pub(super) fn rmw(&mut self, target: WindowRef, offset: u64, begun: BegunRmw) {
        self.push(target, Run { offset, bytes: DEVICE_WORD_BYTES }, What::Rmw(begun));
    }

    /// Whether the server is expected to say how a word is reached: a read-modify-write is the next that is to be posted.
    pub(super) fn asks(&self) -> bool {
        self.begun.get(self.posted).is_some_and(|transfer| matches!(transfer.what, What::Rmw(_)))
    }

    /// Posts the first that is not posted. It can be reached.
    fn post_next(&mut self, access: &mut dyn DirectAccess) -> Result<(), LinkError> {
        let transfer = &self.begun[self.posted];
        let (ticket, target, run) = (transfer.ticket, &transfer.target, transfer.run);
        self.posted += 1;
        match &transfer.what {
            What::Copied(bytes) => access.put(ticket, target, run, DirectSource::Copied(Region::from_slice(bytes))),
            What::Lent { held, here, is_get: false } => {
                access.put(ticket, target, run, DirectSource::Lent(share(held, here)))
            }
            What::Lent { held, here, is_get: true } => access.get(ticket, target, run, share(held, here)),
            What::Rmw(begun) => access.rmw(ticket, target, run.offset, begun.rmw),
        }
    }

    /// Goes on with what an older link has left. True once nothing of it is left to be posted, and others may go on.
    pub(super) fn settle(&mut self, link: &mut dyn Link, driven: &mut Driven) -> Result<bool, LinkError> {
        if self.are_posted() {
            return Ok(true);
        }
        // Nothing is sent by this, but both sides come to agree.
        link.send(&[])?;
        if !link.is_settled() {
            return Ok(false);
        }
        if self.untold && link.direct().is_none() {
            // What became of them is known to devices alone, and puts could not be begun anew.
            return Err(LinkError::Device("it carried transfers that only it can end"));
        }
        self.untold = false;
        if std::mem::take(&mut self.orphaned) {
            if mutation(Mutation::DirectRepeated) {
                while link.direct().and_then(DirectAccess::take_outcome).is_some() {}
            }
            self.take_outcomes(link, driven);
        }
        while self.posted < self.begun.len() {
            let transfer = &self.begun[self.posted];
            let is_rmw = matches!(transfer.what, What::Rmw(_));
            let access = link.direct();
            if access.is_none() && !is_rmw {
                // They stand before what is to be sent, and cannot be put there any more.
                return Err(LinkError::Device("it carried transfers that only it can end"));
            }
            let reach = access.map_or(Reach::No, |access| access.reach(&transfer.target, transfer.what.wish()));
            match reach {
                Reach::Yes => self.post_next(link.direct().expect("it reaches the memory"))?,
                Reach::Asked | Reach::Full => return Ok(false),
                Reach::No => {
                    let transfer = self.begun.remove(self.posted).expect("it was there");
                    self.end(transfer, None, driven);
                }
            }
        }
        Ok(true)
    }

    /// Takes up what is over.
    pub(super) fn take_outcomes(&mut self, link: &mut dyn Link, driven: &mut Driven) {
        let Some(access) = link.direct() else { return };
        while let Some((ticket, outcome)) = access.take_outcome() {
            driven.progress = true;
            let outcome = match outcome {
                DirectOutcome::NotDone if mutation(Mutation::DirectForgotten) => DirectOutcome::Done,
                DirectOutcome::NotDone => continue,
                outcome => outcome,
            };
            let Some(at) = self.begun.iter().position(|transfer| transfer.ticket == ticket) else { continue };
            let transfer = self.begun.remove(at).expect("it was found");
            self.posted -= usize::from(at < self.posted);
            self.end(transfer, Some(outcome), driven);
        }
    }

    /// No outcome: its memory is not reached any more.
    fn end(&mut self, transfer: Transfer, outcome: Option<DirectOutcome>, driven: &mut Driven) {
        driven.completed = true;
        self.stalled_since_ms = None;
        self.lent -= usize::from(matches!(transfer.what, What::Lent { .. }));
        let detail = transfer.run.offset;
        let failure = match outcome {
            Some(DirectOutcome::Done) => None,
            Some(DirectOutcome::Unknown) => Some(Outcome::Doubtful),
            _ => Some(Outcome::Refused { refusal: Refusal::FreedWindow, detail }),
        };
        match transfer.what {
            What::Rmw(begun) => begun.end(outcome, detail),
            What::Lent { held, .. } => match failure {
                None => drop(held),
                Some(failure) => held.fail(failure),
            },
            What::Copied(mut bytes) => {
                if self.spare.len() < SPARE_MAX {
                    bytes.clear();
                    self.spare.push(bytes);
                }
                self.refused = self.refused.take().or(failure);
            }
        }
    }

    /// Why a put has failed whose caller has gone on; once.
    pub(super) fn take_refused(&mut self) -> Option<Outcome> {
        self.refused.take()
    }

    /// Nothing will come of them. True if there were puts whose callers have gone on.
    pub(super) fn abandon(&mut self, outcome: &Outcome) -> bool {
        (self.posted, self.lent) = (0, 0);
        (self.orphaned, self.untold) = (false, false);
        self.stalled_since_ms = None;
        let mut lost = false;
        for transfer in self.begun.drain(..) {
            match transfer.what {
                What::Lent { held, .. } => held.fail(outcome.clone()),
                What::Copied(_) => lost = true,
                What::Rmw(begun) => begun.part.failed(outcome.clone()),
            }
        }
        lost
    }
}
