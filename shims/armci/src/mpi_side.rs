//! What a job keeps of MPI.

use longarm_mpi::{Communicator, Mpi};

/// The MPI of this process and our own communicator of all ranks.
pub(crate) struct MpiSide {
    pub(crate) mpi: &'static Mpi,
    /// A duplicate, so that no message of ours meets one of the program's.
    pub(crate) everybody: Communicator,
    /// Another one, for the program itself: what it gets as the communicator of the group of all.
    pub(crate) for_program: Communicator,
}
