//! Numbered mutexes, hosted at any rank of a group.

pub(crate) mod gate;

use std::sync::Arc;

use longarm_client::{Awaited, MutexError, MutexHome, Operation, Taken};
use longarm_proto::Rank;

use gate::{Entry, Gates};

use crate::error::WindowError;
use crate::group::Group;
use crate::started::Started;
use crate::window::WindowInner;

/// A set of mutexes. Each has a host and a number there; it is locked by the ranks of the group, first come, first
/// served over all nodes. Not recursive. Locks are not fences: call quiet before unlocking what others are to see.
///
/// Threads of a rank share them: of one rank, one thread at a time has a mutex or asks for it, the others wait behind it in the order in
/// which they came.
///
/// ```
/// let world = longarm::init()?;
/// let mutexes = world.mutexes_collective(2)?; // two at every rank
/// let guard = mutexes.lock(0, 1)?;
/// // ... rank 0's mutex number 1 is held ...
/// guard.unlock()?;
/// assert!(mutexes.try_lock(0, 1)?.is_some());
/// mutexes.free_collective()?;
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[derive(Clone)]
pub struct Mutexes {
    pub(crate) shared: Arc<WindowInner>,
    pub(crate) home: Arc<MutexHome>,
    pub(crate) gates: Arc<Gates>,
}

/// A held mutex. Dropping unlocks it.
///
/// ```
/// fn add(mutexes: &longarm::Mutexes, sum: &longarm::Window<i64>, value: i64) -> longarm::Result<()> {
///     let _guard: longarm::MutexGuard<'_> = mutexes.lock(0, 0)?;
///     sum.put_one(0, 0, sum.get_one(0, 0)? + value)?;
///     Ok(()) // the guard is dropped
/// }
/// # let world = longarm::init()?;
/// # let (mutexes, sum) = (world.mutexes_collective(1)?, world.allocate_collective(1)?);
/// # add(&mutexes, &sum, 7)?;
/// # assert_eq!(sum.get_one(0, 0)?, 7);
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
#[must_use = "the mutex is unlocked when the guard is dropped"]
pub struct MutexGuard<'a> {
    mutexes: &'a Mutexes,
    host: u32,
    number: u64,
    held: bool,
    /// It was taken through the gate, and is given back through it.
    gated: bool,
    taken: Taken<'a>,
}

impl Group {
    /// Starts [`Group::mutexes_collective`], behind the collectives of this group that were started before.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// # futures_lite::future::block_on(async {
    /// let mutexes = world.start_mutexes_collective(1).await?;
    /// mutexes.start_lock(0, 0).await?.unlock()?;
    /// mutexes.start_free_collective().await?;
    /// # Ok::<(), longarm::Error>(())
    /// # })?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future yields what [`Group::mutexes_collective`] returns.
    pub fn start_mutexes_collective(&self, count: u64) -> Started<Mutexes, WindowError> {
        self.start(move |group| group.mutexes_collective(count))
    }

    /// Makes `count` mutexes at this rank; other members may make other numbers, 0 included. Collective.
    /// `ARMCI_Create_mutexes`.
    ///
    /// # Errors
    /// As [`Group::allocate_collective`].
    pub fn mutexes_collective(&self, count: u64) -> Result<Mutexes, WindowError> {
        let shared = Arc::new(self.allocate(MutexHome::bytes(count).unwrap_or(u64::MAX))?);
        let home = Arc::new(MutexHome::new(Arc::clone(&shared.client)));
        let gates = Arc::new(Gates::new(self.inner.client.layout().rank_count()));
        Ok(Mutexes { shared, home, gates })
    }
}

impl Mutexes {
    /// How many mutexes a rank hosts; 0 for ranks that are not in the group.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// assert_eq!(world.mutexes_collective(2)?.count(0), 2);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    pub fn count(&self, host: u32) -> u64 {
        self.home.count(Rank(host))
    }

    /// Takes a mutex, waiting until it is this rank's turn, and among threads of this rank this one's. If its holder dies
    /// meanwhile the mutex goes to the rank that has waited for longest; see [`MutexGuard::previous_holder_died`]. `ARMCI_Lock`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mutexes = world.mutexes_collective(1)?;
    /// let count = std::sync::Mutex::new(0);
    /// std::thread::scope(|scope| {
    ///     for _ in 0..3 {
    ///         scope.spawn(|| {
    ///             let guard = mutexes.lock(0, 0).expect("one thread after the other gets it");
    ///             *count.lock().unwrap() += 1;
    ///             guard.unlock().expect("it is held");
    ///         });
    ///     }
    /// });
    /// assert_eq!(count.into_inner().unwrap(), 3);
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`MutexError`]: there is no such mutex, the host or the server of its node is lost; [`MutexError::HeldAlready`] for a mutex that
    /// this thread has taken, or that this rank has without a guard ([`MutexGuard::keep`], [`Mutexes::lock_kept`]).
    #[inline]
    pub fn lock(&self, host: u32, number: u64) -> Result<MutexGuard<'_>, MutexError> {
        if !self.gates.try_enter((host, number), self.count(host)) {
            self.enter(host, number)?;
        }
        match self.shared.inner.client.lock(&self.home, Rank(host), number) {
            Ok(taken) => Ok(self.gated_guard((host, number), taken)),
            Err(error) => {
                self.gates.leave((host, number));
                Err(error)
            }
        }
    }

    /// Behind the other threads of this rank.
    #[cold]
    fn enter(&self, host: u32, number: u64) -> Result<(), MutexError> {
        let count = self.count(host);
        let _listed = self.shared.inner.client.enter_wait(Awaited::holder(Operation::Lock, Rank(host)));
        match self.gates.enter((host, number), count) {
            Entry::Entered | Entry::Queued(_) => Ok(()),
            Entry::Inside => Err(MutexError::HeldAlready { host: Rank(host), number }),
            Entry::Unknown => Err(MutexError::UnknownMutex { host: Rank(host), number, count }),
        }
    }

    /// Takes a mutex for the rank as a whole and keeps it without a guard, for callers such as C. Other threads of the rank do not wait
    /// for it: they get [`MutexError::HeldAlready`]. Returns whether the previous holder
    /// died with it ([`MutexGuard::previous_holder_died`]). [`Mutexes::guard_of_kept`] or [`Mutexes::unlock`] unlocks it.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mutexes = world.mutexes_collective(1)?;
    /// assert!(!mutexes.lock_kept(0, 0)?); // its last holder lives
    /// mutexes.guard_of_kept(0, 0).unlock()?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Mutexes::lock`].
    #[inline]
    pub fn lock_kept(&self, host: u32, number: u64) -> Result<bool, MutexError> {
        let taken = self.shared.inner.client.lock(&self.home, Rank(host), number)?;
        Ok(taken.previous_holder_died)
    }

    #[inline]
    pub(crate) fn gated_guard<'a>(&'a self, (host, number): (u32, u64), taken: Taken<'a>) -> MutexGuard<'a> {
        MutexGuard { mutexes: self, host, number, held: true, gated: true, taken }
    }

    /// Takes a mutex if nobody waits for it and it is free, or its holder is known to be dead. `None` also while another thread of
    /// this rank has it or asks for it.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mutexes = world.mutexes_collective(1)?;
    /// if let Some(guard) = mutexes.try_lock(world.rank(), 0)? {
    ///     guard.unlock()?;
    /// }
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Mutexes::lock`].
    pub fn try_lock(&self, host: u32, number: u64) -> Result<Option<MutexGuard<'_>>, MutexError> {
        let client = &self.shared.inner.client;
        let count = self.count(host);
        if !self.gates.try_enter((host, number), count) {
            let unknown = MutexError::UnknownMutex { host: Rank(host), number, count };
            return if number < count { Ok(None) } else { Err(unknown) };
        }
        let taken = client.try_lock(&self.home, Rank(host), number);
        if !matches!(taken, Ok(Some(_))) {
            self.gates.leave((host, number));
        }
        Ok(taken?.map(|taken| self.gated_guard((host, number), taken)))
    }

    /// Unlocks a mutex without its guard, for callers that could not keep one, and waits until that is done.
    ///
    /// # Errors
    /// [`MutexError::NotHeld`] if this rank does not hold it; else as [`Mutexes::lock`].
    pub fn unlock(&self, host: u32, number: u64) -> Result<(), MutexError> {
        self.shared.inner.client.unlock(&self.home, Rank(host), number)
    }

    /// The guard of a mutex that this rank holds, whose own guard was given up by [`MutexGuard::keep`], or that was taken by
    /// [`Mutexes::lock_kept`]. Whether it does hold it is not looked at. `ARMCI_Unlock`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mutexes = world.mutexes_collective(1)?;
    /// mutexes.lock(0, 0)?.keep();
    /// mutexes.guard_of_kept(0, 0).unlock()?;
    /// assert!(mutexes.try_lock(0, 0)?.is_some());
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    pub fn guard_of_kept(&self, host: u32, number: u64) -> MutexGuard<'_> {
        MutexGuard { mutexes: self, host, number, held: true, gated: false, taken: Taken::somehow(false) }
    }

    /// Frees all mutexes of the set. Collective over its group. `ARMCI_Destroy_mutexes`.
    ///
    /// # Errors
    /// As [`Window::free_collective`](crate::Window::free_collective).
    pub fn free_collective(&self) -> Result<(), WindowError> {
        self.shared.group.free(&self.shared.client)
    }

    /// Starts [`Mutexes::free_collective`], behind the collectives of the group that were started before.
    ///
    /// # Errors
    /// The future yields what [`Mutexes::free_collective`] returns.
    pub fn start_free_collective(&self) -> Started<(), WindowError> {
        let shared = Arc::clone(&self.shared);
        self.shared.group.start(move |group| group.free(&shared.client))
    }
}

impl MutexGuard<'_> {
    /// Whether the rank that held the mutex before died with it. What the mutex protects may then be half changed, and
    /// is this rank's to set right; the next holder is not told again. As `EOWNERDEAD` of POSIX.
    ///
    /// What the dead rank had completed is visible, and on the mutex's node all that had reached it.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let balances = world.allocate_collective::<i64>(2)?; // Their sum is 0 whenever the mutex is free.
    /// let mutexes = world.mutexes_collective(1)?;
    /// let guard = mutexes.lock(0, 0)?;
    /// if guard.previous_holder_died() {
    ///     let first = balances.get_one(0, 0)?;
    ///     balances.put_one(0, 1, -first)?;
    /// }
    /// // ... move an amount from one to the other ...
    /// world.quiet()?;
    /// guard.unlock()?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    pub fn previous_holder_died(&self) -> bool {
        self.taken.previous_holder_died
    }

    /// Unlocks. A mutex of another node is on its way back on return: a rank that waits for it gets it, but for a moment
    /// [`Mutexes::try_lock`] of another rank may still find it held. After quiet it is free.
    ///
    /// # Errors
    /// As [`Mutexes::lock`]. That the way to another node broke meanwhile is said by quiet, unless it is
    /// known by then that the mutex's host or the server of its node has died: the mutex has gone with it, and calls that need it
    /// fail.
    #[inline]
    pub fn unlock(mut self) -> Result<(), MutexError> {
        self.give_back()
    }

    #[inline]
    fn give_back(&mut self) -> Result<(), MutexError> {
        self.held = false;
        let (client, home) = (&self.mutexes.shared.inner.client, &*self.mutexes.home);
        let unlocked = client.unlock_taken(home, self.taken, Rank(self.host), self.number);
        self.leave_gate();
        unlocked
    }

    #[inline]
    fn leave_gate(&self) {
        if self.gated {
            self.mutexes.gates.leave((self.host, self.number));
        }
    }

    /// Keeps the mutex locked without a guard; [`Mutexes::unlock`] or [`Mutexes::guard_of_kept`] unlocks it. Until then it belongs to
    /// the rank as a whole: other threads do not wait for it, but get [`MutexError::HeldAlready`].
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mutexes = world.mutexes_collective(1)?;
    /// mutexes.lock(0, 0)?.keep();
    /// assert!(mutexes.lock(0, 0).is_err());
    /// mutexes.unlock(0, 0)?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    pub fn keep(mut self) {
        self.held = false;
        self.leave_gate();
    }
}

impl Drop for MutexGuard<'_> {
    fn drop(&mut self) {
        if self.held
            && let Err(error) = self.give_back()
        {
            tracing::warn!(host = self.host, number = self.number, "a mutex could not be unlocked: {error}");
        }
    }
}
