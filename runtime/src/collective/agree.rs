//! Do all members call the same thing?

use longarm_proto::Rank;

use super::call::Call;
use super::signature::{SIGNATURE_BYTES, Signature};
use crate::error::CollectiveError;

const CLAIM_BYTES: usize = SIGNATURE_BYTES + 4;
pub(super) const DIGEST_BYTES: usize = 8;
/// All of whom was heard call the same.
pub(super) const SAME: u8 = 1;
/// All of whom was heard have laid out their stage.
pub(super) const OFFERED: u8 = 2;

/// A signature and one rank that has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim(Signature, Rank);

impl Claim {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        out.extend_from_slice(&self.1.0.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Claim> {
        let (signature, rank) = bytes.split_at_checked(SIGNATURE_BYTES)?;
        Some(Claim(Signature::decode(signature)?, Rank(u32::from_le_bytes(rank.try_into().ok()?))))
    }
}

/// The smallest and the largest claim that another member has heard of.
fn decode_two(heard: &[u8]) -> Option<(Claim, Claim)> {
    let (low, high) = heard.split_at_checked(CLAIM_BYTES)?;
    Claim::decode(low).zip(Claim::decode(high))
}

/// Takes apart what a member sends where the members call different things, and writes it anew, with how it is shown.
pub fn respell_claims(heard: &[u8]) -> Option<(Vec<u8>, String)> {
    let (low, high) = decode_two(heard)?;
    let mut spelled = Vec::new();
    [low, high].iter().for_each(|claim| claim.encode(&mut spelled));
    Some((spelled, format!("{}, {}", low.0, high.0)))
}

/// What the rounds of an agreement carry besides the digest, so that little data needs no rounds of its own.
pub(crate) enum Load {
    /// Nothing.
    Empty,
    /// The bytes of one member, on their way to all; `None` where they have not arrived yet.
    OfOne {
        /// These.
        bytes: Option<Vec<u8>>,
        /// How many they are.
        due: usize,
    },
    /// Equally many bytes of every member: those of this one, of the one before it, and so on around.
    OfAll(Vec<u8>),
}

impl Load {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Load::Empty)
    }

    /// Takes what barriers brought. Whether that is all.
    pub(super) fn fill(&mut self, brought: Vec<u8>) -> bool {
        match self {
            Load::Empty => true,
            // More than can be shown there.
            _ if brought.is_empty() => false,
            Load::OfOne { bytes, .. } => {
                *bytes = Some(brought);
                true
            }
            Load::OfAll(pieces) => {
                *pieces = brought;
                true
            }
        }
    }

    /// Adds what the member `distance` places ahead has to hear.
    fn append_to(&self, body: &mut Vec<u8>, distance: u32, size: u32) {
        match self {
            Load::Empty | Load::OfOne { bytes: None, .. } => {}
            Load::OfOne { bytes: Some(bytes), .. } => body.extend_from_slice(bytes),
            Load::OfAll(pieces) => {
                // Before this round there are pieces of `distance` members; near the end not all are missing there.
                let piece_bytes = pieces.len() / distance as usize;
                let wanted = piece_bytes * distance.min(size - distance) as usize;
                body.extend_from_slice(&pieces[..wanted]);
            }
        }
    }

    /// How many bytes have to be heard in the round of this distance from who calls the same, as all do whom that one has
    /// heard. Nothing has come yet where the bytes of one are on their way.
    fn due(&self, distance: u32, size: u32, found: usize) -> usize {
        match self {
            Load::Empty => 0,
            Load::OfOne { due, .. } => {
                if found == 0 {
                    0
                } else {
                    *due
                }
            }
            Load::OfAll(pieces) => pieces.len() / distance as usize * distance.min(size - distance) as usize,
        }
    }

    /// Takes what was heard. With a member that called something else it makes no sense, and is not used then.
    fn take(&mut self, heard: &[u8]) {
        match self {
            Load::OfOne { bytes: bytes @ None, .. } if !heard.is_empty() => *bytes = Some(heard.to_vec()),
            Load::OfAll(pieces) => pieces.extend_from_slice(heard),
            Load::Empty | Load::OfOne { .. } => {}
        }
    }
}

impl Call<'_> {
    /// Dissemination (Hensgen, Finkel, Manber): in round k every member tells the one 2^k places ahead whether all of
    /// whom it has heard call the same, and what it calls itself. After the last round all know it of the whole group,
    /// and have the whole load. Only if there are differences they find out which.
    /// `offered`: this member's staging buffer is laid out. Gives whether all members' are.
    pub(super) fn agree(&mut self, mine: Signature, load: &mut Load, offered: bool) -> Result<bool, CollectiveError> {
        let digest = mine.digest();
        let mut flags = SAME | if offered { OFFERED } else { 0 };
        let mut distance = 1;
        while distance < self.size() {
            let to = (self.me() + distance) % self.size();
            let from = (self.me() + self.size() - distance) % self.size();
            let _expecting = self.expect(from);
            let digest_bytes = digest.to_le_bytes();
            if load.is_empty() {
                let mut body = [flags; DIGEST_BYTES + 1];
                body[..DIGEST_BYTES].copy_from_slice(&digest_bytes);
                self.send(to, &body)?;
            } else {
                let mut body = [&digest_bytes[..], &[flags]].concat();
                load.append_to(&mut body, distance, self.size());
                self.send(to, &body)?;
            }
            let heard = self.receive(from)?;
            let Some((&[ref theirs @ .., their_flags], heard)) = heard.split_first_chunk::<{ DIGEST_BYTES + 1 }>()
            else {
                return Err(self.bad_message(from, heard.len() as u64, "a digest".into()));
            };
            flags &= their_flags & if *theirs == digest_bytes { !0 } else { !SAME };
            if flags & SAME != 0 {
                self.check_bytes(from, heard.len() as u64, load.due(distance, self.size(), heard.len()))?;
            }
            load.take(heard);
            distance *= 2;
            self.next_step();
        }
        if flags & SAME == 0 {
            self.find_differences(mine)?;
        }
        Ok(flags & OFFERED != 0)
    }

    /// In round k every member tells the one 2^k places ahead the smallest and the largest signature it has heard of.
    #[cold]
    pub(super) fn find_differences(&mut self, mine: Signature) -> Result<(), CollectiveError> {
        let me = self.member(self.me());
        let (mut least, mut most) = (Claim(mine, me), Claim(mine, me));
        let mut distance = 1;
        while distance < self.size() {
            let mut body = Vec::with_capacity(2 * CLAIM_BYTES);
            [least, most].iter().for_each(|claim| claim.encode(&mut body));
            self.send((self.me() + distance) % self.size(), &body)?;
            let from = (self.me() + self.size() - distance) % self.size();
            let heard = self.receive_exactly(from, 2 * CLAIM_BYTES)?;
            let due = || self.bad_message(from, heard.len() as u64, "two claims".into());
            let (low, high) = decode_two(&heard).ok_or_else(due)?;
            least = least.min(low);
            most = most.max(high);
            distance *= 2;
            self.next_step();
        }
        if least.0 == most.0 {
            // Equal signatures have equal digests: somebody has said that it called something else, and now that it has not.
            let before = (self.me() + self.size() - 1) % self.size();
            return Err(self.bad_message(before, 2 * CLAIM_BYTES as u64, "claims that differ".into()));
        }
        let other = if least.0 == mine { most } else { least };
        Err(CollectiveError::Mismatch { mine, rank: other.1, theirs: other.0 })
    }
}
