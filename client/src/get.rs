//! Get of any shape, blocking and not.

use longarm_memory::RegionMut;
use longarm_proto::{Cursor, Rank, Request, Run, Shape};
use longarm_shm::{CounterKind, Window};

use crate::client::Client;
use crate::endpoint::inline_poll::PolledGet;
use crate::endpoint::{Endpoint, Payload, Sending, Token};
use crate::error::{Operation, TransferError};
use crate::origin_bytes::{LenderMut, OriginBytesMut, lend};
use crate::progress::pace::Drive;
use crate::progress::waits::Awaited;
use crate::put::INLINE_POLL_BYTES_MAX;
use crate::route::Route;
use crate::shapes::{Shapes, Walk};
use crate::window::ClientWindow;

impl Client {
    /// Reads bytes at an offset of a rank's part. On return they are here; they show all earlier puts and
    /// accumulates of this rank to that rank. `ARMCI_Get`, `shmem_getmem`.
    #[inline]
    pub fn get(
        &self,
        window: &ClientWindow,
        rank: Rank,
        offset: u64,
        target: OriginBytesMut<'_>,
    ) -> Result<(), TransferError> {
        if self.get_at_once(window, rank, offset, &target) {
            return Ok(());
        }
        self.get_run(window, rank, offset, target)
    }

    /// One run the long way, never inlined as that of a put.
    #[inline(never)]
    fn get_run(
        &self,
        window: &ClientWindow,
        rank: Rank,
        offset: u64,
        target: OriginBytesMut<'_>,
    ) -> Result<(), TransferError> {
        let run = Run { offset, bytes: target.len() as u64 };
        let unlent = match self.get_polling(window, rank, run, target.region()) {
            PolledGet::NotBegun => return self.get_shaped(window, rank, Shapes::contiguous(run), target),
            PolledGet::Done => {
                self.local.count(rank, CounterKind::Get, run.bytes);
                return Ok(());
            }
            PolledGet::UnderWay(unlent) => unlent,
        };
        let completion = lend(|lent| {
            unlent.lend(lent.target(target).hold(), Run { offset: 0, bytes: run.bytes });
            let completion = lent.issued();
            self.wait_toward((Operation::Get, rank), &completion, None);
            completion
        });
        self.local.count(rank, CounterKind::Get, run.bytes);
        self.local.failure(&completion, Operation::Get, rank)
    }

    /// A few bytes of another node's memory, which the network may bring before it is worth to do anything else meanwhile.
    fn get_polling(&self, window: &ClientWindow, rank: Rank, run: Run, target: RegionMut<'_>) -> PolledGet<'_> {
        let few = (1..=INLINE_POLL_BYTES_MAX).contains(&run.bytes);
        if !few || !self.reaches_unseen(Operation::Get, window, rank, run) {
            return PolledGet::NotBegun;
        }
        let Some(endpoint) = self.progress.endpoint_if_open(self.local.layout.node_of(rank)) else {
            return PolledGet::NotBegun;
        };
        if !endpoint.reaches_memory() {
            return PolledGet::NotBegun;
        }
        endpoint.get_polling(&window.target(rank), run, target, self.inline_poll_looks())
    }

    /// Reads bytes of a part that is mapped here, as [`Client::put_at_once`] writes them.
    #[inline]
    pub fn get_at_once(&self, window: &ClientWindow, rank: Rank, offset: u64, target: &OriginBytesMut<'_>) -> bool {
        let bytes = target.len() as u64;
        let Some(source) = window.direct(&self.local.failures, rank, offset, bytes) else { return false };
        target.region().copy_from(source.as_region());
        self.local.count(rank, CounterKind::Get, bytes);
        true
    }

    /// Reads one shape of a rank's part into another shape of the origin's buffer, in their packed order.
    /// Completion as [`Client::get`]. `ARMCI_GetS`, `ARMCI_GetV`.
    pub fn get_shaped(
        &self,
        window: &ClientWindow,
        rank: Rank,
        shapes: Shapes,
        target: OriginBytesMut<'_>,
    ) -> Result<(), TransferError> {
        if window.is_here(rank) {
            return self.read_here((window, rank), &shapes, target.region());
        }
        let expecting = self.progress.expect_answer();
        let (started, completion) = lend(|lent| {
            let started = self.start_read((window, rank), shapes, &lent.target(target), true);
            let completion = lent.issued();
            self.wait_toward((Operation::Get, rank), &completion, expecting);
            (started, completion)
        });
        started?;
        self.local.failure(&completion, Operation::Get, rank)
    }

    /// Starts a get; the bytes are there when the lender's completion is complete. `ARMCI_NbGet`, `shmem_getmem_nbi`.
    pub fn start_get(
        &self,
        window: &ClientWindow,
        rank: Rank,
        shapes: Shapes,
        target: &LenderMut<'_>,
    ) -> Result<(), TransferError> {
        self.start_read((window, rank), shapes, target, false)
    }

    /// Reads runs of the parts of several ranks, who do the same here at the same time: this thread answers them while it
    /// waits. Completion as [`Client::get`].
    pub fn get_in_exchange(
        &self,
        window: &ClientWindow,
        mut runs: Vec<(Rank, u64, OriginBytesMut<'_>)>,
    ) -> Result<(), TransferError> {
        // What is near is copied at once, while the rest is on its way.
        runs.sort_by_key(|run| self.local.same_node(run.0));
        let ranks: Vec<Rank> = runs.iter().map(|run| run.0).collect();
        let Some(&first) = ranks.first() else { return Ok(()) };
        let _expecting = self.progress.expect_from(first);
        let (started, completion) = lend(|lent| {
            let started = runs.into_iter().try_for_each(|(rank, offset, target)| {
                let run = Run { offset, bytes: target.len() as u64 };
                self.start_read((window, rank), Shapes::contiguous(run), &lent.target(target), true)
            });
            let completion = lent.issued();
            let awaited = Awaited::rank(Operation::Get, first);
            self.wait_for(Drive::Exchange, awaited, || completion.is_complete().then_some(()));
            (started, completion)
        });
        started?;
        let Some(outcome) = completion.failure() else { return Ok(()) };
        let dead = ranks.into_iter().find(|rank| self.local.alive(Operation::Get, *rank).is_err());
        Err(self.local.explain(outcome, Operation::Get, dead.unwrap_or(first)))
    }

    fn start_read(
        &self,
        (window, rank): (&ClientWindow, Rank),
        shapes: Shapes,
        target: &LenderMut<'_>,
        blocking: bool,
    ) -> Result<(), TransferError> {
        if window.is_here(rank) {
            return self.read_here((window, rank), &shapes, target.region());
        }
        let bytes = shapes.check(Operation::Get, window, rank, target.region().len() as u64)?;
        if bytes == 0 {
            return Ok(self.local.alive(Operation::Get, rank)?);
        }
        match self.route(window, Operation::Get, rank)? {
            Route::Direct(part) => read_direct(&part, &shapes, target.region()),
            Route::Served(endpoint) if self.get_direct(endpoint, (window, rank), &shapes, target, blocking) => {}
            Route::Served(endpoint) => {
                if !blocking && self.get_together(endpoint, (window, rank), &shapes, target) {
                    self.local.count(rank, CounterKind::Get, bytes);
                    return Ok(());
                }
                for shapes in shapes.frames() {
                    let request = Request::Get { target: window.target(rank), shape: shapes.target };
                    let token = Token::Data { target: target.hold(), cursor: Cursor::new(shapes.origin) };
                    let sending = if blocking { Sending::Now } else { Sending::Soon };
                    self.issue(Operation::Get, endpoint, &request, Some(token), Payload::None, sending)?;
                }
                // A little data waits in the kernel for who wants it: who computes is not to be disturbed.
                if !blocking && endpoint.expects_much() {
                    self.progress.hand_to_helper();
                } else if !blocking {
                    self.progress.leave_unacknowledged();
                }
            }
        }
        self.local.count(rank, CounterKind::Get, bytes);
        Ok(())
    }

    /// Gets with no server involved, where the network can do that. False: the server has to.
    fn get_direct(
        &self,
        endpoint: &Endpoint,
        (window, rank): (&ClientWindow, Rank),
        shapes: &Shapes,
        target: &LenderMut<'_>,
        blocking: bool,
    ) -> bool {
        let reaches = endpoint.reaches_memory() && window.may_be_pinned();
        let Some(requests) = reaches.then(|| shapes.run_requests()).flatten() else { return false };
        let (begun, driven) = endpoint.get_direct(&window.target(rank), &requests, &|| target.hold());
        self.progress.note_driven(endpoint, Some(driven));
        if !begun {
            return false;
        }
        if !blocking {
            self.progress.hand_to_helper();
        }
        true
    }

    /// Starts a small get together with others that nobody waits for either. False: nothing was done.
    fn get_together(
        &self,
        endpoint: &Endpoint,
        (window, rank): (&ClientWindow, Rank),
        shapes: &Shapes,
        target: &LenderMut<'_>,
    ) -> bool {
        let (Shape::Contiguous(there), Shape::Contiguous(here)) = (&shapes.target, &shapes.origin) else {
            return false;
        };
        let place = (|| target.hold(), *here);
        let Some(driven) = endpoint.gather_get(&window.target(rank), *there, place) else { return false };
        self.progress.note_driven(endpoint, Some(driven));
        if driven.gathers || (driven.progress && endpoint.expects_much()) {
            self.progress.hand_to_helper();
        } else if driven.progress {
            self.progress.leave_unacknowledged();
        }
        true
    }

    /// A read of a part that this node has: it needs no completion.
    fn read_here(
        &self,
        (window, rank): (&ClientWindow, Rank),
        shapes: &Shapes,
        target: RegionMut<'_>,
    ) -> Result<(), TransferError> {
        let bytes = shapes.check(Operation::Get, window, rank, target.len() as u64)?;
        if bytes == 0 {
            return Ok(self.local.alive(Operation::Get, rank)?);
        }
        let Route::Direct(part) = self.route(window, Operation::Get, rank)? else {
            unreachable!("a part of this node is mapped, or that is an error")
        };
        read_direct(&part, shapes, target);
        self.local.count(rank, CounterKind::Get, bytes);
        Ok(())
    }
}

fn read_direct(part: &Window<'_>, shapes: &Shapes, target: RegionMut<'_>) {
    let copy = |here: Run, there: Run| {
        let source = part.region(there.offset, there.bytes).expect("checked before");
        target.slice(here.offset as usize, here.bytes as usize).copy_from(source);
    };
    match shapes.way() {
        Walk::Run { here, there } => copy(here, there),
        // A grid leads from the origin to the target, as most transfers do.
        Walk::Grid(grid) => grid.reversed().copy(target, part.whole().as_region()),
        Walk::Runs => shapes.pairs(copy),
    }
}

#[cfg(test)]
#[path = "get_tests.rs"]
mod tests;
