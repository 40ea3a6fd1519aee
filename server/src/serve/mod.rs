//! What each kind of request does, once its frame is well-formed: look the target up, check the bytes it touches,
//! act or say where the payload goes.

mod atomic;
mod transfer;
mod visit;

use std::collections::HashMap;
use std::sync::Arc;

use longarm_proto::{Mutation, Rank, Refusal, ReplyBody, Request, RequestId, mutation};
use longarm_shm::NodeSegment;

use crate::connection::{Replies, Sink};
use crate::lock::Locks;
use crate::table::Windows;

pub(crate) use transfer::AfterPut;

/// What every connection of the engine works on.
pub(crate) struct ServeState {
    pub(crate) windows: Windows,
    pub(crate) node: Arc<NodeSegment>,
    pub(crate) local_of_rank: HashMap<Rank, u32>,
    pub(crate) locks: Locks,
    /// Somebody's mail waits for free cells: that of others goes behind it.
    pub(crate) mail_waits: bool,
    /// The rank whose process this is: it holds the stripe locks that the server takes.
    pub(crate) host: Rank,
}

impl ServeState {
    /// Wakes a rank of this node that sleeps until its memory changes.
    pub(crate) fn notify(&self, rank: Rank) {
        if let Some(local) = self.local_of_rank.get(&rank)
            && !mutation(Mutation::WindowNotNotified)
        {
            self.node.window_eventcount(*local).notify_if_sleeping();
        }
    }
}

/// Who asked, and where the answer goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Asker {
    pub(crate) connection: usize,
    pub(crate) rank: Rank,
    pub(crate) id: RequestId,
}

/// A refusal and the number that explains it.
pub(crate) type Refused = (Refusal, u64);

/// Starts a request. `Some(sink)` takes its payload; `None` means that it is finished, its reply written.
pub(crate) fn begin(
    shared: &mut ServeState,
    asker: Asker,
    request: Request,
    replies: &mut Replies,
) -> Result<Option<Sink>, Refused> {
    match request {
        Request::Put { target, shape, signal } => transfer::put(shared, target, shape, signal).map(Some),
        Request::Accumulate { target, shape, kernel, scale } => {
            transfer::accumulate(shared, target, shape, kernel, scale).map(Some)
        }
        Request::Get { target, shape } => {
            transfer::get(shared, asker, target, shape, replies)?;
            Ok(None)
        }
        Request::Rmw { target, offset, rmw } => {
            let old = atomic::rmw(shared, target, offset, rmw)?;
            replies.send(asker.id, ReplyBody::Value(old));
            Ok(None)
        }
        Request::Quiet => {
            replies.send(asker.id, ReplyBody::Done);
            Ok(None)
        }
        Request::Message { .. } | Request::Acknowledge { .. } | Request::Leave => {
            unreachable!("the connection's own business")
        }
        Request::Lock { target, offset } => {
            if let Some(grant) = atomic::lock(shared, asker, target, offset)? {
                replies.send(asker.id, ReplyBody::Granted { inherited: grant.inherited });
            }
            Ok(None)
        }
        Request::TryLock { target, offset } => {
            let taken = atomic::try_lock(shared, asker, target, offset)?;
            replies.send(asker.id, ReplyBody::Value(taken.map_or(0, |grant| 1 + u64::from(grant.inherited))));
            Ok(None)
        }
        Request::Unlock { target, offset } => {
            atomic::unlock(shared, asker, target, offset)?;
            replies.send(asker.id, ReplyBody::Done);
            Ok(None)
        }
    }
}
