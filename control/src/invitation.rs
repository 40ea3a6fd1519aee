//! The one text that the starter of a job brings from rank 0 to all others: where the coordinator listens, and what lets them in.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::messages::{CONTROL_VERSION, Start};
use crate::proof::Ticket;

/// No invitation is longer: it has to fit into what the smallest process manager keeps under one name.
pub const INVITATION_BYTES_MAX: usize = 480;

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    assembly: u64,
    secret: String,
    at: Vec<SocketAddr>,
}

/// See the module. Its secret is never printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// What lets a process in.
    pub ticket: Ticket,
    /// Where the coordinator listens, the likeliest first.
    pub at: Vec<SocketAddr>,
}

/// Why a text is no invitation.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvitationError {
    /// It is none.
    #[error("rank 0 has shared something that is no invitation; do all ranks run the same release of longarm?")]
    Garbled,
    /// Rank 0 is of another release.
    #[error(
        "rank 0 speaks version {found} of the control messages, and this rank {CONTROL_VERSION}; use one release of longarm everywhere"
    )]
    Version {
        /// What it speaks.
        found: u32,
    },
    /// Rank 0 could not begin.
    #[error("{0}")]
    Refused(String),
}

/// What rank 0 shares where it cannot begin, in front of the reason, so that nobody waits for it.
const REFUSAL: &str = "longarm cannot begin: ";

impl Invitation {
    /// The text. Addresses that have no room are left out.
    pub fn write(&self) -> String {
        let secret = Start::spell_secret(&self.ticket.secret);
        let mut at = self.at.clone();
        loop {
            let written =
                Written { version: CONTROL_VERSION, assembly: self.ticket.assembly, secret: secret.clone(), at };
            let text = serde_json::to_string(&written).expect("it has only names as keys");
            at = written.at;
            if text.len() <= INVITATION_BYTES_MAX || at.len() <= 1 {
                return text;
            }
            at.pop();
        }
    }

    /// Rank 0 cannot begin, for this reason.
    pub fn write_refusal(reason: &str) -> String {
        let room = INVITATION_BYTES_MAX - REFUSAL.len();
        let end = (0..=room.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or_default();
        format!("{REFUSAL}{}", &reason[..end])
    }

    /// Reads what rank 0 of a job of so many ranks has shared.
    ///
    /// # Errors
    /// Why it is no invitation.
    pub fn read(text: &str, size: u32) -> Result<Invitation, InvitationError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        if let Some(reason) = text.strip_prefix(REFUSAL) {
            return Err(InvitationError::Refused(reason.chars().filter(|letter| !letter.is_control()).collect()));
        }
        let found = serde_json::from_str::<Version>(text).map_err(|_| InvitationError::Garbled)?.version;
        if found != CONTROL_VERSION {
            return Err(InvitationError::Version { found });
        }
        let written: Written = serde_json::from_str(text).map_err(|_| InvitationError::Garbled)?;
        let secret = Start::secret_of(&written.secret).ok_or(InvitationError::Garbled)?;
        if written.at.is_empty() {
            return Err(InvitationError::Garbled);
        }
        Ok(Invitation { ticket: Ticket { assembly: written.assembly, size, secret }, at: written.at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation(addresses: usize) -> Invitation {
        let ticket = Ticket { assembly: u64::MAX, size: 4, secret: [0xfe; 32] };
        let long = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535".parse().unwrap();
        Invitation { ticket, at: vec![long; addresses] }
    }

    #[test]
    fn an_invitation_comes_back_as_it_was_written() {
        assert_eq!(Invitation::read(&invitation(2).write(), 4), Ok(invitation(2)));
    }

    #[test]
    fn addresses_that_have_no_room_are_left_out() {
        let text = invitation(40).write();
        assert!(text.len() <= INVITATION_BYTES_MAX, "{} bytes", text.len());
        assert!(Invitation::read(&text, 4).unwrap().at.len() >= 3);
    }

    #[test]
    fn what_is_no_invitation_is_told_from_one_of_another_release() {
        let text = invitation(1).write();
        let other = text.replace(&format!("\"version\":{CONTROL_VERSION}"), "\"version\":99");
        assert_eq!(Invitation::read(&other, 4), Err(InvitationError::Version { found: 99 }));
        for garbled in ["", "{", &text[..text.len() - 1], &text.replace("fe", "xx"), &text.replace("fefe", "fe")] {
            assert_eq!(Invitation::read(garbled, 4), Err(InvitationError::Garbled), "{garbled}");
        }
    }

    #[test]
    fn a_refusal_says_its_reason_as_far_as_there_is_room() {
        let text = Invitation::write_refusal(&"é".repeat(400));
        assert!(text.len() <= INVITATION_BYTES_MAX);
        let Err(InvitationError::Refused(reason)) = Invitation::read(&text, 4) else { panic!("{text}") };
        assert!(reason.chars().all(|letter| letter == 'é') && reason.len() > 400);
    }
}
