//! Checkpoints, which longarm does not make: the calls are there, so that programs link, and say that they do nothing.
//!
//! Spare processes would be for recovery, so there are none: the group of those that compute is the group of all.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Once;

use crate::boundary::end;
use crate::join;

/// What calls answer that cannot do what they were asked for.
const REFUSED: c_int = -1;

/// Says once in each process that there are no checkpoints.
fn refuse(name: &str) -> c_int {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let (rank, _) = join::rank_and_size();
        eprintln!("longarm: rank {rank}: {name}: checkpoints are not supported; nothing is saved");
    });
    REFUSED
}

/// `armci_ckpt_ds_t`: lists of what a checkpoint would save, each `count` long.
#[repr(C)]
pub struct CCheckpointList {
    ptr_arr: *mut *mut c_void,
    sz: *mut usize,
    saveonce: *mut c_int,
    count: c_int,
}

/// Zeroed memory for `count` elements, which C owns.
fn zeros<T>(count: usize) -> *mut T {
    // SAFETY: calloc checks the product of its arguments, and may give null.
    let memory = unsafe { libc::calloc(count.max(1), size_of::<T>()) };
    if memory.is_null() {
        end("ARMCI_Ckpt_create_ds", &format!("no memory for lists of {count} elements"));
    }
    memory.cast()
}

/// Makes lists that the program fills. They are of no use, but writing to them does no harm.
///
/// # Safety
/// `ckptds` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Ckpt_create_ds(ckptds: *mut CCheckpointList, count: c_int) {
    refuse("ARMCI_Ckpt_create_ds");
    if ckptds.is_null() {
        return;
    }
    let Ok(elements) = usize::try_from(count) else { end("ARMCI_Ckpt_create_ds", &format!("the count is {count}")) };
    let lists = CCheckpointList { ptr_arr: zeros(elements), sz: zeros(elements), saveonce: zeros(elements), count };
    // SAFETY: not null, and this function's own contract.
    unsafe { ckptds.write(lists) };
}

/// Would begin a record of checkpoints and give its number. Gives -1.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Ckpt_init(
    _filename: *mut c_char,
    _grp: *mut c_int,
    _savestack: c_int,
    _saveheap: c_int,
    _ckptds: *mut CCheckpointList,
) -> c_int {
    refuse("ARMCI_Ckpt_init")
}

/// Would make a checkpoint. Gives -1.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Ckpt(_rid: c_int) -> c_int {
    refuse("ARMCI_Ckpt")
}

/// Would go back to a checkpoint. Does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Ckpt_Recover(_rid: c_int, _iamreplacement: c_int) {
    refuse("ARMCI_Ckpt_Recover");
}

/// Would end a record of checkpoints. Does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Ckpt_finalize(_rid: c_int) {
    refuse("ARMCI_Ckpt_finalize");
}

/// Would go back to a checkpoint. Gives -1.
#[unsafe(no_mangle)]
pub extern "C" fn armci_irecover(_rid: c_int, _iamreplacement: c_int) -> c_int {
    refuse("armci_irecover")
}

/// Would keep processes back to stand in for others. None are kept back.
#[unsafe(no_mangle)]
pub extern "C" fn armci_set_spare_procs(spare: c_int) {
    if spare != 0 {
        refuse("armci_set_spare_procs");
    }
}

/// The group of the processes that compute: all.
#[unsafe(no_mangle)]
pub extern "C" fn ARMCI_Get_ft_group() -> *mut c_int {
    static WORLD: c_int = 0;
    // Nobody writes to a group through its pointer, so C may have this one as its prototype says.
    (&raw const WORLD).cast_mut()
}
