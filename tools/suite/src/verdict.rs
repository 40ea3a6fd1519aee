//! What a run is judged by: its end, its output, what it left behind.
//!
//! Many of the programs print that something is wrong and end with status 0 all the same, so both count.

use std::fmt;

use crate::list::Program;

/// A line that holds one of these, in any case, tells of an error.
const ERROR_WORDS: [&str; 16] = [
    "error",
    "mismatch",
    "incorrect",
    "fail",
    "not ok",
    "not okay",
    "wrong",
    "abort",
    "assert",
    "segmentation",
    "bad termination",
    "panicked",
    "corrupt",
    "sigsegv",
    "sigbus",
    "cannot open shared object",
];

/// Unless it holds one of these. Programs have more of their own in the list.
const HARMLESS_WORDS: [&str; 4] = ["no error", "0 errors", "without error", "errors: 0"];

/// What a rank prints at the beginning of `MPI_Finalize`, where it was told to: `say_finalize.c`.
const COMES_TO_FINALIZE: &str = "longarm-suite: a rank has come to MPI_Finalize";

/// And at its end.
const LEAVES_FINALIZE: &str = "longarm-suite: a rank has come out of MPI_Finalize";

/// Whether all ranks of a run have come to `MPI_Finalize`, and not all have come out of it.
pub fn all_finalize(ranks: u32, output: &str) -> bool {
    let count = |words: &str| output.lines().filter(|line| line.contains(words)).count();
    count(COMES_TO_FINALIZE) >= ranks as usize && count(LEAVES_FINALIZE) < ranks as usize
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// It did not, and was killed after so many seconds.
    Limit(u64),
    /// All its ranks had come to `MPI_Finalize`, so many seconds ago, when it was killed.
    InFinalize(u64),
}

/// What a run is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is well.
    Passed,
    /// It was not started, for this reason.
    Skipped(String),
    /// It failed by a fault of its own, this one, which it has on every library.
    OwnFault(String),
    /// It had done all it does, but the MPI's own `MPI_Finalize` did not end within so many seconds.
    MpiFault(u64),
    /// It was not built.
    Missing,
    /// It ended in a way that is no success.
    Ended(Ending),
    /// It printed this line.
    Printed(String),
    /// It did not print this.
    Silent(String),
    /// Processes or files were still there after its end.
    LeftBehind(String),
}

impl Verdict {
    /// Whether this counts against the library.
    pub fn is_failure(&self) -> bool {
        !matches!(self, Verdict::Passed | Verdict::Skipped(_) | Verdict::OwnFault(_) | Verdict::MpiFault(_))
    }

    /// Whether it is shown while the suite runs.
    pub fn is_worth_a_line(&self) -> bool {
        !matches!(self, Verdict::Skipped(_))
    }

    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Passed => "pass",
            Verdict::Skipped(_) => "skipped",
            Verdict::OwnFault(_) => "own fault",
            Verdict::MpiFault(_) => "MPI's fault",
            _ => "FAIL",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Passed => Ok(()),
            Verdict::Skipped(reason) | Verdict::OwnFault(reason) => formatter.write_str(reason),
            Verdict::MpiFault(seconds) | Verdict::Ended(Ending::InFinalize(seconds)) => {
                write!(formatter, "all ranks have stood in MPI_Finalize for {seconds} s")
            }
            Verdict::Missing => formatter.write_str("was not built"),
            Verdict::Ended(Ending::Status(status)) => write!(formatter, "exit status {status}"),
            Verdict::Ended(Ending::Signal(signal)) => write!(formatter, "killed by signal {signal}"),
            Verdict::Ended(Ending::Limit(seconds)) => write!(formatter, "still running after {seconds} s"),
            Verdict::Printed(line) => write!(formatter, "printed: {line}"),
            Verdict::Silent(text) => write!(formatter, "did not print \"{text}\""),
            Verdict::LeftBehind(what) => write!(formatter, "left behind: {what}"),
        }
    }
}

/// Judges a run by its end and its output. What it left behind is looked at elsewhere.
pub fn judge(program: &Program, ranks: u32, ending: Ending, output: &str) -> Verdict {
    let is_faulty = program.fault_ranks.accepts(ranks);
    let is_own = |line: &str| is_faulty && program.own_errors.iter().any(|mark| holds(line, mark));
    let mut errors = output.lines().filter(|line| is_error(program, line));
    match ending {
        Ending::Status(0) | Ending::InFinalize(_) => {
            if let Some(line) = errors.clone().find(|line| !is_own(line)) {
                return Verdict::Printed(line.trim().chars().take(160).collect());
            }
            if errors.next().is_some() {
                return Verdict::OwnFault(program.fault.clone());
            }
        }
        // It ended itself: what comes after its own words is its launcher's. From 128 on the status is a signal's.
        Ending::Status(status) if status < 128 && errors.next().is_some_and(is_own) => {
            return Verdict::OwnFault(program.fault.clone());
        }
        _ => return Verdict::Ended(ending),
    }
    match program.prints.iter().find(|text| !output.contains(text.as_str())) {
        Some(text) => Verdict::Silent(text.clone()),
        None => match ending {
            Ending::InFinalize(seconds) => Verdict::MpiFault(seconds),
            _ => Verdict::Passed,
        },
    }
}

/// Whether a line holds some words, in any case.
fn holds(line: &str, words: &str) -> bool {
    line.to_lowercase().contains(&words.to_lowercase())
}

fn is_error(program: &Program, line: &str) -> bool {
    if program.errors.iter().chain(&program.own_errors).any(|words| holds(line, words)) {
        return true;
    }
    let mut harmless = HARMLESS_WORDS.iter().copied().chain(program.allowed.iter().map(String::as_str));
    ERROR_WORDS.iter().any(|word| holds(line, word)) && !harmless.any(|words| holds(line, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list;

    fn judged(options: &str, ending: Ending, output: &str) -> Verdict {
        let programs = list::parse(&format!("p folder {options}")).unwrap();
        judge(&programs[0], 2, ending, output)
    }

    #[test]
    fn a_run_passes_only_with_status_zero_and_without_a_printed_error() {
        let good = Ending::Status(0);
        assert_eq!(judged("", good, "all is well\n"), Verdict::Passed);
        assert_eq!(judged("", Ending::Status(1), "all is well\n"), Verdict::Ended(Ending::Status(1)));
        assert_eq!(judged("", good, "fine\n  3 Error found\n"), Verdict::Printed("3 Error found".to_owned()));
        assert_eq!(judged("", good, "GA_Zero is not OK\n"), Verdict::Printed("GA_Zero is not OK".to_owned()));
        assert!(judged("", Ending::Limit(5), "").is_failure());
    }

    #[test]
    fn lines_that_only_look_like_errors_are_let_pass() {
        let good = Ending::Status(0);
        assert_eq!(judged("", good, "there were 0 errors\n"), Verdict::Passed);
        assert!(judged("", good, "norm of error= 0.1\n").is_failure());
        assert_eq!(judged("allow=\"of error=\"", good, "norm of error= 0.1\n"), Verdict::Passed);
    }

    #[test]
    fn a_fault_of_its_own_is_told_from_others() {
        let options = "own-fault=\"mismatch for zero\" fault=\"line 7\"";
        let good = Ending::Status(0);
        let fault = Verdict::OwnFault("line 7".to_owned());
        assert_eq!(judged(options, good, "Mismatch for zero 3\nfine\n"), fault);
        assert_eq!(judged(options, good, "fine\n"), Verdict::Passed);
        assert!(judged(options, good, "Mismatch for zero 3\nMismatch for one 1\n").is_failure());
        assert_eq!(judged(options, Ending::Status(1), "Mismatch for zero 3\nAbort\n"), fault);
        assert!(judged(options, Ending::Status(1), "Abort\nMismatch for zero 3\n").is_failure());
        assert!(judged(options, Ending::Limit(9), "Mismatch for zero 3\n").is_failure());
        assert!(!fault.is_failure());
        assert!(judged(&format!("{options} fault-ranks=3"), good, "Mismatch for zero 3\n").is_failure());
    }

    #[test]
    fn a_run_that_stands_in_the_mpi_is_no_failure_if_all_was_well_before() {
        let all = format!("fine\n{COMES_TO_FINALIZE}\n{COMES_TO_FINALIZE}\n");
        assert!(all_finalize(2, &all));
        assert!(!all_finalize(3, &all), "one is still somewhere else");
        assert!(!all_finalize(2, &format!("{all}{LEAVES_FINALIZE}\n{LEAVES_FINALIZE}\n")), "it hangs behind");
        let standing = Ending::InFinalize(30);
        assert_eq!(judged("", standing, &all), Verdict::MpiFault(30));
        assert!(!judged("", standing, &all).is_failure());
        assert!(judged("", standing, "3 errors\n").is_failure());
        assert!(judged("prints=\"All tests\"", standing, &all).is_failure());
    }

    #[test]
    fn a_program_may_have_errors_and_promises_of_its_own() {
        let good = Ending::Status(0);
        assert!(judged("fails-if=\"no luck\"", good, "No luck today\n").is_failure());
        assert_eq!(judged("prints=\"All tests\"", good, "done\n"), Verdict::Silent("All tests".to_owned()));
        assert_eq!(judged("prints=\"All tests\"", good, "All tests good\n"), Verdict::Passed);
    }
}
