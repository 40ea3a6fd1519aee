//! Global procedure calls: a function of the program runs at another process and answers.
//!
//! ```text
//!   ARMCI_Gpc_exec ── active message ──► queue ─► longarm-gpc thread ─► the program's function
//!        ▲                                                                      │
//!        └───────────────────── message with the call's tag ────────────────────┘
//! ```
//!
//! Functions run one at a time on a thread of their own, whatever the process computes, so they may lock and transfer
//! as any other code. One thing they cannot do is to call a function of their own process and wait for it.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, mpsc};

use longarm::Message;
use longarm::ffi::sync::{AtomicU64, Ordering};
use parking_lot::Mutex;

use crate::arguments::not_null;
use crate::boundary::{call, call_or_end, end};
use crate::job::Job;
use crate::mutex_sets::Set;
use crate::refusal::{Done, Refusal};

/// A function as programs register it. It gets the call's header and data, and gives back a header and data with the
/// sizes that they have.
pub type CFunction = unsafe extern "C" fn(
    to: c_int,
    from: c_int,
    hdr: *mut c_void,
    hlen: c_int,
    data: *mut c_void,
    dlen: c_int,
    rhdr: *mut c_void,
    rhlen: c_int,
    rhsize: *mut c_int,
    rdata: *mut c_void,
    rdlen: c_int,
    rdsize: *mut c_int,
    rtype: c_int,
) -> c_int;

/// What a function is asked for: to begin.
const BEGIN: c_int = 1;
/// To finish what it said is not finished yet.
const FINISH: c_int = 3;
/// What it answers when it is done.
const DONE: c_int = 4;

/// How many functions there can be at a time.
const FUNCTIONS_MAX: usize = 32;
/// Numbers of functions begin here and go down.
const FIRST_NUMBER: c_int = -100;
/// Headers are shorter than this.
const HEADER_BYTES_LIMIT: c_int = 64 << 10;
/// Data is shorter than this.
const DATA_BYTES_LIMIT: c_int = 1 << 20;
/// What a call answers that could not be made.
const REFUSED: c_int = -1;

/// The number of our active message.
const HANDLER: u32 = 0x6770_6301;
/// Answers travel with tags from here on, which programs cannot give: theirs have 32 bits.
const FIRST_TAG: u64 = 1 << 40;

/// `gpc_hdl_t`.
#[repr(C)]
pub struct CGpcHandle {
    proc: c_int,
    /// The call's tag, 0 for none; as long as the handle of a transfer.
    tag: u64,
    reserved: [u64; 3],
}

const _: () = assert!(size_of::<CGpcHandle>() == 8 + size_of::<crate::data::handles::CHandle>());

/// A call as it arrives.
struct Call {
    source: u32,
    tag: u64,
    slot: usize,
    header: Vec<u8>,
    data: Vec<u8>,
    answer_header_bytes: usize,
    answer_data_bytes: usize,
}

/// Where an answer goes, in C memory.
#[derive(Clone, Copy)]
struct Answer {
    proc: u32,
    header: *mut c_void,
    header_bytes: usize,
    data: *mut c_void,
    data_bytes: usize,
}

// SAFETY: the pointers are used only by the call that waits for the answer, whose contract covers them.
unsafe impl Send for Answer {}

/// The calls of one job.
struct Calls {
    job: &'static Job,
    functions: Mutex<[Option<CFunction>; FUNCTIONS_MAX]>,
    /// One at every process.
    mutexes: Set,
    next_tag: AtomicU64,
    /// Calls that are waited for later.
    open: Mutex<HashMap<u64, Answer>>,
}

static CALLS: Mutex<Option<Arc<Calls>>> = Mutex::new(None);

/// The calls of this job, once a function was registered.
fn calls(job: &Job) -> Done<Arc<Calls>> {
    let calls = CALLS.lock().clone().filter(|calls| std::ptr::eq(calls.job, job));
    calls.ok_or_else(|| Refusal::fatal("ARMCI_Gpc_register comes first"))
}

/// The same, made if need be. Collective the first time.
fn prepare(job: &'static Job) -> Done<Arc<Calls>> {
    if let Ok(calls) = calls(job) {
        return Ok(calls);
    }
    let made = Arc::new(Calls {
        job,
        functions: Mutex::new([None; FUNCTIONS_MAX]),
        mutexes: Set::make(job.world.group(), 1)?,
        next_tag: AtomicU64::new(FIRST_TAG),
        open: Mutex::default(),
    });
    let (sender, receiver) = mpsc::channel::<Call>();
    let serving = Arc::clone(&made);
    let thread = std::thread::Builder::new().name("longarm-gpc".into());
    let started = thread.spawn(move || receiver.iter().for_each(|call| serving.serve(&call)));
    started.map_err(|error| Refusal::fatal(format!("cannot start a thread: {error}")))?;
    *CALLS.lock() = Some(Arc::clone(&made));
    job.world.register_handler(HANDLER, move |message| {
        let Some(call) = Call::decode(message) else {
            end("ARMCI_Gpc_exec", &format!("process {} has sent what is no call", message.source()))
        };
        // The thread receives as long as this handler is there.
        let _ = sender.send(call);
    })?;
    Ok(made)
}

/// A length that another process has sent, if it is one that `ARMCI_Gpc_exec` sends.
fn below(bytes: u64, limit: c_int) -> Option<usize> {
    let bytes = c_int::try_from(bytes).ok().filter(|bytes| *bytes < limit)?;
    usize::try_from(bytes).ok()
}

/// An answer taken apart, if it fits into so many bytes of a header and of data.
fn parts_of(body: &[u8], header_bytes_max: usize, data_bytes_max: usize) -> Option<(&[u8], &[u8])> {
    let (header_bytes, rest) = body.split_first_chunk()?;
    let header_bytes = usize::try_from(u64::from_le_bytes(*header_bytes)).ok()?;
    let (header, data) = rest.split_at_checked(header_bytes)?;
    (header.len() <= header_bytes_max && data.len() <= data_bytes_max).then_some((header, data))
}

impl Call {
    fn decode(message: &Message<'_>) -> Option<Call> {
        let [tag, slot, header_bytes, answer_header_bytes, answer_data_bytes] = *message.arguments() else {
            return None;
        };
        let (header, data) = message.payload().split_at_checked(usize::try_from(header_bytes).ok()?)?;
        Some(Call {
            source: message.source(),
            tag,
            slot: usize::try_from(slot).ok().filter(|slot| *slot < FUNCTIONS_MAX)?,
            header: below(header.len() as u64, HEADER_BYTES_LIMIT).map(|_| header.to_vec())?,
            data: below(data.len() as u64, DATA_BYTES_LIMIT).map(|_| data.to_vec())?,
            answer_header_bytes: below(answer_header_bytes, HEADER_BYTES_LIMIT)?,
            answer_data_bytes: below(answer_data_bytes, DATA_BYTES_LIMIT)?,
        })
    }
}

/// Bytes at an address that suits every type of C.
struct Aligned {
    words: Vec<u128>,
    bytes: usize,
}

impl Aligned {
    fn zeros(bytes: usize) -> Aligned {
        Aligned { words: vec![0; bytes.div_ceil(size_of::<u128>())], bytes }
    }

    fn copy_of(bytes: &[u8]) -> Aligned {
        let mut copy = Aligned::zeros(bytes.len());
        for (word, part) in copy.words.iter_mut().zip(bytes.chunks(size_of::<u128>())) {
            let mut whole = [0; size_of::<u128>()];
            whole[..part.len()].copy_from_slice(part);
            *word = u128::from_ne_bytes(whole);
        }
        copy
    }

    fn pointer(&mut self) -> *mut c_void {
        self.words.as_mut_ptr().cast()
    }

    /// The first `bytes` of them.
    fn prefix(&self, bytes: usize) -> impl Iterator<Item = u8> + '_ {
        self.words.iter().flat_map(|word| word.to_ne_bytes()).take(bytes.min(self.bytes))
    }
}

impl Calls {
    /// Runs a call and sends the answer.
    fn serve(&self, call: &Call) {
        let function = self.functions.lock().get(call.slot).copied().flatten();
        let Some(function) = function else {
            let number = FIRST_NUMBER - call.slot as c_int;
            end("ARMCI_Gpc_exec", &format!("process {} calls function {number}, which is not here", call.source))
        };
        let (mut header, mut data) = (Aligned::copy_of(&call.header), Aligned::copy_of(&call.data));
        let mut answer_header = Aligned::zeros(call.answer_header_bytes);
        let mut answer_data = Aligned::zeros(call.answer_data_bytes);
        // Until the function says how long they are, they are as long as they may be.
        let mut header_bytes = call.answer_header_bytes as c_int;
        let mut data_bytes = call.answer_data_bytes as c_int;
        let mut run = |what| {
            // SAFETY: the program has registered the function for arguments like these; each pointer is good for the
            // length behind it, and nobody else has the memory.
            unsafe {
                function(
                    self.job.world.rank() as c_int,
                    call.source as c_int,
                    header.pointer(),
                    call.header.len() as c_int,
                    data.pointer(),
                    call.data.len() as c_int,
                    answer_header.pointer(),
                    call.answer_header_bytes as c_int,
                    &raw mut header_bytes,
                    answer_data.pointer(),
                    call.answer_data_bytes as c_int,
                    &raw mut data_bytes,
                    what,
                )
            }
        };
        if run(BEGIN) != DONE {
            // Asked to finish, a function comes back when it has.
            run(FINISH);
        }
        let size = |found: c_int, most: usize| usize::try_from(found).unwrap_or(0).min(most);
        let header_bytes = size(header_bytes, call.answer_header_bytes);
        let data_bytes = size(data_bytes, call.answer_data_bytes);
        let mut body = (header_bytes as u64).to_le_bytes().to_vec();
        body.extend(answer_header.prefix(header_bytes));
        body.extend(answer_data.prefix(data_bytes));
        if let Err(error) = self.job.world.send_tagged(call.source, call.tag, &body) {
            tracing::warn!("the answer to a global procedure call could not be sent: {error}");
        }
    }

    /// Waits for an answer and puts it where it belongs.
    ///
    /// # Safety
    /// The answer's memory is writable.
    unsafe fn finish(&self, tag: u64, answer: Answer) -> Done {
        let (_, body) = self.job.world.receive_tagged(Some(answer.proc), tag)?;
        let (header, data) = parts_of(&body, answer.header_bytes, answer.data_bytes).ok_or_else(|| {
            let (proc, bytes) = (answer.proc, body.len());
            Refusal::fatal(format!("process {proc} has answered with {bytes} bytes that are no answer to the call"))
        })?;
        // SAFETY: not longer than the memory, which is writable by this function's contract.
        unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), answer.header.cast(), header.len()) };
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), answer.data.cast(), data.len()) };
        Ok(())
    }

    fn slot(number: c_int) -> Option<usize> {
        let slot = FIRST_NUMBER.checked_sub(number).and_then(|slot| usize::try_from(slot).ok())?;
        (slot < FUNCTIONS_MAX).then_some(slot)
    }
}

/// Says why a call was not made.
fn refuse(text: &str) -> Refusal {
    eprintln!("longarm: ARMCI_Gpc_exec: {text}");
    Refusal::Code(REFUSED)
}

/// A length below a limit, of bytes at `start`.
fn length(what: &str, start: *const c_void, bytes: c_int, limit: c_int) -> Done<usize> {
    if !(0..limit).contains(&bytes) {
        return Err(refuse(&format!("the {what} has {bytes} bytes, not 0 to {}", limit - 1)));
    }
    if bytes > 0 && start.is_null() {
        return Err(refuse(&format!("the {what} of {bytes} bytes is NULL")));
    }
    Ok(bytes as usize)
}

/// Makes a function known, under the same number everywhere. Collective.
///
/// # Safety
/// `func` is a function of the type [`CFunction`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_register(func: Option<CFunction>) -> c_int {
    call_or_end("ARMCI_Gpc_register", |job| {
        let func = func.ok_or_else(|| Refusal::fatal("the function is NULL"))?;
        let calls = prepare(job)?;
        let slot = {
            let mut functions = calls.functions.lock();
            let free = functions.iter().position(Option::is_none);
            let slot = free.ok_or_else(|| Refusal::fatal(format!("there are {FUNCTIONS_MAX} functions already")))?;
            functions[slot] = Some(func);
            slot
        };
        // Nobody calls it before all have it.
        job.world.barrier_collective()?;
        Ok(FIRST_NUMBER - slot as c_int)
    })
}

/// Forgets a function. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Gpc_release(handle: c_int) {
    call_or_end("ARMCI_Gpc_release", |job| {
        let calls = calls(job)?;
        // Nobody calls it any more.
        job.world.barrier_collective()?;
        let slot = Calls::slot(handle);
        let taken = slot.and_then(|slot| calls.functions.lock()[slot].take());
        taken.map(drop).ok_or_else(|| Refusal::fatal(format!("there is no function {handle}")))
    });
}

/// A pointer of a process, as a function that runs there can use it. Functions run in the process itself.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Gpc_translate(ptr: *mut c_void, _proc: c_int, _from: c_int) -> *mut c_void {
    ptr
}

/// Takes the mutex of a process that its functions share with everybody.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Gpc_lock(proc: c_int) {
    call_or_end("ARMCI_Gpc_lock", |job| calls(job)?.mutexes.lock(0, proc));
}

/// Takes it if it is free. 1 if it was, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Gpc_trylock(proc: c_int) -> c_int {
    call_or_end("ARMCI_Gpc_trylock", |job| Ok(c_int::from(calls(job)?.mutexes.try_lock(0, proc)?)))
}

/// Gives it back. What was put before is visible to whoever takes it next.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Gpc_unlock(proc: c_int) {
    call_or_end("ARMCI_Gpc_unlock", |job| calls(job)?.mutexes.unlock(&job.world, 0, proc));
}

/// Runs a function at a process. Without a handle the answer is there on return, else after `ARMCI_Gpc_wait`.
///
/// # Safety
/// `hdr` and `data` are readable for their lengths; `rhdr` and `rdata` are writable for theirs until the answer is
/// there; `nbh` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_exec(
    h: c_int,
    p: c_int,
    hdr: *mut c_void,
    hlen: c_int,
    data: *mut c_void,
    dlen: c_int,
    rhdr: *mut c_void,
    rhlen: c_int,
    rdata: *mut c_void,
    rdlen: c_int,
    nbh: *mut CGpcHandle,
) -> c_int {
    call("ARMCI_Gpc_exec", |job| {
        let calls = calls(job)?;
        let slot = Calls::slot(h).filter(|slot| calls.functions.lock()[*slot].is_some());
        let slot = slot.ok_or_else(|| refuse(&format!("there is no function {h}")))?;
        let proc = job.rank(p).map_err(|_| refuse(&format!("there is no process {p}")))?;
        let header_bytes = length("header", hdr, hlen, HEADER_BYTES_LIMIT)?;
        let data_bytes = length("data", data, dlen, DATA_BYTES_LIMIT)?;
        let answer = Answer {
            proc,
            header: rhdr,
            header_bytes: length("answer's header", rhdr, rhlen, HEADER_BYTES_LIMIT)?,
            data: rdata,
            data_bytes: length("answer's data", rdata, rdlen, DATA_BYTES_LIMIT)?,
        };
        let mut payload = vec![0; header_bytes + data_bytes];
        let (header_copy, data_copy) = payload.split_at_mut(header_bytes);
        // SAFETY: as many bytes as this function's contract says are readable.
        unsafe { std::ptr::copy_nonoverlapping(hdr.cast(), header_copy.as_mut_ptr(), header_bytes) };
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(data.cast(), data_copy.as_mut_ptr(), data_bytes) };
        let tag = calls.next_tag.fetch_add(1, Ordering::Relaxed);
        let words = [tag, slot as u64, header_bytes as u64, answer.header_bytes as u64, answer.data_bytes as u64];
        job.world.send_message(proc, HANDLER, &words, &payload)?;
        if nbh.is_null() {
            // SAFETY: this function's own contract.
            return unsafe { calls.finish(tag, answer) };
        }
        calls.open.lock().insert(tag, answer);
        // SAFETY: not null, and this function's own contract.
        unsafe { nbh.write(CGpcHandle { proc: p, tag, reserved: [0; 3] }) };
        Ok(())
    })
}

/// Headers are shorter than this.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Get_gpc_hlen() -> c_int {
    HEADER_BYTES_LIMIT
}

/// Data is shorter than this.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Get_gpc_dlen() -> c_int {
    DATA_BYTES_LIMIT
}

/// Makes a handle that names no call.
///
/// # Safety
/// `nbh` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_init_handle(nbh: *mut CGpcHandle) {
    call_or_end("ARMCI_Gpc_init_handle", |job| {
        not_null(nbh)?;
        let handle = CGpcHandle { proc: job.world.rank() as c_int, tag: 0, reserved: [0; 3] };
        // SAFETY: not null, and this function's own contract.
        unsafe { nbh.write(handle) };
        Ok(())
    });
}

/// Waits for the answer to a call. A handle that names none is no error.
///
/// # Safety
/// `nbh` was initialised; the memory for the answer is writable as it was at the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_wait(nbh: *mut CGpcHandle) {
    call_or_end("ARMCI_Gpc_wait", |job| {
        not_null(nbh)?;
        // SAFETY: not null, and this function's own contract.
        let handle = unsafe { &mut *nbh };
        let tag = std::mem::take(&mut handle.tag);
        let calls = match tag {
            0 => return Ok(()),
            _ => calls(job)?,
        };
        let answer = calls.open.lock().remove(&tag);
        match answer {
            // SAFETY: this function's own contract.
            Some(answer) => unsafe { calls.finish(tag, answer) },
            None => Ok(()),
        }
    });
}
