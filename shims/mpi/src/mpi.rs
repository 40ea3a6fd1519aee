//! An MPI, found once: its calls for whichever width its handles have.

use std::ffi::c_int;
use std::sync::OnceLock;

use crate::abi::Abi;
use crate::calls::{self, Calls, Handle};
use crate::environment::{libraries, started_by_process_manager};
use crate::error::MpiError;
use crate::locate;
use crate::scope::Scope;

/// The MPI of this process.
pub struct Mpi {
    abi: Abi,
    table: Table,
}

/// The calls, by how wide the ABI's handles are.
enum Table {
    Int(Calls<c_int>),
    Pointer(Calls<usize>),
}

/// An MPI communicator, as its handle is in C. An `int` handle is extended with zeros.
///
/// Belongs to the MPI that gave it, and is worth as much as a raw handle: MPI itself says what a freed one does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Communicator(usize);

impl Communicator {
    /// The value of the C handle. A caller whose `MPI_Comm` is an `int` takes the low bits.
    pub fn to_c(self) -> usize {
        self.0
    }
}

/// Runs one generic operation on whichever table this MPI has.
macro_rules! on_table {
    ($mpi:expr, $calls:ident => $work:expr) => {
        match &$mpi.table {
            Table::Int($calls) => $work,
            Table::Pointer($calls) => $work,
        }
    };
}

static FOUND: OnceLock<Mpi> = OnceLock::new();

impl Mpi {
    /// The MPI whose symbols are in this process, initialised or not. `None` if no library has them.
    ///
    /// Looks among what a symbol of the program would bind to first, then among libraries that were loaded apart, as
    /// Python loads its modules. Of several, one that is initialised goes first. What was found once stays.
    pub fn find() -> Option<&'static Mpi> {
        if let Some(mpi) = FOUND.get() {
            return Some(mpi);
        }
        let found = Mpi::locate()?;
        Some(FOUND.get_or_init(|| found))
    }

    /// As [`Mpi::find`]. If there is none but a process manager of MPI has started this process, its library is loaded:
    /// a program that calls no function of MPI is often not linked with the library that it was compiled for.
    pub fn find_or_load() -> Option<&'static Mpi> {
        let found = Mpi::find();
        if found.is_none() && started_by_process_manager() && Scope::load(libraries()) {
            return Mpi::find();
        }
        found
    }

    fn locate() -> Option<Mpi> {
        let mut candidates: Vec<Mpi> = locate::scopes().iter().filter_map(Mpi::in_scope).collect();
        if candidates.is_empty() {
            return None;
        }
        let at = candidates.iter().position(Mpi::is_initialized).unwrap_or(0);
        Some(candidates.swap_remove(at))
    }

    fn in_scope(scope: &Scope) -> Option<Mpi> {
        let abi = locate::abi(scope)?;
        let table = match abi {
            // SAFETY: handles of MPICH's ABI are `int`, and these are its constants.
            Abi::Mpich => Table::Int(unsafe { Calls::look_up(scope, calls::MPICH) }),
            Abi::OpenMpi => {
                let constants = calls::open_mpi(scope)?;
                // SAFETY: Open MPI's handles are pointers, and the constants are addresses of its objects.
                Table::Pointer(unsafe { Calls::look_up(scope, constants) })
            }
            // SAFETY: handles of the standard's ABI are incomplete pointers, and these are its constants.
            Abi::Standard => Table::Pointer(unsafe { Calls::look_up(scope, calls::STANDARD) }),
        };
        Some(Mpi { abi, table })
    }

    /// What handles and constants of this MPI look like.
    pub fn abi(&self) -> Abi {
        self.abi
    }

    /// The first line of what the library says of itself; empty if it is older than MPI 3.
    pub fn library(&self) -> String {
        on_table!(self, calls => calls.library())
    }

    /// Whether MPI was initialised, be it finalized since or not.
    pub fn is_initialized(&self) -> bool {
        on_table!(self, calls => calls.is_initialized())
    }

    /// Whether MPI is finalized: it cannot come again.
    pub fn is_finalized(&self) -> bool {
        on_table!(self, calls => calls.is_finalized())
    }

    /// Initialises MPI and asks for `MPI_THREAD_MULTIPLE`. An MPI that gives less is taken as it is.
    ///
    /// # Errors
    /// What MPI returns; most implementations end the process instead.
    pub fn init_thread_multiple(&self) -> Result<(), MpiError> {
        on_table!(self, calls => calls.init_thread_multiple())
    }

    /// Finalizes MPI.
    ///
    /// # Errors
    /// MPI does not run, or what it returns.
    pub fn finalize(&self) -> Result<(), MpiError> {
        self.check_running("MPI_Finalize")?;
        on_table!(self, calls => calls.end())
    }

    /// `MPI_COMM_WORLD`.
    pub fn world(&self) -> Communicator {
        on_table!(self, calls => wrap(calls.constants.world))
    }

    /// `MPI_COMM_SELF`.
    pub fn self_communicator(&self) -> Communicator {
        on_table!(self, calls => wrap(calls.constants.self_communicator))
    }

    /// `MPI_COMM_NULL`.
    pub fn null(&self) -> Communicator {
        on_table!(self, calls => wrap(calls.constants.null))
    }

    /// A communicator from its C handle. The bits that the handle does not have are cut off: they are undefined where C
    /// passed an `int` in a register.
    ///
    /// The caller vouches that it is a communicator of this MPI, and alive whenever it is used.
    pub fn from_c(&self, handle: usize) -> Communicator {
        match &self.table {
            Table::Int(_) => wrap(c_int::from_word(handle)),
            Table::Pointer(_) => wrap(usize::from_word(handle)),
        }
    }

    /// This process's rank in a communicator.
    ///
    /// # Errors
    /// MPI does not run, or what it returns.
    pub fn rank(&self, communicator: Communicator) -> Result<u32, MpiError> {
        self.check_running("MPI_Comm_rank")?;
        on_table!(self, calls => calls.rank(handle(communicator)))
    }

    /// How many ranks a communicator has.
    ///
    /// # Errors
    /// MPI does not run, or what it returns.
    pub fn size(&self, communicator: Communicator) -> Result<u32, MpiError> {
        self.check_running("MPI_Comm_size")?;
        on_table!(self, calls => calls.size(handle(communicator)))
    }

    /// A duplicate of a communicator, whose errors are returned. Collective over its ranks.
    ///
    /// # Errors
    /// MPI does not run, or what it returns.
    pub fn duplicate(&self, communicator: Communicator) -> Result<Communicator, MpiError> {
        self.check_running("MPI_Comm_dup")?;
        on_table!(self, calls => calls.duplicate(handle(communicator)).map(wrap))
    }

    /// A duplicate of a communicator to give to the program: with the error handler of the original. Collective over its
    /// ranks.
    ///
    /// # Errors
    /// MPI does not run, or what it returns.
    pub fn duplicate_for_program(&self, communicator: Communicator) -> Result<Communicator, MpiError> {
        self.check_running("MPI_Comm_dup")?;
        on_table!(self, calls => calls.plain_duplicate(handle(communicator)).map(wrap))
    }

    /// Frees a communicator that was made here. Collective over its ranks. [`Mpi::null`] is nothing to free.
    ///
    /// # Errors
    /// MPI does not run, or what it returns.
    pub fn free(&self, communicator: Communicator) -> Result<(), MpiError> {
        self.check_running("MPI_Comm_free")?;
        on_table!(self, calls => calls.free(handle(communicator)))
    }

    /// Every rank's bytes, in the order of ranks; the lengths may differ. Collective over the communicator's ranks.
    ///
    /// # Errors
    /// MPI does not run, what it returns, or all together are longer than 2 GiB.
    pub fn allgather(&self, communicator: Communicator, mine: &[u8]) -> Result<Vec<Vec<u8>>, MpiError> {
        self.check_running("MPI_Allgatherv")?;
        on_table!(self, calls => calls.gather_all(handle(communicator), mine))
    }

    /// The root's bytes replace everybody's. Collective over the communicator's ranks.
    ///
    /// # Errors
    /// MPI does not run, what it returns, or the root is no rank.
    pub fn broadcast(&self, communicator: Communicator, root: u32, bytes: &mut Vec<u8>) -> Result<(), MpiError> {
        self.check_running("MPI_Bcast")?;
        on_table!(self, calls => calls.broadcast(handle(communicator), root, bytes))
    }

    /// Returns when all ranks of the communicator have called it.
    ///
    /// # Errors
    /// MPI does not run, or what it returns.
    pub fn barrier(&self, communicator: Communicator) -> Result<(), MpiError> {
        self.check_running("MPI_Barrier")?;
        on_table!(self, calls => calls.wait_for_all(handle(communicator)))
    }

    /// A communicator of some ranks of `parent`, numbered in the order given. Collective over these ranks alone: the
    /// others need not call, and get [`Mpi::null`] if they do. Calls of different groups at a time need different tags
    /// where groups overlap.
    ///
    /// The communicator has the error handler of `MPI_COMM_WORLD`, for the program may work on it.
    ///
    /// # Errors
    /// MPI does not run, what it returns, or a member is no rank of `parent`. An MPI before version 3 cannot do this.
    pub fn create_group(&self, parent: Communicator, members: &[u32], tag: i32) -> Result<Communicator, MpiError> {
        self.check_running("MPI_Comm_create_group")?;
        on_table!(self, calls => calls.create_group(handle(parent), members, tag).map(wrap))
    }

    /// What ranks of one communicator are in another; `None` for those that are not in it.
    ///
    /// # Errors
    /// MPI does not run, what it returns, or a number is no rank of `from`.
    pub fn translate(&self, from: Communicator, ranks: &[u32], to: Communicator) -> Result<Vec<Option<u32>>, MpiError> {
        self.check_running("MPI_Group_translate_ranks")?;
        on_table!(self, calls => calls.translate(handle(from), ranks, handle(to)))
    }

    /// Ends the whole job with a status, or this process alone if MPI does not run.
    pub fn abort(&self, communicator: Communicator, status: i32) -> ! {
        if self.is_running() {
            on_table!(self, calls => calls.end_all(handle(communicator), status));
        }
        std::process::exit(status)
    }

    fn is_running(&self) -> bool {
        self.is_initialized() && !self.is_finalized()
    }

    /// Outside of its life MPI ends the process at most calls, so they are refused here.
    fn check_running(&self, call: &'static str) -> Result<(), MpiError> {
        if self.is_running() { Ok(()) } else { Err(MpiError::NotRunning { call }) }
    }
}

fn wrap<H: Handle>(handle: H) -> Communicator {
    Communicator(handle.to_word())
}

fn handle<H: Handle>(communicator: Communicator) -> H {
    H::from_word(communicator.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_mpi_finds_none() {
        assert!(Mpi::find().is_none());
        assert!(Mpi::find().is_none(), "nor the second time");
    }

    #[test]
    fn an_int_handle_loses_the_upper_bits_and_is_extended_with_zeros() {
        let negative: c_int = handle(Communicator(0xdead_beef_8400_0001));
        assert_eq!(negative, 0x8400_0001_u32 as c_int);
        assert_eq!(wrap(negative).to_c(), 0x8400_0001);
    }

    #[test]
    fn a_pointer_handle_keeps_all_its_bits() {
        let address: usize = handle(Communicator(0x7fff_1234_5678_9abc));
        assert_eq!(wrap(address).to_c(), 0x7fff_1234_5678_9abc);
    }
}
