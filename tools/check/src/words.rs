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

/// Words of ours that the field has better ones for, and those. Parts of names count too: `bell_of`, `BellWord`.
const RETIRED: [(&[&str], &str); 13] = [
    (&["bell", "bells"], "eventcount"),
    (&["blow", "blows", "injury", "injuries", "injured", "injure"], "fault, fault injection"),
    (&["brief", "briefly"], "inline poll, polled inline"),
    (&["circle", "circles"], "participants of a collective, or a cycle of imports"),
    (&["doorman", "doormen"], "acceptor"),
    (&["face", "faces"], "interface, or the module ffi"),
    (&["firsts"], "leaders of nodes"),
    (&["gathered"], "coalesced"),
    (&["hush", "hushed"], "suppress_wakeups"),
    (&["meeting", "meetings"], "flag barrier, barrier, collective call"),
    (&["pulse", "pulses"], "keepalive"),
    (&["rooms"], "sync areas of teams, or where something is allowed"),
    (&["unreported"], "unacknowledged"),
];

/// Where one of them is another crate's name for something.
const FOREIGN: [(&str, &str); 1] = [("benches/src/plot.rs", "circle")];

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
        for part in parts_of_names(line) {
            let is_foreign = FOREIGN.contains(&(path, part.as_str()));
            let retired = RETIRED.iter().find(|(words, _)| !is_foreign && words.contains(&part.as_str()));
            findings.extend(retired.map(|(_, better)| Finding {
                rule: Rule::Words,
                path: path.to_owned(),
                line: number + 1,
                what: format!("{part:?}: say {better} (docs/src/words.md)"),
            }));
        }
    }
    findings
}

/// The words of a line in lower case, with names cut at underscores and at capitals: `BellWord` is `bell` and `word`.
fn parts_of_names(line: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut last_is_lower = false;
    for letter in line.chars() {
        let begins = !letter.is_ascii_alphabetic() || (letter.is_ascii_uppercase() && last_is_lower);
        if begins && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(String::new());
        }
        if letter.is_ascii_alphabetic() {
            parts.last_mut().expect("there is one from the start").push(letter.to_ascii_lowercase());
        }
        last_is_lower = letter.is_ascii_lowercase();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_words_are_found_in_names_too() {
        for line in ["rings the bell", "let bell_word = 1;", "struct BellWord;", "BELLS_PER_RANK", "fn my_bell()"] {
            let found = check_words("a.rs", line);
            assert!(found.len() == 1 && found[0].what.contains("eventcount"), "{line}: {found:?}");
        }
        assert_eq!(check_words("a.rs", "an interface, a surface, a doorbell, a DoorBellows"), []);
    }

    #[test]
    fn a_name_of_another_crate_is_let_through_where_that_is_used_and_nowhere_else() {
        assert_eq!(check_words("benches/src/plot.rs", "Circle::new"), []);
        assert!(check_words("benches/src/bars.rs", "Circle::new")[0].what.contains("cycle"));
    }

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
