//! Memory in which each rank lays out what the others get from it in collectives on much data: so the bytes go straight from
//! there to where they belong, and through no cells.
//!
//! ```text
//!   take ─► lay out ─► the members agree ─► get from the others' staging buffers ─► the members meet (staged.rs says when not) ─► give back
//! ```
//!
//! It is one window of the world, with a part for each rank, made on each node when one of its ranks needs it first. What
//! names it follows from the job's secret, so nobody has to be told. Whether all members have their staging buffers is part of the
//! agreement: if one has not, because another thread uses it or something went wrong before, all send messages.
//!
//! After an error it is not used again: others may still get from it, and must not get what another collective put there.

use std::sync::Arc;

use longarm_client::{AttachError, ClientWindow, Operation, OriginBytesMut, Parts, TransferError, WindowIdentity};
use longarm_memory::Region;
use longarm_proto::{AccessKey, Generation, WindowId};
use longarm_server::door::DoorRequest;
use parking_lot::Mutex;

use super::staging_buffer::{Extent, PART_BYTES, State};
use crate::error::CollectiveError;
use crate::group::Group;
use crate::inner::Inner;
use crate::window::map::map;

/// No window that is allocated has this number: the upper half of theirs is a rank.
const WINDOW: WindowId = WindowId((u32::MAX as u64) << 32 | 1);
const GENERATION: Generation = Generation(1);

/// Bytes of a member's staging buffer, and where they go.
pub(super) struct Want<'a> {
    pub(super) place: u32,
    pub(super) offset: usize,
    pub(super) target: &'a mut [u8],
}

/// What a member does with its own staging buffer, and with those of the others.
pub(super) trait Buffers {
    /// Puts bytes where the others get them.
    fn lay_out(&self, offset: usize, bytes: &[u8]) -> Result<(), TransferError>;

    /// Gets bytes from the staging buffers of others, all at once.
    fn fetch(&self, wants: Vec<Want<'_>>) -> Result<(), CollectiveError>;
}

/// The staging buffer of this rank, taken for one collective. It is spoilt if that does not finish.
pub(super) struct Staged<'a> {
    group: &'a Group,
    window: &'a ClientWindow,
    extent: Extent,
    is_given_back: bool,
}

/// Takes the staging buffer for a collective. `None`: it is not to be had.
pub(super) fn take(group: &Group, extent: Extent) -> Option<Staged<'_>> {
    let staging = &group.inner.staging;
    let mut state = staging.state.lock();
    if !matches!(*state, State::Free) {
        return None;
    }
    *state = State::Taken;
    drop(state);
    let window = staging_window(group);
    if window.is_none() {
        *staging.state.lock() = State::Spoilt;
    }
    Some(Staged { group, window: window?, extent, is_given_back: false })
}

/// The window of all staging buffers. `None`: it could not be made.
pub(super) fn staging_window(group: &Group) -> Option<&ClientWindow> {
    let staging = &group.inner.staging;
    staging.window.get_or_init(|| make(&group.inner, staging.key)).as_ref()
}

impl Buffers for Staged<'_> {
    fn lay_out(&self, offset: usize, bytes: &[u8]) -> Result<(), TransferError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let me = self.group.inner.me();
        let mine = self.window.part_here(Operation::Put, me)?.expect("this rank's part is on its node");
        let room =
            mine.region_mut(offset as u64, bytes.len() as u64).expect("a staging buffer is as large as its halves");
        room.copy_from(Region::from_slice(bytes));
        Ok(())
    }

    fn fetch(&self, wants: Vec<Want<'_>>) -> Result<(), CollectiveError> {
        let client = &self.group.inner.client;
        let wants = wants.into_iter().filter(|want| !want.target.is_empty());
        let runs = wants.map(|want| {
            let rank = self.group.shared.members[want.place as usize];
            (rank, want.offset as u64, OriginBytesMut::from(want.target))
        });
        let got = client.get_in_exchange(self.window, runs.collect());
        // A dead member explains more than the connection that broke.
        got.map_err(|error| self.group.death().map_or(error.into(), CollectiveError::Lost))
    }
}

impl Staged<'_> {
    /// Where this collective lays out its rounds.
    pub(super) fn extent(&self) -> Extent {
        self.extent
    }

    /// Nobody gets any more from where the next collective lays out: all members have got what they wanted, or none does, for not all
    /// have one, or they do not call the same.
    pub(super) fn give_back(mut self) {
        *self.group.inner.staging.state.lock() = State::Free;
        self.is_given_back = true;
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !self.is_given_back {
            *self.group.inner.staging.state.lock() = State::Spoilt;
        }
    }
}

/// Has the parts of this node made, or finds them made by another of its ranks.
fn make(inner: &Arc<Inner>, key: AccessKey) -> Option<ClientWindow> {
    let layout = inner.client.layout();
    let here: Vec<(u32, u64)> = layout.ranks_of(layout.my_node()).iter().map(|rank| (rank.0, PART_BYTES)).collect();
    let part_bytes: Vec<u64> = here.iter().map(|part| part.1).collect();
    let create = DoorRequest::Create {
        window: WINDOW.0,
        generation: GENERATION.0,
        key: key.0,
        parts: here,
        aligned: false,
        room: None,
    };
    let attach = DoorRequest::Attach { window: WINDOW.0, generation: GENERATION.0 };
    // One rank of the node is the first to ask; the others are refused what is there already.
    let handed = inner.node.ask(&create).or_else(|_| inner.node.ask(&attach));
    let memory = handed.ok().flatten().and_then(|handed| map(handed.file, handed.address, &part_bytes, None).ok());
    let Some(memory) = memory else {
        tracing::warn!("there is no memory for collectives on much data: they go by messages, which are slower");
        return None;
    };
    let memory = Mutex::new(Some(memory));
    let attach = move || memory.lock().take().ok_or_else(|| AttachError::Refused("mapped before".into()));
    let identity = WindowIdentity { window: WINDOW, generation: GENERATION, key };
    let window = ClientWindow::new(layout, identity, Parts::Alike(PART_BYTES), attach);
    window.leave_out_of_dumps();
    Some(window)
}
