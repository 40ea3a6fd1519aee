//! Put of any shape, blocking and not. Accumulate shares the path: only what the target does with the bytes differs.

use longarm_memory::Region;
use longarm_proto::{Cursor, Kernel, Rank, Request, Run, Scale, Shape, ShapeError, Signal};
use longarm_shm::{CounterKind, Window};

use crate::client::Client;
use crate::completion::Completion;
use crate::endpoint::{Endpoint, Payload, PutSource, Sending, Writes};
use crate::error::{Operation, TransferError};
use crate::origin_bytes::{Lender, OriginBytes, lend};
use crate::progress::assist::Expecting;
use crate::progress::pace::drive_for;
use crate::progress::waits::Awaited;
use crate::route::Route;
use crate::shapes::{Shapes, Walk};
use crate::window::ClientWindow;

/// A transfer of more than this takes long enough to look after other things meanwhile.
pub(crate) const INLINE_POLL_BYTES_MAX: u64 = 4 << 10;
/// See [`Client::inline_poll_looks`]: these take some microseconds.
const INLINE_POLL_LOOKS: u32 = 256;
/// Fewer where threads outnumber processors.
const INLINE_POLL_LOOKS_SHARED: u32 = 4;

/// What the target does with the bytes it gets.
#[derive(Clone, Copy)]
pub(crate) enum Writing {
    Put,
    Signal(Signal),
    Accumulate(Kernel, Scale),
}

impl Writing {
    pub(crate) fn operation(self) -> Operation {
        match self {
            Writing::Put | Writing::Signal(_) => Operation::Put,
            Writing::Accumulate(..) => Operation::Accumulate,
        }
    }

    fn kind(self) -> CounterKind {
        match self {
            Writing::Put => CounterKind::Put,
            Writing::Signal(_) => CounterKind::Signal,
            Writing::Accumulate(..) => CounterKind::Accumulate,
        }
    }
}

impl Client {
    /// Writes bytes at an offset of a rank's part. On return the source may be reused; the bytes are visible at
    /// the target after [`Client::quiet_rank`]. `ARMCI_Put`, `shmem_putmem`.
    #[inline]
    pub fn put(
        &self,
        window: &ClientWindow,
        rank: Rank,
        offset: u64,
        source: OriginBytes<'_>,
    ) -> Result<(), TransferError> {
        if self.put_at_once(window, rank, offset, source) {
            return Ok(());
        }
        self.put_run(window, rank, offset, source)
    }

    /// One run the long way. Never inlined: what it keeps on the stack would cost the short way as much as the put itself.
    #[inline(never)]
    fn put_run(
        &self,
        window: &ClientWindow,
        rank: Rank,
        offset: u64,
        source: OriginBytes<'_>,
    ) -> Result<(), TransferError> {
        let run = Run { offset, bytes: source.len() as u64 };
        if self.put_polling(window, rank, run, source.region()) {
            return Ok(());
        }
        self.put_shaped(window, rank, Shapes::contiguous(run), source)
    }

    /// A few bytes to another node's memory, with no server involved. False: nothing was done, and the long way has to be taken,
    /// or finds out what is wrong.
    fn put_polling(&self, window: &ClientWindow, rank: Rank, run: Run, source: Region<'_>) -> bool {
        let few = (1..=INLINE_POLL_BYTES_MAX.min(self.eager_bytes as u64)).contains(&run.bytes);
        if !few || !self.reaches_unseen(Operation::Put, window, rank, run) {
            return false;
        }
        let Some(endpoint) = self.progress.endpoint_if_open(self.local.layout.node_of(rank)) else { return false };
        if !endpoint.reaches_memory() {
            return false;
        }
        let needed_helper = endpoint.needs_helper();
        let Some(driven) = endpoint.put_polling(&window.target(rank), run, source) else { return false };
        self.progress.note_driven(endpoint, Some(driven));
        if endpoint.needs_helper() && !needed_helper {
            self.progress.hand_to_helper();
        } else {
            self.progress.leave_unacknowledged();
        }
        self.local.count(rank, CounterKind::Put, run.bytes);
        true
    }

    /// Whether nothing is known that speaks against reaching a run of another node's part without its server.
    #[inline]
    pub(crate) fn reaches_unseen(&self, operation: Operation, window: &ClientWindow, rank: Rank, run: Run) -> bool {
        let Some(end) = run.offset.checked_add(run.bytes) else { return false };
        !self.local.failures.is_dead(rank)
            && !window.is_here(rank)
            && window.may_be_pinned()
            && window.check(operation, rank, run.offset, end).is_ok()
    }

    /// How often who has asked a device for something looks for that alone, before it does anything else. Where threads
    /// outnumber processors it is soon done, or somebody else's turn.
    #[inline]
    pub(crate) fn inline_poll_looks(&self) -> u32 {
        if self.progress.spin_us == 0 { INLINE_POLL_LOOKS_SHARED } else { INLINE_POLL_LOOKS }
    }

    /// Writes bytes to a part that is mapped here, if nothing is wrong. False: nothing was done, and another way has to
    /// be taken, or finds out what is wrong.
    #[inline]
    pub fn put_at_once(&self, window: &ClientWindow, rank: Rank, offset: u64, source: OriginBytes<'_>) -> bool {
        let bytes = source.len() as u64;
        let Some(target) = window.direct(&self.local.failures, rank, offset, bytes) else { return false };
        target.copy_from(source.region());
        self.local.count(rank, CounterKind::Put, bytes);
        true
    }

    /// Writes the bytes of one shape of the origin to another shape of a rank's part, in their packed order.
    /// Completion as [`Client::put`]. `ARMCI_PutS`, `ARMCI_PutV`.
    pub fn put_shaped(
        &self,
        window: &ClientWindow,
        rank: Rank,
        shapes: Shapes,
        source: OriginBytes<'_>,
    ) -> Result<(), TransferError> {
        self.write(Writing::Put, window, rank, shapes, source)
    }

    /// Starts a put; the source is let go of when the lender's completion is complete. Local completion only:
    /// the bytes are visible at the target after quiet. `ARMCI_NbPut`, `shmem_putmem_nbi`.
    pub fn start_put(
        &self,
        window: &ClientWindow,
        rank: Rank,
        shapes: Shapes,
        source: &Lender<'_>,
    ) -> Result<(), TransferError> {
        let region = source.source();
        if let (Shape::Contiguous(to), Shape::Contiguous(from)) = (&shapes.target, &shapes.origin)
            && from.offset == 0
            && from.bytes == to.bytes
            && region.len() as u64 == to.bytes
            && self.put_together(window, rank, to.offset, OriginBytes::from_region(region))
        {
            return Ok(());
        }
        self.start_write(Writing::Put, (window, rank), shapes, region, Some(source), false)?;
        self.progress.leave_to_helper(rank);
        Ok(())
    }

    /// Starts a small put to another node together with others that nobody waits for either; its bytes are copied. False:
    /// nothing was done, and another way has to be taken, or finds out what is wrong.
    pub fn put_together(&self, window: &ClientWindow, rank: Rank, offset: u64, source: OriginBytes<'_>) -> bool {
        let placed = (window, rank, offset);
        self.write_together(&Writes::Put, Operation::Put, placed, source)
    }

    /// [`Client::put_together`] for any small write.
    #[inline]
    pub(crate) fn write_together(
        &self,
        writes: &Writes,
        operation: Operation,
        (window, rank, offset): (&ClientWindow, Rank, u64),
        source: OriginBytes<'_>,
    ) -> bool {
        let bytes = source.len() as u64;
        let Some(end) = offset.checked_add(bytes) else { return false };
        let unusual = bytes == 0 || self.local.failures.is_dead(rank) || window.is_here(rank);
        if unusual || window.check(operation, rank, offset, end).is_err() {
            return false;
        }
        let Some(endpoint) = self.progress.endpoint_if_open(self.local.layout.node_of(rank)) else { return false };
        let (target, run) = (window.target(rank), Run { offset, bytes });
        let Some(driven) = endpoint.gather_write(&target, writes, run, source.region()) else { return false };
        self.progress.note_driven(endpoint, Some(driven));
        if driven.gathers {
            self.progress.hand_to_helper();
        } else if driven.progress {
            self.progress.leave_unacknowledged();
        }
        let kind = if matches!(writes, Writes::Put) { CounterKind::Put } else { CounterKind::Accumulate };
        self.local.count(rank, kind, bytes);
        true
    }

    /// Blocking write of any kind.
    pub(crate) fn write(
        &self,
        writing: Writing,
        window: &ClientWindow,
        rank: Rank,
        shapes: Shapes,
        source: OriginBytes<'_>,
    ) -> Result<(), TransferError> {
        if window.is_here(rank) {
            return self.write_here(writing, (window, rank), &shapes, source.region());
        }
        if shapes.origin.bytes() <= self.eager_bytes as u64 {
            self.start_write(writing, (window, rank), shapes, source.region(), None, true)?;
            self.progress.leave_to_helper(rank);
            return Ok(());
        }
        let expecting = self.progress.expect_answer();
        let (started, completion) = lend(|lent| {
            let lender = lent.source(source);
            let started = self.start_write(writing, (window, rank), shapes, source.region(), Some(&lender), true);
            let completion = lent.issued();
            self.wait_toward((writing.operation(), rank), &completion, expecting);
            (started, completion)
        });
        started?;
        self.local.failure(&completion, writing.operation(), rank)
    }

    /// Waits for an operation towards a rank, with what [`Progress::expect_answer`](crate::progress::Progress::expect_answer) gave before it was begun.
    pub(crate) fn wait_toward(
        &self,
        (operation, rank): (Operation, Rank),
        completion: &Completion,
        expecting: Option<Expecting<'_>>,
    ) {
        if completion.is_complete() {
            return;
        }
        match self.progress.endpoint_if_open(self.local.layout.node_of(rank)) {
            Some(endpoint) => {
                let drive = drive_for(endpoint, expecting.as_ref());
                self.wait_complete(drive, Awaited::rank(operation, rank), completion);
            }
            None => self.wait_completion(Awaited::rank(operation, rank), completion),
        }
    }

    /// An accumulate is about whole elements on both sides.
    fn check_elements(writing: Writing, rank: Rank, shapes: &Shapes) -> Result<(), TransferError> {
        let Writing::Accumulate(kernel, _) = writing else { return Ok(()) };
        let element_bytes = kernel.element().bytes();
        let broken =
            [&shapes.target, &shapes.origin].into_iter().find_map(|shape| shape.broken_run_bytes(element_bytes));
        broken.map_or(Ok(()), |run_bytes| {
            let reason = ShapeError::PartOfAnElement { run_bytes, element_bytes: element_bytes as u64 };
            Err(TransferError::BadShape { operation: writing.operation(), rank, reason })
        })
    }

    /// Starts a write of any kind. A direct one is finished on return. Of a served one the bytes are copied, if
    /// they are few or there is no lender, or else queued under the lender's completion.
    pub(crate) fn start_write(
        &self,
        writing: Writing,
        (window, rank): (&ClientWindow, Rank),
        shapes: Shapes,
        source: Region<'_>,
        lender: Option<&Lender<'_>>,
        blocking: bool,
    ) -> Result<(), TransferError> {
        if window.is_here(rank) {
            return self.write_here(writing, (window, rank), &shapes, source);
        }
        Self::check_elements(writing, rank, &shapes)?;
        let operation = writing.operation();
        let bytes = shapes.check(operation, window, rank, source.len() as u64)?;
        if bytes == 0 && !matches!(writing, Writing::Signal(_)) {
            return Ok(self.local.alive(operation, rank)?);
        }
        match self.route(window, operation, rank)? {
            Route::Direct(part) => self.write_direct(writing, &part, &shapes, source),
            Route::Served(endpoint)
                if matches!(writing, Writing::Put)
                    && self.put_direct(endpoint, (window, rank), &shapes, source, lender, blocking) => {}
            Route::Served(endpoint) => {
                let mut frames = shapes.frames().peekable();
                while let Some(shapes) = frames.next() {
                    let target = window.target(rank);
                    let shape = shapes.target;
                    let request = match writing {
                        Writing::Put => Request::Put { target, shape, signal: None },
                        Writing::Signal(signal) => Request::Put { target, shape, signal: Some(signal) },
                        Writing::Accumulate(kernel, scale) => Request::Accumulate { target, shape, kernel, scale },
                    };
                    let origin = Cursor::new(shapes.origin);
                    let small = origin.remaining() <= self.eager_bytes as u64;
                    let payload = match lender.filter(|_| !small) {
                        Some(lender) => Payload::Streamed(lender.hold(), origin),
                        None => Payload::Copied(source, origin),
                    };
                    let sending = match payload {
                        // It goes out together with what asks for its arrival, by who waits or leaves it to others.
                        Payload::Streamed(..) => Sending::Later,
                        _ if !blocking => Sending::Soon,
                        _ if frames.peek().is_some() => Sending::Later,
                        _ => Sending::Confirmed,
                    };
                    self.issue(operation, endpoint, &request, None, payload, sending)?;
                }
            }
        }
        self.local.count(rank, writing.kind(), bytes);
        Ok(())
    }

    /// Puts with no server involved, where the network can do that. False: the server has to.
    fn put_direct(
        &self,
        endpoint: &Endpoint,
        (window, rank): (&ClientWindow, Rank),
        shapes: &Shapes,
        source: Region<'_>,
        lender: Option<&Lender<'_>>,
        blocking: bool,
    ) -> bool {
        let reaches = endpoint.reaches_memory() && window.may_be_pinned();
        let Some(requests) = reaches.then(|| shapes.run_requests()).flatten() else { return false };
        let hold = || lender.expect("only with one").hold();
        let copied = lender.is_none() || shapes.origin.bytes() <= self.eager_bytes as u64;
        let needed_helper = endpoint.needs_helper();
        let (begun, driven) = endpoint.put_direct(&window.target(rank), &requests, |pieces| match copied {
            true => PutSource::Copied(source, pieces),
            false => PutSource::Lent(&hold, pieces),
        });
        self.progress.note_driven(endpoint, Some(driven));
        if !begun {
            return false;
        }
        let leaves_rest = copied && endpoint.needs_helper() && !needed_helper;
        if (copied || blocking) && !leaves_rest {
            self.progress.leave_unacknowledged();
        } else {
            // The rest is posted when there is room.
            self.progress.hand_to_helper();
        }
        true
    }

    /// A write to a part that this node has. The shapes are lent: they are large, and nothing keeps them.
    fn write_here(
        &self,
        writing: Writing,
        (window, rank): (&ClientWindow, Rank),
        shapes: &Shapes,
        source: Region<'_>,
    ) -> Result<(), TransferError> {
        Self::check_elements(writing, rank, shapes)?;
        let operation = writing.operation();
        let bytes = shapes.check(operation, window, rank, source.len() as u64)?;
        if bytes == 0 && !matches!(writing, Writing::Signal(_)) {
            return Ok(self.local.alive(operation, rank)?);
        }
        let Route::Direct(part) = self.route(window, operation, rank)? else {
            unreachable!("a part of this node is mapped, or that is an error")
        };
        self.write_direct(writing, &part, shapes, source);
        self.local.count(rank, writing.kind(), bytes);
        Ok(())
    }

    fn write_direct(&self, writing: Writing, part: &Window<'_>, shapes: &Shapes, source: Region<'_>) {
        let taken = |here: Run| source.slice(here.offset as usize, here.bytes as usize);
        match writing {
            Writing::Put | Writing::Signal(_) => {
                let there = |run: Run| part.region_mut(run.offset, run.bytes).expect("checked before");
                match shapes.way() {
                    Walk::Run { here, there: run } => there(run).copy_from(taken(here)),
                    Walk::Grid(grid) => grid.copy(part.whole(), source),
                    Walk::Runs => shapes.pairs(|here, run| there(run).copy_from(taken(here))),
                }
            }
            Writing::Accumulate(kernel, scale) => {
                let (stripes, me) = (self.local.segment.stripes(), self.local.layout.me());
                let mut accumulator = part.accumulator((kernel, scale), stripes, me);
                let mut run = |here, there: Run| accumulator.run(there.offset, taken(here)).expect("checked before");
                match shapes.way() {
                    Walk::Run { here, there } => run(here, there),
                    Walk::Grid(grid) => accumulator.grid(&grid, source).expect("checked before"),
                    Walk::Runs => shapes.pairs(run),
                }
            }
        }
    }

    /// Puts a request behind all others towards its node, waiting for room if there is none.
    pub(crate) fn issue(
        &self,
        operation: Operation,
        endpoint: &Endpoint,
        request: &Request,
        token: Option<crate::endpoint::Token>,
        payload: Payload<'_>,
        sending: Sending,
    ) -> Result<(), crate::error::Lost> {
        let (mut token, mut payload) = (token, payload);
        loop {
            let issued = match sending {
                Sending::Confirmed | Sending::Soon => {
                    self.progress.while_asked(|| endpoint.issue(request, token, payload, sending))
                }
                Sending::Now | Sending::Later => endpoint.issue(request, token, payload, sending),
            };
            match issued {
                Ok(driven) => {
                    self.progress.note_driven(endpoint, Some(driven));
                    if driven.gathers {
                        self.progress.hand_to_helper();
                    } else if !request.has_reply() {
                        self.progress.leave_unacknowledged();
                    }
                    return Ok(());
                }
                Err(rejected) => match rejected.how.clone() {
                    Some(how) => {
                        rejected.fail(&how);
                        return Err(self.progress.lost(operation, endpoint, how));
                    }
                    None => {
                        (token, payload) = (rejected.token, rejected.payload);
                        let awaited = Awaited::rank(operation, endpoint.host());
                        let drive = crate::progress::pace::Drive::Endpoint(endpoint);
                        self.wait_for(drive, awaited, || endpoint.has_room(request).then_some(()));
                    }
                },
            }
        }
    }
}

#[cfg(test)]
#[path = "put_tests.rs"]
mod tests;
