//! OpenSHMEM as it is installed, made once for each test program from the archive that cargo has built beside it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The folder with `bin`, `include` and `lib`. `purpose` keeps test programs apart.
pub(crate) fn prefix(purpose: &str) -> Result<&'static Path, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        build(&["-p", "longarm-shmem", "--lib", "-p", "longarm-launch", "--bin", "longarm"])?;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(purpose);
        let mut script = Command::new(here().join("install.sh"));
        succeed(script.arg(profile_folder()?.join("liblongarm_shmem.a")).arg(&folder))?;
        let launcher = folder.join("bin/longarm");
        let _ = std::fs::remove_file(&launcher);
        std::os::unix::fs::symlink(profile_folder()?.join("longarm"), launcher).map_err(|error| error.to_string())?;
        Ok(folder)
    });
    made.as_ref().map(PathBuf::as_path).map_err(String::clone)
}

/// The folder of this package.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo puts what it builds: the folder above that of this test program.
fn profile_folder() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = test.parent().and_then(Path::parent).ok_or("this test program stands in no folder")?;
    Ok(folder.to_owned())
}

/// Has cargo build something of the workspace with the profile and in the folder of this test program: what lies there may
/// be of an older day.
fn build(what: &[&str]) -> Result<(), String> {
    let folder = profile_folder()?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let target = folder.parent().ok_or("the profile's folder stands in no other")?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--profile", profile]).args(what);
    succeed(cargo.arg("--target-dir").arg(target).current_dir(here())).map(drop)
}

/// Runs a command that has to succeed.
pub(crate) fn succeed(command: &mut Command) -> Result<Output, String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{name} ended with {}\n{stdout}{stderr}", output.status))
}
