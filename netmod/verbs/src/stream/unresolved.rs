//! What a connection leaves behind for the next one.

use longarm_netmod::DirectOutcome;

use super::Stream;
use crate::requests::Act;
use crate::unresolved::Unresolved;

impl Stream {
    /// The direct transfers that have not ended: their numbers, behind which packet they would have, and whether the peer's
    /// device has refused them. For the next connection.
    pub(crate) fn unresolved(&mut self) -> Vec<Unresolved> {
        // What has ended meanwhile has ended well: above all a read, which must not be repeated behind what came after it, and an
        // update, whose answer is here.
        self.ended = true;
        let _ = self.end();
        let _ = self.poll();
        if self.is_iwarp() {
            // The device does not say which it has refused. A window that was freed is not there when it is asked for anew.
            self.known.forget();
        }
        let is_repeated = self.is_iwarp();
        let refused = self.refused_ticket();
        let outcome = |ticket| (refused == Some(ticket)).then_some(DirectOutcome::Refused);
        let posted = self.requests.iter().filter_map(|request| {
            let ticket = request.ends?;
            let (is_read, is_atomic) =
                (matches!(request.act, Some(Act::Read)), matches!(request.act, Some(Act::Atomic(_))));
            let behind = (!is_read).then_some(request.behind);
            Some(Unresolved { ticket, behind, is_atomic, is_repeated, outcome: outcome(ticket) })
        });
        let waiting = self.direct.backlog.iter().map(|transfer| transfer.ticket);
        let rest = |ticket, outcome| Unresolved { ticket, behind: None, is_atomic: false, is_repeated, outcome };
        let waiting = waiting.map(|ticket| rest(ticket, outcome(ticket)));
        let over = self.direct.outcomes.drain(..);
        let over = over.map(|(ticket, outcome)| rest(ticket, Some(outcome)));
        let unproven = self.direct.unproven.iter();
        let unproven = unproven.map(|&(ticket, behind)| Unresolved { behind: Some(behind), ..rest(ticket, None) });
        over.chain(unproven).chain(posted).chain(waiting).collect()
    }

    /// The transfer that the peer's device has refused. One of several requests ends with its last, and any of them may be
    /// the one that was refused.
    fn refused_ticket(&self) -> Option<u64> {
        let ahead = usize::try_from(self.refused?.checked_sub(self.first_request)?).ok()?;
        let mut from_there = self.requests.iter().skip(ahead).peekable();
        from_there.peek()?.act?;
        let posted = from_there.find_map(|request| request.ends);
        posted.or_else(|| self.direct.backlog.front().map(|transfer| transfer.ticket))
    }
}
