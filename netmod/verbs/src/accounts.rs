//! Whether a device can be believed that says how far a queue has come that has ended.
//!
//! What a connection leaves under way when it breaks is done again only if the peer's device says that it was not done: the
//! packet that the queue would have taken next tells. A driver that answers from what it has once written down, rather
//! than from the device, names the packet with which the connection began, and all that was done would be done twice. So a
//! device is believed when it has shown it, on a queue of ours. One that is not believed says nothing, and its peers end
//! what was under way with an error which says that nobody knows.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longarm_netmod::DeviceRmw;
use rustix::io::Errno;

use crate::itself::Itself;
use crate::packets::Packets;
use crate::sys::{Access, Connection, Domain, Pages, Posting, Registration, SharedReceive, Span};

/// The number of the first packet of a trial: no number that a device would make up.
pub(crate) const FIRST: u32 = 0x00a5_c3f1;
/// A request that takes longer than this is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// More than the payload of one packet, whatever the device takes.
const LONG_BYTES: usize = 3 * 4096 + 8;

/// Why a device is not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disbelief {
    /// The device cannot reach itself, or a request failed: nothing was shown.
    NotTried,
    /// It does not say how far a queue has come.
    Silent,
    /// It says something else than what the queue has done.
    Wrong { expected: u32, said: u32 },
}

impl fmt::Display for Disbelief {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Disbelief::NotTried => formatter.write_str("it does not reach itself, and nothing is known of it"),
            Disbelief::Silent => formatter.write_str("it does not say how far a queue has come that has ended"),
            Disbelief::Wrong { expected, said } => {
                write!(formatter, "of a queue that had come to packet {expected} it said {said} on trial")
            }
        }
    }
}

/// Whether what the device said of a queue that has ended is what the queue has done.
fn judge(expected: u32, said: Result<u32, Errno>) -> Result<(), Disbelief> {
    match said {
        Ok(said) if said == expected => Ok(()),
        Ok(said) => Err(Disbelief::Wrong { expected, said }),
        Err(_) => Err(Disbelief::Silent),
    }
}

/// Has the device do requests of every kind that it does, ends the queue that has done them, and asks how far that came.
pub(crate) fn trial(
    domain: &Arc<Domain>,
    shared: &Arc<SharedReceive>,
    myself: &Connection,
    atomics: bool,
) -> Result<(), Disbelief> {
    let not_tried = |_: Errno| Disbelief::NotTried;
    // Words that a device updates are aligned.
    let (mut near, mut far) = (vec![0_u64; LONG_BYTES / 8], vec![0_u64; LONG_BYTES / 8]);
    let [near_start, far_start] = [&mut near, &mut far].map(|memory| memory.as_mut_ptr().expose_provenance());
    let register = |start, access| Registration::new(domain, (start, LONG_BYTES), access, Pages::Kept);
    let near_key = register(near_start, Access::Remote).map_err(not_tried)?;
    let far_access = if atomics { Access::RemoteAtomic } else { Access::Remote };
    let far_key = register(far_start, far_access).map_err(not_tried)?;
    let numbered = Connection { first_sent: FIRST, first_received: FIRST, ..*myself };
    let mut itself = Itself::new(domain, shared, &numbered).map_err(not_tried)?;

    let mtu_code = u8::try_from(myself.mtu_code).unwrap_or(1);
    let mut packets = Packets::new(FIRST, mtu_code);
    let (remote, remote_key) = (far_start as u64, far_key.remote_key());
    let write = Posting::Write { remote, remote_key };
    let read = (myself.reads_out > 0).then_some(Posting::Read { remote, remote_key });
    let update = (myself.reads_out > 0 && atomics).then_some(Posting::Atomic {
        remote,
        remote_key,
        rmw: DeviceRmw::FetchAdd(1),
    });
    let long = LONG_BYTES as u32;
    let requests = [(Some(write), long), (read, long), (update, 8), (Some(write), 8)];
    let mut expected = FIRST;
    for (posting, bytes) in requests.into_iter().filter_map(|(posting, bytes)| Some((posting?, bytes))) {
        let span = Span { start: near_start as u64, bytes, local_key: near_key.local_key() };
        // SAFETY: memory and registrations were made before the queues, and so go after them.
        #[allow(unsafe_code)]
        let done = unsafe { itself.request(posting, span, PATIENCE) };
        done.map_err(not_tried)?;
        expected = packets.pass(bytes.into());
    }
    judge(expected, itself.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_believed_that_names_the_packet_behind_the_last_request_and_no_other() {
        assert_eq!(judge(107, Ok(107)), Ok(()));
        let stale = judge(107, Ok(100));
        assert_eq!(stale, Err(Disbelief::Wrong { expected: 107, said: 100 }), "where the connection began");
        assert_eq!(judge(107, Err(Errno::INVAL)), Err(Disbelief::Silent));
        assert!(stale.unwrap_err().to_string().contains("107"));
    }
}
