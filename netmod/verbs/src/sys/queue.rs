//! Queue pairs: making, connecting and ending them, and posting work.

use std::ptr::NonNull;
use std::sync::Arc;

use longarm_memory::Region;
use longarm_netmod::DeviceRmw;
use rdma_sys::{
    ibv_access_flags, ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap,
    ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr, ibv_wr_opcode,
};
use rustix::io::Errno;

use super::completions::Completions;
use super::context::{Context, Domain};
use super::errno::{check, last_errno};
use super::memory::{Slab, Span};

const REMOTE: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
    | ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;

/// Requests posted at once at most.
pub(crate) const CHAIN_MAX: usize = 8;

/// Pieces in one request at most.
pub(crate) const GATHERS_MAX: usize = 8;

/// Where the bytes of a request are, or go.
#[derive(Clone, Copy)]
pub(crate) enum Data<'a> {
    /// Copied into the request itself when it is posted.
    Inline(&'a [Region<'a>]),
    /// Read, or written, by the device while the request is under way.
    Spans(&'a [Span]),
}

/// A request.
#[derive(Clone, Copy)]
pub(crate) struct Post<'a> {
    /// Its completion has this number.
    pub(crate) id: u64,
    pub(crate) posting: Posting,
    pub(crate) data: Data<'a>,
    /// Its completion is told; that of others only when they fail.
    pub(crate) signaled: bool,
    /// It begins when the reads before it have ended.
    pub(crate) fenced: bool,
}

/// What a request does with them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Posting {
    /// A message into a buffer of the peer, with a number beside it where the device takes one.
    Send { immediate: Option<u32> },
    /// Into memory of the peer, which does not notice.
    Write { remote: u64, remote_key: u32 },
    /// Out of memory of the peer, which does not notice.
    Read { remote: u64, remote_key: u32 },
    /// A read-modify-write of a word of the peer, which does not notice. The old value goes where the request's only span is.
    Atomic { remote: u64, remote_key: u32, rmw: DeviceRmw },
}

/// How much a queue pair takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    pub(crate) depth: u32,
    pub(crate) inline_bytes: u32,
    pub(crate) gathers: u32,
    pub(crate) receives: u32,
}

/// What the two sides of a connection agree on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) port: u8,
    pub(crate) gid_index: u8,
    pub(crate) is_ethernet: bool,
    pub(crate) mtu_code: u32,
    pub(crate) peer_queue: u32,
    pub(crate) peer_lid: u16,
    pub(crate) peer_gid: [u8; 16],
    /// The numbers of the first packets, ours and the peer's.
    pub(crate) first_sent: u32,
    pub(crate) first_received: u32,
    /// Reads that we may have under way at the peer, and it here.
    pub(crate) reads_out: u8,
    pub(crate) reads_in: u8,
    /// For how long a packet is waited for: 4.096 µs times two to the power of this.
    pub(crate) timeout_code: u8,
}

/// Buffers for what arrives over any of several queue pairs.
pub(crate) struct SharedReceive {
    domain: Arc<Domain>,
    raw: NonNull<ibv_srq>,
}

// SAFETY: the library lets any thread use a shared receive queue at any time.
unsafe impl Send for SharedReceive {}
// SAFETY: as above.
unsafe impl Sync for SharedReceive {}

impl SharedReceive {
    /// One that holds so many buffers.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(domain: &Arc<Domain>, buffers: u32) -> Result<SharedReceive, Errno> {
        let attr = ibv_srq_attr { max_wr: buffers, max_sge: 1, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: std::ptr::null_mut(), attr };
        // SAFETY: the domain is there.
        let raw = unsafe { (domain.context.library.create_srq)(domain.raw.as_ptr(), &raw mut init) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        Ok(SharedReceive { domain: Arc::clone(domain), raw })
    }

    /// Offers a buffer. Its completion has the number `id`.
    ///
    /// # Safety
    /// The slab stays lent until that completion, or until this queue is gone.
    ///
    /// # Errors
    /// The system's, when the queue is full.
    pub(crate) unsafe fn post(&self, id: u64, slab: &Slab) -> Result<(), Errno> {
        let span = slab.span(slab.slab_bytes());
        let mut sge = ibv_sge { addr: span.start, length: span.bytes, lkey: span.local_key };
        let mut request = ibv_recv_wr { wr_id: id, next: std::ptr::null_mut(), sg_list: &raw mut sge, num_sge: 1 };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the request is read before the call returns; its memory stays, as the caller promises.
        check(unsafe { rdma_sys::ibv_post_srq_recv(self.raw.as_ptr(), &raw mut request, &raw mut bad) })
    }
}

impl Drop for SharedReceive {
    fn drop(&mut self) {
        // SAFETY: the queue pairs that use it hold a count of it, so none is left.
        let destroyed = unsafe { (self.domain.context.library.destroy_srq)(self.raw.as_ptr()) };
        debug_assert_eq!(destroyed, 0, "a queue pair still uses the shared receive queue");
    }
}

/// Where requests are written down for the library, which reads them while they are posted. Most posts need little of it, so it is
/// not made anew for each.
struct Chain {
    requests: [ibv_send_wr; CHAIN_MAX],
    gathers: [[ibv_sge; GATHERS_MAX]; CHAIN_MAX],
}

impl Chain {
    fn new() -> Box<Chain> {
        // SAFETY: pointers among zeros are null, and the unions hold numbers.
        Box::new(unsafe { std::mem::zeroed() })
    }
}

/// One end of a reliable connection.
pub(crate) struct Queue {
    raw: NonNull<ibv_qp>,
    number: u32,
    limits: QueueLimits,
    /// They outlive the pair.
    pub(crate) completions: Completions,
    chain: Box<Chain>,
    _shared: Arc<SharedReceive>,
    domain: Arc<Domain>,
}

// SAFETY: the library lets any thread use a queue pair at any time.
unsafe impl Send for Queue {}

fn blank() -> ibv_qp_attr {
    // SAFETY: numbers and nested structs of numbers, for which zeros are values.
    unsafe { std::mem::zeroed() }
}

impl Queue {
    /// A queue pair that is not connected yet.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(domain: &Arc<Domain>, shared: &Arc<SharedReceive>, limits: QueueLimits) -> Result<Queue, Errno> {
        let context: &Arc<Context> = &domain.context;
        let completions = Completions::new(context, limits.depth, limits.receives)?;
        let (send_cq, recv_cq) = completions.raw();
        let mut init = ibv_qp_init_attr {
            qp_context: std::ptr::null_mut(),
            send_cq,
            recv_cq,
            srq: shared.raw.as_ptr(),
            cap: ibv_qp_cap {
                max_send_wr: limits.depth,
                max_recv_wr: 0,
                max_send_sge: limits.gathers,
                max_recv_sge: 1,
                max_inline_data: limits.inline_bytes,
            },
            qp_type: ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain, completion queues and shared receive queue are there.
        let raw = unsafe { (context.library.create_qp)(domain.raw.as_ptr(), &raw mut init) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        // SAFETY: it was just made.
        let number = unsafe { raw.as_ref() }.qp_num;
        Ok(Queue {
            raw,
            number,
            limits: QueueLimits { inline_bytes: init.cap.max_inline_data, ..limits },
            completions,
            chain: Chain::new(),
            _shared: Arc::clone(shared),
            domain: Arc::clone(domain),
        })
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The most bytes that go into a request itself.
    pub(crate) fn inline_bytes(&self) -> usize {
        self.limits.inline_bytes as usize
    }

    /// The most requests that may be under way.
    pub(crate) fn depth(&self) -> usize {
        self.limits.depth as usize
    }

    /// The most pieces of a request.
    pub(crate) fn gathers(&self) -> usize {
        (self.limits.gathers as usize).min(GATHERS_MAX)
    }

    pub(super) fn raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    fn modify(&self, attr: &mut ibv_qp_attr, mask: ibv_qp_attr_mask) -> Result<(), Errno> {
        let mask = i32::try_from(mask.0).expect("the flags are small");
        // SAFETY: the pair is there, and the attributes are read before the call returns.
        check(unsafe { (self.domain.context.library.modify_qp)(self.raw.as_ptr(), attr, mask) })
    }

    /// Connects it: from now on it answers the peer, and sends.
    ///
    /// # Errors
    /// The system's, when the device does not find a way to the peer.
    pub(crate) fn connect(&self, with: &Connection) -> Result<(), Errno> {
        let mut attr = blank();
        attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
        attr.port_num = with.port;
        let atomics = self.domain.context.limits().atomics;
        attr.qp_access_flags = REMOTE | if atomics { ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0 } else { 0 };
        self.modify(
            &mut attr,
            ibv_qp_attr_mask::IBV_QP_STATE
                | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
                | ibv_qp_attr_mask::IBV_QP_PORT
                | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS,
        )?;
        let mut attr = blank();
        attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
        attr.path_mtu = with.mtu_code;
        attr.dest_qp_num = with.peer_queue;
        attr.rq_psn = with.first_received;
        attr.max_dest_rd_atomic = with.reads_in;
        attr.min_rnr_timer = 12;
        attr.ah_attr = ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw: with.peer_gid },
                flow_label: 0,
                sgid_index: with.gid_index,
                hop_limit: 64,
                traffic_class: 0,
            },
            dlid: with.peer_lid,
            sl: 0,
            src_path_bits: 0,
            static_rate: 0,
            is_global: u8::from(with.is_ethernet || with.peer_lid == 0),
            port_num: with.port,
        };
        self.modify(
            &mut attr,
            ibv_qp_attr_mask::IBV_QP_STATE
                | ibv_qp_attr_mask::IBV_QP_AV
                | ibv_qp_attr_mask::IBV_QP_PATH_MTU
                | ibv_qp_attr_mask::IBV_QP_DEST_QPN
                | ibv_qp_attr_mask::IBV_QP_RQ_PSN
                | ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC
                | ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER,
        )?;
        let mut attr = blank();
        attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
        attr.sq_psn = with.first_sent;
        attr.timeout = with.timeout_code;
        // Some devices take seven for: as often as it takes.
        attr.retry_cnt = 6;
        // Here that is what seven stands for.
        attr.rnr_retry = 7;
        attr.max_rd_atomic = with.reads_out;
        self.modify(
            &mut attr,
            ibv_qp_attr_mask::IBV_QP_STATE
                | ibv_qp_attr_mask::IBV_QP_TIMEOUT
                | ibv_qp_attr_mask::IBV_QP_RETRY_CNT
                | ibv_qp_attr_mask::IBV_QP_RNR_RETRY
                | ibv_qp_attr_mask::IBV_QP_SQ_PSN
                | ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC,
        )
    }

    /// Makes it ready for the connection manager, which takes it through the other states.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn prepare(&self, port: u8) -> Result<(), Errno> {
        let mut attr = blank();
        attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
        attr.port_num = port;
        attr.qp_access_flags = REMOTE;
        self.modify(
            &mut attr,
            ibv_qp_attr_mask::IBV_QP_STATE | ibv_qp_attr_mask::IBV_QP_PORT | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS,
        )
    }

    /// Ends it: nothing that the peer still sends is done any more.
    ///
    /// # Errors
    /// The system's; then nobody knows.
    pub(crate) fn stop(&self) -> Result<(), Errno> {
        let mut attr = blank();
        attr.qp_state = ibv_qp_state::IBV_QPS_ERR;
        self.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE)
    }

    /// Ends it likewise. Returns the number of the packet that would have been the next: what came in earlier ones was done.
    ///
    /// # Errors
    /// The system's; then nobody knows.
    pub(crate) fn end(&self) -> Result<u32, Errno> {
        self.stop()?;
        let mut attr = blank();
        // SAFETY: pointers among zeros are null, which they may be in an answer's place.
        let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        let mask = i32::try_from(ibv_qp_attr_mask::IBV_QP_RQ_PSN.0).expect("the flags are small");
        let library = self.domain.context.library;
        // SAFETY: the pair is there, and there is room for the answers.
        check(unsafe { (library.query_qp)(self.raw.as_ptr(), &raw mut attr, mask, &raw mut init) })?;
        #[cfg(test)]
        if let Some(said) = super::mock::said_of_ended_queues() {
            return Ok(said);
        }
        Ok(attr.rq_psn)
    }

    /// Posts requests, in order, with one ring of the doorbell: at most [`CHAIN_MAX`].
    ///
    /// # Safety
    /// What spans name stays registered, and is not freed or reused, until the request's completion, or that of a later one.
    /// Nobody holds an exclusive reference to the target of a read meanwhile.
    ///
    /// # Errors
    /// The system's, when there is no room or the queue has failed: then the connection is of no more use.
    pub(crate) unsafe fn post(&mut self, requests: &[Post<'_>]) -> Result<(), Errno> {
        let Chain { requests: chain, gathers } = &mut *self.chain;
        let (mut next, mut chained) = (std::ptr::null_mut(), 0);
        // From the last to the first, so that each finds the one behind it.
        for ((request, place), pieces) in requests.iter().zip(chain).zip(gathers).rev() {
            request.write(place, pieces, next);
            next = std::ptr::from_mut(place);
            chained += 1;
        }
        debug_assert_eq!(chained, requests.len(), "a chain is as long as it may be");
        let mut bad = std::ptr::null_mut();
        // SAFETY: the chain is read before the call returns, with what is inline; spans stay, as the caller promises.
        check(unsafe { rdma_sys::ibv_post_send(self.raw.as_ptr(), next, &raw mut bad) })
    }
}

impl Post<'_> {
    fn write(&self, place: &mut ibv_send_wr, pieces: &mut [ibv_sge; GATHERS_MAX], next: *mut ibv_send_wr) {
        let mut flags = 0;
        let mut count = 0;
        let mut add = |sge: ibv_sge| {
            pieces[count] = sge;
            count += 1;
        };
        match self.data {
            Data::Inline(regions) => {
                flags |= ibv_send_flags::IBV_SEND_INLINE.0;
                regions.iter().filter(|region| !region.is_empty()).for_each(|region| {
                    let addr = region.as_ptr().expose_provenance() as u64;
                    add(ibv_sge { addr, length: region.len() as u32, lkey: 0 });
                });
            }
            Data::Spans(spans) => spans
                .iter()
                .for_each(|span| add(ibv_sge { addr: span.start, length: span.bytes, lkey: span.local_key })),
        }
        if self.signaled {
            flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        if self.fenced {
            flags |= ibv_send_flags::IBV_SEND_FENCE.0;
        }
        place.wr_id = self.id;
        place.next = next;
        place.sg_list = pieces.as_mut_ptr();
        place.num_sge = i32::try_from(count).expect("pieces are few");
        place.send_flags = flags;
        match self.posting {
            Posting::Send { immediate: Some(immediate) } => {
                place.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
                place.imm_data_invalidated_rkey_union.imm_data = immediate.to_be();
            }
            Posting::Send { immediate: None } => place.opcode = ibv_wr_opcode::IBV_WR_SEND,
            Posting::Write { remote, remote_key } => {
                place.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                place.wr.rdma = rdma_sys::rdma_t { remote_addr: remote, rkey: remote_key };
            }
            Posting::Read { remote, remote_key } => {
                place.opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
                place.wr.rdma = rdma_sys::rdma_t { remote_addr: remote, rkey: remote_key };
            }
            Posting::Atomic { remote, remote_key, rmw } => {
                let (opcode, compare_add, swap) = match rmw {
                    DeviceRmw::FetchAdd(value) => (ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, value, 0),
                    DeviceRmw::CompareSwap { expected, new } => {
                        (ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP, expected, new)
                    }
                };
                place.opcode = opcode;
                place.wr.atomic = rdma_sys::atomic_t { remote_addr: remote, compare_add, swap, rkey: remote_key };
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: it is ours and destroyed once. Its completion queues go after it.
        let destroyed = unsafe { (self.domain.context.library.destroy_qp)(self.raw.as_ptr()) };
        debug_assert_eq!(destroyed, 0, "a queue pair cannot be destroyed");
    }
}
