//! What a thread that sleeps on connections sees of one.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};

/// An endpoint that is slept on.
pub(crate) struct Watched {
    /// Without a link it has to be driven again soon.
    pub(crate) is_up: bool,
    pub(crate) descriptor: Option<Arc<OwnedFd>>,
    pub(crate) flags: PollFlags,
    /// Something is there already.
    pub(crate) ready: bool,
}

impl Watched {
    /// What to poll, if there is something.
    pub(crate) fn poll(&self) -> Option<PollFd<'_>> {
        self.descriptor.as_ref().map(|descriptor| PollFd::new(&**descriptor, self.flags))
    }
}
