//! What a cache has done, for `--stats`.

use std::fmt;

use serde::Serialize;

/// How a cache is told that memory goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Watched {
    /// By the kernel.
    Userfaultfd,
    /// By the caller.
    Interposed,
    /// By the kernel, in the device's driver: the cache need not know.
    Device,
    /// Not at all: nothing is cached.
    Off,
}

/// What a cache has done so far, and what it holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Requests that a known registration answered.
    pub hits: u64,
    /// Registrations that were made and kept.
    pub misses: u64,
    /// Registrations that were made for one use, because they could not be kept.
    pub uncached: u64,
    /// Registrations that had to make room.
    pub evictions: u64,
    /// Registrations whose memory went away or changed.
    pub invalidations: u64,
    /// Requests that were refused for a limit.
    pub refused: u64,
    /// Bytes registered now, kept or in use.
    pub bytes: usize,
    /// Registrations that can be found now.
    pub entries: usize,
    /// How the cache is told.
    pub watch: Watched,
}

impl fmt::Display for Watched {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Watched::Userfaultfd => "userfaultfd",
            Watched::Interposed => "interposed",
            Watched::Device => "device",
            Watched::Off => "off",
        })
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Statistics { hits, misses, uncached, evictions, invalidations, refused, bytes, entries, watch } = self;
        write!(
            formatter,
            "{hits} hits, {misses} misses, {uncached} uncached, {evictions} evicted, {invalidations} invalidated, \
             {refused} refused; {entries} entries, {bytes} bytes; watch: {watch}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_one_line_and_one_json_object() {
        let statistics = Statistics {
            hits: 1,
            misses: 2,
            uncached: 3,
            evictions: 4,
            invalidations: 5,
            refused: 6,
            bytes: 7,
            entries: 8,
            watch: Watched::Userfaultfd,
        };
        assert_eq!(
            statistics.to_string(),
            "1 hits, 2 misses, 3 uncached, 4 evicted, 5 invalidated, 6 refused; 8 entries, 7 bytes; watch: userfaultfd"
        );
        let json = serde_json::to_value(statistics).unwrap();
        assert_eq!(json["watch"], "userfaultfd");
        assert_eq!(json["evictions"], 4);
    }
}
