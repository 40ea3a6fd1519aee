//! How an operation reaches its target, decided once: the one place that looks for what is wrong before anything moves, asks
//! whether the target is on the same node, and opens the connection if it is not.
//!
//! ```text
//!                     ┌─ Mapped     loads, stores and CPU atomics: the memory is mapped here
//!   aim and bytes ────┼─ Device     the network's device, with no server involved
//!   of an operation   ├─ Coalesced  a part of one request, with others that nobody waits for either
//!                     └─ Framed     requests of its own to the node's server
//! ```
//!
//! What is cheapest comes first. A server can do everything: where a device has no room for it just now, or another thread has sent
//! away what it was to go with, the operation is framed after all.

use std::sync::Arc;

use longarm_proto::{NodeId, Rank, Run, ShapeError};
use longarm_shm::Window;
use longarm_shm::sync::Ordering;

use crate::client::Client;
use crate::endpoint::{COALESCED_RUN_BYTES_MAX, Endpoint};
use crate::error::{Lost, LostHow, Operation, RmwError, TransferError};
use crate::progress::pace::Drive;
use crate::progress::waits::Awaited;
use crate::shapes::{RunRequests, Shapes};
use crate::window::ClientWindow;

/// What an operation is aimed at.
#[derive(Clone, Copy)]
pub(crate) struct Aim<'a> {
    pub(crate) operation: Operation,
    pub(crate) window: &'a ClientWindow,
    pub(crate) rank: Rank,
}

/// Where the part of a rank is.
pub(crate) enum Location<'a> {
    /// It is mapped here.
    Here(Window<'a>),
    /// Behind this connection.
    There(&'a Endpoint),
}

/// How a transfer reaches its target.
pub(crate) enum Path<'a> {
    /// There is nothing to move.
    Nothing,
    /// See the module.
    Mapped(Window<'a>),
    /// By these requests.
    Device(&'a Endpoint, RunRequests),
    Coalesced(&'a Endpoint),
    Framed(&'a Endpoint),
}

/// What the caller of a transfer does next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// It waits until its own memory may be used again, or for the bytes.
    Waits,
    /// Something else.
    GoesOn,
}

/// Which transfers there are, as far as their paths differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moves {
    Put,
    /// A put with a signal behind it, also where there are no bytes.
    Signal,
    /// Of elements of so many bytes.
    Accumulate(usize),
    Get,
}

/// A transfer, as far as its path depends on it.
pub(crate) struct Moving<'a> {
    pub(crate) moves: Moves,
    pub(crate) shapes: &'a Shapes,
    /// Length of the origin's buffer.
    pub(crate) origin_bytes: u64,
    pub(crate) then: Then,
}

impl Aim<'_> {
    /// An error unless all bytes of a run are inside the part. Nobody is asked.
    pub(crate) fn check(self, run: Run) -> Result<(), TransferError> {
        let end = self.window.end_of(self.operation, self.rank, run)?;
        self.window.check(self.operation, self.rank, run.offset, end)
    }

    /// The same for a word, which has to be aligned to its own size.
    pub(crate) fn check_word(self, offset: u64, word_bytes: u64) -> Result<(), RmwError> {
        self.check(Run { offset, bytes: word_bytes })?;
        if !offset.is_multiple_of(word_bytes) {
            let (rank, window) = (self.rank, self.window.identity().window);
            return Err(RmwError::Misaligned { rank, window, offset, word_bytes });
        }
        Ok(())
    }
}

impl Moving<'_> {
    /// Everything that can be wrong with both sides; gives the bytes.
    #[inline]
    fn check(&self, aim: Aim<'_>) -> Result<u64, TransferError> {
        let Aim { operation, window, rank } = aim;
        let sides = [&self.shapes.target, &self.shapes.origin];
        if let Moves::Accumulate(element_bytes) = self.moves
            && let Some(run_bytes) = sides.into_iter().find_map(|shape| shape.broken_run_bytes(element_bytes))
        {
            let reason = ShapeError::PartOfAnElement { run_bytes, element_bytes: element_bytes as u64 };
            return Err(TransferError::BadShape { operation, rank, reason });
        }
        let (local_bytes, remote_bytes) = (self.shapes.origin.bytes(), self.shapes.target.bytes());
        if local_bytes != remote_bytes {
            return Err(TransferError::LengthMismatch { operation, rank, local_bytes, remote_bytes });
        }
        if self.shapes.origin.end() > self.origin_bytes {
            let local_bytes = self.origin_bytes;
            return Err(TransferError::LengthMismatch { operation, rank, local_bytes, remote_bytes });
        }
        window.check(operation, rank, self.shapes.first_byte(), self.shapes.target.end())?;
        Ok(remote_bytes)
    }

    /// The path to another node.
    #[inline(never)]
    fn over<'a>(&self, endpoint: &'a Endpoint, aim: Aim<'_>) -> Path<'a> {
        let is_small = self.shapes.run().is_some_and(|(_, there)| there.bytes <= COALESCED_RUN_BYTES_MAX);
        let coalesces = match self.moves {
            Moves::Put | Moves::Accumulate(_) => endpoint.coalesces_writes(),
            Moves::Get => endpoint.coalesces_gets(),
            Moves::Signal => false,
        };
        if is_small && coalesces && self.then == Then::GoesOn {
            return Path::Coalesced(endpoint);
        }
        let may_be_device = matches!(self.moves, Moves::Put | Moves::Get) && aim.window.may_be_pinned();
        if may_be_device
            && endpoint.reaches_memory()
            && let Some(requests) = self.shapes.run_requests()
        {
            return Path::Device(endpoint, requests);
        }
        Path::Framed(endpoint)
    }
}

impl Client {
    /// How a transfer reaches its target, if nothing is wrong with it, and how many bytes it moves.
    #[inline]
    pub(crate) fn path<'a>(&'a self, aim: Aim<'a>, moving: &Moving<'_>) -> Result<(Path<'a>, u64), TransferError> {
        let bytes = moving.check(aim)?;
        if bytes == 0 && moving.moves != Moves::Signal {
            self.local.alive(aim.operation, aim.rank)?;
            return Ok((Path::Nothing, 0));
        }
        let path = match self.place_for(aim, moving.then)? {
            Location::Here(part) => Path::Mapped(part),
            Location::There(endpoint) => moving.over(endpoint, aim),
        };
        Ok((path, bytes))
    }

    /// The connection over which a run of a living rank of another node is reached, if there is one and nothing is wrong with the
    /// run. `None`: [`Client::path`] opens it, or finds out what is wrong. Inlined always, as all that coalesces a small put: with calls
    /// it takes 425 instructions in place of 399.
    #[inline(always)]
    pub(crate) fn open_path(&self, aim: Aim<'_>, run: Run) -> Option<&Endpoint> {
        let Aim { operation, window, rank } = aim;
        let end = run.offset.checked_add(run.bytes)?;
        if run.bytes == 0 || self.local.failures.is_dead(rank) || window.is_here(rank) {
            return None;
        }
        window.check(operation, rank, run.offset, end).ok()?;
        self.progress.endpoint_if_open(self.local.layout.node_of(rank))
    }

    /// Where the part of a living rank is. The caller has checked that the rank has one.
    #[inline]
    pub(crate) fn place<'a>(&'a self, aim: Aim<'a>) -> Result<Location<'a>, TransferError> {
        self.place_for(aim, Then::Waits)
    }

    /// As [`Client::place`], by what the caller does next.
    #[inline]
    pub(crate) fn place_for<'a>(
        &'a self,
        Aim { operation, window, rank }: Aim<'a>,
        then: Then,
    ) -> Result<Location<'a>, TransferError> {
        if self.local.failures.is_dead(rank) {
            self.local.alive(operation, rank)?;
        }
        match window.part_here(operation, rank)? {
            Some(part) => Ok(Location::Here(part)),
            None => {
                let node = self.local.layout.node_of(rank);
                // What is written, or started, waits for the connection without its caller, who goes on, perhaps to another node: one after the
                // other hundreds of connections take seconds. Not where a device may reach the memory there, which shows when there is one.
                let goes_on = then == Then::GoesOn || matches!(operation, Operation::Put | Operation::Accumulate);
                let is_awaited = !goes_on || (window.may_be_pinned() && self.progress.dial.may_reach_memory());
                Ok(Location::There(self.endpoint_opened(operation, node, is_awaited)?))
            }
        }
    }

    /// The connection to a node, opened now if need be. Who asks first hears at once if nobody answers.
    pub(crate) fn endpoint(&self, operation: Operation, node: NodeId) -> Result<&Endpoint, Lost> {
        self.endpoint_opened(operation, node, true)
    }

    /// As [`Client::endpoint`]. `is_awaited`: if it is new, it is there on return.
    fn endpoint_opened(&self, operation: Operation, node: NodeId, is_awaited: bool) -> Result<&Endpoint, Lost> {
        let endpoint: &Endpoint = match self.progress.endpoints.of(node) {
            Some(endpoint) => endpoint,
            None => self.open(operation, node, is_awaited)?,
        };
        match endpoint.broken() {
            None => Ok(endpoint),
            Some(how) => Err(self.progress.lost(operation, endpoint, how.clone())),
        }
    }

    #[cold]
    fn open(&self, operation: Operation, node: NodeId, is_awaited: bool) -> Result<&Endpoint, Lost> {
        let host = self.local.layout.server_host(node);
        let endpoint: &Endpoint = {
            let _nobody_closes = self.progress.dialing.lock();
            if self.progress.closed.load(Ordering::Acquire) {
                return Err(Lost { rank: host, node, operation, how: LostHow::Finalized });
            }
            if let Some(how) = self.progress.cut_off.get() {
                return Err(self.local.lost_host(operation, host, how.clone()));
            }
            self.progress.endpoints.open(node, || {
                let (dial, time) = (Arc::clone(&self.progress.dial), Arc::clone(&self.progress.time));
                let occupied = Arc::clone(&self.progress.occupied);
                Endpoint::new(node, host, dial, time, self.progress.endpoint_options, occupied)
            })
        };
        // A death that was noted before the lock was taken has given up all but this one, which would be called for as long as
        // connecting may take.
        if let Some(death) = self.local.failures.of(host) {
            endpoint.give_up(LostHow::Died(death.how));
        }
        if is_awaited {
            // Not `is_up`: the connection may break in the very moment it is made, and nobody makes it anew while nothing waits to be sent.
            self.wait_for(Drive::Endpoint(endpoint), Awaited::rank(operation, host), || {
                (endpoint.is_known() || endpoint.broken().is_some()).then_some(())
            });
        } else {
            // The call begins, and what is wrong with it at once is told at once.
            self.progress.drive_endpoint(endpoint);
        }
        Ok(endpoint)
    }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
