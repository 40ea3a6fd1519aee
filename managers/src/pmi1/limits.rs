//! Bounds of what goes between a process and its manager.

/// Bytes of a line that the process manager sends, at most. Intel's values are the longest, 4,096.
pub const LINE_BYTES_MAX: usize = 32 << 10;
/// Bytes of a line that we send, at most: Slurm reads so many at once, and one is for its end of text.
pub(crate) const SENT_BYTES_MAX: usize = 1023;
/// Bytes of a value, at most. Long enough for all that ranks tell each other before they can connect.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Ranks of a job, at most.
pub const RANKS_MAX: u32 = 1 << 22;
