//! Where the payload of a request goes, and what happens when all of it is there.

use longarm_proto::{Cursor, Kernel, Rmw, RmwOp, RmwWidth, Scale, Signal, SignalOp};

use crate::mail::Piece;
use crate::table::TargetPart;

/// Where the payload of the current request goes.
pub(crate) enum Sink {
    Put { place: TargetPart, cursor: Cursor, then: AfterPut },
    Accumulate { place: TargetPart, cursor: Cursor, kernel: Kernel, scale: Scale },
    Message(Piece),
    Skip { remaining: u64 },
}

impl Sink {
    pub(crate) fn remaining(&self) -> u64 {
        match self {
            Sink::Put { cursor, .. } | Sink::Accumulate { cursor, .. } => cursor.remaining(),
            Sink::Message(piece) => piece.remaining(),
            Sink::Skip { remaining } => *remaining,
        }
    }
}

/// What happens when the last byte of a put has arrived.
pub(crate) struct AfterPut(pub(super) Option<(TargetPart, Signal)>);

impl AfterPut {
    /// Updates the signal, after every byte of the put.
    pub(crate) fn run(&self) {
        let Some((place, signal)) = &self.0 else { return };
        let op = match signal.op {
            SignalOp::Set => RmwOp::Set,
            SignalOp::Add => RmwOp::FetchAdd,
        };
        let rmw = Rmw { op, width: RmwWidth::W64, operand: signal.value, compare: 0 };
        place.window().rmw(signal.offset, rmw).expect("checked when the put was taken up");
    }
}
