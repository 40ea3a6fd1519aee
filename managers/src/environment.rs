//! Variables of the environment, as an argument.

use std::str::FromStr;

/// What the environment of a process says: the value of a variable by its name.
///
/// ```
/// use longarm_managers::slurm::Step;
///
/// // That of this process:
/// let own = Step::from_environment(&|name| std::env::var(name).ok());
/// assert!(own.is_ok());
///
/// // Of a test:
/// let nothing = Step::from_environment(&|_| None)?;
/// assert!(nothing.is_none());
/// # Ok::<(), longarm_managers::slurm::StepError>(())
/// ```
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Variables that cannot be what whoever started this process meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// A value of the wrong kind.
    #[error(
        "the variable {name} is {value:?}, which is not {wanted}; unset it, unless what started the program has set it so, which is to be mended there"
    )]
    Bad {
        /// Which one.
        name: &'static str,
        /// What it is, cut where it is long.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// One of two that only make sense together.
    #[error(
        "the variable {present} is set and {missing} is not; whoever sets one sets both, so unset {present}, or pass {missing} on as well"
    )]
    Missing {
        /// The one that is there.
        present: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
    /// Numbers that contradict each other.
    #[error(
        "{what} is {number}, of {count} altogether; the variables are not those of one job, so start the program in an environment without those of another"
    )]
    OutOfRange {
        /// What is counted, with the variable that says it.
        what: &'static str,
        /// Its number, from 0.
        number: u32,
        /// How many there are.
        count: u32,
    },
}

/// A number, or whatever else can be read from text. `None` where the variable is not set, or is empty.
pub(crate) fn value<T: FromStr>(
    environment: Environment<'_>,
    name: &'static str,
    wanted: &'static str,
) -> Result<Option<T>, EnvironmentError> {
    let Some(text) = environment(name).filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    match text.trim().parse() {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(EnvironmentError::Bad { name, value: shortened(&text), wanted }),
    }
}

/// A number from 0.
pub(crate) fn number(environment: Environment<'_>, name: &'static str) -> Result<Option<u32>, EnvironmentError> {
    value(environment, name, "a number from 0")
}

/// A number that has to be there, because another variable is.
pub(crate) fn number_beside(
    environment: Environment<'_>,
    present: &'static str,
    missing: &'static str,
) -> Result<u32, EnvironmentError> {
    number(environment, missing)?.ok_or(EnvironmentError::Missing { present, missing })
}

/// Refuses a number that is not below the count.
pub(crate) fn below(what: &'static str, number: u32, count: u32) -> Result<(), EnvironmentError> {
    if number < count { Ok(()) } else { Err(EnvironmentError::OutOfRange { what, number, count }) }
}

/// Letters of a text that stand in an error.
const SHOWN_LETTERS_MAX: usize = 80;

/// The beginning of a text, for an error.
pub(crate) fn shortened(text: &str) -> String {
    let mut letters = text.chars();
    let mut shown: String = letters.by_ref().take(SHOWN_LETTERS_MAX).collect();
    if letters.next().is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_with_spaces_around_it_and_nothing_is_none() {
        let set = |name: &str| match name {
            "A" => Some(" 12\n".to_owned()),
            "B" => Some(String::new()),
            _ => None,
        };
        assert_eq!(number(&set, "A"), Ok(Some(12)));
        assert_eq!(number(&set, "B"), Ok(None));
        assert_eq!(number(&set, "C"), Ok(None));
        let missing = EnvironmentError::Missing { present: "A", missing: "C" };
        assert_eq!(number_beside(&set, "A", "C"), Err(missing));
    }

    #[test]
    fn a_bad_number_is_named_with_its_value_cut_where_it_is_long() {
        for bad in ["-1", "4294967296", "two", &"9".repeat(5000)] {
            let error = number(&|_| Some(bad.to_owned()), "PMI_RANK").unwrap_err();
            let said = error.to_string();
            assert!(said.contains("PMI_RANK") && said.contains(&bad[..bad.len().min(80)]), "{said}");
            assert!(said.len() < 400, "{said}");
        }
    }
}
