//! COMB: how much processor a transfer leaves to the application, and how much bandwidth the application leaves to the
//! transfer (Lawry, Wilson, Maccabe, Brightwell 2003), with gets and puts in place of messages.
//!
//! - Polling: some transfers are always under way. The application computes for the poll interval, looks which ones are
//!   done and starts them again, until a fixed amount of work is done.
//! - Post-work-wait: the application starts a batch, computes for the work interval without looking, and waits.
//!
//! `availability` is the time of the work alone divided by its time with the transfers.

use std::time::Instant;

use longarm::{Handle, Window};

use super::Job;
use super::overlap::steps_a_second;
use crate::Failure;
use crate::line::{Key, LONGARM, Line, Overlap};
use crate::micro::sample::{Sample, compute};

/// Sizes of the transfers.
const BYTES: [usize; 3] = [5_000, 100_000, 1_000_000];
/// Transfers that are under way together.
const TOGETHER: usize = 4;
/// Steps of computation between two looks, or between the start and the wait.
const INTERVALS: [u64; 10] = [30, 300, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000];
/// Time of the work at each interval.
const WORK_S: f64 = 0.1;
/// The same, for a look.
const QUICK_WORK_S: f64 = 0.02;
/// So many times as long as the work takes alone it may take with transfers; then what was done of it counts. Where each transfer is a
/// copy that the caller makes at once, and many are begun for little work, all of it would take minutes.
const LONGER_MAX: f64 = 20.0;

type Buffer = Vec<u8>;

pub(super) fn run(job: &Job<'_>) -> Result<(), Failure> {
    let (world, target) = (job.world, job.arguments.target);
    let window = world.allocate_collective::<u8>(if world.rank() == target { TOGETHER * BYTES[2] } else { 0 })?;
    if job.measures() {
        let comb = Comb { job, window: &window, speed: steps_a_second() };
        for bytes in BYTES {
            for is_get in [true, false] {
                comb.curves(bytes, is_get)?;
            }
        }
    }
    world.barrier_collective()?;
    window.free_collective()?;
    Ok(())
}

struct Comb<'a> {
    job: &'a Job<'a>,
    window: &'a Window<u8>,
    speed: f64,
}

/// The same work, with and without transfers.
struct Measured {
    with_transfers_s: f64,
    alone_s: f64,
    /// How many were done meanwhile.
    transfers: u64,
}

impl Comb<'_> {
    fn curves(&self, bytes: usize, is_get: bool) -> Result<(), Failure> {
        let work_s = if self.job.arguments.quick { QUICK_WORK_S } else { WORK_S };
        let intervals = INTERVALS.into_iter().step_by(if self.job.arguments.quick { 2 } else { 1 });
        let alone_s = self.batch_alone(bytes, is_get)?;
        for interval in intervals {
            let loops = ((work_s * self.speed) as u64 / interval).max(1);
            let direction = if is_get { "get" } else { "put" };
            let measured = self.poll(bytes, is_get, interval, loops)?;
            self.tell(&format!("comb_poll_{direction}"), bytes, interval, &measured, alone_s);
            // Each loop waits for a batch too.
            let loops = ((work_s / (interval as f64 / self.speed + alone_s)) as u64).max(3);
            let measured = self.post_work_wait(bytes, is_get, interval, loops)?;
            self.tell(&format!("comb_pww_{direction}"), bytes, interval, &measured, alone_s);
        }
        Ok(())
    }

    fn start(&self, is_get: bool, place: usize, buffer: Buffer) -> Result<Handle<Buffer>, Failure> {
        let (target, index) = (self.job.arguments.target, place * buffer.len());
        Ok(if is_get {
            self.window.start_get(target, index, buffer)?
        } else {
            self.window.start_put(target, index, buffer)?
        })
    }

    fn start_all(&self, is_get: bool, buffers: Vec<Buffer>) -> Result<Vec<Handle<Buffer>>, Failure> {
        buffers.into_iter().enumerate().map(|(place, buffer)| self.start(is_get, place, buffer)).collect()
    }

    /// Seconds of a batch that is waited for at once.
    fn batch_alone(&self, bytes: usize, is_get: bool) -> Result<f64, Failure> {
        let mut buffers = vec![vec![1; bytes]; TOGETHER];
        let mut seconds = Vec::new();
        for _ in 0..15 {
            let start = Instant::now();
            buffers = longarm::wait_all(self.start_all(is_get, buffers)?)?;
            self.job.world.quiet()?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        Ok(Sample::of_batches(seconds).seconds)
    }

    /// Some transfers are always under way.
    fn poll(&self, bytes: usize, is_get: bool, interval: u64, loops: u64) -> Result<Measured, Failure> {
        let start = Instant::now();
        for _ in 0..loops {
            compute(interval);
        }
        let dry = start.elapsed().as_secs_f64();
        let mut done = 0;
        let mut handles: Vec<Option<Handle<Buffer>>> =
            self.start_all(is_get, vec![vec![1; bytes]; TOGETHER])?.into_iter().map(Some).collect();
        let start = Instant::now();
        let mut worked = 0;
        while worked < loops {
            compute(interval);
            worked += 1;
            let before = done;
            for (place, slot) in handles.iter_mut().enumerate() {
                if slot.as_ref().is_some_and(Handle::test) {
                    let buffer = slot.take().expect("it was there").wait()?;
                    *slot = Some(self.start(is_get, place, buffer)?);
                    done += 1;
                }
            }
            // Only transfers make it so long; without any nobody has to look at the time.
            if done > before && start.elapsed().as_secs_f64() > LONGER_MAX * dry {
                break;
            }
        }
        let wet = start.elapsed().as_secs_f64();
        longarm::wait_all(handles.into_iter().flatten())?;
        self.job.world.quiet()?;
        let alone_s = dry * worked as f64 / loops as f64;
        Ok(Measured { with_transfers_s: wet, alone_s, transfers: done })
    }

    /// What was started is waited for in each loop.
    fn post_work_wait(&self, bytes: usize, is_get: bool, interval: u64, loops: u64) -> Result<Measured, Failure> {
        let mut buffers = vec![vec![1; bytes]; TOGETHER];
        let start = Instant::now();
        for _ in 0..loops {
            compute(interval);
        }
        let dry = start.elapsed().as_secs_f64();
        let start = Instant::now();
        for _ in 0..loops {
            let handles = self.start_all(is_get, buffers)?;
            compute(interval);
            buffers = longarm::wait_all(handles)?;
            // A put is done when it is there.
            self.job.world.quiet()?;
        }
        let wet = start.elapsed().as_secs_f64();
        Ok(Measured { with_transfers_s: wet, alone_s: dry, transfers: loops * TOGETHER as u64 })
    }

    fn tell(&self, op: &str, bytes: usize, interval: u64, measured: &Measured, alone_s: f64) {
        let each = measured.with_transfers_s / measured.transfers.max(1) as f64;
        let key = Key { transport: &self.job.arguments.transport, op, bytes: bytes as u64 };
        let work_s = interval as f64 / self.speed;
        let overlap = Overlap {
            comm_us: alone_s * 1e6,
            work_us: work_s * 1e6,
            availability: (measured.alone_s / measured.with_transfers_s).min(1.0),
            hidden: None,
        };
        let mut line = Line::new(LONGARM, key, &Sample::of_batches(vec![each]));
        if measured.transfers == 0 {
            (line.mbps, line.rate) = (0.0, 0.0);
        }
        let line = Line { np: self.job.world.size(), window: TOGETHER as u32, overlap: Some(overlap), ..line };
        println!("{}", Line { interval_us: Some(work_s * 1e6), ..line }.to_json());
    }
}
