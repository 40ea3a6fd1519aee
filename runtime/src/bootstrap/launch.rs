//! What is said of how a process was started.

use std::fmt;

use serde::Serialize;

/// What was seen of how this process was started, and what was made of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Launch {
    /// The variables that say something about it, with their values.
    pub seen: Vec<(String, String)>,
    /// Each way, in the order in which they are tried, and what became of it.
    pub ways: Vec<(&'static str, Outcome)>,
    /// Whether something promises that there are other ranks: by which variable.
    pub promised_by: Option<&'static str>,
    /// The name of the way that is taken. `None`: no way leads to the others that were promised.
    pub taken: Option<&'static str>,
}

/// What became of a way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing in the environment speaks of it.
    NotSeen,
    /// It is the one to take.
    Taken,
    /// It is not needed, as one before it is taken.
    NotNeeded,
    /// It cannot be taken.
    Failed(String),
}

/// What a process is called that has nobody beside it.
pub(super) const ALONE: &str = "alone";

impl fmt::Display for Launch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("seen in the environment:")?;
        if self.seen.is_empty() {
            formatter.write_str(" nothing that speaks of other ranks")?;
        }
        for (variable, value) in &self.seen {
            write!(formatter, "\n  {variable}={value}")?;
        }
        formatter.write_str("\nways to the other ranks, in their order:")?;
        for (name, outcome) in &self.ways {
            match outcome {
                Outcome::NotSeen => write!(formatter, "\n  {name}: nothing speaks of it")?,
                Outcome::Taken => write!(formatter, "\n  {name}: this one is taken")?,
                Outcome::NotNeeded => write!(formatter, "\n  {name}: it would be tried if those before it fail")?,
                Outcome::Failed(reason) => write!(formatter, "\n  {name}: {reason}")?,
            }
        }
        match (self.taken, self.promised_by) {
            (Some(ALONE), _) => formatter.write_str("\n  alone: this one is taken"),
            (None, Some(variable)) => {
                write!(formatter, "\nno way leads to the other ranks that {variable} promises: nothing starts")
            }
            _ => Ok(()),
        }
    }
}
