//! Prints how fast sums and grids are, beside plain loops: nanoseconds and the ratio of the two speeds.
//!
//! `cargo run --release -p longarm-memory --example run_speed`

use std::hint::black_box;
use std::time::Instant;

use longarm_memory::{Adder, Grid, Region, RegionMut, Step};

/// Nanoseconds of one run of each, the best of many short ones that take turns, so that others on the machine disturb all
/// alike and little.
fn best_ns<const COUNT: usize>(bytes: usize, mut calls: [&mut dyn FnMut(usize); COUNT]) -> [f64; COUNT] {
    let repeats = (500_000 / (bytes + 200)).max(2);
    let turns = (1_000_000_000 / (repeats * (bytes + 200))).clamp(10, 300);
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

fn line(name: &str, bytes: usize, [ours, plain]: [f64; 2]) {
    let ratio = plain / ours;
    println!("{name:<34} {bytes:>9} bytes {ours:>12.1} ns {plain:>12.1} ns plain, ratio {ratio:.2}");
}

fn sums() {
    for bytes in [16, 64, 512, 4096, 1 << 16, 1 << 18, 1 << 20, 1 << 23] {
        let count = bytes / 8;
        let source = vec![1e-9_f64; count];
        let source_bytes: Vec<u8> = source.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let mut target = vec![1.0_f64; count];
        let mut target_bytes: Vec<u8> = target.iter().flat_map(|number| number.to_ne_bytes()).collect();
        for (name, scale) in [("sum of f64", 1.0), ("scaled sum of f64", 1.5)] {
            let ours = &mut |repeats: usize| {
                for _ in 0..repeats {
                    let target = RegionMut::from_slice(black_box(&mut target_bytes));
                    Adder::f64(black_box(scale)).add(target, Region::from_slice(black_box(&source_bytes)));
                }
            };
            let plain = &mut |repeats: usize| {
                for _ in 0..repeats {
                    let scale = black_box(scale);
                    let sides = black_box(&mut target[..]).iter_mut().zip(black_box(&source[..]));
                    sides.for_each(|(target, source)| *target += scale * source);
                }
            };
            line(name, bytes, best_ns(bytes, [ours, plain]));
        }
        let adder = Adder::c64([0.5, 0.25]);
        let ours = &mut |repeats: usize| {
            for _ in 0..repeats {
                let target = RegionMut::from_slice(black_box(&mut target_bytes));
                black_box(&adder).add(target, Region::from_slice(black_box(&source_bytes)));
            }
        };
        let plain = &mut |repeats: usize| {
            for _ in 0..repeats {
                let (real, imaginary) = black_box((0.5, 0.25));
                let sides = black_box(&mut target[..]).chunks_exact_mut(2).zip(black_box(&source[..]).chunks_exact(2));
                sides.for_each(|(target, source)| {
                    target[0] += real * source[0] - imaginary * source[1];
                    target[1] += real * source[1] + imaginary * source[0];
                });
            }
        };
        line("scaled sum of complex f64", bytes, best_ns(bytes, [ours, plain]));
    }
}

fn grids() {
    for (run_bytes, pitch_bytes) in [
        (8, 64),
        (16, 64),
        (32, 128),
        (64, 1024),
        (64, 8192),
        (128, 1024),
        (256, 1024),
        (256, 8192),
        (1024, 8192),
        (4096, 8192),
    ] {
        let count = ((1 << 22) / pitch_bytes).min(1024);
        let source: Vec<u8> = (0..run_bytes * count).map(|index| index as u8).collect();
        let mut target = vec![1u8; pitch_bytes * count];
        let start = target.as_mut_ptr();
        let ours = &mut |repeats: usize| {
            for _ in 0..repeats {
                let mut grid = Grid::new(run_bytes, 0, 0);
                let step = Step { count, target_stride: pitch_bytes as isize, source_stride: run_bytes as isize };
                assert!(grid.repeat(black_box(step)));
                // SAFETY: the vector has the bytes, and nobody else has a reference to them now.
                let target = unsafe { RegionMut::from_raw(black_box(start), pitch_bytes * count) };
                black_box(&grid).copy(target, Region::from_slice(black_box(&source)));
            }
        };
        let plain = &mut |repeats: usize| {
            for _ in 0..repeats {
                let (from, bytes) = (black_box(&source).as_ptr(), black_box(run_bytes));
                for row in 0..black_box(count) {
                    let (to, from) = (start.wrapping_add(row * pitch_bytes), from.wrapping_add(row * bytes));
                    // SAFETY: row by row inside two separate vectors.
                    unsafe { libc::memcpy(black_box(to).cast(), from.cast(), bytes) };
                }
            }
        };
        let times = best_ns(run_bytes * count, [ours, plain]).map(|time| time / count as f64);
        line(&format!("a row, {pitch_bytes} apart, {count} of them"), run_bytes, times);
    }
}

fn main() {
    sums();
    grids();
}
