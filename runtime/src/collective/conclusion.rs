//! What the leader of a node tells the others of its node when the leaders have spoken with each other (`through_leader.rs`).

use longarm_client::{Layout, Lost, LostHow, Operation, TransferError};
use longarm_proto::{Rank, Refusal};

use super::agree::Known;
use super::elements::LoadBytes;
use super::flag_barrier::{DATA_BYTES, Shown, told};
use crate::error::CollectiveError;

/// See the module.
#[cfg_attr(test, derive(Clone, PartialEq, Debug))]
pub(super) enum Conclusion {
    /// What the leaders came to; of the bytes, what fits into a line: more goes by messages.
    Known(Known),
    /// A rank has sent something else than is due, so many bytes of it. How many were due, where that was a number.
    BadMessage { rank: Rank, found: u64, due: Option<u64> },
    /// A rank says that it has so many bytes, for which there is no memory.
    NoRoom { rank: Rank, bytes: u64 },
    /// The server of a rank's node has refused what the leader has asked it for.
    Refused { rank: Rank, refusal: Refusal, detail: u64 },
    /// A rank does not answer.
    Lost { rank: Rank },
    /// The leader has heard of a death, which every rank hears of in its own time.
    Death,
    /// Another error of the leader.
    Failed,
    /// What the leader has told is nothing that a leader tells.
    Unreadable,
}

// The lowest byte of the word that is told; behind it that of the flags.
const KNOWN: u64 = 1;
const BAD_MESSAGE: u64 = 2;
const LOST: u64 = 3;
const DEATH: u64 = 4;
const FAILED: u64 = 5;
const NO_ROOM: u64 = 6;
const REFUSED: u64 = 7;

/// Whom a conclusion is explained to, and who has told it.
pub(super) struct Context<'a> {
    pub(super) layout: &'a Layout,
    pub(super) members: &'a [Rank],
    /// The leader of this node.
    pub(super) leader: Rank,
    /// What this rank called.
    pub(super) operation: String,
}

impl Conclusion {
    pub(super) fn of(spoken: Result<&Known, &CollectiveError>) -> Conclusion {
        match spoken {
            Ok(Known { flags, bytes }) => {
                let fits = bytes.len() <= DATA_BYTES;
                Conclusion::Known(Known { flags: *flags, bytes: if fits { bytes.clone() } else { LoadBytes::new() } })
            }
            Err(CollectiveError::BadMessage { rank, found, due, .. }) => {
                Conclusion::BadMessage { rank: *rank, found: *found, due: due.parse().ok() }
            }
            Err(CollectiveError::NoRoom { rank, bytes, .. }) => Conclusion::NoRoom { rank: *rank, bytes: *bytes },
            Err(CollectiveError::Transfer(TransferError::Refused { rank, refusal, detail, .. })) => {
                Conclusion::Refused { rank: *rank, refusal: *refusal, detail: *detail }
            }
            Err(error) => match error.lost() {
                Some(lost) if matches!(lost.how, LostHow::Died(_)) => Conclusion::Death,
                Some(lost) => Conclusion::Lost { rank: lost.rank },
                None => Conclusion::Failed,
            },
        }
    }

    pub(super) fn shown(&self) -> Shown {
        let of_rank = |kind, rank: &Rank, more: &[u8]| Shown::told(kind, &[&rank.0.to_le_bytes()[..], more].concat());
        match self {
            Conclusion::Known(known) => Shown::told(KNOWN | u64::from(known.flags) << 8, &known.bytes),
            Conclusion::BadMessage { rank, found, due } => {
                let due = due.map(u64::to_le_bytes);
                let due = due.as_ref().map_or(&[][..], |due| due);
                of_rank(BAD_MESSAGE, rank, &[&found.to_le_bytes()[..], due].concat())
            }
            Conclusion::NoRoom { rank, bytes } => of_rank(NO_ROOM, rank, &bytes.to_le_bytes()),
            Conclusion::Refused { rank, refusal, detail } => {
                of_rank(REFUSED, rank, &[&[refusal.to_wire()][..], &detail.to_le_bytes()].concat())
            }
            Conclusion::Lost { rank } => of_rank(LOST, rank, &[]),
            Conclusion::Death => Shown::told(DEATH, &[]),
            // What cannot be read is not told.
            Conclusion::Failed | Conclusion::Unreadable => Shown::told(FAILED, &[]),
        }
    }

    pub(super) fn read(word: &dyn Fn(usize) -> u64) -> Conclusion {
        Conclusion::decode(word).unwrap_or(Conclusion::Unreadable)
    }

    fn decode(word: &dyn Fn(usize) -> u64) -> Option<Conclusion> {
        let (word, bytes) = told(word)?;
        let (kind, flags) = (word & 0xff, (word >> 8) as u8);
        match (kind, bytes.is_empty()) {
            (KNOWN, _) => return Some(Conclusion::Known(Known { flags, bytes })),
            (DEATH, true) => return Some(Conclusion::Death),
            (FAILED, true) => return Some(Conclusion::Failed),
            _ => {}
        }
        let (rank, rest) = bytes.split_first_chunk()?;
        let rank = Rank(u32::from_le_bytes(*rank));
        let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        match kind {
            BAD_MESSAGE if rest.len() == 8 => Some(Conclusion::BadMessage { rank, found: number(rest)?, due: None }),
            BAD_MESSAGE => {
                let (found, due) = rest.split_at_checked(8)?;
                Some(Conclusion::BadMessage { rank, found: number(found)?, due: Some(number(due)?) })
            }
            NO_ROOM => Some(Conclusion::NoRoom { rank, bytes: number(rest)? }),
            REFUSED => {
                let (refusal, detail) = rest.split_first()?;
                let refusal = Refusal::from_wire(*refusal)?;
                Some(Conclusion::Refused { rank, refusal, detail: number(detail)? })
            }
            LOST if rest.is_empty() => Some(Conclusion::Lost { rank }),
            _ => None,
        }
    }

    /// What it means for a member that has heard it. A rank that is no member is the fault of the leader, which names it.
    #[cold]
    pub(super) fn explain(&self, context: Context<'_>) -> CollectiveError {
        let Context { layout, members, leader, operation } = context;
        let node = |rank: Rank| layout.node_of(rank);
        let is_known = |rank: &Rank| members.contains(rank);
        let collective = Operation::Collective;
        match self {
            Conclusion::BadMessage { rank, found, due } if is_known(rank) => {
                let due = due.map_or_else(|| "what all members call".into(), |due| due.to_string());
                CollectiveError::BadMessage { rank: *rank, node: node(*rank), operation, found: *found, due }
            }
            Conclusion::NoRoom { rank, bytes } if is_known(rank) => {
                CollectiveError::NoRoom { rank: *rank, node: node(*rank), operation, bytes: *bytes }
            }
            Conclusion::Refused { rank, refusal, detail } if is_known(rank) => {
                let (rank, refusal, detail) = (*rank, *refusal, *detail);
                TransferError::Refused { operation: collective, rank, node: node(rank), refusal, detail }.into()
            }
            // The host of a server is not always a member.
            Conclusion::Lost { rank } if layout.contains(*rank) => {
                let (rank, how) = (*rank, LostHow::SaidBy(leader));
                CollectiveError::Lost(Lost { rank, node: node(rank), operation: collective, how })
            }
            Conclusion::Failed => CollectiveError::LeaderFailed { rank: leader, node: node(leader), operation },
            _ => {
                let due = "what the members of other nodes call".into();
                CollectiveError::BadMessage { rank: leader, node: node(leader), operation, found: 0, due }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use longarm_proto::NodeId;

    use super::*;

    fn read(words: &[u64]) -> Conclusion {
        Conclusion::read(&|at| words.get(at).copied().unwrap_or(0))
    }

    #[test]
    fn the_others_hear_what_the_leader_has_told() {
        for flags in 0..4 {
            for bytes in [&b""[..], b"1", b"12345678", &[7; 40]] {
                let told = Conclusion::Known(Known { flags, bytes: bytes.into() });
                assert_eq!(read(told.shown().words()), told);
            }
        }
        let (low, high) = (Rank(0), Rank(u32::MAX));
        for told in [
            Conclusion::BadMessage { rank: low, found: u64::MAX, due: None },
            Conclusion::BadMessage { rank: high, found: 0, due: Some(8) },
            Conclusion::BadMessage { rank: high, found: 1, due: Some(0) },
            Conclusion::NoRoom { rank: high, bytes: 1 << 60 },
            Conclusion::Refused { rank: low, refusal: Refusal::WrongKey, detail: u64::MAX },
            Conclusion::Lost { rank: low },
            Conclusion::Lost { rank: high },
            Conclusion::Death,
            Conclusion::Failed,
        ] {
            assert_eq!(read(told.shown().words()), told);
        }
    }

    #[test]
    fn what_no_leader_tells_cannot_be_read_and_is_never_an_agreement() {
        let bad = Conclusion::BadMessage { rank: Rank(3), found: 5, due: None };
        let words = bad.shown().words().to_vec();
        for kind in (0..=u8::MAX).filter(|kind| u64::from(*kind) != KNOWN) {
            // Of 12 bytes these two are.
            let expected = match u64::from(kind) {
                BAD_MESSAGE => bad.clone(),
                NO_ROOM => Conclusion::NoRoom { rank: Rank(3), bytes: 5 },
                _ => Conclusion::Unreadable,
            };
            assert_eq!(read(&[&[u64::from(kind)], &words[1..]].concat()), expected, "{kind}");
        }
        // What shows what it calls is at another barrier; and there is no such refusal.
        assert_eq!(read(&[KNOWN | 0x100, 0]), Conclusion::Unreadable);
        let refused = Shown::told(REFUSED, &[0, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read(refused.words()), Conclusion::Unreadable);
    }

    /// What a member of node 1 makes of an error of its leader, rank 2. Ranks 1 to 4 are members, of nodes 0, 1, 1 and 2.
    fn heard(error: &CollectiveError) -> String {
        explained(&read(Conclusion::of(Err(error)).shown().words()))
    }

    fn explained(conclusion: &Conclusion) -> String {
        let layout = Layout::new(Rank(3), &[0, 0, 1, 1, 2].map(NodeId));
        let members = [1, 2, 3, 4].map(Rank);
        let operation = String::from("sum");
        conclusion.explain(Context { layout: &layout, members: &members, leader: Rank(2), operation }).to_string()
    }

    #[test]
    fn an_error_of_the_leader_is_told_with_the_rank_that_was_its_reason_and_what_was_wrong() {
        let (rank, node, operation) = (Rank(4), NodeId(2), String::from("sum"));
        let bad = |due: &str| CollectiveError::BadMessage {
            rank,
            node,
            operation: operation.clone(),
            found: 5,
            due: due.into(),
        };
        let no_room = CollectiveError::NoRoom { rank, node, operation: operation.clone(), bytes: 1 << 50 };
        for error in [bad("8"), bad("what all members call"), no_room] {
            assert_eq!(heard(&error), error.to_string());
        }
        // A rule that is no number is that of all members, as far as can be told here.
        assert_eq!(heard(&bad("two claims")), bad("what all members call").to_string());
        let (refusal, detail) = (Refusal::OutOfMemory, 77);
        let refused = |operation| TransferError::Refused { operation, rank, node, refusal, detail };
        assert_eq!(heard(&refused(Operation::Get).into()), refused(Operation::Collective).to_string());
        let lost = Lost { rank: Rank(0), node: NodeId(0), operation: Operation::Get, how: LostHow::Gone };
        let due = "collective failed: rank 0 (node 0) cannot be reached, says rank 2, which speaks for this node";
        assert_eq!(heard(&lost.clone().into()), due);
        assert_eq!(heard(&TransferError::Lost(lost).into()), due, "rank 0 hosts a server and is no member");
        let doubtful = TransferError::Doubtful { operation: Operation::Put, rank, node };
        let failed = heard(&doubtful.into());
        assert!(failed.starts_with("rank 2 (node 1), ") && !failed.contains("sent"), "{failed}");
    }

    #[test]
    fn a_leader_that_tells_nonsense_is_named_itself() {
        let nobody = Rank(9);
        for nonsense in [
            Conclusion::Unreadable,
            Conclusion::Lost { rank: nobody },
            Conclusion::BadMessage { rank: nobody, found: 1, due: None },
            Conclusion::NoRoom { rank: Rank(0), bytes: 1 },
            Conclusion::Refused { rank: nobody, refusal: Refusal::WrongKey, detail: 0 },
        ] {
            let found = explained(&nonsense);
            assert!(found.starts_with("rank 2 (node 1) sent 0 bytes in sum"), "{nonsense:?}: {found}");
        }
    }
}
