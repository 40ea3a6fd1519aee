//! A mock of a system that starts no thread, and of a device that has no room for a second request: it takes the first one of each chain, and refuses the others.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::OnceLock;

use rdma_sys::{ibv_qp, ibv_send_wr};
use rustix::io::Errno;

use super::Domain;

type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32;

thread_local! {
    static REFUSES_THREADS: Cell<bool> = const { Cell::new(false) };
    static POSTS_LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// Of what the calling thread posts from now on, a device that is mocked takes so much.
pub(crate) fn refuse_posts_after(count: u32) {
    POSTS_LEFT.set(count);
}

/// From now on the system starts no thread for the calling one.
pub(crate) fn refuse_threads() {
    REFUSES_THREADS.set(true);
}

pub(crate) fn refuses_threads() -> bool {
    REFUSES_THREADS.get()
}

/// What the device's library does.
static REAL: OnceLock<PostSend> = OnceLock::new();

/// From now on the device of this domain takes one request at a time. Nobody posts meanwhile.
pub(crate) fn takes_one_of_a_chain(domain: &Domain) {
    let context = domain.context.raw.as_ptr();
    // SAFETY: the context is open, and the table is written when it was opened, and here.
    let real = unsafe { (*context).ops.post_send };
    REAL.get_or_init(|| real.expect("a device takes requests"));
    // SAFETY: as above; the caller sees to it that nobody reads the table now.
    unsafe { (*context).ops.post_send = Some(mock_post_send) };
}

unsafe extern "C" fn mock_post_send(queue: *mut ibv_qp, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> i32 {
    let real = REAL.get().expect("it was noted before this was put in its place");
    let left = POSTS_LEFT.get();
    POSTS_LEFT.set(left.saturating_sub(1));
    if left == 0 {
        // SAFETY: the caller gives a place for it.
        unsafe { *bad = first };
        return Errno::NOMEM.raw_os_error();
    }
    // SAFETY: the caller hands over a chain that is its own until we return.
    let others = unsafe { (*first).next };
    // SAFETY: as above.
    unsafe { (*first).next = std::ptr::null_mut() };
    // SAFETY: a chain of one, and all else is as the caller has it.
    let taken = unsafe { real(queue, first, bad) };
    // SAFETY: as above.
    unsafe { (*first).next = others };
    if taken != 0 || NonNull::new(others).is_none() {
        return taken;
    }
    // SAFETY: the caller gives a place for it.
    unsafe { *bad = others };
    Errno::NOMEM.raw_os_error()
}
