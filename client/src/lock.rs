//! Numbered mutexes, hosted at any rank, first come first served.
//!
//! A mutex is a word in its host's part of a window. On the host's node a free one is taken, and an uncontended one
//! given back, by one compare-and-swap; everything else is the business of the node's server, which keeps the queue.
//!
//! When its holder dies, the server gives a mutex to whoever is next, and says so. When its host dies, the mutex is
//! gone.

use std::sync::Arc;

use longarm_proto::{CONTENDED, Rank, Refusal, Request, mutex_holder, mutex_word};
use longarm_shm::CounterKind;

use crate::completion::{Completion, Outcome};
use crate::endpoint::{Payload, Sending, Token};
use crate::error::{Lost, LostHow, MutexError, Operation};
use crate::route::{Client, Route};
use crate::wait::Drive;
use crate::waits::Awaited;
use crate::window::ClientWindow;

/// Bytes of one mutex in its window. Each has a line of its own, so that neighbours do not slow each other down.
const MUTEX_BYTES: u64 = 64;

/// The mutexes of a group: a window whose words are mutexes.
pub struct MutexHome {
    window: Arc<ClientWindow>,
}

/// A mutex that this rank holds from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Taken {
    /// The holder before died with it: what the mutex protects may be half changed.
    pub previous_holder_died: bool,
}

impl MutexHome {
    /// How many bytes a host of `count` mutexes has to put into the window.
    pub fn bytes(count: u64) -> Option<u64> {
        count.checked_mul(MUTEX_BYTES)
    }

    /// Around a window whose parts have [`MutexHome::bytes`] each, all zero.
    pub fn new(window: Arc<ClientWindow>) -> MutexHome {
        MutexHome { window }
    }

    /// The window.
    pub fn window(&self) -> &Arc<ClientWindow> {
        &self.window
    }

    /// How many a rank hosts.
    pub fn count(&self, host: Rank) -> u64 {
        self.window.bytes_of(host).unwrap_or(0) / MUTEX_BYTES
    }

    fn place(&self, host: Rank, number: u64) -> Result<u64, MutexError> {
        let count = self.count(host);
        if number >= count {
            return Err(MutexError::UnknownMutex { host, number, count });
        }
        Ok(number * MUTEX_BYTES)
    }
}

impl Client {
    /// Takes a mutex; waits until its turn has come, whoever dies meanwhile except its host. `ARMCI_Lock`.
    #[inline]
    pub fn lock(self: &Arc<Self>, home: &MutexHome, host: Rank, number: u64) -> Result<Taken, MutexError> {
        if self.exchange_here(home, host, number, (0, mutex_word(self.layout.me()))) {
            self.count(host, CounterKind::Lock, 0);
            return Ok(Taken { previous_holder_died: false });
        }
        self.lock_long(home, host, number)
    }

    /// Takes a free mutex, or gives back one that nobody waits for, if its word is mapped here and nothing is wrong. False:
    /// nothing was done, and the long way finds out what there is to do.
    #[inline]
    fn exchange_here(&self, home: &MutexHome, host: Rank, number: u64, (from, to): (u32, u32)) -> bool {
        if self.failures.any() {
            return false;
        }
        let Some(part) = home.window.mapped_part(host) else { return false };
        let Some(offset) = number.checked_mul(MUTEX_BYTES) else { return false };
        matches!(part.compare_exchange_u32(offset, from, to), Ok(Ok(_)))
    }

    #[inline(never)]
    fn lock_long(self: &Arc<Self>, home: &MutexHome, host: Rank, number: u64) -> Result<Taken, MutexError> {
        let offset = home.place(host, number)?;
        home.window.check(Operation::Lock, host, offset, offset + 4)?;
        let me = self.layout.me();
        if let Route::Direct(part) = self.route(&home.window, Operation::Lock, host)? {
            match part.compare_exchange_u32(offset, 0, mutex_word(me)).expect("checked before") {
                Ok(_) => {
                    self.count(host, CounterKind::Lock, 0);
                    return Ok(Taken { previous_holder_died: false });
                }
                Err(word) if mutex_holder(word) == Some(me) => return Err(MutexError::HeldAlready { host, number }),
                Err(_) => {}
            }
        }
        let request = Request::Lock { target: home.window.target(host), offset };
        let inherited = self.ask(Operation::Lock, (host, number), &request)?;
        self.count(host, CounterKind::Lock, 0);
        Ok(Taken { previous_holder_died: inherited != 0 })
    }

    /// Takes a mutex if nobody waits for it and it is free, or its holder is dead. `ARMCIX_Trylock_hdl`.
    pub fn try_lock(self: &Arc<Self>, home: &MutexHome, host: Rank, number: u64) -> Result<Option<Taken>, MutexError> {
        let offset = home.place(host, number)?;
        home.window.check(Operation::Lock, host, offset, offset + 4)?;
        let mut taken = None;
        let mut asks = true;
        if let Route::Direct(part) = self.route(&home.window, Operation::Lock, host)? {
            let word = mutex_word(self.layout.me());
            match part.compare_exchange_u32(offset, 0, word).expect("checked before") {
                Ok(_) => (taken, asks) = (Some(Taken { previous_holder_died: false }), false),
                // What a dead rank has left is the server's to give.
                Err(word) => asks = mutex_holder(word).is_some_and(|holder| self.failures.of(holder).is_some()),
            }
        }
        if asks {
            let request = Request::TryLock { target: home.window.target(host), offset };
            let value = self.ask(Operation::Lock, (host, number), &request)?;
            taken = (value != 0).then_some(Taken { previous_holder_died: value > 1 });
        }
        self.count(host, CounterKind::Lock, 0);
        Ok(taken)
    }

    /// Gives a mutex back to whoever waits longest. What this rank has put before is visible to the next holder at
    /// the ranks for which quiet was called. `ARMCI_Unlock`.
    #[inline]
    pub fn unlock(self: &Arc<Self>, home: &MutexHome, host: Rank, number: u64) -> Result<(), MutexError> {
        if self.exchange_here(home, host, number, (mutex_word(self.layout.me()), 0)) {
            return Ok(());
        }
        self.unlock_long(home, host, number)
    }

    #[inline(never)]
    fn unlock_long(self: &Arc<Self>, home: &MutexHome, host: Rank, number: u64) -> Result<(), MutexError> {
        let offset = home.place(host, number)?;
        home.window.check(Operation::Unlock, host, offset, offset + 4)?;
        let me = self.layout.me();
        if let Route::Direct(part) = self.route(&home.window, Operation::Unlock, host)? {
            match part.compare_exchange_u32(offset, mutex_word(me), 0).expect("checked before") {
                Ok(_) => return Ok(()),
                Err(word) if word == mutex_word(me) | CONTENDED => {}
                Err(_) => return Err(MutexError::NotHeld { host, number }),
            }
        }
        let request = Request::Unlock { target: home.window.target(host), offset };
        self.ask(Operation::Unlock, (host, number), &request)?;
        Ok(())
    }

    /// Sends a request about a mutex to its host's server and waits for the answer.
    fn ask(
        self: &Arc<Self>,
        operation: Operation,
        (host, number): (Rank, u64),
        request: &Request,
    ) -> Result<u64, MutexError> {
        let endpoint = self.endpoint(operation, self.layout.node_of(host))?;
        let completion = Arc::new(Completion::new());
        let token = Token::Part(Arc::clone(&completion));
        self.issue(operation, endpoint, request, Some(token), Payload::None, Sending::Now)?;
        // Whoever holds it may die: the server gives it to another. Only the death of its host ends the wait, or the end
        // of the connection to its server.
        let awaited = match operation {
            Operation::Lock => Awaited::holder(operation, host),
            _ => Awaited::rank(operation, host),
        };
        let dead = self.wait_for(Drive::Endpoint(endpoint), awaited, || {
            if completion.is_complete() { Some(None) } else { self.alive(operation, host).err().map(Some) }
        });
        if let Some(lost) = dead {
            return Err(lost.into());
        }
        match completion.failure() {
            Some(Outcome::Refused { refusal: Refusal::TargetLost, .. }) => {
                let lost = Lost { rank: host, node: self.layout.node_of(host), operation, how: LostHow::Gone };
                return Err(self.alive(operation, host).err().unwrap_or(lost).into());
            }
            Some(Outcome::Refused { refusal: Refusal::NotHeld, .. }) => {
                return Err(MutexError::NotHeld { host, number });
            }
            Some(Outcome::Refused { refusal: Refusal::HeldAlready, .. }) => {
                return Err(MutexError::HeldAlready { host, number });
            }
            _ => {}
        }
        self.failure(&completion, operation, host)?;
        Ok(completion.value())
    }
}
