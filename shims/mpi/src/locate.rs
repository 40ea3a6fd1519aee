//! Where the symbols of an MPI are in this process, and which ABI they have.
//!
//! First the scope that a program's own symbols bind in: a tool that wraps MPI stands in front there, and is meant to.
//! Then each loaded library whose name begins with `libmpi`, because a library that was loaded for a plug-in alone is
//! not in that scope. Nothing is loaded that is not loaded already, unless [`Scope::load`] is asked to.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;

use crate::abi::Abi;
use crate::calls::{SUCCESS, read_text};
use crate::scope::Scope;

/// All scopes that may have an MPI, in the order of preference.
pub(crate) fn scopes() -> Vec<Scope> {
    if let Some(address) = Scope::PROGRAM.symbol(c"MPI_Init") {
        // Holds the library: a plug-in that brought it may be unloaded. The executable itself needs no holding.
        let _ = file_of(address).and_then(|path| Scope::loaded(&path));
    }
    let apart = loaded_files().into_iter().filter(|path| is_mpi_library(path)).filter_map(|path| Scope::loaded(&path));
    std::iter::once(Scope::PROGRAM).chain(apart).collect()
}

/// What libraries with MPICH's ABI say of themselves: one of these words stands in it.
const MPICH_FAMILY: [&str; 4] = ["MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation"];

/// Which ABI the MPI in this scope has. `None` if there is no MPI, or none whose handles and constants are known: calls
/// with those of another one do anything.
pub(crate) fn abi(scope: &Scope) -> Option<Abi> {
    let init = scope.symbol(c"MPI_Init")?;
    scope.symbol(c"MPI_Initialized")?;
    if let Some(version) = scope.symbol(c"MPI_Abi_get_version") {
        if standard_version(version) > 0 {
            return Some(Abi::Standard);
        }
    } else if file_of(init).is_some_and(|path| file_name(&path).starts_with(b"libmpi_abi.")) {
        // From before the standard, when the constants were others.
        return None;
    }
    // Open MPI's handles are the addresses of such objects, so it cannot be without them.
    if scope.symbol(c"ompi_mpi_comm_world").is_some() {
        return Some(Abi::OpenMpi);
    }
    // Those from before MPI 3 say nothing of themselves; then MPICH was the only other one.
    let said = scope.symbol(c"MPI_Get_library_version").map(library_version);
    said.is_none_or(|said| MPICH_FAMILY.iter().any(|name| said.contains(name))).then_some(Abi::Mpich)
}

/// What an MPI says of itself.
fn library_version(function: NonNull<c_void>) -> String {
    // SAFETY: the address is that of MPI_Get_library_version, whose prototype has no handles and is the same in every ABI.
    let function = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int>(function.as_ptr())
    };
    read_text(|text, bytes| {
        // SAFETY: `read_text` gives room for the longest text, and MPI may be asked this at any time.
        unsafe { function(text, bytes) }
    })
}

/// The major version of the standard's ABI, -1 of a library of that MPI which has another ABI.
fn standard_version(function: NonNull<c_void>) -> c_int {
    // SAFETY: the address is that of MPI_Abi_get_version, whose prototype has no handles and is the same in every ABI.
    let function = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(function.as_ptr())
    };
    let (mut major, mut minor): (c_int, c_int) = (-1, -1);
    // SAFETY: both numbers are writable, and this function may be called before MPI is initialised.
    let code = unsafe { function(&raw mut major, &raw mut minor) };
    if code == SUCCESS { major } else { -1 }
}

/// The file of the library that has this address.
fn file_of(address: NonNull<c_void>) -> Option<CString> {
    // SAFETY: Dl_info is pointers alone, for which zero is a value.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is writable; any address may be asked for.
    let known = unsafe { libc::dladdr(address.as_ptr(), &raw mut found) };
    if known == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader keeps this C string as long as the library is loaded, and it is copied at once.
    Some(unsafe { CStr::from_ptr(found.dli_fname) }.to_owned())
}

/// The files of all loaded libraries, in the order in which they were loaded.
fn loaded_files() -> Vec<CString> {
    /// # Safety
    /// `information` is what `dl_iterate_phdr` gives, `files` the list that it was given.
    unsafe extern "C" fn take(information: *mut libc::dl_phdr_info, _bytes: usize, files: *mut c_void) -> c_int {
        // SAFETY: the loader gives a description that stays during this call.
        let name = unsafe { (*information).dlpi_name };
        if !name.is_null() {
            // SAFETY: the loader's names are C strings.
            let name = unsafe { CStr::from_ptr(name) };
            // SAFETY: this is the list below, which nobody else touches until `dl_iterate_phdr` returns.
            let files = unsafe { &mut *files.cast::<Vec<CString>>() };
            files.push(name.to_owned());
        }
        0
    }
    let mut files: Vec<CString> = Vec::new();
    // SAFETY: `take` gets the list that it expects, and returns before the list goes.
    unsafe { libc::dl_iterate_phdr(Some(take), (&raw mut files).cast()) };
    files
}

/// Whether a file's name is one that MPI libraries have: libmpi.so.12, libmpi.so.40, libmpich.so.12, libmpi_abi.so.1,
/// libmpi_cray.so.12 and so on.
fn is_mpi_library(path: &CStr) -> bool {
    file_name(path).starts_with(b"libmpi")
}

fn file_name(path: &CStr) -> &[u8] {
    path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_the_process_are_listed_and_their_symbols_found() {
        let files = loaded_files();
        let libc = files.iter().find(|path| file_name(path).starts_with(b"libc.so")).expect("libc is loaded");
        let address = Scope::loaded(libc).and_then(|scope| scope.symbol(c"write")).expect("libc has write");
        assert_eq!(file_of(address).as_deref().map(file_name), Some(file_name(libc)));
    }

    #[test]
    fn a_library_that_is_not_loaded_stays_so() {
        assert!(Scope::loaded(c"libmpi.so.40").is_none());
        assert!(Scope::loaded(c"libmpich.so.12").is_none());
    }

    #[test]
    fn libraries_of_mpi_are_told_by_their_names() {
        for path in [c"/usr/lib/libmpi.so.40", c"libmpich.so.12", c"a/libmpi_abi.so.1", c"libmpi_gnu_123.so.12"] {
            assert!(is_mpi_library(path), "{path:?}");
        }
        for path in [c"", c"/usr/lib/libmp.so", c"/opt/libmpi/libc.so.6", c"/opt/libmpi/"] {
            assert!(!is_mpi_library(path), "{path:?}");
        }
    }
}
