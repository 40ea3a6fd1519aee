//! Put, get and accumulate of any shape.

use longarm_proto::{Cursor, Kernel, Mutation, Refusal, ReplyBody, Scale, Shape, Signal, WindowRef, mutation};

use super::asker::{Asker, Refused};
use super::sink::{AfterPut, Sink};
use super::state::ServeState;
use crate::replies::Replies;
use crate::table::TargetPart;

pub(super) fn put(
    shared: &ServeState,
    target: WindowRef,
    shape: Shape,
    signal: Option<Signal>,
) -> Result<Sink, Refused> {
    let place = find(shared, &target, &shape)?;
    let then = match signal {
        None => AfterPut(None),
        Some(signal) => {
            let at =
                WindowRef { rank: target.rank, window: signal.window, generation: signal.generation, key: signal.key };
            let place = shared.windows.resolve(&at).map_err(|refusal| (refusal, signal.window.0))?;
            check_word(&place, signal.offset, 8)?;
            if mutation(Mutation::SignalFirst) {
                AfterPut(Some((place, signal))).run();
                shared.notify(target.rank);
                return Ok(Sink::Put {
                    place: find(shared, &target, &shape)?,
                    cursor: Cursor::new(shape),
                    then: AfterPut(None),
                });
            }
            AfterPut(Some((place, signal)))
        }
    };
    Ok(Sink::Put { place, cursor: Cursor::new(shape), then })
}

pub(super) fn accumulate(
    shared: &ServeState,
    target: WindowRef,
    shape: Shape,
    kernel: Kernel,
    scale: Scale,
) -> Result<Sink, Refused> {
    let place = find(shared, &target, &shape)?;
    Ok(Sink::Accumulate { place, cursor: Cursor::new(shape), kernel, scale })
}

pub(super) fn get(
    shared: &ServeState,
    asker: Asker,
    target: WindowRef,
    shape: Shape,
    replies: &mut Replies,
) -> Result<(), Refused> {
    let place = find(shared, &target, &shape)?;
    let bytes = shape.bytes();
    replies.send(asker.id, ReplyBody::Data { bytes });
    replies.send_from(place, Cursor::new(shape));
    Ok(())
}

/// The target's memory, if every byte of the shape lies in it.
fn find(shared: &ServeState, target: &WindowRef, shape: &Shape) -> Result<TargetPart, Refused> {
    let place = shared.windows.resolve(target).map_err(|refusal| (refusal, target.window.0))?;
    let window_bytes = place.window().bytes();
    if shape.end() > window_bytes {
        return Err((Refusal::OutsideWindow, window_bytes));
    }
    Ok(place)
}

/// Whether an aligned word of `bytes` bytes lies at `offset`.
pub(super) fn check_word(place: &TargetPart, offset: u64, bytes: u64) -> Result<(), Refused> {
    let window_bytes = place.window().bytes();
    if offset.checked_add(bytes).is_none_or(|end| end > window_bytes) {
        return Err((Refusal::OutsideWindow, window_bytes));
    }
    if !offset.is_multiple_of(bytes) {
        return Err((Refusal::Misaligned, offset));
    }
    Ok(())
}
