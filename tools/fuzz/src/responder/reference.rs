//! What a server owes for the bytes that a connection has sent: read once more, by the same decoder, and judged by the
//! rules of the wire alone.

use std::collections::{BTreeMap, BTreeSet};

use longarm_proto::{
    AccumulateOp, Cursor, ElementType, HEADER_BYTES, Rank, Refusal, Request, RequestHeader, Responder, RmwOp, RmwWidth,
    Scale, Shape, WindowRef,
};
use longarm_shm::CELL_PAYLOAD_BYTES;

use crate::node::{Name, PARTS, RANKS};

/// The windows that are there: everybody's, the one that only the friend asks for, and the one where every byte that is
/// applied is counted.
pub(crate) const OPEN: Name = Name::new(7, 3, 0x1122_3344_5566_7788);
pub(crate) const OF_FRIEND: Name = Name::new(9, 1, 0x99aa_bbcc_ddee_ff00);
pub(crate) const COUNTED: Name = Name::new(10, 2, 0x0f1e_2d3c_4b5a_6978);
/// One that was there.
pub(crate) const FREED: Name = Name::new(8, 1, 5);
pub(crate) const LIVE: [Name; 3] = [OPEN, OF_FRIEND, COUNTED];
/// The place of [`COUNTED`] among them.
const COUNTED_PLACE: usize = 2;

/// No server sends so many bytes: whoever says that it has received them lies.
pub(crate) const NEVER_SENT_BYTES: u64 = 1 << 40;

/// Runs that are looked at one by one, at most.
const RUNS_MAX: usize = 300;

/// Bytes of a live window that a request may change.
pub(crate) struct Touched {
    pub(crate) window: usize,
    pub(crate) part: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What a request is allowed to change, or why it has to be refused whatever the memory holds.
pub(crate) fn judge(request: &Request) -> Result<Vec<Touched>, Refusal> {
    match request {
        Request::Put { target, shape, signal } => {
            let mut touched = shaped(target, shape)?;
            if let Some(signal) = signal {
                let (window, generation, key) = (signal.window, signal.generation, signal.key);
                let at = WindowRef { rank: target.rank, window, generation, key };
                touched.push(word(&at, signal.offset, 8)?);
            }
            Ok(touched)
        }
        Request::Accumulate { target, shape, .. } => shaped(target, shape),
        Request::Get { target, shape } => shaped(target, shape).map(|_| Vec::new()),
        Request::Rmw { target, offset, rmw } => Ok(vec![word(target, *offset, rmw.width.bytes() as u64)?]),
        Request::RmwMany { target, width, words, .. } => {
            words.iter().map(|at| word(target, at.offset, width.bytes() as u64)).collect()
        }
        Request::Lock { target, offset } | Request::TryLock { target, offset } | Request::Unlock { target, offset } => {
            let touched = word(target, *offset, 4)?;
            // A mutex goes with its host, and this one is dead.
            if target.rank == RANKS[1] { Err(Refusal::TargetLost) } else { Ok(vec![touched]) }
        }
        Request::Message { target, .. } if !RANKS.contains(target) => Err(Refusal::NotThisNode),
        Request::Message { .. } | Request::Quiet | Request::Acknowledge { .. } | Request::Leave => Ok(Vec::new()),
    }
}

/// The window and the part.
fn find(target: &WindowRef) -> Result<(usize, usize), Refusal> {
    let Some(window) = LIVE.iter().position(|name| name.window == target.window) else {
        return Err(if target.window == FREED.window { Refusal::FreedWindow } else { Refusal::UnknownWindow });
    };
    if target.generation != LIVE[window].generation {
        return Err(Refusal::FreedWindow);
    }
    if target.key != LIVE[window].key {
        return Err(Refusal::WrongKey);
    }
    let part = RANKS.iter().position(|rank| *rank == target.rank).ok_or(Refusal::NotThisNode)?;
    Ok((window, part))
}

fn word(target: &WindowRef, offset: u64, bytes: u64) -> Result<Touched, Refusal> {
    let (window, part) = find(target)?;
    if offset.checked_add(bytes).is_none_or(|end| end > PARTS[part]) {
        return Err(Refusal::OutsideWindow);
    }
    if !offset.is_multiple_of(bytes) {
        return Err(Refusal::Misaligned);
    }
    Ok(Touched { window, part, offset, bytes })
}

fn shaped(target: &WindowRef, shape: &Shape) -> Result<Vec<Touched>, Refusal> {
    let (window, part) = find(target)?;
    if shape.end() > PARTS[part] {
        return Err(Refusal::OutsideWindow);
    }
    let mut runs = Vec::new();
    let cursor = Cursor::new(shape.clone());
    cursor.upcoming(RUNS_MAX, &mut runs);
    if runs.len() < RUNS_MAX {
        let touched = runs.iter().map(|run| Touched { window, part, offset: run.offset, bytes: run.bytes });
        return Ok(touched.collect());
    }
    // Too many to tell apart: anything from the first to the last.
    let start = if let Shape::Strided(strided) = shape { strided.start() } else { 0 };
    Ok(vec![Touched { window, part, offset: start, bytes: shape.end() - start }])
}

/// What requests have added to words of the counted window, by part and offset.
#[derive(Default)]
pub(crate) struct Sums {
    pub(crate) added: BTreeMap<(usize, u64), i64>,
    /// Words that were changed by anything but an addition that can be followed.
    pub(crate) spoiled: BTreeSet<(usize, u64)>,
}

impl Sums {
    fn add(&mut self, part: usize, offset: u64, value: i64) {
        let sum = self.added.entry((part, offset)).or_default();
        *sum = sum.wrapping_add(value);
    }

    fn spoil(&mut self, touched: &Touched) {
        let words = touched.offset / 8..(touched.offset + touched.bytes).div_ceil(8);
        self.spoiled.extend(words.map(|word| (touched.part, word * 8)));
    }

    /// Takes a request that is applied. Where its payload adds from, if it does.
    fn take(&mut self, request: &Request) -> Option<(usize, u64)> {
        let touched = judge(request).ok()?;
        let counted = || touched.iter().filter(|touched| touched.window == COUNTED_PLACE);
        let first = counted().next()?;
        match request {
            Request::Rmw { rmw, .. } if (rmw.op, rmw.width) == (RmwOp::FetchAdd, RmwWidth::W64) => {
                self.add(first.part, first.offset, rmw.operand as i64);
                None
            }
            Request::RmwMany { op, width, words, .. } if (*op, *width) == (RmwOp::FetchAdd, RmwWidth::W64) => {
                let part = first.part;
                words.iter().for_each(|word| self.add(part, word.offset, word.operand as i64));
                None
            }
            Request::Accumulate { shape: Shape::Contiguous(_), kernel, scale, .. }
                if (kernel.element(), kernel.op()) == (ElementType::I64, AccumulateOp::Sum)
                    && *scale == Scale::one(ElementType::I64)
                    && first.offset.is_multiple_of(8) =>
            {
                Some((first.part, first.offset))
            }
            _ => {
                counted().for_each(|touched| self.spoil(touched));
                None
            }
        }
    }
}

/// What the next bytes of a stream are.
enum Phase {
    Header,
    Descriptor(RequestHeader),
    Payload { remaining: u64, fate: Fate },
}

/// What becomes of a payload.
enum Fate {
    Anything,
    /// What has come of the next cell.
    Mail(Vec<u8>),
    /// Elements are added to the words from this place on; what has come of the next one.
    Sum {
        part: usize,
        offset: u64,
        element: Vec<u8>,
    },
}

/// Why nothing behind counts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Ending {
    Violation,
    Left,
}

/// A connection's bytes, read as the server has to read them.
pub(crate) struct Stream {
    responder: Responder,
    unread: Vec<u8>,
    phase: Phase,
    pub(crate) ending: Option<Ending>,
    /// The peer may have broken the protocol, depending on how much the server had sent.
    pub(crate) is_doubtful: bool,
    /// How much the peer has acknowledged, truly.
    pub(crate) acknowledged_bytes: u64,
    /// The bytes of messages for the rank that lives.
    pub(crate) mail: Vec<u8>,
    /// Bytes that are missing of messages to ranks of the node.
    unfinished: BTreeMap<Rank, u64>,
    pub(crate) sums: Sums,
}

impl Stream {
    pub(crate) fn new() -> Stream {
        Stream {
            responder: Responder::new(),
            unread: Vec::new(),
            phase: Phase::Header,
            ending: None,
            is_doubtful: false,
            acknowledged_bytes: 0,
            mail: Vec::new(),
            unfinished: BTreeMap::new(),
            sums: Sums::default(),
        }
    }

    /// Takes what is sent, by a peer that has received so much. Each request that is understood now is told, before its
    /// payload has come.
    pub(crate) fn take(&mut self, bytes: &[u8], heard_bytes: u64, mut on_request: impl FnMut(&Request)) {
        self.unread.extend_from_slice(bytes);
        let mut at = 0;
        while self.ending.is_none() {
            let Some(used) = self.step(at, heard_bytes, &mut on_request) else { break };
            at += used;
        }
        self.unread.drain(..at);
    }

    /// What a request says of the session, of which so many bytes were received.
    fn hear(&mut self, request: &Request, heard_bytes: u64) {
        match *request {
            Request::Leave => self.ending = Some(Ending::Left),
            Request::Acknowledge { received_bytes } if received_bytes >= NEVER_SENT_BYTES => {
                self.ending = Some(Ending::Violation);
            }
            Request::Acknowledge { received_bytes } if received_bytes > heard_bytes => self.is_doubtful = true,
            Request::Acknowledge { received_bytes } => {
                self.acknowledged_bytes = self.acknowledged_bytes.max(received_bytes);
            }
            _ => {}
        }
    }

    /// One step from the byte at this place, and how many it took. `None`: more has to come, or nothing counts now.
    fn step(&mut self, at: usize, heard_bytes: u64, on_request: &mut impl FnMut(&Request)) -> Option<usize> {
        let rest = &self.unread[at..];
        match &mut self.phase {
            Phase::Header => {
                let bytes = rest.first_chunk::<HEADER_BYTES>()?;
                match self.responder.handle_header(bytes) {
                    Ok(header) => self.phase = Phase::Descriptor(header),
                    Err(_) => self.ending = Some(Ending::Violation),
                }
                Some(HEADER_BYTES)
            }
            Phase::Descriptor(header) => {
                let header = *header;
                let descriptor = rest.get(..header.descriptor_bytes())?;
                let Ok(request) = self.responder.finish(&header, descriptor) else {
                    self.ending = Some(Ending::Violation);
                    return None;
                };
                if let Request::Message { target, bytes, rest } = &request
                    && RANKS.contains(target)
                    && self.unfinished.insert(*target, *rest).is_some_and(|due| due > 0 && due != bytes + rest)
                {
                    self.ending = Some(Ending::Violation);
                    return None;
                }
                let fate = match &request {
                    Request::Message { target, .. } if *target == RANKS[0] => Fate::Mail(Vec::new()),
                    request => match self.sums.take(request) {
                        Some((part, offset)) => Fate::Sum { part, offset, element: Vec::new() },
                        None => Fate::Anything,
                    },
                };
                self.phase = Phase::Payload { remaining: header.payload_bytes(), fate };
                self.hear(&request, heard_bytes);
                on_request(&request);
                Some(header.descriptor_bytes())
            }
            Phase::Payload { remaining, fate } => {
                let bytes = (*remaining).min(rest.len() as u64);
                if bytes < *remaining && rest.is_empty() {
                    return None;
                }
                match fate {
                    Fate::Anything => {}
                    Fate::Mail(cell) => {
                        cell.extend_from_slice(&rest[..bytes as usize]);
                        let is_whole = bytes == *remaining;
                        let filled =
                            if is_whole { cell.len() } else { cell.len() / CELL_PAYLOAD_BYTES * CELL_PAYLOAD_BYTES };
                        self.mail.extend(cell.drain(..filled));
                    }
                    Fate::Sum { part, offset, element } => {
                        element.extend_from_slice(&rest[..bytes as usize]);
                        let whole = element.len() / 8 * 8;
                        for value in element.drain(..whole).as_slice().as_chunks().0 {
                            self.sums.add(*part, *offset, i64::from_le_bytes(*value));
                            *offset += 8;
                        }
                    }
                }
                *remaining -= bytes;
                if *remaining == 0 {
                    self.phase = Phase::Header;
                }
                Some(bytes as usize)
            }
        }
    }
}
