//! Memory that the device may reach, and the preregistered buffers that bytes are copied through.

use std::ptr::NonNull;
use std::sync::Arc;

use longarm_memory::{Region, RegionMut};
use memmap2::MmapMut;
use parking_lot::Mutex;
use rdma_sys::{ibv_access_flags, ibv_mr};
use rustix::io::Errno;

use super::context::Domain;
use super::errno::last_errno;

/// A range of registered memory on this side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) bytes: u32,
    pub(crate) local_key: u32,
}

/// Slabs made at a time.
const BLOCK_SLABS: u32 = 32;

/// What peers may do with it.
const REMOTE: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0 | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;

/// Who may do what with registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Our own queues write to it: what is received, and what our reads bring.
    Local,
    /// Peers read and write it too.
    Remote,
    /// And have the device update its words. Only for devices that do that.
    RemoteAtomic,
}

impl Access {
    fn flags(self, is_iwarp: bool) -> i32 {
        let local = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        let flags = match self {
            // The answer to a read comes as a write of the peer's there.
            Access::Local if is_iwarp => local.0 | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0,
            Access::Local => local.0,
            Access::Remote => local.0 | REMOTE,
            Access::RemoteAtomic => local.0 | REMOTE | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0,
        };
        i32::try_from(flags).expect("the flags are small")
    }
}

/// What becomes of the pages of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pages {
    /// They stay in memory, where they are.
    Kept,
    /// They come and go as they do for the process, and the device asks for those that it needs. Only for devices that
    /// have been found to do that.
    OnDemand,
}

impl Pages {
    fn flags(self) -> i32 {
        match self {
            Pages::Kept => 0,
            Pages::OnDemand => i32::try_from(ibv_access_flags::IBV_ACCESS_ON_DEMAND.0).expect("the flags are small"),
        }
    }
}

/// A range of memory that the device has the addresses of, until this is dropped.
pub(crate) struct Registration {
    domain: Arc<Domain>,
    raw: NonNull<ibv_mr>,
    local_key: u32,
    remote_key: u32,
}

// SAFETY: the library lets any thread use a registration at any time.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers `bytes` from `start`, under the addresses that they have.
    ///
    /// The memory may go away meanwhile: the device keeps the pages, and what it then reads and writes is no longer
    /// what the process sees there. Nothing that the process has is harmed by it. Of pages on demand it reads and writes
    /// those that are there at that time, whoever mapped them.
    ///
    /// # Errors
    /// The system's: `NOMEM` at the limit of locked memory or of the device, `FAULT` where nothing is mapped.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        (start, bytes): (usize, usize),
        access: Access,
        pages: Pages,
    ) -> Result<Registration, Errno> {
        let library = domain.context.library;
        let address = std::ptr::with_exposed_provenance_mut(start);
        let flags = access.flags(domain.context.is_iwarp()) | pages.flags();
        // SAFETY: the domain is there. The kernel checks that the range is mapped, and the device holds its pages, so that it
        // never reaches memory that was given to somebody else; or it looks for them with each use, as the process would.
        let raw = unsafe { (library.reg_mr_iova)(domain.raw.as_ptr(), address, bytes, start as u64, flags) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        // SAFETY: it was just made.
        let made = unsafe { raw.as_ref() };
        let (local_key, remote_key) = (made.lkey, made.rkey);
        Ok(Registration { domain: Arc::clone(domain), raw, local_key, remote_key })
    }

    /// What our work requests name it by.
    pub(crate) fn local_key(&self) -> u32 {
        self.local_key
    }

    /// What peers name it by.
    pub(crate) fn remote_key(&self) -> u32 {
        self.remote_key
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: it is ours and given back once. Requests that still name it fail, and harm nothing.
        let freed = unsafe { (self.domain.context.library.dereg_mr)(self.raw.as_ptr()) };
        if freed != 0 {
            tracing::warn!(freed, "the device does not give a registration back");
        }
    }
}

/// Registered buffers of one size, lent one by one.
pub(crate) struct Slabs {
    domain: Arc<Domain>,
    slab_bytes: usize,
    blocks_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    blocks: Vec<Block>,
    free: Vec<(u32, u32)>,
}

/// Slabs that were made together.
struct Block {
    /// Given back before the memory is.
    registration: Registration,
    memory: MmapMut,
}

impl Slabs {
    /// No slabs yet; they are made as they are needed, up to `slabs_max`.
    pub(crate) fn new(domain: &Arc<Domain>, slab_bytes: usize, slabs_max: usize) -> Arc<Slabs> {
        let blocks_max = slabs_max.div_ceil(BLOCK_SLABS as usize).max(1);
        Arc::new(Slabs { domain: Arc::clone(domain), slab_bytes, blocks_max, state: Mutex::default() })
    }

    pub(crate) fn slab_bytes(&self) -> usize {
        self.slab_bytes
    }

    /// How much memory the slabs made so far take.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().blocks.len() * BLOCK_SLABS as usize * self.slab_bytes
    }

    /// Slabs that were made and are lent to nobody.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.state.lock().free.len()
    }

    /// A slab, if one is free or may be made.
    ///
    /// # Errors
    /// The system's, when memory cannot be locked and nobody has a slab to give back.
    pub(crate) fn take(self: &Arc<Slabs>) -> Result<Option<Slab>, Errno> {
        let mut state = self.state.lock();
        if state.free.is_empty() {
            if state.blocks.len() >= self.blocks_max {
                return Ok(None);
            }
            match self.more() {
                Ok(block) => {
                    let number = u32::try_from(state.blocks.len()).expect("blocks are few");
                    state.blocks.push(block);
                    state.free.extend((0..BLOCK_SLABS).rev().map(|slab| (number, slab)));
                }
                Err(errno) if state.blocks.is_empty() => return Err(errno),
                Err(_) => return Ok(None),
            }
        }
        let (block, number) = state.free.pop().expect("there is one, or was just made");
        let held = &mut state.blocks[block as usize];
        let start = held.memory.as_mut_ptr().expose_provenance() + number as usize * self.slab_bytes;
        let local_key = held.registration.local_key();
        Ok(Some(Slab { slabs: Arc::clone(self), block, number, start, local_key }))
    }

    fn more(&self) -> Result<Block, Errno> {
        let bytes = BLOCK_SLABS as usize * self.slab_bytes;
        let mut memory = MmapMut::map_anon(bytes).map_err(|_| Errno::NOMEM)?;
        let start = memory.as_mut_ptr().expose_provenance();
        let registration = Registration::new(&self.domain, (start, bytes), Access::Local, Pages::Kept)?;
        Ok(Block { registration, memory })
    }
}

/// One registered buffer, lent. Dropping it gives it back, so no request that names it may be under way then.
pub(crate) struct Slab {
    slabs: Arc<Slabs>,
    block: u32,
    number: u32,
    start: usize,
    local_key: u32,
}

impl Slab {
    /// Its memory, to be written. The device reads or writes it too while a request that names it is under way.
    pub(crate) fn region_mut(&mut self) -> RegionMut<'_> {
        // SAFETY: the block lives as long as `slabs`, and this part of it is lent to nobody else.
        unsafe { RegionMut::from_raw(std::ptr::with_exposed_provenance_mut(self.start), self.slabs.slab_bytes) }
    }

    /// Its first `bytes`, to be read.
    pub(crate) fn region(&self, bytes: usize) -> Region<'_> {
        assert!(bytes <= self.slabs.slab_bytes, "{bytes} bytes in a slab of {}", self.slabs.slab_bytes);
        // SAFETY: as above.
        unsafe { Region::from_raw(std::ptr::with_exposed_provenance(self.start), bytes) }
    }

    /// Its first `bytes`, as work requests name them.
    pub(crate) fn span(&self, bytes: usize) -> Span {
        assert!(bytes <= self.slabs.slab_bytes, "{bytes} bytes in a slab of {}", self.slabs.slab_bytes);
        Span { start: self.start as u64, bytes: bytes as u32, local_key: self.local_key }
    }

    pub(crate) fn slab_bytes(&self) -> usize {
        self.slabs.slab_bytes
    }

    pub(crate) fn is_of(&self, slabs: &Arc<Slabs>) -> bool {
        Arc::ptr_eq(&self.slabs, slabs)
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.slabs.state.lock().free.push((self.block, self.number));
    }
}
