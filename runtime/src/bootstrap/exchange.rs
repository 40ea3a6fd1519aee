//! Starting inside a job that something else has started, over an all-gather that the program brings along: an MPI program, most
//! of all.
//!
//! The all-gather is used twice at start and once at the end: every rank says on which machine it runs, rank 0 says where the
//! coordinator is, and at the end the ranks meet, so that none of them takes away what the gathering needs.

use std::sync::Arc;

use parking_lot::Mutex;

use super::member::{self, Manager};
use super::neighbours::Neighbours;
use super::rendezvous::Found;
use crate::config::Config;
use crate::error::InitError;
use crate::topology;

/// A job that already exists, seen from one of its ranks.
///
/// The calls are made by [`init_inside`](crate::init_inside) and by [`World::finalize`](crate::World::finalize), on
/// the thread that calls these; [`abort`](Exchange::abort) may be called on any.
pub trait Exchange: Send + Sync {
    /// This process's rank, from 0.
    fn rank(&self) -> u32;

    /// How many ranks the job has.
    fn size(&self) -> u32;

    /// Every rank gives some bytes and gets those of all, by rank. Collective.
    ///
    /// # Errors
    /// What went wrong, for people.
    fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, String>;

    /// Ends the whole job, this process included if that is how it is done.
    fn abort(&self, status: i32);
}

/// Joins such a job.
pub(crate) fn join_inside(exchange: Arc<dyn Exchange>, config: &mut Config) -> Result<Found, InitError> {
    member::join(Arc::new(Inside { exchange, neighbours: Mutex::new(None) }), config)
}

struct Inside {
    exchange: Arc<dyn Exchange>,
    /// Once all have said where they are.
    neighbours: Mutex<Option<Neighbours>>,
}

impl Inside {
    fn gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let all = self.exchange.allgather(mine)?;
        let (found, size) = (all.len(), self.exchange.size() as usize);
        if found == size { Ok(all) } else { Err(format!("the all-gather over {size} ranks gave {found} pieces")) }
    }
}

impl Manager for Inside {
    fn rank(&self) -> u32 {
        self.exchange.rank()
    }

    fn size(&self) -> u32 {
        self.exchange.size()
    }

    fn is_on_one_machine(&self) -> Result<Option<bool>, String> {
        let all = self.gather(topology::machine_name().as_bytes())?;
        *self.neighbours.lock() = neighbours(&all, self.rank());
        Ok(Some(all.windows(2).all(|pair| pair[0] == pair[1])))
    }

    fn share(&self, text: Option<String>) -> Result<String, String> {
        let all = self.gather(text.unwrap_or_default().as_bytes())?;
        let first = all.into_iter().next().unwrap_or_default();
        String::from_utf8(first).map_err(|_| "rank 0 shared something that is no text".to_owned())
    }

    fn neighbours(&self) -> Option<Neighbours> {
        *self.neighbours.lock()
    }

    fn abort(&self, status: i32) -> bool {
        self.exchange.abort(status);
        true
    }

    fn leave(&self) {
        if let Err(reason) = self.gather(&[]) {
            tracing::warn!(reason, "the last barrier failed");
        }
    }

    fn is_for_one_world(&self) -> bool {
        // The next world may be that of other ranks.
        true
    }
}

/// Who of all, by the machine of each, is on this rank's.
fn neighbours(machines: &[Vec<u8>], rank: u32) -> Option<Neighbours> {
    let own = machines.get(rank as usize)?;
    let here = |machines: &[Vec<u8>]| machines.iter().filter(|machine| *machine == own).count() as u32;
    Neighbours::of(Some(here(&machines[..rank as usize])), Some(here(machines)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranks_of_a_machine_are_counted_in_their_order() {
        let machines: Vec<Vec<u8>> = ["a", "b", "a", "a"].iter().map(|name| name.as_bytes().to_vec()).collect();
        let of = |rank| neighbours(&machines, rank).map(|Neighbours { place, count }| (place, count));
        assert_eq!([of(0), of(1), of(2), of(3)], [Some((0, 3)), Some((0, 1)), Some((1, 3)), Some((2, 3))]);
        assert_eq!(of(4), None);
    }
}
