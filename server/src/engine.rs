//! The body of the server's loop: every connection of the node, a bounded amount of work a turn.
//!
//! The thread that holds the engine drives it: the server's own thread, or a thread of the same process that waits in a
//! call (see [`crate::Server`]). The engine never sleeps. It waits for one thing only: what its crew has
//! begun to turn (`crew.rs`).

mod arrivals;
mod at_rest;
mod deaths;
mod listening;
mod recent;
mod sessions;
mod together;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use longarm_netmod::flow::Costs;
use longarm_netmod::{
    Admission, Entrance, EntranceOptions, EntranceTokens, Interest, LinkError, Listener, Poller, Ready, Refusals,
    RemoteMemory, Waker,
};
use longarm_proto::{JobId, NodeId, Rank, ReplyBody, Secret};
use longarm_shm::NodeSegment;
use parking_lot::Mutex;
use slab::Slab;

use crate::connection::{Connection, Ended, Turn};
use crate::crew::{Crew, CrewOptions};
use crate::crowding::Crowding;
use crate::door::DoorListener;
use crate::lendable::Lendable;
use crate::mail::Mail;
use crate::mutex_waiters::MutexWaiters;
use crate::replies::Replies;
use crate::resting::Resting;
use crate::serve::state::ServeState;
use crate::table::Windows;

/// What the engine of a node is made of.
pub struct EngineOptions {
    /// The job: strangers of other jobs are turned away.
    pub job: JobId,
    /// What every connection has to prove.
    pub secret: Secret,
    /// The node that is served.
    pub node: NodeId,
    /// The node of each rank of the job, by rank. The ranks of this node, ascending, have their local numbers in the node
    /// segment in that order; a peer that says to be a rank that is not there, or on another node, is turned away.
    pub node_of_rank: Vec<NodeId>,
    /// The node's shared segment.
    pub segment: Arc<NodeSegment>,
    /// Where the ranks of other nodes connect, and those of this one for mutexes that others wait for; `None` for a
    /// world of one.
    pub listener: Option<Box<dyn Listener>>,
    /// Abstract name of the door for the ranks of this node.
    pub door: String,
    /// Connections that have not proven themselves yet, at most, besides one of each rank of the job.
    pub half_open_max: usize,
    /// How long a connection may take to prove itself, in milliseconds.
    pub handshake_timeout_ms: u64,
    /// How long a peer whose connection broke keeps its place in the queue of a mutex, in milliseconds.
    pub session_keep_ms: u64,
    /// What follows the handshake is encrypted.
    pub encrypted: bool,
    /// What packing and sending cost, which says how much of an answer is packed at a time.
    pub costs: Costs,
    /// Where peers reach the windows of the node with no server involved, on networks that can do that.
    pub remote_memory: Option<Arc<dyn RemoteMemory>>,
}

impl EngineOptions {
    fn ranks_here(&self) -> impl Iterator<Item = Rank> {
        let here = (0..).zip(&self.node_of_rank).filter(|(_, node)| **node == self.node);
        here.map(|(rank, _)| Rank(rank))
    }
}

/// What an engine has open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Connections that have proven themselves, and sessions that are without one.
    pub connections: usize,
    /// Connections that have not proven themselves.
    pub half_open: usize,
    /// Processes of this node at the door.
    pub visitors: usize,
    /// Windows that are served.
    pub windows: usize,
    /// Those who wait for a mutex.
    pub waiters: usize,
    /// How often a connection was looked at so far.
    pub looks: u64,
    /// How many of those looks were the crew's.
    pub looks_of_crew: u64,
    /// Bytes of replies that were copied and not acknowledged, at the connection that has most.
    pub reply_bytes_kept_max: usize,
    /// Those of them that wait to be sent, at the connection that has most.
    pub reply_bytes_waiting_max: usize,
    /// Bytes of mail that wait for ranks that take none in.
    pub mail_bytes_held: u64,
    /// Connections whose buffers take more memory than at first.
    pub grown: usize,
}

/// Why an engine could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The door could not be opened.
    #[error("cannot open the door {name} of this node: {errno}")]
    Door {
        /// Its abstract name.
        name: String,
        /// The system's error.
        errno: rustix::io::Errno,
    },
    /// The poller could not be made.
    #[error("cannot watch descriptors: {0}")]
    Poller(#[from] std::io::Error),
    /// No random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

const LISTENER: u64 = 0;
const DOOR: u64 = 1;
const RINGER: u64 = 2;
const VISITOR: u64 = 1 << 32;
const WAITING: u64 = 2 << 32;
const CONNECTION: u64 = 3 << 32;
const NUMBER_MASK: u64 = u32::MAX as u64;

/// How often what no descriptor announces is looked after: time limits of handshakes and sessions, a listener that was
/// paused.
const LOOK_AFTER_MS: u64 = 50;
/// Connections that may be tried without asking the system which are ready.
const RECENT_MAX: usize = 4;
/// Visitors that one turn takes in, so that those who flood us do not keep the others waiting.
const ACCEPTS_PER_TURN: usize = 64;
/// Every so many turns the system is asked all the same.
const LOOK_EVERYWHERE_TURNS: u32 = 32;

struct Peer {
    connection: Lendable<Connection>,
    interest: Interest,
    /// Its mail waits for free cells, which no descriptor announces.
    holds_mail: bool,
    /// Its number, and which connection of it was the last.
    session: (u64, u32),
    /// When its link broke; `None` while it has one.
    lost_at_ms: Option<u64>,
}

/// See the module.
pub struct Engine {
    shared: Lendable<ServeState>,
    crew: Crew,
    crowding: Crowding,
    poller: Arc<Poller>,
    ready: Vec<Ready>,
    /// `None` for a world of one.
    entrance: Option<Entrance>,
    door: DoorListener,
    visitors: Slab<OwnedFd>,
    peers: Slab<Peer>,
    /// The numbers that each rank's sessions have there.
    sessions_of: HashMap<Rank, Vec<usize>>,
    recent: Vec<usize>,
    turns: u32,
    /// In the last turn in which anything moved a large reply was sent.
    sent_large: bool,
    /// Peers whose mail waits for free cells, by turns.
    holding: VecDeque<usize>,
    /// The mail of sessions that are over.
    left: Vec<Mail>,
    /// How often a connection was looked at so far.
    looks: u64,
    /// Something else than a connection is ready: the next turn asks the system.
    looks_everywhere: bool,
    /// Peers without a link, who may call again.
    lost: Vec<usize>,
    /// The last session of each rank that is over, by its number: an old call does not begin it anew.
    over: HashMap<Rank, u64>,
    now_ms: u64,
    /// When memory of freed windows is to be given back.
    give_back_at_ms: Option<u64>,
    resting: Resting,
    /// Local numbers of the ranks that died.
    dead: Vec<u32>,
    job: JobId,
    node: NodeId,
    node_of_rank: Vec<NodeId>,
    refusals: Refusals,
    /// The network has no descriptors to sleep on: everything is looked at in every turn.
    unannounced: bool,
    /// When to look after what no descriptor announces.
    look_after_ms: u64,
    /// No visitor could be taken in a moment ago.
    door_rests: bool,
    session_keep_ms: u64,
    costs: Costs,
    /// What wakes a thread that sleeps here when an eventcount of its rank is notified.
    ringer: Option<Waker>,
    /// Somebody sleeps here, and silences the ringer.
    has_listener: bool,
}

/// Which connections a turn looks at.
enum Look<'a> {
    /// A few that were busy last.
    Recent,
    /// All that are ready.
    Everywhere,
    /// Those that were ready a moment ago.
    These(&'a [Ready]),
}

impl Engine {
    /// Opens the door and starts to listen. Nothing is served before the first [`Engine::turn`].
    pub fn new(options: EngineOptions) -> Result<Engine, EngineError> {
        let door = DoorListener::bind(&options.door)
            .map_err(|errno| EngineError::Door { name: options.door.clone(), errno })?;
        let poller = Arc::new(Poller::new()?);
        poller.add(door.descriptor(), DOOR, Interest::READABLE)?;
        let listener_has_none = options.listener.as_ref().is_some_and(|listener| listener.descriptor().is_none());
        let host = options.ranks_here().next().expect("a node has a rank, which hosts its server");
        let local_of_rank = options.ranks_here().zip(0..).collect();
        let admission =
            Admission { secret: options.secret, job: options.job, me: options.node, encrypted: options.encrypted };
        // A rank calls once at a time: with a place for each one, honest callers do not take each other's.
        let places = options.half_open_max + options.node_of_rank.len();
        let handshake_timeout_ms = options.handshake_timeout_ms;
        let tokens = EntranceTokens { listener: LISTENER, waiting: WAITING };
        let open = |listener| {
            Entrance::new(listener, &poller, tokens, EntranceOptions { admission, places, handshake_timeout_ms })
        };
        let entrance = options.listener.map(open).transpose()?;
        let mut windows = Windows::of_job(options.job);
        windows.publish_to(options.remote_memory);
        Ok(Engine {
            crew: Crew::new(CrewOptions::none()),
            crowding: Crowding::default(),
            shared: Lendable::new(ServeState {
                windows,
                node: options.segment,
                local_of_rank,
                mutexes: Mutex::new(MutexWaiters::default()),
                cells: Mutex::new(()),
                mail_waits: false,
                host,
            }),
            poller,
            ready: Vec::new(),
            entrance,
            door,
            visitors: Slab::new(),
            peers: Slab::new(),
            sessions_of: HashMap::new(),
            recent: Vec::new(),
            turns: 0,
            holding: VecDeque::new(),
            left: Vec::new(),
            looks: 0,
            looks_everywhere: false,
            lost: Vec::new(),
            over: HashMap::new(),
            now_ms: 0,
            give_back_at_ms: None,
            resting: Resting::default(),
            dead: Vec::new(),
            job: options.job,
            node: options.node,
            node_of_rank: options.node_of_rank,
            refusals: Refusals::default(),
            sent_large: false,
            unannounced: listener_has_none,
            look_after_ms: 0,
            door_rests: false,
            session_keep_ms: options.session_keep_ms,
            costs: options.costs,
            ringer: None,
            has_listener: false,
        })
    }

    pub(crate) fn poller(&self) -> &Arc<Poller> {
        &self.poller
    }

    /// How many turns there were so far: what was ready before a turn may be another one's after it.
    pub(crate) fn turns(&self) -> u32 {
        self.turns
    }

    /// Becomes readable when there is something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// In how many milliseconds memory is to be given back, of freed windows or of connections that rest. `None`: there is none.
    pub(crate) fn give_back_in_ms(&self, now_ms: u64) -> Option<u64> {
        let first = self.give_back_at_ms.into_iter().chain(self.resting.due_at_ms()).min();
        first.map(|at| at.saturating_sub(now_ms))
    }

    /// Whether memory of freed windows is to be given back at some time.
    pub(crate) fn has_windows_to_give_back(&self) -> bool {
        self.give_back_at_ms.is_some()
    }

    /// How long a sleeper may sleep, in milliseconds, although no descriptor has become ready. `None`: for ever.
    pub fn sleep_ms_max(&self) -> Option<u64> {
        if self.shared.mail_waits {
            return Some(1);
        }
        let mutexes = self.shared.mutexes.lock();
        let settled = self.dead.is_empty() && !mutexes.deaths.is_settling();
        // Only those in the queue of a mutex have to call in time.
        let settled = settled && !self.lost.iter().any(|number| mutexes.is_waiting(*number));
        let nobody_waits = self.entrance.as_ref().is_none_or(|entrance| !entrance.has_time_limits());
        let nothing_to_look_after = nobody_waits && !self.door_rests && settled;
        if nothing_to_look_after { None } else { Some(LOOK_AFTER_MS) }
    }

    /// What is open now: for whoever looks whether everything was freed.
    pub fn census(&self) -> Census {
        let replies = || self.peers.iter().map(|(_, peer)| &peer.connection.replies);
        let mails = self.peers.iter().map(|(_, peer)| &peer.connection.mail).chain(&self.left);
        Census {
            connections: self.peers.len(),
            half_open: self.entrance.as_ref().map_or(0, Entrance::len),
            visitors: self.visitors.len(),
            windows: self.shared.windows.len(),
            waiters: self.shared.mutexes.lock().waiters(),
            looks: self.looks,
            looks_of_crew: self.crew.looks(),
            reply_bytes_kept_max: replies().map(Replies::buffered_bytes).max().unwrap_or(0),
            reply_bytes_waiting_max: replies().map(Replies::waiting_bytes).max().unwrap_or(0),
            mail_bytes_held: mails.map(Mail::held_bytes).sum(),
            grown: self.peers.iter().filter(|(_, peer)| peer.connection.has_grown()).count(),
        }
    }

    /// Does what there is to do, a bounded amount. `now_ms` counts from any fixed moment. True if anything moved.
    ///
    /// With few busy connections most turns try just these, without asking the system who is ready; a caller that
    /// wants to sleep has to see a turn with `everywhere` return false first.
    pub fn turn(&mut self, now_ms: u64, everywhere: bool) -> bool {
        let look = everywhere
            || std::mem::take(&mut self.looks_everywhere)
            || self.recent.is_empty()
            || self.recent.len() > RECENT_MAX
            || self.turns.wrapping_add(1).is_multiple_of(LOOK_EVERYWHERE_TURNS);
        self.turn_looking(now_ms, if look { Look::Everywhere } else { Look::Recent })
    }

    /// A turn with what was found ready since the last one.
    pub(crate) fn turn_with(&mut self, now_ms: u64, ready: &[Ready]) -> bool {
        self.turn_looking(now_ms, Look::These(ready))
    }

    fn turn_looking(&mut self, now_ms: u64, look: Look<'_>) -> bool {
        self.cork();
        let progress = self.turn_corked(now_ms, look);
        self.uncork();
        progress
    }

    fn turn_corked(&mut self, now_ms: u64, look: Look<'_>) -> bool {
        self.turns = self.turns.wrapping_add(1);
        self.now_ms = now_ms;
        let sent_large = std::mem::take(&mut self.sent_large);
        let mut progress = self.empty_inboxes_of_the_dead();
        match look {
            Look::Everywhere => progress |= self.turn_ready(now_ms),
            Look::These(ready) => progress |= self.turn_those(now_ms, ready),
            Look::Recent => progress |= self.turn_recent(now_ms),
        }
        progress |= self.turn_unannounced(now_ms);
        if self.shared.mail_waits {
            progress |= self.deliver_mail();
        }
        progress |= self.settle_deaths(now_ms);
        progress |= self.deliver_grants();
        if now_ms >= self.look_after_ms {
            progress |= self.look_after(now_ms);
        }
        self.give_back_due(now_ms);
        self.shrink_those_at_rest(now_ms);
        // A turn in which nothing moved does not change that.
        if !progress {
            self.sent_large = sent_large;
        }
        progress
    }

    /// Whether a large reply was sent, or went on being sent, in the last turn in which anything moved. Whoever receives it has work to
    /// do, perhaps on this processor.
    pub fn has_sent_large(&self) -> bool {
        self.sent_large
    }

    /// The node's segment, and which of its ranks is the host of this server.
    pub(crate) fn host(&self) -> (Arc<NodeSegment>, u32) {
        let ServeState { node, local_of_rank, host, .. } = &*self.shared;
        (Arc::clone(node), local_of_rank[host])
    }

    /// Now and then: turns away who has not proven himself in time, and listens again after a pause.
    fn look_after(&mut self, now_ms: u64) -> bool {
        self.look_after_ms = now_ms + LOOK_AFTER_MS;
        let mut progress = false;
        if std::mem::take(&mut self.door_rests) {
            progress |= self.open_door();
            self.watch_door();
        }
        self.expire_sessions(now_ms);
        // Whoever had not heard of the death of a rank of this node may have passed it a mutex since.
        if !self.dead.is_empty() {
            self.shared.hand_on_mutexes();
        }
        self.at_entrance(|entrance| entrance.look_after(now_ms)) | progress
    }

    fn turn_ready(&mut self, now_ms: u64) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        if let Err(error) = self.poller.wait(&mut ready, Some(std::time::Duration::ZERO)) {
            tracing::error!(%error, "cannot ask which connections are ready");
            ready.clear();
        }
        let progress = self.turn_those(now_ms, &ready);
        self.ready = ready;
        progress
    }

    fn turn_those(&mut self, now_ms: u64, ready: &[Ready]) -> bool {
        let mut progress = false;
        let recent = std::mem::take(&mut self.recent);
        let together = self.wants_crew();
        let (mut connections, mut moved) = (Vec::new(), 0);
        for event in ready {
            let number = (event.token & NUMBER_MASK) as usize;
            progress |= match event.token & !NUMBER_MASK {
                // Only the end of a connection is announced when nothing was asked for.
                CONNECTION if self.peers.get(number).is_some_and(|peer| peer.interest == Interest::default()) => {
                    self.end_peer(number, &Ended::Link(LinkError::Reset));
                    true
                }
                CONNECTION if together => {
                    connections.push(number);
                    false
                }
                CONNECTION => {
                    moved += usize::from(self.turn_and_remember(number));
                    false
                }
                VISITOR => self.turn_visitor(number),
                WAITING => self.at_entrance(|entrance| entrance.look(number, now_ms)),
                _ if event.token == RINGER => {
                    self.silence_ringer();
                    false
                }
                _ if event.token == LISTENER => self.at_entrance(|entrance| entrance.take_in(now_ms)),
                _ => self.open_door(),
            };
        }
        moved += self.turn_together(&connections);
        self.crowding.note(now_ms, moved);
        progress |= moved > 0;
        // A quiet moment does not make the busy ones forgotten.
        if self.recent.is_empty() {
            self.recent = recent;
            self.recent.retain(|number| self.peers.contains(*number));
        }
        progress
    }

    fn turn_peer(&mut self, number: usize) -> bool {
        let Some(peer) = self.peers.get_mut(number) else { return false };
        self.looks += 1;
        let turn = peer.connection.turn(&self.shared, number);
        self.follow(number, turn)
    }

    /// What follows from the turn of a connection. True if anything moved.
    fn follow(&mut self, number: usize, turn: Result<Turn, Ended>) -> bool {
        let Some(peer) = self.peers.get_mut(number) else { return false };
        let turn = match turn {
            Ok(turn) => turn,
            Err(ended) => {
                self.end_peer(number, &ended);
                return true;
            }
        };
        self.sent_large |= turn.sends_large;
        if turn.progress && peer.connection.has_grown() {
            self.resting.note_grown(self.now_ms);
        }
        if peer.connection.mail.holds_some() && !peer.holds_mail {
            peer.holds_mail = true;
            self.holding.push_back(number);
            self.shared.mail_waits = true;
        }
        self.renew_interest(number);
        turn.progress
    }

    fn renew_interest(&mut self, number: usize) {
        let Some(peer) = self.peers.get_mut(number) else { return };
        let interest =
            Interest { readable: peer.connection.wants_input(), writable: !peer.connection.replies.is_sent() };
        if interest != peer.interest
            && let Some(link) = peer.connection.link()
        {
            peer.interest = interest;
            if let Err(error) = self.poller.modify_link(link, CONNECTION | number as u64, link.awaits(interest)) {
                tracing::error!(%error, "cannot watch a connection");
            }
        }
    }

    /// Turns what no descriptor announces: links without a descriptor, and who waits at the entrance for a place that has
    /// become free.
    fn turn_unannounced(&mut self, now_ms: u64) -> bool {
        let mut progress = false;
        if self.unannounced {
            let silent = |peer: &Peer| peer.connection.link().is_some_and(|link| link.descriptor().is_none());
            let peers: Vec<usize> =
                self.peers.iter().filter(|(_, peer)| silent(peer)).map(|(number, _)| number).collect();
            progress = peers.into_iter().fold(progress, |progress, number| self.turn_peer(number) | progress);
            progress |= self.at_entrance(|entrance| entrance.take_in(now_ms) | entrance.look_at_all(now_ms));
        }
        if self.entrance.as_ref().is_some_and(Entrance::comes_again) {
            progress |= self.at_entrance(|entrance| entrance.take_in(now_ms));
        }
        progress
    }

    /// Moves mail that is held to the inboxes, as far as there are cells.
    fn deliver_mail(&mut self) -> bool {
        let node = Arc::clone(&self.shared.node);
        let mut progress = false;
        self.left.retain_mut(|mail| {
            progress |= mail.deliver(&node).is_some();
            mail.holds_some()
        });
        for _ in 0..self.holding.len() {
            let Some(number) = self.holding.pop_front() else { break };
            let Some(peer) = self.peers.get_mut(number) else { continue };
            let delivered = peer.connection.deliver_mail(&node);
            peer.holds_mail = peer.connection.mail.holds_some();
            if peer.holds_mail {
                self.holding.push_back(number);
            }
            match &delivered {
                Ok(moved) => progress |= *moved == Some(true),
                Err(ended) => {
                    progress = true;
                    self.end_peer(number, ended);
                }
            }
            self.renew_interest(number);
            if matches!(delivered, Ok(None)) {
                break;
            }
        }
        self.shared.mail_waits = !self.holding.is_empty() || !self.left.is_empty();
        progress
    }

    /// Tells those whose turn at a mutex has come.
    fn deliver_grants(&mut self) -> bool {
        let mut progress = false;
        loop {
            let mutexes = self.shared.mutexes.get_mut();
            let granted = mutexes.next_grant().map(|grant| {
                let answer = ReplyBody::Granted { inherited: grant.inherited };
                (grant.waiter, answer)
            });
            let next = granted.or_else(|| {
                let (asker, (refusal, detail)) = mutexes.next_orphan()?;
                Some((asker, ReplyBody::Refused { refusal, detail }))
            });
            let Some((asker, answer)) = next else { break };
            progress = true;
            if let Some(peer) = self.peers.get_mut(asker.connection) {
                peer.connection.replies.send(asker.id, answer);
                if let Err(ended) = peer.connection.flush() {
                    self.end_peer(asker.connection, &ended);
                } else {
                    self.renew_interest(asker.connection);
                }
            }
        }
        progress
    }
}
