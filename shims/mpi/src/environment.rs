//! Whether a process manager of MPI started this process, as its environment says.

use std::ffi::CStr;

/// What the process managers set: all of a line, and it is one of them.
const MARKS: [&[&str]; 5] = [
    &["PMI_RANK"], // Hydra, Intel MPI, Slurm with PMI-1 or PMI-2, Cray.
    &["PMI_FD"],
    &["PMI_PORT"],                    // Hydra with -pmi-port.
    &["PMIX_RANK", "PMIX_NAMESPACE"], // PRRTE, Slurm with PMIx.
    &["OMPI_COMM_WORLD_RANK"],        // Open MPI's mpirun.
];

/// Whether the environment is that of a process which `mpiexec`, `srun --mpi=...` or the like started. Then
/// initialising MPI gives the job's ranks.
pub fn started_by_process_manager() -> bool {
    is_marked(|name| std::env::var_os(name).is_some())
}

/// What MPI's process managers tell a process before MPI is initialised: its rank, and of how many.
pub fn told_by_manager() -> Option<(u32, u32)> {
    let told = [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("PMI_ID", "PMI_SIZE"),
        ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
    ];
    let variable = |name: &str| std::env::var(name).ok()?.parse().ok();
    told.iter().find_map(|(rank, size)| variable(rank).zip(variable(size)))
}

/// Libraries that may be the MPI of the process manager which started this process, the likeliest first.
pub(crate) fn libraries() -> &'static [&'static CStr] {
    match std::env::var_os("OMPI_COMM_WORLD_RANK") {
        Some(_) => &[c"libmpi.so.40", c"libmpi.so"],
        None => &[c"libmpi.so.12", c"libmpich.so.12", c"libmpi_abi.so.1", c"libmpi.so.40", c"libmpi.so"],
    }
}

fn is_marked(is_set: impl Fn(&str) -> bool) -> bool {
    MARKS.iter().any(|marks| marks.iter().all(|name| is_set(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: &[&str]) -> bool {
        is_marked(|name| set.contains(&name))
    }

    #[test]
    fn an_empty_environment_is_nobodys() {
        assert!(!with(&[]));
        assert!(!with(&["PATH", "SLURM_PROCID", "PMI_SIZE"]));
    }

    #[test]
    fn each_process_manager_is_known_by_what_it_sets() {
        assert!(with(&["PMI_FD", "PMI_RANK", "PMI_SIZE"]));
        assert!(with(&["PMI_PORT", "PMI_ID"]));
        assert!(with(&["OMPI_COMM_WORLD_RANK"]));
    }

    #[test]
    fn pmix_needs_the_rank_and_the_namespace() {
        assert!(with(&["PMIX_RANK", "PMIX_NAMESPACE"]));
        assert!(!with(&["PMIX_RANK"]));
        assert!(!with(&["PMIX_NAMESPACE"]));
    }
}
