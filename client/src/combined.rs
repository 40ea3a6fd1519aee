//! Additions to a word of another node that several ranks of this one want at once: one request for many (`longarm_shm::combining`).
//!
//! What is combined: additions whose callers wait, in jobs that the first death ends ([`Combining`](crate::local::combining::Combining)), by ranks that have
//! nothing under way to the word's node. The request of another rank could overtake that, and those who wait for this rank's would wait for it too.

use longarm_proto::{Rmw, RmwOp, RmwWidth, WindowRef};
use longarm_shm::combining::{self, Entered, Permit, Told, Waiting, WordName};
use longarm_shm::sync::Ordering;
use longarm_shm::{CounterKind, NodeCombining};

use crate::client::Client;
use crate::error::{LostHow, Operation, RmwError, TransferError};
use crate::path::Aim;
use crate::progress::pace::Drive;
use crate::progress::waits::Awaited;

/// What all ranks of this node call the word.
fn name(aim: Aim<'_>, offset: u64, rmw: Rmw) -> WordName {
    let WindowRef { rank, window, generation, key } = aim.window.target(aim.rank);
    // The offset is aligned, and leaves a bit for the width.
    let offset_and_width = offset | u64::from(rmw.width == RmwWidth::W32);
    WordName([window.0, key.0, offset_and_width, u64::from(rank.0) << 32 | u64::from(generation.0)])
}

/// The bits of a word.
fn mask(rmw: Rmw) -> u64 {
    match rmw.width {
        RmwWidth::W32 => u32::MAX.into(),
        RmwWidth::W64 => u64::MAX,
    }
}

impl Client {
    /// Does an update that was checked, of a word of another node, with those of other ranks if it can. `None`: nothing was done, and it
    /// goes alone.
    pub(crate) fn rmw_combined(&self, aim: Aim<'_>, offset: u64, rmw: Rmw) -> Option<Result<u64, RmwError>> {
        let combining = self.local.combining.as_ref()?;
        if rmw.op != RmwOp::FetchAdd || !self.may_combine(aim) {
            return None;
        }
        // Kept until the update is done: a waker that runs meanwhile, and updates another word, must not wait for who may wait for this one.
        let seat = combining.take_seat()?;
        let shown = (self.local.layout.local_of(self.local.layout.me()), rmw.operand);
        let result = match combining::enter(&combining.board, name(aim, offset, rmw), combining.permits, shown) {
            Entered::Permit(permit) => Some(self.rmw_for_all(permit, aim, offset, rmw)),
            Entered::Waits(waiting) => match self.wait_behind_others(waiting, aim) {
                Ok(told) => Some(self.rmw_as_told(told, aim, offset, rmw)),
                // Somebody may look at the seat at any time: it is not given back.
                Err(lost) => return Some(Err(lost)),
            },
            Entered::Alone => None,
        };
        seat.give_back();
        result
    }

    /// Whether others may wait for a request of this rank, and it for theirs: its own would go out at once, and there is nothing that theirs
    /// could overtake.
    fn may_combine(&self, aim: Aim<'_>) -> bool {
        let endpoint = self.progress.endpoint_if_open(self.local.layout.node_of(aim.rank));
        !self.local.failures.any() && endpoint.is_some_and(|endpoint| endpoint.is_up() && endpoint.is_at_rest())
    }

    /// Sends one request for this update and those that go with it, and tells their ranks.
    fn rmw_for_all(
        &self,
        mut permit: Permit<'_, NodeCombining>,
        aim: Aim<'_>,
        offset: u64,
        rmw: Rmw,
    ) -> Result<u64, RmwError> {
        let total = Rmw { operand: permit.total(rmw.operand) & mask(rmw), ..rmw };
        let asked = self.ask_rmw(aim, offset, total).inspect_err(|_| permit.refused())?;
        let result = self.await_rmw(asked, aim.rank);
        match &result {
            Ok(old) => permit.answer(*old, rmw.operand),
            // Nothing was done. Each asks for itself, and hears what is wrong.
            Err(RmwError::Transfer(TransferError::Refused { .. })) => permit.refused(),
            // The permit tells them that nobody knows.
            Err(_) => {}
        }
        result
    }

    /// Waits until another rank has done this update, or has left it to this one.
    ///
    /// # Errors
    /// After a death, and when this rank leaves the job. The update may have been done, or may be done by then.
    fn wait_behind_others<'a>(
        &self,
        mut waiting: Waiting<'a, NodeCombining>,
        aim: Aim<'_>,
    ) -> Result<Told<'a, NodeCombining>, RmwError> {
        let told = self.wait_for(Drive::Neighbour, Awaited::rank(Operation::Rmw, aim.rank), || {
            let told = waiting.look();
            let is_over = told.is_some() || self.local.failures.any() || self.progress.closed.load(Ordering::Acquire);
            is_over.then_some(told)
        });
        // A death is the reason, if there is one.
        told.ok_or_else(|| self.local.lost_rank(Operation::Rmw, aim.rank, LostHow::Finalized).into())
    }

    fn rmw_as_told(&self, told: Told<'_, NodeCombining>, aim: Aim<'_>, offset: u64, rmw: Rmw) -> Result<u64, RmwError> {
        match told {
            Told::Combines(permit) => self.rmw_for_all(permit, aim, offset, rmw),
            Told::GoesAlone => self.rmw_alone(aim, offset, rmw),
            Told::Answer(old) => {
                self.local.count(aim.rank, CounterKind::Rmw, rmw.width.bytes() as u64);
                Ok(old & mask(rmw))
            }
            Told::Unknown => {
                // If the word's node is gone, this rank hears how when it asks for the word itself.
                let asked = self.rmw_alone(aim, offset, Rmw { op: RmwOp::Fetch, operand: 0, ..rmw });
                if let Err(lost @ RmwError::Transfer(TransferError::Lost(_))) = asked {
                    return Err(lost);
                }
                let why = "that of another rank of this node, whose request carried this update too; the update may have been done";
                Err(self.local.lost_rank(Operation::Rmw, aim.rank, LostHow::Failed(why.into())).into())
            }
        }
    }
}

#[cfg(test)]
#[path = "combined_tests.rs"]
mod tests;
