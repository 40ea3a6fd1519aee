//! From the records to connected queues: at once, or over iWARP by the connection manager; and how such a connection ends.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use longarm_netmod::LinkError;
use longarm_proto::rdma::{KEEP_TCP, Record};
use rustix::io::Errno;

use super::{Agreeing, Side, Stage, Then, VerbsLink};
use crate::fabric::Fabric;
use crate::manager::Joining;
use crate::stream::{Promised, Stream, await_word};

/// For the second word that a connection of iWARP has ended.
const AWAITED_MS: i64 = 100;

/// A queue that the manager connects. The manager's part ends first.
pub(super) struct Meeting {
    /// `None`: nothing comes of it, and the caller will say so.
    pub(super) joining: Option<Joining>,
    queue: Promised,
    records: (Record, Record),
}

impl VerbsLink {
    pub(super) fn connected(&self, fabric: &Arc<Fabric>, queue: Promised, ours: &Record, theirs: &Record) -> Then {
        let about = (&self.shared, self.shared.known(&self.address));
        let connected = match ours.is_iwarp {
            true => self.meeting(fabric, queue, (*ours, *theirs)).map(|meeting| Then::Joining(Box::new(meeting))),
            false => Stream::connect(about, fabric, queue, (ours, theirs)).map(|stream| Then::Verbs(Box::new(stream))),
        };
        connected.unwrap_or_else(|errno| {
            self.say_no_way(errno);
            Then::Plain
        })
    }

    fn say_no_way(&self, errno: Errno) {
        let peer = self.peer_name.as_str();
        tracing::warn!(%errno, peer, "the device finds no way to a peer; the connection goes over TCP");
    }

    fn meeting(&self, fabric: &Fabric, queue: Promised, records: (Record, Record)) -> Result<Meeting, Errno> {
        let (ours, theirs) = &records;
        let manager = fabric.manager.as_ref().ok_or(Errno::NODEV)?;
        queue.0.prepare(fabric.port.number)?;
        let (number, reads) = (ours.connection | theirs.connection, ours.reads_in.min(theirs.reads_in));
        if number == 0 {
            // Without one nobody could tell this call from others.
            return Err(Errno::NODATA);
        }
        let joining = match self.side {
            Side::Caller => {
                let to = SocketAddr::new(Ipv6Addr::from(theirs.gid).to_canonical(), theirs.port);
                Joining::call(manager, to, number, reads)?
            }
            Side::Called => Joining::await_call(manager, number, reads)?,
        };
        Ok(Meeting { joining: Some(joining), queue, records })
    }

    /// Goes on with what the manager does.
    pub(super) fn join(&mut self) -> Result<(), LinkError> {
        let Stage::Joining(meeting) = &mut self.stage else { return Ok(()) };
        let advanced = meeting.joining.as_mut().map(|joining| joining.advance(&self.poller, &meeting.queue.0));
        match advanced {
            Some(Ok(true)) => return self.begin_joined(),
            Some(Ok(false)) | None => {}
            Some(Err(errno)) => {
                if let Some(joining) = meeting.joining.take() {
                    joining.give_up(&self.poller);
                }
                self.say_no_way(errno);
                if self.side == Side::Caller {
                    let then = Some(Then::Plain);
                    let agreeing = Agreeing { outgoing: vec![KEEP_TCP], then, ..Agreeing::default() };
                    self.stage = Stage::Agreeing(Box::new(agreeing));
                    return self.agree();
                }
            }
        }
        self.hear()
    }

    fn begin_joined(&mut self) -> Result<(), LinkError> {
        let Stage::Joining(meeting) = std::mem::replace(&mut self.stage, Stage::Plain) else {
            unreachable!("called in this stage")
        };
        let Meeting { joining, queue, records } = *meeting;
        let joined = joining.expect("it was made").finish();
        let fabric = self.shared.fabric().expect("it has a manager");
        let about = (&self.shared, self.shared.known(&self.address));
        let mut stream = Stream::joined(about, &fabric, (queue, joined), (&records.0, &records.1));
        if self.side == Side::Caller {
            stream.open()?;
        }
        self.begin(Then::Verbs(Box::new(stream)))
    }

    /// Whether something waits inside that no descriptor announces any more: bytes, or that the queue has failed, which may have been
    /// noticed while something was sent.
    pub(super) fn has_unannounced(&self) -> bool {
        let Stage::Verbs(stream) = &self.stage else { return false };
        stream.holds_bytes() || (self.ended.is_none() && stream.check().is_err())
    }

    /// Hears the end of the connection from TCP, and over iWARP from the manager too: what the device still brings comes before
    /// its word. Usually both come right behind each other, so who has heard one waits a little for the other. No error as long
    /// as something is there that came before the end.
    pub(super) fn hear_the_end(&mut self) -> Result<(), LinkError> {
        let mut heard = self.hear();
        let Stage::Verbs(stream) = &mut self.stage else { return heard };
        if !stream.is_iwarp() {
            return heard;
        }
        match heard {
            Err(_) => stream.await_end(),
            Ok(()) if stream.has_ended() => {
                self.tcp.descriptor().into_iter().for_each(|tcp| await_word(tcp, AWAITED_MS));
                heard = self.hear();
            }
            Ok(()) => return Ok(()),
        }
        let Stage::Verbs(stream) = &mut self.stage else { return heard };
        if stream.poll()? || stream.holds_bytes() {
            return Ok(());
        }
        heard.and_then(|()| Err(stream.fail("the connection between the devices has ended")))
    }
}
