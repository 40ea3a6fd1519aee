//! Which library of MPI a process is likely to want that has none. What has started it the runtime knows.

use std::ffi::CStr;

/// Whether the environment is that of a process which `mpiexec`, `srun --mpi=...` or the like started. Then
/// initialising MPI gives the job's ranks.
pub fn started_by_process_manager() -> bool {
    longarm::bootstrap::started_by_manager_of_mpi()
}

/// What whoever started this process has told it before anything is initialised: its rank, and of how many.
pub fn told_by_manager() -> Option<(u32, u32)> {
    longarm::bootstrap::told_rank_and_size()
}

/// Libraries that may be the MPI of the process manager which started this process, the likeliest first.
pub(crate) fn libraries() -> &'static [&'static CStr] {
    if longarm::bootstrap::started_by_open_mpi() {
        &[c"libmpi.so.40", c"libmpi.so"]
    } else {
        &[c"libmpi.so.12", c"libmpich.so.12", c"libmpi_abi.so.1", c"libmpi.so.40", c"libmpi.so"]
    }
}
