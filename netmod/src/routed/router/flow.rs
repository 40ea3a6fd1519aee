//! How bytes move: from ranks into trunks, and out of trunks to ranks and to the server.

use std::ops::Range;

use longarm_memory::{Region, RegionMut};
use longarm_proto::{
    ChannelNumber, Mutation, TRUNK_CHANNELS_MAX, TRUNK_DATA_BYTES_MAX, TrunkHeader, TrunkRecord, TrunkViolation,
    mutation,
};

use super::{Arrived, End, Ended, Going, Router, TRUNK, descriptor};
use crate::interest::{Interest, Ready};
use crate::link_error::LinkError;
use crate::routed::line;
use crate::routed::table::{ChannelKey, TrunkKey};
use crate::routed::trunk::{Arrival, COPIED_BYTES_MAX, CORKED_BYTES_MAX, Received, Trunk};

/// Receives that one turn of one trunk may take, so that no node starves the others.
const RECEIVES_PER_TURN: usize = 16;
/// Channels of a trunk, at most, with which the server looks at it for each of them.
const LOOKED_AT_MAX: usize = 4;

impl Router {
    /// Sends for an end in this process.
    pub(crate) fn send(&mut self, key: ChannelKey, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        let offered: usize = regions.iter().map(|region| region.len()).sum();
        self.check(key)?;
        if !self.channels[key].is_open {
            self.attend(key, |router, trunk_key| router.turn_trunk(trunk_key));
            self.check(key)?;
        }
        let mut sent = 0;
        while sent < offered {
            let channel = &mut self.channels[key];
            let Some(trunk_key) = channel.trunk else { break };
            let trunk = &mut self.trunks[trunk_key];
            if trunk.is_own_line() {
                match self.send_over_line(key, trunk_key, (regions, sent)) {
                    Ok(0) => break,
                    Ok(taken) => sent += taken,
                    // What was accepted before may be there: that it broke is for the next call to say.
                    Err(_) if sent > 0 => break,
                    Err(error) => {
                        self.settle();
                        return Err(error);
                    }
                }
                continue;
            }
            let most = (offered - sent).min(channel.sendable()).min(trunk.room()).min(TRUNK_DATA_BYTES_MAX);
            if most == 0 {
                break;
            }
            let taken = channel.may_send.take_up_to(most as u64) as usize;
            let (number, is_kept) = (channel.number, !trunk.is_ours());
            self.say_data(trunk_key, number, &part(regions, sent, taken), is_kept);
            if self.channels[key].trunk.is_none() {
                // As above.
                self.settle();
                return if sent > 0 { Ok(sent) } else { self.check(key).map(|()| 0) };
            }
            sent += taken;
        }
        self.signal(key);
        // Those who waited for room are not announced by any descriptor.
        self.settle();
        Ok(sent)
    }

    /// Sends for an end in this process over the line of this rank, one record at most: of the regions what lies behind so many bytes.
    fn send_over_line(
        &mut self,
        key: ChannelKey,
        line_key: TrunkKey,
        (regions, from): (&[Region<'_>], usize),
    ) -> Result<usize, LinkError> {
        let (channel, line) = (&mut self.channels[key], &mut self.trunks[line_key]);
        let most = line.begun_by(key).unwrap_or(channel.sendable().min(TRUNK_DATA_BYTES_MAX));
        let regions = part(regions, from, most);
        if regions.is_empty() {
            return Ok(0);
        }
        match line.offer_data((key, channel.number), &regions) {
            Ok(sent) => {
                // No more than was room for when the record began.
                channel.may_send.take_up_to(sent as u64);
                self.watch(line_key);
                Ok(sent)
            }
            Err(error) => {
                self.end_trunk(line_key, &error.into());
                self.check(key).map(|()| 0)
            }
        }
    }

    /// Says data of a channel. `may_be_kept`: it may go out with that of others, in a turn that has corked.
    fn say_data(&mut self, trunk_key: TrunkKey, channel: ChannelNumber, regions: &[Region<'_>], may_be_kept: bool) {
        let bytes: usize = regions.iter().map(|region| region.len()).sum();
        let trunk = &mut self.trunks[trunk_key];
        if may_be_kept && self.corks > 0 && bytes <= COPIED_BYTES_MAX {
            trunk.keep_data(channel, regions);
            return self.send_out(trunk_key);
        }
        match trunk.say_data(channel, regions) {
            Ok(()) => self.watch(trunk_key),
            Err(error) => self.end_trunk(trunk_key, &error.into()),
        }
    }

    /// Sends what a trunk has to send, at the end of the turn if that has corked.
    pub(super) fn send_out(&mut self, trunk_key: TrunkKey) {
        let Some(trunk) = self.trunks.get_mut(trunk_key) else { return };
        if goes_out_now(self.corks, trunk) {
            return self.flush(trunk_key);
        }
        if !std::mem::replace(&mut trunk.is_corked, true) {
            self.corked.push(trunk_key);
        }
    }

    /// Receives for an end in this process.
    pub(crate) fn receive(&mut self, key: ChannelKey, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        if regions.iter().all(|region| region.is_empty()) {
            // Nothing can come, and that must not look like the end of the stream.
            return Ok(0);
        }
        let mut got = self.take(key, regions);
        if got == 0 {
            got = self.receive_straight(key, regions);
        }
        if got == 0 && self.is_worth_a_look(key) {
            self.attend(key, |router, trunk_key| router.turn_trunk(trunk_key));
            got = self.take(key, regions);
        }
        if got == 0 {
            let End::Here(here) = &self.channels[key].end else { unreachable!("an end in this process") };
            let over = here.over;
            self.signal(key);
            return over.map_or(Ok(0), Err);
        }
        self.passed(key, got);
        self.signal(key);
        self.settle();
        Ok(got)
    }

    /// Whether a thread that finds nothing in a channel looks at its trunk. In one that this node has called always, at the line of this rank now and then; else
    /// only where few share it: each of many would look for all of them, and what comes is announced.
    fn is_worth_a_look(&mut self, key: ChannelKey) -> bool {
        let Some(trunk_key) = self.channels[key].trunk else { return false };
        let trunk = &mut self.trunks[trunk_key];
        if trunk.is_own_line() {
            return trunk.is_worth_a_look_of(key, self.clock.now_ms());
        }
        trunk.is_ours() || trunk.channels.len() <= LOOKED_AT_MAX
    }

    /// Brings in what comes next where it belongs, if it belongs to this channel.
    fn receive_straight(&mut self, key: ChannelKey, regions: &[RegionMut<'_>]) -> usize {
        let channel = &self.channels[key];
        let Some(trunk_key) = channel.trunk else { return 0 };
        match self.trunks[trunk_key].receive_data(channel.number, regions) {
            Ok(got) => {
                let got = got.unwrap_or(0);
                // Else all that is there is looked at next.
                if got > 0 {
                    self.look_inside(trunk_key);
                }
                got
            }
            Err(error) => {
                self.end_trunk(trunk_key, &error.into());
                self.settle();
                0
            }
        }
    }

    fn take(&mut self, key: ChannelKey, regions: &[RegionMut<'_>]) -> usize {
        let End::Here(here) = &mut self.channels[key].end else { unreachable!("an end in this process") };
        here.input.take(regions)
    }

    /// Turns the trunk of a channel whose owner looks at it afterwards.
    fn attend(&mut self, key: ChannelKey, turn: impl FnOnce(&mut Router, TrunkKey)) {
        let Some(trunk_key) = self.channels[key].trunk else { return };
        self.attended = Some(key);
        turn(self, trunk_key);
        self.settle();
        self.attended = None;
    }

    /// Whether something has come for an end in this process.
    pub(crate) fn holds_bytes(&self, key: ChannelKey) -> bool {
        matches!(&self.channels[key].end, End::Here(here) if !here.input.is_empty())
    }

    /// What the owner of an end in this process wants to be told of.
    pub(crate) fn want(&mut self, key: ChannelKey, wanted: Interest) {
        if let End::Here(here) = &mut self.channels[key].end {
            here.want(wanted);
        }
        self.signal(key);
    }

    fn check(&self, key: ChannelKey) -> Result<(), LinkError> {
        match &self.channels[key].end {
            End::Here(here) => here.over.map_or(Ok(()), Err),
            End::Undecided(_) | End::Relay(_) => Ok(()),
        }
    }

    /// Bytes of a channel have gone to where they belong: the other side may send more.
    pub(super) fn passed(&mut self, key: ChannelKey, bytes: usize) {
        let channel = &mut self.channels[key];
        let (credit, channel_number) = (channel.pass(bytes), channel.number);
        if let (Some(credit), Some(trunk_key)) = (credit, channel.trunk) {
            self.trunks[trunk_key].say(channel_number, TrunkRecord::Credit(credit));
            self.send_out(trunk_key);
        }
    }

    /// Goes on with one trunk whose descriptor has announced something.
    pub(crate) fn turn_announced(&mut self, trunk_key: TrunkKey, ready: Ready) {
        if ready.writable
            && let Some(trunk) = self.trunks.get_mut(trunk_key)
        {
            trunk.is_full = false;
        }
        self.turn_trunk(trunk_key);
    }

    /// Goes on with one trunk.
    pub(crate) fn turn_trunk(&mut self, trunk_key: TrunkKey) {
        let Some(trunk) = self.trunks.get(trunk_key) else { return };
        if matches!(trunk.going, Going::Calling { .. }) {
            self.step_call(trunk_key);
            return;
        }
        if let Err(why) = self.receive_trunk(trunk_key) {
            return self.end_trunk(trunk_key, &why);
        }
        self.send_out(trunk_key);
    }

    fn receive_trunk(&mut self, trunk_key: TrunkKey) -> Result<(), Ended> {
        if let Some(trunk) = self.trunks.get_mut(trunk_key) {
            trunk.borrow_buffer(&mut self.receive_buffer);
        }
        let received = self.receive_with_buffer(trunk_key);
        // Else it has ended, and the buffer with it: the next one to receive makes another.
        if let Some(trunk) = self.trunks.get_mut(trunk_key) {
            trunk.return_buffer(&mut self.receive_buffer);
        }
        received
    }

    fn receive_with_buffer(&mut self, trunk_key: TrunkKey) -> Result<(), Ended> {
        for _ in 0..RECEIVES_PER_TURN {
            let Some(trunk) = self.trunks.get_mut(trunk_key) else { return Ok(()) };
            let received = trunk.receive()?;
            if received != Received::Nothing {
                if trunk.unanswered.lasts() {
                    trunk.unanswered.heard(self.clock.now_ms());
                }
                self.take_records(trunk_key)?;
                // What was caused by that goes out first, as far as the link takes it.
                let Some(trunk) = self.trunks.get_mut(trunk_key) else { return Ok(()) };
                if goes_out_now(self.corks, trunk) {
                    trunk.flush()?;
                }
                trunk.check_unreceived()?;
            }
            let Some(trunk) = self.trunks.get_mut(trunk_key) else { return Ok(()) };
            // A link that announces nothing by itself is asked to.
            let is_drained = received != Received::Some && !trunk.link().is_some_and(|link| link.arm());
            if is_drained {
                return Ok(());
            }
        }
        // There may be more inside the link, which no descriptor announces.
        self.look_again(trunk_key);
        Ok(())
    }

    /// Hands on what has come.
    fn take_records(&mut self, trunk_key: TrunkKey) -> Result<(), Ended> {
        while let Some(trunk) = self.trunks.get_mut(trunk_key) {
            let (is_caller, is_line) = (trunk.is_ours(), trunk.is_line);
            let header = match trunk.next()? {
                None => break,
                Some(Arrival::Record(header)) => header,
                Some(Arrival::Data(channel, bytes)) => {
                    // Data of a channel that was closed here is nobody's.
                    if let Some(key) = trunk.channels.get(&channel).copied() {
                        self.deliver(trunk_key, key, bytes);
                    }
                    continue;
                }
            };
            let TrunkHeader { channel, record } = header;
            trunk.note_answer(channel, || self.clock.now_ms());
            let unexpected = Ended::from(TrunkViolation::Unexpected { channel, record });
            let Some(key) = trunk.channels.get(&channel).copied() else {
                match record {
                    TrunkRecord::Open if !is_caller && channel > trunk.last_channel => {
                        if trunk.channels.len() >= channels_max(trunk, self.options.node_count) {
                            return Err(TrunkViolation::TooManyChannels { channel }.into());
                        }
                        self.take_in_channel(trunk_key, channel);
                    }
                    TrunkRecord::Open => return Err(unexpected),
                    // It was closed here, and the other side has not heard of it yet.
                    _ if channel <= trunk.last_channel => {}
                    _ => return Err(unexpected),
                }
                continue;
            };
            let overdrawn = TrunkViolation::Overdrawn { channel };
            let entry = &mut self.channels[key];
            match record {
                TrunkRecord::Open => return Err(unexpected),
                TrunkRecord::Opened if is_caller && !entry.is_open => self.opened(key),
                TrunkRecord::Opened => return Err(unexpected),
                TrunkRecord::Data(_) if !entry.is_open => return Err(unexpected),
                TrunkRecord::Data(bytes) => entry.may_come.take(u64::from(bytes)).map_err(|_| overdrawn)?,
                TrunkRecord::Credit(bytes) if u64::from(bytes) > entry.may_send.outstanding() => {
                    return Err(overdrawn.into());
                }
                TrunkRecord::Credit(bytes) => {
                    entry.may_send.give(u64::from(bytes));
                    if self.touched.last() != Some(&key) {
                        self.touched.push(key);
                    }
                }
                TrunkRecord::Close => self.closed(trunk_key, key, LinkError::Closed),
                TrunkRecord::Failed(failure) if is_caller && is_line && !entry.is_open => {
                    self.closed(trunk_key, key, line::error_of(failure));
                }
                TrunkRecord::Failed(_) => return Err(unexpected),
            }
        }
        Ok(())
    }

    /// Hands data on that has come for a channel.
    fn deliver(&mut self, trunk_key: TrunkKey, key: ChannelKey, mut bytes: Range<usize>) {
        if let End::Relay(relay) = &self.channels[key].end {
            let Some(other) = relay.other else { return };
            bytes.start += self.carry_straight(trunk_key, (key, other), bytes.clone());
            if bytes.is_empty() || self.channels.get(key).is_none() {
                return;
            }
        }
        let bytes = self.trunks[trunk_key].incoming(bytes);
        let receiver = match &mut self.channels[key].end {
            End::Here(here) => {
                here.input.push(bytes);
                key
            }
            End::Undecided(said) => {
                said.extend_from_slice(bytes);
                key
            }
            End::Relay(relay) => {
                let Some(other) = relay.other else { return };
                let End::Relay(there) = &mut self.channels[other].end else {
                    unreachable!("the other one of a channel that is carried on is carried on as well")
                };
                there.output.push(bytes);
                other
            }
        };
        if self.channels[receiver].waiting().is_some_and(|waiting| waiting.has_grown()) {
            self.tick.start();
        }
        if self.touched.last() != Some(&receiver) {
            self.touched.push(receiver);
        }
    }

    /// Sends data that has come over one channel straight over the other one, as far as nothing waits there and there is room. Gives how much that was.
    fn carry_straight(&mut self, from: TrunkKey, (key, other): (ChannelKey, ChannelKey), bytes: Range<usize>) -> usize {
        let room = self.room_for(other);
        let channel = &mut self.channels[other];
        let (sendable, number) = (channel.sendable(), channel.number);
        let (End::Relay(relay), Some(trunk_key)) = (&channel.end, channel.trunk) else { return 0 };
        let carried = bytes.len().min(sendable).min(room).min(TRUNK_DATA_BYTES_MAX);
        if carried == 0 || !relay.output.is_empty() {
            return 0;
        }
        channel.may_send.take_up_to(carried as u64);
        // Nothing is received over that trunk meanwhile, which may end, and take the buffer along.
        let incoming = self.trunks[from].take_incoming();
        let passed_on = carried - usize::from(carried > 1 && mutation(Mutation::ChannelCutShort));
        self.say_data(trunk_key, number, &[Region::from_slice(&incoming[bytes][..passed_on])], true);
        if let Some(trunk) = self.trunks.get_mut(from) {
            trunk.put_incoming(incoming);
        }
        if self.channels.get(key).is_some() {
            self.passed(key, carried);
        }
        carried
    }

    /// The other side has ended a channel.
    fn closed(&mut self, trunk_key: TrunkKey, key: ChannelKey, why: LinkError) {
        let trunk = &mut self.trunks[trunk_key];
        trunk.channels.remove(&self.channels[key].number);
        trunk.starved.retain(|starved| *starved != key);
        // One that the server has not taken in yet is over before it has begun.
        let before = self.arrived.len();
        self.arrived.retain(|arrived| !matches!(arrived, Arrived::Channel { key: there, .. } if *there == key));
        if self.arrived.len() < before {
            self.channels.remove(key);
            return self.touched.retain(|touched| *touched != key);
        }
        self.end_channel(key, why);
    }

    /// Sends what has come over the other one of a channel that is carried on, as far as there is room.
    pub(super) fn carry_on(&mut self, key: ChannelKey) {
        loop {
            let room = self.room_for(key);
            let Some(channel) = self.channels.get_mut(key) else { return };
            let (sendable, number, trunk_key) = (channel.sendable(), channel.number, channel.trunk);
            let End::Relay(relay) = &mut channel.end else { unreachable!("a channel that is carried on") };
            let Some(trunk_key) = trunk_key else { return };
            if relay.output.is_empty() {
                if relay.other.is_none() {
                    self.close(key);
                }
                return;
            }
            let bytes = relay.output.ready().len().min(sendable).min(room).min(TRUNK_DATA_BYTES_MAX);
            if bytes == 0 {
                return;
            }
            let (mut output, other) = (std::mem::take(&mut relay.output), relay.other);
            channel.may_send.take_up_to(bytes as u64);
            self.say_data(trunk_key, number, &[Region::from_slice(&output.ready()[..bytes])], true);
            // Otherwise its trunk has ended, and it with it.
            if let Some(channel) = self.channels.get_mut(key)
                && let End::Relay(relay) = &mut channel.end
            {
                output.pass(bytes);
                relay.output = output;
                if let Some(other) = other {
                    self.passed(other, bytes);
                }
            }
        }
    }

    /// Sends what a trunk has to send, and lets those go on who waited for that.
    pub(super) fn flush(&mut self, trunk_key: TrunkKey) {
        let Some(trunk) = self.trunks.get_mut(trunk_key) else { return };
        trunk.is_corked = false;
        if let Err(error) = trunk.flush() {
            return self.end_trunk(trunk_key, &error.into());
        }
        self.watch(trunk_key);
    }

    /// How much the trunk of a channel takes. If that is nothing, the channel is told when it takes more.
    pub(super) fn room_for(&mut self, key: ChannelKey) -> usize {
        let Some(trunk_key) = self.channels.get(key).and_then(|channel| channel.trunk) else { return 0 };
        let trunk = &mut self.trunks[trunk_key];
        let room = if trunk.is_begun_by_another(key) { 0 } else { trunk.room() };
        if room == 0 && !trunk.starved.contains(&key) {
            trunk.starved.push(key);
        }
        room
    }

    /// A link may have taken bytes in while it was used for something else, which no descriptor announces.
    fn look_inside(&mut self, trunk_key: TrunkKey) {
        if self.trunks.get_mut(trunk_key).and_then(Trunk::link).is_some_and(|link| link.holds_bytes()) {
            self.look_again(trunk_key);
        }
    }

    /// Watches a trunk for what can be done there now.
    fn watch(&mut self, trunk_key: TrunkKey) {
        self.look_inside(trunk_key);
        let Some(trunk) = self.trunks.get_mut(trunk_key) else { return };
        if trunk.room() >= TRUNK_DATA_BYTES_MAX {
            self.touched.append(&mut trunk.starved);
        }
        if trunk.waiting().has_grown() {
            self.tick.start();
        }
        let Going::Up(link) = &trunk.going else { return };
        let interest = link.awaits(Interest { readable: true, writable: trunk.wants_write() });
        if interest == trunk.interest {
            return;
        }
        trunk.interest = interest;
        if let Some(descriptor) = descriptor(trunk)
            && let Err(error) = self.poller.modify(descriptor, TRUNK | trunk_key.token(), interest)
        {
            tracing::error!(%error, "cannot watch a connection of the router");
        }
    }
}

/// Channels that a trunk may have at a time: over a line a rank has one for each node, and perhaps one more that it has given up.
fn channels_max(trunk: &Trunk, node_count: u32) -> usize {
    if trunk.is_line { TRUNK_CHANNELS_MAX.max(2 * node_count as usize) } else { TRUNK_CHANNELS_MAX }
}

/// Whether what a trunk has to send waits for no end of a turn.
fn goes_out_now(corks: u32, trunk: &Trunk) -> bool {
    corks == 0 || trunk.unsent_bytes() >= CORKED_BYTES_MAX
}

/// The regions from one byte on, and so many bytes of them.
fn part<'a>(regions: &[Region<'a>], mut from: usize, mut bytes: usize) -> Vec<Region<'a>> {
    let mut part = Vec::with_capacity(regions.len());
    for region in regions {
        let skipped = from.min(region.len());
        let taken = bytes.min(region.len() - skipped);
        from -= skipped;
        bytes -= taken;
        if taken > 0 {
            part.push(region.slice(skipped, taken));
        }
    }
    part
}
