//! A thread that sleeps on the engine's poller in the place of the server's, and what wakes it for its rank.

use std::io;

use longarm_netmod::{Interest, Waker};

use super::{Engine, RINGER};

impl Engine {
    /// From now on a thread of this process may sleep on [`Engine::poller`]: processes of this node wake it there.
    pub(crate) fn let_listen(&mut self) -> io::Result<()> {
        let ringer = Waker::new()?;
        self.poller.add(ringer.descriptor(), RINGER, Interest::READABLE)?;
        self.shared.node.set_ringer(ringer.descriptor().try_clone_to_owned()?);
        self.ringer = Some(ringer);
        Ok(())
    }

    /// The calling thread will sleep on [`Engine::poller`]. False: it cannot, since another one does, or not all that there is to do
    /// makes descriptors ready.
    pub(crate) fn begin_to_listen(&mut self) -> bool {
        let can = self.ringer.is_some() && !self.has_listener && !self.unannounced;
        self.has_listener |= can;
        can
    }

    /// It sleeps no more. It has to look at its eventcounts after this.
    pub(crate) fn end_listening(&mut self) {
        self.has_listener = false;
        self.silence_ringer();
    }

    /// While somebody listens nobody else silences what wakes it.
    pub(super) fn silence_ringer(&self) {
        if let Some(ringer) = self.ringer.as_ref().filter(|_| !self.has_listener) {
            ringer.clear();
        }
    }
}
