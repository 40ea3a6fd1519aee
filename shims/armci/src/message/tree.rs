//! The binary tree over a scope, for programs that send its messages themselves.

use std::ffi::c_int;

use super::scope::Scope;
use crate::boundary::call_joined;
use crate::groups::give;

/// No process.
const NOBODY: c_int = -1;

/// This process's neighbours in a binary tree over a scope of the world, by number, -1 where there is none. Who is not
/// in the scope has none.
///
/// # Safety
/// All four pointers are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_bintree(
    scope: c_int,
    root: *mut c_int,
    up: *mut c_int,
    left: *mut c_int,
    right: *mut c_int,
) {
    call_joined("armci_msg_bintree", |job| {
        // Places of the world are its ranks.
        let ranks = Scope::from_c(scope)?.places(job, job.world.group());
        let mine = ranks.iter().position(|rank| *rank == job.world.rank());
        let [above, below, beside] = mine.map_or([None; 3], neighbours);
        let rank_at =
            |place: Option<usize>| place.and_then(|place| ranks.get(place)).map_or(NOBODY, |rank| *rank as c_int);
        for (pointer, place) in [(root, Some(0)), (up, above), (left, below), (right, beside)] {
            // SAFETY: this function's own contract.
            unsafe { give(pointer, rank_at(place)) }?;
        }
        Ok(())
    });
}

/// The places above, below on the left and below on the right, whether they exist or not.
fn neighbours(place: usize) -> [Option<usize>; 3] {
    [place.checked_sub(1).map(|before| before / 2), Some(2 * place + 1), Some(2 * place + 2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_below_somebody_has_that_one_above() {
        assert_eq!(neighbours(0), [None, Some(1), Some(2)]);
        for place in 0..50 {
            for below in &neighbours(place)[1..] {
                assert_eq!(neighbours(below.unwrap())[0], Some(place));
            }
        }
    }
}
