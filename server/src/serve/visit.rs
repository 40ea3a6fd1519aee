//! What the door's requests do.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use longarm_proto::{Generation, JobId, Mutation, Refusal, WindowId, mutation};
use longarm_shm::NodeSegment;

use super::state::ServeState;
use crate::door::{self, DoorError, DoorReply, DoorRequest, Handed};
use crate::table::{MemoryWanted, WindowParts};

/// An answer and the memory whose descriptor goes with it.
pub(crate) enum Opened {
    Segment(Arc<NodeSegment>),
    /// Of this segment.
    Ringer(Arc<NodeSegment>),
    /// With the address at which the ranks map it.
    Window(Arc<WindowParts>, Option<u64>),
    Plain(DoorReply),
}

impl Opened {
    /// The answer, and the descriptor that goes with it.
    fn reply(&self) -> (DoorReply, Option<BorrowedFd<'_>>) {
        let here = |address: Option<u64>, file: BorrowedFd<'_>| DoorReply::Here {
            address,
            number: file.as_raw_fd(),
            made_for: (0, 0),
        };
        match self {
            Opened::Segment(segment) => (here(None, segment.file()), Some(segment.file())),
            Opened::Window(parts, address) => {
                let (file, made_for) = (parts.memory.file(), (parts.made_for.0.0, parts.made_for.1.0));
                (DoorReply::Here { address: *address, number: file.as_raw_fd(), made_for }, Some(file))
            }
            Opened::Ringer(segment) => match segment.ringer() {
                Some(ringer) => (here(None, ringer), Some(ringer)),
                None => {
                    let reason = "nobody sleeps in the place of this node's server".into();
                    (DoorReply::Refused { reason }, None)
                }
            },
            Opened::Plain(reply) => (reply.clone(), None),
        }
    }

    pub(crate) fn answer(&self, visitor: BorrowedFd<'_>) -> Result<(), DoorError> {
        let (reply, file) = self.reply();
        door::answer(visitor, &reply, file)
    }

    /// The same for a thread of this process.
    pub(crate) fn hand(&self) -> Result<Option<Handed>, DoorError> {
        let (reply, file) = self.reply();
        let file = file.map(|file| rustix::io::fcntl_dupfd_cloexec(file, 0)).transpose()?;
        reply.handing(file)
    }
}

impl ServeState {
    /// Does what a visitor at the door asks for.
    pub(crate) fn open(&mut self, job: JobId, request: &DoorRequest, now_ms: u64) -> Opened {
        match request {
            DoorRequest::NodeSegment { job: asked } if *asked == job.0 => Opened::Segment(Arc::clone(&self.node)),
            DoorRequest::NodeSegment { .. } => {
                Opened::Plain(DoorReply::Refused { reason: "this is the door of another job".into() })
            }
            DoorRequest::Ringer => Opened::Ringer(Arc::clone(&self.node)),
            DoorRequest::Create { window, generation, key, parts, aligned, room } => {
                let memory = MemoryWanted { aligned: *aligned, room: *room };
                self.create(job, door::identity(*window, *generation), *key, parts, memory, now_ms)
            }
            DoorRequest::Attach { window, generation } => {
                let (window, generation) = door::identity(*window, *generation);
                self.hand_out(window, generation)
            }
            DoorRequest::Free { window, generation } => {
                let (window, generation) = door::identity(*window, *generation);
                if mutation(Mutation::WindowKept) {
                    return Opened::Plain(DoorReply::Gone);
                }
                match self.windows.remove(window, generation, now_ms) {
                    Ok(()) => {
                        self.mutexes.get_mut().forget_window(window);
                        Opened::Plain(DoorReply::Gone)
                    }
                    Err(refusal) => Opened::Plain(door::refused(refusal)),
                }
            }
        }
    }

    fn create(
        &mut self,
        job: JobId,
        (window, generation): (WindowId, Generation),
        key: u64,
        parts: &[(u32, u64)],
        memory: MemoryWanted,
        now_ms: u64,
    ) -> Opened {
        let Some((key, ranks, part_bytes)) = door::parts_of(key, parts) else {
            return Opened::Plain(door::refused(Refusal::NotSupported));
        };
        if let Some(stranger) = ranks.iter().find(|rank| !self.local_of_rank.contains_key(rank)) {
            let reason = format!("rank {} is not on this node", stranger.0);
            return Opened::Plain(DoorReply::Refused { reason });
        }
        match self.windows.create(job, (window, generation, key), (ranks, &part_bytes), memory, now_ms) {
            Ok(()) => self.hand_out(window, generation),
            Err(reason) => Opened::Plain(DoorReply::Refused { reason }),
        }
    }

    fn hand_out(&self, window: WindowId, generation: Generation) -> Opened {
        match self.windows.get(window, generation) {
            Ok((parts, address)) => Opened::Window(Arc::clone(parts), address),
            Err(refusal) => Opened::Plain(door::refused(refusal)),
        }
    }
}
