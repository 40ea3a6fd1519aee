//! How much of a payload of short runs is packed at a time, from what packing and sending cost on this machine.
//!
//! ```text
//!   pack 1 │ send 1, pack 2 │ send 2, pack 3 │ … │ send n │
//!                    │ unpack 1     │ unpack 2     │ …    │ unpack n
//! ```
//!
//! Small pieces cost calls; large ones leave the network idle while the first is packed and the last unpacked. For a payload of
//! `t` bytes in pieces of `c`, with `f` for a call and `p` for packing a byte, the time that nothing hides is
//! `t/c × f + 2 × c × p`. It is least at `c = √(t × f / 2p)`. Below, `t` and `p` count in KiB.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use longarm_memory::Region;
use longarm_proto::{Cursor, Level, Run, Strided};

use super::incoming::INCOMING_BYTES;
use super::runs::{RunSource, pack};

/// The shortest piece of a payload: a page or two.
const PIECE_BYTES_MIN: u64 = 8 << 10;
/// The longest: the buffer that it is received in.
const PIECE_BYTES_MAX: u64 = INCOMING_BYTES as u64;

/// What it costs to pack and to send. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Nanoseconds of a send and its receive, without their bytes. Measured on a pair of unix sockets, which stands for the
    /// system calls of TCP.
    pub call_ns: u64,
    /// Nanoseconds to pack 1 KiB of short runs.
    pub pack_kib_ns: u64,
}

impl Costs {
    /// Those of a machine of 2020, where nothing is measured: in a simulation, which is the same each time.
    pub const TYPICAL: Costs = Costs { call_ns: 2000, pack_kib_ns: 60 };

    /// Measures both, which takes some tens of microseconds.
    pub fn measure() -> Costs {
        let call = call().unwrap_or(Duration::from_nanos(Costs::TYPICAL.call_ns));
        Costs { call_ns: (call.as_nanos() as u64).max(1), pack_kib_ns: (packing().as_nanos() as u64).max(1) }
    }

    /// How much of a payload of `bytes` bytes is packed at a time.
    pub fn piece_bytes(&self, bytes: u64) -> u64 {
        let kib = bytes.div_ceil(1 << 10);
        let square = u128::from(kib) * u128::from(self.call_ns) / (2 * u128::from(self.pack_kib_ns));
        let piece = u64::try_from(square.isqrt()).unwrap_or(u64::MAX).saturating_mul(1 << 10);
        piece.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
    }
}

/// The shortest of a few sends of a byte with their receives.
fn call() -> std::io::Result<Duration> {
    use std::io::{Read, Write};
    let (mut from, mut to) = UnixStream::pair()?;
    let mut best = Duration::MAX;
    for _ in 0..8 {
        let begin = Instant::now();
        from.write_all(&[0])?;
        to.read_exact(&mut [0])?;
        best = best.min(begin.elapsed());
    }
    Ok(best)
}

/// Packs 16 KiB of runs of one cache line, every second line, and says what 1 KiB of that took; the shortest of four times.
fn packing() -> Duration {
    const RUNS: u64 = 256;
    let memory = vec![0; 128 * RUNS as usize];
    let runs = Strided::new(0, 64, &[Level { count: RUNS, stride: 128 }]).expect("it has an end");
    let mut best = Duration::MAX;
    let mut packed = BytesMut::with_capacity(64 * RUNS as usize);
    for _ in 0..4 {
        packed.clear();
        let mut cursor = Cursor::new(runs.into());
        let begin = Instant::now();
        pack(&Lines(&memory), &mut cursor, 64 * RUNS, &mut packed);
        best = best.min(begin.elapsed());
    }
    best / (RUNS as u32 * 64 / 1024)
}

struct Lines<'a>(&'a [u8]);

impl RunSource for Lines<'_> {
    fn region(&self, run: Run) -> Region<'_> {
        Region::from_slice(self.0).slice(run.offset as usize, run.bytes as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_grow_with_the_payload_and_with_the_cost_of_a_call() {
        let piece = |call_ns, pack_kib_ns, bytes| Costs { call_ns, pack_kib_ns }.piece_bytes(bytes);
        assert_eq!(piece(2000, 50, 64 << 10), 35 << 10);
        assert!(piece(2000, 50, 32 << 10) < piece(2000, 50, 64 << 10));
        assert!(piece(500, 50, 64 << 10) < piece(2000, 50, 64 << 10));
        assert!(piece(2000, 200, 64 << 10) < piece(2000, 50, 64 << 10));
        assert_eq!((piece(1, 1000, 100), piece(u64::MAX, 1, u64::MAX)), (PIECE_BYTES_MIN, PIECE_BYTES_MAX));
    }

    #[test]
    fn what_is_measured_can_be_used() {
        let costs = Costs::measure();
        assert!(costs.call_ns > 0 && costs.pack_kib_ns > 0, "{costs:?}");
        assert!((PIECE_BYTES_MIN..=PIECE_BYTES_MAX).contains(&costs.piece_bytes(1 << 20)));
    }
}
