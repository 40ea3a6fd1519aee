//! Prints how fast copies are, beside those of the C library: nanoseconds and the ratio of the two speeds, by size.
//!
//! `cargo run --release -p longarm-memory --example copy_speed`

use std::hint::black_box;
use std::time::Instant;

use longarm_memory::copy::copy;
use longarm_memory::set_nontemporal_bytes_min;

/// Nanoseconds of one call, the best of many short runs, so that others on the machine disturb little.
fn best_ns(bytes: usize, mut call: impl FnMut()) -> f64 {
    let calls = (2_000_000 / (bytes + 100)).max(2);
    let mut best = f64::INFINITY;
    for _ in 0..200.min(40_000_000_000 / (calls * bytes.max(100) * 20).max(1)).max(5) {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / calls as f64);
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
        let ours = |minimum: usize| {
            set_nontemporal_bytes_min(minimum);
            best_ns(bytes, || {
                // SAFETY: two separate buffers of this many bytes.
                unsafe { copy(black_box(to), black_box(from), black_box(bytes)) }
            })
        };
        let cached = ours(usize::MAX);
        let uncached = if bytes >= 1 << 16 { ours(0) } else { f64::NAN };
        let libc = best_ns(bytes, || {
            // SAFETY: two separate buffers of this many bytes.
            unsafe { libc::memcpy(black_box(to).cast(), black_box(from).cast(), black_box(bytes)) };
        });
        println!(
            "{bytes:>10} {cached:>12.1} {libc:>12.1} {:>8.2} {uncached:>12.1} {:>8.2}",
            libc / cached,
            libc / uncached
        );
    }
}
