//! What the C interfaces build on: bytes and pointers in place of elements and slices.
//!
//! A C program hands out addresses, so its windows are made of bytes, its buffers are regions of memory that it vouches
//! for, and its nonblocking operations are completions that it waits for by number. Everything here is what
//! [`Window`] does with types, without them.
//!
//! Rust programs do not need this module.

mod clock;
mod found_mutex;
mod letters;
mod symmetric;

use std::sync::Arc;

pub use longarm_client::{
    Completion, CompletionPart, Lender, LenderMut, Local as ThisNode, OriginBytes, OriginBytesMut, Shapes,
};
pub use longarm_memory::{Grid, Ranges, Region, RegionMut, Step};
pub use longarm_proto::{
    AccumulateOp, Cursor, ElementType, Kernel, LEVELS_MAX, Level, Rank, Rmw, RmwOp, RmwWidth, Run, Scale, Shape,
    ShapeError, SignalOp, Strided,
};
/// Read-modify-writes of a word that is mapped here.
pub use longarm_shm::amo;
/// Atomics, for the state of an interface.
pub use longarm_shm::sync;
pub use longarm_shm::{CounterKind, Window as Part, flag_barrier};

pub use clock::elapsed_s;
pub use found_mutex::FoundMutex;
pub use symmetric::ExposedForGood;

pub use crate::window::MemoryOfNodes;

use longarm_client::{Awaited, Client};

use crate::error::{CollectiveError, Operation, RmwError, TransferError};
use crate::group::Group;
use crate::window::Window;
use crate::world::World;

/// What an accumulate does.
pub type Operator = (Kernel, Scale);

#[doc(hidden)]
impl World {
    /// [`World::quiet`], but weaker on this node: a release fence instead of a full one. Enough before an exchange or a message that hands
    /// something on, such as a lock: whoever receives it sees what was stored before. It does not order those stores before
    /// later loads of this rank.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mutexes = world.mutexes_collective(1)?;
    /// let guard = mutexes.lock(0, 0)?;
    /// // ... puts ...
    /// world.quiet_before_handing_on()?;
    /// guard.unlock()?; // an exchange, or a message
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`World::quiet`].
    #[inline]
    pub fn quiet_before_handing_on(&self) -> Result<(), TransferError> {
        self.inner.client.quiet_before_handing_on()
    }
}

#[doc(hidden)]
impl Window<u8> {
    #[inline]
    fn client(&self) -> &Arc<Client> {
        &self.shared.client
    }

    /// Where the part of a rank is mapped in this process. `None` if it is on another node.
    ///
    /// # Errors
    /// [`TransferError`]: there is no such part, or it cannot be mapped.
    pub fn pointer_at(&self, rank: u32) -> Result<Option<*mut u8>, TransferError> {
        Ok(self.part_at(rank)?.map(|part| part.start_pointer()))
    }

    /// The part of a rank, mapped in this process. `None` if it is on another node.
    ///
    /// # Errors
    /// As [`Window::pointer_at`].
    pub fn part_at(&self, rank: u32) -> Result<Option<Part<'_>>, TransferError> {
        let window = &self.shared.window;
        if window.bytes_of(Rank(rank)).is_none() {
            let (operation, ranks) = (Operation::Get, self.client().layout().rank_count());
            return Err(TransferError::NoSuchRank { operation, rank: Rank(rank), ranks });
        }
        window.part_here(Operation::Get, Rank(rank))
    }

    /// Leaves the parts of this node out of a core dump of this process: for large ones that are hardly used, all of which a
    /// dump would touch.
    pub fn leave_out_of_dumps(&self) {
        self.shared.window.leave_out_of_dumps();
    }

    /// Has servers do what this process asks of parts on other nodes, so that no device keeps their pages in memory: for windows
    /// of which few pages are used at a time, or whose pages are given back while they live. Every process of the window says
    /// so, before it first uses one of these parts.
    pub fn leave_unpinned(&self) {
        self.shared.window.leave_unpinned();
    }

    /// [`Window::put`] of bytes that a C program vouches for.
    ///
    /// # Errors
    /// As [`Window::put`].
    #[inline]
    pub fn put_bytes(&self, rank: u32, offset: u64, source: OriginBytes<'_>) -> Result<(), TransferError> {
        self.client().put(&self.shared.window, Rank(rank), offset, source)
    }

    /// Starts a small put to another node together with others that nobody waits for; the source is copied. False: nothing
    /// was done, and it has to be started by [`Window::start_put_shapes`], which also knows what is wrong.
    #[inline]
    pub fn put_bytes_together(&self, rank: u32, offset: u64, source: OriginBytes<'_>) -> bool {
        self.client().put_together(&self.shared.window, Rank(rank), offset, source)
    }

    /// What an operation on mapped memory needs besides the memory: who is dead, the counters, the stripe locks, and whom to wake. From the
    /// window it is several loads away, each of which waits for the one before; it stays where it is as long as the window does.
    #[inline]
    pub fn this_node(&self) -> &ThisNode {
        self.client().local()
    }

    /// [`Window::get`] into bytes that a C program vouches for.
    ///
    /// # Errors
    /// As [`Window::get`].
    #[inline]
    pub fn get_bytes(&self, rank: u32, offset: u64, target: OriginBytesMut<'_>) -> Result<(), TransferError> {
        self.client().get(&self.shared.window, Rank(rank), offset, target)
    }

    /// [`Window::put`] of any shape. The source reaches to the end of the origin's shape.
    ///
    /// # Errors
    /// As [`Window::put`].
    pub fn put_shapes(&self, rank: u32, shapes: Shapes, source: OriginBytes<'_>) -> Result<(), TransferError> {
        self.client().put_shaped(&self.shared.window, Rank(rank), shapes, source)
    }

    /// [`Window::get`] of any shape.
    ///
    /// # Errors
    /// As [`Window::get`].
    pub fn get_shapes(&self, rank: u32, shapes: Shapes, target: OriginBytesMut<'_>) -> Result<(), TransferError> {
        self.client().get_shaped(&self.shared.window, Rank(rank), shapes, target)
    }

    /// [`Window::accumulate`] of one run. The scale is lent, not copied: a wide load right after the narrow stores that made it
    /// would stall.
    ///
    /// # Errors
    /// As [`Window::accumulate`].
    #[inline]
    pub fn accumulate_bytes(
        &self,
        rank: u32,
        offset: u64,
        operator: (Kernel, &Scale),
        source: OriginBytes<'_>,
    ) -> Result<(), TransferError> {
        self.client().accumulate_run(&self.shared.window, Rank(rank), offset, operator, source)
    }

    /// Starts a small accumulate to another node together with others of its kind that nobody waits for; the source is copied. False:
    /// nothing was done, and another way has to be taken, or finds out what is wrong.
    #[inline]
    pub fn accumulate_bytes_together(
        &self,
        rank: u32,
        offset: u64,
        operator: (Kernel, &Scale),
        source: OriginBytes<'_>,
    ) -> bool {
        self.client().accumulate_together(&self.shared.window, Rank(rank), offset, operator, source)
    }

    /// [`Window::accumulate`] of a grid of `bytes` bytes inside the part of a rank of this node. False: it has to go the
    /// long way, by [`Window::accumulate_shapes`], which also knows what is wrong; nothing was touched.
    pub fn accumulate_grid(&self, rank: u32, grid: (&Grid, u64), operator: Operator, source: OriginBytes<'_>) -> bool {
        self.client().accumulate_grid(&self.shared.window, Rank(rank), grid, operator, source)
    }

    /// [`Window::accumulate`] of any shape.
    ///
    /// # Errors
    /// As [`Window::accumulate`].
    pub fn accumulate_shapes(
        &self,
        rank: u32,
        shapes: Shapes,
        operator: Operator,
        source: OriginBytes<'_>,
    ) -> Result<(), TransferError> {
        self.client().accumulate(&self.shared.window, Rank(rank), shapes, operator, source)
    }

    /// Starts [`Window::put_shapes`] under the lender's completion.
    ///
    /// # Errors
    /// What is known now, as [`Window::put`]; the rest comes with the completion.
    pub fn start_put_shapes(&self, rank: u32, shapes: Shapes, source: &Lender<'_>) -> Result<(), TransferError> {
        self.client().start_put(&self.shared.window, Rank(rank), shapes, source)
    }

    /// Starts [`Window::get_shapes`] under the lender's completion.
    ///
    /// # Errors
    /// As [`Window::start_put_shapes`].
    pub fn start_get_shapes(&self, rank: u32, shapes: Shapes, target: &LenderMut<'_>) -> Result<(), TransferError> {
        self.client().start_get(&self.shared.window, Rank(rank), shapes, target)
    }

    /// Starts [`Window::accumulate_shapes`] under the lender's completion.
    ///
    /// # Errors
    /// As [`Window::start_put_shapes`].
    pub fn start_accumulate_shapes(
        &self,
        rank: u32,
        shapes: Shapes,
        operator: Operator,
        source: &Lender<'_>,
    ) -> Result<(), TransferError> {
        self.client().start_accumulate(&self.shared.window, Rank(rank), shapes, operator, source)
    }

    /// One read-modify-write; the old value, zero-extended.
    ///
    /// # Errors
    /// [`RmwError`].
    #[inline]
    pub fn rmw_bytes(&self, rank: u32, offset: u64, rmw: Rmw) -> Result<u64, RmwError> {
        self.client().rmw(&self.shared.window, Rank(rank), offset, rmw)
    }
}

#[doc(hidden)]
impl Window<u8> {
    /// Starts [`Window::rmw_bytes`] as one more part of an operation.
    ///
    /// # Errors
    /// What is known now, as there; the rest comes with the completion.
    pub fn start_rmw_bytes(&self, rank: u32, offset: u64, rmw: Rmw, part: &CompletionPart) -> Result<(), RmwError> {
        self.client().start_rmw(&self.shared.window, Rank(rank), offset, rmw, part)
    }
}

#[doc(hidden)]
impl<T> Window<T> {
    /// Whether two names mean the same window.
    pub fn is_same<U>(&self, other: &Window<U>) -> bool {
        Arc::ptr_eq(&self.shared.window, &other.shared.window)
    }

    /// Whether it was made over this group.
    pub fn is_of(&self, group: &Group) -> bool {
        self.shared.group.shared.id == group.shared.id
    }

    /// The memory that this window is in, if windows of the world have that one after the other.
    pub fn memory(&self) -> Option<&MemoryOfNodes> {
        self.shared.memory_of_nodes.as_ref()
    }
}

#[doc(hidden)]
impl Group {
    /// How many collectives this rank has begun in the group, counting each that is part of another call. For tests.
    pub fn collectives_begun(&self) -> u64 {
        self.shared.sequence.load(sync::Ordering::Relaxed)
    }
}

#[doc(hidden)]
impl World {
    /// Waits for operations towards a rank that were started under a completion.
    ///
    /// # Errors
    /// The first of their failures.
    pub fn wait_for_completion(
        &self,
        operation: Operation,
        rank: u32,
        completion: &Completion,
    ) -> Result<(), TransferError> {
        let client = &self.inner.client;
        if !completion.is_complete() {
            client.wait_completion(Awaited::rank(operation, Rank(rank)), completion);
        }
        completion.failure().map_or(Ok(()), |outcome| Err(client.explain(outcome, operation, Rank(rank))))
    }

    /// A barrier after which the program finalizes. Where survivors go on it is one among them, and meets the dead as
    /// little as [`World::finalize`] does.
    ///
    /// # Errors
    /// As [`Group::barrier_collective`](crate::Group::barrier_collective).
    pub fn barrier_before_finalize(&self) -> Result<(), CollectiveError> {
        match self.barrier_collective() {
            // What was lost other than by a death is said by `finalize`.
            Err(error) if self.survivors_go_on() && error.lost().is_some() => Ok(()),
            outcome => outcome,
        }
    }

    /// Moves what can be moved, without waiting. `ARMCIX_Progress`.
    pub fn progress(&self) {
        self.inner.client.poll_progress();
    }
}

/// What programs in Rust use too.
impl World {
    /// Whether a death leaves the others alive (`LONGARM_ON_FAILURE=continue`).
    pub fn survivors_go_on(&self) -> bool {
        self.inner.client.failures().survivors_go_on()
    }

    /// Whether the memory of a rank's windows is mapped here.
    pub fn shares_memory_with(&self, rank: u32) -> bool {
        self.node_of(rank) == Some(self.node())
    }

    /// Ends the whole job with this status, after a line that says why. Under a launcher that kills the ranks the call
    /// may not return.
    pub fn abort(&self, reason: &str, status: i32) {
        self.inner.abort(reason, status);
    }
}
