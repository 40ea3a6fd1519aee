//! What the machine itself allows, measured by the plainest programs that do the same.
//!
//! They are what a careful program reaches, not laws of nature: longarm may beat one of them.

mod memory;
mod plain_server;
pub(crate) mod server;
mod socket;
mod wire;

pub(crate) use memory::measure as measure_memory;
pub(crate) use plain_server::PlainServer;
pub(crate) use socket::{Client, measure as measure_sockets};
pub(crate) use wire::Ask;

/// How one end of a socket waits for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Waiting {
    /// It looks again and again.
    Spin,
    /// It sleeps in a blocking read.
    Block,
    /// It sleeps in epoll, as the thread of a server does.
    Epoll,
}
