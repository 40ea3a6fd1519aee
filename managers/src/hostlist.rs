//! Lists of hosts in one line: `a,b:4,c`, and Slurm's `rack[0-1]-node[00-15,20],login`.
//!
//! ```text
//!   list     element , element , ...                commas or blanks between them
//!   element  name [:slots]                          name: text with any number of [numbers] in it
//!   numbers  7 | 00-15 | 00-15,20                   as wide as the first number of a range is written
//!   address  10.0.0.1:4 | [fd00::1]:4 | fd00::1     brackets around a colon are an address of IPv6
//! ```
//!
//! Names, their count and all numbers are bounded before they are written out. What Slurm does not write (steps, brackets within
//! brackets) is refused.

use crate::environment::shortened;
use crate::host::{HOSTS_MAX, Host, Hosts, NAME_BYTES_MAX, SLOTS_MAX, TooMany, is_name};

/// What is wrong with a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostListError {
    /// Not one name.
    #[error("the list names no host; write names with commas between them, as in a,b:4,node[01-16]")]
    Empty,
    /// Something between commas that no host is called.
    #[error(
        "{element:?} is no host: write a name or an address, and behind a colon how many ranks it takes, as in b:4"
    )]
    BadName {
        /// What stands there, cut where it is long.
        element: String,
    },
    /// Brackets that are not closed, are empty, or hold what are no numbers.
    #[error("the brackets of {element:?} hold no numbers; write them as in node[01-16,20]")]
    BadBrackets {
        /// What stands there, cut where it is long.
        element: String,
    },
    /// Behind the colon.
    #[error(
        "{element:?} does not say how many ranks its host takes: behind the colon stands a number from 1 to {SLOTS_MAX}"
    )]
    BadSlots {
        /// What stands there, cut where it is long.
        element: String,
    },
    /// More than is ever meant.
    #[error("the list has more than {HOSTS_MAX} hosts, or more than {SLOTS_MAX} ranks on one of them")]
    TooMany,
}

impl From<TooMany> for HostListError {
    fn from(_: TooMany) -> HostListError {
        HostListError::TooMany
    }
}

/// The hosts of a list. One that is named again has the slots of both, and keeps its place.
///
/// # Errors
/// [`HostListError`], which names what cannot be read.
///
/// ```
/// use longarm_managers::{Host, hostlist};
///
/// let hosts = hostlist::parse("a[08-10],b:4")?;
/// let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
/// assert_eq!(names, ["a08", "a09", "a10", "b"]);
/// assert_eq!(hosts[3], Host::new("b", 4));
/// assert!(hostlist::parse("a[0-99999999]").is_err());
/// # Ok::<(), hostlist::HostListError>(())
/// ```
pub fn parse(text: &str) -> Result<Vec<Host>, HostListError> {
    let mut hosts = Hosts::default();
    let mut is_empty = true;
    for element in elements(text) {
        is_empty = false;
        let (pattern, slots) = split_slots(element)?;
        each_name(pattern, |name| Ok(hosts.add(name, slots)?))?;
    }
    if is_empty { Err(HostListError::Empty) } else { Ok(hosts.into_list()) }
}

/// The names of a list in order, each as often as it stands there, without slots: what Slurm calls a node list.
///
/// # Errors
/// As [`parse`].
///
/// ```
/// assert_eq!(longarm_managers::hostlist::names("a[1-2],b")?, ["a1", "a2", "b"]);
/// # Ok::<(), longarm_managers::hostlist::HostListError>(())
/// ```
pub fn names(text: &str) -> Result<Vec<String>, HostListError> {
    let mut names = Vec::new();
    for element in elements(text) {
        each_name(element, |name| {
            if names.len() == HOSTS_MAX {
                return Err(HostListError::TooMany);
            }
            names.push(name.to_owned());
            Ok(())
        })?;
    }
    if names.is_empty() { Err(HostListError::Empty) } else { Ok(names) }
}

/// What stands between commas and blanks that are in no brackets.
fn elements(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let is_between = move |letter: char| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (letter == ',' || letter.is_ascii_whitespace())
    };
    text.split(is_between).filter(|element| !element.is_empty())
}

/// Takes the number behind the last colon off, where there is one and it belongs to no address of IPv6.
pub(crate) fn split_slots(element: &str) -> Result<(&str, Option<u32>), HostListError> {
    let Some((name, slots)) = element.rsplit_once(':').filter(|(name, _)| !name.contains(':') || name.ends_with(']'))
    else {
        return Ok((element, None));
    };
    if slots.contains(']') {
        return Ok((element, None));
    }
    match slots.parse() {
        Ok(slots @ 1..=SLOTS_MAX) => Ok((name, Some(slots))),
        _ => Err(HostListError::BadSlots { element: shortened(element) }),
    }
}

/// A stretch of a pattern: letters, or the numbers of a pair of brackets.
enum Stretch<'a> {
    Text(&'a str),
    Numbers(Vec<Range>),
}

/// Numbers as they are written, `first` to `last`, filled up with zeros to `width`.
struct Range {
    first: u64,
    last: u64,
    width: usize,
}

/// Hands every name of a pattern to `take`, the last brackets' numbers changing fastest.
fn each_name(pattern: &str, mut take: impl FnMut(&str) -> Result<(), HostListError>) -> Result<(), HostListError> {
    if let Some(address) = bracketed_address(pattern) {
        let address = address.ok_or_else(|| HostListError::BadName { element: shortened(pattern) })?;
        return take(&address);
    }
    let parts = parts(pattern)?;
    let mut count = 1_usize;
    for part in &parts {
        if let Stretch::Numbers(ranges) = part {
            let of_part = ranges.iter().try_fold(0_u64, |sum, range| sum.checked_add(range.last - range.first + 1));
            let of_part = of_part.and_then(|sum| usize::try_from(sum).ok()).ok_or(HostListError::TooMany)?;
            count = count.checked_mul(of_part).filter(|count| *count <= HOSTS_MAX).ok_or(HostListError::TooMany)?;
        }
    }
    let mut name = String::new();
    for number in 0..count {
        name.clear();
        write_name(&parts, number, count, &mut name);
        if !is_name(&name) {
            return Err(HostListError::BadName { element: shortened(pattern) });
        }
        take(&name)?;
    }
    Ok(())
}

/// `[fd00::1]` or `user@[fd00::1]`, without its brackets; the inner `None` where what is in there is no address.
fn bracketed_address(pattern: &str) -> Option<Option<String>> {
    let (before, rest) = pattern.split_once('[')?;
    let (inside, behind) = rest.split_once(']')?;
    if !inside.contains(':') {
        return None;
    }
    let name = format!("{before}{inside}");
    let fits = behind.is_empty() && (before.is_empty() || before.ends_with('@')) && is_name(&name);
    Some(fits.then_some(name))
}

fn parts(pattern: &str) -> Result<Vec<Stretch<'_>>, HostListError> {
    let bad = || HostListError::BadBrackets { element: shortened(pattern) };
    let mut parts = Vec::new();
    let mut rest = pattern;
    // Brackets can be empty of letters around them, so the length alone does not bound them.
    while let Some((before, behind)) = rest.split_once('[') {
        let (inside, behind) = behind.split_once(']').ok_or_else(bad)?;
        parts.push(Stretch::Text(before));
        let ranges: Option<Vec<Range>> = inside.split(',').map(range).collect();
        parts.push(Stretch::Numbers(ranges.ok_or_else(bad)?));
        rest = behind;
        if parts.len() > NAME_BYTES_MAX {
            return Err(bad());
        }
    }
    if rest.contains(']') || parts.iter().any(|part| matches!(part, Stretch::Text(text) if text.contains(']'))) {
        return Err(bad());
    }
    parts.push(Stretch::Text(rest));
    Ok(parts)
}

/// `7`, `00-15`.
fn range(text: &str) -> Option<Range> {
    let number = |text: &str| text.bytes().all(|letter| letter.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let (first_text, last_text) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first_text)?, number(last_text)?);
    let range = Range { first, last, width: first_text.len() };
    (first <= last && last < u64::MAX && range.width <= NAME_BYTES_MAX).then_some(range)
}

/// Writes the name with this number among all `count` of the pattern.
fn write_name(parts: &[Stretch<'_>], mut number: usize, mut count: usize, name: &mut String) {
    use std::fmt::Write as _;
    for part in parts {
        match part {
            Stretch::Text(text) => name.push_str(text),
            Stretch::Numbers(ranges) => {
                let of_part: u64 = ranges.iter().map(|range| range.last - range.first + 1).sum();
                count /= of_part as usize;
                let mut place = (number / count) as u64;
                number %= count;
                for range in ranges {
                    let numbers = range.last - range.first + 1;
                    if place < numbers {
                        let width = range.width;
                        write!(name, "{:0width$}", range.first + place).expect("a String takes all");
                        break;
                    }
                    place -= numbers;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> String {
        names(text).unwrap().join(" ")
    }

    #[test]
    fn brackets_are_written_out_with_the_zeros_that_their_first_numbers_have() {
        assert_eq!(expanded("a[00-03,7],b1"), "a00 a01 a02 a03 a7 b1");
        assert_eq!(expanded("n[8-11]"), "n8 n9 n10 n11");
        assert_eq!(expanded("n[098-101]-ib"), "n098-ib n099-ib n100-ib n101-ib");
        assert_eq!(expanded("n[001-3]"), "n001 n002 n003");
        assert_eq!(expanded("rg[0-1]"), "rg0 rg1");
        assert_eq!(expanded("[1-2]"), "1 2");
    }

    #[test]
    fn several_brackets_in_a_name_are_all_combinations_the_last_one_fastest() {
        assert_eq!(expanded("r[0-1]n[08-09,11]x"), "r0n08x r0n09x r0n11x r1n08x r1n09x r1n11x");
        assert_eq!(expanded("a[1][2-3]"), "a12 a13");
    }

    #[test]
    fn slots_stand_behind_a_colon_and_hold_for_all_names_of_their_brackets() {
        let hosts = parse("a,b:4,user@c[0-1]:2 d").unwrap();
        let nothing = |name: &str| Host { name: name.to_owned(), slots: None };
        let (c0, c1) = (Host::new("user@c0", 2), Host::new("user@c1", 2));
        assert_eq!(hosts, [nothing("a"), Host::new("b", 4), c0, c1, nothing("d")]);
        assert_eq!(parse("a:2,b,a:3").unwrap()[0], Host::new("a", 5));
    }

    #[test]
    fn addresses_of_ipv6_need_brackets_only_where_slots_follow() {
        let hosts = parse("[fd00::1]:4,fd00::2,user@[fe80::1%eth0],10.0.0.1:2").unwrap();
        let nothing = |name: &str| Host { name: name.to_owned(), slots: None };
        let all = [Host::new("fd00::1", 4), nothing("fd00::2"), nothing("user@fe80::1%eth0"), Host::new("10.0.0.1", 2)];
        assert_eq!(hosts, all);
        assert!(matches!(parse("a[fd00::1]"), Err(HostListError::BadName { .. })));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for text in
            ["a[", "a]", "a[]", "a[1-]", "a[-1]", "a[3-1]", "a[1-2", "a[1[2]]", "a[1,,2]", "a[x]", "a[0-9/2]", "a]b["]
        {
            assert!(matches!(parse(text), Err(HostListError::BadBrackets { .. })), "{text}: {:?}", parse(text));
        }
        for text in ["-a", "a/b", "a b;c", "a=2", "ä", "..", "a[1]/", "[::1]x"] {
            assert!(matches!(parse(text), Err(HostListError::BadName { .. })), "{text}: {:?}", parse(text));
        }
        for text in ["a:0", "a:", "a:x", "a:-1", "a:65537", "a[1-2]:0", "a:99999999999999"] {
            assert!(matches!(parse(text), Err(HostListError::BadSlots { .. })), "{text}: {:?}", parse(text));
        }
        for text in ["", " , ,", "\n"] {
            assert_eq!(parse(text), Err(HostListError::Empty), "{text:?}");
            assert_eq!(names(text), Err(HostListError::Empty), "{text:?}");
        }
        let said = parse("a,b[1-,c").unwrap_err().to_string();
        assert!(said.contains("b[1-"), "{said}");
    }

    #[test]
    fn a_few_bytes_do_not_become_gigabytes_of_names() {
        for text in [
            "a[0-99999999]",
            "a[0-18446744073709551614]",
            "a[0-999][0-999][0-999]",
            "a[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]",
            &["a[0-65535],b[0-65535]"; 3].join(","),
        ] {
            assert_eq!(names(text), Err(HostListError::TooMany), "{text}");
        }
        let wide = names(&format!("a[{}1-2]", "0".repeat(400)));
        assert!(matches!(wide, Err(HostListError::BadBrackets { .. })), "{wide:?}");
        assert_eq!(names("a[0-131071]").unwrap().len(), HOSTS_MAX);
    }
}
