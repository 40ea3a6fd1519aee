//! What a thread that sleeps on connections sees of one.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use longarm_proto::NodeId;
use rustix::event::{PollFd, PollFlags};

/// An endpoint that is slept on.
pub(crate) struct Watched {
    pub(crate) node: NodeId,
    /// Without a link its server is called.
    pub(crate) is_up: bool,
    /// There has never been a link.
    pub(crate) is_first_call: bool,
    /// Another thread drives it. Its descriptor may announce what that thread is about to take in: a sleep on it would end in vain again and
    /// again, and perhaps keep that very thread from a processor.
    pub(crate) is_driven_elsewhere: bool,
    pub(crate) descriptor: Option<Arc<OwnedFd>>,
    pub(crate) flags: PollFlags,
    /// Something is there already.
    pub(crate) ready: bool,
}

impl Default for Watched {
    fn default() -> Watched {
        Watched {
            node: NodeId(0),
            is_up: false,
            is_first_call: false,
            is_driven_elsewhere: false,
            descriptor: None,
            flags: PollFlags::empty(),
            ready: false,
        }
    }
}

impl Watched {
    /// What to poll, if there is something.
    pub(crate) fn poll(&self) -> Option<PollFd<'_>> {
        self.descriptor.as_ref().map(|descriptor| PollFd::new(&**descriptor, self.flags))
    }

    /// Whether nothing tells this thread that it can go on: no other thread drives it, and there is no descriptor to poll.
    pub(crate) fn lacks_descriptor(&self) -> bool {
        !self.is_driven_elsewhere && self.descriptor.is_none()
    }

    /// Whether it has to be looked at although nothing announces anything.
    pub(crate) fn is_looked_at_by_clock(&self) -> bool {
        self.is_driven_elsewhere || self.descriptor.is_none()
    }
}

/// Which connections a thread looks at after a sleep on them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Announced {
    /// There may be something anywhere.
    #[default]
    Anything,
    /// There was nothing elsewhere when it slept, and what comes since is announced to its next sleep.
    These(Vec<NodeId>),
}

impl Announced {
    /// Gives them once. Until the next sleep there are no more.
    pub(crate) fn take(&mut self) -> Announced {
        let next = match self {
            Announced::Anything => Announced::Anything,
            Announced::These(_) => Announced::These(Vec::new()),
        };
        std::mem::replace(self, next)
    }
}
