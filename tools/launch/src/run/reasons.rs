//! Why the ranks say that the job ends: each reason is shown once, and not at all where it only follows from another rank's.

use crate::units;

/// Reasons that are kept. What a broken rank says beyond them is shown as it comes.
const REASONS_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub struct Reasons {
    shown: Vec<Reason>,
}

#[derive(Debug)]
struct Reason {
    rank: u32,
    text: String,
    /// Those that said the same later.
    others: Vec<u32>,
}

impl Reasons {
    /// Whether this is to be shown. What a rank says that has heard of another's failure quotes that failure's reason.
    pub fn take(&mut self, rank: u32, text: &str) -> bool {
        if let Some(reason) = self.shown.iter_mut().find(|reason| reason.text == text) {
            if rank != reason.rank && !reason.others.contains(&rank) {
                reason.others.push(rank);
            }
            return false;
        }
        // "... rank 1 (node 0) exited with status 7": the parenthesis tells a quotation from the same words by chance.
        if self.shown.iter().any(|reason| text.contains(&format!(") {}", reason.text))) {
            return false;
        }
        if self.shown.len() < REASONS_MAX {
            self.shown.push(Reason { rank, text: text.to_owned(), others: Vec::new() });
        }
        true
    }

    /// Who said what others had said before: a line for each reason.
    pub fn said_by_several(&mut self) -> impl Iterator<Item = String> + '_ {
        let several = self.shown.iter_mut().filter(|reason| !reason.others.is_empty());
        several.map(|reason| {
            reason.others.sort_unstable();
            let say = if reason.others.len() == 1 { "says" } else { "say" };
            format!("{} {say} the same as rank {}", units::ranks(&reason.others), reason.rank)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_say_is_shown_once_and_who_they_are_at_the_end() {
        let mut reasons = Reasons::default();
        let shown = [1, 3, 0, 2, 3].map(|rank| reasons.take(rank, "aborted: no room"));
        assert_eq!(shown, [true, false, false, false, false]);
        assert!(reasons.take(4, "aborted: no time"));
        assert!(!reasons.take(5, "aborted: no time"));
        let lines: Vec<String> = reasons.said_by_several().collect();
        assert_eq!(lines, ["ranks 0, 2-3 say the same as rank 1", "rank 5 says the same as rank 4"]);
    }

    #[test]
    fn what_follows_from_another_failure_is_not_shown() {
        let mut reasons = Reasons::default();
        assert!(reasons.take(1, "exited with status 7"));
        assert!(!reasons.take(0, "aborted: a_call: collective failed: rank 1 (node 0) exited with status 7"));
        assert!(reasons.take(2, "aborted: it never exited with status 7"));
        assert_eq!(reasons.said_by_several().count(), 0);
    }
}
