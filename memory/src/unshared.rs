//! Descriptors that no child of this process keeps.
//!
//! A connection ends when its last descriptor is closed. What runs another program closes it by itself. A child that only copies this
//! process (`fork`) has a copy of each descriptor, and who is at the other end hears nothing of this process's end as long as
//! the child lives. So in the child other descriptors take their place: of `/dev/null`, so that whatever the child still has of
//! its parent's writes and closes what is its own.
//!
//! It knows only of forks of the C library that run handlers.

use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Descriptors from here on are not known here.
const NUMBERS: usize = 1 << 20;
const BITS: usize = u64::BITS as usize;

/// A bit for each descriptor. A handler that runs in a child may wait for nobody, so there is no lock.
static MARKED: [AtomicU64; NUMBERS / BITS] = [const { AtomicU64::new(0) }; NUMBERS / BITS];
/// Words of [`MARKED`] of which any was ever used.
static WORDS: AtomicUsize = AtomicUsize::new(0);

/// Something with one descriptor, which no child of a fork keeps.
///
/// ```
/// use std::net::{TcpListener, TcpStream};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = longarm_memory::Unshared::new(TcpStream::connect(listener.local_addr()?)?)?;
/// stream.set_nodelay(true)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Unshared<T> {
    // Fields are dropped in this order: the mark goes before the number has another meaning.
    _mark: Mark,
    inner: T,
}

#[derive(Debug)]
struct Mark(RawFd);

impl<T: AsFd> Unshared<T> {
    /// From now on a child that is forked has something else under this number.
    ///
    /// # Errors
    /// The system's, where no handler can be set.
    pub fn new(inner: T) -> io::Result<Unshared<T>> {
        set_handler()?;
        let mark = Mark(inner.as_fd().as_raw_fd());
        if let Some((word, bit)) = place(mark.0) {
            MARKED[word].fetch_or(bit, Ordering::Relaxed);
            WORDS.fetch_max(word + 1, Ordering::Relaxed);
        }
        Ok(Unshared { _mark: mark, inner })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some((word, bit)) = place(self.0) {
            MARKED[word].fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

impl<T> Deref for Unshared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Unshared<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: AsFd> AsFd for Unshared<T> {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl<T: Read> Read for Unshared<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.inner.read(into)
    }
}

impl<T: Write> Write for Unshared<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn place(number: RawFd) -> Option<(usize, u64)> {
    let number = usize::try_from(number).ok().filter(|number| *number < NUMBERS)?;
    Some((number / BITS, 1 << (number % BITS)))
}

fn set_handler() -> io::Result<()> {
    static REFUSED: OnceLock<c_int> = OnceLock::new();
    // SAFETY: the handler is there as long as the process, and does only what a child of a process with many threads may do.
    let refused = *REFUSED.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
    if refused == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(refused)) }
}

/// Runs in a child, before `fork` returns there.
extern "C" fn in_child() {
    let words = WORDS.load(Ordering::Relaxed);
    // SAFETY: the path ends with a zero, and the call may be made in a child of a fork.
    let nothing = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    for (word, marked) in MARKED[..words].iter().enumerate() {
        let mut bits = marked.swap(0, Ordering::Relaxed);
        while bits != 0 {
            let number = (word * BITS) as c_int + bits.trailing_zeros() as c_int;
            bits &= bits - 1;
            put_in_place(nothing, number);
        }
    }
    if nothing >= 0 {
        // SAFETY: it was opened above, and nobody else has it.
        unsafe { libc::close(nothing) };
    }
}

fn put_in_place(nothing: c_int, number: c_int) {
    // SAFETY: it takes numbers alone, and may be called in a child of a fork; whoever owns the number keeps one that is open.
    let is_in_place = nothing >= 0 && unsafe { libc::dup3(nothing, number, libc::O_CLOEXEC) } >= 0;
    if !is_in_place {
        // SAFETY: it takes a number alone, and may be called in a child of a fork. The number is open: it was marked.
        unsafe { libc::close(number) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A child that lives until the other end of this is closed.
    fn child_until_end(of: &UnixStream) -> libc::pid_t {
        // SAFETY: the child calls nothing that takes a lock.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut byte = 0_u8;
            // SAFETY: the byte is the child's own.
            unsafe { libc::read(of.as_raw_fd(), (&raw mut byte).cast(), 1) };
            // SAFETY: it ends the process.
            unsafe { libc::_exit(0) };
        }
        assert!(child > 0);
        child
    }

    #[test]
    fn who_is_at_the_other_end_hears_of_the_end_although_a_child_lives_on() {
        let (end, lives) = UnixStream::pair().unwrap();
        let lives = Unshared::new(lives).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        let (mut near, also_near) = (Unshared::new(near.try_clone().unwrap()).unwrap(), Unshared::new(near).unwrap());
        let child = child_until_end(&end);
        // Here all is as before.
        near.write_all(b"x").unwrap();
        assert_eq!(far.read(&mut [0; 2]).unwrap(), 1);
        drop((near, also_near));
        assert_eq!(far.read(&mut [0; 2]).unwrap(), 0, "the child has no end of it");
        drop(lives);
        let mut status = 0;
        // SAFETY: the status is this function's own.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn a_number_that_is_closed_is_marked_no_more() {
        let (one, _other) = UnixStream::pair().unwrap();
        let (word, bit) = place(one.as_raw_fd()).unwrap();
        let one = Unshared::new(one).unwrap();
        assert_ne!(MARKED[word].load(Ordering::Relaxed) & bit, 0);
        let mark = one._mark;
        drop(mark);
        assert_eq!(MARKED[word].load(Ordering::Relaxed) & bit, 0);
        assert_eq!((place(-1), place(NUMBERS as RawFd)), (None, None));
    }
}
