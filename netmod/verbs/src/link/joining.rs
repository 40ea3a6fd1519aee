//! From the records to connected queues: at once, or over iWARP by the connection manager; and how such a connection ends.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use longarm_netmod::LinkError;
use longarm_proto::rdma::{KEEP_TCP, Record};
use rustix::io::Errno;

use super::phase::{Agreeing, Phase, QueueBeingJoined, Then};
use super::{Side, VerbsLink};
use crate::fabric::Fabric;
use crate::manager::Joining;
use crate::patience::await_word;
use crate::stream::{Promised, Stream};

/// For the second word that a connection of iWARP has ended, where that of the manager comes first.
const MOMENTS_AWAITED: u32 = 10;

impl VerbsLink {
    pub(super) fn connected(&self, fabric: &Arc<Fabric>, queue: Promised, ours: &Record, theirs: &Record) -> Then {
        let about = (&self.shared, self.shared.known(&self.address));
        let connected = match ours.is_iwarp {
            true => self
                .begin_joining(fabric, queue, (*ours, *theirs))
                .map(|being_joined| Then::Joining(Box::new(being_joined))),
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

    fn begin_joining(
        &self,
        fabric: &Fabric,
        queue: Promised,
        records: (Record, Record),
    ) -> Result<QueueBeingJoined, Errno> {
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
        Ok(QueueBeingJoined { joining: Some(joining), queue, records })
    }

    /// Goes on with what the manager does.
    pub(super) fn join(&mut self) -> Result<(), LinkError> {
        let Phase::Joining(being_joined) = &mut self.phase else { return Ok(()) };
        let advanced =
            being_joined.joining.as_mut().map(|joining| joining.advance(&self.poller, &being_joined.queue.0));
        match advanced {
            Some(Ok(true)) => return self.begin_joined(),
            Some(Ok(false)) | None => {}
            Some(Err(errno)) => {
                if let Some(joining) = being_joined.joining.take() {
                    joining.give_up(&self.poller);
                }
                self.say_no_way(errno);
                if self.side == Side::Caller {
                    let then = Some(Then::Plain);
                    let agreeing = Agreeing { outgoing: vec![KEEP_TCP], then, ..Agreeing::default() };
                    self.phase = Phase::Agreeing(Box::new(agreeing));
                    return self.agree();
                }
            }
        }
        self.hear()
    }

    fn begin_joined(&mut self) -> Result<(), LinkError> {
        let Phase::Joining(being_joined) = std::mem::replace(&mut self.phase, Phase::Plain) else {
            unreachable!("called in this phase")
        };
        let QueueBeingJoined { joining, queue, records } = *being_joined;
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
        let Phase::Verbs(stream) = &self.phase else { return false };
        stream.holds_bytes() || (self.ended.is_none() && stream.check().is_err())
    }

    /// Hears the end of the connection from TCP, and over iWARP from the manager too: what the device still brings comes before
    /// its word. Usually both come right behind each other, so who has heard one waits a little for the other. No error as long
    /// as something is there that came before the end.
    pub(super) fn hear_the_end(&mut self) -> Result<(), LinkError> {
        let mut heard = self.hear();
        let Phase::Verbs(stream) = &mut self.phase else { return heard };
        if !stream.is_iwarp() {
            return heard;
        }
        match heard {
            Err(_) => stream.await_end(),
            Ok(()) if stream.has_ended() => {
                if let Some(tcp) = self.tcp.descriptor() {
                    stream.fabric.patience.wait(MOMENTS_AWAITED, || await_word(tcp));
                }
                heard = self.hear();
            }
            Ok(()) => return Ok(()),
        }
        let Phase::Verbs(stream) = &mut self.phase else { return heard };
        if stream.poll()? || stream.holds_bytes() {
            return Ok(());
        }
        heard.and_then(|()| Err(stream.fail("the connection between the devices has ended")))
    }
}
