//! A simulated rank's own stack: it runs until it has nothing to do, and goes on when the scheduler says so.
//!
//! All fibers of a run live on one thread, one of them runs at a time, and each one that was started is run to its end:
//! a fiber is never unwound from outside, because calls of the client lend memory while they wait.

use std::time::Duration;

use generator::{Generator, Gn};
use longarm_client::RestOn;

/// Words of a fiber's stack.
const STACK_WORDS: usize = 128 << 10 >> 3;

/// Why a fiber came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It has nothing to do until something happens, or the time is over.
    Rest(RestOn, Option<Duration>),
    /// It computes for so many nanoseconds.
    Compute(u64),
    /// Its program has ended.
    Done,
}

/// See the module.
pub struct Fiber(Generator<'static, (), Step>);

impl Fiber {
    /// Not started yet.
    pub fn new(program: impl FnOnce() + Send + 'static) -> Fiber {
        let body = move || {
            program();
            Step::Done
        };
        Fiber(Gn::<()>::new_opt(STACK_WORDS, body))
    }

    /// Runs it until it comes back. A panic in it goes on here.
    pub fn resume(&mut self) -> Step {
        self.0.resume().unwrap_or(Step::Done)
    }

    /// Whether its program has ended.
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }
}

/// For code that runs in a fiber, however deep: comes back when the scheduler resumes it.
pub fn pause(step: Step) {
    // The newer way hands a scope from call to call, which cannot pass through the client.
    #[allow(deprecated, reason = "the scope of the newer way cannot be handed through the client")]
    generator::yield_with(step);
}

/// Whether the caller runs in a fiber.
pub fn is_inside() -> bool {
    generator::is_generator()
}
