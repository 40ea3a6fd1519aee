//! Read-modify-writes of words that RDMA devices alone touch.
//!
//! A device is atomic with itself, and not with the processors of its machine. So each word is updated by one device, that of the
//! node where it lies, whoever asks: a rank of that node, even the word's owner, asks by a connection to its own node's server.

use longarm_netmod::{DEVICE_WORD_BYTES, DeviceRmw};
use longarm_proto::{Rank, Request, Run};
use longarm_shm::CounterKind;
use longarm_shm::sync::{Ordering, fence};

use crate::client::Client;
use crate::completion::{Completion, Outcome, RmwFate};
use crate::endpoint::{Endpoint, Payload, Sending, Token};
use crate::error::{DeviceRmwError, Lost, Operation, TransferError};
use crate::path::Aim;
use crate::progress::pace::Drive;
use crate::progress::waits::Awaited;
use crate::window::ClientWindow;

const OPERATION: Operation = Operation::DeviceRmw;

impl Client {
    /// One read-modify-write of the `index`-th word of 8 bytes of a rank's part, by the device of that rank's node; gives the old
    /// value. Blocks until it is remotely complete, behind all that this rank has issued towards that node. Only for windows that nothing
    /// else ever touches. `IBV_WR_ATOMIC_FETCH_AND_ADD`, `IBV_WR_ATOMIC_CMP_AND_SWP`; there is no C call.
    ///
    /// # Errors
    /// [`DeviceRmwError`], which says whether it was done.
    pub fn device_rmw(
        &self,
        window: &ClientWindow,
        rank: Rank,
        index: u64,
        rmw: DeviceRmw,
    ) -> Result<u64, DeviceRmwError> {
        let offset = index.saturating_mul(DEVICE_WORD_BYTES);
        let run = Run { offset, bytes: DEVICE_WORD_BYTES };
        Aim { operation: OPERATION, window, rank }.check(run)?;
        self.local.alive(OPERATION, rank)?;
        let endpoint = self.endpoint(OPERATION, self.local.layout.node_of(rank))?;
        self.await_served(endpoint, rank)?;
        // SeqCst fence: what this rank has stored on this node is visible before the device does anything, as before a quiet ends.
        fence(Ordering::SeqCst);
        let (completion, part) = Completion::begin();
        let lost = |how| self.progress.lost(OPERATION, endpoint, how);
        let driven = endpoint.device_rmw(&window.target(rank), offset, rmw, part).map_err(lost)?;
        self.progress.note_driven(endpoint, Some(driven));
        self.wait_complete(Drive::Endpoint(endpoint), Awaited::rank(OPERATION, rank), &completion);
        if let Some(outcome) = completion.failure() {
            return Err(self.explain_rmw(outcome, rank));
        }
        self.local.count(rank, CounterKind::Rmw, DEVICE_WORD_BYTES);
        Ok(completion.value())
    }

    /// What the server has still to do is not overtaken: it says when it has. What was refused of it is for quiet to say.
    fn await_served(&self, endpoint: &Endpoint, rank: Rank) -> Result<(), TransferError> {
        if !endpoint.has_served() {
            return Ok(());
        }
        let (completion, part) = Completion::begin();
        let token = Token::Part(part);
        let issued: Result<(), Lost> =
            self.issue(OPERATION, endpoint, &Request::Quiet, Some(token), Payload::None, Sending::Now);
        issued?;
        self.wait_complete(Drive::Endpoint(endpoint), Awaited::rank(OPERATION, rank), &completion);
        self.local.failure(&completion, OPERATION, rank)
    }

    fn explain_rmw(&self, outcome: &Outcome, rank: Rank) -> DeviceRmwError {
        let (operation, node) = (OPERATION, self.local.layout.node_of(rank));
        match outcome {
            Outcome::NoOldValue(RmwFate::NotBegun) => DeviceRmwError::NotReached { operation, rank, node },
            Outcome::NoOldValue(RmwFate::Done) => DeviceRmwError::ValueLost { operation, rank, node },
            Outcome::NoOldValue(RmwFate::Unknown) => DeviceRmwError::Unknown { operation, rank, node },
            outcome => self.local.explain(outcome, OPERATION, rank).into(),
        }
    }
}
