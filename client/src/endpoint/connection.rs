//! Over which connection a session goes, and what happens when that breaks.
//!
//! ```text
//!            ┌──────────── broke, or silent for too long ───────────┐
//!            ▼                                                      │
//!   calling: each call a moment later than the last ── welcomed ──► up
//!            │
//!            └── deadline over, session gone, wrong peer ──► lost for good
//! ```

use std::os::fd::BorrowedFd;

use longarm_netmod::{Interest, Link};
use longarm_proto::{NodeId, Rank, Reception, Session};

use super::peer::EndpointOptions;
use crate::error::LostHow;
use crate::progress::dialing::{Dial, DialStep, Dialing};

/// The first pause between two calls, which doubles each time.
const PAUSE_MS_MIN: u64 = 1;
/// The longest one. Each is cut at random, by up to a half: those who were turned away together come back apart.
const PAUSE_MS_MAX: u64 = 200;
/// The first call of a series is given up for another one after this part of the time for which the node is called at all, which is longer where many
/// ranks share a processor: its packets may have been lost on their way.
const CALL_PART: u64 = 10;
/// So long it has at least, ...
const CALL_MS_MIN: u64 = 1000;
/// ... and at most: a way that is silent is left for another one.
const CALL_MS_MAX: u64 = 10_000;
/// Each further call has twice as long, up to so many times that. A server that many call at once gets round to all of them, but not if each
/// comes again to stand last.
const CALL_GROWTH_MAX: u64 = 4;

/// See the module.
pub(super) struct Connection {
    state: Going,
    number: u64,
    attempt: u32,
    is_known: bool,
    /// Why there is no connection.
    reason: String,
}

enum Going {
    Up(Box<dyn Link>),
    Calling { since_ms: Option<u64>, call: Option<(Box<dyn Dialing>, u64)>, next_ms: u64, pause_ms: u64, growth: u64 },
}

impl Going {
    /// The first call is due at this time.
    fn calling(next_ms: u64) -> Going {
        Going::Calling { since_ms: None, call: None, next_ms, pause_ms: PAUSE_MS_MIN, growth: 1 }
    }
}

impl Connection {
    /// A session of this number that has never been welcomed.
    pub(super) fn new(number: u64) -> Connection {
        Connection { state: Going::calling(0), number, attempt: 0, is_known: false, reason: "nobody answered".into() }
    }

    /// The connection, if there is one.
    pub(super) fn link(&mut self) -> Option<&mut dyn Link> {
        match &mut self.state {
            Going::Up(link) => Some(&mut **link),
            Going::Calling { .. } => None,
        }
    }

    /// What to sleep on until there is something to do: the connection, or the call on its way.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            Going::Up(link) => link.descriptor(),
            Going::Calling { call, .. } => call.as_ref().and_then(|(dialing, _)| dialing.descriptor()),
        }
    }

    /// Sees to it that the descriptor announces what comes. Gives what to watch it for, and whether something is there already.
    pub(super) fn prepare_sleep(&mut self, wanted: Interest) -> (Interest, bool) {
        match &mut self.state {
            Going::Up(link) => {
                let ready = link.arm();
                (link.awaits(wanted), ready)
            }
            Going::Calling { call: Some((dialing, _)), .. } => dialing.prepare_sleep(),
            Going::Calling { call: None, .. } => (wanted, false),
        }
    }

    /// Whether it was ever up.
    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    /// The session is over.
    pub(super) fn close(&mut self) {
        self.lose("it was closed".into(), 0);
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, Going::Up(_))
    }

    /// Whether a call is on its way.
    pub(super) fn is_called(&self) -> bool {
        matches!(self.state, Going::Calling { call: Some(_), .. })
    }

    /// The connection is of no more use. When to call for the first time.
    pub(super) fn lose(&mut self, reason: String, next_ms: u64) {
        self.reason = reason;
        // The time counts from the first call: who has nothing to say makes none.
        self.state = Going::calling(next_ms);
    }

    /// Which call there is, and whether it has a descriptor yet: changes whenever the descriptor does.
    pub(super) fn descriptor_key(&self) -> (u32, bool) {
        (self.attempt, self.descriptor().is_some())
    }

    /// Goes on with the calls. Once there is a connection: what the server makes of the session.
    pub(super) fn call(
        &mut self,
        (dial, node): (&dyn Dial, NodeId),
        options: &EndpointOptions,
        received_bytes: u64,
        now_ms: u64,
    ) -> Result<Option<Reception>, LostHow> {
        let Going::Calling { since_ms, call, next_ms, pause_ms, growth } = &mut self.state else { return Ok(None) };
        let limit_ms = if self.is_known { options.reconnect_ms } else { options.connect_ms };
        let call_ms = *growth * (limit_ms / CALL_PART).clamp(CALL_MS_MIN, CALL_MS_MAX);
        let since_ms = *since_ms.get_or_insert(now_ms);
        if call.is_none() && now_ms >= *next_ms {
            self.attempt += 1;
            let session =
                Session { number: self.number, attempt: self.attempt, is_known: self.is_known, received_bytes };
            *call = Some((dial.start(node, session)?, now_ms));
        }
        if let Some((dialing, began_ms)) = call {
            match dialing.poll() {
                DialStep::Pending if now_ms < *began_ms + call_ms => {}
                DialStep::Pending => {
                    if let Some(reason) = dialing.so_far().filter(|_| !self.is_known) {
                        self.reason = reason;
                    }
                    *call = None;
                    *next_ms = now_ms + shortened(*pause_ms, (options.caller, node, self.attempt));
                    *growth = (2 * *growth).min(CALL_GROWTH_MAX);
                }
                DialStep::Failed { reason, may_pass } => {
                    self.reason = reason;
                    if !may_pass {
                        return Err(self.lost(options));
                    }
                    *call = None;
                    *next_ms = now_ms + shortened(*pause_ms, (options.caller, node, self.attempt));
                    *pause_ms = (2 * *pause_ms).min(PAUSE_MS_MAX);
                }
                DialStep::Up { reception: Reception::Gone, .. } => {
                    let why =
                        "the server no longer knows of this rank's session; what was under way may be done or not";
                    return Err(LostHow::Failed(why.into()));
                }
                DialStep::Up { reception: Reception::Fresh, .. } if self.is_known => {
                    let why = "it broke the protocol: it begins a session anew that it had welcomed before";
                    return Err(LostHow::Failed(why.into()));
                }
                DialStep::Up { link, reception } => {
                    self.is_known = true;
                    self.state = Going::Up(link);
                    return Ok(Some(reception));
                }
            }
        }
        if now_ms >= since_ms + limit_ms { Err(self.lost(options)) } else { Ok(None) }
    }

    fn lost(&self, options: &EndpointOptions) -> LostHow {
        if !self.is_known {
            return LostHow::Unreachable(self.reason.clone());
        }
        let limit_s = options.reconnect_ms as f64 / 1000.0;
        LostHow::Failed(format!("{}; it could not be made anew within {limit_s} s", self.reason))
    }
}

/// Between half of the pause and all of it. The same for the same call, so that a simulated job can be repeated.
fn shortened(pause_ms: u64, (caller, node, attempt): (Rank, NodeId, u32)) -> u64 {
    // The finalizer of SplitMix64 (Steele, Lea, Flood): each bit of the number depends on all that goes in.
    let mut number =
        (u64::from(caller.0) << 32 | u64::from(node.0)) ^ u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb), (31, 1)] {
        number = (number ^ number >> shift).wrapping_mul(factor);
    }
    pause_ms - number % (pause_ms / 2 + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn callers_that_were_turned_away_together_come_back_apart() {
        let pauses = (0..1000).map(|rank| shortened(PAUSE_MS_MAX, (Rank(rank), NodeId(7), 3)));
        let different: BTreeSet<u64> = pauses.clone().collect();
        assert_eq!(different, (PAUSE_MS_MAX / 2..=PAUSE_MS_MAX).collect(), "each time is somebody's");
        for time in different {
            let together = pauses.clone().filter(|pause| *pause == time).count();
            assert!(together < 40, "{together} of 1000 come back after {time} ms");
        }
    }

    #[test]
    fn a_pause_depends_on_the_caller_the_node_and_the_call_and_is_never_over_before_its_half() {
        let pause = |rank, node, attempt| shortened(1 << 40, (Rank(rank), NodeId(node), attempt));
        assert_eq!(pause(1, 2, 3), pause(1, 2, 3));
        let all: BTreeSet<u64> = (0..512)
            .map(|bits| pause(bits & 7, bits >> 3 & 7, bits >> 6))
            .inspect(|pause| assert!(*pause >= 1 << 39))
            .collect();
        assert_eq!(all.len(), 512);
        assert_eq!(shortened(1, (Rank(5), NodeId(5), 5)), 1, "the shortest is not shortened");
    }
}
