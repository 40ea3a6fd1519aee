//! Put of any shape, blocking and not. Accumulate shares the path: only what the target does with the bytes differs.

use longarm_memory::Region;
use longarm_proto::{Cursor, EAGER_BYTES_MAX, Kernel, Rank, Request, Run, Scale, Signal};
use longarm_shm::{CounterKind, Window};

use crate::client::Client;
use crate::completion::Completion;
use crate::endpoint::direct::PutSource;
use crate::endpoint::{Endpoint, Payload, Sending, Token, Writes};
use crate::error::{Lost, Operation, TransferError};
use crate::origin_bytes::{Lender, OriginBytes, lend};
use crate::path::{Aim, Moves, Moving, Path, Then};
use crate::progress::assist::Expecting;
use crate::progress::pace::{Drive, drive_for};
use crate::progress::waits::Awaited;
use crate::shapes::{RunRequest, Shapes, Walk};
use crate::window::ClientWindow;

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
    fn operation(self) -> Operation {
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

    fn moves(self) -> Moves {
        match self {
            Writing::Put => Moves::Put,
            Writing::Signal(_) => Moves::Signal,
            Writing::Accumulate(kernel, _) => Moves::Accumulate(kernel.element().bytes()),
        }
    }

    /// As a request that may go with others of its kind.
    fn writes(self) -> Option<Writes> {
        match self {
            Writing::Put => Some(Writes::Put),
            Writing::Accumulate(kernel, scale) => Some(Writes::Accumulate(kernel, scale)),
            Writing::Signal(_) => None,
        }
    }
}

/// Where the bytes of a write are, and for how long.
#[derive(Clone, Copy)]
struct From<'a, 'l> {
    region: Region<'a>,
    /// What is not copied is lent by this. `None`: all is copied.
    lender: Option<&'a Lender<'l>>,
    then: Then,
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
        self.put_shaped(window, rank, Shapes::contiguous(run), source)
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
        let run = Run { offset, bytes };
        let Some(target) = window.bytes_at_once(&self.local.failures, rank, run) else { return false };
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
        self.write(Writing::Put, (window, rank), shapes, source)
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
        self.start_write(Writing::Put, (window, rank), shapes, source)
    }

    /// Starts a small put to another node together with others that nobody waits for either; its bytes are copied. False:
    /// nothing was done, and another way has to be taken, or finds out what is wrong.
    pub fn put_together(&self, window: &ClientWindow, rank: Rank, offset: u64, source: OriginBytes<'_>) -> bool {
        let aim = Aim { operation: Operation::Put, window, rank };
        self.write_together(&Writes::Put, aim, offset, source)
    }

    /// [`Client::put_together`] for any small write.
    #[inline]
    pub(crate) fn write_together(&self, writes: &Writes, aim: Aim<'_>, offset: u64, source: OriginBytes<'_>) -> bool {
        let run = Run { offset, bytes: source.len() as u64 };
        let Some(endpoint) = self.open_path(aim, run) else { return false };
        if !self.coalesce_write(endpoint, aim, writes, (run, source.region())) {
            return false;
        }
        let kind = if matches!(writes, Writes::Put) { CounterKind::Put } else { CounterKind::Accumulate };
        self.local.count(aim.rank, kind, run.bytes);
        true
    }

    /// Blocking write of any kind.
    pub(crate) fn write(
        &self,
        writing: Writing,
        (window, rank): (&ClientWindow, Rank),
        shapes: Shapes,
        source: OriginBytes<'_>,
    ) -> Result<(), TransferError> {
        let aim = Aim { operation: writing.operation(), window, rank };
        let (origin_bytes, then) = (source.len() as u64, Then::Waits);
        let (path, bytes) = self.path(aim, &Moving { moves: writing.moves(), shapes: &shapes, origin_bytes, then })?;
        if let Path::Mapped(part) = path {
            // The shapes are lent: they are large, and nothing keeps them.
            self.write_mapped(writing, &part, &shapes, source.region());
            self.local.count(rank, writing.kind(), bytes);
            return Ok(());
        }
        let copied_bytes_max = match path {
            Path::Device(..) => self.small_bytes_max(),
            _ => self.eager_bytes as u64,
        };
        if bytes <= copied_bytes_max {
            let from = From { region: source.region(), lender: None, then };
            return self.begin_write((path, bytes), writing, aim, shapes, from);
        }
        let expecting = self.progress.expect_answer();
        let (started, completion) = lend(|lent| {
            let lender = lent.source(source);
            let from = From { region: source.region(), lender: Some(&lender), then };
            let started = self.begin_write((path, bytes), writing, aim, shapes, from);
            let completion = lent.issued();
            self.wait_toward((aim.operation, rank), &completion, expecting);
            (started, completion)
        });
        started?;
        self.local.failure(&completion, aim.operation, rank)
    }

    /// Starts a write of any kind. A mapped one is finished on return. Of one to another node the bytes are copied, if they are few,
    /// or else queued under the lender's completion.
    pub(crate) fn start_write(
        &self,
        writing: Writing,
        (window, rank): (&ClientWindow, Rank),
        shapes: Shapes,
        source: &Lender<'_>,
    ) -> Result<(), TransferError> {
        let aim = Aim { operation: writing.operation(), window, rank };
        let from = From { region: source.source(), lender: Some(source), then: Then::GoesOn };
        let origin_bytes = from.region.len() as u64;
        let moving = Moving { moves: writing.moves(), shapes: &shapes, origin_bytes, then: from.then };
        let (path, bytes) = self.path(aim, &moving)?;
        self.begin_write((path, bytes), writing, aim, shapes, from)
    }

    /// Bytes that are copied, at most, where more would gain nothing: nobody waits for the buffer, a device fetches them, or a message is copied
    /// more than once.
    pub(crate) fn small_bytes_max(&self) -> u64 {
        EAGER_BYTES_MAX.min(self.eager_bytes as u64)
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

    fn begin_write(
        &self,
        (path, bytes): (Path<'_>, u64),
        writing: Writing,
        aim: Aim<'_>,
        shapes: Shapes,
        from: From<'_, '_>,
    ) -> Result<(), TransferError> {
        match path {
            Path::Nothing => return Ok(()),
            Path::Mapped(part) => self.write_mapped(writing, &part, &shapes, from.region),
            Path::Device(endpoint, requests) if self.put_by_device(endpoint, aim, (&requests, bytes), from) => {}
            Path::Coalesced(endpoint)
                if let (Some((here, there)), Some(writes)) = (shapes.run(), writing.writes())
                    && self.coalesce_write(endpoint, aim, &writes, (there, taken(from.region, here))) => {}
            Path::Device(endpoint, _) | Path::Coalesced(endpoint) | Path::Framed(endpoint) => {
                self.write_framed(endpoint, writing, aim, shapes, from)?;
            }
        }
        self.local.count(aim.rank, writing.kind(), bytes);
        Ok(())
    }

    /// By requests of its own. The bytes are copied if they are few or nobody lends them.
    fn write_framed(
        &self,
        endpoint: &Endpoint,
        writing: Writing,
        aim: Aim<'_>,
        shapes: Shapes,
        from: From<'_, '_>,
    ) -> Result<(), Lost> {
        let target = aim.window.target(aim.rank);
        let mut frames = shapes.frames().peekable();
        while let Some(Shapes { target: shape, origin }) = frames.next() {
            let request = match writing {
                Writing::Put => Request::Put { target, shape, signal: None },
                Writing::Signal(signal) => Request::Put { target, shape, signal: Some(signal) },
                Writing::Accumulate(kernel, scale) => Request::Accumulate { target, shape, kernel, scale },
            };
            let origin = Cursor::new(origin);
            let small = origin.remaining() <= self.small_bytes_max();
            let payload = match from.lender.filter(|_| !small) {
                Some(lender) => Payload::Streamed(lender.hold(), origin),
                None => Payload::Copied(from.region, origin),
            };
            let sending = match &payload {
                Payload::Streamed(_, streamed) if from.then == Then::GoesOn => {
                    Sending::unawaited_in_place(streamed.remaining())
                }
                // It goes out together with what asks for its arrival, by who waits or leaves it to others.
                Payload::Streamed(..) => Sending::Later,
                _ if from.then == Then::GoesOn => Sending::Soon,
                _ if frames.peek().is_some() => Sending::Later,
                _ => Sending::Confirmed,
            };
            self.issue(aim.operation, endpoint, &request, None, payload, sending)?;
        }
        // Who lends and waits sends the rest itself.
        if from.then == Then::GoesOn || from.lender.is_none() {
            self.progress.leave_to_helper(endpoint);
        }
        Ok(())
    }

    /// As a part of one request. False: nothing else is under way any more with which it could go, or there is no room.
    #[inline(always)]
    fn coalesce_write(
        &self,
        endpoint: &Endpoint,
        aim: Aim<'_>,
        writes: &Writes,
        (there, source): (Run, Region<'_>),
    ) -> bool {
        let Some(driven) = endpoint.coalesce_write(&aim.window.target(aim.rank), writes, there, source) else {
            return false;
        };
        self.progress.leave_coalesced(endpoint, driven);
        true
    }

    /// By the device, with no server involved. False: it has no room, or would overtake what the server has still to do.
    fn put_by_device(
        &self,
        endpoint: &Endpoint,
        aim: Aim<'_>,
        (requests, bytes): (&[RunRequest], u64),
        from: From<'_, '_>,
    ) -> bool {
        let lender = from.lender.filter(|_| bytes > self.small_bytes_max());
        let hold = || lender.expect("only with one").hold();
        let needed_helper = endpoint.needs_helper();
        let (begun, driven) = endpoint.put_direct(&aim.window.target(aim.rank), requests, |pieces| match lender {
            None => PutSource::Copied(from.region, pieces),
            Some(_) => PutSource::Lent(&hold, pieces),
        });
        self.progress.note_driven(endpoint, Some(driven));
        if !begun {
            return false;
        }
        let is_copied = lender.is_none();
        let leaves_rest = is_copied && endpoint.needs_helper() && !needed_helper;
        if (is_copied || from.then == Then::Waits) && !leaves_rest {
            self.progress.leave_unacknowledged();
        } else {
            // The rest is posted when there is room.
            self.progress.hand_to_helper();
        }
        true
    }

    fn write_mapped(&self, writing: Writing, part: &Window<'_>, shapes: &Shapes, source: Region<'_>) {
        match writing {
            Writing::Put | Writing::Signal(_) => {
                let there = |run: Run| part.region_mut(run.offset, run.bytes).expect("checked before");
                match shapes.way() {
                    Walk::Run { here, there: run } => there(run).copy_from(taken(source, here)),
                    Walk::Grid(grid) => grid.copy(part.whole(), source),
                    Walk::Runs => shapes.pairs(|here, run| there(run).copy_from(taken(source, here))),
                }
            }
            Writing::Accumulate(kernel, scale) => {
                let (stripes, me) = (self.local.stripes(), self.local.layout.me());
                let mut accumulator = part.accumulator((kernel, scale), stripes, me);
                let mut run =
                    |here, there: Run| accumulator.run(there.offset, taken(source, here)).expect("checked before");
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
        token: Option<Token>,
        payload: Payload<'_>,
        sending: Sending,
    ) -> Result<(), Lost> {
        let (mut token, mut payload) = (token, payload);
        loop {
            let issued = match sending {
                Sending::Confirmed | Sending::Soon => {
                    self.progress.while_asked(|| endpoint.issue(request, token, payload, sending))
                }
                Sending::Now | Sending::Later | Sending::SoonInPlace | Sending::AloneOrByHelper => {
                    endpoint.issue(request, token, payload, sending)
                }
            };
            match issued {
                Ok(driven) => {
                    self.progress.note_driven(endpoint, Some(driven));
                    if driven.became_corked {
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
                        self.wait_for(Drive::Endpoint(endpoint), awaited, || endpoint.has_room(request).then_some(()));
                    }
                },
            }
        }
    }
}

fn taken(source: Region<'_>, here: Run) -> Region<'_> {
    source.slice(here.offset as usize, here.bytes as usize)
}

#[cfg(test)]
#[path = "put_tests.rs"]
mod tests;
