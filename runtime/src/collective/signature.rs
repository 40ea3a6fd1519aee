//! What a member of a group calls.

use longarm_client::COLLECTIVE_NAME_BYTES;
use longarm_proto::ElementType;

use crate::element::{Number, Reduction};

/// What a member calls, with the arguments that have to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signature {
    operation: Name,
    element: u8,
    reduction: u8,
    element_bytes: u32,
    /// The root's place. Of a call without elements that is aligned, 1 and the power of two of the alignment.
    root: u32,
    count: u64,
}

/// Up to 16 letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name([u8; COLLECTIVE_NAME_BYTES]);

pub(super) const SIGNATURE_BYTES: usize = 16 + 1 + 1 + 4 + 4 + 8;

impl Signature {
    /// A call without arguments that have to match.
    #[inline]
    pub(crate) fn plain(operation: &'static str) -> Signature {
        let mut name = [0; 16];
        name[..operation.len()].copy_from_slice(operation.as_bytes());
        Signature { operation: Name(name), element: 0, reduction: 0, element_bytes: 0, root: 0, count: 0 }
    }

    /// A call on elements of any kind.
    #[inline]
    pub(crate) fn of<T>(operation: &'static str, root: u32, count: usize) -> Signature {
        let element_bytes = size_of::<T>() as u32;
        Signature { element_bytes, root, count: count as u64, ..Signature::plain(operation) }
    }

    /// A call on numbers with a reduction.
    #[inline]
    pub(crate) fn reduction<T: Number>(
        operation: &'static str,
        root: u32,
        count: usize,
        reduction: Reduction,
    ) -> Signature {
        let (element, reduction) = (type_code::<T>(), reduction as u8 + 1);
        Signature { element, reduction, ..Signature::of::<T>(operation, root, count) }
    }

    /// The same with a number that has to match.
    pub(crate) fn with_count(self, count: u64) -> Signature {
        Signature { count, ..self }
    }

    /// A call for so many bytes at a multiple of `alignment`. Alignments that are no powers of two are refused later, and all
    /// compare alike here.
    pub(crate) fn aligned(operation: &'static str, alignment: usize, bytes: u64) -> Signature {
        let root = if alignment.is_power_of_two() { 1 + alignment.ilog2() } else { u32::MAX };
        Signature { root, count: bytes, ..Signature::plain(operation) }
    }

    /// Whether the same was called with another count.
    pub fn differs_in_count_only(&self, other: &Signature) -> bool {
        *self != *other && self.with_count(0) == other.with_count(0)
    }

    /// What is called, filled up with zeros.
    pub(crate) fn name(&self) -> [u8; COLLECTIVE_NAME_BYTES] {
        self.operation.0
    }

    /// A number that two different signatures do not share, but for chance.
    pub(super) fn digest(&self) -> u64 {
        let (first, last) = self.operation.0.split_at(COLLECTIVE_NAME_BYTES / 2);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("half a name is a word"));
        let kinds = u64::from(self.element) | u64::from(self.reduction) << 8;
        let words =
            [word(first), word(last), kinds, u64::from(self.element_bytes) << 32 | u64::from(self.root), self.count];
        // Folded multiplication: both halves of the product, so that no bit of either factor is lost. The numbers are digits of
        // pi and of the golden ratio.
        words.iter().fold(0x243f_6a88_85a3_08d3, |digest: u64, word| {
            let product = u128::from(digest ^ word) * 0x9e37_79b9_7f4a_7c15;
            (product >> 64) as u64 ^ product as u64
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.operation.0);
        out.push(self.element);
        out.push(self.reduction);
        out.extend_from_slice(&self.element_bytes.to_le_bytes());
        out.extend_from_slice(&self.root.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Signature> {
        let (name, rest) = bytes.split_first_chunk()?;
        let (kinds, rest) = rest.split_first_chunk::<2>()?;
        let (element_bytes, rest) = rest.split_first_chunk()?;
        let (root, rest) = rest.split_first_chunk()?;
        let (count, _) = rest.split_first_chunk()?;
        Some(Signature {
            operation: Name(*name),
            element: kinds[0],
            reduction: kinds[1],
            element_bytes: u32::from_le_bytes(*element_bytes),
            root: u32::from_le_bytes(*root),
            count: u64::from_le_bytes(*count),
        })
    }
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name: String = self.operation.0.iter().take_while(|byte| **byte != 0).map(|byte| *byte as char).collect();
        write!(f, "{name}")?;
        if self.element_bytes > 0 {
            write!(f, " (root {}, {} elements of {} bytes", self.root, self.count, self.element_bytes)?;
            if self.reduction > 0 {
                write!(f, ", element type {}, reduction {}", self.element, self.reduction)?;
            }
            write!(f, ")")?;
        } else if let Some(exponent @ 0..64) = self.root.checked_sub(1) {
            write!(f, " ({} bytes at a multiple of {})", self.count, 1_u64 << exponent)?;
        } else if self.count > 0 {
            write!(f, " ({})", self.count)?;
        }
        Ok(())
    }
}

/// How an element type is called in a signature.
fn type_code<T: Number>() -> u8 {
    let code: ElementType = T::TYPE;
    code as u8 + 1
}
