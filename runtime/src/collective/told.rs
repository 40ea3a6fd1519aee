//! What the first rank of a node tells the others of its node when the first ones have spoken with each other (`through_first.rs`).

use longarm_client::LostHow;
use longarm_proto::Rank;

use super::agree::Known;
use super::flag_barrier::{DATA_BYTES, Shown, told};
use crate::error::CollectiveError;

/// See the module.
#[cfg_attr(test, derive(Clone, PartialEq, Debug))]
pub(super) enum Told {
    /// What the first ones came to; of the bytes, what fits into a line: more goes by messages.
    Known(Known),
    /// A rank has sent something else than is due, so many bytes of it.
    BadMessage { rank: Rank, found: u64 },
    /// A rank does not answer.
    Lost { rank: Rank },
    /// The first has heard of a death, which every rank hears of in its own time.
    Death,
    /// Another error of the first, or nothing that it could have told.
    Failed,
}

// The lowest byte of the word that is told; behind it that of the flags.
const KNOWN: u64 = 1;
const BAD_MESSAGE: u64 = 2;
const LOST: u64 = 3;
const DEATH: u64 = 4;
const FAILED: u64 = 5;

impl Told {
    pub(super) fn of(spoken: Result<&Known, &CollectiveError>) -> Told {
        match spoken {
            Ok(Known { flags, bytes }) => {
                let fits = bytes.len() <= DATA_BYTES;
                Told::Known(Known { flags: *flags, bytes: if fits { bytes.clone() } else { Vec::new() } })
            }
            Err(CollectiveError::BadMessage { rank, found, .. }) => Told::BadMessage { rank: *rank, found: *found },
            Err(error) => match error.lost() {
                Some(lost) if matches!(lost.how, LostHow::Died(_)) => Told::Death,
                Some(lost) => Told::Lost { rank: lost.rank },
                None => Told::Failed,
            },
        }
    }

    pub(super) fn shown(&self) -> Shown {
        match self {
            Told::Known(known) => Shown::told(KNOWN | u64::from(known.flags) << 8, &known.bytes),
            Told::BadMessage { rank, found } => {
                Shown::told(BAD_MESSAGE, &[&rank.0.to_le_bytes()[..], &found.to_le_bytes()].concat())
            }
            Told::Lost { rank } => Shown::told(LOST, &rank.0.to_le_bytes()),
            Told::Death => Shown::told(DEATH, &[]),
            Told::Failed => Shown::told(FAILED, &[]),
        }
    }

    pub(super) fn read(word: &dyn Fn(usize) -> u64) -> Told {
        Told::decode(word).unwrap_or(Told::Failed)
    }

    fn decode(word: &dyn Fn(usize) -> u64) -> Option<Told> {
        let (word, bytes) = told(word)?;
        match word & 0xff {
            KNOWN => Some(Told::Known(Known { flags: (word >> 8) as u8, bytes })),
            BAD_MESSAGE => {
                let (rank, found) = bytes.split_first_chunk()?;
                let found = u64::from_le_bytes(found.try_into().ok()?);
                Some(Told::BadMessage { rank: Rank(u32::from_le_bytes(*rank)), found })
            }
            LOST => Some(Told::Lost { rank: Rank(u32::from_le_bytes(bytes.try_into().ok()?)) }),
            DEATH => Some(Told::Death),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[u64]) -> Told {
        Told::read(&|at| words.get(at).copied().unwrap_or(0))
    }

    #[test]
    fn the_others_hear_what_the_first_has_told() {
        for flags in 0..4 {
            for bytes in [&b""[..], b"1", b"12345678", &[7; 40]] {
                let told = Told::Known(Known { flags, bytes: bytes.into() });
                assert_eq!(read(told.shown().words()), told);
            }
        }
        let (low, high) = (Rank(0), Rank(u32::MAX));
        let bad = |rank, found| Told::BadMessage { rank, found };
        for told in [
            bad(low, u64::MAX),
            bad(high, 0),
            Told::Lost { rank: low },
            Told::Lost { rank: high },
            Told::Death,
            Told::Failed,
        ] {
            assert_eq!(read(told.shown().words()), told);
        }
    }

    #[test]
    fn what_no_first_tells_is_a_failure_and_never_an_agreement() {
        let bad = Told::BadMessage { rank: Rank(3), found: 5 }.shown().words().to_vec();
        for kind in (0..=u8::MAX).filter(|kind| !matches!(u64::from(*kind), KNOWN | DEATH)) {
            // Only a bad message has 12 bytes.
            let words = [&[u64::from(kind)], &bad[1..]].concat();
            let expected = if u64::from(kind) == BAD_MESSAGE { bad_message() } else { Told::Failed };
            assert_eq!(read(&words), expected, "{kind}");
        }
        // What shows what it calls is at another barrier.
        assert_eq!(read(&[KNOWN | 0x100, 0]), Told::Failed);
    }

    fn bad_message() -> Told {
        Told::BadMessage { rank: Rank(3), found: 5 }
    }
}
