//! Variables that could not be mapped where others see them: they stay in the memory of their own process.
//!
//! ```text
//!   many bytes, same node    ── the kernel copies (cross-memory attach) ──────────────────────► the variable
//!   words, and other nodes   ── active message ──► a thread of longarm in that process ───────► the variable
//!                            ◄── its answer ─────
//! ```
//!
//! The owner of a variable uses it by loads, stores and atomics as ever, and so does the thread: both are the same process.
//! A word of a put or get goes by message on the same node too, for the kernel copies bytes, and who waits for a word must
//! not see half of it. Where the system does not let a process attach to another one everything goes by message.
//!
//! Every call waits for its answer, so all is complete on return. A message overtakes what was put into windows of the same
//! PE, so that is waited for before.
//!
//! PAIR answered: the handler's swap of `is_there` and the waiting thread's load (Acquire). Who sees it sees the answer.
//!
//! If the owner dies longarm says so to who waits.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use longarm::error::{MessageError, TransferError};
use longarm::ffi::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use longarm::ffi::{ExposedForGood, OriginBytes, OriginBytesMut, Region, RegionMut, Rmw, RmwOp};
use longarm::{Message, World};
use parking_lot::Mutex;

use crate::boundary::{end, or_end};
use crate::segment::ProgramData;
use crate::word;

/// The numbers of our active messages.
const SERVE: u32 = 0x7368_6d01;
const ANSWER: u32 = 0x7368_6d02;
/// What is asked for, beside the read-modify-writes, whose numbers on the wire are below.
const PUT: u64 = 0x100;
const GET: u64 = 0x101;
/// What travels in one message.
const PIECE_BYTES: usize = 256 << 10;

/// See the module.
pub(crate) struct Away {
    world: World,
    exposed: ExposedForGood,
    /// The system does not let us attach.
    is_refused: AtomicBool,
}

/// Calls whose answers have not come, by ticket. Of the process: OpenSHMEM may start again in a world that others keep, and
/// the handlers stay with that.
static WAITING: LazyLock<Mutex<HashMap<u64, Arc<Answer>>>> = LazyLock::new(Mutex::default);
static NEXT_TICKET: AtomicU64 = AtomicU64::new(0);
/// How many bytes of the segment may be asked for.
static SERVED_BYTES: AtomicUsize = AtomicUsize::new(0);

#[derive(Default)]
struct Answer {
    is_there: AtomicBool,
    content: Mutex<(u64, Vec<u8>)>,
}

/// A request as it arrives.
struct Request<'a> {
    ticket: u64,
    what: u64,
    start: *mut u8,
    bytes: usize,
    operands: (u64, u64),
    payload: &'a [u8],
}

/// In a world in which OpenSHMEM was started before its handlers are there.
fn registered(name: &'static str, outcome: Result<(), MessageError>) {
    match outcome {
        Ok(()) | Err(MessageError::HandlerExists { .. }) => {}
        Err(error) => end(name, error),
    }
}

impl Away {
    /// Collective. `stays`: this PE's own variables do.
    pub(crate) fn new(name: &'static str, world: &World, segment: &ProgramData, stays: bool) -> Away {
        let (start, bytes) = (segment.start, if stays { segment.bytes() } else { 0 });
        let memory: *mut u8 = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the writable segment of the main program, which stays as long as the process. Programs in C have no
        // references, and this library makes none to it.
        let memory = unsafe { RegionMut::from_raw(memory, bytes) };
        // Before the exchange behind which the others ask.
        SERVED_BYTES.store(bytes, Ordering::Release);
        let serving = world.clone();
        let served = world.register_handler(SERVE, move |message| match Request::decode(message, start) {
            Some(request) => {
                let (value, content) = request.serve(name);
                serving.notify(serving.rank());
                // If it cannot be told it is lost, and longarm says so to it.
                let _ = message.reply(ANSWER, &[request.ticket, value], &content);
            }
            None => end(
                name,
                format_args!(
                    "PE {} has asked for bytes that are not among this PE's variables; do both run the same program?",
                    message.source()
                ),
            ),
        });
        registered(name, served);
        let ringing = world.clone();
        let told = world.register_handler(ANSWER, move |message| {
            let &[ticket, value] = message.arguments() else { return };
            let Some(answer) = WAITING.lock().remove(&ticket) else { return };
            *answer.content.lock() = (value, message.payload().to_vec());
            // PAIR answered. The swap is the read-modify-write that `ring` asks for.
            answer.is_there.swap(true, Ordering::SeqCst);
            ringing.notify(ringing.rank());
        });
        registered(name, told);
        let exposed = or_end(name, world.expose_for_good_collective(memory));
        Away { world: world.clone(), exposed, is_refused: AtomicBool::new(false) }
    }

    /// Writes bytes. They are there on return.
    pub(crate) fn put(&self, name: &'static str, (rank, offset): (u32, u64), source: Region<'_>) {
        let bytes = source.len();
        if !is_word(offset, bytes)
            && self.attaches(name, rank, |exposed| exposed.put(rank, offset, OriginBytes::from_region(source)))
        {
            return;
        }
        for at in (0..bytes).step_by(PIECE_BYTES) {
            let mut piece = vec![0; PIECE_BYTES.min(bytes - at)];
            source.slice(at, piece.len()).copy_to_slice(&mut piece);
            let at = offset + at as u64;
            self.ask(name, rank, (PUT, at, piece.len() as u64), (0, 0), &piece);
        }
    }

    /// Reads bytes.
    pub(crate) fn get(&self, name: &'static str, (rank, offset): (u32, u64), target: RegionMut<'_>) {
        let bytes = target.len();
        // SAFETY: a region, which is writable by its contract.
        let into = unsafe { OriginBytesMut::from_raw(target.as_mut_ptr(), bytes) };
        if !is_word(offset, bytes) && self.attaches(name, rank, |exposed| exposed.get(rank, offset, into)) {
            return;
        }
        for at in (0..bytes).step_by(PIECE_BYTES) {
            let piece = PIECE_BYTES.min(bytes - at);
            let (_, content) = self.ask(name, rank, (GET, offset + at as u64, piece as u64), (0, 0), &[]);
            if content.len() != piece {
                end(name, format_args!("PE {rank} has answered with {} bytes in place of {piece}", content.len()));
            }
            target.slice(at, piece).copy_from_slice(&content);
        }
    }

    /// Updates a word; its old value.
    pub(crate) fn rmw(&self, name: &'static str, (rank, offset): (u32, u64), rmw: Rmw) -> u64 {
        let Rmw { op, width, operand, compare } = rmw;
        self.ask(name, rank, (u64::from(op.to_wire()), offset, width.bytes() as u64), (operand, compare), &[]).0
    }

    /// Has the kernel copy, if the PE is on this node and the system lets it.
    fn attaches(
        &self,
        name: &'static str,
        rank: u32,
        copy: impl FnOnce(&ExposedForGood) -> Result<(), TransferError>,
    ) -> bool {
        if !self.world.shares_memory_with(rank) || self.is_refused.load(Ordering::Relaxed) {
            return false;
        }
        // What was stored before is seen by who sees what the kernel writes.
        fence(Ordering::SeqCst);
        match copy(&self.exposed) {
            Ok(()) => true,
            Err(TransferError::Unattachable { .. }) => {
                self.is_refused.store(true, Ordering::Relaxed);
                false
            }
            Err(error) => end(name, error),
        }
    }

    /// Asks the PE, and waits for what it answers.
    fn ask(
        &self,
        name: &'static str,
        rank: u32,
        (what, offset, bytes): (u64, u64, u64),
        (operand, compare): (u64, u64),
        payload: &[u8],
    ) -> (u64, Vec<u8>) {
        if !self.world.shares_memory_with(rank) {
            or_end(name, self.world.quiet_rank(rank));
        }
        let ticket = NEXT_TICKET.fetch_add(1, Ordering::Relaxed);
        let answer: Arc<Answer> = Arc::default();
        WAITING.lock().insert(ticket, Arc::clone(&answer));
        let arguments = [ticket, what, offset, bytes, operand, compare];
        or_end(name, self.world.send_message(rank, SERVE, &arguments, payload));
        // PAIR answered.
        let is_there = || answer.is_there.load(Ordering::Acquire).then_some(());
        or_end(name, self.world.wait_for_words(is_there));
        std::mem::take(&mut *answer.content.lock())
    }
}

/// Whether bytes are one word, which is written and read at once.
fn is_word(offset: u64, bytes: usize) -> bool {
    matches!(bytes, 1 | 2 | 4 | 8) && offset.is_multiple_of(bytes as u64)
}

impl Request<'_> {
    /// `None`: it is not inside of the segment, or no request at all.
    fn decode<'a>(message: &'a Message<'_>, start: usize) -> Option<Request<'a>> {
        let &[ticket, what, offset, bytes, operand, compare] = message.arguments() else { return None };
        let (offset, bytes) = (usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?);
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= SERVED_BYTES.load(Ordering::Acquire));
        let is_whole = match what {
            PUT => message.payload().len() == bytes,
            GET => bytes <= PIECE_BYTES,
            _ => matches!(bytes, 4 | 8) && offset.is_multiple_of(bytes),
        };
        // What is outside is refused below.
        let start = std::ptr::with_exposed_provenance_mut(start.wrapping_add(offset));
        let operands = (operand, compare);
        (is_inside && is_whole).then(|| Request { ticket, what, start, bytes, operands, payload: message.payload() })
    }

    /// Does it, in the memory of this process: a value, and bytes, to answer with.
    fn serve(&self, name: &'static str) -> (u64, Vec<u8>) {
        // SAFETY: `decode` has seen that the bytes are inside of the segment; see `Away::new`.
        let memory = unsafe { RegionMut::from_raw(self.start, self.bytes) };
        match self.what {
            PUT if is_word(self.start.addr() as u64, self.bytes) => self.store(),
            PUT => memory.copy_from_slice(self.payload),
            GET => {
                let mut content = vec![0; self.bytes];
                if is_word(self.start.addr() as u64, self.bytes) {
                    content.copy_from_slice(&self.load().to_le_bytes()[..self.bytes]);
                } else {
                    memory.copy_to_slice(&mut content);
                }
                return (0, content);
            }
            what => {
                let op = u8::try_from(what).ok().and_then(RmwOp::from_wire);
                let Some(op) = op else { end(name, format_args!("there is no operation {what}")) };
                // SAFETY: `decode` has looked at place and width, and segments begin at pages.
                return (
                    unsafe { word::rmw_here(self.start, self.bytes, op, self.operands.0, self.operands.1) },
                    Vec::new(),
                );
            }
        }
        // Before whoever sleeps on it is woken.
        fence(Ordering::SeqCst);
        (0, Vec::new())
    }

    /// Writes the payload, which is a word, at once.
    fn store(&self) {
        let mut value = [0; 8];
        value[..self.bytes].copy_from_slice(self.payload);
        let value = u64::from_le_bytes(value);
        match self.bytes {
            // SAFETY: inside of the segment and aligned; others use it by single stores and loads.
            1 => unsafe { self.start.write_volatile(value as u8) },
            // SAFETY: as above.
            2 => unsafe { self.start.cast::<u16>().write_volatile(value as u16) },
            // SAFETY: as above.
            4 => unsafe { AtomicU32::from_ptr(self.start.cast()) }.store(value as u32, Ordering::Release),
            // SAFETY: as above.
            _ => unsafe { AtomicU64::from_ptr(self.start.cast()) }.store(value, Ordering::Release),
        }
    }

    /// Reads a word at once.
    fn load(&self) -> u64 {
        match self.bytes {
            // SAFETY: as in `store`.
            1 => u64::from(unsafe { self.start.read_volatile() }),
            // SAFETY: as in `store`.
            2 => u64::from(unsafe { self.start.cast::<u16>().read_volatile() }),
            // SAFETY: as in `store`.
            4 => u64::from(unsafe { AtomicU32::from_ptr(self.start.cast()) }.load(Ordering::Acquire)),
            // SAFETY: as in `store`.
            _ => unsafe { AtomicU64::from_ptr(self.start.cast()) }.load(Ordering::Acquire),
        }
    }
}
