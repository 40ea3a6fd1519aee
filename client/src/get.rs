//! Get of any shape, blocking and not.

use longarm_memory::RegionMut;
use longarm_proto::{Cursor, Rank, Request, Run};
use longarm_shm::{CounterKind, Window};

use crate::client::Client;
use crate::endpoint::inline_poll::PolledGet;
use crate::endpoint::{COALESCED_RUN_BYTES_MAX, Endpoint, Payload, Sending, Token};
use crate::error::{Lost, Operation, TransferError};
use crate::origin_bytes::{LenderMut, OriginBytesMut, lend};
use crate::path::{Aim, Moves, Moving, Path, Then};
use crate::progress::pace::Drive;
use crate::progress::waits::Awaited;
use crate::shapes::{RunRequest, Shapes, Walk};
use crate::window::ClientWindow;

/// A transfer of more than this takes long enough to look after other things meanwhile.
const INLINE_POLL_BYTES_MAX: u64 = 4 << 10;

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
        self.get_shaped(window, rank, Shapes::contiguous(run), target)
    }

    /// Reads bytes of a part that is mapped here, as [`Client::put_at_once`] writes them.
    #[inline]
    pub fn get_at_once(&self, window: &ClientWindow, rank: Rank, offset: u64, target: &OriginBytesMut<'_>) -> bool {
        let bytes = target.len() as u64;
        let run = Run { offset, bytes };
        let Some(source) = window.bytes_at_once(&self.local.failures, rank, run) else { return false };
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
        let aim = Aim { operation: Operation::Get, window, rank };
        let (origin_bytes, then) = (target.len() as u64, Then::Waits);
        let (path, bytes) = self.path(aim, &Moving { moves: Moves::Get, shapes: &shapes, origin_bytes, then })?;
        if let Path::Mapped(part) = path {
            // It needs no completion.
            read_mapped(&part, &shapes, target.region());
            self.local.count(rank, CounterKind::Get, bytes);
            return Ok(());
        }
        let unlent = match self.get_polling(&path, aim, target.region()) {
            PolledGet::NotBegun => None,
            PolledGet::Done => {
                self.local.count(rank, CounterKind::Get, bytes);
                return Ok(());
            }
            PolledGet::UnderWay(unlent) => Some(unlent),
        };
        let expecting = if unlent.is_none() { self.progress.expect_answer() } else { None };
        let (started, completion) = lend(|lent| {
            let lender = lent.target(target);
            let started = match (unlent, shapes.run()) {
                (Some(unlent), Some((here, _))) => {
                    unlent.lend(lender.hold(), here);
                    self.local.count(rank, CounterKind::Get, bytes);
                    Ok(())
                }
                _ => self.begin_read((path, bytes), aim, shapes, &lender, then),
            };
            let completion = lent.issued();
            self.wait_toward((Operation::Get, rank), &completion, expecting);
            (started, completion)
        });
        started?;
        self.local.failure(&completion, Operation::Get, rank)
    }

    /// A few bytes of another node's memory, which the device may bring before it is worth to do anything else meanwhile.
    fn get_polling<'a>(&self, path: &Path<'a>, aim: Aim<'_>, target: RegionMut<'_>) -> PolledGet<'a> {
        let Path::Device(endpoint, requests) = path else { return PolledGet::NotBegun };
        let [RunRequest { there, here }] = &requests[..] else { return PolledGet::NotBegun };
        let [here] = here[..] else { return PolledGet::NotBegun };
        if there.bytes > INLINE_POLL_BYTES_MAX {
            return PolledGet::NotBegun;
        }
        let into = target.slice(here.offset as usize, here.bytes as usize);
        endpoint.get_polling(&aim.window.target(aim.rank), *there, into, self.inline_poll_looks())
    }

    /// Starts a get; the bytes are there when the lender's completion is complete. `ARMCI_NbGet`, `shmem_getmem_nbi`.
    pub fn start_get(
        &self,
        window: &ClientWindow,
        rank: Rank,
        shapes: Shapes,
        target: &LenderMut<'_>,
    ) -> Result<(), TransferError> {
        let aim = Aim { operation: Operation::Get, window, rank };
        if let Some(runs) = shapes.run()
            && self.read_together(aim, runs, target)
        {
            return Ok(());
        }
        self.start_read(aim, shapes, target, Then::GoesOn)
    }

    /// A small get of another node together with others that nobody waits for either. False: nothing was done, and the long way does
    /// it, or finds out what is wrong. Where many gets are started most take this path, which moves no `Shapes`.
    #[inline]
    fn read_together(&self, aim: Aim<'_>, (here, there): (Run, Run), target: &LenderMut<'_>) -> bool {
        let end = here.offset.checked_add(here.bytes);
        let fits = here.bytes == there.bytes && end.is_some_and(|end| end <= target.region().len() as u64);
        if !fits || there.bytes > COALESCED_RUN_BYTES_MAX {
            return false;
        }
        let Some(endpoint) = self.open_path(aim, there) else { return false };
        let began = endpoint.coalesces_gets() && self.coalesce_read(endpoint, aim, there, (target, here));
        if began {
            self.local.count(aim.rank, CounterKind::Get, there.bytes);
        }
        began
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
        // Those that were never called are all called before the first of them is waited for, unless a device may reach their memory. What is wrong
        // with one is said below.
        let node_of = |rank: Rank| self.local.layout.node_of(rank);
        let was_called = |rank| self.local.same_node(rank) || self.progress.endpoint_if_open(node_of(rank)).is_some();
        for rank in ranks.iter().filter(|rank| !was_called(**rank)) {
            let _ = self.place_for(Aim { operation: Operation::Get, window, rank: *rank }, Then::GoesOn);
        }
        let _expecting = self.progress.expect_from(first);
        let (started, completion) = lend(|lent| {
            let started = runs.into_iter().try_for_each(|(rank, offset, target)| {
                let run = Run { offset, bytes: target.len() as u64 };
                let aim = Aim { operation: Operation::Get, window, rank };
                self.start_read(aim, Shapes::contiguous(run), &lent.target(target), Then::Waits)
            });
            let completion = lent.issued();
            let awaited = Awaited::rank(Operation::Get, first);
            self.wait_for(Drive::Exchange, awaited, || completion.is_complete().then_some(()));
            (started, completion)
        });
        started?;
        let Some(outcome) = completion.failure() else { return Ok(()) };
        let dead = ranks.iter().copied().find(|rank| self.local.alive(Operation::Get, *rank).is_err());
        let is_asked = |node| ranks.iter().any(|rank| node_of(*rank) == node);
        match self.lost_connection(Operation::Get, is_asked) {
            Some(lost) if dead.is_none() => Err(lost.into()),
            _ => Err(self.local.explain(outcome, Operation::Get, dead.unwrap_or(first))),
        }
    }

    fn start_read(
        &self,
        aim: Aim<'_>,
        shapes: Shapes,
        target: &LenderMut<'_>,
        then: Then,
    ) -> Result<(), TransferError> {
        let origin_bytes = target.region().len() as u64;
        let path = self.path(aim, &Moving { moves: Moves::Get, shapes: &shapes, origin_bytes, then })?;
        self.begin_read(path, aim, shapes, target, then)
    }

    fn begin_read(
        &self,
        (path, bytes): (Path<'_>, u64),
        aim: Aim<'_>,
        shapes: Shapes,
        target: &LenderMut<'_>,
        then: Then,
    ) -> Result<(), TransferError> {
        match path {
            Path::Nothing => return Ok(()),
            Path::Mapped(part) => read_mapped(&part, &shapes, target.region()),
            Path::Device(endpoint, requests) if self.get_by_device(endpoint, aim, &requests, (target, then)) => {}
            Path::Coalesced(endpoint)
                if let Some((here, there)) = shapes.run()
                    && self.coalesce_read(endpoint, aim, there, (target, here)) => {}
            Path::Device(endpoint, _) | Path::Coalesced(endpoint) | Path::Framed(endpoint) => {
                self.read_framed(endpoint, aim, shapes, (target, then))?;
            }
        }
        self.local.count(aim.rank, CounterKind::Get, bytes);
        Ok(())
    }

    /// By requests of its own.
    fn read_framed(
        &self,
        endpoint: &Endpoint,
        aim: Aim<'_>,
        shapes: Shapes,
        (target, then): (&LenderMut<'_>, Then),
    ) -> Result<(), Lost> {
        let sending = if then == Then::Waits { Sending::Now } else { Sending::Soon };
        for shapes in shapes.frames() {
            let request = Request::Get { target: aim.window.target(aim.rank), shape: shapes.target };
            let token = Token::Data { target: target.hold(), cursor: Cursor::new(shapes.origin) };
            self.issue(aim.operation, endpoint, &request, Some(token), Payload::None, sending)?;
        }
        // A little data waits in the kernel for who wants it: who computes is not to be disturbed. But a first call has to go on.
        if then == Then::GoesOn && (endpoint.expects_much() || !endpoint.is_up()) {
            self.progress.hand_to_helper();
        } else if then == Then::GoesOn {
            self.progress.leave_unacknowledged();
        }
        Ok(())
    }

    /// By the device, with no server involved. False: it has no room, or would overtake what the server has still to do.
    fn get_by_device(
        &self,
        endpoint: &Endpoint,
        aim: Aim<'_>,
        requests: &[RunRequest],
        (target, then): (&LenderMut<'_>, Then),
    ) -> bool {
        let (begun, driven) = endpoint.get_direct(&aim.window.target(aim.rank), requests, &|| target.hold());
        self.progress.note_driven(endpoint, Some(driven));
        if begun && then == Then::GoesOn {
            self.progress.hand_to_helper();
        }
        begun
    }

    /// As a part of one request. False: nothing else is under way any more with which it could go, or there is no room.
    fn coalesce_read(
        &self,
        endpoint: &Endpoint,
        aim: Aim<'_>,
        there: Run,
        (target, here): (&LenderMut<'_>, Run),
    ) -> bool {
        let place = (|| target.hold(), here);
        let Some(driven) = endpoint.coalesce_get(&aim.window.target(aim.rank), there, place) else { return false };
        self.progress.leave_coalesced(endpoint, driven);
        true
    }
}

fn read_mapped(part: &Window<'_>, shapes: &Shapes, target: RegionMut<'_>) {
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
