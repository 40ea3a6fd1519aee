//! Broadcasts, reductions and barriers of the default group.

use std::ffi::{c_char, c_double, c_float, c_int, c_long, c_longlong, c_void};

use longarm::Group;

use super::numbers::{self, DOUBLE, FLOAT, INT, LONG, LONG_LONG, Numbers, PART_BYTES_MAX, To, count_at};
use super::scope::Scope;
use crate::boundary::call_joined;
use crate::job::Job;
use crate::refusal::{Done, Refusal};

/// Bytes of C at one process that all get.
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    pub(crate) start: *mut c_void,
    pub(crate) length: c_int,
}

/// Which process has the bytes of a broadcast.
#[derive(Clone, Copy)]
pub(crate) enum Root {
    /// By its number in the group.
    Member(c_int),
    /// By its number in the world.
    World(c_int),
}

impl Root {
    /// Its place in the part of a group that is in a scope.
    ///
    /// A root of another node may be meant as the number among the processes of this one, as ComEx takes it.
    fn place(self, scope: Scope, group: &Group, part: &Group) -> Done<u32> {
        let (Root::Member(number) | Root::World(number)) = self;
        let given = u32::try_from(number).ok();
        let rank = match self {
            Root::Member(_) => given.and_then(|place| group.world_rank(place)),
            Root::World(_) => given,
        };
        let place = rank.and_then(|rank| part.place_of(rank));
        let on_node = given.filter(|place| scope == Scope::Node && *place < part.size());
        place.or(on_node).ok_or_else(|| Refusal::fatal(format!("root {number} does not take part")))
    }
}

/// The bytes of the root get to all in the scope.
///
/// # Safety
/// The bytes can be read and written.
pub(crate) unsafe fn broadcast(job: &Job, group: Group, scope: Scope, root: Root, bytes: Bytes) -> Done {
    let Some(part) = scope.of(job, group.clone())? else { return Ok(()) };
    let place = root.place(scope, &group, &part)?;
    // SAFETY: this function's own contract.
    unsafe { broadcast_over(&part, place, bytes) }
}

/// # Safety
/// The bytes can be read and written.
pub(crate) unsafe fn broadcast_over(group: &Group, place: u32, bytes: Bytes) -> Done {
    let mut left = count_at(bytes.start, bytes.length)?;
    let mut start = bytes.start.cast::<u8>();
    let is_root = group.rank() == place;
    // Without bytes the members meet all the same.
    loop {
        let mut part = vec![0; left.min(PART_BYTES_MAX)];
        if is_root {
            // SAFETY: as many of the bytes that this function's contract speaks of as the vector has.
            unsafe { std::ptr::copy_nonoverlapping(start, part.as_mut_ptr(), part.len()) };
        }
        group.broadcast_collective(place, &mut part)?;
        if !is_root {
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), start, part.len()) };
        }
        left -= part.len();
        if left == 0 {
            return Ok(());
        }
        start = start.wrapping_add(part.len());
    }
}

/// Reduces numbers over the part of a group that is in the scope.
///
/// # Safety
/// The numbers can be read and written, and `name` is null or a C string.
pub(crate) unsafe fn reduce_scope(
    job: &Job,
    group: Group,
    (scope, to): (c_int, To),
    numbers: Numbers,
    name: *const c_char,
) -> Done {
    match Scope::from_c(scope)?.of(job, group)? {
        // SAFETY: this function's own contract.
        Some(part) => unsafe { numbers::reduce(&part, to, numbers, name) },
        None => Ok(()),
    }
}

/// All processes of the default group meet. Waits for no put: `ARMCI_Barrier` does.
#[unsafe(no_mangle)]
pub extern "C" fn parmci_msg_barrier() {
    call_joined("armci_msg_barrier", |job| Ok(job.groups.default().sync_collective()?));
}

/// The bytes of process `root` of the default group get to all of it.
///
/// # Safety
/// `buffer` is readable at the root and writable elsewhere for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_bcast(buffer: *mut c_void, len: c_int, root: c_int) {
    let bytes = Bytes { start: buffer, length: len };
    call_joined("armci_msg_bcast", |job| {
        // SAFETY: this function's own contract.
        unsafe { broadcast(job, job.groups.default(), Scope::All, Root::Member(root), bytes) }
    });
}

/// `armci_msg_bcast` under an older name.
///
/// # Safety
/// As [`armci_msg_bcast`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_brdcst(buffer: *mut c_void, len: c_int, root: c_int) {
    let bytes = Bytes { start: buffer, length: len };
    call_joined("armci_msg_brdcst", |job| {
        // SAFETY: this function's own contract.
        unsafe { broadcast(job, job.groups.default(), Scope::All, Root::Member(root), bytes) }
    });
}

/// `armci_msg_bcast` over a scope of the default group.
///
/// # Safety
/// As [`armci_msg_bcast`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_bcast_scope(scope: c_int, buffer: *mut c_void, len: c_int, root: c_int) {
    let bytes = Bytes { start: buffer, length: len };
    call_joined("armci_msg_bcast_scope", |job| {
        let scope = Scope::from_c(scope)?;
        // SAFETY: this function's own contract.
        unsafe { broadcast(job, job.groups.default(), scope, Root::Member(root), bytes) }
    });
}

/// Combines the numbers of all processes of the default group. The first one gets the result.
///
/// # Safety
/// `x` is readable and writable for `n` numbers of the type; `op` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_reduce(x: *mut c_void, n: c_int, op: *mut c_char, r#type: c_int) {
    let numbers = Numbers { start: x, count: n, code: r#type };
    call_joined("armci_msg_reduce", |job| {
        // SAFETY: this function's own contract.
        unsafe { numbers::reduce(&job.groups.default(), To::First, numbers, op) }
    });
}

/// `armci_msg_reduce` over a scope of the default group; the first process of the scope gets the result.
///
/// # Safety
/// As [`armci_msg_reduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_reduce_scope(
    scope: c_int,
    x: *mut c_void,
    n: c_int,
    op: *mut c_char,
    r#type: c_int,
) {
    let numbers = Numbers { start: x, count: n, code: r#type };
    call_joined("armci_msg_reduce_scope", |job| {
        // SAFETY: this function's own contract.
        unsafe { reduce_scope(job, job.groups.default(), (scope, To::First), numbers, op) }
    });
}

/// Combines the numbers of all processes in a scope of the default group. All of them get the result.
///
/// # Safety
/// As [`armci_msg_reduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_gop_scope(scope: c_int, x: *mut c_void, n: c_int, op: *mut c_char, r#type: c_int) {
    let numbers = Numbers { start: x, count: n, code: r#type };
    call_joined("armci_msg_gop_scope", |job| {
        // SAFETY: this function's own contract.
        unsafe { reduce_scope(job, job.groups.default(), (scope, To::All), numbers, op) }
    });
}

macro_rules! gops {
    ($($name:ident $number:ty, $code:ident;)+) => {$(
        /// Combines the numbers of all processes of the default group. All get the result.
        ///
        /// # Safety
        /// `x` is readable and writable for `n` numbers; `op` is a C string.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(x: *mut $number, n: c_int, op: *mut c_char) {
            let numbers = Numbers { start: x.cast(), count: n, code: $code };
            call_joined(stringify!($name), |job| {
                // SAFETY: this function's own contract.
                unsafe { numbers::reduce(&job.groups.default(), To::All, numbers, op) }
            });
        }
    )+};
}
gops! {
    armci_msg_igop c_int, INT;
    armci_msg_lgop c_long, LONG;
    armci_msg_llgop c_longlong, LONG_LONG;
    armci_msg_fgop c_float, FLOAT;
    armci_msg_dgop c_double, DOUBLE;
}

/// Addresses that each process has filled its own of, the others being null: all get all.
///
/// # Safety
/// `ptr_ar` is readable and writable for `n` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_exchange_address(ptr_ar: *mut *mut c_void, n: c_int) {
    call_joined("armci_exchange_address", |job| {
        // SAFETY: this function's own contract.
        unsafe { exchange_addresses(&job.groups.default(), ptr_ar, n) }
    });
}

/// # Safety
/// As [`armci_exchange_address`].
pub(crate) unsafe fn exchange_addresses(group: &Group, addresses: *mut *mut c_void, count: c_int) -> Done {
    const { assert!(size_of::<*mut c_void>() == size_of::<c_long>()) };
    let numbers = Numbers { start: addresses.cast(), count, code: LONG };
    // Only one of all is not zero, so their sum is that one.
    // SAFETY: this function's own contract; pointers are as long as longs.
    unsafe { numbers::reduce(group, To::All, numbers, c"+".as_ptr()) }
}
