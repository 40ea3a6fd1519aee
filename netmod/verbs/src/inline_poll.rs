//! What is waited for where it was begun: a look at the completions of our own requests and at nothing else, so often as the caller
//! says, before any thread does other work or sleeps.
//!
//! A small get that ends within these looks borrows nothing, allocates nothing, and nobody else hears of it. One that does not
//! goes on as any other, with the same request.

use std::sync::Arc;

use longarm_memory::RegionMut;
use longarm_netmod::{InlinePoll, Loan};
use longarm_proto::{Run, WindowRef};

use crate::direct::KNOWN_BYTES_MIN;
use crate::requests::{Act, Kept, Move};
use crate::stream::Stream;
use crate::sys::{Data, Slab};

impl Stream {
    /// Takes up what has ended of our own requests, and looks at nothing else. An error is found by who next uses the stream.
    pub(crate) fn poll_sent(&mut self) {
        let mut finished = std::mem::take(&mut self.finished);
        let polled = self.queue.completions.poll_sent(&mut finished);
        self.fabric.counters.completions.add(finished.len());
        for entry in finished.drain(..) {
            self.take_up(&entry);
        }
        self.finished = finished;
        if polled.is_err() {
            self.fail("the device gives no completions");
        }
    }

    /// Gives a buffer back that was sent from, or read into.
    pub(crate) fn keep_slab(&mut self, slab: Slab) {
        // What is shared by all goes back to them.
        if self.promise.own.is_none() || slab.is_of(&self.fabric.own) {
            self.promise.own = Some(slab);
        }
    }

    pub(crate) fn get_polling(&mut self, target: &WindowRef, run: Run, into: RegionMut<'_>, looks: u32) -> InlinePoll {
        let bytes = into.len();
        // What is longer may be registered, and what waits goes first.
        let fits = bytes < KNOWN_BYTES_MIN && bytes <= self.fabric.outgoing.slab_bytes();
        let may = self.may_send && self.can_read && self.check().is_ok();
        let may = may && !self.batch.is_open;
        if !fits || !may || !self.direct.backlog.is_empty() || !self.has_room() {
            return InlinePoll::NotBegun;
        }
        let Some((remote, remote_key)) = self.remote_of(target, run) else { return InlinePoll::NotBegun };
        let Some(slab) = self.take_slab() else { return InlinePoll::NotBegun };
        let number = self.next_request();
        let span = [slab.span(bytes)];
        let read = Move { remote, remote_key, act: Act::Read };
        if self.post_direct(read, Data::Spans(&span), Kept::InlinePoll { slab, bytes }, bytes, None).is_err() {
            return InlinePoll::UnderWay;
        }
        for _ in 0..looks {
            self.poll_sent();
            if let Some((ended, slab)) = self.polled.take() {
                if ended == number {
                    into.copy_from(slab.region(bytes));
                    self.fabric.counters.copied_bytes.add(bytes);
                }
                self.keep_slab(slab);
                if ended == number {
                    return InlinePoll::Done;
                }
            }
            if self.check().is_err() {
                break;
            }
            std::hint::spin_loop();
        }
        InlinePoll::UnderWay
    }

    /// The read that was begun last goes on as a get of this number.
    pub(crate) fn lend_polled(&mut self, ticket: u64, into: Box<dyn Loan>) {
        let Some(request) = self.requests.back_mut() else { return };
        match std::mem::replace(&mut request.kept, Kept::Nothing) {
            Kept::InlinePoll { slab, bytes } => {
                request.kept = Kept::Landing { slab, loan: Arc::from(into), at: 0, bytes };
                request.ends = Some(ticket);
            }
            others => request.kept = others,
        }
    }

    /// Whether all that was begun has ended.
    pub(crate) fn look_for_ends(&mut self, looks: u32) -> bool {
        for _ in 0..looks {
            if self.check().is_err() || !self.direct.backlog.is_empty() || self.tell_the_rest().is_err() {
                return false;
            }
            self.poll_sent();
            if self.requests.is_empty() && self.direct.unproven.is_empty() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }
}
