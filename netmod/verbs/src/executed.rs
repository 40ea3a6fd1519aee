//! What became of connections that ended: up to which packet each has done what its peer wanted.
//!
//! The peer asks for it when it calls again, by the number that it gave the connection. The numbers of queues would not do:
//! a device gives them out again, to others.

use std::collections::VecDeque;

/// Connections that are remembered for peers that call again.
const ENDED_MAX: usize = 4096;

/// See the module.
#[derive(Default)]
pub(crate) struct Executed(VecDeque<(u64, u32)>);

impl Executed {
    /// A connection has ended, and `next` is the packet that it would have taken next.
    pub(crate) fn remember(&mut self, connection: u64, next: u32) {
        // Its caller had no number for it.
        if connection == 0 {
            return;
        }
        self.0.push_back((connection, next));
        if self.0.len() > ENDED_MAX {
            self.0.pop_front();
        }
    }

    /// What is known of a connection.
    pub(crate) fn of(&self, connection: u64) -> Option<u32> {
        self.0.iter().rev().find(|(number, _)| *number == connection).map(|(_, next)| *next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_known_by_its_own_number_alone() {
        let mut executed = Executed::default();
        executed.remember(7, 100);
        executed.remember(8, 200);
        assert_eq!((executed.of(7), executed.of(8), executed.of(9)), (Some(100), Some(200), None));
    }

    #[test]
    fn who_has_no_number_is_told_nothing() {
        let mut executed = Executed::default();
        executed.remember(0, 100);
        assert_eq!(executed.of(0), None);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut executed = Executed::default();
        for number in 1..=ENDED_MAX as u64 + 1 {
            executed.remember(number, 5);
        }
        assert_eq!((executed.of(1), executed.of(2)), (None, Some(5)));
    }
}
