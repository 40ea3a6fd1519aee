//! Groups of processes, by number as C has them.

use std::ffi::c_int;

use longarm::Group;
use longarm::ffi::sync::Ordering;

use crate::arguments::not_null;
use crate::boundary::{call, call_or_end, end_with};
use crate::group_table::{Entry, Groups, Kept, free_communicator};
use crate::job::{self, Job};
use crate::refusal::{Done, Refusal};

/// The number of the group of all.
const WORLD: c_int = 0;
/// The answer about a group that this process is not in.
const NOT_MEMBER: c_int = -1;

impl Groups {
    /// The group that calls without a group mean.
    pub(crate) fn default(&self) -> Group {
        let number = self.default_number();
        self.get(number).unwrap_or_else(|fault| end_with("the default group", fault))
    }
}

/// The number behind a group's pointer.
///
/// # Safety
/// `group` is null or readable.
pub(crate) unsafe fn number(group: *const c_int) -> Done<c_int> {
    not_null(group)?;
    // SAFETY: not null, and this function's own contract.
    Ok(unsafe { group.read() })
}

/// Gives a number to C.
///
/// # Safety
/// `place` is null or writable.
pub(crate) unsafe fn give(place: *mut c_int, value: c_int) -> Done {
    not_null(place)?;
    // SAFETY: not null, and this function's own contract.
    unsafe { place.write(value) };
    Ok(())
}

/// Gives a group its number, and a communicator if there is MPI. Collective over its members.
fn enter(job: &Job, group: Group) -> Done<c_int> {
    // Collective calls are made by one thread of each process, so no two of these meet.
    let tag = 0x6c61;
    let communicator = match &job.mpi {
        Some(side) => Some(side.mpi.create_group(side.everybody, &group.members(), tag).map_err(Refusal::fatal)?),
        None => None,
    };
    let made = job.groups.made.fetch_add(1, Ordering::Relaxed);
    Ok(job.groups.insert(Kept::Member(Entry { group, communicator, made })))
}

/// # Safety
/// `list` is readable for `count` numbers, `out` writable.
unsafe fn create(job: &Job, parent: &Group, (count, list): (c_int, *const c_int), out: *mut c_int) -> Done {
    not_null(list)?;
    let count = usize::try_from(count).map_err(|_| Refusal::fatal(format!("a group of {count} processes")))?;
    // SAFETY: not null, and this function's own contract.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    let places: Option<Vec<u32>> = list.iter().map(|place| u32::try_from(*place).ok()).collect();
    let places = places.ok_or_else(|| Refusal::fatal("a process number of the list is negative"))?;
    let number = if places.contains(&parent.rank()) {
        enter(job, parent.subgroup_collective(&places)?)?
    } else {
        let members: Option<Vec<u32>> = places.iter().map(|place| parent.world_rank(*place)).collect();
        let members = members.ok_or_else(|| Refusal::fatal("a process number of the list is too large"))?;
        job.groups.insert(Kept::Foreign(members))
    };
    // SAFETY: this function's own contract.
    unsafe { give(out, number) }
}

/// Makes a group of processes of the default group. Collective over those listed; others may call too, and can ask for
/// its size.
///
/// # Safety
/// `pid_list` is readable for `n` numbers, `group_out` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_create(n: c_int, pid_list: *mut c_int, group_out: *mut c_int) {
    call_or_end("ARMCI_Group_create", |job| {
        // SAFETY: this function's own contract.
        unsafe { create(job, &job.groups.default(), (n, pid_list), group_out) }
    });
}

/// Makes a group of processes of another one.
///
/// # Safety
/// As [`ARMCI_Group_create`]; `group_parent` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_create_child(
    n: c_int,
    pid_list: *mut c_int,
    group_out: *mut c_int,
    group_parent: *mut c_int,
) {
    call_or_end("ARMCI_Group_create_child", |job| {
        // SAFETY: this function's own contract.
        let parent = job.groups.get(unsafe { number(group_parent) }?)?;
        // SAFETY: this function's own contract.
        unsafe { create(job, &parent, (n, pid_list), group_out) }
    });
}

/// Forgets a group. Not the group of all.
///
/// # Safety
/// `group` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_free(group: *mut c_int) {
    call_or_end("ARMCI_Group_free", |job| {
        // SAFETY: this function's own contract.
        let number = unsafe { number(group) }?;
        if number == WORLD {
            return Err(Refusal::fatal("the group of all processes cannot be freed"));
        }
        job.groups.kept(number)?;
        if job.groups.default_number() == number {
            job.groups.default.store(0, Ordering::Relaxed);
        }
        let kept = job.groups.entries.write()[number as usize].take();
        if let Some(Kept::Member(entry)) = kept {
            free_communicator(job.mpi.as_ref(), entry.communicator);
        }
        Ok(())
    });
}

/// The number of this process in a group. 0, or -1 if it is not in it.
///
/// # Safety
/// `group` is readable, `rank` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_rank(group: *mut c_int, rank: *mut c_int) -> c_int {
    call("ARMCI_Group_rank", |job| {
        // SAFETY: this function's own contract.
        match job.groups.kept(unsafe { number(group) }?)? {
            // SAFETY: this function's own contract.
            Kept::Member(entry) => unsafe { give(rank, entry.group.rank() as c_int) },
            Kept::Foreign(_) => {
                // SAFETY: this function's own contract.
                unsafe { give(rank, NOT_MEMBER) }?;
                Err(Refusal::Code(NOT_MEMBER))
            }
        }
    })
}

/// How many processes a group has.
///
/// # Safety
/// `group` is readable, `size` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_size(group: *mut c_int, size: *mut c_int) {
    call_or_end("ARMCI_Group_size", |job| {
        // SAFETY: this function's own contract.
        let members = match job.groups.kept(unsafe { number(group) }?)? {
            Kept::Member(entry) => entry.group.size() as usize,
            Kept::Foreign(members) => members.len(),
        };
        // SAFETY: this function's own contract.
        unsafe { give(size, members as c_int) }
    });
}

/// From now on calls without a group mean this one.
///
/// # Safety
/// `group` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_set_default(group: *mut c_int) {
    call_or_end("ARMCI_Group_set_default", |job| {
        // SAFETY: this function's own contract.
        let number = unsafe { number(group) }?;
        job.groups.get(number)?;
        job.groups.default.store(number as u32, Ordering::Relaxed);
        Ok(())
    });
}

/// Which group calls without a group mean.
///
/// # Safety
/// `group_out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_get_default(group_out: *mut c_int) {
    // SAFETY: this function's own contract.
    call_or_end("ARMCI_Group_get_default", |job| unsafe { give(group_out, job.groups.default_number()) });
}

/// The group of all processes.
///
/// # Safety
/// `group_out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_get_world(group_out: *mut c_int) {
    // SAFETY: this function's own contract.
    call_or_end("ARMCI_Group_get_world", |_| unsafe { give(group_out, WORLD) });
}

/// The number in the world of a process of a group.
///
/// # Safety
/// `group` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Absolute_id(group: *mut c_int, group_rank: c_int) -> c_int {
    call_or_end("ARMCI_Absolute_id", |job| {
        // SAFETY: this function's own contract.
        let kept = job.groups.kept(unsafe { number(group) }?)?;
        let place = u32::try_from(group_rank).ok();
        let rank = place.and_then(|place| match kept {
            Kept::Member(entry) => entry.group.world_rank(place),
            Kept::Foreign(members) => members.get(place as usize).copied(),
        });
        let rank = rank.ok_or_else(|| Refusal::fatal(format!("the group has no process {group_rank}")))?;
        Ok(rank as c_int)
    })
}

/// Makes groups by color, ordered by key. Collective over the parent.
///
/// # Safety
/// `parent` is readable, `new_group` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCIX_Group_split(
    parent: *mut c_int,
    color: c_int,
    key: c_int,
    new_group: *mut c_int,
) -> c_int {
    call("ARMCIX_Group_split", |job| {
        // SAFETY: this function's own contract.
        let parent = job.groups.get(unsafe { number(parent) }?)?;
        let split = parent.split_collective(u32::try_from(color).ok(), i64::from(key))?;
        let number = match split {
            Some(group) => enter(job, group)?,
            None => job.groups.insert(Kept::Foreign(Vec::new())),
        };
        // SAFETY: this function's own contract.
        unsafe { give(new_group, number) }
    })
}

/// A group with the same members. Collective over it.
///
/// # Safety
/// As [`ARMCIX_Group_split`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCIX_Group_dup(parent: *mut c_int, new_group: *mut c_int) -> c_int {
    call("ARMCIX_Group_dup", |job| {
        // SAFETY: this function's own contract.
        let parent = job.groups.get(unsafe { number(parent) }?)?;
        let places: Vec<u32> = (0..parent.size()).collect();
        let number = enter(job, parent.subgroup_collective(&places)?)?;
        // SAFETY: this function's own contract.
        unsafe { give(new_group, number) }
    })
}

/// The MPI communicator of a group, as its handle is in C. Belongs to the library.
///
/// # Safety
/// `group` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_group_comm(group: *mut c_int) -> usize {
    let name = "armci_group_comm";
    let communicator = job::any().map(|job| {
        // SAFETY: this function's own contract.
        let number = unsafe { number(group) }?;
        let side = job.mpi.as_ref();
        let side =
            side.ok_or_else(|| Refusal::fatal("there is no MPI in this process that knows all processes of the job"))?;
        match job.groups.kept(number)? {
            Kept::Member(entry) => Ok(entry.communicator.unwrap_or(side.for_program)),
            Kept::Foreign(_) => Ok(side.mpi.null()),
        }
    });
    match communicator {
        Some(Ok(communicator)) => communicator.to_c(),
        Some(Err(fault)) => end_with(name, fault),
        None => crate::boundary::end(name, "called before ARMCI_Init"),
    }
}
