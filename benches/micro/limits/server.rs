//! The other end of the socket limits: a process of its own, as the target's is.

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use super::Waiting;
use super::wire::{ANSWER_BYTES, Ask, Link, PAYLOAD_BYTES_MAX, REQUEST_BYTES, decode};
use crate::Failure;
use crate::cli::ServerArguments;
use crate::micro::sample::compute_for;
use crate::micro::{buffer, processors};

/// Prints its port, serves one connection and ends.
pub(crate) fn run(arguments: &ServerArguments) -> Result<(), Failure> {
    if let Some(processor) = arguments.processor {
        processors::stay_on(processor)?;
    }
    if arguments.busy {
        // It ends with the process.
        std::thread::spawn(|| compute_for(Duration::MAX));
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", listener.local_addr()?.port())?;
    stdout.flush()?;
    let (stream, _) = listener.accept()?;
    match serve(Link::new(stream, arguments.waiting)?) {
        Err(failure) if ended(&failure) => Ok(()),
        outcome => outcome,
    }
}

/// Whether the client has simply gone.
fn ended(failure: &Failure) -> bool {
    let kind = failure.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(kind, Some(ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
}

fn serve(mut link: Link) -> Result<(), Failure> {
    let mut memory = buffer::private(PAYLOAD_BYTES_MAX)?;
    let mut header = [0; REQUEST_BYTES];
    let answer = [0; ANSWER_BYTES];
    loop {
        link.read(&mut header, &mut [])?;
        match decode(&header)? {
            (Ask::Put, bytes) => {
                link.read(&mut memory[..bytes], &mut [])?;
                link.write(&answer, &[])?;
            }
            (Ask::Get, bytes) => link.write(&answer, &memory[..bytes])?,
        }
    }
}

impl Waiting {
    /// How it is said on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Waiting::Spin => "spin",
            Waiting::Block => "block",
            Waiting::Epoll => "epoll",
        }
    }
}
