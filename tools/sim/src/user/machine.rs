//! What a program is simulated on, where times are to follow from what is done instead of from the seed: the model LogGP, whose L is
//! `latency_ns`, whose o are `send_ns` and `receive_ns`, and whose G is `link_kib_ns`, and with it processors that processes share.

use std::time::Duration;

use crate::network::{self, Speed};

/// How long things take, in nanoseconds, for [`crate::run_on`].
///
/// What a rank or a server does takes as long as the calls of the system that it makes, the bytes that it copies and a fixed time for each
/// time it runs. Two ready-made ones are [`Machine::cluster`] and [`Machine::shared`].
///
/// ```
/// use longarm_sim::Machine;
///
/// let slow_network = Machine { latency_ns: 50_000, ..Machine::cluster() };
/// assert!(slow_network.processors.is_none(), "each rank and each server has a processor of its own");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Processors that all ranks and servers of the job share. `None`: each of them has its own.
    pub processors: Option<u32>,
    /// From the end of a send until its first byte can be received.
    pub latency_ns: u64,
    /// What 1024 bytes take on a link.
    pub link_kib_ns: u64,
    /// A call of the system that sends.
    pub send_ns: u64,
    /// A call of the system that receives something.
    pub receive_ns: u64,
    /// What 1024 bytes take between a process and the system.
    pub copy_kib_ns: u64,
    /// A turn of a server, besides what it sends and receives.
    pub turn_ns: u64,
    /// What a rank does between two rests, besides what it sends and receives.
    pub step_ns: u64,
    /// From when a rank is woken by one of its node until it runs.
    pub wake_rank_ns: u64,
    /// From when something has arrived for a rank or a server until that runs.
    pub wake_socket_ns: u64,
    /// A context switch, where processors are shared.
    pub switch_ns: u64,
    /// Nodes have routers, through which everything goes that goes to other nodes, as with `LONGARM_CONNECTIONS_MAX=0`.
    pub routers: bool,
}

impl Machine {
    /// Ranks and servers that have a processor each, and TCP over a network with a latency of 10 µs and 25 Gbit/s. These times are
    /// assumed.
    #[must_use]
    pub const fn cluster() -> Machine {
        Machine {
            processors: None,
            latency_ns: 10_000,
            link_kib_ns: 328,
            send_ns: 1_500,
            receive_ns: 500,
            copy_kib_ns: 50,
            turn_ns: 500,
            step_ns: 300,
            wake_rank_ns: 200,
            wake_socket_ns: 3_000,
            switch_ns: 0,
            routers: false,
        }
    }

    /// One machine with so many processors on which all nodes of the job are made up, as `longarm run --nodes` does it. These times
    /// are those with which simulated jobs come closest to real ones on a virtual machine with two processors (docs/src/scale.md).
    ///
    /// # Panics
    /// If there is no processor.
    #[must_use]
    pub const fn shared(processors: u32) -> Machine {
        assert!(processors > 0, "a job needs a processor");
        Machine {
            processors: Some(processors),
            latency_ns: 0,
            link_kib_ns: 0,
            send_ns: 8_000,
            step_ns: 1_500,
            wake_rank_ns: 1_000,
            wake_socket_ns: 1_000,
            switch_ns: 9_000,
            ..Machine::cluster()
        }
    }

    pub(super) fn speed(&self) -> Speed {
        Speed {
            latency_ns_min: self.latency_ns,
            latency_ns_max: self.latency_ns,
            jitter_ns: 0,
            kibibyte_ns: self.link_kib_ns,
            pipe_bytes_log2: (20, 20), // Buffers of sockets are seldom full.
            receives_all: true,
            send_ns: self.send_ns,
            receive_ns: self.receive_ns,
            copy_kib_ns: self.copy_kib_ns,
        }
    }
}

/// The processors of a machine that has fewer than ranks and servers.
#[derive(Default)]
pub(super) struct Processors {
    /// Until when each is busy, and with which process.
    all: Vec<(u64, Option<u32>)>,
}

impl Processors {
    pub(super) fn of(machine: Option<Machine>) -> Processors {
        let count = machine.and_then(|machine| machine.processors).unwrap_or(0);
        Processors { all: vec![(0, None); count as usize] }
    }

    /// A processor for a process, which had better be the one that it was on: its place, and whether it has to turn to it. Or when
    /// one is free. `None`: every process has its own.
    pub(super) fn claim(&self, process: u32, now_ns: u64) -> Result<Option<(usize, bool)>, u64> {
        let Some(free_ns) = self.all.iter().map(|(until_ns, _)| *until_ns).min() else { return Ok(None) };
        if free_ns > now_ns {
            return Err(free_ns);
        }
        let is_free = |place: &usize| self.all[*place].0 <= now_ns;
        let kept = (0..self.all.len()).filter(is_free).find(|place| self.all[*place].1 == Some(process));
        let place = kept.or_else(|| (0..self.all.len()).find(is_free)).expect("one is free");
        Ok(Some((place, kept.is_none())))
    }

    /// It works until then.
    pub(super) fn occupy(&mut self, place: usize, process: u32, until_ns: u64) {
        self.all[place] = (until_ns, Some(process));
    }
}

/// Simulated time since the run began, for the program of a simulated rank; 0 on a thread of none. What the rank has worked since it last
/// waited is in it.
///
/// ```
/// longarm_sim::run_on(longarm_sim::Machine::cluster(), 2, 2, |world| {
///     let before = longarm_sim::simulated_time();
///     world.barrier_collective()?;
///     assert!(longarm_sim::simulated_time() > before);
///     world.finalize()?;
///     Ok::<(), longarm::Error>(())
/// })?;
/// # Ok::<(), longarm_sim::Failure>(())
/// ```
#[must_use]
pub fn simulated_time() -> Duration {
    Duration::from_nanos(network::now_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_waits_for_a_processor_and_keeps_the_one_that_it_was_on() {
        let mut two = Processors::of(Some(Machine::shared(2)));
        assert_eq!(two.claim(7, 0), Ok(Some((0, true))));
        two.occupy(0, 7, 100);
        assert_eq!(two.claim(8, 50), Ok(Some((1, true))));
        two.occupy(1, 8, 300);
        assert_eq!(two.claim(9, 60), Err(100));
        assert_eq!(two.claim(7, 100), Ok(Some((0, false))));
        two.occupy(0, 9, 200);
        assert_eq!(two.claim(8, 300), Ok(Some((1, false))), "although the first one is free, too");
        assert_eq!(Processors::of(Some(Machine::cluster())).claim(1, 0), Ok(None));
        assert_eq!(Processors::of(None).claim(1, 0), Ok(None));
    }
}
