//! What a way to the other ranks of a job is.

use super::rendezvous::Found;
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
