//! What the members of a team read of each other in a collective.

use std::ffi::c_int;

use longarm::ffi::{Region, RegionMut};

use crate::job::Job;
use crate::nodes::Nodes;
use crate::sync_area::SyncArea;
use crate::teams::Team;

/// The area of a team, for a collective in which each reads what the others have at this address. `None`: not all have it
/// mapped, at any member, or there is no area.
#[inline]
pub(crate) fn area_to_read<'a>(job: &Job, team: &'a Team, address: usize) -> Option<&'a SyncArea> {
    team.area.as_ref().filter(|_| !job.is_apart(address))
}

/// The same for what is read inside of each node.
#[inline]
pub(crate) fn nodes_to_read<'a>(job: &Job, team: &'a Team, address: usize) -> Option<&'a Nodes> {
    team.nodes.as_ref().filter(|_| !job.is_apart(address))
}

/// Bytes that a member of a team of this node has at a symmetric address.
#[inline]
pub(crate) fn of_member(
    name: &'static str,
    job: &Job,
    team: &Team,
    place: usize,
    address: usize,
    bytes: usize,
) -> *mut u8 {
    let pe = team.members[place] as c_int;
    job.direct(pe, address, bytes).unwrap_or_else(|| job.place(name, pe, address, bytes).here)
}

/// Bytes of this process in a vector of its own, for a message.
///
/// # Safety
/// The bytes are readable.
#[inline]
pub(crate) unsafe fn taken(from: *const u8, bytes: usize) -> Vec<u8> {
    let mut vector = vec![0; bytes];
    // SAFETY: this function's own contract.
    unsafe { Region::from_raw(from, bytes) }.copy_to_slice(&mut vector);
    vector
}

/// The bytes of a message in place.
///
/// # Safety
/// As many bytes are writable.
#[inline]
pub(crate) unsafe fn given(to: *mut u8, bytes: &[u8]) {
    // SAFETY: this function's own contract.
    unsafe { RegionMut::from_raw(to, bytes.len()) }.copy_from_slice(bytes);
}
