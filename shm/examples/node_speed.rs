//! Prints how fast the operations of one node are, beside plain loops over plain memory.
//!
//! `cargo run --release -p longarm-shm --example node_speed`

use std::hint::black_box;
use std::time::Instant;

use longarm_memory::{Grid, Region, Step};
use longarm_proto::{AccumulateOp, ElementType, JobId, Kernel, Rank, Rmw, RmwOp, RmwWidth, Scale};
use longarm_shm::{CellHead, CounterKind, NodeSegment, NodeWindow, Producer};

/// Nanoseconds of one call, the best of many short runs, so that others on the machine disturb little.
fn best_ns(calls: u32, mut call: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..60 {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(calls));
    }
    best
}

fn line(name: &str, nanoseconds: f64, plain: f64) {
    println!("{name:<36} {nanoseconds:>12.1} ns {plain:>12.1} ns plain, ratio {:.2}", plain / nanoseconds);
}

/// Sums of rows that are 1 KiB apart in the window.
fn rows(node: &NodeSegment, memory: &NodeWindow) {
    const ROWS: usize = 1024;
    let (window, stripes) = (memory.part(0), node.stripes());
    let kernel = Kernel::new(ElementType::F64, AccumulateOp::Sum).expect("a sum");
    for row_bytes in [8, 64, 256] {
        let source = vec![1.0_f64; ROWS * row_bytes / 8];
        let source_bytes: Vec<u8> = source.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let mut target = vec![1.0_f64; ROWS * 1024 / 8];
        let plain = best_ns(5, || {
            let (target, source) = (black_box(&mut target[..]), black_box(&source[..]));
            for (target, source) in target.chunks_exact_mut(1024 / 8).zip(source.chunks_exact(row_bytes / 8)) {
                target.iter_mut().zip(source).for_each(|(target, source)| *target += source);
            }
        });
        let ours = best_ns(5, || {
            let mut grid = Grid::new(row_bytes, 0, 0);
            assert!(grid.repeat(Step { count: ROWS, target_stride: 1024, source_stride: row_bytes as isize }));
            let mut accumulator = window.accumulator((kernel, Scale::from(1.0_f64)), stripes, Rank(0));
            accumulator.grid(&grid, Region::from_slice(black_box(&source_bytes))).expect("inside the window");
        });
        line(&format!("a row of {row_bytes} bytes"), ours / ROWS as f64, plain / ROWS as f64);
    }
}

fn main() {
    let node = NodeSegment::create(JobId(1), 2, 2).expect("a node's segment");
    let memory = NodeWindow::create("speed", &[8 << 20]).expect("a window");
    let (window, stripes) = (memory.part(0), node.stripes());
    for bytes in [8, 512, 4096, 1 << 16, 1 << 20] {
        for (name, scale) in [("sum of f64", 1.0), ("scaled sum of f64", 1.5)] {
            let source = vec![1.5_f64; bytes / 8];
            let source_bytes: Vec<u8> = source.iter().flat_map(|value| value.to_ne_bytes()).collect();
            let mut target = vec![1.0_f64; bytes / 8];
            let calls = (4 << 20 >> 6) / (bytes as u32 / 64 + 16);
            let plain = best_ns(calls, || {
                let (target, source, scale) = (black_box(&mut target[..]), black_box(&source[..]), black_box(scale));
                target.iter_mut().zip(source).for_each(|(target, source)| *target += scale * source);
            });
            let kernel = Kernel::new(ElementType::F64, AccumulateOp::Sum).expect("a sum");
            let ours = best_ns(calls, || {
                let source = Region::from_slice(black_box(&source_bytes));
                let result = window.accumulate(0, kernel, &Scale::from(scale), source, &stripes, Rank(0));
                result.expect("inside the window");
            });
            line(&format!("{name}, {bytes} bytes"), ours, plain);
        }
    }
    rows(&node, &memory);
    let source = vec![1u8; 1 << 16];
    let kernel = Kernel::new(ElementType::I64, AccumulateOp::Sum).expect("a sum");
    let ours = best_ns(20, || {
        let source = Region::from_slice(black_box(&source));
        window.accumulate(0, kernel, &Scale::from(1_i64), source, &stripes, Rank(0)).expect("inside the window");
    });
    println!("{:<36} {:>12.1} ns an element", "sum of i64, 65536 bytes", ours / 8192.0);

    let mut word = [1u8; 8];
    let put = best_ns(100_000, || {
        let target = black_box(window).region_mut(black_box(64), 8).expect("inside the window");
        target.copy_from_slice(black_box(&word));
    });
    let get = best_ns(100_000, || {
        let source = black_box(window).region(black_box(64), 8).expect("inside the window");
        source.copy_to_slice(black_box(&mut word));
    });
    let add = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
    let rmw = best_ns(100_000, || {
        let _ = black_box(black_box(window).rmw(black_box(64), black_box(add)));
    });
    let lock = best_ns(100_000, || drop(black_box(&stripes).lock(black_box(7), Rank(0))));
    let counters = node.counters(0);
    let count = best_ns(100_000, || counters.add(black_box(Rank(1)), CounterKind::Put, 8, true));
    let message = best_ns(20_000, || {
        let payload = [Region::from_slice(black_box(&word))];
        node.try_push(Producer::Local(0), 1, CellHead::default(), &payload).expect("a free cell");
        node.try_pop(1, &mut |head, payload| _ = black_box((head, payload)));
    });
    for (name, nanoseconds) in [
        ("put of 8 bytes", put),
        ("get of 8 bytes", get),
        ("fetch and add", rmw),
        ("stripe lock, taken and freed", lock),
        ("counting", count),
        ("push and pop of 8 bytes", message),
    ] {
        println!("{name:<36} {nanoseconds:>12.1} ns");
    }
}
