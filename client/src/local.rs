//! What a rank knows without asking another node.

pub(crate) mod failures;
pub(crate) mod layout;
pub(crate) mod meetings;
