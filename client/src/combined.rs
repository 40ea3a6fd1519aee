//! Additions to a word of another node that several ranks of this one want at once: one request for many (`longarm_shm::combining`).
//!
//! What is combined: additions whose callers wait, in jobs that the first death ends ([`Combining`](crate::local::combining::Combining)). A rank that has
//! something under way to that node does not wait for another one's request, which could overtake it.

use longarm_proto::{Rmw, RmwOp, RmwWidth, WindowRef};
use longarm_shm::combining::{self, Entered, Permit, Told, Waiting, WordName};
use longarm_shm::{CounterKind, NodeCombining};

use crate::client::Client;
use crate::endpoint::Endpoint;
use crate::error::{LostHow, Operation, RmwError, TransferError};
use crate::local::combining::OwnSeat;
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

/// Nothing under way, nothing unconfirmed, and the connection works.
fn has_nothing_under_way(endpoint: &Endpoint) -> bool {
    !endpoint.is_unconfirmed() && !endpoint.is_busy() && !endpoint.has_transfers() && endpoint.broken().is_none()
}

impl Client {
    /// Does an update that was checked, of a word of another node, with those of other ranks if it can. `None`: nothing was done, and it
    /// goes alone.
    pub(crate) fn rmw_combined(&self, aim: Aim<'_>, offset: u64, rmw: Rmw) -> Option<Result<u64, RmwError>> {
        let combining = self.local.combining.as_ref()?;
        if rmw.op != RmwOp::FetchAdd {
            return None;
        }
        let seat = self.may_wait(aim).then(|| combining.take_seat()).flatten();
        let me = self.local.layout.local_of(self.local.layout.me());
        let shown = seat.as_ref().map(|_| (me, rmw.operand));
        match combining::enter(&combining.board, name(aim, offset, rmw), combining.permits, shown) {
            Entered::Waits(waiting) => {
                let seat = seat.expect("who has none does not wait");
                Some(self.rmw_behind_others((waiting, seat), aim, offset, rmw))
            }
            entered => {
                seat.into_iter().for_each(OwnSeat::give_back);
                let Entered::Permit(permit) = entered else { return None };
                Some(self.rmw_for_all(permit, aim, offset, rmw))
            }
        }
    }

    /// Whether another rank's request may do what this one wants: nothing of its own that it could overtake is under way.
    fn may_wait(&self, aim: Aim<'_>) -> bool {
        let endpoint = self.progress.endpoint_if_open(self.local.layout.node_of(aim.rank));
        !self.local.failures.any() && endpoint.is_some_and(has_nothing_under_way)
    }

    /// Sends one request for this update and those that go with it, and tells their ranks.
    fn rmw_for_all(
        &self,
        mut permit: Permit<'_, NodeCombining>,
        aim: Aim<'_>,
        offset: u64,
        rmw: Rmw,
    ) -> Result<u64, RmwError> {
        let total = permit.total(rmw.operand) & mask(rmw);
        let result = self.rmw_alone(aim, offset, Rmw { operand: total, ..rmw });
        match &result {
            Ok(old) => permit.answer(*old, rmw.operand),
            // Nothing was done. Each asks for itself, and hears what is wrong.
            Err(RmwError::Transfer(TransferError::Refused { .. })) => permit.refused(),
            Err(_) => {}
        }
        result
    }

    /// Waits until another rank has done this update, or has left it to this one.
    fn rmw_behind_others(
        &self,
        (mut waiting, seat): (Waiting<'_, NodeCombining>, OwnSeat<'_>),
        aim: Aim<'_>,
        offset: u64,
        rmw: Rmw,
    ) -> Result<u64, RmwError> {
        let awaited = Awaited::rank(Operation::Rmw, aim.rank);
        let told = self.wait_for(Drive::Neighbour, awaited, || {
            let told = waiting.look();
            (told.is_some() || self.local.failures.any()).then_some(told)
        });
        let Some(told) = told else {
            // The first death is the reason. The seat is not used again: nobody waits after a death.
            return Err(self.local.lost_rank(Operation::Rmw, aim.rank, LostHow::Closed).into());
        };
        seat.give_back();
        match told {
            Told::Combines(permit) => self.rmw_for_all(permit, aim, offset, rmw),
            Told::GoesAlone => self.rmw_alone(aim, offset, rmw),
            Told::Answer(old) => {
                self.local.count(aim.rank, CounterKind::Rmw, rmw.width.bytes() as u64);
                Ok(old & mask(rmw))
            }
            Told::Unknown => {
                let why = "that of another rank of this node, whose request carried this update too; the update may have been done";
                Err(self.local.lost_rank(Operation::Rmw, aim.rank, LostHow::Failed(why.into())).into())
            }
        }
    }
}

#[cfg(test)]
#[path = "combined_tests.rs"]
mod tests;
