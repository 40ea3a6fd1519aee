//! How things are timed: many short batches, because noise hits some of them, not all.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Failure;

/// The time of one operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// The median over the batches.
    pub(crate) seconds: f64,
    /// The quickest batch.
    pub(crate) seconds_min: f64,
    /// Of single operations, where they were timed one by one.
    pub(crate) seconds_p99: Option<f64>,
    /// The same.
    pub(crate) seconds_p999: Option<f64>,
}

/// How much time to spend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    batch: Duration,
    batches: usize,
    batches_slow: usize,
    passes: usize,
}

/// A batch of at least this length is a slow one, of which fewer are made.
const SLOW: Duration = Duration::from_millis(20);
/// One batch is enough for what takes this long.
const ENDLESS: Duration = Duration::from_millis(500);

impl Effort {
    pub(crate) fn new(quick: bool) -> Effort {
        if quick {
            Effort { batch: Duration::from_millis(2), batches: 9, batches_slow: 3, passes: 5 }
        } else {
            Effort { batch: Duration::from_millis(8), batches: 25, batches_slow: 7, passes: 9 }
        }
    }

    /// How many batches are made of what is not slow.
    pub(crate) fn batches(self) -> usize {
        self.batches
    }

    /// How often what is timed behind a computation is timed.
    pub(crate) fn passes(self) -> usize {
        self.passes
    }

    /// Times `batch`, which does something as often as it is told.
    pub(crate) fn measure(self, mut batch: impl FnMut(u64) -> Result<(), Failure>) -> Result<Sample, Failure> {
        batch(1)?;
        batch(2)?;
        let mut count = 1;
        let mut taken;
        loop {
            taken = timed(&mut batch, count)?;
            if taken >= self.batch / 4 || count > 100_000_000 {
                break;
            }
            count *= 2;
        }
        let each = taken.as_secs_f64().max(1e-9) / count as f64;
        count = ((self.batch.as_secs_f64() / each) as u64).max(1);
        let batches = match taken {
            _ if taken > ENDLESS => 1,
            _ if taken > SLOW => self.batches_slow,
            _ => self.batches,
        };
        let mut seconds = Vec::with_capacity(batches);
        for _ in 0..batches {
            seconds.push(timed(&mut batch, count)?.as_secs_f64() / count as f64);
        }
        Ok(Sample::of_batches(seconds))
    }

    /// Times one operation after the other, for at most `limit`.
    pub(crate) fn measure_singly(
        self,
        limit: Duration,
        mut operation: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Sample, Failure> {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
        let start = Instant::now();
        let mut before = start;
        // The end of one is the beginning of the next: one look at the clock each.
        while histogram.is_empty() || before - start < limit {
            operation()?;
            let now = Instant::now();
            histogram.saturating_record((now - before).as_nanos().max(1) as u64);
            before = now;
        }
        let seconds = |nanoseconds: u64| nanoseconds as f64 * 1e-9;
        Ok(Sample {
            seconds: seconds(histogram.value_at_quantile(0.5)),
            seconds_min: seconds(histogram.min()),
            seconds_p99: Some(seconds(histogram.value_at_quantile(0.99))),
            seconds_p999: Some(seconds(histogram.value_at_quantile(0.999))),
        })
    }
}

impl Sample {
    /// From the time of one operation in each batch.
    pub(crate) fn of_batches(mut seconds: Vec<f64>) -> Sample {
        assert!(!seconds.is_empty(), "at least one batch is measured");
        seconds.sort_by(f64::total_cmp);
        Sample { seconds: seconds[seconds.len() / 2], seconds_min: seconds[0], seconds_p99: None, seconds_p999: None }
    }

    /// What was timed consisted of this many operations.
    pub(crate) fn divided_by(self, operations: usize) -> Sample {
        let share = |seconds: f64| seconds / operations as f64;
        Sample {
            seconds: share(self.seconds),
            seconds_min: share(self.seconds_min),
            seconds_p99: self.seconds_p99.map(share),
            seconds_p999: self.seconds_p999.map(share),
        }
    }
}

fn timed(batch: &mut impl FnMut(u64) -> Result<(), Failure>, count: u64) -> Result<Duration, Failure> {
    let start = Instant::now();
    batch(count)?;
    Ok(start.elapsed())
}

/// How long the origin computes before an operation that is timed behind it.
const ORIGIN_COMPUTES: Duration = Duration::from_millis(2);

/// How long one operation takes behind a computation, so that nothing which the operation before left ready helps it.
pub(crate) fn seconds_behind_computing(operation: &mut dyn FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    compute_for(ORIGIN_COMPUTES);
    let start = Instant::now();
    operation()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Keeps its processor busy. The clock is read without entering the kernel.
pub(crate) fn compute_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        compute(1000);
    }
}

/// Computes in registers, without touching memory.
pub(crate) fn compute(steps: u64) {
    let mut number = 1_u64;
    for _ in 0..steps {
        number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_quickest_batch_are_given() {
        let sample = Sample::of_batches(vec![3.0, 9.0, 1.0]);
        assert_eq!((sample.seconds, sample.seconds_min), (3.0, 1.0));
        assert_eq!(sample.divided_by(2).seconds, 1.5);
    }

    #[test]
    fn a_failure_ends_the_measurement() {
        let effort = Effort::new(true);
        assert!(effort.measure(|_| Err("no".into())).is_err());
        assert!(effort.measure_singly(Duration::ZERO, || Err("no".into())).is_err());
    }

    #[test]
    fn what_is_timed_singly_is_done_at_least_once() {
        let mut done = 0;
        Effort::new(true)
            .measure_singly(Duration::ZERO, || {
                done += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(done, 1);
    }
}
