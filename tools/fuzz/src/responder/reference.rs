//! What a server owes for the bytes that a connection has sent: read once more, by the same decoder, and judged by the
//! rules of the wire alone.

use longarm_proto::{Cursor, HEADER_BYTES, Refusal, Request, RequestHeader, Responder, Shape, WindowRef};

use crate::node::{Name, PARTS, RANKS};

/// The windows that are there: everybody's, and the one that only the friend asks for.
pub(crate) const OPEN: Name = Name::new(7, 3, 0x1122_3344_5566_7788);
pub(crate) const OF_FRIEND: Name = Name::new(9, 1, 0x99aa_bbcc_ddee_ff00);
/// One that was there.
pub(crate) const FREED: Name = Name::new(8, 1, 5);
pub(crate) const LIVE: [Name; 2] = [OPEN, OF_FRIEND];

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
        Request::Lock { target, offset } | Request::TryLock { target, offset } | Request::Unlock { target, offset } => {
            Ok(vec![word(target, *offset, 4)?])
        }
        Request::Message { target, .. } if !RANKS.contains(target) => Err(Refusal::NotThisNode),
        Request::Message { .. } | Request::Quiet => Ok(Vec::new()),
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

/// What the next bytes of a stream are.
enum Stage {
    Header,
    Descriptor(RequestHeader),
    Payload { remaining: u64, of_message: bool },
}

/// A connection's bytes, read as the server has to read them.
pub(crate) struct Stream {
    responder: Responder,
    unread: Vec<u8>,
    stage: Stage,
    /// The peer broke the protocol: nothing behind counts.
    pub(crate) is_violated: bool,
    /// The bytes of messages for the rank that lives.
    pub(crate) mail: Vec<u8>,
}

impl Stream {
    pub(crate) fn new() -> Stream {
        Stream {
            responder: Responder::new(),
            unread: Vec::new(),
            stage: Stage::Header,
            is_violated: false,
            mail: Vec::new(),
        }
    }

    /// Takes what is sent. Each request that is understood now is told, before its payload has come.
    pub(crate) fn take(&mut self, bytes: &[u8], mut on_request: impl FnMut(&Request)) {
        self.unread.extend_from_slice(bytes);
        let mut at = 0;
        while !self.is_violated {
            let Some(used) = self.step(at, &mut on_request) else { break };
            at += used;
        }
        self.unread.drain(..at);
    }

    /// One step from the byte at this place, and how many it took. `None`: more has to come, or nothing counts now.
    fn step(&mut self, at: usize, on_request: &mut impl FnMut(&Request)) -> Option<usize> {
        let rest = &self.unread[at..];
        match &mut self.stage {
            Stage::Header => {
                let bytes = rest.first_chunk::<HEADER_BYTES>()?;
                match self.responder.handle_header(bytes) {
                    Ok(header) => self.stage = Stage::Descriptor(header),
                    Err(_) => self.is_violated = true,
                }
                Some(HEADER_BYTES)
            }
            Stage::Descriptor(header) => {
                let header = *header;
                let descriptor = rest.get(..header.descriptor_bytes())?;
                let Ok(request) = self.responder.finish(&header, descriptor) else {
                    self.is_violated = true;
                    return None;
                };
                let of_message = matches!(request, Request::Message { target, .. } if target == RANKS[0]);
                self.stage = Stage::Payload { remaining: header.payload_bytes(), of_message };
                on_request(&request);
                Some(header.descriptor_bytes())
            }
            Stage::Payload { remaining, of_message } => {
                let bytes = (*remaining).min(rest.len() as u64);
                if bytes < *remaining && rest.is_empty() {
                    return None;
                }
                if *of_message {
                    self.mail.extend_from_slice(&rest[..bytes as usize]);
                }
                *remaining -= bytes;
                if *remaining == 0 {
                    self.stage = Stage::Header;
                }
                Some(bytes as usize)
            }
        }
    }
}
