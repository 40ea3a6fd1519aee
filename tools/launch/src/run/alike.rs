//! Errors that several ranks say alike, said once.
//!
//! A program whose `main` returns an error prints it as a line that begins with `Error: `, and so does each of its ranks. Such a
//! line is held for a moment if nothing follows it, and what others say alike meanwhile is said with it. A rank that goes on
//! writing takes its line back, and it is passed on before what follows: nothing is lost, no rank's lines change their order, and
//! no other line waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::units;

/// What these lines begin with.
const START: &[u8] = b"Error: ";
/// How long the first of them waits for others.
const COMPANY: Duration = Duration::from_millis(200);
/// Longer lines are nothing that people compare.
const LINE_BYTES_MAX: usize = 4096;

/// The errors that are held.
#[derive(Clone, Debug, Default)]
pub struct Alike(Arc<Mutex<Vec<Held>>>);

/// One error, and who has said it.
#[derive(Debug)]
struct Held {
    line: Vec<u8>,
    ranks: Vec<u32>,
    until: Instant,
}

/// Cuts off the last line if it is one to hold. The bytes end with a whole line.
pub fn cut_off_error(batch: &mut Vec<u8>) -> Option<Vec<u8>> {
    let without_end = batch.strip_suffix(b"\n")?;
    let start = without_end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = &batch[start..];
    (line.starts_with(START) && line.len() <= LINE_BYTES_MAX).then(|| batch.split_off(start))
}

impl Alike {
    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        // Each change of the list is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a rank's line, until when.
    pub fn hold(&self, rank: u32, line: Vec<u8>, now: Instant) -> Instant {
        let mut all = self.held();
        if let Some(held) = all.iter_mut().find(|held| held.line == line) {
            held.ranks.push(rank);
            return held.until;
        }
        let until = now + COMPANY;
        all.push(Held { line, ranks: vec![rank], until });
        until
    }

    /// Takes a rank's own line back. `None`: it was passed on.
    pub fn take_back(&self, rank: u32) -> Option<Vec<u8>> {
        let mut all = self.held();
        let place = all.iter().position(|held| held.ranks.contains(&rank))?;
        all[place].ranks.retain(|other| *other != rank);
        if all[place].ranks.is_empty() {
            return Some(all.swap_remove(place).line);
        }
        Some(all[place].line.clone())
    }

    /// What is to be passed on for a rank whose time is over, with all who have said the same. `None`: it was passed on.
    pub fn take(&self, rank: u32) -> Option<Vec<u8>> {
        let mut all = self.held();
        let place = all.iter().position(|held| held.ranks.contains(&rank))?;
        let Held { mut line, mut ranks, .. } = all.swap_remove(place);
        if ranks.len() > 1 {
            ranks.sort_unstable();
            line.pop();
            line.extend(format!(" (on {})\n", units::ranks(&ranks)).into_bytes());
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(batch: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut batch = batch.to_vec();
        let line = cut_off_error(&mut batch);
        (batch, line)
    }

    #[test]
    fn only_an_error_that_nothing_follows_is_held() {
        assert_eq!(cut(b"Error: a\n"), (b"".to_vec(), Some(b"Error: a\n".to_vec())));
        assert_eq!(cut(b"b\nError: a\n"), (b"b\n".to_vec(), Some(b"Error: a\n".to_vec())));
        for passed in [&b""[..], b"\n", b"a\n", b"Error: a\nb\n", b"Error: a\n\n", b"an Error: a\n", b"Error: a"] {
            assert_eq!(cut(passed), (passed.to_vec(), None));
        }
        let long = [START, &vec![b'x'; LINE_BYTES_MAX], b"\n"].concat();
        assert_eq!(cut(&long), (long.clone(), None));
    }

    #[test]
    fn what_several_ranks_say_alike_is_said_once_with_who_they_are() {
        let (alike, now) = (Alike::default(), Instant::now());
        let until = alike.hold(2, b"Error: a\n".to_vec(), now);
        assert_eq!(
            alike.hold(0, b"Error: a\n".to_vec(), now + COMPANY / 2),
            until,
            "nobody waits for longer than the first"
        );
        alike.hold(3, b"Error: b\n".to_vec(), now);
        alike.hold(1, b"Error: a\n".to_vec(), now);
        assert_eq!(alike.take(0).as_deref(), Some(&b"Error: a (on ranks 0-2)\n"[..]));
        assert_eq!((alike.take(1), alike.take(2)), (None, None), "it was said");
        assert_eq!(alike.take(3).as_deref(), Some(&b"Error: b\n"[..]), "by one rank: as it was");
        assert!(alike.held().is_empty());
    }

    #[test]
    fn who_goes_on_takes_its_line_back_and_leaves_those_of_others() {
        let (alike, now) = (Alike::default(), Instant::now());
        alike.hold(0, b"Error: a\n".to_vec(), now);
        alike.hold(1, b"Error: a\n".to_vec(), now);
        assert_eq!(alike.take_back(0).as_deref(), Some(&b"Error: a\n"[..]));
        assert_eq!((alike.take_back(0), alike.take_back(7)), (None, None));
        assert_eq!(alike.take(1).as_deref(), Some(&b"Error: a\n"[..]));
        alike.hold(1, b"Error: a\n".to_vec(), now);
        assert_eq!(alike.take_back(1).as_deref(), Some(&b"Error: a\n"[..]));
        assert!(alike.held().is_empty());
    }
}
