//! What members of a large group come to when they make a window, in words that do not grow with the group.
//!
//! All that each tells (`proposal.rs`) would be as much for each member as there are members. In most windows the parts are alike, so that it is
//! enough to know what all say alike: each word of it is unknown, or what everybody says who says something, or told differently.
//! Where words are told differently that matter, members tell each other all.

use super::name::{FreshName, Name};
use super::proposal::{Made, MergedOutcome, Outcome, Proposal};
use crate::group::{bytes_of, words_of};

/// Nobody has said anything.
const UNSAID: u64 = 0;
/// Not all say the same.
const DIFFERENT: u64 = 1;
/// Who says this has none. No name's word is this small: its upper half is a number from 1 on.
const NONE: u64 = 2;
/// In the word that tells of failures: the member could not. Any word but [`UNSAID`] would do.
const FAILED: u64 = 3;

/// Takes in what others say.
pub(super) fn merge(known: &mut [u8], heard: &[u8]) {
    for (known, heard) in known.as_chunks_mut().0.iter_mut().zip(heard.as_chunks().0) {
        *known = match (u64::from_le_bytes(*known), u64::from_le_bytes(*heard)) {
            (UNSAID, word) | (word, UNSAID) => word,
            (one, other) if one == other => one,
            _ => DIFFERENT,
        }
        .to_le_bytes();
    }
}

fn said(name: Option<Name>) -> u64 {
    name.map_or(NONE, |name| Name::word(Some(name)))
}

/// Bytes of a part. So large a number that it has no word of its own is told like one that differs.
fn said_bytes(bytes: u64) -> u64 {
    bytes.checked_add(NONE).unwrap_or(DIFFERENT)
}

/// What a member says of its part. `speaks_for_node`: it is the lowest of its node.
pub(super) fn say_proposal(proposal: &Proposal, of_world: bool, speaks_for_node: bool) -> Vec<u8> {
    let [name, key] = FreshName::words(proposal.fresh);
    let made_for = if speaks_for_node { said(proposal.made_for) } else { UNSAID };
    let words = [said_bytes(proposal.bytes), name, key, said(proposal.announced), made_for];
    bytes_of(&words[..if of_world { 5 } else { 3 }])
}

/// What all come to. `None`: not all say the same.
pub(super) fn read_proposal(body: &[u8]) -> Option<Proposal> {
    let [bytes, name, key, announced, made_for] = words_of(body);
    let bytes = bytes.checked_sub(NONE)?;
    // A key may be that word by chance. Then all tell each other all, too.
    if [name, key, announced, made_for].contains(&DIFFERENT) {
        return None;
    }
    Some(Proposal {
        bytes,
        fresh: FreshName::read(name, key),
        announced: Name::read(announced),
        made_for: Name::read(made_for),
    })
}

/// What a member says of what it has had made.
pub(super) fn say_outcome(outcome: &Outcome, of_world: bool) -> Vec<u8> {
    let [name, key] = FreshName::words(outcome.next);
    let (failed, made_for) = match outcome.made {
        Made::Failed => (FAILED, UNSAID),
        Made::Nothing => (UNSAID, UNSAID),
        Made::Memory(..) if !of_world => (UNSAID, UNSAID),
        Made::Memory((window, generation), _) => (UNSAID, Name::word(Some(Name::of(window, generation)))),
    };
    let words = [failed, name, key, made_for];
    bytes_of(&words[..if of_world { 4 } else { 1 }])
}

/// `None`: somebody could not, or not all say the same.
pub(super) fn read_outcome(body: &[u8]) -> Option<MergedOutcome> {
    let [failed, name, key, made_for] = words_of(body);
    let is_said = failed == UNSAID && ![name, key, made_for].contains(&DIFFERENT);
    is_said.then(|| MergedOutcome { next: FreshName::read(name, key), made_for: Name::read(made_for) })
}

#[cfg(test)]
mod tests {
    use longarm_proto::{Generation, WindowId};

    use super::*;
    use crate::window::proposal::FileOfServer;

    fn name(number: u32) -> Option<Name> {
        Some(Name { number, generation: 1 })
    }

    fn all_of(said: &[Vec<u8>]) -> Vec<u8> {
        let mut known = said[0].clone();
        said[1..].iter().for_each(|heard| merge(&mut known, heard));
        known
    }

    #[test]
    fn the_order_does_not_matter_nor_how_often_one_is_heard() {
        let words: Vec<Vec<u8>> = (UNSAID..6).map(|word| bytes_of(&[word])).collect();
        let two = |one: &Vec<u8>, other: &Vec<u8>| all_of(&[one.clone(), other.clone()]);
        for (one, other, third) in words
            .iter()
            .flat_map(|one| words.iter().map(move |other| (one, other)))
            .flat_map(|(one, other)| words.iter().map(move |third| (one, other, third)))
        {
            assert_eq!(two(one, one), *one);
            assert_eq!(two(one, other), two(other, one));
            assert_eq!(two(&two(one, other), third), two(one, &two(other, third)));
        }
    }

    #[test]
    fn what_all_say_alike_is_known_and_what_differs_is_seen() {
        let fresh = Some(FreshName { name: Name { number: 9, generation: 2 }, key: 0 });
        let first = Proposal { bytes: 0, fresh, announced: name(3), made_for: name(2) };
        let other = Proposal { fresh: None, made_for: None, ..first };
        let come_to = |all: &[(Proposal, bool)]| {
            read_proposal(&all_of(
                &all.iter().map(|(one, speaks)| say_proposal(one, true, *speaks)).collect::<Vec<_>>(),
            ))
        };
        assert_eq!(come_to(&[(first, true), (other, false)]), Some(first));
        let elsewhere = Proposal { made_for: name(1), ..other };
        for without in [other, elsewhere] {
            let known = come_to(&[(other, false), (first, true), (without, true)]);
            assert_eq!(known, None, "nodes that serve nothing, or other memory, beside one that does");
        }
        let nowhere = Proposal { made_for: None, ..first };
        assert_eq!(come_to(&[(nowhere, true), (other, true)]), Some(nowhere));
        assert_eq!(come_to(&[(first, true), (Proposal { bytes: 1, ..other }, false)]), None);
        assert_eq!(come_to(&[(first, true), (Proposal { announced: None, ..other }, false)]), None);
        let too_much = Proposal { bytes: u64::MAX, ..first };
        assert_eq!(come_to(&[(too_much, true)]), None, "told in full");
        let largest = Proposal { bytes: u64::MAX - NONE, ..first };
        assert_eq!(come_to(&[(largest, true), (largest, false)]), Some(largest));
    }

    #[test]
    fn a_failure_is_heard_of_and_so_is_memory_of_different_windows() {
        let made = |number| {
            let file = FileOfServer { number: 7, address: None };
            Made::Memory((WindowId(number), Generation(1)), file)
        };
        let next = Some(FreshName { name: Name { number: 5, generation: 1 }, key: u64::MAX });
        let come_to = |all: &[Made]| {
            let outcomes =
                all.iter().enumerate().map(|(at, made)| Outcome { made: *made, next: next.filter(|_| at == 0) });
            read_outcome(&all_of(&outcomes.map(|outcome| say_outcome(&outcome, true)).collect::<Vec<_>>()))
        };
        let known = come_to(&[made(4), Made::Nothing, made(4)]).unwrap();
        assert_eq!((known.next, known.made_for), (next, name(4)));
        assert!(come_to(&[made(4), made(3), Made::Nothing]).is_none());
        assert_eq!(come_to(&[Made::Nothing; 2]).unwrap().made_for, None);
        assert!(come_to(&[made(4), Made::Nothing, Made::Failed]).is_none());
        let of_group = [
            say_outcome(&Outcome { made: made(4), next: None }, false),
            say_outcome(&Outcome { made: Made::Failed, next: None }, false),
        ];
        assert!(read_outcome(&of_group[0]).is_some() && read_outcome(&all_of(&of_group)).is_none());
    }
}
