//! Scattered sends and receives between a socket and regions: payload goes from a window to the wire, and from the
//! wire into a window, without a buffer in between.
//!
//! The safe wrappers of the ecosystem take slices, and a slice into a window must not exist, so these two calls are
//! made here. They never block, never raise a signal and never allocate.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::region::{Region, RegionMut};

/// How many regions one call looks at. The rest of a longer list waits for the next call, as after a short write.
pub const REGIONS_MAX: usize = 64;
/// How many bytes one call moves. It goes on for as long as the other side keeps up, and the caller may have other things to do.
pub const CALL_BYTES_MAX: usize = 4 << 20;

/// The vectors of one call, on the stack.
struct Vectors {
    slots: [MaybeUninit<libc::iovec>; REGIONS_MAX],
    count: usize,
    bytes: usize,
}

impl Vectors {
    fn new() -> Self {
        Vectors { slots: [const { MaybeUninit::uninit() }; REGIONS_MAX], count: 0, bytes: 0 }
    }

    /// Adds one vector, as far as there is room for its bytes. Empty ones are left out: they would only use up a slot.
    fn push(&mut self, start: *mut u8, bytes: usize) {
        let bytes = bytes.min(CALL_BYTES_MAX - self.bytes);
        if bytes > 0 {
            self.slots[self.count].write(libc::iovec { iov_base: start.cast(), iov_len: bytes });
            self.count += 1;
            self.bytes += bytes;
        }
    }

    fn is_full(&self) -> bool {
        self.count == REGIONS_MAX || self.bytes == CALL_BYTES_MAX
    }

    /// The vector, if it is the only one: a call that takes no list is cheaper, most of all one that finds nothing.
    fn only(&self) -> Option<libc::iovec> {
        // SAFETY: the first of `count` slots was written.
        (self.count == 1).then(|| unsafe { self.slots[0].assume_init() })
    }

    fn message(&mut self) -> libc::msghdr {
        // SAFETY: `msghdr` is plain integers and pointers, for which all zeros means "nothing given".
        let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        message.msg_iov = self.slots.as_mut_ptr().cast();
        // The type of this field differs between C libraries; 64 fits in all of them.
        message.msg_iovlen = self.count as _;
        message
    }
}

/// Sends the bytes of the regions, in order, and returns how many were taken. It never waits.
///
/// Fewer bytes than given may be taken. With nothing to send, it returns 0 and makes no system call.
///
/// # Errors
///
/// `WouldBlock` if the socket has no room now; otherwise what the system says (`BrokenPipe` and the like; no signal is
/// raised).
pub fn send(fd: BorrowedFd<'_>, regions: &[Region<'_>]) -> io::Result<usize> {
    let mut vectors = Vectors::new();
    for region in regions {
        if vectors.is_full() {
            break;
        }
        vectors.push(region.as_ptr().cast_mut(), region.len());
    }
    if vectors.count == 0 {
        return Ok(0);
    }
    if let Some(libc::iovec { iov_base, iov_len }) = vectors.only() {
        return repeat_interrupted(|| {
            // SAFETY: the vector is readable for its length by the contract of `Region`, and send only reads.
            unsafe { libc::send(fd.as_raw_fd(), iov_base, iov_len, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) }
        });
    }
    let message = vectors.message();
    repeat_interrupted(|| {
        // SAFETY: `message` names `count` initialised vectors in `vectors`, which lives on; each vector is readable
        // for its length by the contract of `Region`, and sendmsg only reads.
        unsafe { libc::sendmsg(fd.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) }
    })
}

/// Receives bytes into the regions, in order, and returns how many came. It never waits. 0 means the end of the stream.
///
/// # Errors
///
/// `WouldBlock` if nothing has come yet; `InvalidInput` if the regions have no room at all (0 would be taken for the end
/// of the stream); otherwise what the system says.
pub fn receive(fd: BorrowedFd<'_>, regions: &[RegionMut<'_>]) -> io::Result<usize> {
    let mut vectors = Vectors::new();
    for region in regions {
        if vectors.is_full() {
            break;
        }
        vectors.push(region.as_mut_ptr(), region.len());
    }
    if vectors.count == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if let Some(libc::iovec { iov_base, iov_len }) = vectors.only() {
        return repeat_interrupted(|| {
            // SAFETY: the vector is writable for its length by the contract of `RegionMut`, and the kernel writes as any
            // other process would.
            unsafe { libc::recv(fd.as_raw_fd(), iov_base, iov_len, libc::MSG_DONTWAIT) }
        });
    }
    let mut message = vectors.message();
    repeat_interrupted(|| {
        // SAFETY: `message` names `count` initialised vectors in `vectors`, which lives on; each vector is writable
        // for its length by the contract of `RegionMut`, and the kernel writes as any other process would.
        unsafe { libc::recvmsg(fd.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) }
    })
}

/// The shortest time in microseconds in which an answer has come over a TCP connection, as its kernel has measured it.
/// `None` where it has not, or the socket is not one of TCP.
pub fn round_trip_us(fd: BorrowedFd<'_>) -> Option<u32> {
    /// Where `tcpi_min_rtt` stands in `struct tcp_info` of linux/tcp.h, which has only grown at its end.
    const AT: usize = 148;
    let mut info = [0_u8; 256];
    let mut bytes = info.len() as libc::socklen_t;
    // SAFETY: `info` is writable for the `bytes` that the call is told of, and it sets `bytes` to no more than that.
    let done = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut bytes)
    };
    let known = info.get(..bytes as usize).filter(|_| done == 0)?;
    let us = u32::from_ne_bytes(*known.get(AT..)?.first_chunk()?);
    // Both say that nothing was measured.
    Some(us).filter(|us| *us > 0 && *us < u32::MAX)
}

/// A signal that arrives during the call is no reason to come back.
fn repeat_interrupted(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(bytes) = usize::try_from(call()) {
            return Ok(bytes);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn scattered_regions_arrive_in_order_in_other_regions() {
        let (left, right) = UnixStream::pair().unwrap();
        let pieces: [&[u8]; 4] = [b"one", b"", b"-sided ", b"memory"];
        let regions = pieces.map(Region::from_slice);
        assert_eq!(send(left.as_fd(), &regions).unwrap(), 16);
        let (mut first, mut second) = ([0u8; 5], [0u8; 20]);
        let targets = [RegionMut::from_slice(&mut first), RegionMut::from_slice(&mut second)];
        assert_eq!(receive(right.as_fd(), &targets).unwrap(), 16);
        assert_eq!(&first, b"one-s");
        assert_eq!(&second[..11], b"ided memory");
    }

    #[test]
    fn the_round_trip_of_a_tcp_connection_is_known_and_that_of_another_socket_is_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let us = round_trip_us(caller.as_fd()).expect("the kernel has measured the handshake");
        assert!(us < 10_000_000, "{us} us on one machine");
        let (local, _other) = UnixStream::pair().unwrap();
        assert_eq!(round_trip_us(local.as_fd()), None);
    }

    #[test]
    fn one_call_looks_at_no_more_bytes_than_it_moves() {
        let bytes = vec![0; CALL_BYTES_MAX + 1];
        let mut vectors = Vectors::new();
        for part in [&bytes[..3], &bytes[..CALL_BYTES_MAX - 4], &bytes[..]] {
            assert!(!vectors.is_full());
            vectors.push(part.as_ptr().cast_mut(), part.len());
        }
        assert!(vectors.is_full());
        assert_eq!((vectors.count, vectors.bytes), (3, CALL_BYTES_MAX));
    }

    #[test]
    fn more_regions_than_one_call_takes_come_as_a_short_send() {
        let (left, right) = UnixStream::pair().unwrap();
        let bytes: Vec<u8> = (0..100).collect();
        let regions: Vec<Region<'_>> = bytes.chunks(1).map(Region::from_slice).collect();
        let sent = send(left.as_fd(), &regions).unwrap();
        assert_eq!(sent, REGIONS_MAX);
        assert_eq!(send(left.as_fd(), &regions[sent..]).unwrap(), 100 - REGIONS_MAX);
        let mut out = [0u8; 200];
        assert_eq!(receive(right.as_fd(), &[RegionMut::from_slice(&mut out)]).unwrap(), 100);
        assert_eq!(&out[..100], &bytes[..]);
    }

    #[test]
    fn an_empty_socket_would_block_and_a_closed_one_ends() {
        let (left, right) = UnixStream::pair().unwrap();
        let mut out = [0u8; 4];
        let room = [RegionMut::from_slice(&mut out)];
        assert_eq!(receive(right.as_fd(), &room).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(receive(right.as_fd(), &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        drop(left);
        assert_eq!(receive(right.as_fd(), &room).unwrap(), 0);
    }

    #[test]
    fn a_full_socket_would_block_and_a_broken_one_is_an_error_without_a_signal() {
        let (left, right) = UnixStream::pair().unwrap();
        let bytes = vec![7u8; 1 << 20];
        let regions = [Region::from_slice(&bytes)];
        let error = loop {
            if let Err(error) = send(left.as_fd(), &regions) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(right);
        assert_eq!(send(left.as_fd(), &regions).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(send(left.as_fd(), &[]).unwrap(), 0);
    }
}
