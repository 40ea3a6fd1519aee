//! Nonblocking operations without a handle, on borrowed buffers: all are complete when the scope ends.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use longarm_client::{Awaited, Lent, Operation, OriginBytes, OriginBytesMut, Shapes, TransferError, lend};
use longarm_proto::Rank;
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::element::{Element, Number};
use crate::patch::{Patch, Segment};
use crate::window::{Update, Window};
use crate::world::World;

/// Where implicit operations are started; see [`World::scope`].
///
/// What is lent to it is borrowed until the scope has ended. A target is looked at only behind it:
///
/// ```compile_fail,E0502
/// # let world = longarm::init()?;
/// # let window = world.allocate_collective::<u64>(8)?;
/// let mut target = [0; 2];
/// world.scope(|scope| {
///     scope.get(&window, 0, 4, &mut target);
///     assert_eq!(target[0], 0); // the get may be writing there
/// })?;
/// # Ok::<(), longarm::Error>(())
/// ```
///
/// a source is not changed in it:
///
/// ```compile_fail,E0506
/// # let world = longarm::init()?;
/// # let window = world.allocate_collective::<u64>(8)?;
/// let mut source = [1, 2];
/// world.scope(|scope| {
///     scope.put(&window, 0, 4, &source);
///     source[0] = 3; // the put may be reading there
/// })?;
/// # Ok::<(), longarm::Error>(())
/// ```
///
/// a buffer lives longer than the scope:
///
/// ```compile_fail,E0597
/// # let world = longarm::init()?;
/// # let window = world.allocate_collective::<u64>(8)?;
/// world.scope(|scope| {
///     let source = [1, 2];
///     scope.put(&window, 0, 4, &source); // it is gone before the put is complete
/// })?;
/// # Ok::<(), longarm::Error>(())
/// ```
///
/// and the scope itself is not carried out of its body:
///
/// ```compile_fail,E0521
/// # let world = longarm::init()?;
/// let mut kept = None;
/// world.scope(|scope| kept = Some(scope))?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub struct Scope<'env> {
    lent: Lent<'env>,
    failed: Mutex<Option<TransferError>>,
    /// The rank of the first get, for the message if one is refused.
    got_from: Mutex<Option<Rank>>,
}

impl World {
    /// Runs `body`, which starts any number of operations on buffers that it borrows, and returns when all of them
    /// are complete at their targets, as after [`World::quiet`]. The `_nbi` calls of SHMEM and the implicit handles
    /// of ARMCI, made safe: like a scope of threads, it cannot be left before the buffers are let go of.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let window = world.allocate_collective::<u64>(8)?;
    /// let source = [1, 2, 3];
    /// let mut target = [0; 2];
    /// world.scope(|scope| {
    ///     scope.put(&window, 0, 0, &source);
    ///     scope.get(&window, 0, 4, &mut target);
    /// })?;
    /// assert_eq!(window.get_vec(0, 0, 3)?, source);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of any of the operations, whether it was refused at once or failed later.
    pub fn scope<'env, R>(&self, body: impl FnOnce(&Scope<'env>) -> R) -> Result<R, TransferError> {
        let client = &self.inner.client;
        let (result, failed, scope_rank, completion) = lend(|lent| {
            let scope = Scope { lent, failed: Mutex::new(None), got_from: Mutex::new(None) };
            // A panic of the body may not end the borrows before the operations let go of them.
            let result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
            let completion = scope.lent.issued();
            client.wait_completion(Awaited::anyone(Operation::Quiet), &completion);
            let rank = scope.got_from.into_inner().unwrap_or(client.layout().me());
            (result, scope.failed.into_inner(), rank, completion)
        });
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        if let Some(failed) = failed {
            return Err(failed);
        }
        // The connection that failed says the rest at quiet.
        self.quiet()?;
        match completion.failure() {
            None => Ok(result),
            Some(outcome) => Err(client.explain(outcome, Operation::Get, scope_rank)),
        }
    }
}

impl<'env> Scope<'env> {
    /// [`Window::put`].
    #[inline]
    pub fn put<T: Element>(&self, window: &Window<T>, rank: u32, index: usize, source: &'env [T]) {
        let (client, bytes) = (&window.shared.inner.client, OriginBytes::from(source.as_bytes()));
        let (part, offset) = (&window.shared.client, Window::<T>::offset(index));
        if client.put_at_once(part, Rank(rank), offset, bytes) || client.put_together(part, Rank(rank), offset, bytes) {
            return;
        }
        self.start_put(window, rank, Ok(Window::<T>::run_shapes(index, source.len())), source);
    }

    /// [`Window::put_strided`].
    pub fn put_strided<T: Element>(&self, window: &Window<T>, rank: u32, to: &Patch, source: &'env [T], from: &Patch) {
        self.start_put(window, rank, Window::<T>::patch_shapes(Operation::Put, rank, to, from), source);
    }

    /// [`Window::put_vector`].
    pub fn put_vector<T: Element>(&self, window: &Window<T>, rank: u32, segments: &[Segment], source: &'env [T]) {
        self.start_put(window, rank, Ok(Window::<T>::segment_shapes(segments)), source);
    }

    /// [`Window::get`].
    #[inline]
    pub fn get<T: Element>(&self, window: &Window<T>, rank: u32, index: usize, target: &'env mut [T]) {
        let (client, bytes) = (&window.shared.inner.client, OriginBytesMut::from(target.as_mut_bytes()));
        if client.get_at_once(&window.shared.client, Rank(rank), Window::<T>::offset(index), &bytes) {
            return;
        }
        self.start_get(window, rank, Ok(Window::<T>::run_shapes(index, target.len())), target);
    }

    /// [`Window::get_strided`].
    pub fn get_strided<T: Element>(
        &self,
        window: &Window<T>,
        rank: u32,
        from: &Patch,
        target: &'env mut [T],
        to: &Patch,
    ) {
        self.start_get(window, rank, Window::<T>::patch_shapes(Operation::Get, rank, from, to), target);
    }

    /// [`Window::get_vector`].
    pub fn get_vector<T: Element>(&self, window: &Window<T>, rank: u32, segments: &[Segment], target: &'env mut [T]) {
        self.start_get(window, rank, Ok(Window::<T>::segment_shapes(segments)), target);
    }

    /// [`Window::accumulate`].
    pub fn accumulate<T: Number>(
        &self,
        window: &Window<T>,
        rank: u32,
        index: usize,
        update: Update<T>,
        source: &'env [T],
    ) {
        self.start_accumulate(window, rank, Ok(Window::<T>::run_shapes(index, source.len())), update, source);
    }

    /// [`Window::accumulate_strided`].
    pub fn accumulate_strided<T: Number>(
        &self,
        window: &Window<T>,
        (rank, to): (u32, &Patch),
        update: Update<T>,
        (source, from): (&'env [T], &Patch),
    ) {
        self.start_accumulate(
            window,
            rank,
            Window::<T>::patch_shapes(Operation::Accumulate, rank, to, from),
            update,
            source,
        );
    }

    /// [`Window::accumulate_vector`].
    pub fn accumulate_vector<T: Number>(
        &self,
        window: &Window<T>,
        rank: u32,
        segments: &[Segment],
        update: Update<T>,
        source: &'env [T],
    ) {
        self.start_accumulate(window, rank, Ok(Window::<T>::segment_shapes(segments)), update, source);
    }

    fn start_put<T: Element>(
        &self,
        window: &Window<T>,
        rank: u32,
        shapes: Result<Shapes, TransferError>,
        source: &'env [T],
    ) {
        let lender = self.lent.source(OriginBytes::from(source.as_bytes()));
        self.note(shapes.and_then(|shapes| {
            window.shared.inner.client.start_put(&window.shared.client, Rank(rank), shapes, &lender)
        }));
    }

    fn start_get<T: Element>(
        &self,
        window: &Window<T>,
        rank: u32,
        shapes: Result<Shapes, TransferError>,
        target: &'env mut [T],
    ) {
        self.got_from.lock().get_or_insert(Rank(rank));
        let lender = self.lent.target(OriginBytesMut::from(target.as_mut_bytes()));
        self.note(shapes.and_then(|shapes| {
            window.shared.inner.client.start_get(&window.shared.client, Rank(rank), shapes, &lender)
        }));
    }

    fn start_accumulate<T: Number>(
        &self,
        window: &Window<T>,
        rank: u32,
        shapes: Result<Shapes, TransferError>,
        update: Update<T>,
        source: &'env [T],
    ) {
        let lender = self.lent.source(OriginBytes::from(source.as_bytes()));
        self.note(shapes.and_then(|shapes| {
            let operator = update.kernel(rank)?;
            let window = &window.shared;
            window.inner.client.start_accumulate(&window.client, Rank(rank), shapes, operator, &lender)
        }));
    }

    fn note(&self, outcome: Result<(), TransferError>) {
        if let Err(error) = outcome {
            self.failed.lock().get_or_insert(error);
        }
    }
}
