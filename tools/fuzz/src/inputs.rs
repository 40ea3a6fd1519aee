//! What a target starts from.

/// Inputs by name.
pub type Seeds = Vec<(&'static str, Vec<u8>)>;
