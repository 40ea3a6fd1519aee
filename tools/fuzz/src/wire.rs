//! A network in memory whose every cut the fuzzer chooses.
//!
//! Unlike `sim` it throws no dice: a call moves what it can, at most a piece. So an input means one run, and a round in
//! which nothing moved is rest.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{Capabilities, Link, LinkError, Listener, Netmod};

/// A pipe that takes all it is given.
pub(crate) const UNBOUNDED_BYTES: usize = usize::MAX;
/// So many bytes of a direction go through a pipe that may be narrow; behind them it is [`WIDE_BYTES`] wide at least,
/// lest a long stream take for ever.
const NARROW_BYTES: u64 = 1 << 10;
const WIDE_BYTES: usize = 16 << 10;

/// The bytes of one direction.
struct Pipe {
    bytes: VecDeque<u8>,
    capacity_bytes: usize,
    piece_bytes: usize,
    moved_bytes: u64,
    writer_gone: bool,
    reader_gone: bool,
    broken: bool,
}

/// Takes bytes from the front in one piece. A fuzzer counts every comparison, so that a loop over bytes costs far more
/// than a copy.
pub(crate) fn take_front(bytes: &mut VecDeque<u8>, count: usize) -> Vec<u8> {
    let (front, back) = bytes.as_slices();
    let of_front = count.min(front.len());
    let taken = [&front[..of_front], &back[..count - of_front]].concat();
    bytes.drain(..count);
    taken
}

/// Bytes that count up from the first one.
pub(crate) fn ramp(first: u8, bytes: usize) -> Vec<u8> {
    const PERIOD: usize = 256;
    const TWICE: [u8; 2 * PERIOD] = {
        let mut twice = [0; 2 * PERIOD];
        let mut at = 0;
        while at < twice.len() {
            twice[at] = at as u8;
            at += 1;
        }
        twice
    };
    let period = &TWICE[usize::from(first)..usize::from(first) + PERIOD];
    let mut ramp = period.repeat(bytes.div_ceil(PERIOD));
    ramp.truncate(bytes);
    ramp
}

impl Pipe {
    /// A bound of this pipe as it is now.
    fn bound(&self, narrow_bytes: usize) -> usize {
        if self.moved_bytes < NARROW_BYTES { narrow_bytes } else { narrow_bytes.max(WIDE_BYTES) }
    }
}

/// One end of a link.
pub(crate) struct End {
    /// What the other end has sent.
    incoming: Arc<Mutex<Pipe>>,
    /// What this end has sent.
    outgoing: Arc<Mutex<Pipe>>,
}

/// Two ends: the caller's, which sends without a bound, and the called one's, whose pipe takes `capacity_bytes`. Both
/// receive at most `piece_bytes` a call.
pub(crate) fn link(piece_bytes: usize, capacity_bytes: usize) -> (End, End) {
    let pipe = |capacity_bytes| {
        Arc::new(Mutex::new(Pipe {
            bytes: VecDeque::new(),
            capacity_bytes,
            piece_bytes,
            moved_bytes: 0,
            writer_gone: false,
            reader_gone: false,
            broken: false,
        }))
    };
    let (requests, replies) = (pipe(UNBOUNDED_BYTES), pipe(capacity_bytes));
    let caller = End { incoming: Arc::clone(&replies), outgoing: Arc::clone(&requests) };
    (caller, End { incoming: requests, outgoing: replies })
}

fn hold(pipe: &Mutex<Pipe>) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

impl End {
    /// Sends all of it. Nobody hears what a link says that the other end has left.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        let mut pipe = hold(&self.outgoing);
        if !pipe.broken && !pipe.reader_gone {
            pipe.bytes.extend(bytes);
        }
    }

    /// Everything that has come, in one go.
    pub(crate) fn hear(&mut self) -> Vec<u8> {
        let mut pipe = hold(&self.incoming);
        let count = pipe.bytes.len();
        pipe.moved_bytes += count as u64;
        take_front(&mut pipe.bytes, count)
    }

    /// The other end has gone.
    pub(crate) fn is_left(&self) -> bool {
        hold(&self.incoming).writer_gone
    }

    /// Something that was said has not been heard, and could be.
    pub(crate) fn has_unheard(&self) -> bool {
        let pipe = hold(&self.outgoing);
        !pipe.reader_gone && !pipe.broken && !pipe.bytes.is_empty()
    }

    /// The other end reads what was said, and then the end of the stream.
    pub(crate) fn hang_up_behind(&mut self) {
        hold(&self.outgoing).writer_gone = true;
    }

    /// Both ends find the link reset, and what was under way is lost.
    pub(crate) fn reset(&mut self) {
        for pipe in [&self.incoming, &self.outgoing] {
            let mut pipe = hold(pipe);
            pipe.broken = true;
            pipe.bytes.clear();
        }
    }
}

impl Link for End {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let mut pipe = hold(&self.outgoing);
        if pipe.broken {
            return Err(LinkError::Reset);
        }
        if pipe.reader_gone {
            return Err(LinkError::Closed);
        }
        let capacity_bytes = pipe.bound(pipe.capacity_bytes);
        let mut sent = 0;
        for region in regions {
            let bytes = region.len().min(capacity_bytes - pipe.bytes.len());
            let mut copy = vec![0; bytes];
            region.slice(0, bytes).copy_to_slice(&mut copy);
            pipe.bytes.extend(copy);
            sent += bytes;
        }
        Ok(sent)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        let mut pipe = hold(&self.incoming);
        if pipe.broken {
            return Err(LinkError::Reset);
        }
        if pipe.bytes.is_empty() && pipe.writer_gone {
            return Err(LinkError::Closed);
        }
        let mut open = pipe.bound(pipe.piece_bytes).min(pipe.bytes.len());
        let mut got = 0;
        for region in regions {
            let bytes = open.min(region.len());
            region.slice(0, bytes).copy_from_slice(&take_front(&mut pipe.bytes, bytes));
            open -= bytes;
            got += bytes;
        }
        pipe.moved_bytes += got as u64;
        Ok(got)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn peer_name(&self) -> &str {
        "the fuzzer"
    }
}

impl Drop for End {
    fn drop(&mut self) {
        hold(&self.outgoing).writer_gone = true;
        let mut incoming = hold(&self.incoming);
        incoming.reader_gone = true;
        incoming.bytes.clear();
    }
}

/// Where a server is called.
#[derive(Clone, Default)]
pub(crate) struct Porch(Arc<Mutex<VecDeque<End>>>);

impl Porch {
    /// A link whose other end waits to be taken in.
    pub(crate) fn call(&self, piece_bytes: usize, capacity_bytes: usize) -> End {
        let (caller, called) = link(piece_bytes, capacity_bytes);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(called);
        caller
    }
}

impl Listener for Porch {
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, LinkError> {
        let next = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        Ok(next.map(|link| Box::new(link) as Box<dyn Link>))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn address(&self) -> &str {
        "porch"
    }
}

/// A network on which every call reaches somebody who says the same and hangs up.
pub(crate) struct Scripted {
    said: Vec<u8>,
    piece_bytes: usize,
}

impl Scripted {
    pub(crate) fn new(said: &[u8], piece_bytes: usize) -> Scripted {
        Scripted { said: said.to_vec(), piece_bytes }
    }
}

/// A link that hears what was written down for it, and swallows what it is told.
struct ScriptedLink(End);

impl Netmod for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        Err(LinkError::Refused)
    }

    fn connect(&self, _address: &str) -> Result<Box<dyn Link>, LinkError> {
        let (caller, mut called) = link(self.piece_bytes, UNBOUNDED_BYTES);
        called.say(&self.said);
        drop(called);
        Ok(Box::new(ScriptedLink(caller)))
    }
}

impl Link for ScriptedLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        Ok(regions.iter().map(Region::len).sum())
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        self.0.receive(regions)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn peer_name(&self) -> &str {
        "the fuzzer"
    }
}
