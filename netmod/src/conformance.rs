//! The whole suite that every netmod has to pass.

use crate::traits::Netmod;
use crate::{direct_conformance, link_conformance};

/// Runs the whole suite: what links promise, and where a netmod publishes memory what that promises. Each part opens listeners
/// and links of its own.
///
/// # Panics
/// With a sentence, if the netmod breaks a promise of its traits.
pub fn conformance(netmod: &dyn Netmod) {
    link_conformance::links(netmod);
    direct_conformance::memory(netmod);
}
