//! Read-modify-writes: of one word, and of several.

use longarm_proto::{Mutation, Rmw, RmwOp, RmwWidth, RmwWord, WindowRef, mutation};

use super::asker::Refused;
use super::state::ServeState;
use super::transfer::check_word;
use crate::table::TargetPart;

pub(super) fn rmw(shared: &ServeState, target: WindowRef, offset: u64, rmw: Rmw) -> Result<u64, Refused> {
    let place = shared.windows.resolve(&target).map_err(|refusal| (refusal, target.window.0))?;
    check_word(&place, offset, rmw.width.bytes() as u64)?;
    let old = update(&place, offset, rmw);
    shared.notify(target.rank);
    Ok(old)
}

/// All of them, or none: no word is updated before all were looked at. Gives the old values.
pub(super) fn rmw_many(
    shared: &ServeState,
    target: WindowRef,
    (op, width): (RmwOp, RmwWidth),
    words: &[RmwWord],
) -> Result<Vec<u64>, Refused> {
    let place = shared.windows.resolve(&target).map_err(|refusal| (refusal, target.window.0))?;
    words.iter().try_for_each(|word| check_word(&place, word.offset, width.bytes() as u64))?;
    let updated = words.iter().map(|word| {
        let rmw = Rmw { op, width, operand: word.operand, compare: 0 };
        update(&place, word.offset, rmw)
    });
    let old = updated.collect();
    shared.notify(target.rank);
    Ok(old)
}

/// The word was checked.
fn update(place: &TargetPart, offset: u64, mut rmw: Rmw) -> u64 {
    if mutation(Mutation::SwapWithoutCompare) && rmw.op == RmwOp::CompareSwap {
        rmw.op = RmwOp::Swap;
    }
    let is_last_of_16 = || place.window().load_u64(offset).is_ok_and(|word| word % 16 == 15);
    if mutation(Mutation::AddIsLost) && rmw.op == RmwOp::FetchAdd && is_last_of_16() {
        rmw.op = RmwOp::Fetch;
    }
    place.window().rmw(offset, rmw).expect("checked just now")
}
