//! Which processes share memory.

use std::ffi::{c_int, c_ulong};

use crate::boundary::call_or_end;
use crate::groups;
use crate::job::Job;
use crate::refusal::{Done, Refusal};

/// The ranks of a node, in order.
fn ranks_of(job: &Job, node: c_int) -> Vec<u32> {
    let node = u32::try_from(node).ok();
    (0..job.world.size()).filter(|rank| job.world.node_of(*rank) == node).collect()
}

fn node_of(job: &Job, proc: c_int) -> Done<c_int> {
    let rank = job.rank(proc)?;
    Ok(job.world.node_of(rank).map_or(-1, |node| node as c_int))
}

/// How many processes a node has.
#[unsafe(no_mangle)]
pub extern "C" fn armci_domain_nprocs(_domain: c_int, id: c_int) -> c_int {
    call_or_end("armci_domain_nprocs", |job| {
        // A negative number means the caller's own node.
        let id = if id < 0 { job.world.node() as c_int } else { id };
        match ranks_of(job, id).len() {
            0 => Err(Refusal::fatal(format!("there is no node {id}"))),
            count => Ok(count as c_int),
        }
    })
}

/// The node of a process.
#[unsafe(no_mangle)]
pub extern "C" fn armci_domain_id(_domain: c_int, glob_proc_id: c_int) -> c_int {
    call_or_end("armci_domain_id", |job| node_of(job, glob_proc_id))
}

/// The process with this place on a node.
#[unsafe(no_mangle)]
pub extern "C" fn armci_domain_glob_proc_id(_domain: c_int, id: c_int, loc_proc_id: c_int) -> c_int {
    call_or_end("armci_domain_glob_proc_id", |job| {
        let ranks = ranks_of(job, id);
        let rank = usize::try_from(loc_proc_id).ok().and_then(|place| ranks.get(place));
        rank.map(|rank| *rank as c_int).ok_or_else(|| {
            Refusal::fatal(format!("node {id} has {} processes, none is number {loc_proc_id}", ranks.len()))
        })
    })
}

/// The node of this process.
#[unsafe(no_mangle)]
pub extern "C" fn armci_domain_my_id(_domain: c_int) -> c_int {
    call_or_end("armci_domain_my_id", |job| Ok(job.world.node() as c_int))
}

/// How many nodes there are.
#[unsafe(no_mangle)]
pub extern "C" fn armci_domain_count(_domain: c_int) -> c_int {
    call_or_end("armci_domain_count", |job| Ok(job.world.node_count() as c_int))
}

/// Whether a process is on this node.
#[unsafe(no_mangle)]
pub extern "C" fn armci_domain_same_id(_domain: c_int, proc: c_int) -> c_int {
    call_or_end("armci_domain_same_id", |job| Ok(c_int::from(job.world.shares_memory_with(job.rank(proc)?))))
}

/// Whether a process is on this node.
#[unsafe(no_mangle)]
pub extern "C" fn armci_sameclusnode(proc: c_int) -> c_int {
    call_or_end("armci_sameclusnode", |job| Ok(c_int::from(job.world.shares_memory_with(job.rank(proc)?))))
}

/// Whether a process is on this node: then its segments have the same addresses here.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Same_node(proc: c_int) -> c_int {
    call_or_end("ARMCI_Same_node", |job| Ok(c_int::from(job.can_follow(job.rank(proc)?))))
}

/// Whether segments are shared memory that neighbours may load and store. They are, unless an address was taken.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Uses_shm() -> c_int {
    c_int::from(crate::job::any().is_none_or(crate::job::Job::shares_addresses))
}

/// `ARMCI_Uses_shm` for the segments of a group.
///
/// # Safety
/// `group` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Uses_shm_grp(group: *mut c_int) -> c_int {
    call_or_end("ARMCI_Uses_shm_grp", |job| {
        // SAFETY: this function's own contract.
        job.groups.get(unsafe { groups::number(group) }?)?;
        Ok(c_int::from(job.shares_addresses()))
    })
}

/// A limit of shared memory in kilobytes, which longarm does not need: memory is used where it is touched.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Set_shm_limit(_shmemlimit: c_ulong) {}
