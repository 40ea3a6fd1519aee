//! What is to be reached: a row each, with the limit that it is compared with.

use crate::line::{Key, Line};

/// When a row is passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// One operation takes at most this long.
    MicrosecondsMax(f64),
    /// One operation takes at most this many times as long as the limit.
    TimesMax(f64),
    /// At least this share of the limit's bandwidth.
    ShareMin(f64),
    /// At most this share of a processor.
    CpuPercentMax(f64),
}

/// A row.
pub(crate) struct Bar {
    pub(crate) what: &'static str,
    pub(crate) ours: Key<'static>,
    pub(crate) limit: Option<Key<'static>>,
    pub(crate) rule: Rule,
}

const MIB: u64 = 1 << 20;

const fn key(transport: &'static str, op: &'static str, bytes: u64) -> Key<'static> {
    Key { transport, op, bytes }
}

const fn bar(what: &'static str, ours: Key<'static>, limit: Key<'static>, rule: Rule) -> Bar {
    Bar { what, ours, limit: Some(limit), rule }
}

const fn window(what: &'static str, ours: Key<'static>, microseconds_max: f64) -> Bar {
    Bar { what, ours, limit: None, rule: Rule::MicrosecondsMax(microseconds_max) }
}

/// All rows, in the order in which they are shown.
pub(crate) const BARS: [Bar; 22] = [
    bar("put 8 B + quiet, same node", key("shm", "put", 8), key("shm", "store", 8), Rule::MicrosecondsMax(0.030)),
    bar("get 8 B, same node", key("shm", "get", 8), key("shm", "get", 8), Rule::MicrosecondsMax(0.030)),
    bar("put 1 MiB, same node", key("shm", "put", MIB), key("shm", "put", MIB), Rule::ShareMin(0.9)),
    bar("get 1 MiB, same node", key("shm", "get", MIB), key("shm", "get", MIB), Rule::ShareMin(0.9)),
    bar("sum of f64, 64 KiB, same node", key("shm", "acc", 64 << 10), key("shm", "acc", 64 << 10), Rule::ShareMin(1.0)),
    bar(
        "put of 1024 rows of 64 B, same node",
        key("shm", "puts_1024x64", 64 << 10),
        key("shm", "puts_1024x64", 64 << 10),
        Rule::ShareMin(0.9),
    ),
    bar(
        "get of 1024 rows of 64 B, same node",
        key("shm", "gets_1024x64", 64 << 10),
        key("shm", "gets_1024x64", 64 << 10),
        Rule::ShareMin(0.9),
    ),
    // The limit takes no locks.
    bar(
        "sum of 1024 rows of 64 B, same node",
        key("shm", "accs_1024x64", 64 << 10),
        key("shm", "accs_1024x64", 64 << 10),
        Rule::ShareMin(0.5),
    ),
    bar("fetch-and-add 64-bit, same node", key("shm", "fadd", 8), key("shm", "fadd", 8), Rule::MicrosecondsMax(0.030)),
    bar(
        "get 8 B over TCP, target in a call",
        key("tcp", "get", 8),
        key("tcp", "roundtrip_spin", 8),
        Rule::TimesMax(1.5),
    ),
    bar(
        "the same, more ranks than cores",
        key("tcp-oversubscribed", "get", 8),
        key("tcp", "roundtrip_block_anywhere", 8),
        Rule::TimesMax(1.5),
    ),
    bar(
        "gets 8 B over TCP, one after the other, target computing (limit: epoll, its core busy too)",
        key("tcp", "computing_get", 8),
        key("tcp", "roundtrip_epoll_busy", 8),
        Rule::TimesMax(1.5),
    ),
    bar(
        "the same (limit: epoll, its core free)",
        key("tcp", "computing_get", 8),
        key("tcp", "roundtrip_epoll", 8),
        Rule::TimesMax(1.5),
    ),
    bar(
        "one get 8 B over TCP behind a computation, target computing (limit: epoll, its core busy too)",
        key("tcp", "passive_get", 8),
        key("tcp", "roundtrip_epoll_busy_passive", 8),
        Rule::TimesMax(1.5),
    ),
    bar("put 1 MiB over TCP", key("tcp", "put", MIB), key("tcp", "put", MIB), Rule::ShareMin(0.8)),
    bar("get 1 MiB over TCP", key("tcp", "get", MIB), key("tcp", "get", MIB), Rule::ShareMin(0.8)),
    window("window of 1 MiB a rank, made and freed by 2 ranks of a node", key("shm", "window2", MIB), 15.0),
    window("the same by 2 ranks on 2 nodes", key("tcp", "window2", MIB), 60.0),
    window("the same by 16 ranks of a node", key("shm", "window16", MIB), 100.0),
    window("the same by 16 ranks on 4 nodes", key("tcp", "window16", MIB), 600.0),
    // Less than what the clock of the scheduler shows as nothing.
    Bar { what: "server with no traffic", ours: key("tcp", "idle", 0), limit: None, rule: Rule::CpuPercentMax(0.05) },
    Bar {
        what: "start of 64 ranks, to the end of the first barrier",
        ours: key("tcp", "start", 0),
        limit: None,
        rule: Rule::MicrosecondsMax(2e6),
    },
];

impl Rule {
    /// Ours and the limit as one number; `None` where the rule needs a limit and there is none.
    pub(crate) fn ratio(self, ours: &Line, limit: Option<&Line>) -> Option<f64> {
        match self {
            Rule::ShareMin(_) => Some(ours.mbps / limit?.mbps),
            Rule::CpuPercentMax(_) => None,
            Rule::MicrosecondsMax(_) | Rule::TimesMax(_) => Some(ours.lat_us / limit?.lat_us),
        }
    }

    /// Whether the row is passed.
    pub(crate) fn passed(self, ours: &Line, limit: Option<&Line>) -> Option<bool> {
        match self {
            Rule::MicrosecondsMax(most) => Some(ours.lat_us <= most),
            Rule::TimesMax(most) => Some(self.ratio(ours, limit)? <= most),
            Rule::ShareMin(least) => Some(self.ratio(ours, limit)? >= least),
            Rule::CpuPercentMax(most) => Some(ours.cpu_percent? <= most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{LIMIT, LONGARM};
    use crate::micro::sample::Sample;

    fn line(peer: &str, seconds: f64) -> Line {
        let sample = Sample { seconds, seconds_min: seconds, seconds_p99: None, seconds_p999: None };
        Line::new(peer, key("tcp", "put", MIB), &sample)
    }

    #[test]
    fn a_row_is_passed_at_its_bar_and_failed_beyond_it() {
        let (ours, limit) = (line(LONGARM, 15e-6), line(LIMIT, 10e-6));
        assert_eq!(Rule::TimesMax(1.6).passed(&ours, Some(&limit)), Some(true));
        assert_eq!(Rule::TimesMax(1.4).passed(&ours, Some(&limit)), Some(false));
        assert_eq!(Rule::ShareMin(0.6).passed(&ours, Some(&limit)), Some(true));
        assert_eq!(Rule::ShareMin(0.7).passed(&ours, Some(&limit)), Some(false));
        assert_eq!(Rule::MicrosecondsMax(15.1).passed(&ours, None), Some(true));
        assert_eq!(Rule::MicrosecondsMax(14.9).passed(&ours, None), Some(false));
    }

    #[test]
    fn without_a_limit_nothing_is_said_of_what_needs_one() {
        assert_eq!(Rule::TimesMax(1.5).passed(&line(LONGARM, 1.0), None), None);
        assert_eq!(Rule::CpuPercentMax(0.0).passed(&line(LONGARM, 1.0), None), None);
    }
}
