//! PMIx: Open MPI, PRRTE, and Slurm with `srun --mpi=pmix`, of versions 3.2 to 6.
//!
//! The library is looked for at run time, so that a program starts where there is none. All processes of a job that are
//! inside the library share its state, an MPI beside us too: it counts who has initialised it.
//!
//! A value is of one rank: whoever gets it says whose. Getting one value brings all that its rank has put, so one a rank is enough. What was
//! got once is not seen to change: each exchange has keys of its own.

// Two modules of the crate call functions of libraries that are found at run time; this is one.
#[allow(unsafe_code)]
mod sys;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::environment::{Environment, shortened};

pub use sys::NoLibrary;
use sys::{
    COMMUNICATION_FAILED, Found, KEY_BYTES_MAX, LOST_CONNECTION, Library, Process, RANK_WILDCARD, Status, UNREACHABLE,
};

/// Bytes of a value, at most. Long enough for all that ranks tell each other before they can connect.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// The oldest version that is known to have the same layouts as the newer ones.
const OLDEST: (u32, u32) = (3, 2);
/// How long a value is waited for that its rank has not put.
const GET_TIMEOUT_S: u16 = 60;

/// Why a process manager with PMIx cannot be talked to, or what it refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmixError {
    /// The library is not there.
    #[error("the job's process manager speaks PMIx, and here is {0}")]
    NoLibrary(#[from] NoLibrary),
    /// The library has other layouts.
    #[error(
        "the library of PMIx here is {version:?}; 3.2 and newer are supported: put a newer one into LD_LIBRARY_PATH"
    )]
    TooOld {
        /// What it says of itself.
        version: String,
    },
    /// The server of this process cannot be reached.
    #[error(
        "the server of PMIx does not take this process in: {said} ({status}); library and server may check who connects in different ways: set PMIX_MCA_psec=native for both, or use the libpmix of the process manager"
    )]
    Init {
        /// The library's number.
        status: i32,
        /// What it calls that.
        said: String,
    },
    /// The server is gone.
    #[error("the server of PMIx is gone ({said}): the process manager was ended, or ends the job")]
    Gone {
        /// What the library calls that.
        said: String,
    },
    /// Anything else that did not work.
    #[error("PMIx cannot {what}: {said} ({status})")]
    Failed {
        /// What was asked for.
        what: &'static str,
        /// The library's number.
        status: i32,
        /// What it calls that.
        said: String,
    },
    /// The rank has put no such value.
    #[error(
        "rank {rank} has put no {key:?} ({said}): it should have ended before, or runs another version of the program"
    )]
    Missing {
        /// Whose value.
        rank: u32,
        /// Its key.
        key: String,
        /// What the library says.
        said: String,
    },
    /// A value of another kind than was expected.
    #[error("the process manager has no usable {key}: {seen}")]
    BadValue {
        /// Which one.
        key: String,
        /// What it is.
        seen: String,
    },
    /// A key that PMIx would not take, or would take for one of its own.
    #[error("the key {key:?} is empty, longer than {KEY_BYTES_MAX} bytes, or begins with `pmix`")]
    BadKey {
        /// The key, cut where it is long.
        key: String,
    },
    /// A value that is longer than is meant for a process manager.
    #[error("a value of {bytes} bytes is too long for a process manager: at most {VALUE_BYTES_MAX}")]
    LongValue {
        /// Its length.
        bytes: usize,
    },
}

impl PmixError {
    /// The same, now that the server is known to be gone.
    fn of_gone_server(self) -> PmixError {
        let said = match self {
            PmixError::Gone { said } | PmixError::Init { said, .. } | PmixError::Failed { said, .. } => said,
            other => shortened(&other.to_string()),
        };
        PmixError::Gone { said }
    }
}

/// Where a rank runs, as the process manager says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankLocation {
    /// The number of its node.
    pub node: Option<u32>,
    /// The rank among those of its node.
    pub local_rank: Option<u32>,
    /// The name of its host.
    pub host: Option<String>,
}

/// A process that the server of its process manager has taken in.
///
/// ```no_run
/// use longarm_managers::pmix::Client;
///
/// let Some(mut client) = Client::connect(&|name| std::env::var(name).ok())? else { return Ok(()) };
/// client.put("card", b"anything")?;
/// client.barrier()?;
/// let card = client.get(0, "card")?;
/// client.finalize()?;
/// # Ok::<(), longarm_managers::pmix::PmixError>(())
/// ```
pub struct Client {
    library: &'static Library,
    own: Process,
    size: u32,
}

/// Ends the job from another thread, while the client waits.
#[derive(Clone, Copy)]
pub struct Aborter(&'static Library);

impl Aborter {
    /// Asks the process manager to end the job with this exit status, and to say why.
    ///
    /// # Errors
    /// [`PmixError`].
    pub fn abort(&self, status: i32, message: &str) -> Result<(), PmixError> {
        self.0.abort(status, message).map_err(|status| failed(self.0, "end the job", status))
    }
}

/// Who this process is.
const IDENTITY: [&str; 2] = ["PMIX_NAMESPACE", "PMIX_RANK"];
/// Where process managers are installed.
const PREFIXES: [&str; 3] = ["PMIX_PREFIX", "PRTE_PREFIX", "OPAL_PREFIX"];
/// Where the server of this process is: of each version of the library its own, the newest first.
const SERVER_URIS: [&str; 5] =
    ["PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21", "PMIX_SERVER_URI2"];

/// The variables that [`Client::connect`] reads, for whoever has it read a copy of them. The library reads others by itself.
pub fn variables() -> impl Iterator<Item = &'static str> {
    IDENTITY.into_iter().chain(PREFIXES).chain(SERVER_URIS)
}

/// Whether the environment is that of a process which a process manager with PMIx has started.
///
/// ```
/// use longarm_managers::pmix;
/// assert!(pmix::is_there(&|name| name.starts_with("PMIX_").then(|| "0".to_owned())));
/// assert!(!pmix::is_there(&|name| (name == "PMIX_RANK").then(|| "0".to_owned())));
/// ```
pub fn is_there(environment: Environment<'_>) -> bool {
    IDENTITY.iter().all(|name| environment(name).is_some_and(|value| !value.is_empty()))
}

/// Where process managers have a library of their own, that the loader may not know.
fn folders(environment: Environment<'_>) -> Vec<String> {
    let prefixes = PREFIXES.iter().filter_map(|name| environment(name));
    let prefixes = prefixes.filter(|prefix| prefix.starts_with('/'));
    prefixes.flat_map(|prefix| ["lib", "lib64", "lib/openmpi"].map(|folder| format!("{prefix}/{folder}"))).collect()
}

/// How long it may take to see whether somebody listens.
const LOOK: Duration = Duration::from_secs(1);

/// Where the server of this process listens, as `name;tcp4://127.0.0.1:40021`; nothing, where it does not say so, or in another way.
fn server_address(environment: Environment<'_>) -> Option<SocketAddr> {
    let uri = SERVER_URIS.iter().find_map(|name| environment(name))?;
    let mut parts = uri.split(';').filter_map(|part| part.trim().split_once("://"));
    parts.find(|(kind, _)| matches!(*kind, "tcp4" | "tcp6" | "tcp"))?.1.parse().ok()
}

/// Whether nobody listens any more where the server of this process did.
fn is_server_gone(environment: Environment<'_>) -> bool {
    let refuses = |address| TcpStream::connect_timeout(&address, LOOK).is_err_and(is_refusal);
    server_address(environment).is_some_and(refuses)
}

fn is_refusal(error: io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

impl Client {
    /// Meets the process manager that started this process; `None` where the environment names none with PMIx.
    ///
    /// # Errors
    /// [`PmixError`].
    pub fn connect(environment: Environment<'_>) -> Result<Option<Client>, PmixError> {
        if !is_there(environment) {
            return Ok(None);
        }
        let library = Library::get(&folders(environment))?;
        let version = library.version();
        if !is_supported(&version) {
            return Err(PmixError::TooOld { version: shortened(&version) });
        }
        let client = Client::taken_in(library);
        // The library says the same of a server that is gone and of one that it does not get on with.
        let is_gone = |error: &PmixError| matches!(error, PmixError::Gone { .. }) || is_server_gone(environment);
        client.map(Some).map_err(|error| if is_gone(&error) { error.of_gone_server() } else { error })
    }

    fn taken_in(library: &'static Library) -> Result<Client, PmixError> {
        let init = |status| PmixError::Init { status, said: library.error_string(status) };
        let own = library.init().map_err(init)?;
        let mut client = Client { library, own, size: 0 };
        let size = client.met();
        if size.is_err() {
            // What it says is no news beside the error.
            let _ = library.finalize();
        }
        client.size = size?;
        Ok(client)
    }

    /// What is done once, before anything else: the size of the job comes back.
    fn met(&self) -> Result<u32, PmixError> {
        const SIZE: &str = "pmix.job.size";
        self.library.ignore_events().map_err(|status| failed(self.library, "register a handler of events", status))?;
        let size = self.job_value(SIZE)?;
        let bad = |seen: String| PmixError::BadValue { key: SIZE.to_owned(), seen };
        match size {
            Some(Found::Number(size)) => match u32::try_from(size) {
                Ok(size) if self.own.rank < size => Ok(size),
                _ => Err(bad(format!("it is {size}, and this is rank {}", self.own.rank))),
            },
            Some(other) => Err(bad(format!("it is {other:?}"))),
            None => Err(bad("it is not there".to_owned())),
        }
    }

    /// This process, from 0.
    pub fn rank(&self) -> u32 {
        self.own.rank
    }

    /// Processes of the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// What the process manager calls the job.
    pub fn namespace(&self) -> String {
        self.own.namespace()
    }

    /// What the library says of its version.
    pub fn version(&self) -> String {
        self.library.version()
    }

    /// What can end the job from another thread.
    pub fn aborter(&self) -> Aborter {
        Aborter(self.library)
    }

    /// Puts a value for the others to get after the next barrier. A key is put once.
    ///
    /// # Errors
    /// [`PmixError`].
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), PmixError> {
        check_key(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(PmixError::LongValue { bytes: value.len() });
        }
        self.library.put(key, value).map_err(|status| failed(self.library, "keep a value", status))
    }

    /// Waits until all processes have come here; what each has put before can be got then. It is fetched when it is asked
    /// for, which suits many ranks that get little.
    ///
    /// # Errors
    /// [`PmixError`].
    pub fn barrier(&mut self) -> Result<(), PmixError> {
        self.fence(false)
    }

    /// As [`Client::barrier`], with all values of all ranks brought to each: for few ranks that get everything.
    ///
    /// # Errors
    /// [`PmixError`].
    pub fn barrier_with_values(&mut self) -> Result<(), PmixError> {
        self.fence(true)
    }

    /// Hands over what was put, and waits for nobody. Who gets it with [`Client::get_within`] waits for it, if need be.
    ///
    /// # Errors
    /// [`PmixError`].
    pub fn commit(&mut self) -> Result<(), PmixError> {
        self.library.commit().map_err(|status| failed(self.library, "hand over values", status))
    }

    fn fence(&mut self, collect: bool) -> Result<(), PmixError> {
        self.commit()?;
        self.library.fence(collect).map_err(|status| failed(self.library, "wait for all ranks", status))
    }

    /// What a rank has put.
    ///
    /// # Errors
    /// [`PmixError::Missing`] where it has not; some process managers need a minute to say so.
    pub fn get(&mut self, rank: u32, key: &str) -> Result<Vec<u8>, PmixError> {
        self.get_within(rank, key, GET_TIMEOUT_S)
    }

    /// As [`Client::get`], of a rank that may not have put it yet: for so many seconds it is waited for.
    ///
    /// # Errors
    /// As there.
    pub fn get_within(&mut self, rank: u32, key: &str, timeout_s: u16) -> Result<Vec<u8>, PmixError> {
        check_key(key)?;
        let found = self.library.get_value(&self.own.with_rank(rank), key, timeout_s);
        match found {
            Ok(Found::Bytes(bytes)) if bytes.len() <= VALUE_BYTES_MAX => Ok(bytes),
            Ok(Found::Bytes(bytes)) => Err(PmixError::LongValue { bytes: bytes.len() }),
            Ok(other) => Err(PmixError::BadValue { key: key.to_owned(), seen: shortened(&format!("it is {other:?}")) }),
            Err(status) if is_gone(status) => Err(failed(self.library, "get a value", status)),
            Err(status) => {
                Err(PmixError::Missing { rank, key: key.to_owned(), said: self.library.error_string(status) })
            }
        }
    }

    /// Where a rank runs.
    ///
    /// # Errors
    /// [`PmixError`], when the server is gone; what it does not know is `None`.
    pub fn place(&self, rank: u32) -> Result<RankLocation, PmixError> {
        let process = self.own.with_rank(rank);
        let number = |key| -> Result<Option<u32>, PmixError> {
            Ok(match self.value(&process, key)? {
                Some(Found::Number(number)) => u32::try_from(number).ok(),
                _ => None,
            })
        };
        let (node, local_rank) = (number("pmix.nodeid")?, number("pmix.lrank")?);
        let host = match self.value(&process, "pmix.hname")? {
            Some(Found::Text(host)) if !host.is_empty() => Some(host),
            _ => None,
        };
        Ok(RankLocation { node, local_rank, host })
    }

    /// How many ranks are on this rank's node; `None` where the process manager does not say.
    ///
    /// # Errors
    /// [`PmixError`], when the server is gone.
    pub fn local_size(&self) -> Result<Option<u32>, PmixError> {
        Ok(match self.job_value("pmix.local.size")? {
            Some(Found::Number(size)) => u32::try_from(size).ok(),
            _ => None,
        })
    }

    fn job_value(&self, key: &str) -> Result<Option<Found>, PmixError> {
        self.value(&self.own.with_rank(RANK_WILDCARD), key)
    }

    fn value(&self, process: &Process, key: &str) -> Result<Option<Found>, PmixError> {
        match self.library.get_value(process, key, GET_TIMEOUT_S) {
            Ok(found) => Ok(Some(found)),
            Err(status) if is_gone(status) => Err(failed(self.library, "say where ranks are", status)),
            Err(_) => Ok(None),
        }
    }

    /// Asks the process manager to end the job with this exit status, and to say why.
    ///
    /// # Errors
    /// [`PmixError`].
    pub fn abort(&mut self, status: i32, message: &str) -> Result<(), PmixError> {
        self.aborter().abort(status, message)
    }

    /// Tells the process manager that this process ends as it should. It says nothing of the others.
    ///
    /// # Errors
    /// [`PmixError`].
    pub fn finalize(self) -> Result<(), PmixError> {
        self.library.finalize().map_err(|status| failed(self.library, "let this process go", status))
    }
}

fn failed(library: &Library, what: &'static str, status: Status) -> PmixError {
    let said = library.error_string(status);
    if is_gone(status) { PmixError::Gone { said } } else { PmixError::Failed { what, status, said } }
}

fn is_gone(status: Status) -> bool {
    matches!(status, UNREACHABLE | COMMUNICATION_FAILED | LOST_CONNECTION)
}

fn check_key(key: &str) -> Result<(), PmixError> {
    let fits = !key.is_empty() && key.len() <= KEY_BYTES_MAX && !key.starts_with("pmix") && !key.contains('\0');
    if fits { Ok(()) } else { Err(PmixError::BadKey { key: shortened(key) }) }
}

/// Whether this version has the layouts that are used here. One that does not say its number is believed to be new.
fn is_supported(said: &str) -> bool {
    version_of(said).is_none_or(|version| version >= OLDEST)
}

/// The first two numbers of what the library says: "OpenPMIx 4.2.2, repo rev: v4.2.2 ..."
fn version_of(said: &str) -> Option<(u32, u32)> {
    let numbers =
        said.split_ascii_whitespace().find(|word| word.starts_with(|letter: char| letter.is_ascii_digit()))?;
    let mut numbers = numbers.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_library_says_them() {
        assert_eq!(version_of("OpenPMIx 4.2.2, repo rev: v4.2.2 (PMIx Standard: 4.1, Stable ABI: 0.0)"), Some((4, 2)));
        assert_eq!(version_of("PMIx 3.2.3"), Some((3, 2)));
        assert_eq!(version_of("5.0.11rc1"), Some((5, 0)));
        assert_eq!(version_of("something else"), None);
        for (said, is_new_enough) in
            [("PMIx 2.2.5", false), ("3.1.9", false), ("3.2.0", true), ("10.0.1", true), ("?", true)]
        {
            assert_eq!(is_supported(said), is_new_enough, "{said}");
        }
    }

    #[test]
    fn the_folders_of_a_process_manager_are_looked_into_where_it_names_them() {
        let set = |name: &str| match name {
            "PMIX_PREFIX" => Some("/opt/pmix".to_owned()),
            // What is relative means another folder for each process.
            "OPAL_PREFIX" => Some("here".to_owned()),
            _ => None,
        };
        assert_eq!(folders(&set), ["/opt/pmix/lib", "/opt/pmix/lib64", "/opt/pmix/lib/openmpi"]);
        assert!(folders(&|_| None).is_empty());
    }

    #[test]
    fn keys_of_the_library_itself_are_refused() {
        for bad in ["", "pmix.nodeid", "a\0b", &"k".repeat(512)] {
            assert!(matches!(check_key(bad), Err(PmixError::BadKey { .. })), "{bad}");
        }
        check_key(&"k".repeat(511)).unwrap();
    }

    #[test]
    fn a_process_that_nothing_with_pmix_has_started_is_told_so() {
        assert!(Client::connect(&|_| None).unwrap().is_none());
        let empty = |name: &str| (name == "PMIX_RANK" || name == "PMIX_NAMESPACE").then(String::new);
        assert!(Client::connect(&empty).unwrap().is_none());
    }

    #[test]
    fn a_server_is_gone_once_nobody_listens_where_it_was() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("prterun-n0-7@0.2;tcp4://{}", listener.local_addr().unwrap());
        let set = |name: &str| (name == "PMIX_SERVER_URI3").then(|| uri.clone());
        assert_eq!(server_address(&set), Some(listener.local_addr().unwrap()));
        assert!(!is_server_gone(&set));
        drop(listener);
        assert!(is_server_gone(&set));
        for unknown in ["", "prterun-n0-7@0.2", "n0;usock:///tmp/pmix", "n0;tcp4://n1:7"] {
            let set = |name: &str| (name == "PMIX_SERVER_URI41").then(|| unknown.to_owned());
            assert!(server_address(&set).is_none() && !is_server_gone(&set), "{unknown}");
        }
    }
}
