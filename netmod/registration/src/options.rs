//! The bounds of a cache, and how it learns that memory goes away.

/// How a cache learns that memory has gone or changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watch {
    /// By userfaultfd where the system allows it; elsewhere nothing is cached.
    #[default]
    Auto,
    /// By userfaultfd, or not at all.
    Userfault,
    /// The caller calls [`Cache::invalidate`](crate::Cache::invalidate) before memory goes: for those who stand between
    /// the program and its system calls themselves.
    Caller,
    /// Not at all, because it need not: the device itself follows what becomes of the memory (on-demand paging).
    Device,
    /// Nothing is cached: each transfer registers anew.
    Off,
}

/// The bounds of a cache.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes that may be registered at the same time: cached, in use, or both.
    pub bytes_max: usize,
    /// Registrations that may exist at the same time.
    pub entries_max: usize,
    /// Up to this size a registration is made together with the ones that touch it. Larger ones stay apart: a buffer
    /// that is registered chunk by chunk must not be registered whole with every chunk.
    pub merge_bytes_max: usize,
    /// How the cache learns that memory goes away.
    pub watch: Watch,
    /// The caller's word that one thread alone unmaps, maps and communicates (`SHMEM_THREAD_SINGLE`). Then a hit takes
    /// no system call; else it takes one short one, and the head of this crate says why.
    pub is_one_thread: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            bytes_max: usize::MAX,
            entries_max: 1024,
            merge_bytes_max: 1 << 20,
            watch: Watch::Auto,
            is_one_thread: false,
        }
    }
}
