//! Which MPIs this machine has.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names more prefixes to look under.
pub const VARIABLE: &str = "LONGARM_TEST_MPI_PREFIXES";

/// An MPI that jobs can be run with.
#[derive(Clone)]
pub struct Installed {
    /// Whence, for the tests' names.
    pub name: String,
    /// As this program's own arguments have it.
    pub abi: &'static str,
    /// The library to load.
    pub library: PathBuf,
    pub mpiexec: PathBuf,
    /// Where it is, unless it is the distribution's.
    pub prefix: Option<PathBuf>,
}

/// File names of libraries, by the ABI that they have.
const LIBRARIES: [(&str, &[&str]); 3] = [
    ("mpich", &["libmpi.so.12", "libmpich.so.12"]),
    ("open_mpi", &["libmpi.so.40"]),
    ("standard", &["libmpi_abi.so.1", "libmpi_abi.so.0"]),
];

/// All that are found; each library once.
pub fn find() -> Vec<Installed> {
    let mut found: Vec<Installed> = Vec::new();
    let of_system = ["mpicc.mpich", "mpicc.openmpi", "mpicc"].into_iter().flat_map(of_compiler);
    for mpi in of_system.chain(of_variable()) {
        let real = mpi.library.canonicalize().ok();
        if !found.iter().any(|other| other.library.canonicalize().ok() == real) {
            found.push(mpi);
        }
    }
    found
}

/// What a compiler wrapper in PATH links.
fn of_compiler(wrapper: &str) -> Vec<Installed> {
    let Ok(shown) = Command::new(wrapper).arg("-show").output() else { return Vec::new() };
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let folders: Vec<PathBuf> =
        shown.split_whitespace().filter_map(|word| word.strip_prefix("-L")).map(PathBuf::from).collect();
    let Some(mpiexec) = in_path(&wrapper.replace("mpicc", "mpiexec")) else { return Vec::new() };
    // Open MPI's folder for the linker may lack the versioned name, which then is in the folder of all libraries.
    let folders = folders.iter().flat_map(|folder| folder.ancestors().take(3));
    let mut found = folders.flat_map(|folder| libraries_in(folder, &shown));
    found
        .next()
        .map(|(abi, library)| Installed { name: wrapper.replace('.', "_"), abi, library, mpiexec, prefix: None })
        .into_iter()
        .collect()
}

/// The libraries of a folder that a command line names.
fn libraries_in<'a>(
    folder: &'a Path,
    command_line: &'a str,
) -> impl Iterator<Item = (&'static str, PathBuf)> + use<'a> {
    LIBRARIES.into_iter().flat_map(move |(abi, names)| {
        let linked = names.iter().filter(|name| {
            let stem = name.trim_start_matches("lib").split(".so").next().unwrap_or_default();
            command_line.split_whitespace().any(|word| word == format!("-l{stem}"))
        });
        linked
            .map(|name| folder.join(name))
            .filter(|path| path.exists())
            .map(move |path| (abi, path))
            .collect::<Vec<_>>()
    })
}

/// What the prefixes hold. What is named and not there is a mistake of the caller's.
fn of_variable() -> Vec<Installed> {
    let listed = std::env::var_os(VARIABLE).unwrap_or_default();
    let prefixes: Vec<PathBuf> = std::env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()).collect();
    prefixes.iter().flat_map(|prefix| of_prefix(prefix)).collect()
}

fn of_prefix(prefix: &Path) -> Vec<Installed> {
    let mpiexec = prefix.join("bin/mpiexec");
    assert!(mpiexec.exists(), "{VARIABLE} names {}, which has no bin/mpiexec", prefix.display());
    let name = prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let libraries = LIBRARIES.iter().filter_map(|(abi, names)| {
        let library = names.iter().map(|name| prefix.join("lib").join(name)).find(|path| path.exists())?;
        Some((*abi, library))
    });
    libraries
        .map(|(abi, library)| Installed {
            name: name.clone(),
            abi,
            library,
            mpiexec: mpiexec.clone(),
            prefix: Some(prefix.to_owned()),
        })
        .collect()
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}
