//! Nonblocking operations without a handle, on borrowed buffers: all are complete when the scope ends.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use longarm_client::{Awaited, Lent, Operation, OriginBytes, OriginBytesMut, TransferError, lend};
use longarm_proto::{Kernel, Rank, Scale};
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::element::{Element, Number};
use crate::selection::{Selected, Selection};
use crate::window::{Update, Window};
use crate::world::World;

/// Where implicit operations are started; see [`World::scope`].
///
/// ```
/// use longarm::Update;
/// let world = longarm::init()?;
/// let window = world.allocate_collective::<u64>(8)?;
/// let (source, mut target) = ([1, 2], [9; 2]);
/// world.scope(|scope| {
///     scope.put(&window, 0, 0, &source);
///     scope.accumulate(&window, 0, 4, Update::Sum, &source);
///     scope.get(&window, 0, 6, &mut target);
/// })?; // all three are complete
/// assert_eq!((target, window.get_vec(0, 4..6)?), ([0, 0], vec![1, 2]));
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
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
    /// assert_eq!(window.get_vec(0, 0..3)?, source);
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
        // What went together with others may not be on its way yet.
        let quiet = self.quiet();
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        if let Some(failed) = failed {
            return Err(failed);
        }
        // The connection that failed says the rest there.
        quiet?;
        match completion.failure() {
            None => Ok(result),
            Some(outcome) => Err(client.explain(outcome, Operation::Get, scope_rank)),
        }
    }
}

impl<'env> Scope<'env> {
    /// [`Window::put`]. What is wrong with it is said when the scope ends.
    #[inline]
    pub fn put<T: Element>(&self, window: &Window<T>, rank: u32, selection: impl Selection, source: &'env [T]) {
        let (client, part) = (&window.shared.client, &window.shared.window);
        if let Some(index) = selection.index(source.len()) {
            let offset = Window::<T>::offset(index);
            let bytes = OriginBytes::from(source.as_bytes());
            if client.put_at_once(part, Rank(rank), offset, bytes) || window.put_together(rank, index, source) {
                return;
            }
        }
        self.start_put(window, rank, Window::<T>::select(selection, Operation::Put, rank, source.len()), source);
    }

    /// [`Window::get`]. What is wrong with it is said when the scope ends.
    #[inline]
    pub fn get<T: Element>(&self, window: &Window<T>, rank: u32, selection: impl Selection, target: &'env mut [T]) {
        let (client, part) = (&window.shared.client, &window.shared.window);
        if let Some(index) = selection.index(target.len()) {
            let offset = Window::<T>::offset(index);
            let bytes = OriginBytesMut::from(target.as_mut_bytes());
            if client.get_at_once(part, Rank(rank), offset, &bytes) {
                return;
            }
        }
        let selected = Window::<T>::select(selection, Operation::Get, rank, target.len());
        self.start_get(window, rank, selected, target);
    }

    /// [`Window::accumulate`]. What is wrong with it is said when the scope ends.
    #[inline]
    pub fn accumulate<T: Number>(
        &self,
        window: &Window<T>,
        rank: u32,
        selection: impl Selection,
        update: Update<T>,
        source: &'env [T],
    ) {
        // Lent from where it was made, for the reason that `Client::accumulate_run` has.
        let operator = &update.kernel(rank);
        if let (Some(index), Ok((kernel, scale))) = (selection.index(source.len()), operator) {
            let (client, part) = (&window.shared.client, &window.shared.window);
            let (offset, bytes) = (Window::<T>::offset(index), OriginBytes::from(source.as_bytes()));
            if client.accumulate_at_once(part, Rank(rank), offset, (*kernel, scale), bytes)
                || client.accumulate_together(part, Rank(rank), offset, (*kernel, scale), bytes)
            {
                return;
            }
        }
        let selected = Window::<T>::select(selection, Operation::Accumulate, rank, source.len());
        self.start_accumulate(window, rank, selected, operator.clone(), source);
    }

    fn start_accumulate<T: Number>(
        &self,
        window: &Window<T>,
        rank: u32,
        selected: Result<Selected, TransferError>,
        operator: Result<(Kernel, Scale), TransferError>,
        source: &'env [T],
    ) {
        let lender = self.lent.source(OriginBytes::from(source.as_bytes()));
        self.note(operator.and_then(|operator| {
            let shapes = selected?.shapes(size_of_val(source));
            window.shared.client.start_accumulate(&window.shared.window, Rank(rank), shapes, operator, &lender)
        }));
    }

    fn start_put<T: Element>(
        &self,
        window: &Window<T>,
        rank: u32,
        selected: Result<Selected, TransferError>,
        source: &'env [T],
    ) {
        let lender = self.lent.source(OriginBytes::from(source.as_bytes()));
        self.note(selected.and_then(|selected| {
            let shapes = selected.shapes(size_of_val(source));
            window.shared.client.start_put(&window.shared.window, Rank(rank), shapes, &lender)
        }));
    }

    fn start_get<T: Element>(
        &self,
        window: &Window<T>,
        rank: u32,
        selected: Result<Selected, TransferError>,
        target: &'env mut [T],
    ) {
        self.got_from.lock().get_or_insert(Rank(rank));
        let bytes = size_of_val(target);
        let lender = self.lent.target(OriginBytesMut::from(target.as_mut_bytes()));
        self.note(selected.and_then(|selected| {
            let shapes = selected.shapes(bytes);
            window.shared.client.start_get(&window.shared.window, Rank(rank), shapes, &lender)
        }));
    }

    fn note(&self, outcome: Result<(), TransferError>) {
        if let Err(error) = outcome {
            self.failed.lock().get_or_insert(error);
        }
    }
}
