//! OpenSHMEM as it is installed, made once for each test program from the archive that cargo has built beside it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::built::{build_workspace, profile_folder, succeed};

/// The folder with `bin`, `include` and `lib`. `purpose` keeps test programs apart.
pub(crate) fn prefix(purpose: &str) -> Result<&'static Path, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        build_workspace()?;
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
