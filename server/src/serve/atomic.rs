//! Read-modify-write and the mutexes.

use longarm_proto::{LockStep, Refusal, Rmw, TryLockStep, UnlockStep, WindowRef, mutex_holder};

use super::transfer::check_word;
use super::{Asker, Refused, Shared};
use crate::lock::MutexPlace;
use crate::table::Place;

pub(super) fn rmw(shared: &Shared, target: WindowRef, offset: u64, rmw: Rmw) -> Result<u64, Refused> {
    let place = shared.windows.resolve(&target).map_err(|refusal| (refusal, target.window.0))?;
    check_word(&place, offset, rmw.width.bytes() as u64)?;
    let old = place.window().rmw(offset, rmw).expect("checked just now");
    shared.ring(target.rank);
    Ok(old)
}

/// Whether the mutex is the asker's now; if not, it stands in the queue.
pub(super) fn lock(shared: &mut Shared, asker: Asker, target: WindowRef, offset: u64) -> Result<bool, Refused> {
    let (place, at) = mutex(shared, target, offset)?;
    let window = place.window();
    let mut waiter = asker;
    let granted = shared.locks.with(at, |queue| {
        loop {
            let word = window.load_u32(offset).expect("checked just now");
            if mutex_holder(word) == Some(asker.rank) {
                // It would wait for itself.
                return Err((Refusal::HeldAlready, offset));
            }
            match queue.lock(word, asker.rank, waiter) {
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
        Some(other) if other != asker => {
            shared.locks.grant(other);
            Ok(false)
        }
        granted => Ok(granted.is_some()),
    }
}

pub(super) fn try_lock(shared: &mut Shared, asker: Asker, target: WindowRef, offset: u64) -> Result<bool, Refused> {
    let (place, at) = mutex(shared, target, offset)?;
    let window = place.window();
    shared.locks.with(at, |queue| {
        loop {
            let word = window.load_u32(offset).expect("checked just now");
            match queue.try_lock(word, asker.rank) {
                TryLockStep::Swap { from, to } => {
                    if window.compare_exchange_u32(offset, from, to).expect("checked just now").is_ok() {
                        return Ok(true);
                    }
                }
                TryLockStep::Busy => return Ok(false),
                TryLockStep::NotAMutex => return Err((Refusal::NotAMutex, offset)),
            }
        }
    })
}

pub(super) fn unlock(shared: &mut Shared, asker: Asker, target: WindowRef, offset: u64) -> Result<(), Refused> {
    let (place, at) = mutex(shared, target, offset)?;
    let window = place.window();
    let next = shared.locks.with(at, |queue| {
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
        shared.locks.grant(next);
    }
    Ok(())
}

fn mutex(shared: &Shared, target: WindowRef, offset: u64) -> Result<(Place, MutexPlace), Refused> {
    let place = shared.windows.resolve(&target).map_err(|refusal| (refusal, target.window.0))?;
    check_word(&place, offset, 4)?;
    Ok((place, (target.window, target.rank, offset)))
}
