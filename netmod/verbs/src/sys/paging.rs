//! What a device can do with memory that is registered on demand: nothing of it is kept in memory, the device asks for its
//! pages as it needs them, and hears from the kernel when they go.

use std::mem::{MaybeUninit, offset_of};
use std::ptr::NonNull;

use rdma_sys::{ibv_context, ibv_device_attr_ex, ibv_odp_general_caps, ibv_odp_transport_cap_bits, verbs_context};
use serde::Serialize;

use super::context::Context;

/// What a device says of on-demand paging, as far as it matters to reliable connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Paging {
    /// Memory can be registered on demand.
    pub is_there: bool,
    /// Writes may be from and to such memory.
    pub writes: bool,
    /// Reads may be from and to such memory.
    pub reads: bool,
}

impl Context {
    /// What the device says. A library or a driver that does not know the question says that there is none.
    pub(crate) fn paging(&self) -> Paging {
        // SAFETY: the context is open, and made by the library.
        unsafe { ask(self.raw) }
    }
}

/// As the header's own `ibv_query_device_ex` does, which is no function of the library.
///
/// # Safety
/// The context is open, and one that says to be the end of a larger one is.
unsafe fn ask(context: NonNull<ibv_context>) -> Paging {
    const IS_EXTENDED: usize = usize::MAX;
    // SAFETY: the context is open, as the caller promises.
    if unsafe { context.as_ref() }.abi_compat.addr() != IS_EXTENDED {
        return Paging::default();
    }
    // SAFETY: it is the last field of a larger one, as it says and the caller promises.
    let whole = unsafe { context.byte_sub(offset_of!(verbs_context, context)) }.cast::<verbs_context>();
    // Newer fields stand before older ones, so that those which are there are at the end.
    // SAFETY: this field has been there from the beginning.
    let bytes = unsafe { (*whole.as_ptr()).sz };
    if bytes < size_of::<verbs_context>() - offset_of!(verbs_context, query_device_ex) {
        return Paging::default();
    }
    // SAFETY: the size says that the field is there.
    let Some(query) = (unsafe { (*whole.as_ptr()).query_device_ex }) else {
        return Paging::default();
    };
    let mut answer = MaybeUninit::<ibv_device_attr_ex>::zeroed();
    let (input, bytes) = (std::ptr::null(), size_of::<ibv_device_attr_ex>());
    // SAFETY: the context is open, nothing special is asked, and there is room for as many bytes.
    let asked = unsafe { query(context.as_ptr(), input, answer.as_mut_ptr(), bytes) };
    if asked != 0 {
        return Paging::default();
    }
    // SAFETY: zeros are numbers too.
    let caps = unsafe { answer.assume_init() }.odp_caps;
    let connected = caps.per_transport_caps.rc_odp_caps;
    Paging {
        is_there: caps.general_caps & u64::from(ibv_odp_general_caps::IBV_ODP_SUPPORT.0) != 0,
        writes: connected & ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_WRITE.0 != 0,
        reads: connected & ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_READ.0 != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::mock;

    #[test]
    fn what_a_device_says_is_understood_and_one_that_cannot_be_asked_has_none() {
        let all = Paging { is_there: true, writes: true, reads: true };
        let bits = |bits: &[ibv_odp_transport_cap_bits]| bits.iter().fold(0, |all, bit| all | bit.0);
        let (write, read) =
            (ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_WRITE, ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_READ);
        // SAFETY: a mock of an open context.
        let asked = |context| unsafe { ask(context) };
        let said = |general, connected| mock::with_paging(general, connected, asked);
        assert_eq!(said(0, 0), Paging::default());
        assert_eq!(said(1, bits(&[write, read])), all);
        assert_eq!(said(3, u32::MAX), all);
        assert_eq!(said(1, bits(&[read])), Paging { writes: false, ..all });
        assert_eq!(said(1, bits(&[write])), Paging { reads: false, ..all });
        assert_eq!(said(2, 0), Paging::default(), "for all memory at once, which is not used");
        assert_eq!(mock::without_questions(asked), Paging::default());
        assert_eq!(mock::of_an_old_library(asked), Paging::default());
    }
}
