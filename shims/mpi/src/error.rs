//! What can go wrong with a call of MPI.

/// Why a call of MPI did not work.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// MPI refused.
    #[error("{call} failed with code {code}: {text}")]
    Code {
        /// The MPI function.
        call: &'static str,
        /// What it returned.
        code: i32,
        /// What MPI says the code means.
        text: String,
    },
    /// The MPI of this process is older than the function.
    #[error("the MPI of this process has no {symbol}")]
    Missing {
        /// The MPI function.
        symbol: &'static str,
    },
    /// All messages of one allgather together are longer than an `int` can say. No rank has sent any.
    #[error("{bytes} bytes are too many for one exchange over MPI, which counts in int")]
    TooLong {
        /// The sum of all ranks' lengths.
        bytes: u64,
    },
    /// A rank that the communicator does not have. Nothing was called.
    #[error("rank {rank} is not in a communicator of {size}")]
    NoSuchRank {
        /// The rank as given.
        rank: u32,
        /// How many ranks there are.
        size: u32,
    },
    /// MPI is not initialised yet, or finalized already. Nothing was called.
    #[error("{call} before MPI is initialised or after it is finalized")]
    NotRunning {
        /// The MPI function.
        call: &'static str,
    },
}
