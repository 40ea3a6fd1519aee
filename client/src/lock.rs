//! Numbered mutexes, hosted at any rank, in turns.
//!
//! A mutex is a word in its host's part of a window. On the host's node a free one is taken, and an uncontended one
//! given back, by one compare-and-swap. There ranks that have a processor each look at the word for a while, and pass the mutex on among
//! themselves (`longarm_shm::handover`); everything else is the business of the node's server, which keeps the queue.
//!
//! When its holder dies, the server gives a mutex to the next waiter, and says so. When its host dies, the mutex is
//! gone.

use std::sync::Arc;

use longarm_proto::{Rank, Refusal, Request, Run, mutex_holder, mutex_word};
use longarm_shm::handover::{self, Attempt, GivenBack, Step};
use longarm_shm::{CounterKind, Window, Word};

use crate::client::Client;
use crate::completion::{Completion, Outcome};
use crate::endpoint::{Payload, Sending, Token};
use crate::error::{Lost, LostHow, MutexError, Operation};
use crate::local::Local;
use crate::mutex_line::{LineHere, MUTEX_BYTES};
use crate::path::{Aim, Location};
use crate::progress::pace::{Drive, Looking, drive_for};
use crate::progress::waits::Awaited;
use crate::window::ClientWindow;

/// The mutexes of a group: a window whose words are mutexes.
pub struct MutexHome {
    window: Arc<ClientWindow>,
}

/// A mutex that this rank holds from now on.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Taken<'a> {
    /// The holder before died with it: what the mutex protects may be half changed.
    pub previous_holder_died: bool,
    /// Where it was taken, if that was here. After the exchange that took it the way there could only begin anew: on it
    /// lie five loads, each of which waits for the one before.
    word: Option<Word<'a>>,
}

/// A mutex that is mapped here, for callers who come back to it. On the way from a call to its word lie many loads, each of which waits
/// for the one before, and the first for the exchange of the last call.
#[derive(Clone, Copy)]
pub struct MutexHere<'c, 'w> {
    local: &'c Local,
    window: &'w ClientWindow,
    host: Rank,
    word: Word<'w>,
}

/// What came of the beginning of a lock.
pub enum LockBegun<'a> {
    /// It is taken.
    Taken(Taken<'a>),
    /// The server says when.
    Asked(Arc<Completion>),
}

impl Taken<'_> {
    /// One of which nothing else is known.
    pub const fn somehow(previous_holder_died: bool) -> Self {
        Taken { previous_holder_died, word: None }
    }
}

impl MutexHere<'_, '_> {
    /// Takes it if it is free and nothing is wrong. False: nothing was done, as for [`Client::lock_at_once`].
    #[inline(always)]
    pub fn lock_at_once(&self) -> bool {
        self.is_usable() && self.take()
    }

    /// Gives it back if this rank has it, nobody waits for it and nothing is wrong. False: nothing was done, as for
    /// [`Client::unlock_at_once`].
    #[inline(always)]
    pub fn unlock_at_once(&self) -> bool {
        self.is_usable() && self.give_back()
    }

    /// Whether nothing is wrong.
    #[inline(always)]
    fn is_usable(&self) -> bool {
        !self.local.is_dead(self.host) && !self.window.is_freed()
    }

    /// Takes it if it is free.
    #[inline(always)]
    fn take(&self) -> bool {
        let taken = self.word.compare_exchange(0, mutex_word(self.local.layout.me())).is_ok();
        if taken {
            self.local.count(self.host, CounterKind::Lock, 0);
        }
        taken
    }

    /// Gives it back if this rank has it and nobody waits for it.
    #[inline(always)]
    fn give_back(&self) -> bool {
        self.word.compare_exchange(mutex_word(self.local.layout.me()), 0).is_ok()
    }
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

    /// Where the word of a mutex is that there is.
    fn word(&self, operation: Operation, host: Rank, number: u64) -> Result<(Aim<'_>, u64), MutexError> {
        let count = self.count(host);
        if number >= count {
            return Err(MutexError::UnknownMutex { host, number, count });
        }
        let aim = Aim { operation, window: &self.window, rank: host };
        let offset = number * MUTEX_BYTES;
        aim.check(Run { offset, bytes: 4 })?;
        Ok((aim, offset))
    }
}

impl Client {
    /// Takes a mutex; waits until its turn has come, whoever dies meanwhile except its host. `ARMCI_Lock`.
    pub fn lock<'a>(&self, home: &'a MutexHome, host: Rank, number: u64) -> Result<Taken<'a>, MutexError> {
        match self.lock_at_once(home, host, number) {
            Some(taken) => Ok(taken),
            None => self.lock_long(home, host, number),
        }
    }

    /// Takes a mutex that is free and mapped here, if nothing is wrong. `None`: nothing was done, and another way has to be taken, or
    /// finds out what is wrong.
    #[inline(always)]
    pub fn lock_at_once<'a>(&self, home: &'a MutexHome, host: Rank, number: u64) -> Option<Taken<'a>> {
        let here = self.mutex_here(home, host, number)?;
        here.take().then_some(Taken { previous_holder_died: false, word: Some(here.word) })
    }

    /// A mutex, if it is mapped here and nothing is wrong. By one exchange of its word a free mutex is taken and one that
    /// nobody waits for given back; else the long way finds out what there is to do.
    #[inline(always)]
    pub fn mutex_here<'w>(&self, home: &'w MutexHome, host: Rank, number: u64) -> Option<MutexHere<'_, 'w>> {
        let part = home.window.at_once(&self.local.failures, host)?;
        let word = part.word_u32(number.checked_mul(MUTEX_BYTES)?).ok()?;
        Some(MutexHere { local: &self.local, window: &home.window, host, word })
    }

    #[inline(never)]
    fn lock_long<'a>(&self, home: &'a MutexHome, host: Rank, number: u64) -> Result<Taken<'a>, MutexError> {
        let (aim, offset) = home.word(Operation::Lock, host, number)?;
        if self.take_here(aim, (host, number), offset)? {
            return Ok(Taken::somehow(false));
        }
        if self.progress.spin_us > 0
            && let Location::Here(part) = self.place(aim)?
            && self.spin_for_turn(part, (host, number), offset)?
        {
            self.local.count(host, CounterKind::Lock, 0);
            return Ok(Taken::somehow(false));
        }
        let request = Request::Lock { target: home.window.target(host), offset };
        let inherited = self.ask(Operation::Lock, (host, number), &request)?;
        self.local.count(host, CounterKind::Lock, 0);
        Ok(Taken::somehow(inherited != 0))
    }

    /// Takes a mutex of this node that is free. False: its server has to be asked.
    fn take_here(&self, aim: Aim<'_>, (host, number): (Rank, u64), offset: u64) -> Result<bool, MutexError> {
        let Location::Here(part) = self.place(aim)? else { return Ok(false) };
        let me = self.local.layout.me();
        match part.compare_exchange_u32(offset, 0, mutex_word(me)).expect("checked before") {
            Ok(_) => {
                self.local.count(host, CounterKind::Lock, 0);
                Ok(true)
            }
            Err(word) if mutex_holder(word) == Some(me) => Err(MutexError::HeldAlready { host, number }),
            Err(_) => Ok(false),
        }
    }

    /// Spins for a mutex of this node, for as long as a waiting thread spins before it sleeps, until it is free or passed to this rank. False:
    /// the server has to be asked, as for all that is not ordinary.
    fn spin_for_turn(&self, part: Window<'_>, (host, number): (Rank, u64), offset: u64) -> Result<bool, MutexError> {
        let (layout, line) = (&self.local.layout, LineHere { part, offset });
        let Some(mut attempt) = Attempt::begin(&line, layout.me(), layout.local_of(layout.me())) else {
            return Ok(false);
        };
        let mut looking = Looking::new(self.progress.spin_us);
        let mut step = |is_late| attempt.step(&line, is_late, |rank| self.local.failures.is_dead(rank));
        let mut came = step(false);
        while came == Step::Spin {
            came = step(looking.pause().unwrap_or(false));
        }
        if came == Step::Await {
            // It ends whoever dies: the one who passes it lives, and does, or is known to be dead.
            came = self.wait_for(Drive::Stores, Awaited::holder(Operation::Lock, host), || {
                Some(step(true)).filter(|step| *step != Step::Await)
            });
        }
        match came {
            Step::Taken => Ok(true),
            Step::HeldAlready => Err(MutexError::HeldAlready { host, number }),
            Step::Spin | Step::Await | Step::AskServer => Ok(false),
        }
    }

    /// Whether the holder of a mutex is known to be dead.
    fn has_left(&self, holder: Option<Rank>) -> bool {
        holder.is_some_and(|holder| self.local.failures.is_dead(holder))
    }

    /// Begins to take a mutex: it has it at once, or will once the completion is complete, which [`Client::end_lock`] takes
    /// apart. The server that was asked says so when the host dies.
    pub fn begin_lock<'a>(&self, home: &'a MutexHome, host: Rank, number: u64) -> Result<LockBegun<'a>, MutexError> {
        let (aim, offset) = home.word(Operation::Lock, host, number)?;
        if self.take_here(aim, (host, number), offset)? {
            return Ok(LockBegun::Taken(Taken::somehow(false)));
        }
        let endpoint = self.endpoint(Operation::Lock, self.local.layout.node_of(host))?;
        let (completion, part) = Completion::begin();
        let request = Request::Lock { target: home.window.target(host), offset };
        self.issue(Operation::Lock, endpoint, &request, Some(Token::Part(part)), Payload::None, Sending::Now)?;
        self.local.count(host, CounterKind::Lock, 0);
        Ok(LockBegun::Asked(completion))
    }

    /// What came of a lock that was begun, once its completion is complete.
    pub fn end_lock(&self, completion: &Completion, host: Rank, number: u64) -> Result<Taken<'static>, MutexError> {
        let inherited = self.answered(completion, Operation::Lock, (host, number))?;
        Ok(Taken::somehow(inherited != 0))
    }

    /// An error if the server of a mutex is known to be lost. What it or a mutex's word says that this rank has may then be nobody's to give
    /// back: a grant that was lost with the connection, or an unlock that failed.
    pub fn mutex_server(&self, host: Rank) -> Result<(), MutexError> {
        let Some(endpoint) = self.progress.endpoint_if_open(self.local.layout.node_of(host)) else { return Ok(()) };
        match endpoint.broken() {
            Some(how) => Err(self.progress.lost(Operation::Lock, endpoint, how.clone()).into()),
            None => Ok(()),
        }
    }

    /// An error if a rank is dead.
    pub fn alive(&self, operation: Operation, rank: Rank) -> Result<(), Lost> {
        self.local.alive(operation, rank)
    }

    /// Takes a mutex if nobody waits for it and it is free, or its holder is dead. `ARMCIX_Trylock_hdl`.
    pub fn try_lock<'a>(&self, home: &'a MutexHome, host: Rank, number: u64) -> Result<Option<Taken<'a>>, MutexError> {
        let (aim, offset) = home.word(Operation::Lock, host, number)?;
        let mut taken = None;
        let mut asks = true;
        if let Location::Here(part) = self.place(aim)? {
            let word = mutex_word(self.local.layout.me());
            match part.compare_exchange_u32(offset, 0, word).expect("checked before") {
                Ok(_) => (taken, asks) = (Some(Taken::somehow(false)), false),
                // What a dead rank has left is the server's to give.
                Err(word) => asks = mutex_holder(word).is_some_and(|holder| self.local.failures.of(holder).is_some()),
            }
        }
        if asks {
            let request = Request::TryLock { target: home.window.target(host), offset };
            let value = self.ask(Operation::Lock, (host, number), &request)?;
            taken = (value != 0).then_some(Taken::somehow(value > 1));
        }
        self.local.count(host, CounterKind::Lock, 0);
        Ok(taken)
    }

    /// Gives a mutex back: to a rank of the node that spins for it, else to the first that waits at the server. What this rank has put before is visible to the next holder at
    /// the ranks for which quiet was called. `ARMCI_Unlock`.
    #[inline]
    pub fn unlock(&self, home: &MutexHome, host: Rank, number: u64) -> Result<(), MutexError> {
        if self.unlock_at_once(home, host, number) { Ok(()) } else { self.unlock_long(home, host, number) }
    }

    /// Gives a mutex back that is mapped here and that nobody waits for. False: nothing was done, and [`Client::unlock`] finds out what
    /// there is to do.
    #[inline]
    pub fn unlock_at_once(&self, home: &MutexHome, host: Rank, number: u64) -> bool {
        self.unlock_taken_at_once(home, Taken::somehow(false), host, number)
    }

    /// As [`Client::unlock`], of a mutex that this rank holds. That of another node is on its way back on return: who has to
    /// know that it is free calls quiet.
    #[inline(always)]
    pub fn unlock_taken<'a>(
        &self,
        home: &'a MutexHome,
        taken: Taken<'a>,
        host: Rank,
        number: u64,
    ) -> Result<(), MutexError> {
        if self.unlock_taken_at_once(home, taken, host, number) {
            return Ok(());
        }
        self.unlock_taken_long(home, host, number)
    }

    /// Gives a mutex back that this rank holds, if it is mapped here, nobody waits for it and nothing is wrong. False: nothing was done,
    /// and [`Client::unlock_taken_long`] finds out what there is to do.
    #[inline(always)]
    pub fn unlock_taken_at_once(&self, home: &MutexHome, taken: Taken<'_>, host: Rank, number: u64) -> bool {
        match taken.word {
            Some(word) => MutexHere { local: &self.local, window: &home.window, host, word }.unlock_at_once(),
            // The guard of a caller that kept none does not know where the word is.
            None => self.mutex_here(home, host, number).is_some_and(|here| here.give_back()),
        }
    }

    /// [`Client::unlock_taken`], through every check.
    #[inline(never)]
    pub fn unlock_taken_long(&self, home: &MutexHome, host: Rank, number: u64) -> Result<(), MutexError> {
        let (aim, offset) = home.word(Operation::Unlock, host, number)?;
        // On this node the word is looked at before anybody is asked: it has to be right when the next call looks.
        let Location::There(endpoint) = self.place(aim)? else { return self.unlock_long(home, host, number) };
        let request = Request::Unlock { target: home.window.target(host), offset };
        // The server serves in order, so whoever asks for the mutex over this connection finds it free. The answer says
        // nothing new to who holds it: nobody waits for it.
        let token = Token::Part(Completion::begin().1);
        self.issue(Operation::Unlock, endpoint, &request, Some(token), Payload::None, Sending::Now)?;
        self.progress.leave_unacknowledged();
        self.progress.leave_to_helper(endpoint);
        Ok(())
    }

    #[inline(never)]
    fn unlock_long(&self, home: &MutexHome, host: Rank, number: u64) -> Result<(), MutexError> {
        let (aim, offset) = home.word(Operation::Unlock, host, number)?;
        let me = self.local.layout.me();
        if let Location::Here(part) = self.place(aim)? {
            let layout = &self.local.layout;
            let here = layout.ranks_of(layout.my_node());
            let living = |local: u32| here.get(local as usize).copied().filter(|rank| !self.has_left(Some(*rank)));
            match handover::give_back(&LineHere { part, offset }, (me, layout.local_of(me)), living) {
                GivenBack::Done => return Ok(()),
                GivenBack::AskServer => {}
                GivenBack::NotHeld => return Err(MutexError::NotHeld { host, number }),
            }
        }
        let request = Request::Unlock { target: home.window.target(host), offset };
        self.ask(Operation::Unlock, (host, number), &request)?;
        Ok(())
    }

    /// Sends a request about a mutex to its host's server and waits for the answer.
    fn ask(&self, operation: Operation, (host, number): (Rank, u64), request: &Request) -> Result<u64, MutexError> {
        let endpoint = self.endpoint(operation, self.local.layout.node_of(host))?;
        let (completion, part) = Completion::begin();
        let token = Token::Part(part);
        let expecting = self.progress.expect_answer();
        self.issue(operation, endpoint, request, Some(token), Payload::None, Sending::Now)?;
        // Whoever holds it may die: the server gives it to another. Only the death of its host ends the wait, or the end
        // of the connection to its server.
        let awaited = match operation {
            Operation::Lock => Awaited::holder(operation, host),
            _ => Awaited::rank(operation, host),
        };
        let dead = self.wait_for(drive_for(endpoint, expecting.as_ref()), awaited, || {
            if completion.is_complete() { Some(None) } else { self.local.alive(operation, host).err().map(Some) }
        });
        match dead {
            Some(lost) => Err(lost.into()),
            None => self.answered(&completion, operation, (host, number)),
        }
    }

    /// What the server has said of a mutex.
    fn answered(
        &self,
        completion: &Completion,
        operation: Operation,
        (host, number): (Rank, u64),
    ) -> Result<u64, MutexError> {
        match completion.failure() {
            Some(Outcome::Refused { refusal: Refusal::TargetLost, .. }) => {
                let lost = Lost { rank: host, node: self.local.layout.node_of(host), operation, how: LostHow::Gone };
                return Err(self.local.alive(operation, host).err().unwrap_or(lost).into());
            }
            Some(Outcome::Refused { refusal: Refusal::NotHeld, .. }) => {
                return Err(MutexError::NotHeld { host, number });
            }
            Some(Outcome::Refused { refusal: Refusal::HeldAlready, .. }) => {
                return Err(MutexError::HeldAlready { host, number });
            }
            _ => {}
        }
        self.local.failure(completion, operation, host)?;
        Ok(completion.value())
    }
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
