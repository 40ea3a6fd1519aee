//! A Rust file as the rules see it: comments and literals blanked out, and which lines are tests.
//!
//! This is no parser. It knows just enough of Rust's spelling that a word in a comment or in a text is never taken for
//! code, and that the end of a test module is found.

use std::ops::Range;

/// One Rust file.
pub struct Source {
    /// Path from the root of the tree, with `/`.
    pub path: String,
    /// As it is.
    pub text: String,
    /// The same length in bytes and the same lines, with comments, strings and characters blanked out.
    pub code: String,
    tests: Vec<Range<usize>>,
}

impl Source {
    /// Takes in a file.
    pub fn new(path: &str, text: &str) -> Source {
        let code = blank(text);
        let tests = if is_test_file(path) { vec![Range { start: 0, end: text.len() }] } else { test_modules(&code) };
        Source { path: path.to_owned(), text: text.to_owned(), code, tests }
    }

    /// Whether the byte at this place belongs to a test.
    pub fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    /// The number of the line of a byte, from 1.
    pub fn line_of(&self, at: usize) -> usize {
        self.text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// Lines that are not tests.
    pub fn line_count(&self) -> usize {
        let mut at = 0;
        let mut count = 0;
        for line in self.text.split_inclusive('\n') {
            count += usize::from(!self.is_test(at));
            at += line.len();
        }
        count
    }

    /// Where `word` stands in the code as a whole word, or as a path if it has `::` in it.
    pub fn find(&self, word: &str) -> Vec<usize> {
        find_word(&self.code, word)
    }
}

/// Where a text stands that no name goes on before or behind it. With `*` at its end, names may go on behind it.
pub fn find_word(text: &str, word: &str) -> Vec<usize> {
    let is_name = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let (word, may_go_on) = word.strip_suffix('*').map_or((word, false), |word| (word, true));
    let bytes = text.as_bytes();
    // A sign at an end of the word is an end of a name by itself.
    let binds_before = is_name(word.as_bytes().first());
    let binds_behind = is_name(word.as_bytes().last()) && !may_go_on;
    let places = text.match_indices(word).map(|(at, _)| at);
    let goes_on = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        (binds_before && is_name(before)) || (binds_behind && is_name(bytes.get(at + word.len())))
    };
    places.filter(|at| !goes_on(*at)).collect()
}

/// Whether all of the file is tests.
fn is_test_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let folders = path.split('/').rev().skip(1);
    folders.into_iter().any(|folder| folder == "tests" || folder == "loom_models")
        || name == "tests.rs"
        || name.ends_with("_tests.rs")
        || name.starts_with("loom_models")
}

/// The modules behind `#[cfg(test)]` and its like, from the attribute to the closing brace.
fn test_modules(code: &str) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for start in ["#[cfg(test)]", "#[cfg(all(test,"].iter().flat_map(|attribute| find_word(code, attribute)) {
        let rest = &code[start..];
        let Some(open) = rest.find('{') else { continue };
        // A module in a file of its own, or an import for tests, ends before any brace opens.
        if rest[..open].contains(';') || !rest[..open].contains("mod ") {
            continue;
        }
        ranges.push(start..start + open + block_bytes(&rest[open..]));
    }
    ranges
}

/// From an opening brace to its closing one.
pub fn block_bytes(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// The text with comments and the insides of literals blanked out.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + token_bytes(&bytes[at..], at.checked_sub(1).map(|before| bytes[before]));
        if end > at + 1 {
            for byte in &mut code[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(code).expect("whole comments and literals are blanked out, so no letter is cut")
}

/// How long the comment or literal that starts here is; 1 if none does.
fn token_bytes(rest: &[u8], before: Option<u8>) -> usize {
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_bytes(rest),
        [b'"', ..] => string_bytes(rest),
        [b'\'', ..] => character_bytes(rest),
        [b'r', b'"' | b'#', ..]
            if !before.is_some_and(|byte| byte.is_ascii_alphanumeric() && !b"bc".contains(&byte)) =>
        {
            raw_string_bytes(rest)
        }
        _ => 1,
    }
}

fn block_comment_bytes(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string_bytes(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character has a quote behind it; a lifetime has none.
fn character_bytes(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let end = rest.iter().skip(3).position(|byte| *byte == b'\'');
        return end.map_or(1, |end| end + 4);
    }
    // One letter takes up to four bytes.
    let end = rest.iter().take(6).skip(2).position(|byte| *byte == b'\'');
    match end {
        Some(end) if end == 0 || !rest[1].is_ascii() => end + 3,
        _ => 1,
    }
}

fn raw_string_bytes(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 1; // A raw identifier.
    }
    let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let body = &rest[2 + hashes..];
    let end = body.windows(close.len()).position(|window| window == close);
    end.map_or(rest.len(), |end| 2 + hashes + end + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_and_texts_are_not_code() {
        let text = "let a = \"unsafe \\\" unsafe\"; // unsafe\n/* unsafe /* unsafe */ unsafe */ let b = r#\"unsafe \" \"#;\n\
                    let c = 'u'; let d: &'static str = b\"unsafe\"; unsafe_code; unsafe";
        let source = Source::new("a/src/lib.rs", text);
        assert_eq!(source.find("unsafe"), [text.len() - 6]);
        assert_eq!(source.code.len(), text.len());
        assert!(source.code.contains("let d: &'static str = b"));
    }

    #[test]
    fn quotes_as_characters_open_no_text() {
        for quote in ["'\"'", "b'\"'", "'\\''", "'\\u{22}'", "'é'"] {
            let source = Source::new("a/src/lib.rs", &format!("let a = {quote}; todo"));
            assert_eq!(source.find("todo").len(), 1, "{quote}: {}", source.code);
        }
    }

    #[test]
    fn the_lines_of_a_test_module_are_tests_and_those_behind_it_are_not() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\"; }\n}\nfn c() {}\n";
        let source = Source::new("a/src/lib.rs", text);
        assert_eq!(source.line_count(), 2);
        assert!(source.is_test(text.find("fn b").unwrap()));
        assert!(!source.is_test(text.find("fn c").unwrap()));
        assert_eq!(source.line_of(text.find("fn b").unwrap()), 4);
    }

    #[test]
    fn a_test_module_in_a_file_of_its_own_hides_nothing_here() {
        let source = Source::new("a/src/lib.rs", "#[cfg(test)]\nmod tests;\nfn a() { b }\n");
        assert_eq!(source.line_count(), 3);
        assert_eq!(Source::new("a/src/layout_tests.rs", "fn a() {}\n").line_count(), 0);
        assert_eq!(Source::new("a/tests/common/mod.rs", "fn a() {}\n").line_count(), 0);
    }
}
