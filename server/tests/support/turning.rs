//! Calls that sleep until an engine answers.

/// Makes a call that sleeps until the engine has answered, by another thread; turns the engine meanwhile by `turn`, which says whether anything moved.
pub fn turning<R: Send>(mut turn: impl FnMut() -> bool, call: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let called = scope.spawn(call);
        while !called.is_finished() {
            if !turn() {
                std::thread::yield_now();
            }
        }
        called.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
