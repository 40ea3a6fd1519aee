//! Which file is the program.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The program cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No such file, or not in the search path.
    #[error("{}: program not found", .program.display())]
    NotFound {
        /// The program as written.
        program: PathBuf,
    },
    /// There is such a file, but it may not be executed.
    #[error("{}: {}", .path.display(), if *.is_folder { "is a folder, not a program" } else { "is not executable" })]
    NotExecutable {
        /// The file found.
        path: PathBuf,
        /// Whether it is a folder.
        is_folder: bool,
    },
}

/// Finds the file to execute, as a shell does: a name with a slash is a path, any other is looked for along `search`.
///
/// # Errors
/// When there is no such file, or none that may be executed.
pub fn find_program(program: &OsStr, search: Option<OsString>) -> Result<PathBuf, ProgramError> {
    let not_found = || ProgramError::NotFound { program: program.into() };
    if program.is_empty() {
        return Err(not_found());
    }
    if program.as_bytes().contains(&b'/') {
        return executable(Path::new(program)).unwrap_or_else(|| Err(not_found()));
    }
    let search = search.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut refused = None;
    for folder in std::env::split_paths(&search) {
        match executable(&folder.join(program)) {
            Some(Ok(path)) => return Ok(path),
            // A folder in the search path that happens to have the name is no reason to complain.
            Some(Err(error @ ProgramError::NotExecutable { is_folder: false, .. })) => refused = Some(error),
            _ => {}
        }
    }
    Err(refused.unwrap_or_else(not_found))
}

/// `None` when there is no such file.
fn executable(path: &Path) -> Option<Result<PathBuf, ProgramError>> {
    let is_folder = path.metadata().ok()?.is_dir();
    if is_folder || rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_err() {
        return Some(Err(ProgramError::NotExecutable { path: path.into(), is_folder }));
    }
    Some(Ok(path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_along_the_search_path_only_without_a_slash() {
        assert_eq!(find_program("sh".as_ref(), Some("/nowhere:/bin".into())).unwrap(), Path::new("/bin/sh"));
        assert_eq!(find_program("/bin/sh".as_ref(), None).unwrap(), Path::new("/bin/sh"));
        let error = find_program("no-such-program".as_ref(), None).unwrap_err();
        assert!(matches!(error, ProgramError::NotFound { .. }), "{error}");
        let error = find_program("/".as_ref(), None).unwrap_err();
        assert!(matches!(error, ProgramError::NotExecutable { is_folder: true, .. }), "{error}");
    }
}
