//! What starts of jobs that something else has started cost at rank 0, by the number of ranks: `starts [RANKS_PER_HOST]`.
//!
//! The coordinator runs as it does in a job; sockets, and what the system does for them, are not there.

use std::time::Instant;

use longarm_control::scale::{Exchange, Job};

fn main() {
    let per_host = std::env::args().nth(1).and_then(|number| number.parse().ok()).unwrap_or(128);
    println!(
        "| ranks | hosts | connections | messages | bytes to rank 0 | bytes from it | bytes a rank | the coordinator's own time |"
    );
    println!("| --: | --: | --: | --: | --: | --: | --: | --: |");
    for ranks in [2, 8, 64, 128, 1000, 10_000, 100_000_u32] {
        let job = Job::typical(ranks, per_host);
        row(&job, ranks, |began| job.start(began));
        row(&job, job.cards.len() as u32, |began| job.start_through_relays(per_host, began));
    }
}

fn row(job: &Job, connections: u32, start: impl Fn(Instant) -> Vec<Exchange>) {
    let began = Instant::now();
    let exchange: Exchange = start(began).into_iter().sum();
    let took = began.elapsed();
    let (to, from, ranks) = (exchange.to_coordinator, exchange.from_coordinator, job.arrivals.len() as u64);
    println!(
        "| {ranks} | {} | {connections} | {} | {} | {} | {} | {:.1} ms |",
        job.cards.len(),
        to.messages + from.messages,
        to.bytes,
        from.bytes,
        (to.bytes + from.bytes) / ranks,
        took.as_secs_f64() * 1e3
    );
}
