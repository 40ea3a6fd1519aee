//! How a call that cannot do what it was asked for ends: with the whole job, and one line that says why.
//!
//! PAIR ending-world: the store of the world's pointer (Release) and its load (Acquire). Who sees the pointer sees the world.

use std::fmt::Display;

use longarm::World;
use longarm::ffi::sync::{AtomicBool, AtomicPtr, Ordering};

/// A flag alone.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The world whose job ends, once this process has joined one.
static WORLD: AtomicPtr<World> = AtomicPtr::new(std::ptr::null_mut());

/// From now on it is the job of this world that ends.
pub(crate) fn note_world(world: &'static World) {
    // PAIR ending-world.
    WORLD.store(std::ptr::from_ref(world).cast_mut(), Ordering::Release);
}

/// Whether this process is ending the job, so that what it does at its exit is not to leave in good order.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::Relaxed)
}

/// From now on this process is ending the job.
pub(crate) fn note_ending() {
    ENDING.store(true, Ordering::Relaxed);
}

/// Ends the whole job with one line.
#[cold]
pub(crate) fn end(name: &'static str, text: impl Display) -> ! {
    end_with_status(&format!("{name}: {text}"), 1)
}

/// Ends the whole job with a line and an exit status.
#[cold]
pub(crate) fn end_with_status(line: &str, status: i32) -> ! {
    note_ending();
    // PAIR ending-world.
    let world = WORLD.load(Ordering::Acquire);
    // SAFETY: the pointer is null or that of a world that stays as long as the process; see `note_world`.
    match unsafe { world.as_ref() } {
        Some(world) => world.abort(line, status),
        None => match std::env::var("LONGARM_RANK") {
            Ok(rank) => eprintln!("longarm: rank {rank}: {line}"),
            Err(_) => eprintln!("longarm: {line}"),
        },
    }
    std::process::exit(status)
}

/// The value, or the end of the job.
#[inline]
pub(crate) fn or_end<T, E: Display>(name: &'static str, outcome: Result<T, E>) -> T {
    match outcome {
        Ok(value) => value,
        Err(error) => end(name, error),
    }
}
