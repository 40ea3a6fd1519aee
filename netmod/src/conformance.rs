//! The suite that every netmod has to pass.
//!
//! It is part of the library, so that a netmod of another crate can call it from its tests. It relies on what the
//! traits promise and on nothing else: it sleeps on descriptors where there are some, and tries again where there
//! are none. A netmod that loses bytes silently may hang it. A netmod object is tested once: it may remember the ports of an earlier run.

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
