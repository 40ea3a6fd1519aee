//! The MPIs of Debian, as the tests of the shims start jobs with them: this file is a module of each that does.

use std::path::Path;
use std::process::Command;

/// An MPI by Debian's names.
pub(crate) struct Installed {
    pub(crate) name: &'static str,
    /// What its launcher needs as root, with more ranks than cores.
    launcher_arguments: &'static [&'static str],
}

const ALL: [Installed; 2] = [
    Installed { name: "mpich", launcher_arguments: &[] },
    Installed { name: "openmpi", launcher_arguments: &["--oversubscribe", "--bind-to", "none"] },
];

/// Those that are installed; of the others it says that they are left out.
pub(crate) fn installed() -> impl Iterator<Item = &'static Installed> {
    ALL.iter().filter(|mpi| {
        let is_there = Command::new(mpi.compiler()).arg("--version").output().is_ok();
        if !is_there {
            eprintln!("left out: there is no {}", mpi.compiler());
        }
        is_there
    })
}

impl Installed {
    /// The wrapper of the C compiler.
    pub(crate) fn compiler(&self) -> String {
        format!("mpicc.{}", self.name)
    }

    /// A job of `program`, cut into nodes; the program's arguments are still to be added.
    pub(crate) fn job(&self, program: &Path, processes: u32, nodes: u32) -> Command {
        let mut command = Command::new(format!("mpiexec.{}", self.name));
        command.args(self.launcher_arguments).args(["-n", &processes.to_string()]).arg(program);
        command.env("LONGARM_NODES", nodes.to_string());
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command
    }
}
