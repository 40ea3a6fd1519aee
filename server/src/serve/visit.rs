//! What the door's requests do.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use longarm_proto::{JobId, Refusal};
use longarm_shm::{NodeSegment, NodeWindow};

use super::Shared;
use crate::door::{self, DoorError, DoorReply, DoorRequest};
use crate::table::WindowParts;

/// An answer and the memory whose descriptor goes with it.
pub(crate) enum Opened {
    Segment(Arc<NodeSegment>),
    Window(Arc<WindowParts>),
    Plain(DoorReply),
}

impl Opened {
    pub(crate) fn answer(&self, visitor: BorrowedFd<'_>) -> Result<(), DoorError> {
        match self {
            Opened::Segment(segment) => door::answer(visitor, &DoorReply::Here, Some(segment.file().as_fd())),
            Opened::Window(parts) => door::answer(visitor, &DoorReply::Here, Some(parts.memory.file().as_fd())),
            Opened::Plain(reply) => door::answer(visitor, reply, None),
        }
    }
}

impl Shared {
    /// Does what a visitor at the door asks for.
    pub(crate) fn open(&mut self, job: JobId, request: &DoorRequest) -> Opened {
        match request {
            DoorRequest::NodeSegment { job: asked } if *asked == job.0 => Opened::Segment(Arc::clone(&self.node)),
            DoorRequest::NodeSegment { .. } => {
                Opened::Plain(DoorReply::Refused { reason: "this is the door of another job".into() })
            }
            DoorRequest::Create { window, generation, key, parts } => {
                self.create(door::identity(*window, *generation), *key, parts)
            }
            DoorRequest::Attach { window, generation } => {
                let (window, generation) = door::identity(*window, *generation);
                match self.windows.get(window, generation) {
                    Ok(parts) => Opened::Window(Arc::clone(parts)),
                    Err(refusal) => Opened::Plain(door::refused(refusal)),
                }
            }
            DoorRequest::Free { window, generation } => {
                let (window, generation) = door::identity(*window, *generation);
                match self.windows.remove(window, generation) {
                    Ok(()) => {
                        self.locks.forget_window(window);
                        Opened::Plain(DoorReply::Gone)
                    }
                    Err(refusal) => Opened::Plain(door::refused(refusal)),
                }
            }
        }
    }

    fn create(
        &mut self,
        (window, generation): (longarm_proto::WindowId, longarm_proto::Generation),
        key: u64,
        parts: &[(u32, u64)],
    ) -> Opened {
        let Some((key, ranks, part_bytes)) = door::parts_of(key, parts) else {
            return Opened::Plain(door::refused(Refusal::NotSupported));
        };
        if let Some(stranger) = ranks.iter().find(|rank| !self.local_of_rank.contains_key(rank)) {
            let reason = format!("rank {} is not on this node", stranger.0);
            return Opened::Plain(DoorReply::Refused { reason });
        }
        let name = format!("longarm-window-{:x}", window.0);
        let memory = match NodeWindow::create(&name, &part_bytes) {
            Ok(memory) => memory,
            Err(error) => return Opened::Plain(DoorReply::Refused { reason: error.to_string() }),
        };
        if !self.windows.insert(window, generation, key, WindowParts { memory, ranks }) {
            return Opened::Plain(DoorReply::Refused { reason: "a window of this identity exists".into() });
        }
        let parts = self.windows.get(window, generation).expect("inserted just now");
        Opened::Window(Arc::clone(parts))
    }
}
