//! Read-modify-write.

use longarm_proto::{Mutation, Rmw, RmwOp, WindowRef, mutation};

use super::asker::Refused;
use super::state::ServeState;
use super::transfer::check_word;

pub(super) fn rmw(shared: &ServeState, target: WindowRef, offset: u64, rmw: Rmw) -> Result<u64, Refused> {
    let place = shared.windows.resolve(&target).map_err(|refusal| (refusal, target.window.0))?;
    check_word(&place, offset, rmw.width.bytes() as u64)?;
    let mut rmw = rmw;
    if mutation(Mutation::SwapWithoutCompare) && rmw.op == RmwOp::CompareSwap {
        rmw.op = RmwOp::Swap;
    }
    let is_last_of_16 = || place.window().load_u64(offset).is_ok_and(|word| word % 16 == 15);
    if mutation(Mutation::AddIsLost) && rmw.op == RmwOp::FetchAdd && is_last_of_16() {
        rmw.op = RmwOp::Fetch;
    }
    let old = place.window().rmw(offset, rmw).expect("checked just now");
    shared.notify(target.rank);
    Ok(old)
}
