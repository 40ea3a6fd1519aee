//! Do all members call the same thing?

use longarm_proto::Rank;

use super::call::Call;
use super::elements::{LoadBytes, copied};
use super::rounds::Participants;
use super::signature::{SIGNATURE_BYTES, Signature};
use super::tree::Combine;
use crate::error::CollectiveError;

const CLAIM_BYTES: usize = SIGNATURE_BYTES + 4;
const DIGEST_BYTES: usize = 8;
/// All of whom was heard call the same.
pub(super) const SAME: u8 = 1;
/// All of whom was heard have laid out what they stage.
pub(super) const OFFERED: u8 = 2;

/// [`SAME`] and [`OFFERED`] of members that call the same.
pub(super) fn flags_of(offered: bool) -> u8 {
    SAME | if offered { OFFERED } else { 0 }
}

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
        bytes: Option<LoadBytes>,
        /// How many they are.
        due: usize,
    },
    /// Equally many bytes of every member: those of this one, of the one before it, and so on around.
    OfAll(LoadBytes),
    /// One value that all members come to. Each has equally many bytes, at least 1, and so has the value.
    Merged {
        /// What is known so far: at first what this member says.
        bytes: LoadBytes,
        /// How that of others is taken in.
        merge: Merge,
    },
    /// The elements that all come to by a reduction, as many at each.
    Reduced {
        /// Those of this member; afterwards the result.
        bytes: LoadBytes,
        /// How they are combined.
        combine: Combine,
    },
    /// What this member gives to each, by place, equally many bytes. It goes no other way than by being laid out.
    ToEach {
        /// How many each gets.
        share_bytes: usize,
        /// All shares of this member.
        shares: Vec<u8>,
        /// Its shares of all, if they have come: of this one, of the one before it, and so on around.
        got: Option<LoadBytes>,
    },
}

/// Takes in what others say. What all come to is the same in whatever order and however often each is taken in.
pub(crate) type Merge = fn(known: &mut [u8], heard: &[u8]);

/// Takes in what several have said, one's behind the other's.
pub(super) fn merge_pieces(known: &mut [u8], pieces: &[u8], merge: Merge) {
    pieces.chunks_exact(known.len()).for_each(|heard| merge(known, heard));
}

/// How many bytes travel with an agreement.
#[derive(Clone, Copy)]
pub(super) enum Carried {
    /// None.
    Nothing,
    /// So many, of one member.
    OfOne(usize),
    /// So many of every member, or of every subtree of the nodes: for what those speak that agree.
    OfAll(usize),
    /// What some members come to: so many, and how more is taken in.
    Merged(usize, Merge),
}

/// What is known of some members.
#[cfg_attr(test, derive(Clone, PartialEq, Debug))]
pub(super) struct Known {
    /// [`SAME`] and [`OFFERED`].
    pub(super) flags: u8,
    /// What little data they have. Of all: those of this speaker, of the one before it, and so on around.
    pub(super) bytes: LoadBytes,
}

impl Known {
    pub(super) const NOTHING: Known = Known { flags: 0, bytes: LoadBytes::new_const() };
}

impl Load {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Load::Empty)
    }

    /// The bytes that are here.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Load::OfOne { bytes: Some(bytes), .. } | Load::OfAll(bytes) => bytes,
            Load::Merged { bytes, .. } | Load::Reduced { bytes, .. } => bytes,
            Load::Empty | Load::OfOne { bytes: None, .. } | Load::ToEach { .. } => &[],
        }
    }

    /// What this member lays out of it.
    pub(super) fn laid_out(&self) -> &[u8] {
        if let Load::ToEach { shares, .. } = self { shares } else { self.bytes() }
    }

    /// What the member at a place wants of what another one has laid out: from where on, and how many bytes.
    pub(super) fn wanted(&self, place: usize) -> (usize, usize) {
        match self {
            Load::Empty => (0, 0),
            Load::OfOne { due, .. } => (0, *due),
            Load::OfAll(own) | Load::Merged { bytes: own, .. } | Load::Reduced { bytes: own, .. } => (0, own.len()),
            Load::ToEach { share_bytes, .. } => (place * share_bytes, *share_bytes),
        }
    }

    pub(super) fn carried(&self) -> Carried {
        match self {
            Load::Empty | Load::ToEach { .. } => Carried::Nothing,
            Load::OfOne { due, .. } => Carried::OfOne(*due),
            Load::OfAll(own) | Load::Reduced { bytes: own, .. } => Carried::OfAll(own.len()),
            Load::Merged { bytes, merge } => Carried::Merged(bytes.len(), *merge),
        }
    }

    /// Takes what an agreement brought. Whether that is all.
    pub(super) fn fill(&mut self, brought: LoadBytes) -> bool {
        match self {
            Load::Empty => true,
            // More than can be shown at barriers, or nobody had it.
            _ if brought.is_empty() => false,
            Load::OfOne { bytes, .. } => {
                *bytes = Some(brought);
                true
            }
            // Of a reduction the result: leaders of nodes carry it, who combine.
            Load::OfAll(bytes) | Load::Reduced { bytes, .. } => {
                *bytes = brought;
                true
            }
            // One piece, or those of all members, which are read where they lie on one node.
            Load::Merged { bytes, merge } => {
                merge_pieces(bytes, &brought, *merge);
                true
            }
            Load::ToEach { got, .. } => {
                *got = Some(brought);
                true
            }
        }
    }
}

/// More is received while it is sent: all send at once, and a send of much waits until it is taken.
const TOLD_FIRST_BYTES_MAX: usize = longarm_shm::CELL_PAYLOAD_BYTES;

impl Call<'_> {
    /// In every round a member tells the one ahead whether all of whom it has heard call the same, and what it calls itself. After
    /// the last round all know it of the whole group, and have the whole load. Only if there are differences they find out which.
    /// `offered`: this member's staging buffer is laid out. Gives whether all members' are.
    pub(super) fn agree(&mut self, load: &mut Load, offered: bool) -> Result<bool, CollectiveError> {
        let known = Known { flags: flags_of(offered), bytes: copied(load.bytes()) };
        let known = self.agree_around(&Participants::of_members(self.size(), self.me()), load.carried(), known)?;
        if known.flags & SAME == 0 {
            return Err(self.find_differences());
        }
        load.fill(known.bytes);
        Ok(known.flags & OFFERED != 0)
    }

    /// The same among those that speak, of whom this is one and knows of some members, that those of the others do not.
    pub(super) fn agree_around(
        &mut self,
        participants: &Participants<'_>,
        carried: Carried,
        mut known: Known,
    ) -> Result<Known, CollectiveError> {
        let digest = self.signature.digest().to_le_bytes();
        self.disseminate(participants, |call, round| {
            // Before this round there are bytes of `distance` speakers; near the end not all are missing there.
            let due = |ahead: u32, piece_bytes: usize| participants.pieces_behind(ahead, round.missing) * piece_bytes;
            let told = match carried {
                // Not all that should be is here then, and nobody wants it.
                _ if known.flags & SAME == 0 => &[],
                Carried::Nothing => &[],
                Carried::OfOne(_) => &known.bytes[..],
                Carried::OfAll(piece_bytes) => &known.bytes[..due(0, piece_bytes)],
                Carried::Merged(..) => &known.bytes[..],
            };
            let heard = if told.len() > TOLD_FIRST_BYTES_MAX {
                let told = [&digest[..], &[known.flags], told].concat();
                call.exchange(round.to, &told, round.from)?
            } else {
                call.tell_agreement(round.to, digest, known.flags, told)?;
                call.receive(round.from)?
            };
            let Some((&[ref theirs @ .., their_flags], bytes)) = heard.split_first_chunk::<{ DIGEST_BYTES + 1 }>()
            else {
                return Err(call.bad_message(round.from, heard.len() as u64, "a digest".into()));
            };
            known.flags &= their_flags & if *theirs == digest { !0 } else { !SAME };
            if known.flags & SAME == 0 {
                return Ok(());
            }
            let due = match carried {
                Carried::Nothing => 0,
                // It may not have come by there yet.
                Carried::OfOne(_) if bytes.is_empty() => 0,
                Carried::OfOne(due) | Carried::Merged(due, _) => due,
                Carried::OfAll(piece_bytes) => due(participants.size() - round.distance, piece_bytes),
            };
            call.check_bytes(round.from, bytes.len() as u64, due)?;
            match carried {
                Carried::Merged(_, merge) => merge(&mut known.bytes, bytes),
                Carried::OfAll(_) => known.bytes.extend_from_slice(bytes),
                Carried::Nothing | Carried::OfOne(_) if known.bytes.is_empty() => known.bytes.extend_from_slice(bytes),
                Carried::Nothing | Carried::OfOne(_) => {}
            }
            Ok(())
        })?;
        Ok(known)
    }

    fn tell_agreement(
        &self,
        to: u32,
        digest: [u8; DIGEST_BYTES],
        flags: u8,
        told: &[u8],
    ) -> Result<(), CollectiveError> {
        if told.is_empty() {
            let mut body = [flags; DIGEST_BYTES + 1];
            body[..DIGEST_BYTES].copy_from_slice(&digest);
            return self.send(to, &body);
        }
        self.send(to, &[&digest[..], &[flags], told].concat())
    }

    /// Who calls what, where not all call the same: every member tells the one ahead the smallest and the largest signature it has
    /// heard of.
    #[cold]
    pub(super) fn find_differences(&mut self) -> CollectiveError {
        let mine = self.signature;
        let me = self.member(self.me());
        let (mut least, mut most) = (Claim(mine, me), Claim(mine, me));
        let heard = self.disseminate(&Participants::of_members(self.size(), self.me()), |call, round| {
            let mut body = Vec::with_capacity(2 * CLAIM_BYTES);
            [least, most].iter().for_each(|claim| claim.encode(&mut body));
            call.send(round.to, &body)?;
            let heard = call.receive_exactly(round.from, 2 * CLAIM_BYTES)?;
            let bad = || call.bad_message(round.from, heard.len() as u64, "two claims".into());
            let (low, high) = decode_two(&heard).ok_or_else(bad)?;
            least = least.min(low);
            most = most.max(high);
            Ok(())
        });
        if let Err(error) = heard {
            return error;
        }
        if least.0 == most.0 {
            // Equal signatures have equal digests: somebody has said that it called something else, and now that it has not.
            let before = (self.me() + self.size() - 1) % self.size();
            return self.bad_message(before, 2 * CLAIM_BYTES as u64, "claims that differ".into());
        }
        let other = if least.0 == mine { most } else { least };
        CollectiveError::Mismatch { mine, rank: other.1, theirs: other.0 }
    }
}
