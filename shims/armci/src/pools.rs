//! The pools of which each process gives pieces to itself, as this process sees them.

use longarm::Window;
use longarm::ffi::Ranges;
use parking_lot::Mutex;

use crate::refusal::{Done, Refusal};

/// The smallest pages there are. Of larger ones the system refuses to give back parts, which then stay.
const PAGE_BYTES: usize = 4096;
/// Pieces start at multiples of this: a line of the cache.
const ALIGNMENT: u64 = 64;

/// The pools, as this process sees them.
pub(crate) struct Pools(pub(crate) Mutex<Option<Pool>>);

pub(crate) struct Pool {
    pub(crate) window: Window<u8>,
    pub(crate) parts: Vec<(u32, usize)>,
    /// Where this process's own one starts.
    pub(crate) start: usize,
    /// Its pieces.
    pub(crate) pieces: Ranges,
}

impl Pools {
    pub(crate) fn new() -> Pools {
        Pools(Mutex::new(None))
    }

    /// A piece of this process's pool.
    pub(crate) fn take(&self, bytes: usize) -> Done<usize> {
        let mut pool = self.0.lock();
        let pool = pool.as_mut().ok_or_else(|| Refusal::fatal("the system gave no addresses for it at ARMCI_Init"))?;
        let pool_bytes = pool.pieces.length();
        let none =
            || Refusal::fatal(format!("no room for {bytes} bytes: a process has {pool_bytes} for such segments"));
        let whole = (bytes as u64).checked_next_multiple_of(ALIGNMENT).ok_or_else(none)?;
        let piece = pool.pieces.take_first(0, ALIGNMENT, whole).ok_or_else(none)?;
        Ok(pool.start + piece as usize)
    }

    /// Gives a piece back.
    pub(crate) fn give_back(&self, start: usize, bytes: usize) -> Done {
        let mut pool = self.0.lock();
        let known = pool.as_mut().and_then(|pool| {
            let from = start.checked_sub(pool.start)? as u64;
            let piece = from..from.checked_add((bytes as u64).checked_next_multiple_of(ALIGNMENT)?)?;
            pool.pieces.are_taken(&piece).then_some((pool, piece))
        });
        let (pool, piece) =
            known.ok_or_else(|| Refusal::fatal(format!("{bytes} bytes at {start:#x} are no segment")))?;
        // The pages that are all of this piece. The first and the last one may be others' too.
        let first = start.next_multiple_of(PAGE_BYTES);
        let end = (start + bytes) / PAGE_BYTES * PAGE_BYTES;
        if let Some(whole) = end.checked_sub(first).filter(|whole| *whole > 0) {
            let pages = std::ptr::with_exposed_provenance_mut(first);
            // SAFETY: the pages are mapped as a part of the pool, which lives as long as its window in `pool`, and nobody
            // has a use for their bytes any more.
            let given_back = unsafe { libc::madvise(pages, whole, libc::MADV_REMOVE) };
            if given_back != 0 {
                tracing::debug!("the pages of a freed segment stay until ARMCI_Finalize");
            }
        }
        pool.pieces.release(piece).map_err(|_| Refusal::fatal("a segment was given back while it was"))
    }
}
