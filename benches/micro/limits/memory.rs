//! Copies, atomics and the hand-over of a cache line, by hand.
//!
//! The memory stands for shared memory without being it: mapping that has no safe form. It has small pages as the
//! windows have, and no other process touches those while they are measured.
//!
//! The atomics here are the instructions themselves. No protocol of longarm is made of them.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::MmapMut;

use crate::Failure;
use crate::line::{Key, LIMIT, Line};
use crate::micro::rank::ops::{ACCUMULATE_BYTES, BYTES, NB_WINDOW_BYTES, ROWS, Rows, gets_together, puts_together};
use crate::micro::sample::{Effort, Sample};
use crate::micro::{buffer, processors};

const TRANSPORT: &str = "shm";
/// About half a page, and whole lines.
const SHIFT_BYTES: usize = 2112;

/// A cache line of its own, and of its neighbour, which processors fetch together.
#[repr(align(128))]
struct Apart<T>(T);

/// Measures everything on the first two processors.
pub(crate) fn measure(effort: Effort, emit: &mut (dyn FnMut(Line) + Send)) -> Result<(), Failure> {
    let pair = processors::pair()?;
    processors::stay_on(pair[0])?;
    let memory = || buffer::private(NB_WINDOW_BYTES + SHIFT_BYTES);
    let mut both = Both { near: memory()?, far: memory()?, shift: 0 };
    let mut tell = |op: &str, bytes: usize, window: usize, sample: Sample| {
        let key = Key { transport: TRANSPORT, op, bytes: bytes as u64 };
        emit(Line { window: window as u32, ..Line::new(LIMIT, key, &sample) });
    };
    tell("store", 8, 1, store(effort)?);
    for bytes in BYTES {
        tell("put", bytes, 1, both.copy(effort, bytes, 1, true)?);
        tell("get", bytes, 1, both.copy(effort, bytes, 1, false)?);
    }
    // Copies between addresses that differ in the page number only are slower on some processors. This shows by how
    // much; windows and large buffers do begin on a page, so it is not what longarm is compared with.
    both.shift = SHIFT_BYTES;
    for bytes in [64 << 10, 1 << 20] {
        tell("memcpy_shifted", bytes, 1, both.copy(effort, bytes, 1, true)?);
    }
    both.shift = 0;
    for bytes in BYTES {
        let (puts, gets) = (puts_together(bytes), gets_together(bytes));
        tell("nbput", bytes, puts, both.copy(effort, bytes, puts, true)?.divided_by(puts));
        tell("nbget", bytes, gets, both.copy(effort, bytes, gets, false)?.divided_by(gets));
    }
    for rows in ROWS {
        tell(&format!("puts_{}", rows.name), rows.bytes(), 1, both.rows(effort, rows, true)?);
        tell(&format!("gets_{}", rows.name), rows.bytes(), 1, both.rows(effort, rows, false)?);
        tell(&format!("accs_{}", rows.name), rows.bytes(), 1, accumulate_rows(effort, rows)?);
    }
    for bytes in ACCUMULATE_BYTES {
        tell("acc", bytes, 1, accumulate(effort, bytes)?);
    }
    atomics(effort, &mut tell)?;
    let trip = line_hand_over(effort, pair[1])?;
    tell("pingpong_line", 8, 1, trip);
    // Each end tells the other that it is there: the two stores travel at the same time.
    tell("barrier2", 0, 1, trip);
    Ok(())
}

fn store(effort: Effort) -> Result<Sample, Failure> {
    let mut word = Apart(0_u64);
    effort.measure(|count| {
        for value in 0..count {
            *black_box(&mut word.0) = value;
        }
        Ok(())
    })
}

struct Both {
    near: MmapMut,
    far: MmapMut,
    /// The source begins so much later in its page than the target.
    shift: usize,
}

impl Both {
    /// `count` copies one behind the other.
    fn copy(&mut self, effort: Effort, bytes: usize, count: usize, to_far: bool) -> Result<Sample, Failure> {
        let (source, target) = if to_far { (&self.near, &mut self.far) } else { (&self.far, &mut self.near) };
        let source = &source[self.shift..];
        effort.measure(|times| {
            for _ in 0..times {
                for place in 0..count {
                    let at = black_box(place * bytes);
                    target[at..at + bytes].copy_from_slice(&source[at..at + bytes]);
                    black_box(&mut target[at]);
                }
            }
            Ok(())
        })
    }

    fn rows(&mut self, effort: Effort, rows: Rows, scatter: bool) -> Result<Sample, Failure> {
        let Rows { count, row_bytes, pitch_bytes, .. } = rows;
        effort.measure(|times| {
            for _ in 0..times {
                for row in 0..black_box(count) {
                    let near = &mut self.near[row * row_bytes..(row + 1) * row_bytes];
                    let far = &mut self.far[row * pitch_bytes..row * pitch_bytes + row_bytes];
                    if scatter { far.copy_from_slice(near) } else { near.copy_from_slice(far) }
                }
                black_box((&mut self.near[0], &mut self.far[0]));
            }
            Ok(())
        })
    }
}

/// Not atomic by element: what the additions and the memory alone cost.
fn accumulate(effort: Effort, bytes: usize) -> Result<Sample, Failure> {
    let source = vec![1.0_f64; bytes / 8];
    let mut target = vec![0.0_f64; bytes / 8];
    effort.measure(|count| {
        for _ in 0..count {
            for (to, from) in black_box(&mut target).iter_mut().zip(black_box(&source)) {
                *to += *from;
            }
        }
        Ok(())
    })
}

/// The same, of rows that are one pitch apart in the target.
fn accumulate_rows(effort: Effort, rows: Rows) -> Result<Sample, Failure> {
    let (row, pitch) = (rows.row_bytes / 8, rows.pitch_bytes / 8);
    let source = vec![1.0_f64; rows.count * row];
    let mut target = vec![0.0_f64; rows.count * pitch];
    effort.measure(|count| {
        for _ in 0..count {
            let rows = black_box(&mut target).chunks_exact_mut(pitch).zip(black_box(&source).chunks_exact(row));
            for (to, from) in rows {
                to[..row].iter_mut().zip(from).for_each(|(to, from)| *to += *from);
            }
        }
        Ok(())
    })
}

fn atomics(effort: Effort, tell: &mut impl FnMut(&str, usize, usize, Sample)) -> Result<(), Failure> {
    let word = Apart(AtomicU64::new(0));
    let add = effort.measure(|count| {
        for _ in 0..count {
            black_box(black_box(&word.0).fetch_add(1, Ordering::SeqCst));
        }
        Ok(())
    })?;
    tell("fadd", 8, 1, add);
    let swap = effort.measure(|count| {
        for value in 0..count {
            black_box(black_box(&word.0).swap(value, Ordering::SeqCst));
        }
        Ok(())
    })?;
    tell("swap", 8, 1, swap);
    word.0.store(0, Ordering::SeqCst);
    let compare = effort.measure(|count| {
        for _ in 0..count {
            let _ = black_box(black_box(&word.0).compare_exchange(0, 0, Ordering::SeqCst, Ordering::SeqCst));
        }
        Ok(())
    })?;
    tell("cas", 8, 1, compare);
    let lock = Apart(AtomicU32::new(0));
    let pairs = effort.measure(|count| {
        for _ in 0..count {
            while black_box(&lock.0).swap(1, Ordering::Acquire) != 0 {
                spin_loop();
            }
            black_box(&lock.0).store(0, Ordering::Release);
        }
        Ok(())
    })?;
    tell("lockpair", 0, 1, pairs);
    Ok(())
}

/// There and back between two processors.
fn line_hand_over(effort: Effort, other: usize) -> Result<Sample, Failure> {
    const STOP: u64 = u64::MAX;
    let (ping, pong) = (Apart(AtomicU64::new(0)), Apart(AtomicU64::new(0)));
    let alone = processors::pair()? == [other, other];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let pinned = processors::stay_on(other);
            let mut seen = 0;
            while seen != STOP && pinned.is_ok() {
                let now = ping.0.load(Ordering::Acquire);
                if now != seen {
                    seen = now;
                    pong.0.store(seen, Ordering::Release);
                } else if alone {
                    std::thread::yield_now();
                }
            }
        });
        let mut turn = 0;
        let sample = effort.measure(|count| {
            for _ in 0..count {
                turn += 1;
                ping.0.store(turn, Ordering::Release);
                while pong.0.load(Ordering::Acquire) != turn {
                    if alone {
                        std::thread::yield_now();
                    }
                }
            }
            Ok(())
        });
        ping.0.store(STOP, Ordering::Release);
        sample
    })
}
