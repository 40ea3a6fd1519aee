//! How far a connection has come: from the proof to a queue, or to bytes over TCP.

use longarm_proto::rdma::Record;

use crate::manager::Joining;
use crate::stream::{Promised, Stream};

pub(super) enum Phase {
    /// What the owner sends and receives goes over TCP.
    Proving,
    Agreeing(Box<Agreeing>),
    /// The connection manager connects the queues.
    Joining(Box<QueueBeingJoined>),
    Verbs(Box<Stream>),
    Plain,
}

/// The records on their way.
#[derive(Default)]
pub(super) struct Agreeing {
    pub(super) outgoing: Vec<u8>,
    pub(super) sent: usize,
    pub(super) incoming: Vec<u8>,
    /// Ours, once it was made: with a queue if it says so.
    pub(super) ours: Option<(Record, Option<Promised>)>,
    /// What follows once `outgoing` is out.
    pub(super) then: Option<Then>,
}

pub(super) enum Then {
    Joining(Box<QueueBeingJoined>),
    Verbs(Box<Stream>),
    Plain,
}

/// A queue pair on its way from the records to a connection that the manager makes. The manager's part ends first.
pub(super) struct QueueBeingJoined {
    /// `None`: nothing comes of it, and the caller will say so.
    pub(super) joining: Option<Joining>,
    pub(super) queue: Promised,
    pub(super) records: (Record, Record),
}
