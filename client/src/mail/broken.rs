//! Ranks that have sent what is no message.

use longarm_proto::{BadMail, Rank};
use longarm_shm::sync::Ordering;

use super::arrivals::Arrivals;
use crate::client::Client;
use crate::error::{Lost, LostHow, Operation};

impl Client {
    /// What a rank has sent is no message: from now on none of its mail is taken, and who waits for it is told.
    #[cold]
    pub(super) fn note_broken(&self, inbox: &mut Arrivals, source: Rank, why: BadMail) {
        // Of a rank that does not exist there is no mail to wait for.
        let node = self.local.layout.contains(source).then(|| self.local.layout.node_of(source).0);
        tracing::error!(
            rank = source.0,
            node,
            to = self.local.layout.me().0,
            "a rank has sent what is no message: {why}; its mail is not taken any more"
        );
        inbox.note_broken(source, why);
        self.mail.any_broken.store(true, Ordering::Relaxed);
        // Others may sleep until it sends something. They look under the lock that is held here.
        self.local.my_eventcount().notify();
    }

    /// The error for who waits for mail of such a rank that has sent what is no message.
    pub(super) fn broken_mail(&self, concerns: impl Fn(Rank) -> bool) -> Option<Lost> {
        if !self.mail.any_broken.load(Ordering::Relaxed) {
            return None;
        }
        let inbox = self.mail.inbox.lock();
        let (rank, why) =
            inbox.broken.iter().find(|(rank, _)| concerns(**rank) && self.local.layout.contains(**rank))?;
        let (rank, how) = (*rank, LostHow::BrokenMail(*why));
        Some(Lost { rank, node: self.local.layout.node_of(rank), operation: Operation::Message, how })
    }
}
