//! What is different over iWARP: who connects, where immediate data stands, and how the end is noticed.

use std::sync::Arc;

use longarm_netmod::LinkError;
use longarm_proto::rdma::Record;
use rustix::io::Errno;

use super::{Outgoing, Promised, Stream};
use crate::fabric::Fabric;
use crate::keys::Known;
use crate::manager::Joined;
use crate::packets::IMMEDIATE_BYTES;
use crate::patience::await_word;
use crate::peers::Peers;
use crate::requests::{Act, Kept, Move};
use crate::sys::{Data, Finished, Slab};

/// Looks in vain before the connection manager is asked again.
const LOOKS: u8 = 64;

impl Stream {
    /// Takes a queue that the manager has connected.
    pub(crate) fn joined(
        about: (&Arc<Peers>, Arc<Known>),
        fabric: &Arc<Fabric>,
        (queue, joined): (Promised, Joined),
        records: (&Record, &Record),
    ) -> Stream {
        let mut stream = Stream::over(about, fabric, queue, records);
        stream.joined = Some(joined);
        stream
    }

    pub(crate) fn is_iwarp(&self) -> bool {
        self.joined.is_some()
    }

    /// What a message takes beside its bytes.
    pub(super) fn immediate_bytes(&self) -> usize {
        if self.is_iwarp() { IMMEDIATE_BYTES } else { 0 }
    }

    /// Whether the connection manager says that the connection has ended. A device may do that without a word to the queue.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.joined.as_mut().is_some_and(Joined::has_ended)
    }

    /// The same for who looks again and again and never sleeps: asked once in a while, as it is a system call. Soft iWARP says
    /// nothing of requests that are posted after the end.
    pub(crate) fn has_ended_lately(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(u8::from(self.is_iwarp()));
        self.looks >= LOOKS && {
            self.looks = 0;
            self.has_ended()
        }
    }

    /// The peer is gone: waits until all that it has sent before is here, as far as it comes.
    pub(crate) fn await_end(&mut self) {
        let Some(joined) = &mut self.joined else { return };
        if joined.has_ended() {
            return;
        }
        self.fabric.patience.wait(u32::MAX, || {
            await_word(joined.descriptor());
            joined.has_ended()
        });
    }

    /// Lets the peer send: over iWARP the caller's side has to begin.
    pub(crate) fn open(&mut self) -> Result<(), LinkError> {
        if self.is_iwarp() { self.post(Outgoing { slab: None, bytes: 0, is_note: false }, &[]) } else { Ok(()) }
    }

    /// How many bytes a message has, and its immediate data.
    pub(super) fn read_immediate(&mut self, slab: &Slab, entry: &Finished) -> Option<(usize, u32)> {
        let bytes = entry.bytes as usize;
        if !self.is_iwarp() {
            return Some((bytes, entry.immediate));
        }
        self.taken.pass_message(0);
        // The caller has begun.
        self.may_send = true;
        let without = bytes.checked_sub(IMMEDIATE_BYTES)?;
        let mut immediate = [0; IMMEDIATE_BYTES];
        slab.region(bytes).slice(without, IMMEDIATE_BYTES).copy_to_slice(&mut immediate);
        Some((without, u32::from_le_bytes(immediate)))
    }

    /// Ends the queue. Returns which packet it would have taken next, or which message.
    pub(super) fn end(&mut self) -> Result<u32, Errno> {
        let Some(joined) = &self.joined else { return self.queue.end() };
        joined.disconnect();
        self.queue.stop()?;
        // What has come before counts.
        let _ = self.poll();
        Ok(self.taken.next())
    }

    /// What is to be proven after such a request.
    pub(crate) fn note_way(&mut self, what: Move) {
        if self.is_iwarp() {
            self.direct.to_prove = (!what.act.returns_bytes()).then_some((what.remote, what.remote_key));
        }
    }

    /// Reads a byte behind writes, where nothing else is read: when it comes they have arrived.
    pub(crate) fn read_behind(&mut self) -> Result<(), LinkError> {
        let waits = self.answers_due.any() || !self.direct.backlog.is_empty() || !self.has_room_for(1);
        let (Some((remote, remote_key)), false) = (self.direct.to_prove, waits) else { return Ok(()) };
        let sink = self.fabric.sink.as_ref().map(|sink| sink.span(1));
        let span = [sink.expect("there is one where there is a manager")];
        let what = Move { remote, remote_key, act: Act::Read };
        self.post_direct(what, Data::Spans(&span), Kept::Nothing, 1, None)
    }
}
