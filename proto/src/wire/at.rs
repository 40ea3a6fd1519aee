//! Where the fields of a request's header stand.

pub(super) const KIND: usize = 0;
pub(super) const SHAPE: usize = 1;
pub(super) const ELEMENT: usize = 2;
pub(super) const OP: usize = 3;
pub(super) const DESCRIPTOR: usize = 4;
pub(super) const PAYLOAD: usize = 8;
pub(super) const ID: usize = 16;
pub(super) const RANK: usize = 24;
pub(super) const GENERATION: usize = 28;
pub(super) const WINDOW: usize = 32;
pub(super) const KEY: usize = 40;
pub(super) const OFFSET: usize = 48;
pub(super) const OPERAND: usize = 56;
