//! What the tests of every shim need of cargo and of the tools of C: this file is a module of each of their test programs.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Where cargo puts what it builds: the folder above that of this test program.
pub(crate) fn profile_folder() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = test.parent().and_then(std::path::Path::parent).ok_or("this test program stands in no folder")?;
    Ok(folder.to_owned())
}

/// Has cargo build the libraries, programs and examples of the workspace with the profile and in the folder of this test program: what lies
/// there may be of an older day. All of them, as the step `build` of `make test` does: for fewer packages cargo picks other features of
/// dependencies, and everything would be built again. Only the verbs netmod makes no such difference, and needs headers.
pub(crate) fn build_workspace() -> Result<(), String> {
    let folder = profile_folder()?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let target = folder.parent().ok_or("the profile's folder stands in no other")?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "--quiet", "--workspace", "--exclude", "longarm-verbs", "--lib", "--bins"]);
    cargo.args(["--examples", "--profile", profile]);
    succeed(cargo.arg("--target-dir").arg(target).current_dir(env!("CARGO_MANIFEST_DIR"))).map(drop)
}

/// Runs a command that has to succeed.
pub(crate) fn succeed(command: &mut Command) -> Result<Output, String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{name} ended with {}\n{}", output.status, everything(&output)))
}

/// What a process or a job has printed.
pub(crate) fn everything(output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{stdout}{stderr}")
}
