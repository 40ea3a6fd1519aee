//! Accumulate of any shape: target = target op source, each element atomic.

use longarm_memory::Grid;
use longarm_proto::{Kernel, Rank, Run, Scale};
use longarm_shm::CounterKind;

use crate::client::Client;
use crate::endpoint::Writes;
use crate::error::{Operation, TransferError};
use crate::origin_bytes::{Lender, OriginBytes};
use crate::path::Aim;
use crate::put::Writing;
use crate::shapes::Shapes;
use crate::window::ClientWindow;

impl Client {
    /// Updates elements of a rank's part. Local completion as [`Client::put`]; each element is updated atomically
    /// with respect to accumulates of its type, and integers also with respect to read-modify-writes.
    /// Runs of both sides hold whole elements. `ARMCI_Acc`, `ARMCI_AccS`, `ARMCI_AccV`.
    pub fn accumulate(
        &self,
        window: &ClientWindow,
        rank: Rank,
        shapes: Shapes,
        (kernel, scale): (Kernel, Scale),
        source: OriginBytes<'_>,
    ) -> Result<(), TransferError> {
        self.write(Writing::Accumulate(kernel, scale), (window, rank), shapes, source)
    }

    /// Starts an accumulate; the source is let go of when the lender's completion is complete. `ARMCI_NbAcc`.
    pub fn start_accumulate(
        &self,
        window: &ClientWindow,
        rank: Rank,
        shapes: Shapes,
        (kernel, scale): (Kernel, Scale),
        source: &Lender<'_>,
    ) -> Result<(), TransferError> {
        self.start_write(Writing::Accumulate(kernel, scale), (window, rank), shapes, source)
    }

    /// Starts a small accumulate to another node together with others of the same operation, type and scale that nobody
    /// waits for either; its bytes are copied. False: nothing was done, and another way has to be taken, or finds out what
    /// is wrong.
    pub fn accumulate_together(
        &self,
        window: &ClientWindow,
        rank: Rank,
        offset: u64,
        (kernel, scale): (Kernel, &Scale),
        source: OriginBytes<'_>,
    ) -> bool {
        // A part of an element would have the whole request refused.
        source.len().is_multiple_of(kernel.element().bytes()) && {
            let aim = Aim { operation: Operation::Accumulate, window, rank };
            self.write_together(&Writes::Accumulate(kernel, *scale), aim, offset, source)
        }
    }

    /// [`Client::accumulate`] of a grid of `bytes` bytes, which is inside the part of a rank of this node. False: it has to
    /// go the long way, which also knows what is wrong; nothing was touched.
    pub fn accumulate_grid(
        &self,
        window: &ClientWindow,
        rank: Rank,
        (grid, bytes): (&Grid, u64),
        operator: (Kernel, Scale),
        source: OriginBytes<'_>,
    ) -> bool {
        let Some(part) = window.at_once(&self.local.failures, rank) else { return false };
        let mut accumulator = part.accumulator(operator, self.local.stripes(), self.local.layout.me());
        if accumulator.grid(grid, source.region()).is_err() {
            return false;
        }
        self.local.count(rank, CounterKind::Accumulate, bytes);
        true
    }

    /// [`Client::accumulate`] of one run. The scale is lent, not copied: a wide load right after the narrow stores that made it
    /// stalls until these have left the store buffer.
    #[inline]
    pub fn accumulate_run(
        &self,
        window: &ClientWindow,
        rank: Rank,
        offset: u64,
        (kernel, scale): (Kernel, &Scale),
        source: OriginBytes<'_>,
    ) -> Result<(), TransferError> {
        if self.accumulate_at_once(window, rank, offset, (kernel, scale), source) {
            return Ok(());
        }
        self.accumulate_long(window, rank, offset, (kernel, scale), source)
    }

    /// Updates elements of a part that is mapped here, if nothing is wrong. False: nothing was done, and another way has to be taken, or finds out
    /// what is wrong.
    #[inline(always)]
    pub fn accumulate_at_once(
        &self,
        window: &ClientWindow,
        rank: Rank,
        offset: u64,
        operator: (Kernel, &Scale),
        source: OriginBytes<'_>,
    ) -> bool {
        let Some(part) = window.at_once(&self.local.failures, rank) else { return false };
        self.local.accumulate(part, (rank, offset), operator, source.region())
    }

    /// One run the long way, never inlined as that of a put.
    #[inline(never)]
    fn accumulate_long(
        &self,
        window: &ClientWindow,
        rank: Rank,
        offset: u64,
        (kernel, scale): (Kernel, &Scale),
        source: OriginBytes<'_>,
    ) -> Result<(), TransferError> {
        let run = Run { offset, bytes: source.len() as u64 };
        self.accumulate(window, rank, Shapes::contiguous(run), (kernel, *scale), source)
    }
}
