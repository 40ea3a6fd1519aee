//! What copying, registering and sending cost here: measured when a device is opened, and what follows from it.
//!
//! | choice | follows from |
//! | --- | --- |
//! | from which size on memory is registered rather than copied | copying against registering, used twice |
//! | how long the pieces of what is registered are | the first piece waits for its registration, each costs a request |
//! | how long the pieces of what is copied are | the first waits for its copy, each costs a request |

use std::sync::Arc;
use std::time::{Duration, Instant};

use longarm_memory::{Region, RegionMut};
use memmap2::MmapMut;
use rustix::io::Errno;
use serde::Serialize;

use crate::itself::Itself;
use crate::sys::{Access, Connection, Domain, Pages, Posting, Registration, SharedReceive, Span};

/// A buffer that was registered is expected to be used so often before its memory goes away.
const USES: u64 = 2;
/// Bounds of what is worth registering, whatever was measured, and of a piece.
const REGISTER_BYTES_MIN: u64 = 4 << 10;
const REGISTER_BYTES_MAX: u64 = 1 << 20;
const PIECE_BYTES_MIN: u64 = 64 << 10;
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// What is measured beside little, to tell a byte's cost from a call's.
const LARGE_BYTES: usize = 256 << 10;
/// Tries of which the best counts.
const ROUNDS: u32 = 5;
/// A device that is slower than this is not waited for.
const PATIENCE: Duration = Duration::from_millis(200);

/// Costs of a device and its machine, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Costs {
    /// To copy 1 KiB in memory.
    pub copy_kib_ns: u32,
    /// To register memory and give it back, however much.
    pub register_ns: u32,
    /// The same for each KiB more.
    pub register_kib_ns: u32,
    /// From posting a write of 8 bytes to its completion.
    pub request_ns: u32,
    /// What each KiB of a write takes more.
    pub wire_kib_ns: u32,
}

impl Costs {
    /// Those of a card of today, for tests and where nothing can be measured.
    pub const TYPICAL: Costs =
        Costs { copy_kib_ns: 100, register_ns: 6000, register_kib_ns: 10, request_ns: 1500, wire_kib_ns: 90 };

    /// From this size on it is worth registering memory that is not registered.
    pub fn register_bytes_min(&self) -> usize {
        let saved = (USES * u64::from(self.copy_kib_ns)).saturating_sub(self.register_kib_ns.into());
        let bytes = (u64::from(self.register_ns) << 10).checked_div(saved).unwrap_or(u64::MAX);
        bytes.clamp(REGISTER_BYTES_MIN, REGISTER_BYTES_MAX).next_power_of_two() as usize
    }

    /// How long it takes to register so much.
    pub(crate) fn registering_ns(&self, bytes: usize) -> u64 {
        u64::from(self.register_ns) + u64::from(self.register_kib_ns).saturating_mul(bytes as u64 >> 10)
    }

    /// Into pieces of which size a transfer of so many bytes is cut when each piece is registered.
    pub fn piece_bytes(&self, bytes: usize) -> usize {
        let each = u64::from(self.request_ns) + u64::from(self.register_ns);
        balance(bytes, each, self.register_kib_ns).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) as usize
    }

    /// The same when each piece is copied into a buffer of this size.
    pub fn copied_piece_bytes(&self, bytes: usize, buffer_bytes: usize) -> usize {
        let piece = balance(bytes, self.request_ns.into(), self.copy_kib_ns);
        piece.min(buffer_bytes as u64) as usize
    }

    /// Measures. Takes some milliseconds. What cannot be measured is [`Costs::TYPICAL`]; without a way to itself, the wire.
    pub(crate) fn measure(domain: &Arc<Domain>, shared: &Arc<SharedReceive>, myself: Option<&Connection>) -> Costs {
        let (copy_kib_ns, register) = (measure_copy(), measure_registration(domain));
        let wire = myself.ok_or(Errno::OPNOTSUPP).and_then(|myself| measure_wire(domain, shared, myself));
        let (register_ns, register_kib_ns) =
            register.unwrap_or((Self::TYPICAL.register_ns, Self::TYPICAL.register_kib_ns));
        let (request_ns, wire_kib_ns) = wire.unwrap_or((Self::TYPICAL.request_ns, Self::TYPICAL.wire_kib_ns));
        Costs { copy_kib_ns, register_ns, register_kib_ns, request_ns, wire_kib_ns }
    }
}

/// The piece for which the cost of all pieces and the wait for the first one are together the least.
fn balance(bytes: usize, each_ns: u64, kib_ns: u32) -> u64 {
    let square = (bytes as u64).saturating_mul(each_ns << 10) / u64::from(kib_ns.max(1));
    // To whole pages at least, so that pieces do not share any.
    square.isqrt().next_power_of_two().max(4096)
}

/// The least of some tries: whatever else happens only adds.
fn best(mut work: impl FnMut() -> Result<(), Errno>) -> Result<u64, Errno> {
    let mut least = u64::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        work()?;
        least = least.min(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(least)
}

fn ns(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn measure_copy() -> u32 {
    let source = vec![1; 64 << 10];
    let mut target = vec![0; 64 << 10];
    let copied = best(|| {
        RegionMut::from_slice(&mut target).copy_from(Region::from_slice(&source));
        Ok(())
    });
    copied.map_or(Costs::TYPICAL.copy_kib_ns, |took| ns((took / 64).max(1)))
}

fn block() -> Result<(MmapMut, usize), Errno> {
    let mut memory = MmapMut::map_anon(LARGE_BYTES).map_err(|_| Errno::NOMEM)?;
    memory.fill(1);
    let start = memory.as_mut_ptr().expose_provenance();
    Ok((memory, start))
}

fn measure_registration(domain: &Arc<Domain>) -> Result<(u32, u32), Errno> {
    let (_memory, start) = block()?;
    let register = |bytes| Registration::new(domain, (start, bytes), Access::Local, Pages::Kept).map(drop);
    let small = best(|| register(4096))?;
    let large = best(|| register(LARGE_BYTES))?;
    Ok((ns(small.max(1)), ns(large.saturating_sub(small) / (LARGE_BYTES as u64 >> 10))))
}

/// Writes of the device to itself.
fn measure_wire(domain: &Arc<Domain>, shared: &Arc<SharedReceive>, myself: &Connection) -> Result<(u32, u32), Errno> {
    let (from, to) = (block()?, block()?);
    let source = Registration::new(domain, (from.1, LARGE_BYTES), Access::Local, Pages::Kept)?;
    let target = Registration::new(domain, (to.1, LARGE_BYTES), Access::Remote, Pages::Kept)?;
    let mut itself = Itself::new(domain, shared, myself)?;
    let mut write = |bytes: usize| {
        let span = Span { start: from.1 as u64, bytes: bytes as u32, local_key: source.local_key() };
        let posting = Posting::Write { remote: to.1 as u64, remote_key: target.remote_key() };
        // SAFETY: both blocks and their registrations were made before the queues, and so go after them.
        #[allow(unsafe_code)]
        unsafe {
            itself.request(posting, span, PATIENCE)
        }
    };
    let (small, large) = (best(|| write(8))?, best(|| write(LARGE_BYTES))?);
    Ok((ns(small.max(1)), ns(large.saturating_sub(small) / (LARGE_BYTES as u64 >> 10))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registering_is_worth_it_where_copying_twice_costs_more() {
        assert_eq!(Costs::TYPICAL.register_bytes_min(), 32 << 10);
        let cheap = Costs { register_ns: 100, ..Costs::TYPICAL };
        assert_eq!(cheap.register_bytes_min(), 4 << 10, "never for less than a page");
        let dear = Costs { register_kib_ns: 1000, ..Costs::TYPICAL };
        assert_eq!(dear.register_bytes_min(), 1 << 20, "large memory is registered all the same");
    }

    #[test]
    fn pieces_grow_with_the_transfer_and_stay_within_bounds() {
        let costs = Costs::TYPICAL;
        assert_eq!(costs.piece_bytes(32 << 10), 256 << 10, "it is one piece");
        assert_eq!(costs.piece_bytes(1 << 20), 1 << 20);
        assert_eq!(costs.piece_bytes(1 << 30), 1 << 20);
        assert_eq!(costs.copied_piece_bytes(20_000, 8192), 8192);
        let slow = Costs { copy_kib_ns: 10_000, request_ns: 1000, ..costs };
        assert_eq!(slow.copied_piece_bytes(64 << 10, 8192), 4096);
    }
}
