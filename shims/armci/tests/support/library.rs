//! libarmci, made once for each test program from the archive that cargo has built beside it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::built::{build_workspace, profile_folder, succeed};

/// The folder with `libarmci.a` and `libarmci.so`. `purpose` keeps test programs apart.
pub(crate) fn library(purpose: &str) -> Result<&'static Path, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        build_workspace()?;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(purpose);
        let mut script = Command::new(here().join("../build-library.sh"));
        succeed(script.arg(profile_folder()?.join("liblongarm_armci.a")).arg(&folder))?;
        Ok(folder)
    });
    made.as_ref().map(PathBuf::as_path).map_err(String::clone)
}

/// The folder of this package.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
