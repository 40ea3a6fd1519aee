//! What a client needs to know of time: an argument, so that whole jobs can be simulated.

/// The time of a client, and what its threads do where they would sleep.
pub trait Time: Send + Sync {
    /// Milliseconds since any fixed moment.
    fn now_ms(&self) -> u64;

    /// Nothing is left to do for now. A simulator lets others run and says true; false: the thread sleeps as the system
    /// has it.
    fn rest(&self) -> bool {
        false
    }

    /// Whether time is simulated: no thread is started then, and whoever simulates drives what is in progress, by
    /// [`crate::Client::poll_progress`].
    fn is_simulated(&self) -> bool {
        false
    }
}
