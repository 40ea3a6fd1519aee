//! The command that starts a program as ranks.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cli::{Arguments, Launcher, Mpi};

/// A command of some launcher, up to the number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    command: PathBuf,
    options: Vec<OsString>,
    kind: Launcher,
    extra_ranks: u32,
}

/// What Open MPI wants to be told on a machine with fewer processors than ranks, and as root. Every waiting rank yields.
const OPENMPI_OPTIONS: [&str; 9] = [
    "--allow-run-as-root",
    "--oversubscribe",
    "--bind-to",
    "none",
    "--mca",
    "mpi_yield_when_idle",
    "1",
    "--mca",
    "btl_base_warn_component_unused",
];

impl Start {
    /// Finds the launcher that is asked for.
    pub fn new(arguments: &Arguments) -> Result<Start, String> {
        let (names, mut options): (&[&str], Vec<OsString>) = match (arguments.launcher, arguments.mpi) {
            (Launcher::Longarm, _) => (&[], vec!["run".into()]),
            (Launcher::Mpi, Mpi::Mpich) => (&["mpiexec.mpich", "mpiexec.hydra", "mpiexec"], Vec::new()),
            (Launcher::Mpi, Mpi::Openmpi) => {
                (&["mpirun.openmpi", "mpirun"], OPENMPI_OPTIONS.iter().map(OsString::from).collect())
            }
        };
        if !names.is_empty() && arguments.mpi == Mpi::Openmpi {
            options.push("0".into());
        }
        let command = if names.is_empty() {
            arguments.longarm.clone()
        } else {
            let found = names.iter().find_map(|name| in_path(name));
            found.ok_or_else(|| format!("none of {} is in PATH: run tools/ga/setup.sh", names.join(", ")))?
        };
        Ok(Start { command, options, kind: arguments.launcher, extra_ranks: arguments.extra_ranks })
    }

    /// The words of the command that runs `program` on so many ranks and nodes.
    pub fn words(&self, program: &Path, ranks: u32, nodes: u32) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![self.command.clone().into()];
        words.extend(self.options.iter().cloned());
        words.extend(["-n".into(), (ranks + self.extra_ranks).to_string().into()]);
        // Elsewhere LONGARM_NODES says it.
        if self.kind == Launcher::Longarm {
            words.extend(["--nodes".into(), nodes.to_string().into(), "--".into()]);
        }
        words.push(program.into());
        words
    }

    /// What is added to the environment: into how many nodes the library itself cuts the ranks.
    pub fn environment(&self, nodes: u32) -> Vec<(&'static str, String)> {
        if self.kind == Launcher::Longarm || nodes == 1 {
            return Vec::new();
        }
        vec![("LONGARM_NODES", nodes.to_string())]
    }
}

/// Words before a command that make the kernel end it when this program ends first, by a signal or by Ctrl-C: the
/// launcher has a process group of its own, which the terminal does not know. None where util-linux lacks the tool.
pub fn bound_to_us() -> Vec<OsString> {
    match in_path("setpriv") {
        Some(setpriv) => vec![setpriv.into(), "--pdeathsig".into(), "TERM".into(), "--".into()],
        None => Vec::new(),
    }
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(kind: Launcher, extra_ranks: u32) -> Start {
        Start { command: "launch".into(), options: vec!["first".into()], kind, extra_ranks }
    }

    #[test]
    fn an_mpi_is_told_the_ranks_and_the_library_is_told_the_nodes() {
        let start = start(Launcher::Mpi, 0);
        assert_eq!(start.words(Path::new("p"), 4, 2), ["launch", "first", "-n", "4", "p"]);
        assert_eq!(start.environment(2), [("LONGARM_NODES", "2".to_owned())]);
        assert!(start.environment(1).is_empty());
    }

    #[test]
    fn longarm_run_is_told_both() {
        let start = start(Launcher::Longarm, 0);
        assert_eq!(start.words(Path::new("p"), 4, 2), ["launch", "first", "-n", "4", "--nodes", "2", "--", "p"]);
        assert!(start.environment(2).is_empty());
    }

    #[test]
    fn ranks_that_a_runtime_takes_for_itself_are_started_besides() {
        assert!(start(Launcher::Mpi, 1).words(Path::new("p"), 2, 1).contains(&OsString::from("3")));
    }
}
