//! The two ends of the plainest request server over TCP.
//!
//! Every request is a header of [`REQUEST_BYTES`], a put's with its payload behind; every answer is one of
//! [`REPLY_BYTES`], a get's with the data behind. The sizes are those of longarm's frames.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;

use longarm_proto::{HEADER_BYTES, REPLY_BYTES};
use rustix::event::epoll;
use rustix::fd::OwnedFd;

use super::Waiting;
use crate::Failure;

pub(super) const REQUEST_BYTES: usize = HEADER_BYTES;
pub(super) const ANSWER_BYTES: usize = REPLY_BYTES;
/// The largest payload.
pub(super) const PAYLOAD_BYTES_MAX: usize = 4 << 20;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The payload behind the header is taken.
    Put,
    /// Bytes come behind the answer.
    Get,
}

pub(super) fn encode(ask: Ask, bytes: usize) -> [u8; REQUEST_BYTES] {
    let mut header = [0; REQUEST_BYTES];
    header[0] = u8::from(ask == Ask::Get);
    header[8..16].copy_from_slice(&(bytes as u64).to_le_bytes());
    header
}

pub(super) fn decode(header: &[u8; REQUEST_BYTES]) -> io::Result<(Ask, usize)> {
    let ask = if header[0] == 0 { Ask::Put } else { Ask::Get };
    let length = header[8..16].try_into().expect("eight bytes are eight bytes");
    let bytes = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok((ask, bytes))
}

/// A connection that waits in one way.
pub(super) struct Link {
    stream: TcpStream,
    epoll: Option<OwnedFd>,
}

impl Link {
    pub(super) fn new(stream: TcpStream, waiting: Waiting) -> Result<Link, Failure> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(waiting != Waiting::Block)?;
        let epoll = match waiting {
            Waiting::Epoll => {
                let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                epoll::add(&watch, &stream, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
                Some(watch)
            }
            Waiting::Spin | Waiting::Block => None,
        };
        Ok(Link { stream, epoll })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn wait(&self) -> io::Result<()> {
        let Some(watch) = &self.epoll else {
            std::hint::spin_loop();
            return Ok(());
        };
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        match epoll::wait(watch, &mut events, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Fills `first`, then `second`, with as few reads as it takes.
    pub(super) fn read(&mut self, first: &mut [u8], second: &mut [u8]) -> io::Result<()> {
        let (mut done, all) = (0, first.len() + second.len());
        while done < all {
            let got = if done < first.len() {
                self.stream.read_vectored(&mut [IoSliceMut::new(&mut first[done..]), IoSliceMut::new(second)])
            } else {
                self.stream.read(&mut second[done - first.len()..])
            };
            match got {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait()?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends both, with as few writes as it takes.
    pub(super) fn write(&mut self, first: &[u8], second: &[u8]) -> io::Result<()> {
        let (mut done, all) = (0, first.len() + second.len());
        while done < all {
            let sent = if done < first.len() {
                self.stream.write_vectored(&[IoSlice::new(&first[done..]), IoSlice::new(second)])
            } else {
                self.stream.write(&second[done - first.len()..])
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => done += bytes,
                // Room comes soon: the other end reads.
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written_and_too_long_a_one_is_refused() {
        assert_eq!(decode(&encode(Ask::Get, 8)).unwrap(), (Ask::Get, 8));
        assert_eq!(decode(&encode(Ask::Put, PAYLOAD_BYTES_MAX)).unwrap(), (Ask::Put, PAYLOAD_BYTES_MAX));
        assert!(decode(&encode(Ask::Get, PAYLOAD_BYTES_MAX + 1)).is_err());
    }
}
