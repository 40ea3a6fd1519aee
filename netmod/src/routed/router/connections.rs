//! How connections come about: ranks of this node that want to reach a node, trunks that we call, and trunks that others call.

use std::os::fd::AsFd;

use longarm_memory::Region;
use longarm_proto::{ChannelNumber, Mutation, NodeId, Reception, Session, TrunkRecord, mutation};

use super::{ACCEPTS_PER_TURN, Arrived, End, Ended, Going, LINES, Relay, Router, TRUNK, Trunk, descriptor};
use crate::calls::Guest;
use crate::dial::{CallerStep, DialError};
use crate::entrance::EntranceStep;
use crate::interest::Interest;
use crate::link_error::LinkError;
use crate::routed::address::{Address, for_routers};
use crate::routed::channel::{Channel, Here};
use crate::routed::line::{self, LINE, SocketLink};
use crate::routed::table::{ChannelKey, TrunkKey};
use crate::routed::trunk::{TRUNK_SESSION, Unanswered};
use crate::traits::Link;

/// A trunk that is not there after this is given up; its packets may have been lost on their way.
const CALL_MS_MAX: u64 = 3000;

impl Router {
    /// A channel of this process to an address.
    pub(super) fn begin_here(&mut self, address: &str, here: Here) -> Result<ChannelKey, LinkError> {
        if self.is_of_rank() { self.begin_over_line(address, here) } else { self.begin(address, End::Here(here)) }
    }

    /// Whether routers call this one by that address.
    pub(super) fn is_own_address(&self, address: &str) -> bool {
        self.address.as_deref().map(for_routers) == Some(address)
    }

    /// Whether it is the end of a rank's line.
    fn is_of_rank(&self) -> bool {
        self.address.is_none()
    }

    /// The same over the line of this rank, whose other end passes it on.
    fn begin_over_line(&mut self, address: &str, here: Here) -> Result<ChannelKey, LinkError> {
        let destination = line::destination_of(address)?;
        let line_key = self.own_line()?;
        let key = self.open_channel(line_key, End::Here(here));
        let channel = &mut self.channels[key];
        let taken = channel.may_send.take_up_to(destination.len() as u64);
        debug_assert_eq!(taken, destination.len() as u64, "a new channel has room for an address");
        self.trunks[line_key].keep_data(channel.number, &[Region::from_slice(&destination)]);
        self.send_out(line_key);
        Ok(key)
    }

    /// A channel with the next number, which its trunk is to open with what is sent next.
    fn open_channel(&mut self, trunk_key: TrunkKey, end: End) -> ChannelKey {
        let trunk = &mut self.trunks[trunk_key];
        trunk.last_channel.0 += 1;
        let key = self.channels.insert(Channel::new(trunk_key, trunk.last_channel, false, end));
        trunk.channels.insert(trunk.last_channel, key);
        trunk.say(trunk.last_channel, TrunkRecord::Open);
        key
    }

    fn own_line(&mut self) -> Result<TrunkKey, LinkError> {
        if let Some(line_key) = self.called_before(LINE) {
            return Ok(line_key);
        }
        let link = SocketLink::connect(&self.options.socket_name)?;
        let line_key = self.trunks.insert(Trunk::line(link, true, self.options.identity.node));
        self.called.insert(LINE.to_owned(), line_key);
        self.watch_trunk(line_key);
        Ok(line_key)
    }

    /// A channel to an address, over the trunk there, which is called if there is none.
    pub(super) fn begin(&mut self, address: &str, end: End) -> Result<ChannelKey, LinkError> {
        let trunk_key = self.trunk_to(address)?;
        if let End::Relay(Relay { other: Some(other), .. }) = &end
            && self.channels.get(*other).is_none()
        {
            return Err(LinkError::Reset); // Another trunk has ended for that, and the rank's line with it.
        }
        let key = self.open_channel(trunk_key, end);
        let now_ms = self.clock.now_ms();
        let trunk = &mut self.trunks[trunk_key];
        if let Going::Up(_) = trunk.going {
            trunk.unanswered.begin(now_ms);
        }
        self.tick.start();
        self.send_out(trunk_key);
        Ok(key)
    }

    /// The trunk to an address. One whose numbers are used up is called anew.
    fn trunk_to(&mut self, address: &str) -> Result<TrunkKey, LinkError> {
        match self.called_before(address) {
            Some(trunk_key) => Ok(trunk_key),
            None => self.call(address),
        }
    }

    /// The trunk that was called by this address, if it has numbers left; else that is over.
    fn called_before(&mut self, address: &str) -> Option<TrunkKey> {
        let trunk_key = self.called.get(address).copied()?;
        if self.trunks[trunk_key].last_channel < ChannelNumber(u32::MAX) {
            return Some(trunk_key);
        }
        self.end_trunk(trunk_key, &Ended::UsedUp);
        None
    }

    fn call(&mut self, address: &str) -> Result<TrunkKey, LinkError> {
        let Address { node, router, .. } = Address::parse(address).ok_or(LinkError::BadAddress)?;
        let options = &self.options;
        self.attempts += 1;
        let session = Session { number: TRUNK_SESSION, attempt: self.attempts, is_known: false, received_bytes: 0 };
        let (secret, me, since_ms) = (options.secret.clone(), options.identity, self.clock.now_ms());
        // What a rank says is encrypted on its whole way where that is asked for.
        let guest = Guest { secret, me, peer: node, session, encrypted: false };
        let going = Going::Calling { call: Box::new(self.calls.start(router, guest, since_ms)?), since_ms };
        let slowest_ms = self.slowest_of.get(&node).copied().unwrap_or(0);
        let mut trunk = Trunk::new(going, Some(address.to_owned()), node);
        trunk.unanswered = Unanswered::of_slow_node(slowest_ms);
        let trunk_key = self.trunks.insert(trunk);
        self.called.insert(address.to_owned(), trunk_key);
        self.watch_trunk(trunk_key);
        // If it has failed already nobody else is told: whoever opens a channel finds none, and calls again.
        match self.step_call(trunk_key) {
            Some(error) => Err(error),
            None => self.called.get(address).copied().ok_or(LinkError::Refused),
        }
    }

    /// Watches the descriptor of a trunk that is new, or has another one than before.
    fn watch_trunk(&mut self, trunk_key: TrunkKey) {
        let trunk = &mut self.trunks[trunk_key];
        trunk.interest = match &trunk.going {
            Going::Calling { call, .. } => call.interest(),
            Going::Up(link) => link.awaits(Interest::READABLE),
        };
        if let Some(descriptor) = descriptor(trunk)
            && let Err(error) = self.poller.add(descriptor, TRUNK | trunk_key.token(), trunk.interest)
        {
            tracing::error!(%error, "cannot watch a connection of the router");
        }
    }

    /// Goes on with a trunk that is being made. Why it has ended, if it has.
    pub(super) fn step_call(&mut self, trunk_key: TrunkKey) -> Option<LinkError> {
        let now_ms = self.clock.now_ms();
        let trunk = &mut self.trunks[trunk_key];
        if let Some(descriptor) = descriptor(trunk) {
            let _ = self.poller.remove(descriptor);
        }
        let Going::Calling { call, since_ms } = &mut trunk.going else { return None };
        let since_ms = *since_ms;
        match call.poll(now_ms) {
            CallerStep::Pending => self.watch_trunk(trunk_key),
            CallerStep::Failed(error) => {
                let why = Ended::Call(error);
                self.end_trunk(trunk_key, &why);
                return Some(why.for_callers());
            }
            CallerStep::Proven { link, .. } => {
                trunk.going = Going::Up(link);
                trunk.unanswered.end_of_call(since_ms, now_ms, trunk.has_unanswered());
                self.watch_trunk(trunk_key);
                self.turn_trunk(trunk_key);
            }
        }
        None
    }

    /// Takes in what calls over the network. It proves itself before anything else is read.
    pub(super) fn take_in_trunks(&mut self) {
        self.entrance.take_in(self.clock.now_ms());
        self.see_to_callers();
        self.tick.start();
    }

    /// Goes on with one handshake.
    pub(super) fn look_at_caller(&mut self, number: usize) {
        self.entrance.look(number, self.clock.now_ms());
        self.see_to_callers();
    }

    fn see_to_callers(&mut self) {
        let now_ms = self.clock.now_ms();
        while let Some(step) = self.entrance.next_step() {
            match step {
                EntranceStep::Proven { number, identity, .. } if identity.node.0 >= self.options.node_count => {
                    let why = format_args!("node {} is none of this job", identity.node);
                    self.entrance.dismiss(number, now_ms, why);
                }
                EntranceStep::Proven { number, identity, session } => {
                    let last = self.attempts_of.entry(identity.node).or_default();
                    if session.number != TRUNK_SESSION {
                        let why = "a rank calls a router; LONGARM_CONNECTIONS_MAX has to be the same on all nodes";
                        self.entrance.dismiss(number, now_ms, format_args!("{why}"));
                    } else if session.attempt <= *last {
                        self.entrance.dismiss(number, now_ms, format_args!("an old call of node {}", identity.node));
                    } else {
                        *last = session.attempt;
                        self.entrance.welcome(number, Reception::Fresh, now_ms);
                    }
                }
                EntranceStep::Admitted { link, identity, session } => self.admit(link, identity.node, session.attempt),
            }
        }
    }

    /// A node has called, and was welcomed over this link.
    fn admit(&mut self, link: Box<dyn Link>, node: NodeId, attempt: u32) {
        if self.attempts_of.get(&node) != Some(&attempt) {
            return; // It has called again meanwhile. Dropping the link closes it.
        }
        let is_old = |trunk: &Trunk| !trunk.is_line && !trunk.is_ours() && trunk.node == node;
        let old = self.trunks.iter().find(|(_, trunk)| is_old(trunk));
        if let Some((old, _)) = old {
            self.end_trunk(old, &Ended::Replaced);
        }
        let trunk = self.trunks.insert(Trunk::new(Going::Up(link), None, node));
        self.watch_trunk(trunk);
        self.turn_trunk(trunk);
    }

    fn watch_lines(&self, interest: Interest) {
        if let Some(lines) = &self.lines
            && let Err(error) = self.poller.modify(lines.as_fd(), LINES, interest)
        {
            tracing::error!(%error, "cannot watch for new ranks of the router");
        }
    }

    /// Takes in ranks of this node.
    pub(super) fn take_in_lines(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(lines) = &self.lines else { return };
            match line::accept(lines.as_fd()) {
                Ok(Some(link)) => {
                    let line_key = self.trunks.insert(Trunk::line(link, false, self.options.identity.node));
                    self.watch_trunk(line_key);
                    self.turn_trunk(line_key);
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(node = self.options.identity.node.0, "cannot take in a rank: {error}");
                    self.watch_lines(Interest::default());
                    return self.tick.start();
                }
            }
        }
    }

    /// The next rank of another node that calls the server by itself.
    pub(super) fn take_in_rank(&mut self) -> Option<Box<dyn Link>> {
        let ranks = self.ranks.as_mut()?;
        let next = ranks.accept(&self.poller);
        if ranks.rests() {
            self.tick.start();
        }
        next
    }

    /// A rank of this node has said more of where a channel of its line is to lead.
    pub(super) fn decide(&mut self, key: ChannelKey) {
        let channel = &mut self.channels[key];
        let End::Undecided(said) = &channel.end else { unreachable!("a channel that leads nowhere yet") };
        let address = match line::address_in(said) {
            Ok(None) => return,
            Ok(Some(address)) => address.to_owned(),
            Err(error) => return self.close_with(key, TrunkRecord::Failed(line::failure_of(error))),
        };
        let said_bytes = said.len();
        self.passed(key, said_bytes);
        if self.is_own_address(&address) || mutation(Mutation::ChannelLeadsHome) {
            return self.decide_here(key);
        }
        match self.begin(&address, End::Relay(Relay::of(key))) {
            // A trunk that has ended already has taken this channel along.
            Ok(other) => {
                if let Some(channel) = self.channels.get_mut(key) {
                    channel.end = End::Relay(Relay::of(other));
                }
            }
            Err(error) => self.close_with(key, TrunkRecord::Failed(line::failure_of(error))),
        }
    }

    /// It leads to the server here.
    fn decide_here(&mut self, key: ChannelKey) {
        if !self.entrance.is_open() {
            return self.close_with(key, TrunkRecord::Failed(line::failure_of(LinkError::Refused)));
        }
        let (here, beacon) = Here::new();
        self.channels[key].end = End::Here(here);
        self.say_opened(key);
        self.arrive(Arrived::Channel { key, beacon, name: "a rank of this node".to_owned() });
    }

    /// Another node opens a channel.
    pub(super) fn take_in_channel(&mut self, trunk_key: TrunkKey, channel: ChannelNumber) {
        let trunk = &mut self.trunks[trunk_key];
        trunk.last_channel = channel;
        if !self.entrance.is_open() {
            // Nobody takes it in any more.
            let refused = TrunkRecord::Failed(line::failure_of(LinkError::Refused));
            trunk.say(channel, if trunk.is_line { refused } else { TrunkRecord::Close });
            return;
        }
        if trunk.is_line {
            let undecided = Channel::new(trunk_key, channel, true, End::Undecided(Vec::new()));
            trunk.channels.insert(channel, self.channels.insert(undecided));
            return;
        }
        let (here, beacon) = Here::new();
        let name = trunk.name();
        let key = self.channels.insert(Channel::new(trunk_key, channel, true, End::Here(here)));
        trunk.channels.insert(channel, key);
        trunk.say(channel, TrunkRecord::Opened);
        self.arrive(Arrived::Channel { key, beacon, name });
    }

    /// A channel of ours is open at the other node.
    pub(super) fn opened(&mut self, key: ChannelKey) {
        let channel = &mut self.channels[key];
        channel.is_open = true;
        if let End::Relay(Relay { other: Some(other), .. }) = channel.end {
            self.say_opened(other);
        }
        self.touched.push(key);
    }

    /// Tells a rank of this node that its channel leads there.
    fn say_opened(&mut self, key: ChannelKey) {
        let channel = &self.channels[key];
        let Some(line_key) = channel.trunk else { return };
        self.trunks[line_key].say(channel.number, TrunkRecord::Opened);
        self.send_out(line_key);
    }

    /// Gives up what has taken too long, and memory that nothing waits in.
    pub(super) fn look_after(&mut self) {
        self.tick.silence();
        let now_ms = self.clock.now_ms();
        self.watch_lines(Interest::READABLE);
        if let Some(ranks) = &mut self.ranks {
            ranks.look_after(&self.poller);
        }
        self.entrance.look_after(now_ms);
        self.see_to_callers();
        let waits = |trunk: &Trunk| matches!(trunk.going, Going::Calling { .. }) || trunk.unanswered.lasts();
        // What has come while nobody looked is not late.
        let waiting: Vec<TrunkKey> = self.trunks.iter().filter(|(_, trunk)| waits(trunk)).map(|(key, _)| key).collect();
        waiting.into_iter().for_each(|trunk_key| self.turn_trunk(trunk_key));
        let max_ms = self.options.unanswered_ms_max;
        let ended = |key: TrunkKey, trunk: &Trunk| match &trunk.going {
            Going::Calling { since_ms, .. } if now_ms >= since_ms + CALL_MS_MAX => {
                Some(Ended::Call(DialError::TimedOut))
            }
            // The answer may be in what has come and is not read.
            Going::Up(_) if self.holding.contains(&key) => None,
            Going::Up(_) if trunk.unanswered.is_over(now_ms, max_ms) => Some(Ended::Unanswered),
            _ => None,
        };
        let ended: Vec<(TrunkKey, Ended)> =
            self.trunks.iter().filter_map(|(key, trunk)| Some((key, ended(key, trunk)?))).collect();
        for (trunk_key, why) in ended {
            self.end_trunk(trunk_key, &why);
        }
        let has_grown = self.shrink();
        if self.entrance.has_time_limits() || has_grown || self.trunks.iter().any(|(_, trunk)| waits(trunk)) {
            self.tick.start();
        }
    }

    /// Gives back memory of what nothing waits in. Whether there is more to give back later.
    fn shrink(&mut self) -> bool {
        self.waiting().fold(false, |has_grown, waiting| {
            waiting.shrink();
            waiting.has_grown() | has_grown
        })
    }
}
