//! On-demand paging: whether memory is registered without being kept in memory.
//!
//! The device asks the kernel for pages as it needs them, and the kernel tells it when they go. That is a matter between a
//! driver and the memory management of a kernel, and not all of them do it right: soft-RoCE, as of Linux 7.3, reads and writes
//! the beginnings of pages whatever address was named. So a device is believed when it has shown it, on memory of ours that
//! nobody else has.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longarm_memory::RegionMut;
use memmap2::{MmapMut, MmapOptions, UncheckedAdvice};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use serde::Serialize;

use crate::itself::Itself;
use crate::sys::{Access, Connection, Domain, Failure, Pages, Paging, Posting, Registration, SharedReceive, Span};

/// Pages of the ground that a trial uses.
const PAGES: usize = 4;
/// A request that takes longer than this is not waited for. It is that of a device that is of no use anyway.
const PATIENCE: Duration = Duration::from_secs(2);

/// What memory is registered on demand, where the device does that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnDemand {
    /// Windows; and memory of the program where nothing else tells when that goes.
    #[default]
    Auto,
    /// Windows, and memory of the program.
    All,
    /// None.
    No,
}

/// What has become of it on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum PagingChoice {
    /// It is used.
    Used,
    /// Nobody wants it.
    TurnedOff,
    /// The device has none.
    Absent,
    /// The device has it for some requests only.
    Partly,
    /// The device has it, and what it did on trial was wrong.
    Wrong(TrialFault),
}

/// What was wrong about a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum TrialFault {
    /// The device cannot reach itself, or memory cannot be registered so: nothing was shown.
    NotTried,
    /// A request failed, or took too long.
    Failed,
    /// A read brought other bytes.
    Read,
    /// After a write there were other bytes, or elsewhere.
    Written,
    /// A write went to a page that this process has not for itself.
    NotOurs,
    /// Pages that had gone were still read.
    Stale,
}

impl PagingChoice {
    pub(crate) fn decide(
        wanted: OnDemand,
        paging: Paging,
        trial: impl FnOnce() -> Result<(), TrialFault>,
    ) -> PagingChoice {
        let Paging { is_there, writes, reads } = paging;
        if wanted == OnDemand::No {
            PagingChoice::TurnedOff
        } else if !is_there {
            PagingChoice::Absent
        } else if !(writes && reads) {
            PagingChoice::Partly
        } else {
            trial().map_or_else(PagingChoice::Wrong, |()| PagingChoice::Used)
        }
    }

    /// Whether memory is registered on demand.
    pub fn is_used(self) -> bool {
        self == PagingChoice::Used
    }
}

impl fmt::Display for PagingChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            PagingChoice::Used => return formatter.write_str("used"),
            PagingChoice::TurnedOff => "LONGARM_VERBS_ODP says so",
            PagingChoice::Absent => "the device has none",
            PagingChoice::Partly => "the device has it for some requests only",
            PagingChoice::Wrong(fault) => match fault {
                TrialFault::NotTried => "the device does not reach itself so, and nothing is known of it",
                TrialFault::Failed => "a request failed on trial",
                TrialFault::Read => "on trial a read brought wrong bytes",
                TrialFault::Written => "on trial a write brought wrong bytes",
                TrialFault::NotOurs => "on trial a write changed what others have",
                TrialFault::Stale => "on trial pages were read that had gone",
            },
        };
        write!(formatter, "not used: {why}")
    }
}

/// Memory of the program as requests name it. Kept in memory, it cannot fail them. On demand, the device asks for each page as one
/// that is to be written, and a request fails whose memory may only be read, or is not there; it would fail again on the next
/// connection. So with the first that does, all of it is copied through buffers.
pub(crate) struct Named {
    is_on_demand: bool,
    has_failed: OnceLock<()>,
}

impl Named {
    pub(crate) fn new(is_on_demand: bool) -> Named {
        Named { is_on_demand, has_failed: OnceLock::new() }
    }

    /// Whether requests may name it still.
    pub(crate) fn is_possible(&self) -> bool {
        self.has_failed.get().is_none()
    }

    /// A request that named some has failed. What is to be said of it.
    pub(crate) fn note_failure(&self, failure: Failure) -> Option<&'static str> {
        let matters = self.is_on_demand && failure.is_local();
        if !matters {
            return None;
        }
        self.has_failed.get_or_init(|| ());
        Some(
            "the device could not get at memory of the program that is registered on demand, so such memory is copied \
             through buffers from now on: it may be that the memory can only be read; LONGARM_VERBS_ODP=no keeps what \
             is registered in memory",
        )
    }
}

/// Pages of an on-demand registration, of a file that nobody else has.
///
/// They are the file's until they are written, and again when they are discarded. So a write that goes to the wrong page
/// harms nobody: it changes the file, which is looked at.
struct Ground {
    file: File,
    memory: MmapMut,
}

/// What the file holds: no two places within a page and its neighbours look alike.
fn of_the_file(place: usize) -> u8 {
    (place % 251) as u8
}

/// What is written.
fn of_a_write(place: usize) -> u8 {
    (place % 241) as u8 ^ 0x5a
}

impl Ground {
    fn new(page_bytes: usize) -> Result<Ground, Errno> {
        let file = File::from(rustix::fs::memfd_create("longarm-trial", MemfdFlags::CLOEXEC)?);
        let bytes: Vec<u8> = (0..PAGES * page_bytes).map(of_the_file).collect();
        file.write_all_at(&bytes, 0).map_err(|_| Errno::NOSPC)?;
        // SAFETY: nobody else has the file, so it stays as long as it is, and only the device changes what is mapped, while
        // nobody holds a reference to that.
        #[allow(unsafe_code)]
        let memory = unsafe { MmapOptions::new().map_copy(&file) }.map_err(|_| Errno::NOMEM)?;
        Ok(Ground { file, memory })
    }

    fn start(&mut self) -> usize {
        self.memory.as_mut_ptr().expose_provenance()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.memory.len()];
        // The device writes there too, so it is copied as memory that others write.
        RegionMut::from_slice(&mut self.memory).copy_to_slice(&mut bytes);
        bytes
    }

    /// What was written is gone, and the file's pages are there again.
    fn discard(&self) -> Result<(), Errno> {
        // SAFETY: nobody holds a reference to what is mapped, and what is there now is not needed.
        #[allow(unsafe_code)]
        unsafe { self.memory.unchecked_advise(UncheckedAdvice::DontNeed) }.map_err(|_| Errno::INVAL)
    }

    fn is_file_as_it_was(&self) -> bool {
        let mut bytes = vec![0; self.memory.len()];
        self.file.read_exact_at(&mut bytes, 0).is_ok()
            && bytes.iter().enumerate().all(|(at, byte)| *byte == of_the_file(at))
    }
}

/// Where on the ground requests read and write: from within a page into the next but one, and no other page.
struct TrialRange {
    at: usize,
    bytes: usize,
}

/// Has the device read and write pages that are not there yet, that are there, that are not this process's own yet, and that
/// have gone since.
pub(crate) fn trial(
    domain: &Arc<Domain>,
    shared: &Arc<SharedReceive>,
    myself: Option<&Connection>,
) -> Result<(), TrialFault> {
    let page_bytes = rustix::param::page_size();
    let not_tried = |_: Errno| TrialFault::NotTried;
    let mut ground = Ground::new(page_bytes).map_err(not_tried)?;
    let range = TrialRange { at: page_bytes / 2 + 13, bytes: page_bytes + page_bytes / 2 };
    let mut near = vec![0_u8; range.bytes];
    let near_start = near.as_mut_ptr().expose_provenance();
    let all = (ground.start(), PAGES * page_bytes);
    let paged = Registration::new(domain, all, Access::Remote, Pages::OnDemand).map_err(not_tried)?;
    let kept = Registration::new(domain, (near_start, range.bytes), Access::Remote, Pages::Kept).map_err(not_tried)?;
    let mut itself = Itself::new(domain, shared, myself.ok_or(TrialFault::NotTried)?).map_err(not_tried)?;
    let near = RegionMut::from_slice(&mut near);

    let there = (all.0 + range.at) as u64;
    let bytes = range.bytes as u32;
    let near_span = Span { start: near_start as u64, bytes, local_key: kept.local_key() };
    let there_span = Span { start: there, bytes, local_key: paged.local_key() };
    let (near_place, there_place) = ((near_start as u64, kept.remote_key()), (there, paged.remote_key()));
    let read = |(remote, remote_key)| Posting::Read { remote, remote_key };
    let write = |(remote, remote_key)| Posting::Write { remote, remote_key };
    let mut request = |posting, span| {
        // SAFETY: memory and registrations were made before the queues, and so go after them.
        #[allow(unsafe_code)]
        let done = unsafe { itself.request(posting, span, PATIENCE) };
        done.map_err(|_| TrialFault::Failed)
    };
    let is_near = |expected: fn(usize) -> u8| {
        let mut bytes = vec![0; range.bytes];
        near.copy_to_slice(&mut bytes);
        (range.at..).zip(bytes).all(|(at, byte)| byte == expected(at))
    };
    let fill_near = |with: fn(usize) -> u8| {
        let bytes: Vec<u8> = (range.at..range.at + range.bytes).map(with).collect();
        near.copy_from_slice(&bytes);
    };
    let or = |is_right: bool, fault: TrialFault| if is_right { Ok(()) } else { Err(fault) };

    // Each once where the memory is the peer's, and once where it is our own. First pages that are the file's are read, and
    // then written, which makes them this process's own; then they go.
    for is_ours in [false, true] {
        let fetch = if is_ours { (write(near_place), there_span) } else { (read(there_place), near_span) };
        let store = if is_ours { (read(near_place), there_span) } else { (write(there_place), near_span) };
        fill_near(|_| 0);
        request(fetch.0, fetch.1)?;
        or(is_near(of_the_file), TrialFault::Read)?;
        fill_near(of_a_write);
        request(store.0, store.1)?;
        or(ground.is_file_as_it_was(), TrialFault::NotOurs)?;
        let is_written = |at: usize| (range.at..range.at + range.bytes).contains(&at);
        let expected = |at: usize| if is_written(at) { of_a_write(at) } else { of_the_file(at) };
        or(ground.bytes().iter().enumerate().all(|(at, byte)| *byte == expected(at)), TrialFault::Written)?;
        fill_near(|_| 0);
        request(fetch.0, fetch.1)?;
        or(is_near(of_a_write), TrialFault::Read)?;
        ground.discard().map_err(not_tried)?;
        request(fetch.0, fetch.1)?;
        or(is_near(of_the_file), TrialFault::Stale)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Paging = Paging { is_there: true, writes: true, reads: true };

    #[test]
    fn it_is_used_where_the_device_has_all_of_it_and_has_shown_it() {
        let decided = |wanted, paging, trial| PagingChoice::decide(wanted, paging, || trial);
        for wanted in [OnDemand::Auto, OnDemand::All] {
            assert_eq!(decided(wanted, ALL, Ok(())), PagingChoice::Used);
            assert_eq!(decided(wanted, ALL, Err(TrialFault::Read)), PagingChoice::Wrong(TrialFault::Read));
            assert_eq!(decided(wanted, Paging { reads: false, ..ALL }, Ok(())), PagingChoice::Partly);
            assert_eq!(decided(wanted, Paging { writes: false, ..ALL }, Ok(())), PagingChoice::Partly);
            assert_eq!(decided(wanted, Paging { is_there: false, ..ALL }, Ok(())), PagingChoice::Absent);
        }
        let untried = || -> Result<(), TrialFault> { panic!("nobody wants it") };
        assert_eq!(PagingChoice::decide(OnDemand::No, ALL, untried), PagingChoice::TurnedOff);
    }

    #[test]
    fn memory_on_demand_is_named_until_our_own_device_cannot_get_at_it() {
        use rdma_sys::ibv_wc_status as Status;
        let (kept, on_demand) = (Named::new(false), Named::new(true));
        for others in [Status::IBV_WC_WR_FLUSH_ERR, Status::IBV_WC_RETRY_EXC_ERR, Status::IBV_WC_REM_ACCESS_ERR] {
            assert_eq!(on_demand.note_failure(Failure(others)), None);
        }
        assert!(on_demand.is_possible());
        for ours in [Status::IBV_WC_LOC_PROT_ERR, Status::IBV_WC_LOC_QP_OP_ERR] {
            assert_eq!(kept.note_failure(Failure(ours)), None);
            assert!(on_demand.note_failure(Failure(ours)).is_some());
            assert_eq!(on_demand.note_failure(Failure(Status::IBV_WC_WR_FLUSH_ERR)), None);
            assert_eq!((kept.is_possible(), on_demand.is_possible()), (true, false));
        }
    }
}
