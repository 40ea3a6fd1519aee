//! One C program, compiled one way, once, when it is first needed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::built::succeed;
use crate::library::{here, library};

/// A language, and which of the libraries is linked.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Build {
    /// The oldest C that has what programs need, with the archive.
    C99Static,
    /// A new C, with the shared library.
    C17Shared,
    /// C++, with the shared library.
    Cxx17Shared,
}

/// Nothing may even be warned about.
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

impl Build {
    pub(crate) const ALL: [Build; 3] = [Build::C99Static, Build::C17Shared, Build::Cxx17Shared];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Build::C99Static => "c99_static",
            Build::C17Shared => "c17_shared",
            Build::Cxx17Shared => "cxx17_shared",
        }
    }

    fn compiler(self) -> Command {
        let (program, arguments): (&str, &[&str]) = match self {
            Build::C99Static => ("cc", &["-std=c99"]),
            Build::C17Shared => ("cc", &["-std=c17"]),
            Build::Cxx17Shared => ("c++", &["-x", "c++", "-std=c++17"]),
        };
        let mut command = Command::new(program);
        command.args(arguments).args(WARNINGS).args(["-O1", "-g"]);
        command
    }
}

/// See the module.
pub(crate) struct Compiled {
    name: &'static str,
    way: Build,
    path: OnceLock<Result<PathBuf, String>>,
}

/// Where the programs are.
pub(crate) fn sources() -> PathBuf {
    here().join("tests/c")
}

impl Compiled {
    pub(crate) fn new(name: &'static str, way: Build) -> Compiled {
        Compiled { name, way, path: OnceLock::new() }
    }

    /// The program, compiled by now.
    pub(crate) fn path(&self) -> Result<&Path, String> {
        let compiled = self.path.get_or_init(|| self.compile());
        compiled.as_ref().map(PathBuf::as_path).map_err(String::clone)
    }

    fn compile(&self) -> Result<PathBuf, String> {
        let library = library("armci-c-programs")?;
        let program = library.join(format!("{}_{}", self.name, self.way.name()));
        let mut command = self.way.compiler();
        command.arg("-I").arg(here().join("include")).arg(sources().join(format!("{}.c", self.name)));
        // What is linked is no C++ source.
        command.args(["-x", "none", "-o"]).arg(&program);
        match self.way {
            Build::C99Static => {
                command.arg(library.join("libarmci.a")).args(["-lgcc_s", "-lpthread", "-lm", "-ldl"]);
            }
            Build::C17Shared | Build::Cxx17Shared => {
                command.arg(library.join("libarmci.so")).arg(format!("-Wl,-rpath,{}", library.display()));
                command.arg("-lpthread");
            }
        }
        succeed(&mut command)?;
        Ok(program)
    }
}
