//! The ways by which a process finds the other ranks of its job, and which one is taken.
//!
//! They are tried in a fixed order; each says first what it sees in the environment. Where something promises others and no way
//! leads to them, nothing starts: worlds of one that believe to be alone would be worse.

use std::fmt;

use serde::Serialize;

use super::signs;
use super::{Found, Launcher, alone, explicit, kubernetes, managed, step};
use crate::config::Config;
use crate::error::InitError;

/// The value of a variable of the environment.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A way to the other ranks.
pub(crate) trait Bootstrap {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// Whether the environment says that it leads to others. Asks nobody.
    fn look(&self, variables: Variables<'_>, config: &Config) -> Sight;

    /// Takes it. Collective.
    fn join(&self, variables: Variables<'_>, config: &mut Config) -> Result<Found, NotJoined>;
}

/// What a way sees in the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Nothing.
    Nothing,
    /// It can be tried.
    Usable,
    /// It is meant, or may be, and cannot be taken for this reason.
    Unusable(String),
}

/// Why a way that was tried did not lead to the others.
pub(crate) enum NotJoined {
    /// It could not even be begun: another one may.
    Unusable(String),
    /// It was the right one, and something else is wrong.
    Failed(InitError),
}

impl From<InitError> for NotJoined {
    fn from(error: InitError) -> NotJoined {
        NotJoined::Failed(error)
    }
}

/// All of them, in the order in which they are tried.
const WAYS: [&dyn Bootstrap; 6] =
    [&ByLauncher, &managed::ByPmi1, &managed::ByPmix, &step::ByStep, &explicit::Explicit, &kubernetes::ByIndex];

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
const ALONE: &str = "alone";

/// How a process with these variables would be started, as far as that is told without asking anybody.
pub(crate) fn look(variables: Variables<'_>, config: &Config) -> Launch {
    let mut taken = None;
    let ways = WAYS.iter().map(|way| {
        let sight = if config.alone && !is_for_all(*way) { Sight::Nothing } else { way.look(variables, config) };
        let outcome = match sight {
            Sight::Nothing => Outcome::NotSeen,
            Sight::Usable if taken.is_some() => Outcome::NotNeeded,
            Sight::Usable => {
                taken = Some(way.name());
                Outcome::Taken
            }
            Sight::Unusable(reason) => Outcome::Failed(reason),
        };
        (way.name(), outcome)
    });
    let ways: Vec<_> = ways.collect();
    let promised_by = promise(variables, &ways).filter(|_| !config.alone);
    if promised_by.is_none() {
        taken = taken.or(Some(ALONE));
    }
    Launch { seen: signs::seen(variables), ways, promised_by, taken }
}

/// Whether a way is taken also by those who want to be alone among those that something else has started.
fn is_for_all(way: &dyn Bootstrap) -> bool {
    way.name() == ByLauncher.name()
}

/// The variable that promises other ranks.
fn promise(variables: Variables<'_>, ways: &[(&'static str, Outcome)]) -> Option<&'static str> {
    let by_manager = signs::find(variables).map(|managed| managed.variable);
    let is_meant = ways.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
    by_manager.or_else(|| is_meant.then(|| signs::first(variables)).flatten())
}

/// Joins the other ranks, by the first way that leads to them. Collective over all of them.
///
/// # Errors
/// [`InitError::NoWay`] where there are others and none does; what a way says that does.
pub(crate) fn find(config: &mut Config) -> Result<Found, InitError> {
    let variables = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let mut launch = look(&variables, config);
    for (way, (_, outcome)) in WAYS.iter().zip(&mut launch.ways) {
        if !matches!(outcome, Outcome::Taken | Outcome::NotNeeded) {
            continue;
        }
        match way.join(&variables, config) {
            Ok(found) => return Ok(found),
            Err(NotJoined::Failed(error)) => return Err(error),
            Err(NotJoined::Unusable(reason)) => *outcome = Outcome::Failed(reason),
        }
    }
    launch.promised_by = promise(&variables, &launch.ways).filter(|_| !config.alone);
    if launch.promised_by.is_some() {
        launch.taken = None;
        return Err(InitError::NoWay { launch: Box::new(launch) });
    }
    alone().map(|start| (None, start))
}

/// How this process was started, and how [`init`](crate::init) would find the others: for `longarm info --launch`.
#[doc(hidden)]
pub fn launch(config: &Config) -> Launch {
    look(&|name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty()), config)
}

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

/// Our own launcher has started this process.
struct ByLauncher;

impl Bootstrap for ByLauncher {
    fn name(&self) -> &'static str {
        "longarm run"
    }

    fn look(&self, variables: Variables<'_>, _config: &Config) -> Sight {
        match variables(super::control::CONTROL_FD_VARIABLE) {
            Some(_) => Sight::Usable,
            None => Sight::Nothing,
        }
    }

    fn join(&self, _variables: Variables<'_>, _config: &mut Config) -> Result<Found, NotJoined> {
        match Launcher::find()? {
            Some((launcher, start)) => Ok((Some(launcher), start)),
            None => Err(NotJoined::Unusable("its variable is not set any more".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests;
