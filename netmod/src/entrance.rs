//! Where the peers of one listener come in: how many may stand there unproven, and which of them make room for others.
//!
//! ```text
//!   listener ──► waiting, looked at ──► proven ──► welcomed ──► admitted
//!                     │                     └────► dismissed, by the owner's word
//!                     └── refused, too late, or to make room for another one
//! ```
//!
//! Servers and routers have one each, and drive it: it never blocks and reads no clock. The rules keep honest callers in, also when
//! all of a large job call at once, and strangers from keeping them out:
//!
//! - No peer is taken in for which there is no room. It waits in the system's queue, or the network's, and loses nothing.
//! - A peer that is taken in is looked at at once, and again before any may be dropped: what has arrived counts.
//! - The peer that has let us wait longest makes room, and only after [`PATIENCE_MS`]. What it has to say needs a moment, also of its own processor.
//! - A proven one is never dropped to make room.
//!
//! The room is one place for each caller that the job can have, and some for strangers. So honest callers make room for each other
//! only where strangers have taken more than theirs.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use longarm_proto::{Identity, Reception, Session};
use slab::Slab;

use crate::accept::{Acceptor, AcceptorStep, Admission};
use crate::interest::Interest;
use crate::poller::Poller;
use crate::refusals::Refusals;
use crate::traits::{Link, Listener};

/// Connections that one call takes in, so that those who flood us do not keep the others waiting.
const ACCEPTS_PER_TURN: usize = 64;
/// So long may a peer let us wait for its next word before it may have to make room. Each word that moves the handshake on, of which
/// strangers have one, gives it as long again.
pub const PATIENCE_MS: u64 = 100;

/// What an entrance is made of.
pub struct EntranceOptions {
    /// What lets peers in.
    pub admission: Admission,
    /// Connections that have not proven themselves yet, at most.
    pub places: usize,
    /// How long a connection may take to prove itself, in milliseconds.
    pub handshake_timeout_ms: u64,
}

/// Under which tokens the owner's poller tells of an entrance.
#[derive(Clone, Copy, Debug)]
pub struct EntranceTokens {
    /// Somebody has come: [`Entrance::take_in`].
    pub listener: u64,
    /// With a number below 2³² added: [`Entrance::look`] with that number.
    pub waiting: u64,
}

/// What the owner of an entrance has to decide, or gets.
pub enum EntranceStep {
    /// A peer has proven itself. It waits for [`Entrance::welcome`] or [`Entrance::dismiss`].
    Proven {
        /// Where it stands.
        number: usize,
        /// Who it is.
        identity: Identity,
        /// Which session it wants to carry on.
        session: Session,
    },
    /// It was welcomed. The owner's poller no longer watches the link.
    Admitted {
        /// The connection.
        link: Box<dyn Link>,
        /// Who is at its other end.
        identity: Identity,
        /// The session that it carries.
        session: Session,
    },
}

/// See the module.
pub struct Entrance {
    options: EntranceOptions,
    tokens: EntranceTokens,
    poller: Arc<Poller>,
    /// `None` once nobody is taken in any more.
    listener: Option<Box<dyn Listener>>,
    waiting: Slab<Waiting>,
    /// Those who may have to make room, by since when they let us wait.
    order: BTreeSet<(u64, usize)>,
    steps: VecDeque<EntranceStep>,
    refusals: Refusals,
    /// No connection could be taken in a moment ago. Most likely no descriptor was free.
    rests: bool,
    /// There was no room for more.
    is_full: bool,
    /// Somebody may be left whom nothing announces again.
    comes_again: bool,
    /// What the poller looks for at the listener.
    watched: Interest,
}

struct Waiting {
    acceptor: Acceptor,
    /// Since when it lets us wait for its next word.
    since_ms: u64,
    /// How far it had come then.
    steps_taken: u8,
    /// It only waits for us, or has been welcomed.
    is_proven: bool,
    /// What the poller looks for.
    watched: Interest,
}

/// Whether one more can be taken in.
enum Vacancy {
    Free,
    /// If this one goes.
    Of(usize),
    Taken,
}

impl Entrance {
    /// Watches the listener with the owner's poller.
    ///
    /// # Errors
    /// The poller's.
    pub fn new(
        listener: Box<dyn Listener>,
        poller: &Arc<Poller>,
        tokens: EntranceTokens,
        options: EntranceOptions,
    ) -> std::io::Result<Entrance> {
        if let Some(descriptor) = listener.descriptor() {
            poller.add(descriptor, tokens.listener, Interest::READABLE)?;
        }
        Ok(Entrance { listener: Some(listener), ..Entrance::closed(poller, tokens, options) })
    }

    /// One by which nobody ever comes.
    pub fn closed(poller: &Arc<Poller>, tokens: EntranceTokens, options: EntranceOptions) -> Entrance {
        Entrance {
            options,
            tokens,
            poller: Arc::clone(poller),
            listener: None,
            waiting: Slab::new(),
            order: BTreeSet::new(),
            steps: VecDeque::new(),
            refusals: Refusals::default(),
            rests: false,
            is_full: false,
            comes_again: false,
            watched: Interest::READABLE,
        }
    }

    /// Nobody is taken in any more. Who stands here goes on.
    pub fn close(&mut self) {
        self.listener = None;
        self.comes_again = false;
    }

    /// Whether somebody is still taken in.
    pub fn is_open(&self) -> bool {
        self.listener.is_some()
    }

    /// How many have not proven themselves, or not been welcomed yet.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether that is nobody.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether [`Entrance::look_after`] has something to do some time, which no descriptor announces.
    pub fn has_time_limits(&self) -> bool {
        self.rests || !self.waiting.is_empty()
    }

    /// Whether [`Entrance::take_in`] has to be called again in the owner's next turn, which nothing announces.
    pub fn comes_again(&self) -> bool {
        self.comes_again
    }

    /// What the owner has to see to next. After each of the other calls this is asked until there is nothing.
    pub fn next_step(&mut self) -> Option<EntranceStep> {
        self.steps.pop_front()
    }

    /// Takes in new connections, as many as there is room for. True if anything moved.
    pub fn take_in(&mut self, now_ms: u64) -> bool {
        self.comes_again = false;
        if self.rests {
            // A listener that is ended speaks up however little it is watched.
            return false;
        }
        let mut moved = false;
        for taken in 1..=ACCEPTS_PER_TURN {
            let place = self.place(now_ms);
            self.is_full = matches!(place, Vacancy::Taken);
            let Some(listener) = self.listener.as_mut().filter(|_| !self.is_full) else { break };
            let link = match listener.accept() {
                Ok(Some(link)) => link,
                Ok(None) => break,
                Err(error) => {
                    // The listener stays readable, so it is not watched for a while.
                    tracing::warn!(node = self.options.admission.me.0, "cannot take in a connection: {error}");
                    self.rests = true;
                    break;
                }
            };
            moved = true;
            if let Vacancy::Of(number) = place {
                self.dismiss(number, now_ms, format_args!("too many connections have not proven themselves"));
            }
            self.receive(link, now_ms);
            self.comes_again = taken == ACCEPTS_PER_TURN;
        }
        self.watch_listener();
        moved
    }

    /// As [`Listener::cork`].
    pub fn cork(&mut self) {
        if let Some(listener) = &mut self.listener {
            listener.cork();
        }
    }

    /// As [`Listener::uncork`].
    pub fn uncork(&mut self) {
        if let Some(listener) = &mut self.listener {
            listener.uncork();
        }
    }

    /// Goes on with one handshake. True if anything moved.
    pub fn look(&mut self, number: usize, now_ms: u64) -> bool {
        let Some(waiting) = self.waiting.get_mut(number) else { return false };
        match waiting.acceptor.poll(now_ms) {
            AcceptorStep::Pending => self.keep(number, now_ms),
            AcceptorStep::Refused(reason) => {
                self.refusals.note(self.options.admission.me, now_ms, format_args!("a connection: {reason}"));
                self.remove(number);
                true
            }
            AcceptorStep::Proven { identity, session } => {
                waiting.is_proven = true;
                self.order.remove(&(waiting.since_ms, number));
                self.steps.push_back(EntranceStep::Proven { number, identity, session });
                true
            }
            AcceptorStep::Admitted { link, identity, session } => {
                self.remove(number);
                let _ = self.poller.remove_link(&*link);
                self.steps.push_back(EntranceStep::Admitted { link, identity, session });
                true
            }
        }
    }

    /// Looks at all who stand here: for networks that announce nothing.
    pub fn look_at_all(&mut self, now_ms: u64) -> bool {
        let waiting: Vec<usize> = self.waiting.iter().map(|(number, _)| number).collect();
        waiting.into_iter().fold(false, |moved, number| self.look(number, now_ms) | moved)
    }

    /// Now and then: turns away who is too late, and takes in again after a pause.
    pub fn look_after(&mut self, now_ms: u64) -> bool {
        let moved = self.look_at_all(now_ms);
        let paused = std::mem::take(&mut self.rests) | self.is_full;
        (paused && self.take_in(now_ms)) | moved
    }

    /// Says what comes of the session of a peer that has been proven.
    ///
    /// # Panics
    /// When the entrance has not said that this one is proven.
    pub fn welcome(&mut self, number: usize, reception: Reception, now_ms: u64) {
        self.waiting[number].acceptor.welcome(reception);
        self.look(number, now_ms);
    }

    /// Hangs up on one who stands here, and says why in the log.
    ///
    /// # Panics
    /// When nobody stands there.
    pub fn dismiss(&mut self, number: usize, now_ms: u64, why: fmt::Arguments<'_>) {
        let peer_name = self.waiting[number].acceptor.peer_name();
        self.refusals.note(self.options.admission.me, now_ms, format_args!("a connection of {peer_name}: {why}"));
        self.remove(number);
    }

    fn receive(&mut self, link: Box<dyn Link>, now_ms: u64) {
        let mut nonce = [0; 32];
        if getrandom::fill(&mut nonce).is_err() {
            return;
        }
        let entry = self.waiting.vacant_entry();
        let number = entry.key();
        if self.poller.add_link(&*link, self.tokens.waiting | number as u64, Interest::READABLE).is_err() {
            return;
        }
        let deadline_ms = now_ms + self.options.handshake_timeout_ms;
        let acceptor = Acceptor::new(link, &self.options.admission, nonce, deadline_ms);
        let steps_taken = acceptor.steps_taken();
        let watched = Interest::READABLE;
        entry.insert(Waiting { acceptor, since_ms: now_ms, steps_taken, is_proven: false, watched });
        self.order.insert((now_ms, number));
        self.look(number, now_ms);
    }

    /// One that waits goes on waiting. True if it has come further.
    fn keep(&mut self, number: usize, now_ms: u64) -> bool {
        let waiting = &mut self.waiting[number];
        let interest = waiting.acceptor.interest();
        if interest != waiting.watched
            && let Some(link) = waiting.acceptor.link()
            && self.poller.modify_link(link, self.tokens.waiting | number as u64, interest).is_ok()
        {
            waiting.watched = interest;
        }
        let steps_taken = waiting.acceptor.steps_taken();
        if steps_taken == waiting.steps_taken {
            return false;
        }
        waiting.steps_taken = steps_taken;
        if !waiting.is_proven {
            self.order.remove(&(waiting.since_ms, number));
            waiting.since_ms = now_ms;
            self.order.insert((now_ms, number));
        }
        true
    }

    /// Whether one more finds a place. Who might have to go is looked at before.
    fn place(&mut self, now_ms: u64) -> Vacancy {
        while self.waiting.len() >= self.options.places {
            let oldest = self.order.first().copied();
            let Some((_, number)) = oldest.filter(|(since_ms, _)| now_ms.saturating_sub(*since_ms) >= PATIENCE_MS)
            else {
                return Vacancy::Taken;
            };
            // Whoever moved stands last now, or has gone.
            if !self.look(number, now_ms) {
                return Vacancy::Of(number);
            }
        }
        Vacancy::Free
    }

    fn remove(&mut self, number: usize) {
        let waiting = self.waiting.remove(number);
        self.order.remove(&(waiting.since_ms, number));
        if let Some(link) = waiting.acceptor.link() {
            let _ = self.poller.remove_link(link);
        }
        // Who waits outside is not announced again where the listener was driven meanwhile.
        self.comes_again |= self.is_full && self.listener.is_some();
    }

    /// Watches the listener for what can be done there now.
    fn watch_listener(&mut self) {
        let Some(listener) = &mut self.listener else { return };
        let is_driven = self.is_full && listener.drive();
        let watched = match self.rests || self.is_full && !is_driven {
            true => Interest::default(),
            false => Interest::READABLE,
        };
        if watched == self.watched {
            return;
        }
        if let Some(descriptor) = listener.descriptor()
            && let Err(error) = self.poller.modify(descriptor, self.tokens.listener, watched)
        {
            tracing::error!(%error, "cannot watch for who comes in");
            return;
        }
        self.watched = watched;
    }
}
