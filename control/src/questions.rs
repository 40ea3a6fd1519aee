//! What `longarm ps` asks a running job, over an abstract unix socket that is named after the process which knows all ranks.

/// What the names of all these sockets begin with; the number of the process follows.
pub const NAME_PREFIX: &str = "longarm-run-";
/// A line that asks for a [`crate::standing::Summary`].
pub const SUMMARY: &[u8] = b"summary\n";
/// A line that asks for a [`crate::standing::Report`].
pub const REPORT: &[u8] = b"report\n";

/// Whether a user may ask a job of another one.
pub fn may_ask(asker: u32, owner: u32) -> bool {
    asker == owner || asker == 0
}
