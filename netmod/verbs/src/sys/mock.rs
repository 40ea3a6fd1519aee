//! A mock of a system that starts no thread, of a device that does not know how far its queues have come, of a
//! peer that sends more than it may, of a device that has no room for a second request (it takes the first one of each
//! chain, and refuses the others), of one that cannot get at the memory of a long request, and of devices that say what they
//! can do with memory that is registered on demand.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::OnceLock;

use rdma_sys::{
    ibv_context, ibv_cq, ibv_device_attr_ex, ibv_qp, ibv_query_device_ex_input, ibv_send_wr, ibv_wc, ibv_wc_status,
    verbs_context,
};
use rustix::io::Errno;

use super::context::Domain;

type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32;

type PollCq = unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32;

thread_local! {
    static REFUSES_THREADS: Cell<bool> = const { Cell::new(false) };
    static SAID_OF_ENDED: Cell<Option<u32>> = const { Cell::new(None) };
    static OVERDRAWS: Cell<bool> = const { Cell::new(false) };
    static POSTS_LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// Of what the calling thread posts from now on, a device that is mocked takes so much.
pub(crate) fn refuse_posts_after(count: u32) {
    POSTS_LEFT.set(count);
}

/// From now on devices say of queues of the calling thread that have ended that this packet would have been the next.
pub(crate) fn say_of_ended_queues(packet: Option<u32>) {
    SAID_OF_ENDED.set(packet);
}

pub(crate) fn said_of_ended_queues() -> Option<u32> {
    SAID_OF_ENDED.get()
}

/// Whether connections that the calling thread makes from now on send more than their peers have buffers for.
pub(crate) fn overdraw(does: bool) {
    OVERDRAWS.set(does);
}

pub(crate) fn overdraws() -> bool {
    OVERDRAWS.get()
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
static REAL_POLL: OnceLock<PollCq> = OnceLock::new();

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

thread_local! {
    static FAILS_LONG: Cell<bool> = const { Cell::new(false) };
}

/// Whether the device of this domain, of which the calling thread makes a mock, can get at the memory of requests of 64 KiB and
/// more that this thread posts from now on. Nobody posts meanwhile.
pub(crate) fn fail_long_requests(domain: &Domain, fails: bool) {
    FAILS_LONG.set(fails);
    let context = domain.context.raw.as_ptr();
    // SAFETY: the context is open, and the table is written when it was opened, and here.
    let real = unsafe { (*context).ops.post_send };
    REAL.get_or_init(|| real.expect("a device takes requests"));
    // SAFETY: as above; the caller sees to it that nobody reads the table now.
    unsafe { (*context).ops.post_send = Some(mock_post_nothing_there) };
    // SAFETY: as above.
    let real = unsafe { (*context).ops.poll_cq };
    REAL_POLL.get_or_init(|| real.expect("a device gives completions"));
    // SAFETY: as above.
    unsafe { (*context).ops.poll_cq = Some(mock_poll_local_failure) };
}

/// Says of what fails that it was for the memory: newer kernels' soft-RoCE does not say why.
unsafe extern "C" fn mock_poll_local_failure(queue: *mut ibv_cq, room: i32, place: *mut ibv_wc) -> i32 {
    let real = REAL_POLL.get().expect("it was noted before this was put in its place");
    // SAFETY: what the caller handed over.
    let count = unsafe { real(queue, room, place) };
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: there are as many.
        let entry = unsafe { place.add(at) };
        // SAFETY: it was just written, and is the caller's.
        if FAILS_LONG.get() && unsafe { (*entry).status } != ibv_wc_status::IBV_WC_SUCCESS {
            // SAFETY: as above.
            unsafe { (*entry).status = ibv_wc_status::IBV_WC_LOC_PROT_ERR };
        }
    }
    count
}

unsafe extern "C" fn mock_post_nothing_there(
    queue: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> i32 {
    let real = REAL.get().expect("it was noted before this was put in its place");
    // SAFETY: the caller hands over a chain that is its own until we return.
    let spans = unsafe { (*first).sg_list };
    // SAFETY: as above; the list has as many.
    if FAILS_LONG.get() && unsafe { (*first).num_sge } > 0 && unsafe { (*spans).length } >= 64 << 10 {
        // A key that no memory has.
        // SAFETY: as above.
        unsafe { (*spans).lkey ^= 0x00ff_ff00 };
    }
    // SAFETY: what the caller handed over.
    unsafe { real(queue, first, bad) }
}

thread_local! {
    static SAID: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

unsafe extern "C" fn mock_query_device_ex(
    _: *mut ibv_context,
    _: *const ibv_query_device_ex_input,
    answer: *mut ibv_device_attr_ex,
    bytes: usize,
) -> i32 {
    assert_eq!(bytes, size_of::<ibv_device_attr_ex>());
    let (general, connected) = SAID.get();
    // SAFETY: the caller gives room for an answer.
    unsafe { (*answer).odp_caps.general_caps = general };
    // SAFETY: as above.
    unsafe { (*answer).odp_caps.per_transport_caps.rc_odp_caps = connected };
    0
}

fn context() -> Box<verbs_context> {
    // SAFETY: pointers to functions among zeros are none, all else are numbers and pointers.
    let mut whole: Box<verbs_context> = Box::new(unsafe { std::mem::zeroed() });
    whole.sz = size_of::<verbs_context>();
    whole.context.abi_compat = std::ptr::without_provenance_mut(usize::MAX);
    whole.query_device_ex = Some(mock_query_device_ex);
    whole
}

fn with<R>(whole: Box<verbs_context>, ask: impl FnOnce(NonNull<ibv_context>) -> R) -> R {
    let whole = Box::into_raw(whole);
    // SAFETY: the box was there until now.
    let context = unsafe { &raw mut (*whole).context };
    let answer = ask(NonNull::new(context).expect("it is within the box"));
    // SAFETY: it comes from a box, and nobody has it any more.
    drop(unsafe { Box::from_raw(whole) });
    answer
}

/// A device that says this of on-demand paging: in general, and for reliable connections.
pub(crate) fn with_paging<R>(general: u64, connected: u32, ask: impl FnOnce(NonNull<ibv_context>) -> R) -> R {
    SAID.set((general, connected));
    with(context(), ask)
}

/// A device whose driver takes no such question.
pub(crate) fn without_questions<R>(ask: impl FnOnce(NonNull<ibv_context>) -> R) -> R {
    with(Box::new(verbs_context { query_device_ex: None, ..*context() }), ask)
}

/// A library from before there was such a question, in which something else stands at its place.
pub(crate) fn of_an_old_library<R>(ask: impl FnOnce(NonNull<ibv_context>) -> R) -> R {
    let sz = size_of::<verbs_context>() - std::mem::offset_of!(verbs_context, ibv_destroy_flow);
    with(Box::new(verbs_context { sz, ..*context() }), ask)
}
