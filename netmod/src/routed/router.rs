//! The router of a node: passes bytes between the ranks of this node, its server, and the routers of other nodes.
//!
//! A rank without one of its own has a small one, whose only trunk is the rank's line to that of its node.
//!
//! It never blocks. The thread that drives it holds its lock for the time of one turn: the server's thread when a descriptor is ready, and a
//! thread of the same process that sends or receives over one of its channels.

mod channel_link;
mod connections;
mod flow;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use longarm_proto::{Mutation, NodeId, TrunkRecord, TrunkViolation, mutation};

use super::address::Address;
use super::channel::{Buffer, Channel, End, Relay};
use super::line::{self, SocketLink};
use super::options::RoutedOptions;
use super::own::RankListener;
use super::table::{ChannelKey, Channels, Key, Table, TrunkKey, Trunks};
use super::tick::Tick;
use super::trunk::{Going, Trunk};
use crate::accept::Admission;
use crate::beacon::Beacon;
use crate::calls::Calls;
use crate::clock::CoarseClock;
use crate::entrance::{Entrance, EntranceOptions, EntranceTokens};
use crate::interest::{Interest, Ready};
use crate::link_error::LinkError;
use crate::poller::Poller;
use crate::traits::Listener;
use crate::waker::Waker;

const LISTENER: u64 = 0;
const LINES: u64 = 1;
const WAKER: u64 = 2;
const TICK: u64 = 3;
const RANKS: u64 = 4;
const WAITING: u64 = 1 << 32;
const TRUNK: u64 = 2 << 32;
const NUMBER_MASK: u64 = u32::MAX as u64;

/// Ranks of this node that one turn takes in.
const ACCEPTS_PER_TURN: usize = 64;

/// Why a trunk ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("it broke the protocol: {0}")]
    Violation(#[from] TrunkViolation),
    #[error("it could not be made: {0}")]
    Call(#[from] crate::dial::DialError),
    #[error("no opening of a channel was answered for too long")]
    Unanswered,
    #[error("it has carried as many channels as there are numbers")]
    UsedUp,
    #[error("its node calls again")]
    Replaced,
    #[error("a channel was given up in the middle of its data")]
    Unfinished,
}

impl Ended {
    /// What those hear whose channel was not open yet.
    fn for_callers(&self) -> LinkError {
        match self {
            Ended::Call(crate::dial::DialError::Connect(error)) => *error,
            Ended::Call(crate::dial::DialError::TimedOut) | Ended::Unanswered => LinkError::TimedOut,
            _ => LinkError::Reset,
        }
    }
}

/// Who has come, and waits to be taken in by the server.
enum Arrived {
    Channel {
        key: ChannelKey,
        beacon: Arc<Beacon>,
        name: String,
    },
    /// The rank of this process.
    Host(SocketLink),
}

/// Where a router and the server of its node are reached from other nodes.
struct Listeners {
    routers: Box<dyn Listener>,
    ranks: Option<Box<dyn Listener>>,
}

impl Listeners {
    fn address(&self, node: NodeId) -> String {
        let server = self.ranks.as_ref().map(|ranks| ranks.address());
        Address { node, router: self.routers.address(), server }.spell()
    }
}

/// See the module.
pub(super) struct Router {
    options: Arc<RoutedOptions>,
    /// `None` at a rank that has no more than its line.
    address: Option<String>,
    /// Where ranks of other nodes call the server by themselves, if they do.
    ranks: Option<RankListener>,
    poller: Arc<Poller>,
    ready: Vec<Ready>,
    waker: Waker,
    clock: CoarseClock,
    /// Set while something has a time limit.
    tick: Tick,
    /// That of a rank that has no router of its own is closed from the beginning.
    entrance: Entrance,
    /// Where the ranks of this node come. `None` once nobody is taken in any more, and where ranks do not come.
    lines: Option<OwnedFd>,
    /// And lines.
    trunks: Table<Trunks, Trunk>,
    /// The trunks that we called, by address; the line of this rank stands under [`LINE`].
    called: HashMap<String, TrunkKey>,
    channels: Table<Channels, Channel>,
    arrived: VecDeque<Arrived>,
    calls: Arc<Calls>,
    /// How often we have called.
    attempts: u32,
    /// The last call of each node.
    attempts_of: HashMap<NodeId, u32>,
    /// How long nodes took to answer whose trunks were given up because they left an opening unanswered.
    slowest_of: HashMap<NodeId, u64>,
    /// The buffer that trunks receive into. `None`: a trunk has it, or none was needed yet.
    receive_buffer: Option<Box<[u8]>>,
    /// Channels that something has happened to.
    touched: Vec<ChannelKey>,
    /// Trunks whose links hold bytes that no descriptor announces: the next turn brings them in.
    holding: Vec<TrunkKey>,
    /// Nested turns, the server's and the router's, that hold back what trunks have to send until the outermost ends.
    corks: u32,
    /// Trunks that have something to send then.
    corked: Vec<TrunkKey>,
    /// The channel whose owner looks by itself.
    attended: Option<ChannelKey>,
}

impl Router {
    /// A router that listens. `is_first`: the ranks of this node find it.
    pub(super) fn open(options: Arc<RoutedOptions>, is_first: bool) -> Result<(Router, Arc<Poller>), LinkError> {
        let listener = options.netmod.listen()?;
        let ranks = if options.has_own_links() { Some(options.listen_for_ranks()?) } else { None };
        let lines = if is_first { Some(line::listen(&options.socket_name)?) } else { None };
        Router::with(options, Some(Listeners { routers: listener, ranks }), lines)
    }

    /// The end of a rank's line: what a rank has that reaches other nodes through the router of another process. Its only trunk is the line, which is
    /// made with the first channel.
    pub(super) fn of_rank(options: Arc<RoutedOptions>) -> Result<(Router, Arc<Poller>), LinkError> {
        Router::with(options, None, None)
    }

    fn with(
        options: Arc<RoutedOptions>,
        listeners: Option<Listeners>,
        lines: Option<OwnedFd>,
    ) -> Result<(Router, Arc<Poller>), LinkError> {
        let node = options.identity.node;
        let address = listeners.as_ref().map(|listeners| listeners.address(node));
        let poller = Arc::new(Poller::new()?);
        let (listener, ranks) = match listeners {
            Some(Listeners { routers, ranks }) => (Some(routers), ranks),
            None => (None, None),
        };
        let ranks = ranks.map(|listener| RankListener::new(listener, &poller, RANKS));
        let waker = Waker::new()?;
        poller.add(waker.descriptor(), WAKER, Interest::READABLE)?;
        let tick = Tick::new(options.simulated_clock)?;
        poller.add(tick.descriptor(), TICK, Interest::READABLE)?;
        let admission = Admission {
            secret: options.secret.clone(),
            job: options.identity.job,
            me: options.identity.node,
            encrypted: false,
        };
        // A node calls once at a time.
        let places = options.half_open_max + options.node_count as usize;
        let handshake_timeout_ms = options.handshake_timeout_ms;
        let tokens = EntranceTokens { listener: LISTENER, waiting: WAITING };
        let entrance_options = EntranceOptions { admission, places, handshake_timeout_ms };
        let entrance = match listener {
            Some(listener) => Entrance::new(listener, &poller, tokens, entrance_options)?,
            None => Entrance::closed(&poller, tokens, entrance_options),
        };
        if let Some(lines) = &lines {
            poller.add(lines.as_fd(), LINES, Interest::READABLE)?;
        }
        let router = Router {
            calls: Calls::new(Arc::clone(&options.netmod)),
            address,
            ranks: ranks.transpose()?,
            poller: Arc::clone(&poller),
            ready: Vec::new(),
            waker,
            clock: options.simulated_clock.unwrap_or_else(CoarseClock::start),
            options,
            tick,
            entrance,
            lines,
            trunks: Table::new(),
            called: HashMap::new(),
            channels: Table::new(),
            arrived: VecDeque::new(),
            attempts: 0,
            attempts_of: HashMap::new(),
            slowest_of: HashMap::new(),
            receive_buffer: None,
            touched: Vec::new(),
            holding: Vec::new(),
            corks: 0,
            corked: Vec::new(),
            attended: None,
        };
        Ok((router, poller))
    }

    /// What to sleep on between turns.
    #[cfg(test)]
    pub(super) fn poller(&self) -> Arc<Poller> {
        Arc::clone(&self.poller)
    }

    /// Lines of ranks, and trunks.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        let (lines, trunks): (Vec<_>, Vec<_>) = self.trunks.iter().partition(|(_, trunk)| trunk.is_line);
        (lines.len(), trunks.len())
    }

    /// Channels that have not ended.
    #[cfg(test)]
    pub(super) fn channels(&self) -> usize {
        self.channels.iter().count()
    }

    /// Memory of what waits at its trunks and channels.
    #[cfg(test)]
    pub(super) fn kept_bytes(&mut self) -> usize {
        self.waiting().map(|waiting| waiting.kept_bytes()).sum()
    }

    /// Whether it will look at time limits and memory.
    #[cfg(test)]
    pub(super) fn will_look(&self) -> bool {
        self.tick.is_set()
    }

    /// As if that time had come.
    #[cfg(test)]
    pub(super) fn look_now(&mut self) {
        self.look_after();
    }

    /// As if its trunks had carried all the channels that there are numbers for.
    #[cfg(test)]
    pub(super) fn use_up_numbers(&mut self) {
        let ours = self.trunks.values_mut().filter(|trunk| trunk.is_ours());
        let last = longarm_proto::ChannelNumber(u32::MAX);
        ours.for_each(|trunk| (trunk.last_channel, trunk.last_answered) = (last, last));
    }

    /// All that something waits in, at its trunks and channels.
    fn waiting(&mut self) -> impl Iterator<Item = &mut Buffer> {
        let at_trunks = self.trunks.values_mut().map(Trunk::waiting);
        at_trunks.chain(self.channels.values_mut().filter_map(Channel::waiting))
    }

    /// Where other nodes reach it. Empty at a rank that has no more than its line.
    pub(super) fn address(&self) -> &str {
        self.address.as_deref().unwrap_or_default()
    }

    /// Nobody is taken in any more. What is open goes on.
    pub(super) fn stop_listening(&mut self) {
        self.entrance.close();
        self.ranks = None;
        self.lines = None;
        for arrived in std::mem::take(&mut self.arrived) {
            if let Arrived::Channel { key, .. } = arrived {
                self.close(key);
            }
        }
    }

    /// As if this process had ended: nobody is taken in any more, and all that is open breaks.
    pub(super) fn cut_off(&mut self) {
        self.stop_listening();
        let trunks: Vec<TrunkKey> = self.trunks.iter().map(|(key, _)| key).collect();
        trunks.into_iter().for_each(|trunk_key| self.end_trunk(trunk_key, &Ended::Link(LinkError::Reset)));
        self.settle();
    }

    /// Somebody waits for the server, who sleeps perhaps.
    fn arrive(&mut self, arrived: Arrived) {
        self.arrived.push_back(arrived);
        self.waker.wake();
    }

    /// Does what there is to do, a bounded amount. Its descriptor stays readable while somebody waits for the server.
    pub(super) fn turn(&mut self) {
        self.drive();
        if self.somebody_waits() {
            self.waker.wake();
        }
    }

    /// See [`Routed::ring`](super::Routed::ring).
    pub(super) fn ring(&self) {
        if self.tick.is_due() {
            self.waker.wake();
        }
    }

    /// Whether somebody waits for the server.
    fn somebody_waits(&self) -> bool {
        !self.arrived.is_empty() || self.ranks.as_ref().is_some_and(RankListener::is_announced)
    }

    /// Does what there is to do, a bounded amount, for a server that takes nobody in now.
    pub(super) fn drive(&mut self) {
        self.cork();
        self.drive_corked();
        self.uncork();
    }

    fn drive_corked(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        if let Err(error) = self.poller.wait(&mut ready, Some(Duration::ZERO)) {
            tracing::error!(%error, "cannot ask which connections of the router are ready");
            ready.clear();
        }
        for event in &ready {
            let number = event.token & NUMBER_MASK;
            match event.token & !NUMBER_MASK {
                WAITING => self.look_at_caller(number as usize),
                TRUNK => self.turn_announced(Key::of_token(number), *event),
                _ => match event.token {
                    LISTENER => self.take_in_trunks(),
                    LINES => self.take_in_lines(),
                    WAKER => self.waker.clear(),
                    RANKS => {
                        if let Some(ranks) = &mut self.ranks {
                            ranks.announce(&self.poller);
                        }
                    }
                    _ => self.look_after(),
                },
            }
        }
        ready.clear();
        self.ready = ready;
        if self.tick.is_due() {
            self.look_after();
        }
        for trunk_key in std::mem::take(&mut self.holding) {
            // If it has ended meanwhile, the key is another one's or nobody's, and either is well.
            self.turn_trunk(trunk_key);
        }
        self.settle();
        if self.entrance.comes_again() {
            self.take_in_trunks();
            if self.entrance.comes_again() {
                self.waker.wake();
            }
        }
    }

    /// From now on what trunks have to send is kept, so that what comes of one turn goes out together.
    pub(super) fn cork(&mut self) {
        self.corks += 1;
    }

    /// The end of what [`Router::cork`] has begun.
    pub(super) fn uncork(&mut self) {
        self.corks -= 1;
        if self.corks > 0 {
            return;
        }
        while let Some(trunk_key) = self.corked.pop() {
            // One that has ended meanwhile has left its key to another one or to nobody, and either is well.
            self.flush(trunk_key);
        }
        self.settle();
    }

    /// Has the next turn look at a trunk, whatever its descriptor says.
    fn look_again(&mut self, trunk_key: TrunkKey) {
        if !self.holding.contains(&trunk_key) {
            self.holding.push(trunk_key);
            self.waker.wake();
        }
    }

    /// Sees to those channels that something has happened to.
    fn settle(&mut self) {
        while let Some(key) = self.touched.pop() {
            if self.attended == Some(key) {
                continue;
            }
            let Some(channel) = self.channels.get(key) else { continue };
            match &channel.end {
                End::Here(_) => self.signal(key),
                End::Undecided(_) => self.decide(key),
                End::Relay(_) => self.carry_on(key),
            }
        }
    }

    fn signal(&mut self, key: ChannelKey) {
        let room = self.room_for(key);
        if let Some(channel) = self.channels.get_mut(key) {
            channel.signal(room);
        }
    }

    /// Ends a channel of this process.
    pub(super) fn end(&mut self, key: ChannelKey) {
        self.close(key);
        self.settle();
    }

    /// Ends a channel from this side.
    fn close(&mut self, key: ChannelKey) {
        self.close_with(key, TrunkRecord::Close);
    }

    /// Says that a channel is over, and forgets it.
    fn close_with(&mut self, key: ChannelKey, last: TrunkRecord) {
        let Some(channel) = self.channels.try_remove(key) else { return };
        self.touched.retain(|touched| *touched != key);
        if let End::Relay(Relay { other: Some(other), .. }) = channel.end {
            self.lose_other(other);
        }
        let Some(trunk_key) = channel.trunk else { return };
        let trunk = &mut self.trunks[trunk_key];
        trunk.channels.remove(&channel.number);
        trunk.starved.retain(|starved| *starved != key);
        if trunk.begun_by(key).is_some() {
            // Nobody has the rest of what was begun, and nothing else may follow.
            return self.end_trunk(trunk_key, &Ended::Unfinished);
        }
        trunk.say(channel.number, last);
        self.send_out(trunk_key);
    }

    /// The channel that this one carried on is over: so is this one, behind what waits.
    fn lose_other(&mut self, key: ChannelKey) {
        if let Some(Channel { end: End::Relay(relay), .. }) = self.channels.get_mut(key) {
            relay.other = None;
            if !mutation(Mutation::ChannelEndNotTold) {
                self.touched.push(key);
            }
        }
    }

    /// A trunk is over, and so are its channels.
    fn end_trunk(&mut self, trunk_key: TrunkKey, why: &Ended) {
        let Some(trunk) = self.trunks.try_remove(trunk_key) else { return };
        if let Ended::Unanswered = why {
            self.slowest_of.insert(trunk.node, trunk.unanswered.slowest_at(self.clock.now_ms()));
        }
        match why {
            Ended::Violation(_) => {
                let what = if trunk.is_line { "line" } else { "trunk" };
                tracing::warn!(node = self.options.identity.node.0, "the {what} to {} is ended: {why}", trunk.name())
            }
            _ if trunk.is_line => tracing::debug!(node = self.options.identity.node.0, "{}: {why}", trunk.name()),
            _ => {
                let node = self.options.identity.node.0;
                tracing::info!(node, "the trunk to {} is over: {why}; ranks that need it call again", trunk.name())
            }
        }
        if let Some(descriptor) = descriptor(&trunk) {
            let _ = self.poller.remove(descriptor);
        }
        if let Some(address) = &trunk.address {
            self.called.remove(address);
        }
        // In the order in which they were opened, so that simulated jobs repeat.
        let mut channels: Vec<_> = trunk.channels.into_iter().collect();
        channels.sort_unstable_by_key(|(number, _)| number.0);
        for (_, key) in channels {
            let error = if self.channels[key].is_open { LinkError::Reset } else { why.for_callers() };
            self.end_channel(key, error);
        }
        if let Going::Up(mut link) = trunk.going {
            link.abandon();
        }
    }

    /// Nothing goes over a channel any more, by its trunk or by its other side. That trunk does not have it now.
    fn end_channel(&mut self, key: ChannelKey, error: LinkError) {
        let channel = &mut self.channels[key];
        channel.trunk = None;
        let is_open = channel.is_open;
        let other = match &mut channel.end {
            End::Here(here) => {
                here.over = Some(error);
                return self.touched.push(key);
            }
            End::Undecided(_) => None,
            End::Relay(relay) => relay.other.take(),
        };
        self.channels.remove(key);
        self.touched.retain(|touched| *touched != key);
        match other {
            Some(other) if !is_open => self.close_with(other, TrunkRecord::Failed(line::failure_of(error))),
            Some(other) => self.lose_other(other),
            None => {}
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // What was said last, such as that a rank has left, goes out as far as there is room.
        for trunk in self.trunks.values_mut() {
            let _ = trunk.flush();
        }
    }
}

fn descriptor(trunk: &Trunk) -> Option<std::os::fd::BorrowedFd<'_>> {
    match &trunk.going {
        Going::Up(link) => link.descriptor(),
        Going::Calling { call, .. } => call.descriptor(),
    }
}
