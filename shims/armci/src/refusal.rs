//! Why calls do not do what they were asked for.

use std::ffi::c_int;
use std::fmt::Display;

use longarm::error::{
    CollectiveError, Lost, MessageError, MutexError, RmwError, TransferError, WaitError, WindowError,
};

/// Why a call did not do what it was asked for.
pub(crate) enum Refusal {
    /// A code that ARMCI has for it. Nothing was done.
    Code(c_int),
    /// Nothing that a program can go on from: the job ends with this line.
    Fatal(String),
}

/// The codes of the classic interface.
pub(crate) const NULL_POINTER: c_int = -1;
pub(crate) const NULL_STRIDES: c_int = -2;
pub(crate) const NEGATIVE_COUNT: c_int = -3;
pub(crate) const BAD_LEVELS: c_int = -4;
pub(crate) const BAD_RANK: c_int = -5;
pub(crate) const FAILED: c_int = -6;

impl Refusal {
    pub(crate) fn fatal(text: impl Display) -> Refusal {
        Refusal::Fatal(text.to_string())
    }
}

macro_rules! fatal_from {
    ($($error:ty)+) => {$(
        impl From<$error> for Refusal {
            #[cold]
            fn from(error: $error) -> Refusal {
                Refusal::fatal(error)
            }
        }
    )+};
}
fatal_from! { CollectiveError Lost MessageError MutexError RmwError TransferError WaitError WindowError }

/// What every call gives.
pub(crate) type Done<T = ()> = Result<T, Refusal>;
