//! Prints how fast copies are, beside those of the C library: nanoseconds and the ratio of the two speeds, by size.
//!
//! `cargo run --release -p longarm-memory --example copy_speed`

use std::hint::black_box;
use std::time::Instant;

use longarm_memory::copy::copy;
use longarm_memory::set_nontemporal_bytes_min;

/// Nanoseconds of one run of each, the best of many short ones that take turns, so that others on the machine disturb all
/// alike and little.
fn best_ns<const COUNT: usize>(bytes: usize, mut calls: [&mut dyn FnMut(usize); COUNT]) -> [f64; COUNT] {
    let repeats = (1_000_000 / (bytes + 200)).max(2);
    let turns = (2_000_000_000 / (repeats * (bytes + 200))).clamp(10, 400);
    let mut best = [f64::INFINITY; COUNT];
    for _ in 0..turns {
        for (call, best) in calls.iter_mut().zip(&mut best) {
            call(1); // What the one before left in the caches must not count.
            let start = Instant::now();
            call(repeats);
            *best = best.min(start.elapsed().as_secs_f64() * 1e9 / repeats as f64);
        }
    }
    best
}

fn main() {
    println!("{:>10} {:>12} {:>12} {:>8} {:>12} {:>8}", "bytes", "ours ns", "libc ns", "ratio", "no-cache ns", "ratio");
    for bytes in [1, 4, 8, 16, 24, 48, 100, 200, 500, 1000, 4096, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 23, 1 << 26]
    {
        let source = vec![7u8; bytes];
        let mut target = vec![0u8; bytes];
        let (from, to) = (source.as_ptr(), target.as_mut_ptr());
        let ours = |minimum: usize, repeats: usize| {
            set_nontemporal_bytes_min(minimum);
            for _ in 0..repeats {
                // SAFETY: two separate buffers of this many bytes.
                unsafe { copy(black_box(to), black_box(from), black_box(bytes)) }
            }
        };
        let libc = |repeats: usize| {
            for _ in 0..repeats {
                // SAFETY: two separate buffers of this many bytes.
                unsafe { libc::memcpy(black_box(to).cast(), black_box(from).cast(), black_box(bytes)) };
            }
        };
        let [cached, libc, uncached] =
            best_ns(bytes, [&mut |repeats| ours(usize::MAX, repeats), &mut { libc }, &mut |repeats| ours(0, repeats)]);
        println!(
            "{bytes:>10} {cached:>12.1} {libc:>12.1} {:>8.2} {uncached:>12.1} {:>8.2}",
            libc / cached,
            libc / uncached
        );
    }
}
