//! Parts of the node's segment that are found once: for the hot path.

use std::sync::Arc;

use crate::eventcount::{Eventcount, EventcountWord};
use crate::flag_barrier::{Board, Lines};
use crate::layout::NodeSegment;

/// `count` values of the segment, for as long as this is kept.
#[derive(Debug)]
struct Found<T> {
    first: *const T,
    count: usize,
    _segment: Arc<NodeSegment>,
}

// SAFETY: the pointer leads to atomics in the mapping of `_segment`, which moves and is shared with this.
unsafe impl<T: Sync> Send for Found<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Sync> Sync for Found<T> {}

impl<T> Found<T> {
    fn new(values: &[T], segment: Arc<NodeSegment>) -> Found<T> {
        Found { first: values.as_ptr(), count: values.len(), _segment: segment }
    }

    #[inline]
    fn at(&self, place: usize) -> &T {
        assert!(place < self.count);
        // SAFETY: one of `count` values (asserted) of a slice that `new` was given, in the mapping that `_segment` keeps.
        // They are atomics.
        unsafe { &*self.first.wrapping_add(place) }
    }
}

/// The doorbells of the ranks of this node.
#[derive(Debug)]
pub struct Eventcounts(Found<[EventcountWord; 2]>);

impl Eventcounts {
    pub(crate) fn new(words: &[EventcountWord], segment: Arc<NodeSegment>) -> Eventcounts {
        Eventcounts(Found::new(words.as_chunks().0, segment))
    }

    /// As [`NodeSegment::eventcount`].
    ///
    /// # Panics
    ///
    /// If there is no such rank here.
    #[inline]
    pub fn mail(&self, local: u32) -> Eventcount<'_> {
        Eventcount::new(&self.0.at(local as usize)[0])
    }

    /// As [`NodeSegment::window_eventcount`].
    ///
    /// # Panics
    ///
    /// If there is no such rank here.
    #[inline]
    pub fn window(&self, local: u32) -> Eventcount<'_> {
        Eventcount::new(&self.0.at(local as usize)[1])
    }
}

/// Where the ranks of this node meet: the place of a member is its local rank.
#[derive(Debug)]
pub struct NodeBoard(Found<Lines>);

impl NodeBoard {
    pub(crate) fn new(lines: &[Lines], segment: Arc<NodeSegment>) -> NodeBoard {
        NodeBoard(Found::new(lines, segment))
    }
}

impl Board for NodeBoard {
    #[inline]
    fn lines(&self, place: usize) -> &Lines {
        self.0.at(place)
    }
}
