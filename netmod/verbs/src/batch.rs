//! A batch: requests that are kept back for a moment, so that one ring of the doorbell tells the device of several.

use crate::sys::{Posting, Span};

/// Those of one stream. All of them are among its requests already, with what they need.
#[derive(Default)]
pub(crate) struct Batch {
    /// Others may follow at once.
    pub(crate) is_open: bool,
    pub(crate) posts: Vec<BatchedPost>,
}

/// One that is kept back.
pub(crate) struct BatchedPost {
    pub(crate) id: u64,
    pub(crate) posting: Posting,
    pub(crate) spans: Vec<Span>,
    pub(crate) fenced: bool,
}
