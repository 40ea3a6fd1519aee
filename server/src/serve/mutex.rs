//! The mutexes of this node: locked, tried and unlocked.

use longarm_proto::{Deaths, Grant, LockStep, Refusal, TryLockStep, UnlockStep, WindowRef, mutex_holder};

use super::asker::{Asker, Refused};
use super::state::ServeState;
use super::transfer::check_word;
use crate::mutex_waiters::MutexId;
use crate::table::TargetPart;

/// The mutex, if it is the asker's now; if not, it stands in the queue.
pub(super) fn lock(
    shared: &ServeState,
    asker: Asker,
    target: WindowRef,
    offset: u64,
) -> Result<Option<Grant<Asker>>, Refused> {
    let (place, at) = mutex(shared, target, offset)?;
    let mut mutexes = shared.mutexes.lock();
    check_alive(&mutexes.deaths, asker, target)?;
    let window = place.window();
    let mut waiter = asker;
    let granted = mutexes.with(at, |queue, deaths| {
        loop {
            let word = window.load_u32(offset).expect("checked just now");
            if mutex_holder(word) == Some(asker.rank) {
                // It would wait for itself.
                return Err((Refusal::HeldAlready, offset));
            }
            match queue.lock(word, asker.rank, waiter, deaths) {
                LockStep::Swap { from, to, step } => {
                    match window.compare_exchange_u32(offset, from, to).expect("checked just now") {
                        Ok(_) => return Ok(queue.commit(step)),
                        Err(_) => waiter = step.into_waiter().expect("a lock's step holds its waiter"),
                    }
                }
                LockStep::Queued => return Ok(None),
                LockStep::NotAMutex(_) => return Err((Refusal::NotAMutex, offset)),
            }
        }
    })?;
    match granted {
        Some(grant) if grant.waiter == asker => return Ok(Some(grant)),
        Some(grant) => mutexes.grant(grant),
        None => {}
    }
    mutexes.note_waiting(asker.connection);
    Ok(None)
}

/// The mutex, if it was free or left by a dead holder.
pub(super) fn try_lock(
    shared: &ServeState,
    asker: Asker,
    target: WindowRef,
    offset: u64,
) -> Result<Option<Grant<Asker>>, Refused> {
    let (place, at) = mutex(shared, target, offset)?;
    let mut mutexes = shared.mutexes.lock();
    check_alive(&mutexes.deaths, asker, target)?;
    let window = place.window();
    mutexes.with(at, |queue, deaths| {
        loop {
            let word = window.load_u32(offset).expect("checked just now");
            match queue.try_lock(word, asker.rank, deaths) {
                TryLockStep::Swap { from, to, inherited } => {
                    if window.compare_exchange_u32(offset, from, to).expect("checked just now").is_ok() {
                        return Ok(Some(Grant { waiter: asker, inherited }));
                    }
                }
                TryLockStep::Busy => return Ok(None),
                TryLockStep::NotAMutex => return Err((Refusal::NotAMutex, offset)),
            }
        }
    })
}

pub(super) fn unlock(shared: &ServeState, asker: Asker, target: WindowRef, offset: u64) -> Result<(), Refused> {
    let (place, at) = mutex(shared, target, offset)?;
    let mut mutexes = shared.mutexes.lock();
    check_host(&mutexes.deaths, target)?;
    let window = place.window();
    let next = mutexes.with(at, |queue, _| {
        loop {
            let word = window.load_u32(offset).expect("checked just now");
            match queue.unlock(word, asker.rank) {
                UnlockStep::Swap { from, to, step } => {
                    if window.compare_exchange_u32(offset, from, to).expect("checked just now").is_ok() {
                        return Ok(queue.commit(step));
                    }
                }
                UnlockStep::NotHeld { .. } => {
                    let holder = mutex_holder(word).map_or(u64::MAX, |rank| u64::from(rank.0));
                    return Err((Refusal::NotHeld, holder));
                }
            }
        }
    })?;
    if let Some(next) = next {
        mutexes.grant(next);
    }
    Ok(())
}

/// What a dead rank had asked for is not given to it: nobody would give it back.
fn check_alive(deaths: &Deaths, asker: Asker, target: WindowRef) -> Result<(), Refused> {
    check_host(deaths, target)?;
    match deaths.is_dead(asker.rank) {
        true => Err((Refusal::TargetLost, u64::from(asker.rank.0))),
        false => Ok(()),
    }
}

/// A mutex goes with its host.
fn check_host(deaths: &Deaths, target: WindowRef) -> Result<(), Refused> {
    match deaths.is_dead(target.rank) {
        true => Err((Refusal::TargetLost, u64::from(target.rank.0))),
        false => Ok(()),
    }
}

fn mutex(shared: &ServeState, target: WindowRef, offset: u64) -> Result<(TargetPart, MutexId), Refused> {
    let place = shared.windows.resolve(&target).map_err(|refusal| (refusal, target.window.0))?;
    check_word(&place, offset, 4)?;
    Ok((place, (target.window, target.rank, offset)))
}
