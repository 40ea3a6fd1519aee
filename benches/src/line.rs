//! One result: a line of JSON that other benchmarks of one-sided communication print too.

use serde::{Deserialize, Serialize};

use crate::micro::sample::Sample;

/// Who measured: longarm, or the machine itself.
pub(crate) const LONGARM: &str = "longarm";
/// See [`LONGARM`].
pub(crate) const LIMIT: &str = "limit";

/// What names a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key<'a> {
    pub(crate) transport: &'a str,
    pub(crate) op: &'a str,
    pub(crate) bytes: u64,
}

/// A result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    /// `longarm` or `limit`.
    pub(crate) peer: String,
    /// The way to the target.
    pub(crate) transport: String,
    /// What was done.
    pub(crate) op: String,
    /// Payload of one operation.
    pub(crate) bytes: u64,
    /// Time of one operation: the median over the batches.
    pub(crate) lat_us: f64,
    /// Megabytes (10⁶ bytes) a second.
    pub(crate) mbps: f64,
    /// Operations a second.
    pub(crate) rate: f64,
    /// The quickest batch.
    pub(crate) lat_min_us: f64,
    /// Operations that were under way together.
    pub(crate) window: u32,
    /// Ranks of the job, 0 for a limit.
    #[serde(default)]
    pub(crate) np: u32,
    /// Of single operations, where they were timed one by one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) p99_us: Option<f64>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) p999_us: Option<f64>,
    /// Share of one processor that the busiest rank used, where that is what was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) cpu_percent: Option<f64>,
    /// Cache misses of all ranks together, where the machine counts them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) cache_misses: Option<f64>,
    /// How long the computation between two looks, or between the start and the wait, takes alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) interval_us: Option<f64>,
    /// The processors lay apart while it was measured: it counts only where nothing else does.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) apart: bool,
    /// Where a transfer and a computation went on together.
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub(crate) overlap: Option<Overlap>,
}

/// What a computation had to do with a transfer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Overlap {
    /// Time of the transfer alone.
    pub(crate) comm_us: f64,
    /// Time of the computation alone.
    pub(crate) work_us: f64,
    /// Share of the time of both together that went into the computation.
    pub(crate) availability: f64,
    /// Share of the shorter of both that cost nothing, where one follows one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) hidden: Option<f64>,
}

impl Line {
    pub(crate) fn new(peer: &str, key: Key<'_>, sample: &Sample) -> Line {
        let bytes = key.bytes;
        Line {
            peer: peer.to_owned(),
            transport: key.transport.to_owned(),
            op: key.op.to_owned(),
            bytes,
            lat_us: sample.seconds * 1e6,
            mbps: bytes as f64 / sample.seconds / 1e6,
            rate: 1.0 / sample.seconds,
            lat_min_us: sample.seconds_min * 1e6,
            window: 1,
            np: 0,
            p99_us: sample.seconds_p99.map(|seconds| seconds * 1e6),
            p999_us: sample.seconds_p999.map(|seconds| seconds * 1e6),
            cpu_percent: None,
            cache_misses: None,
            interval_us: None,
            apart: false,
            overlap: None,
        }
    }

    pub(crate) fn is(&self, peer: &str, key: Key<'_>) -> bool {
        self.peer == peer && self.key() == key
    }

    pub(crate) fn key(&self) -> Key<'_> {
        Key { transport: &self.transport, op: &self.op, bytes: self.bytes }
    }

    /// One line for several rounds of the same: medians, and the quickest of all. Rounds in which the processors lay apart count only if there are no
    /// others.
    pub(crate) fn merged(rounds: &[&Line]) -> Option<Line> {
        let near: Vec<&Line> = rounds.iter().copied().filter(|line| !line.apart).collect();
        let rounds = if near.is_empty() { rounds } else { &near };
        let middle = |pick: fn(&Line) -> Option<f64>| {
            let mut values: Vec<f64> = rounds.iter().filter_map(|line| pick(line)).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied()
        };
        let mut line = (*rounds.first()?).clone();
        line.lat_us = middle(|line| Some(line.lat_us))?;
        line.mbps = line.bytes as f64 / line.lat_us;
        line.rate = 1e6 / line.lat_us;
        line.lat_min_us = rounds.iter().map(|line| line.lat_min_us).fold(f64::INFINITY, f64::min);
        line.p99_us = middle(|line| line.p99_us);
        line.p999_us = middle(|line| line.p999_us);
        line.cpu_percent = middle(|line| line.cpu_percent);
        line.cache_misses = middle(|line| line.cache_misses);
        Some(line)
    }

    /// As a line of JSON, without its end.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and names have a JSON form")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seconds: f64) -> Line {
        let sample = Sample { seconds, seconds_min: seconds / 2.0, seconds_p99: None, seconds_p999: None };
        Line::new(LONGARM, Key { transport: "tcp", op: "get", bytes: 8 }, &sample)
    }

    #[test]
    fn a_line_has_the_keys_that_other_programs_read() {
        let mut value: serde_json::Value = serde_json::from_str(&line(8e-6).to_json()).unwrap();
        for key in ["peer", "transport", "op", "bytes", "lat_us", "mbps", "rate", "lat_min_us"] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert!((value["lat_us"].as_f64().unwrap() - 8.0).abs() < 1e-9);
        assert!((value["mbps"].as_f64().unwrap() - 1.0).abs() < 1e-9);
        assert!((value["rate"].as_f64().unwrap() - 125_000.0).abs() < 1e-3);
        // A limit of others has no ranks.
        value.as_object_mut().unwrap().remove("np");
        assert_eq!(serde_json::from_value::<Line>(value).unwrap().np, 0);
    }

    #[test]
    fn rounds_are_merged_to_the_median_and_the_quickest() {
        let rounds = [line(5e-6), line(1e-6), line(3e-6)];
        let merged = Line::merged(&rounds.iter().collect::<Vec<_>>()).unwrap();
        assert!((merged.lat_us - 3.0).abs() < 1e-9);
        assert!((merged.lat_min_us - 0.5).abs() < 1e-9);
        assert!(Line::merged(&[]).is_none());
    }
}
