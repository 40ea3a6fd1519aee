//! Memory of windows that this process has mapped itself, and that may be the near end of a transfer.
//!
//! Other processes have it too, so the kernel says nothing to us when it goes. But who has mapped it knows, and lets go of it
//! before: until then its registrations are kept, and to find one asks the kernel nothing. The device may be opened later.

use std::sync::Arc;

use longarm_memory::RegionMut;
use longarm_registration::Hold;
use parking_lot::Mutex;

use crate::fabric::{Device, Fabric};

/// All such memory, and what the program has said of itself.
#[derive(Default)]
pub(crate) struct AllMapped(Mutex<State>);

#[derive(Default)]
struct State {
    pieces: slab::Slab<Piece>,
    /// One thread alone maps and unmaps memory.
    is_one_thread: bool,
    /// The device, once it is open: it knows.
    fabric: Option<Arc<Fabric>>,
}

struct Piece {
    memory: (usize, usize),
    /// Once there is a device.
    _hold: Option<Hold<Device>>,
}

impl AllMapped {
    /// Call when the device is open.
    pub(crate) fn catch_up(&self, fabric: &Arc<Fabric>) {
        let mut state = self.0.lock();
        if state.fabric.is_some() {
            return;
        }
        state.fabric = Some(Arc::clone(fabric));
        if state.is_one_thread {
            fabric.cache.rely_on_one_thread();
        }
        for (_, piece) in &mut state.pieces {
            let (start, bytes) = piece.memory;
            piece._hold.get_or_insert_with(|| fabric.cache.hold(start, bytes));
        }
    }

    /// The program's word for it. Before or after the device is opened.
    pub(crate) fn rely_on_one_thread(&self) {
        // Under the lock: who opens the device meanwhile sees it, or is seen.
        let mut state = self.0.lock();
        state.is_one_thread = true;
        if let Some(fabric) = &state.fabric {
            fabric.cache.rely_on_one_thread();
        }
    }
}

/// One piece, until it is dropped.
pub(crate) struct Mapped {
    all: Arc<AllMapped>,
    number: usize,
}

impl Mapped {
    pub(crate) fn hold(all: &Arc<AllMapped>, memory: RegionMut<'_>) -> Mapped {
        let (start, bytes) = (memory.as_mut_ptr().expose_provenance(), memory.len());
        let mut state = all.0.lock();
        // Under the lock: who opens the device holds what is in the list by then.
        let hold = state.fabric.as_ref().map(|fabric| fabric.cache.hold(start, bytes));
        let number = state.pieces.insert(Piece { memory: (start, bytes), _hold: hold });
        drop(state);
        Mapped { all: Arc::clone(all), number }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let piece = self.all.0.lock().pieces.remove(self.number);
        // Without the lock: the device takes its time.
        drop(piece);
    }
}
