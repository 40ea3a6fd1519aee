//! The ways by which a process finds the other ranks of its job, and which one is taken.
//!
//! They are tried in a fixed order; each says first what it sees in the environment. Where something promises others and no way
//! leads to them, nothing starts: worlds of one that believe to be alone would be worse.

use longarm_control::messages::CONTROL_FD_VARIABLE;

use super::alone::alone;
use super::launch::{ALONE, Launch, Outcome};
use super::launcher::Launcher;
use super::rendezvous::Found;
use super::way::{Bootstrap, NotJoined, Sight, Variables};
use super::{explicit, kubernetes, managed, signs, srun};
use crate::config::Config;
use crate::error::InitError;

/// All of them, in the order in which they are tried.
const WAYS: [&dyn Bootstrap; 6] =
    [&ByLauncher, &managed::ByPmi1, &managed::ByPmix, &srun::BySrun, &explicit::Explicit, &kubernetes::ByIndex];

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
    let variables = own_variable;
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

fn own_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Whether `mpiexec`, `srun --mpi=...` or the like has started this process. Then initialising MPI gives the job's ranks.
#[doc(hidden)]
pub fn started_by_manager_of_mpi() -> bool {
    signs::is_of_mpi(own_variable)
}

/// Whether that one is Open MPI's.
#[doc(hidden)]
pub fn started_by_open_mpi() -> bool {
    own_variable("OMPI_COMM_WORLD_RANK").is_some()
}

/// What whoever started this process has told it without being asked: its rank, and of how many.
#[doc(hidden)]
pub fn told_rank_and_size() -> Option<(u32, u32)> {
    signs::told_by_mpi(own_variable).or_else(|| {
        // Who is to be alone is, whatever the others were told.
        let is_alone = Config::from_environment().is_ok_and(|config| config.alone);
        signs::told_by_others(own_variable).filter(|_| !is_alone)
    })
}

/// As [`told_rank_and_size`], of a process manager of MPI that may say no size.
#[doc(hidden)]
pub fn told_rank() -> Option<u32> {
    signs::rank_told_by_mpi(own_variable)
}

/// How this process was started, and how [`init`](crate::init) would find the others: for `longarm info --launch`.
#[doc(hidden)]
pub fn launch(config: &Config) -> Launch {
    look(&own_variable, config)
}

/// Our own launcher has started this process.
struct ByLauncher;

impl Bootstrap for ByLauncher {
    fn name(&self) -> &'static str {
        "longarm run"
    }

    fn look(&self, variables: Variables<'_>, _config: &Config) -> Sight {
        match variables(CONTROL_FD_VARIABLE) {
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
