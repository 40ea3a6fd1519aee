//! What starts of jobs that something else has started cost at rank 0, by the number of ranks: `starts [RANKS_PER_HOST]`.
//!
//! The coordinator runs as it does in a job; sockets, and what the system does for them, are not there.

use std::time::Instant;

use longarm_control::scale::{Job, Talk};

fn main() {
    let per_host = std::env::args().nth(1).and_then(|number| number.parse().ok()).unwrap_or(128);
    println!(
        "| ranks | hosts | messages | bytes to rank 0 | bytes from it | bytes a rank | the coordinator's own time |"
    );
    println!("| --: | --: | --: | --: | --: | --: | --: |");
    for ranks in [2, 8, 64, 128, 1000, 10_000, 100_000_u32] {
        let job = Job::typical(ranks, per_host);
        let began = Instant::now();
        let talk: Talk = job.start(began).into_iter().sum();
        let took = began.elapsed();
        let (to, from) = (talk.to_root, talk.from_root);
        println!(
            "| {ranks} | {} | {} | {} | {} | {} | {:.1} ms |",
            job.cards.len(),
            to.messages + from.messages,
            to.bytes,
            from.bytes,
            (to.bytes + from.bytes) / u64::from(ranks),
            took.as_secs_f64() * 1e3
        );
    }
}
