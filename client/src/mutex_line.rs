//! The line of a mutex that is mapped here.

use longarm_proto::{Rmw, RmwOp, RmwWidth};
use longarm_shm::Window;
use longarm_shm::handover::{MutexLine, SET_WORDS};

/// Bytes of one mutex in its window. Each has a line of its own, so that neighbours do not slow each other down.
pub(crate) const MUTEX_BYTES: u64 = 64;
/// Where it says which rank a round began with.
pub(crate) const ROUND_OFFSET: u64 = 4;
/// Where the set of ranks that look begins.
pub(crate) const SET_OFFSET: u64 = 8;

const _: () = assert!(SET_OFFSET + SET_WORDS as u64 * 8 <= MUTEX_BYTES, "the set is on the mutex's line");

/// The line at `offset`, which the caller has checked, in a part.
pub(crate) struct LineHere<'a> {
    pub(crate) part: Window<'a>,
    pub(crate) offset: u64,
}

impl LineHere<'_> {
    fn set_rmw(&self, index: u32, op: RmwOp, operand: u64) -> u64 {
        let rmw = Rmw { op, width: RmwWidth::W64, operand, compare: 0 };
        self.part.rmw(self.offset + SET_OFFSET + u64::from(index) * 8, rmw).expect("the line is inside")
    }
}

impl MutexLine for LineHere<'_> {
    fn word(&self) -> u32 {
        self.part.load_u32(self.offset).expect("the line is inside")
    }

    fn exchange(&self, from: u32, to: u32) -> Result<u32, u32> {
        self.part.compare_exchange_u32(self.offset, from, to).expect("the line is inside")
    }

    fn set(&self, index: u32) -> u64 {
        self.part.load_u64(self.offset + SET_OFFSET + u64::from(index) * 8).expect("the line is inside")
    }

    fn add(&self, index: u32, bits: u64) {
        self.set_rmw(index, RmwOp::FetchOr, bits);
    }

    fn take_out(&self, index: u32, bits: u64) -> u64 {
        self.set_rmw(index, RmwOp::FetchAnd, !bits)
    }

    fn round(&self) -> u32 {
        self.part.load_u32(self.offset + ROUND_OFFSET).expect("the line is inside")
    }

    fn set_round(&self, first: u32) {
        let rmw = Rmw { op: RmwOp::Set, width: RmwWidth::W32, operand: first.into(), compare: 0 };
        self.part.rmw(self.offset + ROUND_OFFSET, rmw).expect("the line is inside");
    }
}
