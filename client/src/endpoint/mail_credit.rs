//! How much mail may be sent to a node beyond what its server has passed on to inboxes: the rest waits here, so that requests that
//! touch memory never wait there behind mail for a rank that takes none in.

use longarm_proto::{Credit, MAIL_CREDIT_BYTES, Request, Violation, mail_charge};

/// See the module.
pub(super) struct MailCredit {
    credit: Credit,
    /// What the server has passed on since the session began, as far as it has said.
    taken: u64,
    /// Somebody has found too little credit.
    waits: bool,
}

impl MailCredit {
    pub(super) fn new() -> MailCredit {
        MailCredit { credit: Credit::new(MAIL_CREDIT_BYTES), taken: 0, waits: false }
    }

    /// Whether the request may be sent, as far as it is mail. If not, who wants to send it waits.
    pub(super) fn has_room(&mut self, request: &Request) -> bool {
        let Request::Message { bytes, .. } = request else { return true };
        let has_room = mail_charge(*bytes) <= self.credit.available();
        self.waits |= !has_room;
        has_room
    }

    /// The request is sent.
    pub(super) fn sent(&mut self, request: &Request) {
        if let Request::Message { bytes, .. } = request {
            self.credit.take(mail_charge(*bytes)).expect("there was room");
        }
    }

    /// The server says how much it has passed on.
    pub(super) fn taken(&mut self, bytes: u64) -> Result<(), Violation> {
        let (least, most) = (self.taken, self.taken + self.credit.outstanding());
        if !(least..=most).contains(&bytes) {
            return Err(Violation::MailTaken { found: bytes, least, most });
        }
        self.credit.give(bytes - least);
        self.taken = bytes;
        self.waits = false;
        Ok(())
    }

    /// Whether somebody waits for credit.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waits
    }
}

#[cfg(test)]
mod tests {
    use longarm_proto::{MAIL_PIECE_BYTES_MAX, MAIL_TOLD_BYTES, Rank};

    use super::*;

    fn message(bytes: u64) -> Request {
        Request::Message { target: Rank(0), bytes, rest: 0 }
    }

    #[test]
    fn who_waits_for_credit_gets_it_however_little_the_server_keeps_to_itself() {
        let (mut credit, mut sent, request) = (MailCredit::new(), 0, message(MAIL_PIECE_BYTES_MAX));
        while credit.has_room(&request) {
            credit.sent(&request);
            sent += mail_charge(MAIL_PIECE_BYTES_MAX);
        }
        assert!(credit.is_waited_for() && credit.has_room(&Request::Quiet));
        // All of it has gone to the inboxes, and of the last of it nothing was said.
        credit.taken(sent - (MAIL_TOLD_BYTES - 1)).unwrap();
        assert!(!credit.is_waited_for() && credit.has_room(&request));
    }

    #[test]
    fn a_server_that_has_passed_on_what_was_not_sent_or_takes_its_word_back_is_broken() {
        let mut credit = MailCredit::new();
        assert_eq!(credit.taken(1), Err(Violation::MailTaken { found: 1, least: 0, most: 0 }));
        credit.sent(&message(36));
        assert_eq!(credit.taken(101), Err(Violation::MailTaken { found: 101, least: 0, most: 100 }));
        credit.taken(60).unwrap();
        assert_eq!(credit.taken(59), Err(Violation::MailTaken { found: 59, least: 60, most: 100 }));
        assert_eq!(credit.taken(u64::MAX), Err(Violation::MailTaken { found: u64::MAX, least: 60, most: 100 }));
        credit.taken(100).unwrap();
    }
}
