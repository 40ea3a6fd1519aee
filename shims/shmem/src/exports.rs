//! Everything that C calls. Written by the build script; see `table/`.
#![allow(clippy::too_many_arguments, reason = "as in the C calls")]
#![allow(non_snake_case, reason = "parameters are called as in the specification")]
#![allow(unused_unsafe, clippy::multiple_unsafe_ops_per_block, reason = "all are written alike, from one template")]

use std::ffi::c_void;

use longarm::{Complex32, Complex64};

use crate::contexts::DEFAULT;
use crate::info::{Counters, GetThread};
use crate::operator::{And, Bits128, LongDouble, Max, Min, Or, Product, Sum, Xor};
use crate::teams::TeamConfig;
use crate::who::Who;
use crate::{amo, collective, context, heap, info, lock, order, reduce, rma, setup, signal, strided, team, wait};

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
