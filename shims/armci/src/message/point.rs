//! Messages between two processes, and who this process is.

use std::ffi::{c_char, c_double, c_int, c_void};

use super::numbers::count_at;
use crate::boundary::{call_joined, end_with, end_with_status};
use crate::groups::give;
use crate::job::Job;
use crate::join;
use crate::refusal::{Done, Refusal};
use crate::start::exit_status;

/// Where a message is put.
struct ReceiveBuffer {
    buffer: *mut c_void,
    buffer_bytes: c_int,
    /// Gets how long it was, unless null.
    length: *mut c_int,
}

/// Tags of programs are 32 bits wide.
fn wide(tag: c_int) -> u64 {
    u64::from(tag as u32)
}

fn process(job: &Job, number: c_int) -> Done<u32> {
    job.rank(number).map_err(|_| Refusal::fatal(format!("there is no process {number}")))
}

/// Sends a message. On return the buffer may be reused.
///
/// # Safety
/// `buffer` is readable for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_snd(tag: c_int, buffer: *mut c_void, len: c_int, to: c_int) {
    call_joined("armci_msg_snd", |job| {
        let mut body = vec![0; count_at(buffer, len)?];
        let rank = process(job, to)?;
        // SAFETY: as many bytes as this function's contract says are readable.
        unsafe { std::ptr::copy_nonoverlapping(buffer.cast::<u8>(), body.as_mut_ptr(), body.len()) };
        Ok(job.world.send_tagged(rank, wide(tag), &body)?)
    });
}

/// Waits for a message with this tag of one process. One that is too long for the buffer ends the job.
///
/// # Safety
/// `buffer` is writable for `buflen` bytes; `msglen` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_rcv(
    tag: c_int,
    buffer: *mut c_void,
    buflen: c_int,
    msglen: *mut c_int,
    from: c_int,
) {
    call_joined("armci_msg_rcv", |job| {
        let place = ReceiveBuffer { buffer, buffer_bytes: buflen, length: msglen };
        let from = process(job, from)?;
        // SAFETY: this function's own contract.
        unsafe { receive(job, Some(from), tag, place) }
    });
}

/// Waits for a message with this tag of any process, and says whose it was.
///
/// # Safety
/// As [`armci_msg_rcv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_rcvany(tag: c_int, buffer: *mut c_void, buflen: c_int, msglen: *mut c_int) -> c_int {
    call_joined("armci_msg_rcvany", |job| {
        let place = ReceiveBuffer { buffer, buffer_bytes: buflen, length: msglen };
        // SAFETY: this function's own contract.
        unsafe { receive(job, None, tag, place) }
    })
}

/// # Safety
/// The place is writable.
unsafe fn receive(job: &Job, from: Option<u32>, tag: c_int, place: ReceiveBuffer) -> Done<c_int> {
    let room_bytes = count_at(place.buffer, place.buffer_bytes)?;
    let (source, body) = job.world.receive_tagged(from, wide(tag))?;
    if body.len() > room_bytes {
        return Err(Refusal::fatal(format!(
            "a message of {} bytes with tag {tag} from process {source} does not fit into {room_bytes}",
            body.len()
        )));
    }
    // SAFETY: the body is not longer than the buffer, which is writable by this function's contract.
    unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), place.buffer.cast::<u8>(), body.len()) };
    if !place.length.is_null() {
        // SAFETY: not null, and this function's own contract.
        unsafe { give(place.length, body.len() as c_int) }?;
    }
    Ok(source as c_int)
}

/// The number of this process in the world.
#[unsafe(no_mangle)]
pub extern "C" fn armci_msg_me() -> c_int {
    join::rank_and_size().0 as c_int
}

/// How many processes the world has.
#[unsafe(no_mangle)]
pub extern "C" fn armci_msg_nproc() -> c_int {
    join::rank_and_size().1 as c_int
}

/// Joins the job, and starts MPI if the program was started by it and has not done so. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn armci_msg_init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) {
    if let Err(fault) = join::join_messages() {
        end_with("armci_msg_init", fault);
    }
}

/// Leaves the job, and ends MPI if `armci_msg_init` has started it. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn armci_msg_finalize() {
    if let Err(fault) = join::leave_messages() {
        end_with("armci_msg_finalize", fault);
    }
}

/// Ends the whole job.
#[unsafe(no_mangle)]
pub extern "C" fn armci_msg_abort(code: c_int) {
    end_with_status(&format!("armci_msg_abort: the program gives up with code {code}"), exit_status(code));
}

/// Seconds since some moment in the past.
#[unsafe(no_mangle)]
pub extern "C" fn armci_timer() -> c_double {
    longarm::ffi::elapsed_s()
}
