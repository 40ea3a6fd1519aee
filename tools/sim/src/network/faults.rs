//! What goes wrong with links.

use super::{Event, FOREVER_NS, LinkState, Network, Owner, Pipe};
use crate::trace::{What, Who};

/// More than either side says before the first frame.
const HANDSHAKE_BYTES_MAX: u64 = 400;

impl Network {
    /// Breaks a link: of what is under way dice choose how much still arrives, then both ends see a reset.
    pub fn break_link(&mut self, link: u32) {
        for end in [0, 1] {
            self.break_end(link, end);
        }
    }

    /// Breaks a link for one end only. The other one finds out when it sends, or after a while.
    pub fn break_half(&mut self, link: u32, end: usize, later_ns: u64) {
        self.break_end(link, end);
        self.after(later_ns, Event::End(link << 1 | end as u32));
    }

    fn break_end(&mut self, link: u32, end: usize) {
        let state = &mut self.links[link as usize];
        if state.pipes[1 - end].is_silent() || std::mem::replace(&mut state.broken[end], true) {
            return;
        }
        self.no_longer_whole(link);
        let state = &mut self.links[link as usize];
        // What was under way to this end: any first part of it still arrives.
        let pipe = &mut state.pipes[1 - end];
        let open = pipe.bytes.len() - pipe.arrived;
        let kept = if open == 0 { 0 } else { state.dice.below(open as u64 + 1) as usize };
        pipe.arrived += kept;
        pipe.bytes.truncate(pipe.arrived);
        let lost = open - kept;
        for piece in &mut pipe.under_way {
            piece.bytes = 0;
        }
        if end == 1 {
            self.break_direct(link);
        } else {
            self.silence_direct(link);
        }
        self.note(What::Break, Who::Link(link, end as u8), lost as u64);
        self.after(1, Event::End(link << 1 | (1 - end as u32)));
    }

    /// Whether more than so many bytes of the caller were read.
    pub fn has_read(&self, link: u32, bytes: u64) -> bool {
        self.links[link as usize].pipes[0].read_bytes > bytes
    }

    /// Changes a bit of what an end sends next. False if it may be a part of the first handshake of the two ends, where a
    /// wrong answer is taken for a stranger's.
    pub fn flip(&mut self, link: u32, end: usize, luck: u64) -> bool {
        // The caller's pipe 1: what it has read is what convinced it.
        let is_through = |other: &LinkState| other.pipes[1].read_bytes >= HANDSHAKE_BYTES_MAX;
        let chosen = &self.links[link as usize];
        let earlier = self.links[..link as usize].iter().rev();
        let known = chosen.pipes[end].read_bytes >= HANDSHAKE_BYTES_MAX
            || earlier.filter(|other| other.owners == chosen.owners).any(is_through);
        if known {
            self.links[link as usize].pipes[end].flip = Some(luck);
        }
        known
    }

    /// Breaks a link once so many more bytes were sent from an end.
    pub fn break_after(&mut self, link: u32, end: usize, bytes: usize) {
        self.links[link as usize].pipes[end].left_bytes = Some(bytes);
    }

    /// Nothing that an end sends arrives before a moment.
    pub fn hold(&mut self, link: u32, end: usize, until_ns: u64) {
        let held = &mut self.links[link as usize].pipes[end].held_until_ns;
        *held = until_ns.max(*held);
    }

    /// Nothing that an end sends arrives any more, not even that it has gone. It is whole no longer: nothing else happens to it.
    pub fn silence(&mut self, link: u32, end: usize) {
        self.links[link as usize].pipes[end].held_until_ns = FOREVER_NS;
        self.no_longer_whole(link);
    }

    /// An end closes a link.
    pub(super) fn count_silent(&mut self, link: u32) {
        let state = &self.links[link as usize];
        if state.pipes.iter().any(Pipe::is_silent) {
            self.silent.closed += 1;
            self.silent.trunks_closed += u64::from(matches!(state.owners, [Owner::Server(_), Owner::Server(_)]));
        }
    }

    /// What an end sends is read in sips of this size from now on, or as usual again.
    pub fn sip(&mut self, link: u32, end: usize, bytes: Option<usize>) {
        self.links[link as usize].pipes[end].sip_bytes = bytes;
    }

    /// All links that no end knows to be broken or has closed.
    pub fn whole_links(&self) -> &[u32] {
        &self.whole
    }

    pub(super) fn no_longer_whole(&mut self, link: u32) {
        if let Ok(at) = self.whole.binary_search(&link) {
            self.whole.remove(at);
        }
    }

    /// Who is at the ends of a link.
    pub fn owners(&self, link: u32) -> [Owner; 2] {
        self.links[link as usize].owners
    }

    /// Nobody reaches anybody any more, and all links break.
    pub fn close_all(&mut self) {
        self.deaf.fill(true);
        self.links.iter_mut().flat_map(|link| &mut link.pipes).for_each(Pipe::hear_again);
        for link in 0..self.links.len() as u32 {
            self.break_link(link);
        }
    }

    /// All links of somebody break, and if it is a server nobody reaches it any more.
    pub fn kill(&mut self, who: Owner) {
        if let Owner::Server(node) = who {
            self.deaf[node as usize] = true;
        }
        for link in 0..self.links.len() as u32 {
            if self.links[link as usize].owners.contains(&who) {
                self.break_link(link);
            }
        }
    }
}
