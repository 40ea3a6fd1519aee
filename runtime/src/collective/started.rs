//! Collectives that go on while their caller does something else. Each is the blocking one, on a worker.

use crate::element::{Element, Number, Reduction};
use crate::error::CollectiveError;
use crate::group::Group;
use crate::started::Started;

/// Collectives that are started, and awaited or waited for. They take their elements, and give back what the blocking call would leave
/// there.
///
/// All members call the same collectives in the same order, whether they start them or wait in the call: those of one group take
/// effect one after the other, and a blocking one waits for those that were started before. Those of different groups do not
/// wait for each other.
///
/// ```
/// use longarm::Reduction;
/// let world = longarm::init()?;
/// # futures_lite::future::block_on(async {
/// let sum = world.start_allreduce_collective(Reduction::Sum, vec![1, world.rank()]);
/// let ranks = world.start_allgather_collective(vec![world.rank()]);
/// // ... compute ...
/// assert_eq!(sum.await?[0], world.size());
/// assert_eq!(ranks.await?.len(), world.size() as usize);
/// world.start_barrier_collective().await?;
///
/// // Several that follow each other, with nobody waiting between them.
/// let size = world.size() as usize;
/// let met = world.start_sync_collective();
/// let seed = world.start_broadcast_collective(0, vec![world.rank() + 42]);
/// let highest = world.start_reduce_collective(0, Reduction::Max, vec![world.rank()]);
/// let lists = world.start_allgatherv_collective(vec![7_u8; world.rank() as usize]);
/// let words = world.start_alltoall_collective(vec![world.rank(); size]);
/// let shares = world.start_alltoallv_collective(vec![vec![1_u8]; size]);
/// met.await?;
/// assert_eq!(seed.await?, [42]);
/// assert!(world.rank() != 0 || highest.await? == [world.size() - 1]);
/// assert_eq!((lists.await?.len(), words.await?.len(), shares.await?.len()), (size, size, size));
/// # Ok::<(), longarm::Error>(())
/// # })?;
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
impl Group {
    /// Starts [`Group::sync_collective`].
    pub fn start_sync_collective(&self) -> Started<(), CollectiveError> {
        self.start(Group::sync_collective)
    }

    /// Starts [`Group::barrier_collective`].
    pub fn start_barrier_collective(&self) -> Started<(), CollectiveError> {
        self.start(Group::barrier_collective)
    }

    /// Starts [`Group::broadcast_collective`]; all members give equally many elements.
    pub fn start_broadcast_collective<T: Element>(
        &self,
        root: u32,
        elements: Vec<T>,
    ) -> Started<Vec<T>, CollectiveError> {
        self.start_on(elements, move |group, elements| group.broadcast_collective(root, elements))
    }

    /// Starts [`Group::reduce_collective`].
    pub fn start_reduce_collective<T: Number>(
        &self,
        root: u32,
        reduction: Reduction,
        elements: Vec<T>,
    ) -> Started<Vec<T>, CollectiveError> {
        self.start_on(elements, move |group, elements| group.reduce_collective(root, reduction, elements))
    }

    /// Starts [`Group::allreduce_collective`].
    pub fn start_allreduce_collective<T: Number>(
        &self,
        reduction: Reduction,
        elements: Vec<T>,
    ) -> Started<Vec<T>, CollectiveError> {
        self.start_on(elements, move |group, elements| group.allreduce_collective(reduction, elements))
    }

    /// Starts [`Group::allgather_collective`].
    pub fn start_allgather_collective<T: Element>(&self, elements: Vec<T>) -> Started<Vec<T>, CollectiveError> {
        self.start(move |group| group.allgather_collective(&elements))
    }

    /// Starts [`Group::allgatherv_collective`].
    pub fn start_allgatherv_collective<T: Element>(&self, elements: Vec<T>) -> Started<Vec<Vec<T>>, CollectiveError> {
        self.start(move |group| group.allgatherv_collective(&elements))
    }

    /// Starts [`Group::alltoall_collective`].
    pub fn start_alltoall_collective<T: Element>(&self, elements: Vec<T>) -> Started<Vec<T>, CollectiveError> {
        self.start(move |group| group.alltoall_collective(&elements))
    }

    /// Starts [`Group::alltoallv_collective`].
    pub fn start_alltoallv_collective<T: Element>(&self, shares: Vec<Vec<T>>) -> Started<Vec<Vec<T>>, CollectiveError> {
        self.start(move |group| group.alltoallv_collective(&shares))
    }

    fn start_on<T: Element>(
        &self,
        elements: Vec<T>,
        run: impl FnOnce(&Group, &mut [T]) -> Result<(), CollectiveError> + Send + 'static,
    ) -> Started<Vec<T>, CollectiveError> {
        self.start(move |group| {
            let mut elements = elements;
            run(group, &mut elements)?;
            Ok(elements)
        })
    }
}
