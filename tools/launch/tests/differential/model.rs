//! What the windows hold, computed in one process, one operation after the other.

use super::number::{Content, Deed, Kind, is_between, update, with_number};
use super::program::{Allocation, Body, Op, PartOfSlot, Phase, SLOTS};
use super::words::{Use, WordDeed};

/// What a buffer holds where no get writes to.
pub const UNTOUCHED: u8 = 0xa5;

pub struct Model {
    parts: Vec<Vec<Vec<u8>>>,
}

impl Model {
    pub fn new() -> Model {
        Model { parts: vec![Vec::new(); SLOTS] }
    }

    /// A fresh window is all zero.
    pub fn allocate(&mut self, allocation: &Allocation) {
        self.parts[allocation.slot] = allocation.bytes.iter().map(|bytes| vec![0; *bytes]).collect();
    }

    pub fn part(&self, place: PartOfSlot) -> &[u8] {
        &self.parts[place.slot][place.rank as usize]
    }

    fn part_mut(&mut self, place: PartOfSlot) -> &mut [u8] {
        &mut self.parts[place.slot][place.rank as usize]
    }

    /// One element.
    pub fn element(&self, place: PartOfSlot, kind: Kind, index: usize) -> &[u8] {
        &self.part(place)[index * kind.bytes()..(index + 1) * kind.bytes()]
    }

    /// The buffer of a get, as it has to be afterwards.
    pub fn got(&self, place: PartOfSlot, kind: Kind, shape: &super::form::Shape) -> Vec<u8> {
        let size = kind.bytes();
        let mut buffer = vec![UNTOUCHED; shape.buffer_len() * size];
        let part = self.part(place);
        for piece in shape.pieces() {
            let source = &part[piece.target * size..(piece.target + piece.count) * size];
            buffer[piece.buffer * size..(piece.buffer + piece.count) * size].copy_from_slice(source);
        }
        buffer
    }

    /// Does what the operation does to windows. Words of unique values are left as they are.
    pub fn apply(&mut self, op: &Op, phase: &Phase) {
        match &op.body {
            Body::Put { place, kind, shape, content, .. } => {
                let (source, size) = (source(op, *kind, shape.buffer_len(), *content), kind.bytes());
                let part = self.part_mut(*place);
                for piece in shape.pieces() {
                    let bytes = &source[piece.buffer * size..(piece.buffer + piece.count) * size];
                    part[piece.target * size..(piece.target + piece.count) * size].copy_from_slice(bytes);
                }
            }
            Body::Accumulate { place, kind, shape, deed, factor, .. } => {
                let size = kind.bytes();
                let source = source(op, *kind, shape.buffer_len(), Content::of(*kind, *deed));
                let part = self.part_mut(*place);
                for piece in shape.pieces() {
                    let bytes = &source[piece.buffer * size..(piece.buffer + piece.count) * size];
                    let target = &mut part[piece.target * size..(piece.target + piece.count) * size];
                    with_number!(*kind, T => update::<T>(target, bytes, *deed, *factor));
                }
            }
            Body::Scope(inner) => inner.iter().for_each(|op| self.apply(op, phase)),
            Body::Word { word, deed, .. } => self.apply_to_word(phase, *word, *deed),
            Body::SendMail(mail) => {
                let mail = &phase.mails[*mail];
                let bytes = super::dice::filled(mail.bytes, mail.key);
                self.part_mut(mail.place)[mail.first..mail.first + mail.bytes].copy_from_slice(&bytes);
            }
            Body::Get { .. } | Body::Look { .. } | Body::Batch(_) | Body::AwaitMail(_) => {}
            Body::Quiet | Body::QuietRank(_) | Body::Fence | Body::Together(_) => {}
        }
    }

    fn apply_to_word(&mut self, phase: &Phase, number: usize, deed: WordDeed) {
        let word = &phase.words[number];
        let old = self.word(phase, number);
        let new = match deed {
            WordDeed::FetchAdd(amount) | WordDeed::AccumulateSum(amount) | WordDeed::SignalAdd(amount) => {
                old.wrapping_add(amount)
            }
            WordDeed::LockedAdd => old.wrapping_add(1),
            WordDeed::Bits(deed, bits) | WordDeed::AccumulateBits(deed, bits) => match deed {
                Deed::And => old & bits,
                Deed::Or => old | bits,
                Deed::Min => old.min(word.cut(bits)),
                Deed::Max => old.max(word.cut(bits)),
                _ => old ^ bits,
            },
            _ => return,
        };
        assert_ne!(word.usage, Use::Token, "these deeds are not drawn for tokens");
        self.set_word(phase, number, word.cut(new));
    }

    pub fn word(&self, phase: &Phase, number: usize) -> u64 {
        let word = &phase.words[number];
        let mut bytes = [0; 8];
        bytes[..word.kind.bytes()].copy_from_slice(self.element(word.place, word.kind, word.index()));
        u64::from_le_bytes(bytes)
    }

    pub fn set_word(&mut self, phase: &Phase, number: usize, value: u64) {
        let word = &phase.words[number];
        let size = word.kind.bytes();
        self.part_mut(word.place)[word.offset..word.offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }

    /// Whether a value that was read in the middle of the phase can be, now that the phase is over.
    pub fn allows(&self, look: &Look) -> bool {
        let last = self.element(look.place, look.kind, look.index);
        is_between(look.kind, look.deed, &look.least, &look.seen, last)
    }
}

/// Something read while others may have changed it.
pub struct Look {
    pub op: usize,
    pub place: PartOfSlot,
    pub kind: Kind,
    pub deed: Deed,
    pub index: usize,
    /// What the reader alone had made of it.
    pub least: Vec<u8>,
    pub seen: Vec<u8>,
}

/// The buffer of a put or an accumulate.
pub fn source(op: &Op, kind: Kind, elements: usize, content: Content) -> Vec<u8> {
    let mut bytes = vec![0; elements * kind.bytes()];
    content.fill(&mut bytes, op.key, kind.bytes());
    bytes
}
