//! One TCP connection.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use longarm_memory::{CALL_BYTES_MAX, Region, RegionMut};
use rustix::io::Errno;

use super::options::{SocketBuffers, TcpOptions};
use super::{congestion, socket};
use crate::flow::INCOMING_BYTES;
use crate::link_error::{LinkError, moved};
use crate::traits::Link;

/// What is sent of a long transfer at a time is more than this, also if it is packed from short runs or encrypted.
const SHORT_BYTES: usize = 8 << 10;

/// What is settled when the way is known.
#[derive(Clone)]
pub(super) struct Unproven {
    /// Buffers are chosen by the round trip.
    chooses_buffers: bool,
    /// What the system would have, where something else was chosen for a short way.
    congestion: Option<Arc<str>>,
}

impl Unproven {
    /// Of a fresh socket, and of those that it accepts.
    pub(super) fn choose(socket: &OwnedFd, options: &TcpOptions) -> Result<Self, LinkError> {
        let chooses_buffers = options.socket_buffers == SocketBuffers::ByRoundTrip;
        Ok(Self { chooses_buffers, congestion: options.congestion.choose(socket)? })
    }
}

/// What moves one way over a link at a stretch. While the other side keeps up a socket is never full, and never empty: a thread would move
/// gigabytes before it looks after anything else, the server that it drives for instance. So behind [`CALL_BYTES_MAX`] bytes
/// the link says once that it can move none. Its descriptor announces all the while that it can.
#[derive(Default)]
struct Stretch {
    bytes: usize,
}

impl Stretch {
    /// Whether it is over. Then another one begins.
    fn take_over(&mut self) -> bool {
        let is_over = self.bytes >= CALL_BYTES_MAX;
        if is_over {
            self.bytes = 0;
        }
        is_over
    }

    /// What a call has moved. `ends`: whoever makes such calls stops behind this one by
    /// itself.
    fn note(&mut self, moved: usize, ends: bool) -> usize {
        self.bytes = if moved == 0 || ends { 0 } else { self.bytes + moved };
        moved
    }
}

/// A [`Link`] over TCP.
pub(super) struct TcpLink {
    socket: OwnedFd,
    remote: SocketAddr,
    peer_name: String,
    /// Where it is being connected to; `None` once it is.
    connecting: Option<SocketAddr>,
    unproven: Unproven,
    sending: Stretch,
    receiving: Stretch,
    /// By which its listener counts the links that are open.
    _counted: Option<Arc<()>>,
}

impl TcpLink {
    pub(super) fn new(socket: OwnedFd, remote: SocketAddr, unproven: Unproven) -> Self {
        let (sending, receiving) = Default::default();
        let peer_name = remote.to_string();
        Self { socket, remote, peer_name, connecting: None, unproven, sending, receiving, _counted: None }
    }

    /// The same, as one that its listener counts.
    pub(super) fn counted(self, by: &Arc<()>) -> Self {
        Self { _counted: Some(Arc::clone(by)), ..self }
    }

    /// Begins to connect a fresh socket.
    pub(super) fn connect(socket: OwnedFd, remote: SocketAddr, unproven: Unproven) -> Result<Self, LinkError> {
        let mut link = Self { connecting: Some(remote), ..Self::new(socket, remote, unproven) };
        link.settle()?;
        Ok(link)
    }

    /// Whether both ends have one address.
    fn is_on_this_machine(&self) -> bool {
        socket::local_address(&self.socket).is_ok_and(|local| local.ip() == self.remote.ip())
    }

    /// Whether it is connected; asks the kernel while it is not.
    fn settle(&mut self) -> Result<bool, LinkError> {
        let Some(remote) = self.connecting else { return Ok(true) };
        match rustix::net::connect(&self.socket, &remote) {
            Ok(()) | Err(Errno::ISCONN) => {}
            // An interrupted attempt goes on by itself, like one that takes its time.
            Err(Errno::INPROGRESS | Errno::INTR | Errno::ALREADY) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
        if socket::local_address(&self.socket)? == remote {
            // On one machine the kernel may lend the very port we call as ours, and TCP then connects to itself.
            return Err(LinkError::Refused);
        }
        self.connecting = None;
        Ok(true)
    }
}

impl Link for TcpLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        if self.connecting.is_some() && !self.settle()? {
            return Ok(0);
        }
        if self.sending.take_over() {
            return Ok(0);
        }
        let offered: usize = regions.iter().map(Region::len).sum();
        let sent = moved(longarm_memory::send(self.socket.as_fd(), regions))?;
        // A few small requests are all that there is to send.
        Ok(self.sending.note(sent, offered < SHORT_BYTES))
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        if regions.iter().all(|region| region.is_empty()) || (self.connecting.is_some() && !self.settle()?) {
            // Nothing can come, and that must not look like the end of the stream.
            return Ok(0);
        }
        if self.receiving.take_over() {
            return Ok(0);
        }
        let room: usize = regions.iter().map(RegionMut::len).sum();
        match longarm_memory::receive(self.socket.as_fd(), regions) {
            // There was room, so no bytes means that none will come.
            Ok(0) => Err(LinkError::Closed),
            other => {
                let received = moved(other)?;
                // Who receives into a buffer that is not filled takes it that nothing more is there. A long payload goes on.
                Ok(self.receiving.note(received, received < room && room <= INCOMING_BYTES))
            }
        }
    }

    fn on_proven(&mut self) {
        // There the time says only who had the processor.
        if self.remote.ip().is_loopback() || self.is_on_this_machine() {
            return;
        }
        let round_trip_us = longarm_memory::round_trip_us(self.socket.as_fd());
        let short_us = round_trip_us.filter(|us| *us <= socket::ROUND_TRIP_US_MAX);
        if let Some(name) = &self.unproven.congestion
            && short_us.is_none()
        {
            congestion::go_back(&self.socket, name);
        }
        if self.unproven.chooses_buffers
            && let Some(bytes) = short_us.and_then(|us| socket::buffer_bytes(us, socket::buffer_bytes_max()))
        {
            // If that is refused the kernel goes on choosing, which is only slower.
            let _ = socket::set_buffers(&self.socket, bytes);
        }
    }

    fn stands_alone(&self) -> bool {
        true
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn peer_name(&self) -> &str {
        &self.peer_name
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use rustix::event::{PollFd, PollFlags};

    use super::*;

    /// A link, and a stream at its other end.
    fn link_and_stream() -> (TcpLink, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, remote) = listener.accept().unwrap();
        let unproven = Unproven { chooses_buffers: false, congestion: None };
        (TcpLink::new(OwnedFd::from(caller), remote, unproven), stream)
    }

    /// Moves bytes whenever the socket can, until the link says that it cannot; gives how many.
    fn stretch(link: &mut TcpLink, flags: PollFlags, mut once: impl FnMut(&mut TcpLink) -> usize) -> usize {
        let mut bytes = 0;
        while bytes < 4 * CALL_BYTES_MAX {
            let mut events = [PollFd::new(&link.socket, flags)];
            rustix::event::poll(&mut events, None).unwrap();
            match once(link) {
                0 => break,
                moved => bytes += moved,
            }
        }
        bytes
    }

    #[test]
    fn a_long_transfer_stops_now_and_then_though_the_socket_goes_on() {
        let mut buffer = vec![0; 3 * CALL_BYTES_MAX];
        let between = CALL_BYTES_MAX..2 * CALL_BYTES_MAX;

        let (mut link, mut stream) = link_and_stream();
        let writer = std::thread::spawn(move || while stream.write_all(&[0; 1 << 16]).is_ok() {});
        for _ in 0..3 {
            let target = [RegionMut::from_slice(&mut buffer)];
            let received = stretch(&mut link, PollFlags::IN, |link| link.receive(&target).unwrap());
            assert!(between.contains(&received), "{received} bytes");
        }
        drop(link);
        writer.join().unwrap();

        let (mut link, mut stream) = link_and_stream();
        let reader = std::thread::spawn(move || while stream.read(&mut [0; 1 << 16]).is_ok_and(|bytes| bytes > 0) {});
        for _ in 0..3 {
            let source = [Region::from_slice(&buffer)];
            let sent = stretch(&mut link, PollFlags::OUT, |link| link.send(&source).unwrap());
            assert!(between.contains(&sent), "{sent} bytes");
        }
        drop(link);
        reader.join().unwrap();
    }

    #[test]
    fn pieces_of_a_long_transfer_stop_too_and_small_requests_do_not() {
        let buffer = vec![0; 64 << 10];
        for (bytes, stops) in [(64 << 10, true), (SHORT_BYTES, true), (SHORT_BYTES - 1, false)] {
            let (mut link, mut stream) = link_and_stream();
            let reader =
                std::thread::spawn(move || while stream.read(&mut [0; 1 << 16]).is_ok_and(|bytes| bytes > 0) {});
            let source = [Region::from_slice(&buffer[..bytes])];
            let sent = stretch(&mut link, PollFlags::OUT, |link| link.send(&source).unwrap());
            assert_eq!(sent < 2 * CALL_BYTES_MAX, stops, "{sent} bytes by {bytes}");
            drop(link);
            reader.join().unwrap();
        }
        let (mut link, mut stream) = link_and_stream();
        let writer = std::thread::spawn(move || while stream.write_all(&[0; 1 << 16]).is_ok() {});
        // Of a payload of which each call takes in less than there is room for.
        let mut buffer = vec![0; 520 << 10];
        let target = [RegionMut::from_slice(&mut buffer)];
        let received = stretch(&mut link, PollFlags::IN, |link| link.receive(&target).unwrap());
        assert!((CALL_BYTES_MAX..2 * CALL_BYTES_MAX).contains(&received), "{received} bytes");
        drop(link);
        writer.join().unwrap();
    }
}
