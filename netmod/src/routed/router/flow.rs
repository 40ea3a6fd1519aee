//! How bytes move: from ranks into trunks, and out of trunks to ranks and to the server.

use std::ops::Range;
use std::os::fd::AsFd;

use longarm_memory::{Region, RegionMut};
use longarm_proto::{
    ChannelNumber, TRUNK_CHANNELS_MAX, TRUNK_DATA_BYTES_MAX, TrunkHeader, TrunkRecord, TrunkViolation,
};

use super::{Arrived, CHANNEL, End, Ended, Going, Router, TRUNK, descriptor};
use crate::interest::Interest;
use crate::link_error::{LinkError, moved};
use crate::routed::neighbour;
use crate::routed::table::{ChannelKey, TrunkKey};
use crate::routed::trunk::{Arrival, COPIED_BYTES_MAX, CORKED_BYTES_MAX, Received, Trunk};

/// Receives that one turn of one trunk may take, so that no node starves the others.
const RECEIVES_PER_TURN: usize = 16;
/// The same for a rank of this node.
const READS_PER_TURN: usize = 4;
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
            let most = (offered - sent).min(channel.sendable()).min(trunk.room()).min(TRUNK_DATA_BYTES_MAX);
            if most == 0 {
                break;
            }
            let taken = channel.may_send.take_up_to(most as u64) as usize;
            let (number, is_kept) = (channel.number, !trunk.is_ours());
            self.say_data(trunk_key, number, &part(regions, sent, taken), is_kept);
            if self.channels[key].trunk.is_none() {
                // What was accepted before may be there: that it broke is for the next call to say.
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

    /// Whether a thread that finds nothing in a channel looks at its trunk. In one that this node has called always; else only where few share it: each
    /// of many would look for all of them, and what comes is announced.
    fn is_worth_a_look(&self, key: ChannelKey) -> bool {
        let Some(trunk_key) = self.channels[key].trunk else { return false };
        let trunk = &self.trunks[trunk_key];
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
            End::Neighbour(_) => Ok(()),
        }
    }

    /// Bytes of a channel have gone to where they belong: the other side may send more.
    fn passed(&mut self, key: ChannelKey, bytes: usize) {
        let channel = &mut self.channels[key];
        let (credit, channel_number) = (channel.pass(bytes), channel.number);
        if let (Some(credit), Some(trunk_key)) = (credit, channel.trunk) {
            self.trunks[trunk_key].say(channel_number, TrunkRecord::Credit(credit));
            self.send_out(trunk_key);
        }
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
        for _ in 0..RECEIVES_PER_TURN {
            let Some(trunk) = self.trunks.get_mut(trunk_key) else { return Ok(()) };
            let received = trunk.receive()?;
            if received != Received::Nothing {
                if trunk.silence.lasts() {
                    trunk.silence.end(self.clock.now_ms());
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
            let is_caller = trunk.address.is_some();
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
            let unexpected = Ended::from(TrunkViolation::Unexpected { channel, record });
            let Some(key) = trunk.channels.get(&channel).copied() else {
                match record {
                    TrunkRecord::Open if !is_caller && channel > trunk.last_channel => {
                        if trunk.channels.len() >= TRUNK_CHANNELS_MAX {
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
                TrunkRecord::Close => self.closed(trunk_key, key),
            }
        }
        Ok(())
    }

    /// Hands data on that has come for a channel.
    fn deliver(&mut self, trunk_key: TrunkKey, key: ChannelKey, bytes: Range<usize>) {
        let bytes = self.trunks[trunk_key].incoming(bytes);
        let channel = &mut self.channels[key];
        let mut sent = 0;
        match &mut channel.end {
            End::Here(here) => here.input.push(bytes),
            End::Neighbour(neighbour) => {
                if neighbour.is_fed() {
                    // That the rank has gone is noticed when its socket is read.
                    sent = longarm_memory::send(neighbour.socket.as_fd(), &[Region::from_slice(bytes)]).unwrap_or(0);
                }
                neighbour.output.push(&bytes[sent..]);
            }
        }
        if self.touched.last() != Some(&key) {
            self.touched.push(key);
        }
        if sent > 0 {
            self.passed(key, sent);
        }
    }

    /// The other side has ended a channel.
    fn closed(&mut self, trunk_key: TrunkKey, key: ChannelKey) {
        let channel = &mut self.channels[key];
        let trunk = &mut self.trunks[trunk_key];
        trunk.channels.remove(&channel.number);
        trunk.starved.retain(|starved| *starved != key);
        channel.trunk = None;
        // One that the server has not taken in yet is over before it has begun.
        let before = self.arrived.len();
        self.arrived.retain(|arrived| !matches!(arrived, Arrived::Channel { key: there, .. } if *there == key));
        if self.arrived.len() < before {
            return self.close(key);
        }
        match &mut channel.end {
            End::Here(here) => here.over = Some(LinkError::Closed),
            End::Neighbour(neighbour) => {
                if !channel.is_open {
                    neighbour.answer = Some(Err(LinkError::Reset));
                }
                neighbour.is_closing = true;
            }
        }
        self.touched.push(key);
    }

    /// Something is to be done at the socket of a rank.
    pub(super) fn turn_neighbour(&mut self, key: ChannelKey) {
        let Some(channel) = self.channels.get(key) else { return };
        let End::Neighbour(neighbour) = &channel.end else { return };
        if !channel.is_open && channel.trunk.is_some() {
            // It has nothing to say yet, so it is gone.
            let mut byte = [0];
            let got = longarm_memory::receive(neighbour.socket.as_fd(), &[RegionMut::from_slice(&mut byte)]);
            let is_waiting = got.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            if !is_waiting {
                self.close(key);
            }
            return;
        }
        if self.read_neighbour(key) {
            self.feed_neighbour(key);
        }
    }

    /// Gives a rank what has come for it.
    pub(super) fn feed_neighbour(&mut self, key: ChannelKey) {
        let channel = &mut self.channels[key];
        let End::Neighbour(neighbour) = &mut channel.end else { unreachable!("the end of a rank") };
        if let Some(answer) = neighbour.answer {
            if !neighbour::answer(&neighbour.socket, answer) {
                return self.close(key);
            }
            neighbour.answer = None;
        }
        let mut sent = 0;
        while !neighbour.output.is_empty() {
            match moved(longarm_memory::send(neighbour.socket.as_fd(), &[Region::from_slice(neighbour.output.ready())]))
            {
                Ok(0) => break,
                Ok(bytes) => {
                    neighbour.output.pass(bytes);
                    sent += bytes;
                }
                Err(_) => return self.close(key),
            }
        }
        if neighbour.is_closing && neighbour.is_fed() {
            return self.close(key);
        }
        if sent > 0 {
            self.passed(key, sent);
        }
        self.watch_neighbour(key);
    }

    /// Takes what a rank says as far as there is room for it. False: the channel has ended.
    fn read_neighbour(&mut self, key: ChannelKey) -> bool {
        for _ in 0..READS_PER_TURN {
            let Some(channel) = self.channels.get_mut(key) else { return false };
            let (Some(trunk_key), End::Neighbour(neighbour)) = (channel.trunk, &channel.end) else { return true };
            let trunk = &mut self.trunks[trunk_key];
            let most = channel.sendable().min(trunk.room()).min(TRUNK_DATA_BYTES_MAX);
            if most == 0 {
                return true;
            }
            let scratch = &mut self.scratch[..most];
            match longarm_memory::receive(neighbour.socket.as_fd(), &[RegionMut::from_slice(scratch)]) {
                Ok(0) => {
                    self.close(key);
                    return false;
                }
                other => match moved(other) {
                    Ok(0) => return true,
                    Ok(bytes) => {
                        let taken = channel.may_send.take_up_to(bytes as u64);
                        debug_assert_eq!(taken, bytes as u64, "no more than the other side has room for was read");
                        let number = channel.number;
                        let scratch = std::mem::take(&mut self.scratch);
                        self.say_data(trunk_key, number, &[Region::from_slice(&scratch[..bytes])], true);
                        self.scratch = scratch;
                        if bytes < most {
                            // What comes now is announced.
                            return self.channels.contains(key);
                        }
                    }
                    Err(_) => {
                        self.close(key);
                        return false;
                    }
                },
            }
        }
        true
    }

    /// Watches the socket of a rank for what can be done there now. What cannot is done when there is room.
    fn watch_neighbour(&mut self, key: ChannelKey) {
        let room = self.room_for(key);
        let Some(channel) = self.channels.get_mut(key) else { return };
        let readable = channel.trunk.is_some() && channel.sendable().min(room) > 0;
        let is_opening = !channel.is_open && channel.trunk.is_some();
        let End::Neighbour(neighbour) = &mut channel.end else { return };
        let interest = Interest { readable, writable: !neighbour.output.is_empty() };
        // That it has gone is always announced. While nothing of it is taken, that would be again and again.
        let wanted = (is_opening || interest != Interest::default()).then_some(interest);
        if wanted == neighbour.watched {
            return;
        }
        let token = CHANNEL | key.token();
        let socket = neighbour.socket.as_fd();
        let watched = match (neighbour.watched, wanted) {
            (None, Some(interest)) => self.poller.add(socket, token, interest),
            (Some(_), Some(interest)) => self.poller.modify(socket, token, interest),
            (_, None) => self.poller.remove(socket),
        };
        neighbour.watched = wanted;
        if let Err(error) = watched {
            tracing::error!(%error, "cannot watch a rank of this node");
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
        let room = trunk.room();
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
        let Going::Up(link) = &trunk.going else { return };
        let interest = link.awaits(Interest { readable: true, writable: trunk.has_unsent() });
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
