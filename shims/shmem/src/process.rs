//! One process among the others of its job: who it is, and how it waits for what they bring about.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use longarm::World;

use crate::boundary::end;

/// See the module.
pub(crate) struct Process {
    pub(crate) world: World,
    pub(crate) me: u32,
    pub(crate) size: u32,
    /// All PEs are on this node.
    pub(crate) is_one_node: bool,
    /// How long a waiting thread looks before it lets others have the processor.
    spin: Duration,
}

impl Process {
    pub(crate) fn new(world: World) -> Process {
        Process {
            me: world.rank(),
            size: world.size(),
            is_one_node: world.node_count() == 1,
            spin: Duration::from_micros(world.config().spin_us),
            world,
        }
    }

    /// A PE as C gives it.
    #[inline]
    pub(crate) fn rank(&self, name: &'static str, pe: c_int) -> u32 {
        match u32::try_from(pe) {
            Ok(rank) if rank < self.size => rank,
            _ => self.no_such_pe(name, pe),
        }
    }

    #[cold]
    fn no_such_pe(&self, name: &'static str, pe: c_int) -> ! {
        end(name, format_args!("there is no PE {pe}; this job has the PEs 0 to {}", self.size - 1))
    }

    /// What `check` gives soon: it looks before the first pause, which takes longer than what is under way.
    #[inline]
    pub(crate) fn glance<R>(&self, mut check: impl FnMut() -> Option<R>) -> Option<R> {
        const GLANCES: u32 = 100;
        (0..if self.spin.is_zero() { 1 } else { GLANCES }).find_map(|_| check())
    }

    /// Waits until `check` gives something.
    #[inline]
    pub(crate) fn wait_for<R>(&self, name: &'static str, mut check: impl FnMut() -> Option<R>) -> R {
        if let Some(result) = check() {
            return result;
        }
        self.wait_for_words(name, check)
    }

    #[inline(never)]
    fn wait_for_words<R>(&self, name: &'static str, mut check: impl FnMut() -> Option<R>) -> R {
        if self.is_one_node
            && let Some(result) = self.glance(&mut check)
        {
            return result;
        }
        self.wait_long(name, false, check)
    }

    /// Waits for what others bring about in a barrier, after a [`Process::glance`] in vain.
    #[inline(never)]
    pub(crate) fn wait_at_barrier<R>(&self, name: &'static str, check: impl FnMut() -> Option<R>) -> R {
        self.wait_long(name, true, check)
    }

    fn wait_long<R>(&self, name: &'static str, at_barrier: bool, mut check: impl FnMut() -> Option<R>) -> R {
        /// Looks between two questions for the time.
        const LOOKS: u32 = 64;
        /// How long it gives the processor to others, before it sleeps. Who is woken from a sleep takes so long that
        /// another one falls asleep meanwhile, so it has to be longer than that.
        const YIELDING: Duration = Duration::from_millis(2);
        // Between nodes it helps to move what comes and goes, which the client does while it waits.
        if self.is_one_node {
            let began = Instant::now();
            while began.elapsed() < self.spin {
                for _ in 0..LOOKS {
                    if let Some(result) = check() {
                        return result;
                    }
                    std::hint::spin_loop();
                }
            }
            while began.elapsed() < YIELDING {
                std::thread::yield_now();
                if let Some(result) = check() {
                    return result;
                }
            }
        }
        let waited = if at_barrier { self.world.wait_at_barrier(check) } else { self.world.wait_for_words(check) };
        match waited {
            Ok(result) => result,
            Err(error) => end(name, error),
        }
    }

    /// For a call that looks once and finds nothing: whoever is to change that may need this processor.
    #[inline]
    pub(crate) fn let_others_work(&self) {
        if !self.is_one_node {
            self.world.progress();
        }
        if self.spin.is_zero() {
            std::thread::yield_now();
        }
    }
}
