//! What everything says that is asked for bytes beyond the end of a window.

/// Bytes that are not all inside a window. Nothing was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes at offset {offset} are not inside a window of {window_bytes} bytes")]
pub struct OutsideWindow {
    /// Where they start, in bytes from the window's start.
    pub offset: u64,
    /// How many they are.
    pub bytes: u64,
    /// The size of the window.
    pub window_bytes: u64,
}
