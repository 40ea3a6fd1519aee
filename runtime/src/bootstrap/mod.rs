//! How a rank learns who it is and how the others are reached.

pub mod control;
