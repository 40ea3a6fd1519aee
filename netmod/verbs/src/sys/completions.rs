//! Completion queues, and the channel that a sleeper watches.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{ibv_comp_channel, ibv_cq, ibv_wc, ibv_wc_flags, ibv_wc_status};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::context::Context;
use super::errno::{check, last_errno};

/// Fetched at a time.
const BATCH: usize = 16;

/// A work request that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    /// The number that was given with it.
    pub(crate) id: u64,
    /// It was a buffer for what arrives, and the number is the buffer's.
    pub(crate) is_receive: bool,
    pub(crate) result: Result<(), Failure>,
    /// Of what was received.
    pub(crate) bytes: u32,
    pub(crate) immediate: u32,
}

/// Why a work request failed, by the number of the verbs interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failure(pub(crate) u32);

impl Failure {
    /// Whether it failed because another one before it did.
    pub(crate) fn is_flushed(self) -> bool {
        self.0 == ibv_wc_status::IBV_WC_WR_FLUSH_ERR
    }

    /// Whether the peer's device does not let us reach the memory. What it calls an invalid request is another matter: it was not
    /// what was posted, for we post none, but what was left of it on a bad wire.
    pub(crate) fn is_refused(self) -> bool {
        self.0 == ibv_wc_status::IBV_WC_REM_ACCESS_ERR
    }

    /// Whether our own device could not do it, without a word of the peer.
    pub(crate) fn is_local(self) -> bool {
        matches!(
            self.0,
            ibv_wc_status::IBV_WC_LOC_PROT_ERR
                | ibv_wc_status::IBV_WC_LOC_ACCESS_ERR
                | ibv_wc_status::IBV_WC_LOC_QP_OP_ERR
                | ibv_wc_status::IBV_WC_LOC_LEN_ERR
        )
    }

    /// In words.
    pub(crate) fn words(self) -> &'static str {
        match self.0 {
            ibv_wc_status::IBV_WC_RETRY_EXC_ERR => "the peer's device does not answer",
            ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => "the peer has no buffer for what is sent",
            ibv_wc_status::IBV_WC_REM_ACCESS_ERR => "the peer's device refuses access to the memory",
            ibv_wc_status::IBV_WC_REM_INV_REQ_ERR => "the peer's device has lost the thread of the requests",
            ibv_wc_status::IBV_WC_REM_OP_ERR => "the peer's device could not do the request",
            ibv_wc_status::IBV_WC_LOC_PROT_ERR => "our device has no access to the memory",
            ibv_wc_status::IBV_WC_LOC_LEN_ERR => "a message is longer than its buffer",
            ibv_wc_status::IBV_WC_WR_FLUSH_ERR => "the queue has failed before",
            _ => "the device failed",
        }
    }
}

/// What a sleeper watches for the completions of several queues.
pub(crate) struct Channel {
    context: Arc<Context>,
    raw: NonNull<ibv_comp_channel>,
}

// SAFETY: the library lets any thread use a channel at any time.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    fn new(context: &Arc<Context>) -> Result<Arc<Channel>, Errno> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library.create_comp_channel)(context.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        let channel = Arc::new(Channel { context: Arc::clone(context), raw });
        // Events are fetched by who has been told of them, and never waited for.
        let flags = rustix::fs::fcntl_getfl(channel.descriptor())?;
        rustix::fs::fcntl_setfl(channel.descriptor(), flags | OFlags::NONBLOCK)?;
        Ok(channel)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: it lives as long as we do.
        let channel = unsafe { self.raw.as_ref() };
        // SAFETY: the channel's descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(channel.fd) }
    }

    /// Fetches what is announced. Returns whether there was something.
    fn drain(&self) -> bool {
        let mut any = false;
        loop {
            let (mut cq, mut cookie) = (std::ptr::null_mut(), std::ptr::null_mut());
            let library = self.context.library;
            // SAFETY: there is room for the answers.
            let got = unsafe { (library.get_cq_event)(self.raw.as_ptr(), &raw mut cq, &raw mut cookie) };
            if got != 0 {
                return any;
            }
            any = true;
            // SAFETY: events come of our own queues only, which outlive this call: who drops them has us too.
            unsafe { (library.ack_cq_events)(cq, 1) };
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: its queues hold a count of it, so none is left.
        let destroyed = unsafe { (self.context.library.destroy_comp_channel)(self.raw.as_ptr()) };
        debug_assert_eq!(destroyed, 0, "a queue of the channel is left");
    }
}

/// Where the library writes completions. Who waits looks very often, so it is not made anew for each look.
struct CompletionBatch(Box<[ibv_wc; BATCH]>);

impl CompletionBatch {
    fn new() -> CompletionBatch {
        // SAFETY: numbers, and a union of two, for which zeros are values.
        CompletionBatch(Box::new(unsafe { std::mem::zeroed() }))
    }
}

/// One completion queue.
struct Cq {
    channel: Arc<Channel>,
    raw: NonNull<ibv_cq>,
}

// SAFETY: the library lets any thread use a completion queue at any time.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

impl Cq {
    fn new(channel: &Arc<Channel>, depth: u32) -> Result<Cq, Errno> {
        let context = &channel.context;
        let depth = i32::try_from(depth).map_err(|_| Errno::INVAL)?;
        let (none, all) = (std::ptr::null_mut(), channel.raw.as_ptr());
        // SAFETY: context and channel are there.
        let raw = unsafe { (context.library.create_cq)(context.raw.as_ptr(), depth, none, all, 0) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        Ok(Cq { channel: Arc::clone(channel), raw })
    }

    fn poll(&self, batch: &mut CompletionBatch, is_receive: bool, out: &mut Vec<Finished>) -> Result<(), Errno> {
        loop {
            // SAFETY: the queue is there, and there is room for as many.
            let count = unsafe { rdma_sys::ibv_poll_cq(self.raw.as_ptr(), BATCH as i32, batch.0.as_mut_ptr()) };
            let count = usize::try_from(count).map_err(|_| Errno::IO)?;
            out.extend(batch.0[..count].iter().map(|entry| finished(entry, is_receive)));
            if count < BATCH {
                return Ok(());
            }
        }
    }

    fn arm(&self) -> Result<(), Errno> {
        // SAFETY: the queue is there.
        check(unsafe { rdma_sys::ibv_req_notify_cq(self.raw.as_ptr(), 0) })
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: the queue pair that uses it was destroyed before: it stands before this in its owner.
        let destroyed = unsafe { (self.channel.context.library.destroy_cq)(self.raw.as_ptr()) };
        debug_assert_eq!(destroyed, 0, "a queue pair still uses the completion queue");
    }
}

fn finished(entry: &ibv_wc, is_receive: bool) -> Finished {
    let has_immediate = entry.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
    // SAFETY: both forms of the union are a number of four bytes.
    let immediate = unsafe { entry.imm_data_invalidated_rkey_union.imm_data };
    Finished {
        id: entry.wr_id,
        is_receive,
        result: if entry.status == ibv_wc_status::IBV_WC_SUCCESS { Ok(()) } else { Err(Failure(entry.status)) },
        bytes: entry.byte_len,
        immediate: if has_immediate { u32::from_be(immediate) } else { 0 },
    }
}

/// What a queue pair has done and received: two queues, and one descriptor for both.
pub(crate) struct Completions {
    sent: Cq,
    received: Cq,
    channel: Arc<Channel>,
    batch: CompletionBatch,
    /// An event has been asked for, or is there to be fetched.
    armed: bool,
}

impl Completions {
    /// Queues that hold so many completions each: who has no more requests than that under way cannot overrun them.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(context: &Arc<Context>, sent: u32, received: u32) -> Result<Completions, Errno> {
        let channel = Channel::new(context)?;
        let (sent, received) = (Cq::new(&channel, sent)?, Cq::new(&channel, received)?);
        Ok(Completions { sent, received, channel, batch: CompletionBatch::new(), armed: false })
    }

    pub(super) fn raw(&self) -> (*mut ibv_cq, *mut ibv_cq) {
        (self.sent.raw.as_ptr(), self.received.raw.as_ptr())
    }

    /// What has ended since the last time. No system call on a device with queues in memory.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn poll(&mut self, out: &mut Vec<Finished>) -> Result<(), Errno> {
        self.received.poll(&mut self.batch, true, out)?;
        self.sent.poll(&mut self.batch, false, out)
    }

    /// Of our own requests alone, what has ended since the last time: who waits for one of them looks for that first.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn poll_sent(&mut self, out: &mut Vec<Finished>) -> Result<(), Errno> {
        self.sent.poll(&mut self.batch, false, out)
    }

    /// Sees to it that the descriptor becomes readable with the next completion. Look once more afterwards.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn arm(&mut self) -> Result<(), Errno> {
        if self.armed && !self.channel.drain() {
            return Ok(());
        }
        self.armed = true;
        self.received.arm()?;
        self.sent.arm()
    }

    /// What to sleep on.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.descriptor()
    }
}
