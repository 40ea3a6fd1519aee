//! What the ranks of one node share: segments, windows, queues, eventcounts, atomics, counters.
//!
//! ```text
//!   NodeSegment (one memfd a node)             NodeWindow (one memfd a window and node)
//!   ┌────────┬───────┬─────────┬──────────┐    ┌─────────────┬─────────────┬─────────────┐
//!   │ eventcounts, │ stripe│ cells   │ counters │    │ part of     │ part of     │ part of     │
//!   │ inboxes│ locks │         │          │    │ local rank 0│ local rank 1│ local rank 2│
//!   └────────┴───────┴─────────┴──────────┘    └─────────────┴─────────────┴─────────────┘
//! ```
//!
//! - [`segment`]: a sealed memfd and its mapping. Nothing here has a name in a file system.
//! - [`window`], [`amo`], [`accumulate`]: the bytes of ranks, and what may be done to them.
//! - [`cell`], [`in_use`], [`inbox`], [`queue`], `fastbox`, [`eventcount`]: messages between the ranks of a node, and how a
//!   sleeper is woken.
//! - [`flag_barrier`]: how ranks meet without a message; [`handover`]: how they pass on a mutex; [`combining`]: how they send one
//!   request for what many of them do to a word of another node.
//! - [`layout`]: the node's segment, and what may be done with it; `parts`: where all of this lies in it.
//! - [`counters`]: what is counted, always; [`thread`]: by whom.
//!
//! It refuses to know other nodes, sockets and clocks. Any process may die between any two instructions; the head of
//! each module says what the others then see.

pub mod combining;
pub mod eventcount;
#[cfg_attr(loom, allow(dead_code, reason = "the models use a part of it"))]
mod fastbox;
pub mod flag_barrier;
pub mod handover;
#[cfg_attr(loom, allow(dead_code, reason = "the models use a part of it"))]
mod holders;
pub mod in_use;
pub mod inbox;
pub mod queue;
pub mod stripe;
pub mod sync;

// The models of loom run the algorithms above on memory of their own. What maps real memory has no place there.
#[cfg(not(loom))]
pub mod accumulate;
#[cfg(not(loom))]
pub mod amo;
#[cfg(not(loom))]
mod area_state;
#[cfg(not(loom))]
pub mod cell;
#[cfg(not(loom))]
pub mod counters;
#[cfg(not(loom))]
mod found;
#[cfg(not(loom))]
pub mod layout;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
mod outside;
#[cfg(not(loom))]
mod parts;
#[cfg(not(loom))]
pub mod segment;
#[cfg(not(loom))]
pub mod sync_area;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub mod window;

pub use eventcount::Eventcount;
pub use stripe::{STRIPE_COUNT, Stripes};

#[cfg(not(loom))]
pub use self::{
    accumulate::{AccumulateError, Accumulator},
    amo::AmoError,
    cell::{CELL_PAYLOAD_BYTES, CELLS_OF_SERVER, CELLS_PER_RANK, CellHead, MESSAGE_BEGINS},
    counters::{CounterKind, Counters},
    fastbox::{SHORT_BYTES_MAX, ShortMessage},
    found::{Eventcounts, NodeBoard, NodeCombining, OwnCounters, OwnStripes},
    layout::{Full, NodeSegment, Popped, Producer},
    outside::OutsideWindow,
    parts::{LOCAL_RANKS_MAX, SLOT_BYTES},
    segment::{OutsideSegment, Segment, SegmentError},
    window::{NodeWindow, Window, Word},
};

#[cfg(all(test, loom))]
mod loom_models;
