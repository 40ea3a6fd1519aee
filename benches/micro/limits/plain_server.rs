//! One plain server for several clients: threads that sleep in epoll and answer whoever has asked, each with its share
//! of the connections. What a server thread can do at most, and what more of them would bring.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};

use rustix::event::epoll;

use super::Waiting;
use super::wire::{ANSWER_BYTES, Ask, Link, PAYLOAD_BYTES_MAX, REQUEST_BYTES, decode};
use crate::Failure;
use crate::micro::buffer;

/// How many connections are reported ready at a time.
const EVENTS: usize = 64;

/// A server that no client has reached yet.
pub(crate) struct PlainServer {
    listener: TcpListener,
}

impl PlainServer {
    pub(crate) fn new() -> Result<PlainServer, Failure> {
        Ok(PlainServer { listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0))? })
    }

    pub(crate) fn port(&self) -> Result<u16, Failure> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Serves that many clients on that many threads, until all clients are gone.
    pub(crate) fn serve(self, clients: usize, threads: usize) -> Result<(), Failure> {
        let mut shares: Vec<Vec<Link>> = (0..threads).map(|_| Vec::new()).collect();
        for client in 0..clients {
            let (stream, _) = self.listener.accept()?;
            // A request whose rest is under way is worth a few looks: clients send it whole.
            shares[client % threads].push(Link::new(stream, Waiting::Spin)?);
        }
        std::thread::scope(|scope| {
            let servers: Vec<_> = shares.into_iter().map(|links| scope.spawn(|| serve_share(links))).collect();
            servers.into_iter().try_for_each(|server| server.join().map_err(|_| "a plain server has panicked")?)
        })
    }
}

fn serve_share(mut links: Vec<Link>) -> Result<(), Failure> {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (place, link) in links.iter().enumerate() {
        epoll::add(&watch, link.stream(), epoll::EventData::new_u64(place as u64), epoll::EventFlags::IN)?;
    }
    let mut memory = buffer::private(PAYLOAD_BYTES_MAX)?;
    let mut here = links.len();
    let nothing = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
    let mut events = [nothing; EVENTS];
    while here > 0 {
        let ready = match epoll::wait(&watch, &mut events, None) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        for event in &events[..ready] {
            let link = &mut links[event.data.u64() as usize];
            match answer(link, &mut memory) {
                Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                    epoll::delete(&watch, link.stream())?;
                    here -= 1;
                }
                outcome => outcome?,
            }
        }
    }
    Ok(())
}

fn answer(link: &mut Link, memory: &mut [u8]) -> std::io::Result<()> {
    let mut header = [0; REQUEST_BYTES];
    let answer = [0; ANSWER_BYTES];
    link.read(&mut header, &mut [])?;
    match decode(&header)? {
        (Ask::Put, bytes) => {
            link.read(&mut memory[..bytes], &mut [])?;
            link.write(&answer, &[])
        }
        (Ask::Get, bytes) => link.write(&answer, &memory[..bytes]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::limits::Client;

    #[test]
    fn every_client_is_answered_and_the_server_ends_when_all_are_gone() {
        let plain = PlainServer::new().unwrap();
        let port = plain.port().unwrap();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| plain.serve(3, 2).map_err(|failure| failure.to_string()));
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut client = Client::connect(port, Waiting::Block).unwrap();
                    for ask in [Ask::Put, Ask::Get] {
                        client.once(ask, 100_000).unwrap();
                    }
                });
            }
            server.join().unwrap().unwrap();
        });
    }
}
