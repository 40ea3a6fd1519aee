//! The ABIs that there are.

/// What the handles and constants of an MPI look like in C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Abi {
    /// Handles are `int`, as in MPICH and what comes from it.
    Mpich,
    /// Handles are pointers to objects of the library.
    OpenMpi,
    /// The ABI that MPI 5 fixes.
    Standard,
}
