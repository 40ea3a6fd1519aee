//! The client: from the first line to the last.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::Duration;

use rustix::net::SendFlags;

use crate::environment::{self, Environment, EnvironmentError, shortened};
use crate::pmi1::error::Pmi1Error;
use crate::pmi1::limits::{RANKS_MAX, SENT_BYTES_MAX, VALUE_BYTES_MAX};
use crate::pmi1::line::{Lines, Reply};
use crate::pmi1::value::{self, PIECE_DIGITS_MAX, PIECE_DIGITS_MIN, SUFFIX_BYTES};

const FD: &str = "PMI_FD";
const PORT: &str = "PMI_PORT";
const ID: &str = "PMI_ID";
const RANK: &str = "PMI_RANK";
const SIZE: &str = "PMI_SIZE";

/// The variables that [`Client::connect`] reads, for whoever has it read a copy of them.
pub const VARIABLES: [&str; 5] = [FD, PORT, ID, RANK, SIZE];

/// What is in a line of `put` besides the names and the value.
const PUT_BYTES: usize = "cmd=put kvsname= key= value=".len() + 1;
/// Bytes of the store's name that leave enough of a line for keys and pieces.
const STORE_BYTES_MAX: usize = 512;

/// How long names and values of the process manager's store may be, in bytes with an end of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maxes {
    /// The name of the store.
    pub store_bytes: u32,
    /// A key.
    pub key_bytes: u32,
    /// A value.
    pub value_bytes: u32,
}

/// A process that its process manager has taken in.
///
/// ```no_run
/// use longarm_managers::pmi1::Client;
///
/// let Some(mut client) = Client::connect(&|name| std::env::var(name).ok())? else { return Ok(()) };
/// client.put(&format!("card-{}", client.rank()), b"anything")?;
/// client.barrier()?;
/// let card = client.get("card-0")?;
/// client.finalize()?;
/// # Ok::<(), longarm_managers::pmi1::Pmi1Error>(())
/// ```
pub struct Client {
    lines: Lines,
    /// The connection a second time, for [`Client::aborter`].
    again: Option<File>,
    rank: u32,
    size: u32,
    maxes: Maxes,
    store: String,
}

/// The connection to a process manager. One that has hung up is an error here, and no signal that ends this process without a word.
struct Connection(File);

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for &Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL) {
            // Whoever has made it may have taken something else than a socket.
            Err(rustix::io::Errno::NOTSOCK) => (&self.0).write(bytes),
            sent => Ok(sent?),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Ends the job from another thread, while the client waits.
pub struct Aborter(Connection);

impl Aborter {
    /// Asks the process manager to end the job with this exit status.
    ///
    /// # Errors
    /// When the connection is gone; then the manager is, too.
    pub fn abort(&self, status: i32) -> io::Result<()> {
        (&self.0).write_all(abort_line(status).as_bytes())
    }
}

fn abort_line(status: i32) -> String {
    format!("cmd=abort exitcode={status}\n")
}

impl Client {
    /// Meets the process manager that started this process; `None` where the environment names no connection to one.
    ///
    /// # Errors
    /// [`Pmi1Error`]. A process meets its manager once: also after [`Client::finalize`] this is refused.
    pub fn connect(environment: Environment<'_>) -> Result<Option<Client>, Pmi1Error> {
        if let Some(number) = environment::value(environment, FD, "the number of a descriptor")? {
            let rank = environment::number_beside(environment, FD, RANK)?;
            let size = environment::number_beside(environment, FD, SIZE)?;
            environment::below("the rank (PMI_RANK)", rank, size)?;
            let link = Connection(File::from(adopted(number)?));
            let again = link.0.try_clone().map_err(Pmi1Error::Connection)?;
            return Client::over(link, rank, size).map(|client| Some(Client { again: Some(again), ..client }));
        }
        let Some(address) = environment(PORT).filter(|address| !address.is_empty()) else { return Ok(None) };
        let id = environment::number_beside(environment, PORT, ID)?;
        remember(format!("{address} {id}"))?;
        let stream = TcpStream::connect(&address)
            .map_err(|reason| Pmi1Error::NoConnection { address: shortened(&address), reason })?;
        // Each line waits for its answer.
        stream.set_nodelay(true).map_err(Pmi1Error::Connection)?;
        keep_alive(&stream).map_err(|error| Pmi1Error::Connection(error.into()))?;
        let link = Connection(File::from(OwnedFd::from(stream)));
        let again = link.0.try_clone().map_err(Pmi1Error::Connection)?;
        Client::over_port(link, id).map(|client| Some(Client { again: Some(again), ..client }))
    }

    /// Speaks over a connection that the caller has made, as over an inherited descriptor.
    ///
    /// # Errors
    /// [`Pmi1Error`], where the other end does not speak PMI-1 or takes too little.
    pub fn over(link: impl Read + Write + Send + 'static, rank: u32, size: u32) -> Result<Client, Pmi1Error> {
        Client::init(Lines::new(Box::new(link)), rank, size)
    }

    /// Speaks over a connection that the caller has made to a port: the manager tells rank and size.
    ///
    /// # Errors
    /// As [`Client::over`].
    pub fn over_port(link: impl Read + Write + Send + 'static, id: u32) -> Result<Client, Pmi1Error> {
        /// Rank, size, and whether to say what goes on.
        const SETTINGS: usize = 3;
        let mut lines = Lines::new(Box::new(link));
        lines.send(&format!("cmd=initack pmiid={id}"))?;
        let (mut rank, mut size) = (None, None);
        let mut settings = 0;
        while settings < SETTINGS {
            let reply = lines.receive_any("set")?;
            match reply.get("cmd") {
                Some("initack") if settings == 0 => drop(reply.accepted("to take this process in")?),
                Some("set") => {
                    settings += 1;
                    rank = reply.get("rank").map(str::to_owned).or(rank);
                    size = reply.get("size").map(str::to_owned).or(size);
                }
                _ => return Err(reply.unexpected("set")),
            }
        }
        let number = |name, text: Option<String>| {
            environment::number(&|_| text.clone(), name)?
                .ok_or(EnvironmentError::Missing { present: PORT, missing: name })
        };
        let (rank, size) = (number("rank", rank)?, number("size", size)?);
        environment::below("the rank that the process manager tells", rank, size)?;
        Client::init(lines, rank, size)
    }

    fn init(mut lines: Lines, rank: u32, size: u32) -> Result<Client, Pmi1Error> {
        environment::below("the size of the job (PMI_SIZE)", size, RANKS_MAX + 1)?;
        // Slurm compares the line as it is.
        let said =
            lines.send("cmd=init pmi_version=1 pmi_subversion=1").and_then(|()| lines.receive("response_to_init"));
        let closed = |error| if matches!(error, Pmi1Error::Closed { .. }) { Pmi1Error::ClosedBefore } else { error };
        said.map_err(closed)?.accepted("version 1.1 of PMI")?;
        lines.send("cmd=get_maxes")?;
        let reply = lines.receive("maxes")?.accepted("to say its limits")?;
        let number = |key| reply.number(key, "maxes with three numbers");
        let maxes = Maxes {
            store_bytes: number("kvsname_max")?,
            key_bytes: number("keylen_max")?,
            value_bytes: number("vallen_max")?,
        };
        lines.send("cmd=get_my_kvsname")?;
        let reply = lines.receive("my_kvsname")?.accepted("to say what its store is called")?;
        let store = reply.get("kvsname").filter(|store| !store.is_empty() && store.len() <= STORE_BYTES_MAX);
        let store = store.ok_or_else(|| reply.unexpected("the name of a store"))?.to_owned();
        let client = Client { lines, again: None, rank, size, maxes, store };
        // One letter has to fit.
        if client.key_bytes_max() == 0 || client.digits_max(1) < PIECE_DIGITS_MIN {
            return Err(Pmi1Error::TooSmall { key_bytes: maxes.key_bytes, value_bytes: maxes.value_bytes });
        }
        Ok(client)
    }

    /// This process, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Processes of the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// What the process manager takes.
    pub fn maxes(&self) -> Maxes {
        self.maxes
    }

    /// What the store of this job is called: the same at all of its processes, and at no other job of this manager.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// What can end the job from another thread; `None` over a connection of the caller's.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn aborter(&self) -> io::Result<Option<Aborter>> {
        self.again.as_ref().map(|again| again.try_clone().map(|again| Aborter(Connection(again)))).transpose()
    }

    /// The connection once more, to see its end; `None` over a connection of the caller's. Until [`Client::finalize`] it ends only with the
    /// process at its other end. Nothing is to be read from it.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn connection(&self) -> io::Result<Option<OwnedFd>> {
        self.again.as_ref().map(|again| again.try_clone().map(OwnedFd::from)).transpose()
    }

    /// Puts a value for the others to get after the next barrier. A key is put once.
    ///
    /// # Errors
    /// [`Pmi1Error`]; part of a long value may have been put.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Pmi1Error> {
        self.check_key(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Pmi1Error::LongValue { bytes: value.len() });
        }
        for (number, piece) in value::pieces(value, self.digits_max(key.len())).iter().enumerate() {
            let key = value::key_of_piece(key, number);
            self.lines.send(&format!("cmd=put kvsname={} key={key} value={piece}", self.store))?;
            self.lines.receive("put_result")?.accepted("to keep a value")?;
        }
        Ok(())
    }

    /// Waits until all processes have come here; what each has put before is there then.
    ///
    /// # Errors
    /// [`Pmi1Error`]; with [`Pmi1Error::Closed`] the job has ended, or is being ended.
    pub fn barrier(&mut self) -> Result<(), Pmi1Error> {
        self.lines.send("cmd=barrier_in")?;
        self.lines.receive("barrier_out")?.accepted("a barrier")?;
        Ok(())
    }

    /// What a process has put.
    ///
    /// # Errors
    /// [`Pmi1Error::Missing`] where nobody has.
    pub fn get(&mut self, key: &str) -> Result<Vec<u8>, Pmi1Error> {
        self.check_key(key)?;
        let missing = |key: &str| Pmi1Error::Missing { key: key.to_owned() };
        let foreign = |text: &str| Pmi1Error::ForeignValue { key: key.to_owned(), value: shortened(text) };
        let first = self.get_text(key)?.ok_or_else(|| missing(key))?;
        let mut value = Vec::new();
        let (count, digits) = value::first_piece(&first).ok_or_else(|| foreign(&first))?;
        if !value::append(&mut value, digits) {
            return Err(foreign(&first));
        }
        for number in 1..count {
            let key = value::key_of_piece(key, number);
            let piece = self.get_text(&key)?.ok_or_else(|| missing(&key))?;
            if !value::append(&mut value, &piece) {
                return Err(foreign(&piece));
            }
        }
        Ok(value)
    }

    /// A value as it stands in the store, such as those that the process manager has put there itself; `None` where there is
    /// none.
    ///
    /// # Errors
    /// [`Pmi1Error`].
    pub fn get_text(&mut self, key: &str) -> Result<Option<String>, Pmi1Error> {
        if !is_word(key) || key.len() >= (self.maxes.key_bytes as usize).min(SENT_BYTES_MAX / 4) {
            return Err(self.bad_key(key));
        }
        self.lines.send(&format!("cmd=get kvsname={} key={key}", self.store))?;
        let reply = self.lines.receive("get_result")?;
        if reply.is_refusal() {
            return Ok(None);
        }
        let value = reply.get("value").ok_or_else(|| reply.unexpected("a value"))?;
        Ok(Some(value.to_owned()))
    }

    /// `PMI_process_mapping`, for [`nodes_of_ranks`](crate::pmi1::nodes_of_ranks); `None` where the manager does not say.
    ///
    /// # Errors
    /// [`Pmi1Error`].
    pub fn mapping(&mut self) -> Result<Option<String>, Pmi1Error> {
        Ok(self.get_text("PMI_process_mapping")?.filter(|mapping| !mapping.is_empty()))
    }

    /// The ranks of which hydra knows that they have died, where it was told with `-disable-auto-cleanup` not to end the job. It
    /// then sends SIGUSR1 to those that live, which ends them unless they have a handler.
    ///
    /// # Errors
    /// [`Pmi1Error`].
    pub fn dead(&mut self) -> Result<Vec<u32>, Pmi1Error> {
        let Some(text) = self.get_text("PMI_dead_processes")? else { return Ok(Vec::new()) };
        let mut dead = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let both = first.parse::<u32>().ok().zip(last.parse::<u32>().ok()).filter(|(_, last)| *last < self.size);
            let foreign = || Pmi1Error::ForeignValue { key: "PMI_dead_processes".into(), value: shortened(&text) };
            let (first, last) = both.ok_or_else(foreign)?;
            dead.extend(first..=last);
        }
        dead.sort_unstable();
        dead.dedup();
        Ok(dead)
    }

    /// How many processes the manager could run; `None` where it does not know.
    ///
    /// # Errors
    /// [`Pmi1Error`].
    pub fn universe_size(&mut self) -> Result<Option<u32>, Pmi1Error> {
        self.lines.send("cmd=get_universe_size")?;
        let reply = self.lines.receive("universe_size")?;
        Ok(number_of(&reply, "size").and_then(|size| u32::try_from(size).ok()))
    }

    /// The number of the program among those of the job; `None` where the manager does not say.
    ///
    /// # Errors
    /// [`Pmi1Error`].
    pub fn program(&mut self) -> Result<Option<u64>, Pmi1Error> {
        self.lines.send("cmd=get_appnum")?;
        let reply = self.lines.receive("appnum")?;
        Ok(number_of(&reply, "appnum").and_then(|number| u64::try_from(number).ok()))
    }

    /// Asks the process manager to end the job with this exit status. It does so by ending the processes, this one too.
    ///
    /// # Errors
    /// When the connection is gone; then the manager is, too.
    pub fn abort(&mut self, status: i32) -> Result<(), Pmi1Error> {
        self.lines.send(abort_line(status).trim_end())
    }

    /// Tells the process manager that this process ends as it should. It says nothing of the others.
    ///
    /// # Errors
    /// [`Pmi1Error`].
    pub fn finalize(mut self) -> Result<(), Pmi1Error> {
        self.lines.send("cmd=finalize")?;
        self.lines.receive("finalize_ack")?.accepted("to let this process go")?;
        Ok(())
    }

    /// What a key may be long, so that the numbers of pieces fit behind it.
    fn key_bytes_max(&self) -> usize {
        (self.maxes.key_bytes as usize).min(SENT_BYTES_MAX / 4).saturating_sub(SUFFIX_BYTES + 1)
    }

    /// What a piece may be long.
    fn digits_max(&self, key_bytes: usize) -> usize {
        let of_line = SENT_BYTES_MAX.saturating_sub(PUT_BYTES + self.store.len() + key_bytes + SUFFIX_BYTES);
        of_line.min((self.maxes.value_bytes as usize).saturating_sub(1)).min(PIECE_DIGITS_MAX)
    }

    fn check_key(&self, key: &str) -> Result<(), Pmi1Error> {
        let fits = is_word(key) && key.len() <= self.key_bytes_max();
        if fits { Ok(()) } else { Err(self.bad_key(key)) }
    }

    fn bad_key(&self, key: &str) -> Pmi1Error {
        Pmi1Error::BadKey { key: shortened(key), bytes_max: self.key_bytes_max() }
    }
}

fn is_word(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|letter| letter.is_ascii_alphanumeric() || b"-_.".contains(&letter))
}

fn number_of(reply: &Reply, key: &str) -> Option<i128> {
    if reply.is_refusal() { None } else { reply.get(key)?.parse().ok() }
}

/// A process manager's host that is gone shows within ten seconds, also where a process only waits for it.
fn keep_alive(stream: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(3))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 5)?;
    sockopt::set_tcp_user_timeout(stream, 8000)
}

/// Takes over the descriptor that the process manager has left open.
fn adopted(number: i32) -> Result<OwnedFd, Pmi1Error> {
    longarm_memory::adopt_descriptor(number).map_err(|reason| match reason.kind() {
        io::ErrorKind::InvalidInput if number > 2 => Pmi1Error::UsedBefore { variable: FD },
        _ => Pmi1Error::NoDescriptor { number, reason },
    })
}

/// Refuses a connection that this process has made before: the manager would wait for a process that it has let go.
fn remember(connection: String) -> Result<(), Pmi1Error> {
    static MADE: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if made.contains(&connection) {
        return Err(Pmi1Error::UsedBefore { variable: PORT });
    }
    made.push(connection);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::net::sockopt;

    use super::*;

    #[test]
    fn a_connection_whose_other_host_is_gone_ends_within_ten_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        keep_alive(&stream).unwrap();
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        let silence = sockopt::tcp_keepidle(&stream).unwrap();
        let asking = sockopt::tcp_keepintvl(&stream).unwrap() * sockopt::tcp_keepcnt(&stream).unwrap();
        assert!(silence + asking <= Duration::from_secs(10), "{silence:?} and {asking:?}");
        assert_eq!(sockopt::tcp_user_timeout(&stream), Ok(8000));
    }
}
