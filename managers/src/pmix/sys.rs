//! The functions of `libpmix`, found at run time, and the layouts that they take: those of versions 3.2 to 7, which are the same.
//!
//! Everything unsafe of PMIx is here; what is handed out are plain values. Memory that the library hands us is copied and given back
//! before a function returns.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library as SharedLibrary;

/// Where the library is looked for: its name since version 2.
const NAME: &str = "libpmix.so.2";

/// There is no such library on this machine, or it lacks a function that we need.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no {NAME} ({reason}); install it (Debian and Ubuntu: libpmix2; Red Hat and SUSE: pmix), or put the folder in which the process manager has its own into LD_LIBRARY_PATH"
)]
pub struct NoLibrary {
    reason: String,
}

/// What the library says of an attempt: 0 is success.
pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;
pub(crate) const UNREACHABLE: Status = -25;
pub(crate) const NOT_FOUND: Status = -46;
pub(crate) const COMMUNICATION_FAILED: Status = -49;
pub(crate) const LOST_CONNECTION: Status = -61;
/// What an event handler answers when nobody else has to be asked.
const ACTION_COMPLETE: Status = -334;

/// Stands for all ranks of a job where one is asked for.
pub(crate) const RANK_WILDCARD: u32 = u32::MAX - 1;
/// Visible to all ranks.
const SCOPE_GLOBAL: u8 = 3;

const KIND_BOOL: u16 = 1;
const KIND_STRING: u16 = 3;
const KIND_SIZE: u16 = 4;
const KIND_INT: u16 = 6;
const KIND_UINT16: u16 = 13;
const KIND_UINT32: u16 = 14;
const KIND_UINT64: u16 = 15;
const KIND_BYTES: u16 = 27;
const KIND_RANK: u16 = 40;

const NAMESPACE_BYTES: usize = 256;
const KEY_BYTES: usize = 512;

/// A process: the name of its job, and its rank.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Process {
    namespace: [u8; NAMESPACE_BYTES],
    pub(crate) rank: u32,
}

/// A value: its kind, and a union of 24 bytes, of which the first hold a number, or a pointer and with some kinds a length.
#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    kind: u16,
    data: [u64; 3],
}

/// A directive for a call.
#[repr(C)]
struct Info {
    key: [u8; KEY_BYTES],
    flags: u32,
    value: Value,
}

const _: () = assert!(size_of::<Process>() == 260);
const _: () = assert!(size_of::<Value>() == 32 && std::mem::offset_of!(Value, data) == 8);
const _: () = assert!(size_of::<Info>() == 552);
const _: () = assert!(std::mem::offset_of!(Info, flags) == 512 && std::mem::offset_of!(Info, value) == 520);
// A pointer and a length lie in the union as words.
const _: () = assert!(size_of::<*const u8>() == 8 && size_of::<usize>() == 8);

/// A value that the library gave us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Bytes(Vec<u8>),
    Text(String),
    Number(u64),
    /// A kind that nothing here asks for.
    Other(u16),
}

/// How long a key may be, without its end of text.
pub(crate) const KEY_BYTES_MAX: usize = KEY_BYTES - 1;

type EventAnswer = unsafe extern "C" fn(Status, *mut Info, usize, *mut c_void, *mut c_void, *mut c_void);
type EventHandler =
    extern "C" fn(usize, Status, *const Process, *mut Info, usize, *mut Info, usize, Option<EventAnswer>, *mut c_void);
type Registered = extern "C" fn(Status, usize, *mut c_void);

macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// Pointers to the functions of the library, as its header declares them.
        pub(crate) struct Library {
            $($name: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// Since version 4.2.3; before, its work is ours.
            value_free: Option<unsafe extern "C" fn(*mut Value, usize)>,
            /// Keeps them valid.
            _shared: SharedLibrary,
        }

        impl Library {
            fn of(shared: SharedLibrary) -> Result<Library, libloading::Error> {
                $(
                    // SAFETY: the symbol has this type in the headers of versions 3.2 to 7, which share the number in the library's
                    // name, and `Process`, `Value` and `Info` have their layouts, as is asserted above.
                    let found = unsafe { shared.get::<unsafe extern "C" fn($($argument),*) -> $result>($symbol) };
                    let $name = *found?;
                )*
                // SAFETY: as above.
                let value_free = unsafe { shared.get::<unsafe extern "C" fn(*mut Value, usize)>(b"PMIx_Value_free\0") };
                let value_free = value_free.ok().map(|found| *found);
                Ok(Library { $($name,)* value_free, _shared: shared })
            }
        }
    };
}

functions! {
    version = b"PMIx_Get_version\0": fn() -> *const c_char;
    init = b"PMIx_Init\0": fn(*mut Process, *mut Info, usize) -> Status;
    finalize = b"PMIx_Finalize\0": fn(*const Info, usize) -> Status;
    abort = b"PMIx_Abort\0": fn(c_int, *const c_char, *mut Process, usize) -> Status;
    put = b"PMIx_Put\0": fn(u8, *const u8, *mut Value) -> Status;
    commit = b"PMIx_Commit\0": fn() -> Status;
    fence = b"PMIx_Fence\0": fn(*const Process, usize, *const Info, usize) -> Status;
    get = b"PMIx_Get\0": fn(*const Process, *const u8, *const Info, usize, *mut *mut Value) -> Status;
    register = b"PMIx_Register_event_handler\0": fn(*mut Status, usize, *mut Info, usize, EventHandler, Registered, *mut c_void) -> Status;
    error_string = b"PMIx_Error_string\0": fn(Status) -> *const c_char;
}

impl Process {
    /// Another rank of the same job, or [`RANK_WILDCARD`].
    pub(crate) fn with_rank(&self, rank: u32) -> Process {
        Process { rank, ..*self }
    }

    /// The name of the job.
    pub(crate) fn namespace(&self) -> String {
        let name = self.namespace.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

impl Info {
    fn new(key: &str, kind: u16, number: u64) -> Info {
        Info { key: padded(key), flags: 0, value: Value { kind, data: [number, 0, 0] } }
    }
}

/// A key with zeros behind it: older versions take it as an array of this size.
fn padded(key: &str) -> [u8; KEY_BYTES] {
    let mut padded = [0; KEY_BYTES];
    assert!(key.len() <= KEY_BYTES_MAX, "keys are bounded before: {} bytes", key.len());
    padded[..key.len()].copy_from_slice(key.as_bytes());
    padded
}

impl Library {
    /// The library of this process, loaded on the first call and kept: its thread may run until the end.
    ///
    /// # Errors
    /// When it is neither installed nor in one of the folders, or is too old.
    pub(crate) fn get(folders: &[String]) -> Result<&'static Library, NoLibrary> {
        static LIBRARY: OnceLock<Result<Library, NoLibrary>> = OnceLock::new();
        LIBRARY.get_or_init(|| Library::load(folders)).as_ref().map_err(Clone::clone)
    }

    fn load(folders: &[String]) -> Result<Library, NoLibrary> {
        let missing = |error: libloading::Error| NoLibrary { reason: error.to_string() };
        // SAFETY: what the library runs when it is loaded is fit for any program: process managers have every program load it.
        let installed = unsafe { SharedLibrary::new(NAME) };
        let shared = match installed {
            Ok(shared) => shared,
            Err(error) => {
                let of_folder = |folder: &String| {
                    // SAFETY: as above; the folders are those of the process manager that has started this program.
                    unsafe { SharedLibrary::new(format!("{folder}/{NAME}")) }.ok()
                };
                // Why the installed one cannot be had is what people can mend.
                folders.iter().find_map(of_folder).ok_or_else(|| missing(error))?
            }
        };
        Library::of(shared).map_err(missing)
    }

    /// Its version, as it says itself.
    pub(crate) fn version(&self) -> String {
        // SAFETY: takes nothing; may be called before the library is initialised.
        let text = unsafe { (self.version)() };
        // SAFETY: a text of the library's own that is never freed.
        unsafe { text_of(text) }
    }

    /// What the library calls a status.
    pub(crate) fn error_string(&self, status: Status) -> String {
        // SAFETY: takes any number.
        let text = unsafe { (self.error_string)(status) };
        // SAFETY: a text of the library's own that is never freed.
        unsafe { text_of(text) }
    }

    /// Meets the server of this process. Calls are counted: each wants a [`Library::finalize`].
    pub(crate) fn init(&self) -> Result<Process, Status> {
        let mut own = Process { namespace: [0; NAMESPACE_BYTES], rank: 0 };
        // SAFETY: `own` is as large as the library's type and lives until it returns; no directives are named.
        let status = unsafe { (self.init)(&mut own, ptr::null_mut(), 0) };
        done(status)?;
        // Whatever was written there, names end.
        own.namespace[NAMESPACE_BYTES - 1] = 0;
        Ok(own)
    }

    /// Has events of others' deaths go to a handler that does nothing, so that they are not taken for a reason to end this process.
    pub(crate) fn ignore_events(&self) -> Result<(), Status> {
        let (codes, infos, data) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: no codes and no directives are named, so nothing is read after this call; both functions are of the types that are
        // declared, live as long as the program, and use nothing but their arguments.
        let status = unsafe { (self.register)(codes, 0, infos, 0, answer_event, on_registered, data) };
        // Registering goes on in the library's thread. Some versions say so with a number above zero, which is the handler's.
        if status >= SUCCESS { Ok(()) } else { Err(status) }
    }

    /// Keeps a value until [`Library::commit`].
    pub(crate) fn put(&self, key: &str, bytes: &[u8]) -> Result<(), Status> {
        let key = padded(key);
        let mut value =
            Value { kind: KIND_BYTES, data: [bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64, 0] };
        // SAFETY: the key ends with a zero; the value names `bytes`, which live until the library returns, and it copies them.
        let status = unsafe { (self.put)(SCOPE_GLOBAL, key.as_ptr(), &mut value) };
        done(status)
    }

    /// Hands what was put to the server.
    pub(crate) fn commit(&self) -> Result<(), Status> {
        // SAFETY: takes nothing.
        let status = unsafe { (self.commit)() };
        done(status)
    }

    /// Waits for all ranks of the job. With `collect` everybody has all values then, otherwise they are fetched when asked for.
    pub(crate) fn fence(&self, collect: bool) -> Result<(), Status> {
        let info = Info::new("pmix.collect", KIND_BOOL, u64::from(collect));
        // SAFETY: no processes means all of the job; one directive is named, and lives until the library returns.
        let status = unsafe { (self.fence)(ptr::null(), 0, &info, 1) };
        done(status)
    }

    /// A value of a process, or of the job. Nothing is waited for longer than `timeout_s`, where the version knows how; 0 is as long
    /// as it takes.
    pub(crate) fn get_value(&self, process: &Process, key: &str, timeout_s: u16) -> Result<Found, Status> {
        let key = padded(key);
        let info = Info::new("pmix.timeout", KIND_INT, u64::from(timeout_s));
        let mut value: *mut Value = ptr::null_mut();
        // SAFETY: process, key and one directive live until the library returns; it writes a pointer or nothing to `value`.
        let status = unsafe { (self.get)(process, key.as_ptr(), &info, 1, &mut value) };
        done(status)?;
        if value.is_null() {
            return Err(NOT_FOUND);
        }
        // SAFETY: the library has said that it found something, and what it hands over is a value of its layout that belongs to us.
        let copy = unsafe { value.read() };
        let found = self.found(&copy);
        self.release(value, &copy);
        Ok(found)
    }

    fn found(&self, value: &Value) -> Found {
        let [first, second, _] = value.data;
        // The union's first bytes are its number: on the processors that we run on the lowest ones.
        match value.kind {
            KIND_UINT16 => Found::Number(first & u64::from(u16::MAX)),
            KIND_UINT32 | KIND_RANK | KIND_INT => Found::Number(first & u64::from(u32::MAX)),
            KIND_UINT64 | KIND_SIZE => Found::Number(first),
            // SAFETY: a value of this kind holds a pointer to a text, which is not freed before `release`.
            KIND_STRING => Found::Text(unsafe { text_of(ptr::with_exposed_provenance(first as usize)) }),
            KIND_BYTES if first == 0 || second == 0 => Found::Bytes(Vec::new()),
            KIND_BYTES => {
                let bytes: *const u8 = ptr::with_exposed_provenance(first as usize);
                // SAFETY: a value of this kind holds a pointer to so many bytes, not null as looked at above, which nobody else has
                // and which are not freed before `release`.
                Found::Bytes(unsafe { std::slice::from_raw_parts(bytes, second as usize) }.to_vec())
            }
            kind => Found::Other(kind),
        }
    }

    /// Gives a value back, with what it points to.
    fn release(&self, value: *mut Value, copy: &Value) {
        if let Some(value_free) = self.value_free {
            // SAFETY: one value, which the library made for us and nobody uses any more.
            return unsafe { value_free(value, 1) };
        }
        if matches!(copy.kind, KIND_STRING | KIND_BYTES) {
            // SAFETY: versions without the function above have this memory from the C library's malloc, and leave it to us; a null
            // pointer is none.
            unsafe { libc::free(ptr::with_exposed_provenance_mut(copy.data[0] as usize)) };
        }
        // SAFETY: as above. What other kinds point to is lost, a few bytes for each question that nobody here asks.
        unsafe { libc::free(value.cast()) };
    }

    /// Ends the job.
    pub(crate) fn abort(&self, status: i32, message: &str) -> Result<(), Status> {
        let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the message ends with a zero and lives until the library returns; no processes means all.
        let status = unsafe { (self.abort)(status, message.as_ptr(), ptr::null_mut(), 0) };
        done(status)
    }

    /// Leaves the server.
    pub(crate) fn finalize(&self) -> Result<(), Status> {
        // SAFETY: no directives are named.
        let status = unsafe { (self.finalize)(ptr::null(), 0) };
        done(status)
    }
}

fn done(status: Status) -> Result<(), Status> {
    if status == SUCCESS { Ok(()) } else { Err(status) }
}

/// What a text of C says; nothing where there is none.
///
/// # Safety
/// `text` is null, or ends with a zero and is not changed meanwhile.
unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: this function's own contract, and it is not null.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Hears of an event, in the library's thread, and says that no more is to be done about it.
extern "C" fn answer_event(
    _handler: usize,
    _status: Status,
    _source: *const Process,
    _infos: *mut Info,
    _info_count: usize,
    _results: *mut Info,
    _result_count: usize,
    answer: Option<EventAnswer>,
    data: *mut c_void,
) {
    if let Some(answer) = answer {
        // SAFETY: the function and its data are of this event, and are to be used once, here; no results are named.
        unsafe { answer(ACTION_COMPLETE, ptr::null_mut(), 0, ptr::null_mut(), ptr::null_mut(), data) };
    }
}

/// Hears that the handler is registered, or that it is not: then events have the effect that they have without one.
extern "C" fn on_registered(_status: Status, _handler: usize, _data: *mut c_void) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_directives_have_zeros_behind_their_text() {
        let info = Info::new("pmix.collect", KIND_BOOL, 1);
        assert_eq!(&info.key[..13], b"pmix.collect\0");
        assert!(info.key[12..].iter().all(|byte| *byte == 0));
        // A bool is the first byte of the union.
        assert_eq!((info.value.kind, info.value.data[0].to_ne_bytes()[0]), (1, 1));
        assert_eq!(padded(&"k".repeat(511))[510..], [b'k', 0]);
    }

    #[test]
    fn the_name_of_a_job_ends_at_its_zero() {
        let mut process = Process { namespace: [0; NAMESPACE_BYTES], rank: 3 };
        process.namespace[..7].copy_from_slice(b"job-1@1");
        assert_eq!(process.namespace(), "job-1@1");
        assert_eq!(
            (process.with_rank(RANK_WILDCARD).rank, process.with_rank(0).namespace()),
            (u32::MAX - 1, "job-1@1".into())
        );
    }
}
