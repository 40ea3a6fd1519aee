//! The rule about words: what must not stand in any text of the tree, comments and pages included.

use crate::rules::{Finding, Rule};
use crate::source::find_word;

/// Words, and what is said to whoever writes one.
const WORDS: [(&[&str], &str); 4] = [
    (&["TODO", "FIXME", "XXX", "HACK"], "leave nothing for later without an issue"),
    (
        &["/home/", concat!("/ro", "ot/"), "/Users/", concat!("/wo", "rk/")],
        "a path of one machine means nothing on another",
    ),
    (&["PE", "PEs"], "a process of the world is a rank"),
    (
        &["blazing", "blazingly", "lightning-fast", "seamless", "seamlessly", "cutting-edge", "state-of-the-art"],
        "say what is measured instead",
    ),
];

/// The one file that has to name them.
const HERE: &str = "tools/check/src/words.rs";

/// Looks through any text.
pub fn check_words(path: &str, text: &str) -> Vec<Finding> {
    if path == HERE {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (words, advice) in WORDS {
            let found = words.iter().find(|word| !find_word(line, word).is_empty());
            findings.extend(found.map(|word| Finding {
                rule: Rule::Words,
                path: path.to_owned(),
                line: number + 1,
                what: format!("{word:?}: {advice}"),
            }));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_found_in_comments_and_pages() {
        for (words, _) in WORDS {
            for word in words {
                assert_eq!(check_words("a.md", &format!("fine\nnot {word} fine\n"))[0].line, 2, "{word}");
            }
        }
    }

    #[test]
    fn a_part_of_a_longer_word_is_fine() {
        assert_eq!(check_words("a.rs", "shmem_n_pes TYPE HACKING PEND SHMEM_PE_COUNT"), []);
    }
}
