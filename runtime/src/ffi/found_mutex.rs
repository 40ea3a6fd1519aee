//! A mutex of this node that a C program comes back to.

use longarm_client::{MutexHere, MutexHome};
use longarm_proto::Rank;

use crate::mutex::gate::Gate;
use crate::mutex::{Mutexes, token};

/// Where a mutex of this node is: what [`Mutexes::lock_kept`] and [`Mutexes::guard_of_kept`] find out in every call.
#[derive(Clone, Copy)]
pub struct FoundMutex<'a> {
    gate: &'a Gate,
    here: MutexHere<'a, 'a>,
}

#[doc(hidden)]
impl Mutexes {
    /// A mutex of this node that was wanted before. `None` for those of other nodes, and if anything is wrong.
    ///
    /// ```
    /// let world = longarm::init()?;
    /// let mutexes = world.mutexes_collective(1)?;
    /// mutexes.lock_kept(0, 0)?;
    /// let found = mutexes.find_here(0, 0).expect("it is of this node");
    /// assert!(found.unlock_at_once() && found.lock_at_once() && !found.lock_at_once());
    /// mutexes.guard_of_kept(0, 0).expect("it is kept").unlock()?;
    /// assert!(!found.unlock_at_once());
    /// mutexes.free_collective()?;
    /// assert!(!found.lock_at_once()); // it has gone with its set
    /// # world.finalize()?;
    /// # Ok::<(), longarm::Error>(())
    /// ```
    pub fn find_here(&self, host: u32, number: u64) -> Option<FoundMutex<'_>> {
        let gate = self.gates.find((host, number))?;
        let home: &MutexHome = &self.home;
        let here = self.shared.client.mutex_here(home, Rank(host), number)?;
        Some(FoundMutex { gate, here })
    }
}

impl FoundMutex<'_> {
    /// Takes it and keeps it, if it is free and no other thread of this rank asks for it. False: nothing was done, and
    /// [`Mutexes::lock_kept`] finds out what there is to do.
    #[inline(always)]
    pub fn lock_at_once(&self) -> bool {
        if self.gate.is_asked_for() || !self.here.lock_at_once() {
            return false;
        }
        self.gate.hold(token::mine());
        true
    }

    /// Gives it back, if this rank has it and nobody waits for it. False: nothing was done, and the guard of
    /// [`Mutexes::guard_of_kept`] finds out what there is to do.
    #[inline(always)]
    pub fn unlock_at_once(&self) -> bool {
        let holder = self.gate.holder();
        if holder == 0 {
            return false;
        }
        self.gate.let_go();
        let unlocked = self.here.unlock_at_once();
        if unlocked {
            self.gate.released();
        } else {
            self.gate.hold(holder);
        }
        unlocked
    }
}
