//! What lies between the two ends of a simulated link: one bounded pipe a direction, and how the link ends.

use std::collections::VecDeque;

use longarm_memory::{Region, RegionMut};

use super::dice::Dice;
use crate::link_error::LinkError;

/// Which end of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Caller,
    Called,
}

impl Side {
    fn index(self) -> usize {
        match self {
            Side::Caller => 0,
            Side::Called => 1,
        }
    }

    fn other(self) -> Self {
        match self {
            Side::Caller => Side::Called,
            Side::Called => Side::Caller,
        }
    }
}

/// The bytes that one side has sent and the other has not received.
struct Pipe {
    bytes: VecDeque<u8>,
    capacity_bytes: usize,
    /// The side that fills it has closed.
    writer_gone: bool,
}

pub(super) struct Wire {
    /// By the side that fills the pipe.
    pipes: [Pipe; 2],
    /// Bytes that may still be accepted before the link breaks; `None`: no break is planned.
    left_bytes: Option<u64>,
    broken: bool,
    dice: Dice,
}

impl Wire {
    pub(super) fn new(capacity_bytes: [usize; 2], dice: Dice) -> Self {
        let pipes =
            capacity_bytes.map(|capacity_bytes| Pipe { bytes: VecDeque::new(), capacity_bytes, writer_gone: false });
        Self { pipes, left_bytes: None, broken: false, dice }
    }

    pub(super) fn send(&mut self, side: Side, regions: &[Region<'_>], dice: &mut Dice) -> Result<usize, LinkError> {
        if self.broken {
            return Err(LinkError::Reset);
        }
        if self.pipes[side.other().index()].writer_gone {
            return Err(LinkError::Closed);
        }
        let pipe = &mut self.pipes[side.index()];
        let offered_bytes: usize = regions.iter().map(|region| region.len()).sum();
        let most = offered_bytes.min(pipe.capacity_bytes - pipe.bytes.len());
        let mut part = dice.part_of(most);
        if let Some(left) = self.left_bytes {
            part = part.min(usize::try_from(left).unwrap_or(usize::MAX));
            self.left_bytes = Some(left - part as u64);
        }
        let mut open = part;
        for region in regions {
            let bytes = open.min(region.len());
            let mut copy = vec![0; bytes];
            region.slice(0, bytes).copy_to_slice(&mut copy);
            pipe.bytes.extend(copy);
            open -= bytes;
        }
        if self.left_bytes == Some(0) {
            self.break_now();
        }
        Ok(part)
    }

    pub(super) fn receive(
        &mut self,
        side: Side,
        regions: &[RegionMut<'_>],
        dice: &mut Dice,
    ) -> Result<usize, LinkError> {
        let pipe = &mut self.pipes[side.other().index()];
        let room_bytes: usize = regions.iter().map(|region| region.len()).sum();
        if room_bytes > 0 && pipe.bytes.is_empty() {
            return match (self.broken, pipe.writer_gone) {
                (true, _) => Err(LinkError::Reset),
                (false, true) => Err(LinkError::Closed),
                (false, false) => Ok(0),
            };
        }
        let part = dice.part_of(room_bytes.min(pipe.bytes.len()));
        let mut open = part;
        for region in regions {
            let bytes = open.min(region.len());
            let copy: Vec<u8> = pipe.bytes.drain(..bytes).collect();
            region.slice(0, bytes).copy_from_slice(&copy);
            open -= bytes;
        }
        Ok(part)
    }

    pub(super) fn close(&mut self, side: Side) {
        self.pipes[side.index()].writer_gone = true;
    }

    /// False if the link is broken already, or has lost an end.
    pub(super) fn cut_after(&mut self, bytes: u64) -> bool {
        if self.broken || self.pipes.iter().any(|pipe| pipe.writer_gone) {
            return false;
        }
        self.left_bytes = Some(bytes);
        if bytes == 0 {
            self.break_now();
        }
        true
    }

    /// Any first part of what is under way may still arrive, as with a real network.
    fn break_now(&mut self) {
        self.broken = true;
        for pipe in &mut self.pipes {
            let kept_bytes = self.dice.part_of(pipe.bytes.len());
            pipe.bytes.truncate(kept_bytes);
        }
    }
}
