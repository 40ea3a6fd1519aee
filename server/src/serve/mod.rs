//! What each kind of request does, once its frame is well-formed: look the target up, check the bytes it touches,
//! act or say where the payload goes.

pub(crate) mod asker;
mod mutex;
mod rmw;
pub(crate) mod sink;
pub(crate) mod state;
mod transfer;
mod visit;

use longarm_proto::{OLD_VALUE_BYTES, ReplyBody, Request};

use crate::replies::Replies;
use asker::{Asker, Refused};
use sink::Sink;
use state::ServeState;

/// Starts a request. `Some(sink)` takes its payload; `None` means that it is finished, its reply written.
pub(crate) fn begin(
    shared: &ServeState,
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
            let old = rmw::rmw(shared, target, offset, rmw)?;
            replies.send(asker.id, ReplyBody::Value(old));
            Ok(None)
        }
        Request::RmwMany { target, op, width, words } => {
            let old = rmw::rmw_many(shared, target, (op, width), &words)?;
            replies.send(asker.id, ReplyBody::Data { bytes: (old.len() * OLD_VALUE_BYTES) as u64 });
            replies.send_values(&old);
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
            if let Some(grant) = mutex::lock(shared, asker, target, offset)? {
                replies.send(asker.id, ReplyBody::Granted { inherited: grant.inherited });
            }
            Ok(None)
        }
        Request::TryLock { target, offset } => {
            let taken = mutex::try_lock(shared, asker, target, offset)?;
            replies.send(asker.id, ReplyBody::Value(taken.map_or(0, |grant| 1 + u64::from(grant.inherited))));
            Ok(None)
        }
        Request::Unlock { target, offset } => {
            mutex::unlock(shared, asker, target, offset)?;
            replies.send(asker.id, ReplyBody::Done);
            Ok(None)
        }
    }
}
