//! Broadcasts and reductions of the processes of this node.

use std::ffi::{c_char, c_double, c_float, c_int, c_long, c_longlong, c_void};

use longarm::Group;

use super::collective::{Bytes, broadcast_over};
use super::numbers::{self, DOUBLE, FLOAT, INT, LONG, LONG_LONG, Numbers, To};
use super::scope::Scope;
use crate::boundary::call_joined;
use crate::job::Job;
use crate::refusal::{Done, Refusal};

/// The processes of this node, in the order of their numbers.
fn this_node(job: &Job) -> Done<Group> {
    let part = Scope::Node.of(job, job.world.group().clone())?;
    part.ok_or_else(|| Refusal::fatal("this process is on no node"))
}

/// The bytes of the first process of the node get to all others of it.
///
/// # Safety
/// `buf` is readable at the first and writable elsewhere for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_msg_clus_brdcst(buf: *mut c_void, len: c_int) {
    let bytes = Bytes { start: buf, length: len };
    call_joined("armci_msg_clus_brdcst", |job| {
        let node = this_node(job)?;
        // SAFETY: this function's own contract.
        unsafe { broadcast_over(&node, 0, bytes) }
    });
}

macro_rules! node_gops {
    ($($name:ident $number:ty, $code:ident;)+) => {$(
        /// Combines the numbers of all processes of the node. All get the result.
        ///
        /// # Safety
        /// `x` is readable and writable for `n` numbers; `op` is a C string.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(x: *mut $number, n: c_int, op: *mut c_char) {
            let numbers = Numbers { start: x.cast(), count: n, code: $code };
            call_joined(stringify!($name), |job| {
                let node = this_node(job)?;
                // SAFETY: this function's own contract.
                unsafe { numbers::reduce(&node, To::All, numbers, op) }
            });
        }
    )+};
}
node_gops! {
    armci_msg_clus_igop c_int, INT;
    armci_msg_clus_lgop c_long, LONG;
    armci_msg_clus_llgop c_longlong, LONG_LONG;
    armci_msg_clus_fgop c_float, FLOAT;
    armci_msg_clus_dgop c_double, DOUBLE;
}
