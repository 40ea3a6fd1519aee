//! Bytes as values of a store that takes short words: hexadecimal digits, in pieces, the first of which says how many there are.
//!
//! ```text
//!   KEY      3-68656c...        pieces, and the first one's digits
//!   KEY.1    6c6f20...
//!   KEY.2    ...
//! ```

use crate::pmi1::limits::VALUE_BYTES_MAX;

/// Digits of a piece, at most, with the count of pieces: any manager takes so many.
pub(crate) const PIECE_DIGITS_MAX: usize = 512;
/// Bytes of `KEY.1234` that are not the key.
pub(crate) const SUFFIX_BYTES: usize = 5;
/// What the count of pieces takes of the first.
const COUNT_BYTES: usize = 5;
/// Fewer digits than this make no piece.
pub(crate) const PIECE_DIGITS_MIN: usize = COUNT_BYTES + 27;
const PIECES_MAX: usize = 9999;

const _: () = assert!(VALUE_BYTES_MAX.div_ceil((PIECE_DIGITS_MIN - COUNT_BYTES) / 2) <= PIECES_MAX);

/// The pieces of a value, each of at most `digits_max` letters.
pub(crate) fn pieces(value: &[u8], digits_max: usize) -> Vec<String> {
    assert!(value.len() <= VALUE_BYTES_MAX && digits_max >= PIECE_DIGITS_MIN, "{} {digits_max}", value.len());
    let bytes_of_piece = (digits_max.min(PIECE_DIGITS_MAX) - COUNT_BYTES) / 2;
    let mut pieces: Vec<String> = value.chunks(bytes_of_piece).map(digits).collect();
    if pieces.is_empty() {
        pieces.push(String::new());
    }
    pieces[0] = format!("{}-{}", pieces.len(), pieces[0]);
    pieces
}

/// How many pieces there are, and the first one's digits.
pub(crate) fn first_piece(text: &str) -> Option<(usize, &str)> {
    let (count, digits) = text.split_once('-')?;
    let count = count.parse().ok().filter(|count| (1..=PIECES_MAX).contains(count))?;
    Some((count, digits))
}

/// What a piece is called.
pub(crate) fn key_of_piece(key: &str, piece: usize) -> String {
    if piece == 0 { key.to_owned() } else { format!("{key}.{piece}") }
}

fn digits(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let both = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    bytes.iter().flat_map(both).map(char::from).collect()
}

/// Adds the bytes of a piece; false where they are none, or make the value too long.
pub(crate) fn append(value: &mut Vec<u8>, digits: &str) -> bool {
    let number = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || value.len() + pairs.len() > VALUE_BYTES_MAX {
        return false;
    }
    for [high, low] in pairs {
        let (Some(high), Some(low)) = (number(*high), number(*low)) else { return false };
        value.push(high << 4 | low);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(pieces: &[String]) -> Vec<u8> {
        let (count, first) = first_piece(&pieces[0]).unwrap();
        assert_eq!(count, pieces.len());
        let mut value = Vec::new();
        assert!(append(&mut value, first) && pieces[1..].iter().all(|piece| append(&mut value, piece)));
        value
    }

    #[test]
    fn values_of_any_length_come_back_and_no_piece_is_longer_than_was_said() {
        let bytes: Vec<u8> = (0..VALUE_BYTES_MAX).map(|at| (at * 7) as u8).collect();
        for length in [0, 1, 2, 252, 253, 254, 255, 506, 507, 5000, VALUE_BYTES_MAX] {
            for digits_max in [PIECE_DIGITS_MIN, 63, 512, 4096] {
                let pieces = pieces(&bytes[..length], digits_max);
                assert!(pieces.iter().all(|piece| piece.len() <= digits_max.min(PIECE_DIGITS_MAX)), "{length}");
                assert_eq!(joined(&pieces), bytes[..length], "{length} {digits_max}");
            }
        }
    }

    #[test]
    fn what_is_no_piece_is_refused() {
        for bad in ["", "1", "0-00", "10000-00", "x-00", "-1-00"] {
            assert_eq!(first_piece(bad), None, "{bad}");
        }
        for bad in ["0", "0g", "é", "0 ", "+1"] {
            assert!(!append(&mut Vec::new(), bad), "{bad}");
        }
        assert!(!append(&mut vec![0; VALUE_BYTES_MAX], "00"));
    }
}
