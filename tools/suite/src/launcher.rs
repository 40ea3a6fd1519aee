//! The command that starts a program as ranks.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cli::{Arguments, HostArguments, Launcher, Mpi};

/// A command of some launcher, up to the number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    command: PathBuf,
    options: Vec<OsString>,
    kind: Launcher,
    extra_ranks: u32,
    hosts: Vec<String>,
    /// What starts a command on a host; where there are hosts.
    agent: PathBuf,
}

/// What Open MPI wants to be told on a machine with fewer processors than ranks, and as root. Every waiting rank yields.
const OPENMPI_OPTIONS: [&str; 10] = [
    "--allow-run-as-root",
    "--oversubscribe",
    "--bind-to",
    "none",
    "--mca",
    "mpi_yield_when_idle",
    "1",
    "--mca",
    "btl_base_warn_component_unused",
    "0",
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
        let command = if names.is_empty() {
            arguments.longarm.clone()
        } else {
            let found = names.iter().find_map(|name| in_path(name));
            found.ok_or_else(|| format!("none of {} is in PATH: run tools/ga/setup.sh", names.join(", ")))?
        };
        let HostArguments { hosts, agent } = arguments.hosts.clone();
        if !hosts.is_empty() && (arguments.launcher, arguments.mpi) != (Launcher::Mpi, Mpi::Mpich) {
            return Err("--hosts is for the mpiexec of MPICH".to_owned());
        }
        if let Some(library) = &arguments.say_finalize {
            options.extend(["-genv".into(), "LD_PRELOAD".into(), absolute(library)?.into()]);
        }
        let agent = agent.map(|agent| absolute(&agent)).transpose()?.unwrap_or_default();
        Ok(Start { command, options, kind: arguments.launcher, extra_ranks: arguments.extra_ranks, hosts, agent })
    }

    /// Into how many nodes the ranks are cut by standing on several hosts, if they do.
    pub fn hosts(&self) -> Option<u32> {
        (!self.hosts.is_empty()).then_some(self.hosts.len() as u32)
    }

    /// The words of the command that runs `program` on so many ranks and nodes.
    pub fn words(&self, program: &Path, ranks: u32, nodes: u32) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut all_ranks = ranks + self.extra_ranks;
        if let Some(hosts) = self.hosts() {
            all_ranks = ranks + self.extra_ranks * hosts;
            words.extend([self.agent.clone().into(), self.hosts[0].clone().into(), self.command.clone().into()]);
            words.extend(["-launcher".into(), "ssh".into(), "-launcher-exec".into(), self.agent.clone().into()]);
            words.extend(["-hosts".into(), self.hosts.join(",").into()]);
            words.extend(["-ppn".into(), all_ranks.div_ceil(hosts).to_string().into()]);
        } else {
            words.push(self.command.clone().into());
        }
        words.extend(self.options.iter().cloned());
        words.extend(["-n".into(), all_ranks.to_string().into()]);
        // Elsewhere LONGARM_NODES says it.
        if self.kind == Launcher::Longarm {
            words.extend(["--nodes".into(), nodes.to_string().into(), "--".into()]);
        }
        words.push(program.into());
        if self.hosts().is_some() {
            // What stands in for ssh has a shell read the words, as ssh does.
            words.iter_mut().skip(2).for_each(quote);
        }
        words
    }

    /// What is added to the environment: into how many nodes the library itself cuts the ranks.
    pub fn environment(&self, nodes: u32) -> Vec<(&'static str, String)> {
        if self.hosts().is_some() {
            // Debian's MPICH would look for faster networks than there are, and take hosts that are made up on one machine
            // for neighbours.
            return vec![("UCX_TLS", "tcp,self".to_owned())];
        }
        if self.kind == Launcher::Longarm || nodes == 1 {
            return Vec::new();
        }
        vec![("LONGARM_NODES", nodes.to_string())]
    }
}

/// Makes a word one that a shell reads as it is.
fn quote(word: &mut OsString) {
    let text = word.to_string_lossy();
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "/-_.,:=+".contains(character);
    if text.is_empty() || !text.chars().all(is_plain) {
        *word = format!("'{}'", text.replace('\'', "'\\''")).into();
    }
}

/// A path that holds wherever the command runs.
pub fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))
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
        let options = vec!["first".into()];
        Start { command: "launch".into(), options, kind, extra_ranks, hosts: Vec::new(), agent: PathBuf::new() }
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
    fn on_hosts_the_launcher_starts_on_the_first_and_gives_each_as_many() {
        let hosts = vec!["x".to_owned(), "y".to_owned()];
        let start = Start { hosts, agent: "go".into(), ..start(Launcher::Mpi, 1) };
        let words = start.words(Path::new("p 1"), 3, 2);
        let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
        let text = "go x launch -launcher ssh -launcher-exec go -hosts x,y -ppn 3 first -n 5 'p 1'";
        assert_eq!(words.join(" "), text);
        assert!(start.environment(2).iter().all(|(name, _)| *name != "LONGARM_NODES"));
    }

    #[test]
    fn ranks_that_a_runtime_takes_for_itself_are_started_besides() {
        assert!(start(Launcher::Mpi, 1).words(Path::new("p"), 2, 1).contains(&OsString::from("3")));
    }
}
