//! Starts `longarm run` with this same program as the ranks, and takes in the lines that they print.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;
use crate::line::Line;
use crate::micro::rank::{Suite, now_ns};

/// A layout and what is measured on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// What progress messages and `--only` call it.
    pub(crate) name: &'static str,
    pub(crate) suite: Suite,
    /// What its lines call the way to the target.
    pub(crate) transport: &'static str,
    pub(crate) ranks: u32,
    pub(crate) nodes: u32,
    /// Each rank on a processor of its own.
    pub(crate) bound: bool,
    pub(crate) target: u32,
    pub(crate) place: JobSite,
}

/// A variable of the environment, and its value.
pub(crate) type Variable = (&'static str, &'static str);

/// What is special about where a job runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobSite {
    /// Its nodes are the two network namespaces of tools/ga/hosts.sh.
    pub(crate) on_hosts: bool,
    /// A variable of the environment that its ranks have.
    pub(crate) variable: Option<Variable>,
}

const HERE: JobSite = JobSite { on_hosts: false, variable: None };
const PAIR: Job =
    Job { name: "shm", suite: Suite::Ops, transport: "shm", ranks: 2, nodes: 1, bound: true, target: 1, place: HERE };
const TCP: Job = Job { name: "tcp", transport: "tcp", nodes: 2, ..PAIR };

/// Everything that is measured, in this order.
pub(crate) const JOBS: [Job; 19] = [
    PAIR,
    TCP,
    Job { name: "tcp-anywhere", suite: Suite::Short, transport: "tcp-anywhere", bound: false, ..TCP },
    Job { name: "tcp-computing", suite: Suite::Computing, ..TCP },
    Job { name: "shm-computing", suite: Suite::Computing, ..PAIR },
    // The pair is the first rank of the first node and the last one of the last; the others wait in a barrier.
    Job {
        name: "tcp-oversubscribed",
        suite: Suite::Short,
        transport: "tcp-oversubscribed",
        ranks: 4,
        bound: false,
        target: 3,
        ..TCP
    },
    Job {
        name: "shm-oversubscribed",
        suite: Suite::Short,
        transport: "shm-oversubscribed",
        ranks: 4,
        bound: false,
        target: 3,
        ..PAIR
    },
    Job { name: "shm-barrier2", suite: Suite::Barrier, ..PAIR },
    Job { name: "tcp-barrier2", suite: Suite::Barrier, ..TCP },
    Job { name: "shm-barrier4", suite: Suite::Barrier, ranks: 4, bound: false, ..PAIR },
    Job { name: "tcp-barrier4", suite: Suite::Barrier, ranks: 4, bound: false, ..TCP },
    Job { name: "shm-windows2", suite: Suite::Windows, bound: false, ..PAIR },
    Job { name: "tcp-windows2", suite: Suite::Windows, bound: false, ..TCP },
    Job { name: "shm-windows16", suite: Suite::Windows, ranks: 16, bound: false, ..PAIR },
    Job { name: "tcp-windows16", suite: Suite::Windows, ranks: 16, nodes: 4, bound: false, ..TCP },
    Job { name: "shm-message", suite: Suite::Message, ..PAIR },
    Job { name: "tcp-message", suite: Suite::Message, ..TCP },
    Job { name: "idle", suite: Suite::Idle, ranks: 4, bound: false, ..TCP },
    Job { name: "start", suite: Suite::Start, ranks: 64, nodes: 4, bound: false, ..TCP },
];

/// Goes to the host of its node, and listens on its address there.
const ON_HOSTS: &str = r#"
case $LONGARM_NODE in 0) name=a number=1 ;; *) name=b number=2 ;; esac
LONGARM_INTERFACE=198.51.100.$number exec ip netns exec longarm-$name "$@"
"#;

/// No measurement takes longer than this, unless something hangs.
const TIMEOUT_S: u32 = 600;

/// Where the launcher is.
pub(crate) fn find_longarm(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let beside = std::env::current_exe()?.with_file_name("longarm");
    Ok(if beside.is_file() { beside } else { PathBuf::from("longarm") })
}

impl Job {
    /// Runs it and gives what it measured.
    pub(crate) fn run(&self, longarm: &Path, quick: bool) -> Result<Vec<Line>, Failure> {
        let mut command = Command::new(longarm);
        command.args(["run", "-n", &self.ranks.to_string(), "--nodes", &self.nodes.to_string()]);
        command.args(["--timeout", &TIMEOUT_S.to_string(), "--bind", if self.bound { "core" } else { "none" }]);
        command.arg("--");
        if self.place.on_hosts {
            command.args(["sh", "-c", ON_HOSTS, "sh"]);
        }
        command.arg(std::env::current_exe()?);
        command.envs(self.place.variable);
        command.args(["rank", self.suite.name(), "--transport", self.transport]);
        command.args(["--target", &self.target.to_string()]);
        if quick {
            command.arg("--quick");
        }
        // The last thing before the start, because the start is what it is for.
        command.args(["--since-ns", &now_ns().to_string()]);
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("cannot start {}: {error}", longarm.display()))?;
        if !output.status.success() {
            return Err(format!("the job {} failed: {}", self.name, output.status).into());
        }
        let lines = String::from_utf8(output.stdout)?;
        lines.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}
