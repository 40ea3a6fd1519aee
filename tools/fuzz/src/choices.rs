//! How the bytes of a fuzzer become choices, and choices bytes again.
//!
//! Every choice takes a fixed number of bytes from the front, so that a change of one byte changes one choice, and a
//! seed can be written as the list of its choices ([`Script`]). Behind the last byte every choice is 0.

use arbitrary::Unstructured;

/// Choices that are taken one after the other.
pub(crate) struct Choices<'a>(Unstructured<'a>);

impl<'a> Choices<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Choices<'a> {
        Choices(Unstructured::new(data))
    }

    /// No choice is left.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    pub(crate) fn short(&mut self) -> u16 {
        self.0.arbitrary().unwrap_or(0)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// One of the things in the list.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    /// A few bytes as they are: one byte says how many.
    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let wanted = usize::from(self.byte());
        let count = wanted.min(self.0.len());
        self.0.bytes(count).unwrap_or(&[])
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        let count = self.0.len();
        self.0.bytes(count).unwrap_or(&[])
    }
}

/// The choices of a seed, in the order in which a target takes them.
#[derive(Default)]
pub(crate) struct Script(Vec<u8>);

impl Script {
    pub(crate) fn byte(mut self, byte: u8) -> Script {
        self.0.push(byte);
        self
    }

    pub(crate) fn short(mut self, short: u16) -> Script {
        self.0.extend_from_slice(&short.to_le_bytes());
        self
    }

    pub(crate) fn word(mut self, word: u64) -> Script {
        self.0.extend_from_slice(&word.to_le_bytes());
        self
    }

    /// For [`Choices::bytes`].
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Script {
        self.0.push(u8::try_from(bytes.len()).expect("a seed's texts are short"));
        self.0.extend_from_slice(bytes);
        self
    }

    /// For [`Choices::rest`], or as they are.
    pub(crate) fn plain(mut self, bytes: &[u8]) -> Script {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn written(self) -> Vec<u8> {
        self.0
    }
}
