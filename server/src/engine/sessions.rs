//! Which session each link carries, and what becomes of a session without a link.
//!
//! ```text
//!   proven ──► received: fresh, resumed or gone ──► admitted: has a link ──► link lost ──┐
//!                 ▲                                                                      │
//!                 └─────────── its peer calls again                ◄────────────────────┘
//! ```
//!
//! A session ends when its rank leaves or dies, or breaks the protocol. A rank that has nothing to say does not notice
//! that its connection broke, and calls when it has, so there is no time by which it has to. Only one that stands in the
//! queue of a mutex keeps others waiting if it gave us up: it has to call in time. A session's number in the engine stays
//! the same over all its links: what waits for a mutex in its name is found again. Nor does an old call begin a session anew
//! that is over: nobody would ever end it again.

use std::collections::hash_map::Entry;

use longarm_netmod::Link;
use longarm_proto::{Identity, MAIL_CREDIT_BYTES, Mutation, Rank, Reception, SESSIONS_PER_RANK_MAX, Session, mutation};

use super::{CONNECTION, Engine, Interest, Peer};
use crate::connection::{Connection, Ended};
use crate::lendable::Lendable;
use crate::mail::Mail;

impl Engine {
    /// Peers that keep others from a mutex and have not called again in time do so no more.
    pub(super) fn expire_sessions(&mut self, now_ms: u64) {
        for number in self.lost.clone() {
            let peer = &self.peers[number];
            let is_late = peer.lost_at_ms.is_some_and(|at| now_ms >= at + self.session_keep_ms);
            if is_late && self.shared.mutexes.get_mut().is_waiting(number) {
                let rank = peer.connection.peer.rank.0;
                tracing::warn!(rank, node = self.node.0, "a rank in the queue of a mutex has not called again");
                self.forget(number);
            }
        }
    }

    /// A link ended. The session of one that broke is kept for its peer to call again; any other ends with it.
    pub(super) fn end_peer(&mut self, number: usize, ended: &Ended) {
        let Some(peer) = self.peers.get(number) else { return };
        let rank = peer.connection.peer.rank;
        let is_dead = self.shared.mutexes.get_mut().deaths.is_dead(rank);
        match (ended, peer.connection.link()) {
            (Ended::Left, _) => tracing::debug!(rank = rank.0, "a rank closed its connection"),
            (ended, Some(link)) if !is_dead => {
                let peer_name = link.peer_name();
                tracing::info!(rank = rank.0, peer_name, node = self.node.0, "connection ended: {ended}");
            }
            _ => {}
        }
        self.lose_link(number);
        if matches!(ended, Ended::Link(_)) && !is_dead {
            return;
        }
        if let Ended::Violation(violation) = ended {
            tracing::warn!(rank = rank.0, node = self.node.0, "a rank broke the protocol: {violation}");
        }
        self.forget(number);
    }

    /// A session goes on without a link for now.
    pub(super) fn lose_link(&mut self, number: usize) {
        let Some(peer) = self.peers.get_mut(number) else { return };
        let Some(mut link) = peer.connection.detach() else { return };
        // Its peer is gone or calls again, and this thread waits for nobody.
        link.abandon();
        let _ = self.poller.remove_link(&*link);
        peer.lost_at_ms = Some(self.now_ms);
        self.lost.push(number);
        self.recent.retain(|recent| *recent != number);
    }

    /// A session ends.
    pub(super) fn forget(&mut self, number: usize) {
        let peer = self.peers.remove(number);
        if let Entry::Occupied(mut sessions) = self.sessions_of.entry(peer.connection.peer.rank) {
            sessions.get_mut().retain(|session| *session != number);
            if sessions.get().is_empty() {
                sessions.remove();
            }
        }
        self.over.insert(peer.connection.peer.rank, peer.session.0);
        self.holding.retain(|holding| *holding != number);
        self.keep_mail(peer.connection.into_inner().mail);
        self.lost.retain(|lost| *lost != number);
        self.shared.mutexes.get_mut().forget_connection(number);
    }

    /// What a session that is over has sent goes to the inboxes all the same. A rank that begins one after the other, and ends
    /// each with all that it may send, keeps that of one.
    fn keep_mail(&mut self, mail: Mail) {
        if !mail.holds_some() {
            return;
        }
        let before = self.left.iter().filter(|before| before.source() == mail.source()).map(Mail::held_bytes);
        if before.sum::<u64>() + mail.held_bytes() > MAIL_CREDIT_BYTES {
            let (rank, node) = (mail.source().0, self.node.0);
            tracing::warn!(rank, node, "mail of a rank is thrown away: its sessions end before it is taken in");
            return;
        }
        self.left.push(mail);
        self.shared.mail_waits = true;
    }

    /// Sessions of this rank that have no link end.
    pub(super) fn forget_lost_of(&mut self, rank: Rank) {
        for number in self.lost.clone() {
            if self.peers[number].connection.peer.rank == rank {
                self.forget(number);
            }
        }
    }

    /// What comes of the session that a proven peer wants to carry on. `None`: the call is too old, its rank
    /// is dead, or there is no such rank on the node that it names.
    pub(super) fn receive_session(&mut self, identity: Identity, session: Session) -> Option<Reception> {
        let lives_there = self.node_of_rank.get(identity.rank.0 as usize) == Some(&identity.node);
        if !lives_there || self.shared.mutexes.get_mut().deaths.is_dead(identity.rank) {
            return None;
        }
        let Some(number) = self.find_session(identity.rank, session.number) else {
            if session.is_known {
                return Some(Reception::Gone);
            }
            if self.over.get(&identity.rank) == Some(&session.number) {
                // It was under way for longer than the whole session, whose rank may have left.
                return None;
            }
            let sessions = self.sessions_of.get(&identity.rank).map_or(0, Vec::len);
            if sessions >= SESSIONS_PER_RANK_MAX {
                let rank = identity.rank.0;
                tracing::warn!(
                    rank,
                    node = self.node.0,
                    "a rank has {sessions} sessions, and begins one more: refused"
                );
                return None;
            }
            let mut connection = Connection::new(identity, self.costs);
            let before = self.left.iter().position(|mail| mail.source() == identity.rank);
            let before = before.map(|at| self.left.remove(at));
            let holds_mail = before.is_some();
            before.into_iter().for_each(|mail| connection.mail.inherit(mail));
            let peer = Peer {
                connection: Lendable::new(connection),
                interest: Interest::default(),
                holds_mail,
                session: (session.number, session.attempt),
                lost_at_ms: Some(self.now_ms),
            };
            let number = self.peers.insert(peer);
            self.sessions_of.entry(identity.rank).or_default().push(number);
            if holds_mail {
                self.holding.push_back(number);
            }
            self.lost.push(number);
            return Some(Reception::Fresh);
        };
        if session.attempt <= self.peers[number].session.1 && !mutation(Mutation::AttemptNotChecked) {
            return None;
        }
        // From here on nothing is taken from an older link, so that what we say is the truth until the new one is there.
        self.lose_link(number);
        let peer = &mut self.peers[number];
        peer.session.1 = session.attempt;
        peer.lost_at_ms = Some(self.now_ms);
        if let Err(violation) = peer.connection.rewind(session.received_bytes) {
            tracing::warn!(rank = identity.rank.0, node = self.node.0, "a rank broke the protocol: {violation}");
            self.forget(number);
            return Some(Reception::Gone);
        }
        let received_bytes = match peer.connection.received_bytes() {
            bytes if mutation(Mutation::ResumeFromWrongByte) => bytes.saturating_sub(1),
            bytes => bytes,
        };
        Some(Reception::Resumed { received_bytes })
    }

    fn find_session(&self, rank: Rank, session: u64) -> Option<usize> {
        let mut sessions = self.sessions_of.get(&rank)?.iter().copied();
        sessions.find(|number| self.peers[*number].session.0 == session)
    }

    /// A peer was welcomed over this link.
    pub(super) fn admit(&mut self, mut link: Box<dyn Link>, identity: Identity, session: Session) {
        let number = self.find_session(identity.rank, session.number);
        // Meanwhile the session may have ended, or the peer have called again: dropping the link closes it.
        let number = number.filter(|number| self.peers[*number].session.1 == session.attempt);
        if let Some(number) = number
            && let Err(error) = self.poller.add_link(&*link, CONNECTION | number as u64, Interest::READABLE)
        {
            tracing::error!(%error, "cannot watch a connection");
            return;
        }
        let Some(number) = number else {
            link.abandon();
            return;
        };
        let peer = &mut self.peers[number];
        peer.connection.attach(link);
        peer.interest = Interest::READABLE;
        peer.lost_at_ms = None;
        self.lost.retain(|lost| *lost != number);
        // It may have replies to send again, and half a request to go on with.
        self.turn_peer(number);
    }
}
