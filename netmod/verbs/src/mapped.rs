//! Memory of windows that this process has mapped itself, and that may be the near end of a transfer.
//!
//! Other processes have it too, so the kernel says nothing to us when it goes. But who has mapped it knows, and lets go of it
//! before: until then its registrations are kept, and to find one asks the kernel nothing. The device may be opened later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longarm_memory::RegionMut;
use longarm_registration::Hold;
use parking_lot::Mutex;

use crate::fabric::{Device, Fabric};
use crate::netmod::Shared;

/// All such memory.
#[derive(Default)]
pub(crate) struct AllMapped {
    pieces: Mutex<slab::Slab<Piece>>,
    /// The device was opened, and what was there by then is held.
    caught_up: AtomicBool,
    /// The program has said that it has one thread.
    is_one_thread: AtomicBool,
}

struct Piece {
    memory: (usize, usize),
    /// Once there is a device.
    _hold: Option<Hold<Device>>,
}

impl AllMapped {
    /// Call when the device is open.
    pub(crate) fn catch_up(&self, fabric: &Fabric) {
        // Relaxed: the lock orders the rest, and twice does no harm.
        if self.caught_up.swap(true, Ordering::Relaxed) {
            return;
        }
        if self.is_one_thread.load(Ordering::SeqCst) {
            fabric.cache.rely_on_one_thread();
        }
        for (_, piece) in self.pieces.lock().iter_mut() {
            let (start, bytes) = piece.memory;
            piece._hold.get_or_insert_with(|| fabric.cache.hold(start, bytes));
        }
    }
}

impl AllMapped {
    /// The program's word for it. Before or after the device is opened.
    pub(crate) fn rely_on_one_thread(&self, shared: &Shared) {
        // Who opens the device meanwhile sees one or the other.
        self.is_one_thread.store(true, Ordering::SeqCst);
        if let Some(fabric) = shared.opened() {
            fabric.cache.rely_on_one_thread();
        }
    }
}

/// One piece, until it is dropped.
pub(crate) struct Mapped {
    shared: Arc<Shared>,
    number: usize,
}

impl Mapped {
    pub(crate) fn hold(shared: &Arc<Shared>, memory: RegionMut<'_>) -> Mapped {
        let (start, bytes) = (memory.as_mut_ptr().expose_provenance(), memory.len());
        let mut pieces = shared.mapped.pieces.lock();
        // Under the lock: who opens the device holds what is in the list by then.
        let hold = shared.opened().map(|fabric| fabric.cache.hold(start, bytes));
        let number = pieces.insert(Piece { memory: (start, bytes), _hold: hold });
        drop(pieces);
        Mapped { shared: Arc::clone(shared), number }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let piece = self.shared.mapped.pieces.lock().remove(self.number);
        // Without the lock: the device takes its time.
        drop(piece);
    }
}
