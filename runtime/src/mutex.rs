//! Numbered mutexes, hosted at any rank of a group.

pub(crate) mod gate;
pub(crate) mod token;

use std::mem::ManuallyDrop;
use std::sync::Arc;

use longarm_client::{Awaited, MutexError, MutexHome, Operation, Taken};
use longarm_proto::Rank;

use gate::{Entry, Gate, Gates, MutexId, Turn};

use crate::error::WindowError;
use crate::group::Group;
use crate::started::Started;
use crate::window::WindowInner;

/// A set of mutexes. Each has a host and a number there; it is locked by the ranks of the group in turns: those that wait at the
/// host's server are served first come, first served; before each of them, ranks of the host's node that spin may each have one turn.
/// Not recursive. Locks are not fences: call quiet before unlocking what others are to see.
///
/// Threads of a rank share them: of one rank, one thread at a time has a mutex, and one asks for it; the others wait behind it in the
/// order in which they came.
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
    pub(crate) mutexes: &'a Mutexes,
    /// Of this mutex.
    pub(crate) gate: &'a Gate,
    pub(crate) host: u32,
    pub(crate) number: u64,
    pub(crate) taken: Taken<'a>,
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
        let home = Arc::new(MutexHome::new(Arc::clone(&shared.window)));
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
    /// meanwhile the mutex goes to the rank that has waited for longest at the server; see [`MutexGuard::previous_holder_died`]. `ARMCI_Lock`.
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
    /// this thread has taken. A wait for another thread of this rank, or for one that has kept the mutex and ended, lasts until somebody unlocks,
    /// whatever becomes of the host meanwhile.
    // Called, it leaves the guard in memory in pieces, which the caller loads whole to move it: 20 ns until the stores are through.
    #[inline(always)]
    pub fn lock(&self, host: u32, number: u64) -> Result<MutexGuard<'_>, MutexError> {
        let (gate, taken) = match self.take_past_gate((host, number)) {
            Some(past) => past,
            None => self.take_behind_others((host, number))?,
        };
        Ok(MutexGuard { mutexes: self, gate, host, number, taken })
    }

    /// Takes a mutex of this node that is free, and that no other thread of this rank asks for.
    // As `lock`.
    #[inline(always)]
    pub(crate) fn take_past_gate(&self, place: MutexId) -> Option<(&Gate, Taken<'_>)> {
        let gate = self.gates.find(place)?;
        if gate.is_asked_for() {
            return None;
        }
        let taken = self.shared.client.lock_at_once(&self.home, Rank(place.0), place.1)?;
        gate.hold(token::mine());
        Some((gate, taken))
    }

    /// Behind the other threads of this rank, and then behind other ranks.
    #[inline(never)]
    fn take_behind_others(&self, place: MutexId) -> Result<(&Gate, Taken<'_>), MutexError> {
        let (gate, me) = (self.gate(place)?, token::mine());
        match self.gates.come(gate, place, me) {
            Entry::Entered => {}
            Entry::Queued(turn) => self.wait_for_thread(place, &turn),
            Entry::Inside => return Err(MutexError::HeldAlready { host: Rank(place.0), number: place.1 }),
        }
        let taken = self.ask_for(place, gate, me).inspect(|_| gate.hold(me));
        self.gates.leave(gate, place);
        taken.map(|taken| (gate, taken))
    }

    /// Asks for the mutex until this rank has it: another thread of it may have taken it past the gate.
    fn ask_for(&self, place: MutexId, gate: &Gate, me: usize) -> Result<Taken<'_>, MutexError> {
        let mut release = None;
        loop {
            match self.shared.client.lock(&self.home, Rank(place.0), place.1) {
                Err(MutexError::HeldAlready { .. }) if gate.holder() != me => {
                    self.shared.client.mutex_server(Rank(place.0))?;
                    match release.take() {
                        None => release = Some(gate.await_release(me)),
                        Some(turn) => self.wait_for_thread(place, &turn),
                    }
                }
                result => return result,
            }
        }
    }

    /// Another thread of this rank has the mutex, or is before this one.
    fn wait_for_thread(&self, (host, _): MutexId, turn: &Turn) {
        let _listed = self.shared.client.enter_wait(Awaited::holder(Operation::Lock, Rank(host)));
        turn.wait();
    }

    pub(crate) fn gate(&self, place: MutexId) -> Result<&Gate, MutexError> {
        let (count, (host, number)) = (self.count(place.0), place);
        self.gates.gate(place, count).ok_or(MutexError::UnknownMutex { host: Rank(host), number, count })
    }

    /// Takes a mutex and keeps it without a guard, for callers such as C: [`Mutexes::lock`] and [`MutexGuard::keep`]. Returns whether the
    /// previous holder died with it ([`MutexGuard::previous_holder_died`]).
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mutexes = world.mutexes_collective(1)?;
    /// assert!(!mutexes.lock_kept(0, 0)?); // its last holder lives
    /// mutexes.guard_of_kept(0, 0).expect("it is kept").unlock()?;
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Mutexes::lock`].
    #[inline]
    pub fn lock_kept(&self, host: u32, number: u64) -> Result<bool, MutexError> {
        let guard = self.lock(host, number)?;
        let previous_holder_died = guard.previous_holder_died();
        guard.keep();
        Ok(previous_holder_died)
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
        let place = (host, number);
        let taken = match self.take_past_gate(place) {
            Some(past) => Some(past),
            None => self.try_take(place, token::mine())?,
        };
        Ok(taken.map(|(gate, taken)| MutexGuard { mutexes: self, gate, host, number, taken }))
    }

    /// Takes the mutex if it is free and nobody of this rank has it or asks for it.
    pub(crate) fn try_take(&self, place: MutexId, me: usize) -> Result<Option<(&Gate, Taken<'_>)>, MutexError> {
        let gate = self.gate(place)?;
        let (client, host) = (&self.shared.client, Rank(place.0));
        if gate.holder() != 0 || !self.gates.try_enter(gate, me) {
            // A host that is lost, and a set that is freed, are errors.
            self.shared.window.check(Operation::Lock, host, 0, 0)?;
            client.alive(Operation::Lock, host)?;
            return Ok(None);
        }
        let taken = client.try_lock(&self.home, host, place.1);
        let taken = taken.inspect(|taken| taken.iter().for_each(|_| gate.hold(me)));
        self.gates.leave(gate, place);
        Ok(taken?.map(|taken| (gate, taken)))
    }

    /// Unlocks a mutex without its guard, for callers that could not keep one, and waits until that is done.
    ///
    /// # Errors
    /// [`MutexError::NotHeld`] if this rank does not hold it; else as [`Mutexes::lock`].
    pub fn unlock(&self, host: u32, number: u64) -> Result<(), MutexError> {
        let gate = self.gate((host, number))?;
        gate.let_go();
        let unlocked = self.shared.client.unlock(&self.home, Rank(host), number);
        gate.released();
        unlocked
    }

    /// The guard of a mutex that this rank holds, whose own guard was given up by [`MutexGuard::keep`] or [`Mutexes::lock_kept`]. `None`
    /// if no thread of this rank has the mutex. Whether the one that has it has a guard of its own is not looked at. `ARMCI_Unlock`.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mutexes = world.mutexes_collective(1)?;
    /// assert!(mutexes.guard_of_kept(0, 0).is_none());
    /// mutexes.lock(0, 0)?.keep();
    /// mutexes.guard_of_kept(0, 0).expect("it is kept").unlock()?;
    /// assert!(mutexes.try_lock(0, 0)?.is_some());
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    #[inline]
    pub fn guard_of_kept(&self, host: u32, number: u64) -> Option<MutexGuard<'_>> {
        let gate = self.gates.find((host, number)).filter(|gate| gate.holder() != 0)?;
        Some(MutexGuard { mutexes: self, gate, host, number, taken: Taken::somehow(false) })
    }

    /// Frees all mutexes of the set. Collective over its group. `ARMCI_Destroy_mutexes`.
    ///
    /// # Errors
    /// As [`Window::free_collective`](crate::Window::free_collective).
    pub fn free_collective(&self) -> Result<(), WindowError> {
        self.shared.group.free(&self.shared.window)
    }

    /// Starts [`Mutexes::free_collective`], behind the collectives of the group that were started before.
    ///
    /// # Errors
    /// The future yields what [`Mutexes::free_collective`] returns.
    pub fn start_free_collective(&self) -> Started<(), WindowError> {
        let shared = Arc::clone(&self.shared);
        self.shared.group.start(move |group| group.free(&shared.window))
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
    #[inline(always)]
    pub fn unlock(self) -> Result<(), MutexError> {
        ManuallyDrop::new(self).give_back()
    }

    #[inline(always)]
    fn give_back(&self) -> Result<(), MutexError> {
        let (client, home) = (&self.mutexes.shared.client, &*self.mutexes.home);
        let host = Rank(self.host);
        self.gate.let_go();
        if client.unlock_taken_at_once(home, self.taken, host, self.number) {
            self.gate.released();
            // A result that comes out of a call is copied by the caller, which takes as long as the exchange.
            return Ok(());
        }
        let unlocked = client.unlock_taken_long(home, host, self.number);
        self.gate.released();
        unlocked
    }

    /// Keeps the mutex locked without a guard; [`Mutexes::unlock`] or [`Mutexes::guard_of_kept`] unlocks it, in whatever thread. Other
    /// threads wait for it until then; the one that took it, unless it did by [`Mutexes::start_lock`], gets [`MutexError::HeldAlready`].
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
    #[inline]
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for MutexGuard<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.give_back() {
            tracing::warn!(host = self.host, number = self.number, "a mutex could not be unlocked: {error}");
        }
    }
}
