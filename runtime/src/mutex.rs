//! Numbered mutexes, hosted at any rank of a group.

use std::sync::Arc;

use longarm_client::{MutexError, MutexHome, Taken};
use longarm_proto::Rank;

use crate::error::WindowError;
use crate::group::Group;
use crate::window::Shared;

/// A set of mutexes. Each has a host and a number there; it is locked by the ranks of the group, first come, first
/// served over all nodes. Not recursive. Locks are not fences: call quiet before unlocking what others are to see.
///
/// ```
/// let world = longarm::init()?;
/// let mutexes = world.mutexes_collective(2)?; // two at every rank
/// let guard = mutexes.lock(0, 1)?;
/// // ... rank 0's mutex number 1 is held ...
/// guard.unlock()?;
/// assert!(mutexes.try_lock(0, 1)?.is_some());
/// # world.finalize()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Mutexes {
    shared: Arc<Shared>,
    home: Arc<MutexHome>,
}

/// A held mutex. Dropping unlocks it.
#[must_use = "the mutex is unlocked when the guard is dropped"]
pub struct MutexGuard<'a> {
    mutexes: &'a Mutexes,
    host: u32,
    number: u64,
    held: bool,
    previous_holder_died: bool,
}

impl Group {
    /// Makes `count` mutexes at this rank; other members may make other numbers, 0 included. Collective.
    /// `ARMCI_Create_mutexes`.
    ///
    /// # Errors
    /// As [`Group::allocate_collective`].
    pub fn mutexes_collective(&self, count: u64) -> Result<Mutexes, WindowError> {
        let shared = Arc::new(self.allocate(MutexHome::bytes(count).unwrap_or(u64::MAX))?);
        let home = Arc::new(MutexHome::new(Arc::clone(&shared.client)));
        Ok(Mutexes { shared, home })
    }
}

impl Mutexes {
    /// How many mutexes a rank hosts; 0 for ranks that are not in the group.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// assert_eq!(world.mutexes_collective(2)?.count(0), 2);
    /// # world.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn count(&self, host: u32) -> u64 {
        self.home.count(Rank(host))
    }

    /// Takes a mutex, waiting until it is this rank's turn. If its holder dies meanwhile the mutex goes to whoever has
    /// waited for longest; see [`MutexGuard::previous_holder_died`]. `ARMCI_Lock`.
    ///
    /// # Errors
    /// [`MutexError`]: there is no such mutex, this rank holds it already, the host or the server of its node is lost.
    pub fn lock(&self, host: u32, number: u64) -> Result<MutexGuard<'_>, MutexError> {
        let taken = self.shared.inner.client.lock(&self.home, Rank(host), number)?;
        Ok(self.guard((host, number), taken))
    }

    fn guard(&self, (host, number): (u32, u64), taken: Taken) -> MutexGuard<'_> {
        MutexGuard { mutexes: self, host, number, held: true, previous_holder_died: taken.previous_holder_died }
    }

    /// Takes a mutex if nobody waits for it and it is free, or its holder is known to be dead.
    ///
    /// # Errors
    /// As [`Mutexes::lock`].
    pub fn try_lock(&self, host: u32, number: u64) -> Result<Option<MutexGuard<'_>>, MutexError> {
        let taken = self.shared.inner.client.try_lock(&self.home, Rank(host), number)?;
        Ok(taken.map(|taken| self.guard((host, number), taken)))
    }

    /// Unlocks a mutex without its guard, for callers that could not keep one. `ARMCI_Unlock`.
    ///
    /// # Errors
    /// [`MutexError::NotHeld`] if this rank does not hold it; else as [`Mutexes::lock`].
    pub fn unlock(&self, host: u32, number: u64) -> Result<(), MutexError> {
        self.shared.inner.client.unlock(&self.home, Rank(host), number)
    }

    /// Frees all mutexes of the set. Collective over its group. `ARMCI_Destroy_mutexes`.
    ///
    /// # Errors
    /// As [`Window::free_collective`](crate::Window::free_collective).
    pub fn free_collective(&self) -> Result<(), WindowError> {
        self.shared.group.free(&self.shared.client)
    }
}

impl MutexGuard<'_> {
    /// Whether the rank that held the mutex before died with it. What the mutex protects may then be half changed, and
    /// is this rank's to set right; whoever takes the mutex next is not told again. As `EOWNERDEAD` of POSIX.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn previous_holder_died(&self) -> bool {
        self.previous_holder_died
    }

    /// Unlocks, and says if that failed.
    ///
    /// # Errors
    /// As [`Mutexes::unlock`].
    pub fn unlock(mut self) -> Result<(), MutexError> {
        self.held = false;
        self.mutexes.unlock(self.host, self.number)
    }

    /// Keeps the mutex locked without a guard; [`Mutexes::unlock`] unlocks it.
    pub fn keep(mut self) {
        self.held = false;
    }
}

impl Drop for MutexGuard<'_> {
    fn drop(&mut self) {
        if self.held
            && let Err(error) = self.mutexes.unlock(self.host, self.number)
        {
            tracing::warn!(host = self.host, number = self.number, "a mutex could not be unlocked: {error}");
        }
    }
}
