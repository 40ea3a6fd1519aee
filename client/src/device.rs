//! Read-modify-writes of words that RDMA devices alone touch.
//!
//! A device is atomic with itself, and not with the processors of its machine. So each word is updated by one device, that of the
//! node where it lies, whoever asks: a rank of that node, even the word's owner, asks by a connection to its own node's server.

use std::sync::Arc;

use longarm_netmod::{DEVICE_WORD_BYTES, DeviceRmw};
use longarm_proto::{Rank, Request, Run};
use longarm_shm::CounterKind;
use longarm_shm::sync::{Ordering, fence};

use crate::completion::{Completion, Outcome, Unheard};
use crate::endpoint::{Endpoint, Payload, Sending, Token};
use crate::error::{DeviceRmwError, Lost, Operation, TransferError};
use crate::route::Client;
use crate::wait::Drive;
use crate::waits::Awaited;
use crate::window::ClientWindow;

const OPERATION: Operation = Operation::DeviceRmw;

impl Client {
    /// Has the device of a rank's node do one read-modify-write on a word of its part, and gives the old value. Behind all that
    /// this rank has issued towards that node. Nothing else may ever touch the window.
    pub fn device_rmw(
        self: &Arc<Self>,
        window: &ClientWindow,
        rank: Rank,
        index: u64,
        rmw: DeviceRmw,
    ) -> Result<u64, DeviceRmwError> {
        let offset = index.saturating_mul(DEVICE_WORD_BYTES);
        let run = Run { offset, bytes: DEVICE_WORD_BYTES };
        window.check(OPERATION, rank, offset, window.end_of(OPERATION, rank, run)?)?;
        self.alive(OPERATION, rank)?;
        let endpoint = self.endpoint(OPERATION, self.layout.node_of(rank))?;
        self.await_served(endpoint, rank)?;
        // SeqCst fence: what this rank has stored on this node is visible before the device does anything, as before a quiet ends.
        fence(Ordering::SeqCst);
        let completion = Arc::new(Completion::new());
        let lost = |how| self.lost(OPERATION, endpoint, how);
        let driven = endpoint.update(&window.target(rank), offset, rmw, &completion).map_err(lost)?;
        self.note_driven(endpoint, Some(driven));
        self.wait_complete(Drive::Endpoint(endpoint), Awaited::rank(OPERATION, rank), &completion);
        if let Some(outcome) = completion.failure() {
            return Err(self.explain_unheard(outcome, rank));
        }
        self.count(rank, CounterKind::Rmw, DEVICE_WORD_BYTES);
        Ok(completion.value())
    }

    /// What the server has still to do is not overtaken: it says when it has. What was refused of it is for quiet to say.
    fn await_served(self: &Arc<Self>, endpoint: &Endpoint, rank: Rank) -> Result<(), TransferError> {
        if !endpoint.has_served() {
            return Ok(());
        }
        let completion = Arc::new(Completion::new());
        let token = Token::Part(Arc::clone(&completion));
        let issued: Result<(), Lost> =
            self.issue(OPERATION, endpoint, &Request::Quiet, Some(token), Payload::None, Sending::Now);
        issued?;
        self.wait_complete(Drive::Endpoint(endpoint), Awaited::rank(OPERATION, rank), &completion);
        self.failure(&completion, OPERATION, rank)
    }

    fn explain_unheard(&self, outcome: &Outcome, rank: Rank) -> DeviceRmwError {
        let (operation, node) = (OPERATION, self.layout.node_of(rank));
        match outcome {
            Outcome::Unheard(Unheard::NotReached) => DeviceRmwError::NotReached { operation, rank, node },
            Outcome::Unheard(Unheard::Done) => DeviceRmwError::ValueLost { operation, rank, node },
            Outcome::Unheard(Unheard::Unknown) => DeviceRmwError::Unknown { operation, rank, node },
            outcome => self.explain(outcome, OPERATION, rank).into(),
        }
    }
}
