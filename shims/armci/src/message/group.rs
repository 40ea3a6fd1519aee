//! Broadcasts, reductions and barriers of any group. No group at all means the default group.

use std::ffi::{c_char, c_double, c_float, c_int, c_long, c_longlong, c_void};

use longarm::Group;

use super::collective::{Bytes, Root, broadcast, broadcast_over, exchange_addresses, reduce_scope};
use super::numbers::{self, DOUBLE, FLOAT, INT, LONG, LONG_LONG, Numbers, To};
use super::scope::{self, Scope};
use crate::boundary::call_joined;
use crate::groups;
use crate::job::Job;
use crate::refusal::{Done, Refusal};

/// # Safety
/// `group` is null or readable.
unsafe fn group_of(job: &Job, group: *const c_int) -> Done<Group> {
    if group.is_null() {
        return Ok(job.groups.default());
    }
    // SAFETY: not null, and this function's own contract.
    job.groups.get(unsafe { groups::number(group) }?)
}

/// All processes of a group meet. Waits for no put.
///
/// # Safety
/// `group` is null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn parmci_msg_group_barrier(group: *mut c_int) {
    call_joined("armci_msg_group_barrier", |job| {
        // SAFETY: this function's own contract.
        let group = unsafe { group_of(job, group) }?;
        Ok(group.sync_collective()?)
    });
}

/// The bytes of a process get to all in a scope of a group. The root is a number of the world.
///
/// # Safety
/// `buf` is readable at the root and writable elsewhere for `len` bytes; `group` is null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_bcast_scope(
    scope: c_int,
    buf: *mut c_void,
    len: c_int,
    root: c_int,
    group: *mut c_int,
) {
    let bytes = Bytes { start: buf, length: len };
    call_joined("armci_msg_group_bcast_scope", |job| {
        let scope = Scope::from_c(scope)?;
        // SAFETY: this function's own contract.
        let group = unsafe { group_of(job, group) }?;
        // SAFETY: this function's own contract.
        unsafe { broadcast(job, group, scope, Root::World(root), bytes) }
    });
}

/// Combines the numbers of all processes in a scope of a group. All of them get the result.
///
/// # Safety
/// `x` is readable and writable for `n` numbers of the type, `op` is a C string, `group` is null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_group_gop_scope(
    scope: c_int,
    x: *mut c_void,
    n: c_int,
    op: *mut c_char,
    r#type: c_int,
    group: *mut c_int,
) {
    let numbers = Numbers { start: x, count: n, code: r#type };
    call_joined("armci_msg_group_gop_scope", |job| {
        // SAFETY: this function's own contract.
        let group = unsafe { group_of(job, group) }?;
        // SAFETY: this function's own contract.
        unsafe { reduce_scope(job, group, (scope, To::All), numbers, op) }
    });
}

macro_rules! group_gops {
    ($($name:ident $number:ty, $code:ident;)+) => {$(
        /// Combines the numbers of all processes of a group. All get the result.
        ///
        /// # Safety
        /// `x` is readable and writable for `n` numbers, `op` is a C string, `group` is null or readable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(x: *mut $number, n: c_int, op: *mut c_char, group: *mut c_int) {
            let numbers = Numbers { start: x.cast(), count: n, code: $code };
            call_joined(stringify!($name), |job| {
                // SAFETY: this function's own contract.
                let group = unsafe { group_of(job, group) }?;
                // SAFETY: this function's own contract.
                unsafe { numbers::reduce(&group, To::All, numbers, op) }
            });
        }
    )+};
}
group_gops! {
    armci_msg_group_igop c_int, INT;
    armci_msg_group_lgop c_long, LONG;
    armci_msg_group_llgop c_longlong, LONG_LONG;
    armci_msg_group_fgop c_float, FLOAT;
    armci_msg_group_dgop c_double, DOUBLE;
}

/// `armci_exchange_address` within a group.
///
/// # Safety
/// `ptr_arr` is readable and writable for `n` pointers; `group` is null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_exchange_address_grp(ptr_arr: *mut *mut c_void, n: c_int, group: *mut c_int) {
    call_joined("armci_exchange_address_grp", |job| {
        // SAFETY: this function's own contract.
        let group = unsafe { group_of(job, group) }?;
        // SAFETY: this function's own contract.
        unsafe { exchange_addresses(&group, ptr_arr, n) }
    });
}

/// The bytes of member `grp_master` of a group get to the `grp_clus_nproc` members from it on. Only those take part.
///
/// # Safety
/// `buf` is readable at the first and writable elsewhere for `len` bytes; `mastergroup` is null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_grp_clus_brdcst(
    buf: *mut c_void,
    len: c_int,
    grp_master: c_int,
    grp_clus_nproc: c_int,
    mastergroup: *mut c_int,
) {
    let bytes = Bytes { start: buf, length: len };
    call_joined("armci_grp_clus_brdcst", |job| {
        // SAFETY: this function's own contract.
        let group = unsafe { group_of(job, mastergroup) }?;
        let range = u32::try_from(grp_master).ok().zip(u32::try_from(grp_clus_nproc).ok());
        let end = range.and_then(|(first, count)| first.checked_add(count)).filter(|end| *end <= group.size());
        let (Some((first, _)), Some(end)) = (range, end) else {
            let size = group.size();
            let text = format!("the group has {size} members, not {grp_clus_nproc} from number {grp_master} on");
            return Err(Refusal::fatal(text));
        };
        let places: Vec<u32> = (first..end).collect();
        match scope::part(job, group.clone(), &places)? {
            Some(part) => {
                let root = group.world_rank(first).and_then(|rank| part.place_of(rank)).unwrap_or_default();
                // SAFETY: this function's own contract.
                unsafe { broadcast_over(&part, root, bytes) }
            }
            None => Ok(()),
        }
    });
}
