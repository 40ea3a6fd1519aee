//! Every operation, one after the other, on one target that waits in a barrier.

use std::hint::black_box;

use longarm::{Handle, Patch, Update, Window};
use memmap2::MmapMut;

use super::Job;
use crate::Failure;
use crate::micro::buffer;
use crate::micro::sample::Sample;

/// Payloads of put and get.
pub(crate) const BYTES: [usize; 7] = [8, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 4 << 20];
/// Payloads of accumulate.
pub(crate) const ACCUMULATE_BYTES: [usize; 4] = [8, 8 << 10, 64 << 10, 1 << 20];
/// Memory of the target, and of the origin: enough for the largest window of nonblocking operations.
pub(crate) const NB_WINDOW_BYTES: usize = 64 << 20;
/// A strided patch: rows of contiguous bytes, at the target one pitch apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) name: &'static str,
    pub(crate) count: usize,
    pub(crate) row_bytes: usize,
    pub(crate) pitch_bytes: usize,
}

impl Rows {
    pub(crate) fn bytes(self) -> usize {
        self.count * self.row_bytes
    }
}

/// Short rows, and a block of 256 × 256 doubles of a matrix of 1024 × 1024.
pub(crate) const ROWS: [Rows; 2] = [
    Rows { name: "1024x64", count: 1024, row_bytes: 64, pitch_bytes: 1024 },
    Rows { name: "256x256d", count: 256, row_bytes: 2048, pitch_bytes: 8192 },
];

/// How many nonblocking puts are under way together.
pub(crate) const fn puts_together(bytes: usize) -> usize {
    let count = if bytes <= 1 << 10 { 1024 } else { GETS };
    if count * bytes > NB_WINDOW_BYTES { NB_WINDOW_BYTES / bytes } else { count }
}

/// The same of gets.
pub(crate) const fn gets_together(bytes: usize) -> usize {
    if GETS * bytes > NB_WINDOW_BYTES { NB_WINDOW_BYTES / bytes } else { GETS }
}

const GETS: usize = 64;

/// Operations with a handle each that are under way together.
const HANDLES: usize = 64;
/// Sums of one word that nobody waits for, before one quiet.
const ADDS: usize = 1024;
/// Unaligned doubles and other surprises are for the tests; here elements start where they should.
const WORD_BYTES: usize = 8;

/// Runs all of them, or those of the table only.
pub(super) fn run(job: &Job<'_>, all: bool) -> Result<(), Failure> {
    let bytes = if job.world.rank() == job.arguments.target { NB_WINDOW_BYTES } else { 0 };
    let window = job.world.allocate_collective::<u8>(bytes)?;
    let mutexes = job.world.mutexes_collective(1)?;
    if job.measures() {
        let mut bench = Bench { job, window: window.clone(), target: job.arguments.target, near: near()? };
        bench.check()?;
        bench.transfers(all)?;
        bench.atomics(all)?;
        if all {
            bench.handles()?;
            bench.implicit()?;
            bench.accumulates()?;
            for rows in ROWS {
                bench.strided(rows)?;
            }
            let lock = job.effort.measure(|count| {
                for _ in 0..count {
                    mutexes.lock(bench.target, 0)?.unlock()?;
                }
                Ok(())
            })?;
            job.tell("lockpair", 0, &lock);
        }
    }
    // The targets wait here all the while.
    job.world.barrier_collective()?;
    mutexes.free_collective()?;
    window.free_collective()?;
    Ok(())
}

fn near() -> Result<MmapMut, Failure> {
    buffer::private(NB_WINDOW_BYTES)
}

struct Bench<'a> {
    job: &'a Job<'a>,
    window: Window<u8>,
    target: u32,
    near: MmapMut,
}

impl Bench<'_> {
    /// A benchmark of wrong results is worth nothing.
    fn check(&mut self) -> Result<(), Failure> {
        let (world, target, window) = (self.job.world, self.target, &self.window);
        let length = 100_003;
        for (index, byte) in self.near[..length].iter_mut().enumerate() {
            *byte = (index * 131 + 7) as u8;
        }
        window.put(target, 1, &self.near[..length])?;
        world.quiet()?;
        if window.get_vec(target, 1..1 + length)? != self.near[..length] {
            return Err("what was put is not what is got".into());
        }
        let words = window.cast::<u64>();
        words.put_one(target, 0, 40)?;
        let before = words.fetch_add(target, 0, 2)?;
        let doubles = window.cast::<f64>();
        doubles.put_one(target, 1, 0.5)?;
        doubles.accumulate(target, 1, Update::Sum, &[1.0])?;
        if (before, words.get_one(target, 0)?, doubles.get_one(target, 1)?) != (40, 42, 1.5) {
            return Err("an update has not done what it should".into());
        }
        self.near.fill(1);
        Ok(())
    }

    fn transfers(&mut self, all: bool) -> Result<(), Failure> {
        let (world, target, window) = (self.job.world, self.target, &self.window);
        for bytes in BYTES.into_iter().filter(|bytes| all || [8, 1 << 20].contains(bytes)) {
            let source = &self.near[..bytes];
            let put = self.job.effort.measure(|count| {
                for _ in 0..count {
                    window.put(target, 0, black_box(source))?;
                    world.quiet()?;
                }
                Ok(())
            })?;
            self.job.tell("put", bytes, &put);
            let near = &mut self.near[..bytes];
            let get = self.job.effort.measure(|count| {
                for _ in 0..count {
                    window.get(target, 0, black_box(&mut *near))?;
                }
                Ok(())
            })?;
            self.job.tell("get", bytes, &get);
        }
        Ok(())
    }

    fn atomics(&mut self, all: bool) -> Result<(), Failure> {
        let (target, words) = (self.target, self.window.cast::<u64>());
        words.put_one(target, 0, 0)?;
        let add = self.job.effort.measure(|count| {
            for _ in 0..count {
                black_box(words.fetch_add(target, 0, 1)?);
            }
            Ok(())
        })?;
        self.job.tell("fadd", WORD_BYTES, &add);
        if !all {
            return Ok(());
        }
        let swap = self.job.effort.measure(|count| {
            for value in 0..count {
                black_box(words.swap(target, 0, value)?);
            }
            Ok(())
        })?;
        self.job.tell("swap", WORD_BYTES, &swap);
        words.set(target, 0, 0)?;
        let compare = self.job.effort.measure(|count| {
            for _ in 0..count {
                black_box(words.compare_swap(target, 0, 0, 0)?);
            }
            Ok(())
        })?;
        self.job.tell("cas", WORD_BYTES, &compare);
        Ok(())
    }

    /// Nonblocking, without a handle each, and then one quiet.
    fn implicit(&mut self) -> Result<(), Failure> {
        let (world, target, window) = (self.job.world, self.target, &self.window);
        for bytes in BYTES {
            let operations = puts_together(bytes);
            let source = &self.near[..operations * bytes];
            let put = self.job.effort.measure(|count| {
                for _ in 0..count {
                    world.scope(|scope| {
                        for (place, part) in source.chunks_exact(bytes).enumerate() {
                            scope.put(window, target, place * bytes, part);
                        }
                    })?;
                }
                Ok(())
            })?;
            self.job.tell_window("nbput", bytes, operations, &put.divided_by(operations));
            let operations = gets_together(bytes);
            let near = &mut self.near[..operations * bytes];
            let get = self.job.effort.measure(|count| {
                for _ in 0..count {
                    let near = &mut *near;
                    world.scope(|scope| {
                        for (place, part) in near.chunks_exact_mut(bytes).enumerate() {
                            scope.get(window, target, place * bytes, part);
                        }
                    })?;
                }
                Ok(())
            })?;
            self.job.tell_window("nbget", bytes, operations, &get.divided_by(operations));
        }
        let words = self.window.cast::<u64>();
        let add = self.job.effort.measure(|count| {
            for _ in 0..count {
                world.scope(|scope| {
                    for place in 0..ADDS {
                        scope.accumulate(&words, target, place, Update::Sum, &[1]);
                    }
                })?;
            }
            Ok(())
        })?;
        self.job.tell_window("nbadd", WORD_BYTES, ADDS, &add.divided_by(ADDS));
        Ok(())
    }

    /// Nonblocking with a handle each; the buffers go in and come back.
    fn handles(&mut self) -> Result<(), Failure> {
        for bytes in [8, 1 << 10, 64 << 10] {
            let put =
                self.with_handles(bytes, |window, target, place, buffer| Ok(window.start_put(target, place, buffer)?))?;
            self.job.tell_window("nbput_handle", bytes, HANDLES, &put);
            let get =
                self.with_handles(bytes, |window, target, place, buffer| Ok(window.start_get(target, place, buffer)?))?;
            self.job.tell_window("nbget_handle", bytes, HANDLES, &get);
        }
        self.updates_with_handles()
    }

    fn updates_with_handles(&self) -> Result<(), Failure> {
        let words = self.window.cast::<u64>();
        let mut handles = Vec::with_capacity(HANDLES);
        let updates = self.job.effort.measure(|count| {
            for _ in 0..count {
                for place in 0..HANDLES {
                    handles.push(words.start_fetch_add(self.target, place, 1)?);
                }
                for handle in handles.drain(..) {
                    black_box(handle.wait()?);
                }
            }
            Ok(())
        })?;
        self.job.tell_window("nbfadd", WORD_BYTES, HANDLES, &updates.divided_by(HANDLES));
        Ok(())
    }

    fn with_handles(
        &self,
        bytes: usize,
        issue: impl Fn(&Window<u8>, u32, usize, Vec<u8>) -> Result<Handle<Vec<u8>>, Failure>,
    ) -> Result<Sample, Failure> {
        let mut buffers: Vec<Vec<u8>> = (0..HANDLES).map(|_| vec![1; bytes]).collect();
        let mut handles = Vec::with_capacity(HANDLES);
        let sample = self.job.effort.measure(|count| {
            for _ in 0..count {
                for (place, buffer) in buffers.drain(..).enumerate() {
                    handles.push(issue(&self.window, self.target, place * bytes, buffer)?);
                }
                for handle in handles.drain(..) {
                    buffers.push(handle.wait()?);
                }
                self.job.world.quiet()?;
            }
            Ok(())
        })?;
        Ok(sample.divided_by(HANDLES))
    }

    fn accumulates(&mut self) -> Result<(), Failure> {
        let (world, target, doubles) = (self.job.world, self.target, self.window.cast::<f64>());
        for bytes in ACCUMULATE_BYTES {
            let source = vec![1.0; bytes / WORD_BYTES];
            let sample = self.job.effort.measure(|count| {
                for _ in 0..count {
                    doubles.accumulate(target, 0, Update::Sum, black_box(&source))?;
                    world.quiet()?;
                }
                Ok(())
            })?;
            self.job.tell("acc", bytes, &sample);
        }
        Ok(())
    }

    fn strided(&mut self, rows: Rows) -> Result<(), Failure> {
        let (world, target, window, bytes) = (self.job.world, self.target, &self.window, rows.bytes());
        let patches = |element_bytes: usize| {
            let counts = [rows.count, rows.row_bytes / element_bytes];
            let there = Patch::new(0, &counts, &[(rows.pitch_bytes / element_bytes) as isize, 1]);
            (there, Patch::packed(&counts))
        };
        let (there, here) = patches(1);
        // On a page, as other libraries' programs have it: where rows start in lines decides a fifth of the time.
        let mut near = buffer::private(bytes)?;
        let put = self.job.effort.measure(|count| {
            for _ in 0..count {
                window.put(target, there.with_buffer(&here), black_box(&near[..]))?;
                world.quiet()?;
            }
            Ok(())
        })?;
        self.job.tell(&format!("puts_{}", rows.name), bytes, &put);
        let get = self.job.effort.measure(|count| {
            for _ in 0..count {
                window.get(target, there.with_buffer(&here), black_box(&mut near[..]))?;
            }
            Ok(())
        })?;
        self.job.tell(&format!("gets_{}", rows.name), bytes, &get);
        let (doubles, source) = (self.window.cast::<f64>(), vec![1.0; bytes / WORD_BYTES]);
        let (there, here) = patches(WORD_BYTES);
        let accumulate = self.job.effort.measure(|count| {
            for _ in 0..count {
                doubles.accumulate(target, there.with_buffer(&here), Update::Sum, black_box(&source))?;
                world.quiet()?;
            }
            Ok(())
        })?;
        self.job.tell(&format!("accs_{}", rows.name), bytes, &accumulate);
        Ok(())
    }
}
