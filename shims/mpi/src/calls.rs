//! The C functions of MPI as one table a handle width, and the constants that the ABIs disagree on.
//!
//! [`Calls`] is the private layer between C's two shapes of handle and the operations, which are written once for
//! both: `Calls<c_int>` holds functions whose handles are `int`, `Calls<usize>` those whose handles are pointer-sized.
//! Nothing passes an `int` where the callee reads a pointer or the other way round.

use std::ffi::{c_char, c_int, c_void};

use crate::error::MpiError;
use crate::scope::Scope;

/// What a handle is in C: `int`, or a word of a pointer's size.
pub(crate) trait Handle: Copy + 'static {
    /// The handle of a word; what the width does not hold is cut off.
    fn from_word(word: usize) -> Self;
    /// The handle in a word, extended with zeros.
    fn to_word(self) -> usize;
    /// A handle to be written over.
    const BLANK: Self;
}

impl Handle for c_int {
    fn from_word(word: usize) -> c_int {
        word as u32 as c_int
    }

    fn to_word(self) -> usize {
        self as u32 as usize
    }

    const BLANK: c_int = 0;
}

impl Handle for usize {
    fn from_word(word: usize) -> usize {
        word
    }

    fn to_word(self) -> usize {
        self
    }

    const BLANK: usize = 0;
}

/// What the headers of an MPI define.
pub(crate) struct Constants<H> {
    pub(crate) world: H,
    pub(crate) self_communicator: H,
    pub(crate) null: H,
    pub(crate) byte: H,
    pub(crate) errors_return: H,
    pub(crate) thread_multiple: c_int,
}

/// No rank, in all three ABIs.
pub(crate) const UNDEFINED: c_int = -32766;
/// No error, in all three ABIs.
pub(crate) const SUCCESS: c_int = 0;
/// More than any MPI's `MPI_MAX_ERROR_STRING` (256 and 512) and `MPI_MAX_LIBRARY_VERSION_STRING` (256 and 8192).
pub(crate) const TEXT_BYTES_MAX: usize = 8192 + 1;

/// Of MPICH's `mpi.h`, the same since its first release.
pub(crate) const MPICH: Constants<c_int> = Constants {
    world: 0x4400_0000,
    self_communicator: 0x4400_0001,
    null: 0x0400_0000,
    byte: 0x4c00_010d,
    errors_return: 0x5400_0001,
    thread_multiple: 3,
};

/// Of the MPI standard, version 5.0, appendix A.
pub(crate) const STANDARD: Constants<usize> = Constants {
    world: 0x101,
    self_communicator: 0x102,
    null: 0x100,
    byte: 0x247,
    errors_return: 0x143,
    thread_multiple: 4096,
};

/// Of Open MPI: the addresses of objects that it exports. `None` if one of them is not there.
pub(crate) fn open_mpi(scope: &Scope) -> Option<Constants<usize>> {
    let object = |name| scope.symbol(name).map(|address| address.as_ptr().addr());
    Some(Constants {
        world: object(c"ompi_mpi_comm_world")?,
        self_communicator: object(c"ompi_mpi_comm_self")?,
        null: object(c"ompi_mpi_comm_null")?,
        byte: object(c"ompi_mpi_byte")?,
        errors_return: object(c"ompi_mpi_errors_return")?,
        thread_multiple: 3,
    })
}

/// Declares the table: a field for each function, and a method that calls it and turns its code into a result.
macro_rules! declare_calls {
    ($($symbol:ident as $name:ident($($argument:ident: $kind:ty),*);)*) => {
        struct Functions<H> {
            $($name: Option<unsafe extern "C" fn($($kind),*) -> c_int>,)*
            handle: std::marker::PhantomData<H>,
        }

        impl<H: Handle> Functions<H> {
            /// # Safety
            /// What `scope` has under the names of MPI functions are these, with handles of this width.
            unsafe fn look_up(scope: &Scope) -> Functions<H> {
                Functions {
                    $($name: scope.symbol(symbol_name(concat!(stringify!($symbol), "\0"))).map(|address| {
                        // SAFETY: by this function's own contract the address is that of the C function of this name,
                        // whose prototype the MPI standard fixes but for the width of handles.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> c_int>(
                            address.as_ptr(),
                        ) }
                    }),)*
                    handle: std::marker::PhantomData,
                }
            }
        }

        impl<H: Handle> Calls<H> {
            $(
                #[doc = concat!("Calls `", stringify!($symbol), "`.")]
                ///
                /// # Safety
                /// MPI may be asked this now, handles are alive, and pointers are good for what the MPI standard says.
                #[allow(clippy::too_many_arguments, reason = "the prototype is that of C")]
                pub(crate) unsafe fn $name(&self, $($argument: $kind),*) -> Result<(), MpiError> {
                    let symbol = stringify!($symbol);
                    let function = self.functions.$name.ok_or(MpiError::Missing { symbol })?;
                    // SAFETY: this function's own contract; `look_up` made sure that it is this function.
                    let code = unsafe { function($($argument),*) };
                    if code == SUCCESS { Ok(()) } else { Err(self.error(symbol, code)) }
                }
            )*
        }
    };
}

/// The C string of a literal with its zero byte.
fn symbol_name(literal: &'static str) -> &'static std::ffi::CStr {
    std::ffi::CStr::from_bytes_with_nul(literal.as_bytes()).expect("the table's names end in the one zero byte")
}

declare_calls! {
    MPI_Initialized as initialized(flag: *mut c_int);
    MPI_Finalized as finalized(flag: *mut c_int);
    MPI_Init_thread as init_thread(count: *mut c_int, list: *mut c_void, required: c_int, provided: *mut c_int);
    MPI_Finalize as finalize();
    MPI_Abort as abort(communicator: H, status: c_int);
    MPI_Get_library_version as get_library_version(text: *mut c_char, bytes: *mut c_int);
    MPI_Comm_rank as comm_rank(communicator: H, rank: *mut c_int);
    MPI_Comm_size as comm_size(communicator: H, size: *mut c_int);
    MPI_Comm_dup as comm_dup(communicator: H, new: *mut H);
    MPI_Comm_free as comm_free(communicator: *mut H);
    MPI_Comm_set_errhandler as comm_set_errhandler(communicator: H, handler: H);
    MPI_Comm_get_errhandler as comm_get_errhandler(communicator: H, handler: *mut H);
    MPI_Errhandler_free as errhandler_free(handler: *mut H);
    MPI_Comm_group as comm_group(communicator: H, group: *mut H);
    MPI_Group_incl as group_incl(group: H, count: c_int, ranks: *const c_int, new: *mut H);
    MPI_Group_free as group_free(group: *mut H);
    MPI_Group_translate_ranks as group_translate_ranks(
        from: H, count: c_int, ranks: *const c_int, to: H, translated: *mut c_int
    );
    MPI_Comm_create_group as comm_create_group(communicator: H, group: H, tag: c_int, new: *mut H);
    MPI_Barrier as barrier(communicator: H);
    MPI_Bcast as bcast(buffer: *mut c_void, count: c_int, kind: H, root: c_int, communicator: H);
    MPI_Allgather as allgather(
        mine: *const c_void, mine_count: c_int, mine_kind: H,
        all: *mut c_void, all_count: c_int, all_kind: H, communicator: H
    );
    MPI_Allgatherv as allgatherv(
        mine: *const c_void, mine_count: c_int, mine_kind: H,
        all: *mut c_void, counts: *const c_int, places: *const c_int, all_kind: H, communicator: H
    );
}

/// The functions and constants of one MPI.
pub(crate) struct Calls<H> {
    functions: Functions<H>,
    /// Apart from the others, for it must not be asked about its own errors.
    error_string: Option<unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int>,
    pub(crate) constants: Constants<H>,
}

impl<H: Handle> Calls<H> {
    /// What `scope` has; a function that it lacks is an error when it is called.
    ///
    /// # Safety
    /// The MPI in `scope` has handles of this width, and these constants.
    pub(crate) unsafe fn look_up(scope: &Scope, constants: Constants<H>) -> Calls<H> {
        // SAFETY: this function's own contract.
        let functions = unsafe { Functions::look_up(scope) };
        let error_string = scope.symbol(c"MPI_Error_string").map(|address| {
            // SAFETY: the address is that of MPI_Error_string, whose prototype has no handles.
            unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int>(
                    address.as_ptr(),
                )
            }
        });
        Calls { functions, error_string, constants }
    }

    /// A code with MPI's own words for it.
    fn error(&self, call: &'static str, code: c_int) -> MpiError {
        let text = self.error_string.map(|function| {
            read_text(|text, bytes| {
                // SAFETY: `read_text` gives room for the longest text, and MPI has just returned this code.
                unsafe { function(code, text, bytes) }
            })
        });
        MpiError::Code { call, code, text: text.unwrap_or_default() }
    }
}

/// The text that a C function writes into a buffer.
pub(crate) fn read_text(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> String {
    let mut text = vec![0_u8; TEXT_BYTES_MAX];
    let mut bytes: c_int = 0;
    if write(text.as_mut_ptr().cast(), &raw mut bytes) != SUCCESS {
        return String::new();
    }
    let bytes = usize::try_from(bytes).unwrap_or(0).min(text.len());
    let bytes = text[..bytes].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).trim().to_owned()
}
