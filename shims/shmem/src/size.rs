//! The sizes that environment variables give: a number, perhaps with a fraction, and a suffix.

/// Bytes of `3.1M`; `None` if it is no size.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, unit) = match text.char_indices().next_back()? {
        (at, letter) if letter.is_ascii_alphabetic() => (text[..at].trim_end(), unit(letter)?),
        _ => (text, 1),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let number: f64 = number.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)?;
    let bytes = number * unit as f64;
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}

fn unit(letter: char) -> Option<u64> {
    let shift = match letter.to_ascii_lowercase() {
        'b' => 0,
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        _ => return None,
    };
    Some(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_have_fractions_and_suffixes() {
        let cases =
            [("1024", 1024), ("4k", 4096), ("3.5K", 3584), ("1.5 m", 3 << 19), ("2G", 2 << 30), ("1t", 1 << 40)];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "k", "-1", "1x", "1kk", "nan", "inf", "1e999", "99999999999999999999t"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
