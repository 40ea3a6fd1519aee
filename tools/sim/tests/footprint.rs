//! A large job takes no more memory at a process than a job of its size may.

use longarm_sim::footprint::measure;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// For a node that a process is connected to, and talks little to.
const PEER_BYTES_MAX: u64 = 64 << 10;
/// For each rank of the job, at each process.
const RANK_BYTES_MAX: f64 = 64.0;
/// For a window: so much, and so much more for each rank of the job.
const WINDOW_BYTES_MAX: u64 = 4 << 10;
const WINDOW_RANK_BYTES_MAX: f64 = 16.0;

#[test]
fn ten_thousand_ranks_take_no_more_than_they_may() {
    let found = measure(10_000, || ALLOCATOR.current_usage()).expect("the job is set up");
    assert!(found.peer <= PEER_BYTES_MAX && found.encrypted_peer <= PEER_BYTES_MAX, "{found:?}");
    assert!(found.rank <= RANK_BYTES_MAX && found.segment_rank <= RANK_BYTES_MAX, "{found:?}");
    assert!(found.window_rank <= WINDOW_RANK_BYTES_MAX, "{found:?}");
    let of_ranks = (f64::from(found.ranks) * found.window_rank) as u64;
    assert!(found.listed_window <= of_ranks + WINDOW_BYTES_MAX, "{found:?}");
    assert!(found.window <= WINDOW_BYTES_MAX, "{found:?}");
    // Something was counted at all: tables of ranks, both ends of a connection, a window's one number for each rank.
    assert!(found.rank >= 8.0 && found.window_rank >= 8.0 && found.peer >= 4 << 10, "{found:?}");
}
