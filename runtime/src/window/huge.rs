//! Large parts of windows in huge pages, where `LONGARM_HUGE_PAGES` asks for them.

use std::ops::Range;
use std::sync::Once;

use longarm_client::ClientWindow;

use crate::error::Operation;
use crate::inner::Inner;
use crate::topology;

/// Parts up to this stay in small pages: the processor keeps about as many addresses, and their memory is given from one window to the next
/// (docs/src/decisions/0050-huge-pages.md).
const LEFT_ALONE_BYTES_MAX: u64 = 16 << 20;

impl Inner {
    /// Takes the memory of these bytes of this rank's part in huge pages, if the configuration says so and they are many. What the system
    /// refuses stays in small pages, and the first refusal is a warning.
    pub(crate) fn take_huge_pages(&self, window: &ClientWindow, bytes: Range<u64>) {
        if !self.config.huge_pages || self.is_simulated || bytes.end - bytes.start <= LEFT_ALONE_BYTES_MAX {
            return;
        }
        // Memory that cannot be had is an error at the first access.
        let Ok(Some(part)) = window.part_here(Operation::Get, self.me()) else { return };
        let Ok(region) = part.region_mut(bytes.start, bytes.end - bytes.start) else { return };
        let Some(page_bytes) = topology::huge_page_bytes() else {
            return warn_once(&"this system has none (/sys/kernel/mm/transparent_hugepage is missing)", 0, 0);
        };
        let pages = region.take_huge_pages(page_bytes as usize);
        if let Some(refusal) = &pages.refusal {
            warn_once(refusal, pages.taken, pages.wanted);
        }
    }
}

fn warn_once(refusal: &dyn std::fmt::Display, taken: usize, wanted: usize) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        tracing::warn!(
            %refusal,
            taken,
            wanted,
            "LONGARM_HUGE_PAGES: not all of a window has huge pages; they need Linux 6.1, free memory in one piece, and memory that no \
             RDMA device holds"
        );
    });
}
