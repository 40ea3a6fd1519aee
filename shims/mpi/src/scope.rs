//! Where symbols are looked up in this process.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// A place to look symbols up in.
pub(crate) struct Scope(*mut c_void);

impl Scope {
    /// The scope of the whole program.
    pub(crate) const PROGRAM: Scope = Scope(libc::RTLD_DEFAULT);

    /// The library of this path with all it depends on, if it is loaded already.
    ///
    /// Stays loaded from now on, for the functions found in it stay in use.
    pub(crate) fn loaded(path: &CStr) -> Option<Scope> {
        // SAFETY: the path is a C string, and RTLD_NOLOAD runs no library's initialisers.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY | libc::RTLD_NODELETE) };
        (!handle.is_null()).then_some(Scope(handle))
    }

    /// Loads the first of these libraries that there is, for the whole process and for good.
    pub(crate) fn load(names: &[&CStr]) -> bool {
        let flags = libc::RTLD_NOW | libc::RTLD_GLOBAL | libc::RTLD_NODELETE;
        // SAFETY: the name is a C string, and an MPI's initialisers are made to run in any process that loads it.
        names.iter().any(|name| !unsafe { libc::dlopen(name.as_ptr(), flags) }.is_null())
    }

    /// The address of a symbol.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the name is a C string; the handle is RTLD_DEFAULT or came from dlopen and is never closed.
        NonNull::new(unsafe { libc::dlsym(self.0, name.as_ptr()) })
    }
}
