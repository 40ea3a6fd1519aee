//! How what is under way goes on: connections, who drives them, who waits.

pub(crate) mod dialing;
pub(crate) mod helper;
pub(crate) mod sleepers;
pub(crate) mod time;
pub(crate) mod waiting;
pub(crate) mod waits;
