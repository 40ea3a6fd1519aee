//! The two sides of a transfer: which bytes of the origin go to, or come from, which bytes of the target.

use std::ops::Deref;

use longarm_memory::{Grid, Step};
use longarm_proto::{Cursor, Level, Run, SEGMENTS_PER_FRAME_MAX, Shape};

/// A run of this length is worth a request of its own, where a network moves each without the server,
const LONG_RUN_BYTES: u64 = 4 << 10;
/// if there are no more than these,
const LONG_RUNS_MAX: usize = 32;
/// of pieces that are not shorter than this
const PIECE_BYTES_MIN: u64 = 512;
/// and no more than these.
const TRANSFER_PIECES_MAX: usize = 256;

/// Bytes of the origin's buffer and of the target's part, paired in their packed order.
#[derive(Clone, Debug)]
pub struct Shapes {
    /// Relative to the start of the target's part.
    pub target: Shape,
    /// Relative to the start of the origin's buffer.
    pub origin: Shape,
}

/// How to go through both sides of a transfer at once, the quickest first.
pub(crate) enum Walk {
    /// One run on each side.
    Run { here: Run, there: Run },
    /// Equal runs at regular distances.
    Grid(Grid),
    /// Run by run, see [`Shapes::pairs`].
    Runs,
}

/// A run of the target that one request writes or reads, and the runs of the origin that make it up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RunRequest {
    pub(crate) there: Run,
    pub(crate) here: Pieces,
}

/// Runs of the origin, at least one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pieces {
    One(Run),
    Several(Vec<Run>),
}

impl Pieces {
    fn push(&mut self, piece: Run) {
        match self {
            Pieces::One(first) => *self = Pieces::Several(vec![*first, piece]),
            Pieces::Several(pieces) => pieces.push(piece),
        }
    }

    fn last_mut(&mut self) -> &mut Run {
        match self {
            Pieces::One(piece) => piece,
            Pieces::Several(pieces) => pieces.last_mut().expect("there is one at least"),
        }
    }
}

impl Deref for Pieces {
    type Target = [Run];

    fn deref(&self) -> &[Run] {
        match self {
            Pieces::One(piece) => std::slice::from_ref(piece),
            Pieces::Several(pieces) => pieces,
        }
    }
}

/// All requests of a transfer that needs no server. One run to one run, as most are, allocates nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RunRequests {
    One(RunRequest),
    Several(Vec<RunRequest>),
}

impl Deref for RunRequests {
    type Target = [RunRequest];

    fn deref(&self) -> &[RunRequest] {
        match self {
            RunRequests::One(request) => std::slice::from_ref(request),
            RunRequests::Several(requests) => requests,
        }
    }
}

impl Shapes {
    /// One run of the target, the origin's buffer from its start.
    pub fn contiguous(run: Run) -> Shapes {
        Shapes { target: Shape::Contiguous(run), origin: Shape::Contiguous(Run { offset: 0, bytes: run.bytes }) }
    }

    /// The lowest byte of the target that is touched, for messages.
    pub(crate) fn first_byte(&self) -> u64 {
        match &self.target {
            Shape::Contiguous(run) => run.offset,
            Shape::Strided(strided) => strided.start(),
            Shape::Vector(runs) => runs.iter().map(|run| run.offset).min().unwrap_or(0),
        }
    }

    /// The same transfer as pieces of which each fits one frame.
    pub(crate) fn frames(self) -> impl Iterator<Item = Shapes> {
        let (whole, pieces) = match self.target {
            Shape::Vector(runs) if runs.len() > SEGMENTS_PER_FRAME_MAX => {
                let mut origin = Cursor::new(self.origin);
                let pieces: Vec<Shapes> = runs
                    .chunks(SEGMENTS_PER_FRAME_MAX)
                    .map(|runs| {
                        let target = Shape::Vector(runs.to_vec());
                        let origin = Shape::Vector(take_runs(&mut origin, target.bytes()));
                        Shapes { target, origin }
                    })
                    .collect();
                (None, pieces)
            }
            target => (Some(Shapes { target, origin: self.origin }), Vec::new()),
        };
        whole.into_iter().chain(pieces)
    }

    /// The run of the origin and that of the target, if there is no more.
    pub(crate) fn run(&self) -> Option<(Run, Run)> {
        match (&self.origin, &self.target) {
            (Shape::Contiguous(here), Shape::Contiguous(there)) => Some((*here, *there)),
            _ => None,
        }
    }

    /// How to go through both sides at once.
    pub(crate) fn way(&self) -> Walk {
        if let Some((here, there)) = self.run() {
            return Walk::Run { here, there };
        }
        self.grid().map_or(Walk::Runs, Walk::Grid)
    }

    /// The same transfer as one grid from the origin to the target, if it has that form: both sides are regular, and the
    /// levels of one lie between those of the other.
    fn grid(&self) -> Option<Grid> {
        let (mut to, mut from) = (Side::new(&self.target)?, Side::new(&self.origin)?);
        let run_bytes = to.next.min(from.next);
        let mut grid = Grid::new(usize::try_from(run_bytes).ok()?, to.offset as usize, from.offset as usize);
        let mut done = run_bytes;
        while done < to.bytes {
            let target_stride = to.stride_at(done)?;
            let source_stride = from.stride_at(done)?;
            let until = to.next.min(from.next);
            if !until.is_multiple_of(done) {
                return None;
            }
            let step = Step { count: usize::try_from(until / done).ok()?, target_stride, source_stride };
            if !grid.repeat(step) {
                return None;
            }
            done = until;
        }
        Some(grid)
    }

    /// The transfer as requests that need no server: runs of the target, each with the runs of the origin that make it up. Only
    /// where they are few and long, so that each is worth a request of its own.
    pub(crate) fn run_requests(&self) -> Option<RunRequests> {
        if let Some((here, there)) = self.run() {
            return Some(RunRequests::One(RunRequest { there, here: Pieces::One(here) }));
        }
        let are_few = [&self.target, &self.origin].into_iter().all(|shape| match shape {
            Shape::Contiguous(_) => true,
            Shape::Strided(strided) => shape.bytes() / strided.run_bytes().max(1) <= TRANSFER_PIECES_MAX as u64,
            Shape::Vector(runs) => runs.len() <= TRANSFER_PIECES_MAX,
        });
        if !are_few {
            return None;
        }
        let mut all: Vec<RunRequest> = Vec::new();
        self.pairs(|here, there| match all.last_mut() {
            Some(last) if last.there.offset + last.there.bytes == there.offset => {
                last.there.bytes += there.bytes;
                let before = last.here.last_mut();
                if before.offset + before.bytes == here.offset {
                    before.bytes += here.bytes;
                } else {
                    last.here.push(here);
                }
            }
            _ => all.push(RunRequest { there, here: Pieces::One(here) }),
        });
        let is_one = all.len() == 1 && all[0].here.len() == 1;
        let are_long = all.iter().all(|request| {
            request.there.bytes >= LONG_RUN_BYTES && request.here.iter().all(|piece| piece.bytes >= PIECE_BYTES_MIN)
        });
        let pieces = all.iter().map(|request| request.here.len()).sum::<usize>();
        (is_one || (are_long && all.len() <= LONG_RUNS_MAX && pieces <= TRANSFER_PIECES_MAX))
            .then_some(RunRequests::Several(all))
    }

    /// Calls `each` with equally long runs of the origin and the target, in order.
    pub(crate) fn pairs(&self, mut each: impl FnMut(Run, Run)) {
        let (mut origin, mut target) = (Runs::new(&self.origin), Runs::new(&self.target));
        let mut next = (origin.next(), target.next());
        while let (Some(here), Some(there)) = next {
            let bytes = here.bytes.min(there.bytes);
            each(Run { bytes, ..here }, Run { bytes, ..there });
            let rest = |run: Run| Run { offset: run.offset + bytes, bytes: run.bytes - bytes };
            next.0 = if here.bytes == bytes { origin.next() } else { Some(rest(here)) };
            next.1 = if there.bytes == bytes { target.next() } else { Some(rest(there)) };
        }
    }
}

/// The runs of a shape that have bytes, in order. A list is walked where it is.
#[allow(clippy::large_enum_variant, reason = "it lives on the stack for one walk")]
enum Runs<'a> {
    List(std::slice::Iter<'a, Run>),
    Regular(Cursor),
}

impl<'a> Runs<'a> {
    fn new(shape: &'a Shape) -> Runs<'a> {
        match shape {
            Shape::Vector(runs) => Runs::List(runs.iter()),
            regular => Runs::Regular(Cursor::new(regular.clone())),
        }
    }

    fn next(&mut self) -> Option<Run> {
        match self {
            Runs::List(runs) => runs.find(|run| run.bytes > 0).copied(),
            Runs::Regular(cursor) => {
                let run = cursor.peek()?;
                cursor.advance(run.bytes);
                Some(run)
            }
        }
    }
}

/// One side of a transfer, on the way up its levels: where the packed bytes from `done` on lie.
struct Side<'a> {
    offset: u64,
    /// Packed bytes of all levels.
    bytes: u64,
    levels: &'a [Level],
    /// Packed bytes below the level that we are in, and how far apart they are that many bytes later.
    unit: (u64, i64),
    /// Packed bytes up to the end of the level that we are in.
    next: u64,
}

impl<'a> Side<'a> {
    /// Inside the first run. `None` for what has no levels or no bytes.
    fn new(shape: &'a Shape) -> Option<Side<'a>> {
        let (offset, run_bytes, levels) = match shape {
            Shape::Contiguous(run) => (run.offset, run.bytes, &[][..]),
            Shape::Strided(strided) => (strided.offset(), strided.run_bytes(), strided.levels()),
            Shape::Vector(_) => return None,
        };
        let bytes = shape.bytes();
        (bytes > 0).then_some(Side { offset, bytes, levels, unit: (1, 1), next: run_bytes })
    }

    /// Bytes from the place of a packed byte to that of the one `done` packed bytes later, where that is the same for all
    /// up to `next`, which is beyond `done` afterwards.
    fn stride_at(&mut self, done: u64) -> Option<isize> {
        while self.next == done {
            let (level, above) = self.levels.split_first()?;
            self.unit = (self.next, level.stride);
            self.next *= level.count;
            self.levels = above;
        }
        let (unit_bytes, stride) = self.unit;
        if !done.is_multiple_of(unit_bytes) {
            return None;
        }
        isize::try_from(stride.checked_mul(i64::try_from(done / unit_bytes).ok()?)?).ok()
    }
}

fn take_runs(cursor: &mut Cursor, bytes: u64) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut left = bytes;
    while left > 0 {
        let run = cursor.peek().expect("both sides have the same bytes");
        let bytes = run.bytes.min(left);
        runs.push(Run { offset: run.offset, bytes });
        cursor.advance(bytes);
        left -= bytes;
    }
    runs
}

#[cfg(test)]
#[path = "shapes_tests.rs"]
mod tests;
