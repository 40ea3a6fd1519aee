//! The functions of `libmunge`, found at run time. Everything unsafe of MUNGE is here; plain values are handed out.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library as SharedLibrary;

/// Where the library is looked for: its name since 2004.
const NAME: &str = "libmunge.so.2";

/// There is no such library on this machine, or it lacks a function that we need.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {NAME} ({reason}); install it (Debian and Ubuntu: libmunge2; Red Hat: munge-libs; SUSE: libmunge2)")]
pub struct NoLibrary {
    reason: String,
}

/// What the library says of an attempt: 0 is success.
pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;
pub(crate) const NO_SOCKET: Status = 6;
pub(crate) const EXPIRED: Status = 15;
pub(crate) const REWOUND: Status = 16;
pub(crate) const REPLAYED: Status = 17;
pub(crate) const UNAUTHORIZED: Status = 18;

/// The option for the only user that may decode.
const OPTION_USER: c_int = 9;

/// A context of the library, of which we only have pointers.
type Context = *mut c_void;

macro_rules! functions {
    ($($name:ident = $symbol:literal: $kind:ty;)*) => {
        /// Pointers to the functions of the library, as its header declares them.
        pub(crate) struct Library {
            $($name: $kind,)*
            /// Keeps them valid.
            _shared: SharedLibrary,
        }

        impl Library {
            fn of(shared: SharedLibrary) -> Result<Library, libloading::Error> {
                $(
                    // SAFETY: the symbol has this type in the library's header, which keeps its interface for as long as its name
                    // has this number.
                    let found = unsafe { shared.get::<$kind>($symbol) };
                    let $name = *found?;
                )*
                Ok(Library { $($name,)* _shared: shared })
            }
        }
    };
}

functions! {
    encode = b"munge_encode\0": unsafe extern "C" fn(*mut *mut c_char, Context, *const c_void, c_int) -> Status;
    decode = b"munge_decode\0": unsafe extern "C" fn(*const c_char, Context, *mut *mut c_void, *mut c_int, *mut u32, *mut u32) -> Status;
    error_string = b"munge_strerror\0": unsafe extern "C" fn(Status) -> *const c_char;
    context_create = b"munge_ctx_create\0": unsafe extern "C" fn() -> Context;
    context_destroy = b"munge_ctx_destroy\0": unsafe extern "C" fn(Context) -> ();
    context_set = b"munge_ctx_set\0": unsafe extern "C" fn(Context, c_int, ...) -> Status;
}

/// What a credential holds.
pub(crate) struct Decoded {
    pub(crate) status: Status,
    pub(crate) payload: Vec<u8>,
    pub(crate) user: u32,
    pub(crate) group: u32,
}

impl Library {
    /// The library of this process, loaded on the first call.
    ///
    /// # Errors
    /// When it is not installed.
    pub(crate) fn get() -> Result<&'static Library, NoLibrary> {
        static LIBRARY: OnceLock<Result<Library, NoLibrary>> = OnceLock::new();
        LIBRARY.get_or_init(Library::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Library, NoLibrary> {
        let missing = |error: libloading::Error| NoLibrary { reason: error.to_string() };
        // SAFETY: the library runs nothing of its own when it is loaded; it is the system's.
        let shared = unsafe { SharedLibrary::new(NAME) }.map_err(missing)?;
        Library::of(shared).map_err(missing)
    }

    /// What the library calls a status.
    pub(crate) fn error_string(&self, status: Status) -> String {
        // SAFETY: takes any number.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: a text of the library's own that ends with a zero and is never freed.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// A credential of this process with a payload, which only one user may decode.
    pub(crate) fn encode_for(&self, payload: &[u8], user: u32) -> Result<String, Status> {
        let bytes = c_int::try_from(payload.len()).expect("payloads are bounded before");
        let context = Restricted::new(self, user)?;
        let mut credential: *mut c_char = ptr::null_mut();
        // SAFETY: the context is one of the library's; the payload is `bytes` long and lives until the library returns; it writes a
        // pointer to `credential`.
        let status = unsafe { (self.encode)(&mut credential, context.context, payload.as_ptr().cast(), bytes) };
        if status != SUCCESS || credential.is_null() {
            return Err(status);
        }
        // SAFETY: on success it is a text that ends with a zero, and belongs to us.
        let text = unsafe { CStr::from_ptr(credential) }.to_string_lossy().into_owned();
        // SAFETY: it is from the C library's malloc, as the library's manual says, and nobody uses it any more.
        unsafe { libc::free(credential.cast()) };
        Ok(text)
    }

    /// What a credential holds, and whether it is good: some of what is bad is decoded all the same.
    pub(crate) fn decode_any(&self, credential: &CString) -> Decoded {
        let (mut payload, mut bytes): (*mut c_void, c_int) = (ptr::null_mut(), 0);
        let (mut user, mut group) = (u32::MAX, u32::MAX);
        // SAFETY: the credential ends with a zero and lives until the library returns; without a context it uses its own; it writes to
        // four places of the types that it wants.
        let status = unsafe {
            (self.decode)(credential.as_ptr(), ptr::null_mut(), &mut payload, &mut bytes, &mut user, &mut group)
        };
        let mut copy = Vec::new();
        if !payload.is_null() {
            let bytes = usize::try_from(bytes).unwrap_or(0);
            // SAFETY: where the library has set the pointer it is to so many bytes, and they belong to us.
            copy.extend_from_slice(unsafe { std::slice::from_raw_parts(payload.cast::<u8>(), bytes) });
            // SAFETY: they are from the C library's malloc, as the library's manual says, and nobody uses them any more.
            unsafe { libc::free(payload) };
        }
        Decoded { status, payload: copy, user, group }
    }
}

/// A context for credentials of one user.
struct Restricted<'a> {
    library: &'a Library,
    context: Context,
}

impl Restricted<'_> {
    fn new(library: &Library, user: u32) -> Result<Restricted<'_>, Status> {
        /// What the library calls it when there is no memory.
        const NO_MEMORY: Status = 5;
        // SAFETY: takes nothing.
        let context = unsafe { (library.context_create)() };
        if context.is_null() {
            return Err(NO_MEMORY);
        }
        let restricted = Restricted { library, context };
        // SAFETY: the context is not null, and lives until it is dropped; behind this option stands the number of a user.
        let status = unsafe { (library.context_set)(restricted.context, OPTION_USER, user) };
        if status == SUCCESS { Ok(restricted) } else { Err(status) }
    }
}

impl Drop for Restricted<'_> {
    fn drop(&mut self) {
        // SAFETY: the context is one of the library's, and nobody else has it.
        unsafe { (self.library.context_destroy)(self.context) };
    }
}
