//! Read-modify-write of one integer.

use std::sync::Arc;

use longarm_proto::{Rank, Request, Rmw, RmwWord};
use longarm_shm::{AmoError, CounterKind};

use crate::client::Client;
use crate::completion::{Completion, CompletionPart};
use crate::endpoint::{Endpoint, Payload, Sending, Token, Updates};
use crate::error::{Operation, RmwError};
use crate::path::{Aim, Location, Then};
use crate::progress::assist::Expecting;
use crate::window::ClientWindow;

/// The completion of a request whose answer is waited for, and the wish that this process's server wakes nobody meanwhile.
pub(crate) type SentRmw<'a> = (Arc<Completion>, Option<Expecting<'a>>);

impl Client {
    /// Does one read-modify-write on an aligned word of a rank's part and gives the old value, zero-extended.
    /// Atomic with respect to every other one on the word, and to integer accumulates. `ARMCI_Rmw`,
    /// `shmem_atomic_*`.
    #[inline]
    pub fn rmw(&self, window: &ClientWindow, rank: Rank, offset: u64, rmw: Rmw) -> Result<u64, RmwError> {
        if let Some(part) = window.at_once(&self.local.failures, rank)
            && let Ok(old) = part.rmw(offset, rmw)
        {
            self.local.ring_window(rank);
            self.local.count(rank, CounterKind::Rmw, rmw.width.bytes() as u64);
            return Ok(old);
        }
        self.rmw_long(window, rank, offset, rmw)
    }

    /// The way through every check.
    #[inline(never)]
    fn rmw_long(&self, window: &ClientWindow, rank: Rank, offset: u64, rmw: Rmw) -> Result<u64, RmwError> {
        let aim = Aim { operation: Operation::Rmw, window, rank };
        aim.check_word(offset, rmw.width.bytes() as u64)?;
        let combined = if window.is_here(rank) { None } else { self.rmw_combined(aim, offset, rmw) };
        combined.unwrap_or_else(|| self.rmw_alone(aim, offset, rmw))
    }

    /// By a request of its own, if it is not done here.
    pub(crate) fn rmw_alone(&self, aim: Aim<'_>, offset: u64, rmw: Rmw) -> Result<u64, RmwError> {
        let asked = self.ask_rmw(aim, offset, rmw)?;
        self.await_rmw(asked, aim.rank)
    }

    /// Sends the request of one whose caller waits for it, or does it here. After an error nothing was sent.
    pub(crate) fn ask_rmw(&self, aim: Aim<'_>, offset: u64, rmw: Rmw) -> Result<SentRmw<'_>, RmwError> {
        let (completion, part) = Completion::begin();
        let expecting = self.progress.expect_answer();
        self.begin_rmw(aim.window, aim.rank, offset, rmw, (&part, Sending::Now))?;
        Ok((completion, expecting))
    }

    /// Waits for its old value.
    pub(crate) fn await_rmw(&self, (completion, expecting): SentRmw<'_>, rank: Rank) -> Result<u64, RmwError> {
        self.wait_toward((Operation::Rmw, rank), &completion, expecting);
        self.local.failure(&completion, Operation::Rmw, rank)?;
        Ok(completion.value())
    }

    /// Starts a read-modify-write whose old value comes with the completion, as one more part of it.
    pub fn start_rmw(
        &self,
        window: &ClientWindow,
        rank: Rank,
        offset: u64,
        rmw: Rmw,
        part: &CompletionPart,
    ) -> Result<(), RmwError> {
        if self.begin_rmw(window, rank, offset, rmw, (part, Sending::Soon))? {
            self.progress.hand_to_helper();
        }
        Ok(())
    }

    /// Does a direct one, or queues a served one. Its value is another part. Gives whether the helper has to be told of it, if nobody waits.
    fn begin_rmw(
        &self,
        window: &ClientWindow,
        rank: Rank,
        offset: u64,
        rmw: Rmw,
        (part, sending): (&CompletionPart, Sending),
    ) -> Result<bool, RmwError> {
        let word_bytes = rmw.width.bytes() as u64;
        let aim = Aim { operation: Operation::Rmw, window, rank };
        aim.check_word(offset, word_bytes)?;
        let then = if sending == Sending::Soon { Then::GoesOn } else { Then::Waits };
        let needs_helper = match self.place_for(aim, then)? {
            Location::Here(memory) => {
                let old = memory.rmw(offset, rmw).unwrap_or_else(|error: AmoError| panic!("checked before: {error}"));
                self.local.ring_window(rank);
                part.another().done_with(old);
                false
            }
            Location::There(endpoint) => match self.coalesce_rmw(endpoint, aim, (offset, rmw, sending), part.another())
            {
                Ok(needs_helper) => needs_helper,
                Err(part) => {
                    let request = Request::Rmw { target: window.target(rank), offset, rmw };
                    let token = Token::Part(part);
                    self.issue(Operation::Rmw, endpoint, &request, Some(token), Payload::None, sending)?;
                    // Those that wait for company have been handed to it with the first of them.
                    !endpoint.is_corked()
                }
            },
        };
        self.local.count(rank, CounterKind::Rmw, word_bytes);
        Ok(needs_helper)
    }

    /// As a part of one request, if nobody waits for it. Gives whether the helper has to be told of it. The part comes back: the update is
    /// of the kind that goes alone, nothing else is under way with which it could go, or there is no room.
    fn coalesce_rmw(
        &self,
        endpoint: &Endpoint,
        aim: Aim<'_>,
        (offset, rmw, sending): (u64, Rmw, Sending),
        part: CompletionPart,
    ) -> Result<bool, CompletionPart> {
        // A write and a get in one: it waits where neither has to go alone.
        if sending != Sending::Soon || !endpoint.coalesces_writes() || !endpoint.coalesces_gets() {
            return Err(part);
        }
        let Some(updates) = Updates::of(rmw) else { return Err(part) };
        let word = RmwWord { offset, operand: rmw.operand };
        let driven = endpoint.coalesce_rmw(&aim.window.target(aim.rank), updates, word, part)?;
        self.progress.note_driven(endpoint, Some(driven));
        Ok(driven.became_corked || driven.progress)
    }
}

#[cfg(test)]
#[path = "rmw_tests.rs"]
mod tests;
