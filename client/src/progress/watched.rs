//! What a thread that sleeps on connections sees of one.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};

/// An endpoint that is slept on.
pub(crate) struct Watched {
    /// Without a link its server is called.
    pub(crate) is_up: bool,
    /// Another thread drives it. Its descriptor may announce what that thread is about to take in, and who slept on it would wake in vain
    /// again and again, and perhaps keep that very thread from a processor.
    pub(crate) is_taken: bool,
    pub(crate) descriptor: Option<Arc<OwnedFd>>,
    pub(crate) flags: PollFlags,
    /// Something is there already.
    pub(crate) ready: bool,
}

impl Watched {
    /// What to poll, if there is something.
    pub(crate) fn poll(&self) -> Option<PollFd<'_>> {
        let descriptor = self.descriptor.as_ref().filter(|_| !self.is_taken);
        descriptor.map(|descriptor| PollFd::new(&**descriptor, self.flags))
    }

    /// Whether nothing tells that it can go on: it has to be driven again soon.
    pub(crate) fn is_unannounced(&self) -> bool {
        self.is_taken || self.descriptor.is_none()
    }
}
