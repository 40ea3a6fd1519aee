//! The connections that were ever opened: found by node, and one after the other, at a cost that follows from how many they are. A rank of a
//! large job talks to few of its nodes. Ends and deaths go through all of them; waiting threads go through those that are occupied.
//!
//! PAIR count: a thread that was told of an opened one counts its place. The entry itself is published by its `OnceLock`; a place that is counted
//! and still empty is skipped.

use std::array;
use std::sync::{Arc, OnceLock};

use longarm_proto::NodeId;
use longarm_shm::sync::{AtomicU32, Ordering};

use crate::endpoint::Endpoint;

/// Nodes of a block.
const BLOCK_NODES: usize = 64;
/// Bucket b has 2^b places: enough for any number of nodes.
const BUCKETS: usize = 32;

type Block<T> = [OnceLock<Arc<T>>; BLOCK_NODES];
type Bucket<T> = Box<[OnceLock<Arc<T>>]>;

/// See the module. What was opened stays.
pub(crate) struct Opened<T = Endpoint> {
    /// Those of the first nodes, by node. Small jobs have no others, and each small request looks here: by way of `blocks` it would
    /// wait for three loads more, one after the other.
    first: Block<T>,
    /// Those of the nodes behind them, by node, in blocks: where one was opened.
    blocks: Box<[OnceLock<Box<Block<T>>>]>,
    /// In the order in which they were opened, in buckets of 1, 2, 4… places. A place never moves, so readers need no lock.
    in_order: [OnceLock<Bucket<T>>; BUCKETS],
    /// How many places are claimed there.
    count: AtomicU32,
}

impl<T> Opened<T> {
    pub(crate) fn new(nodes: u32) -> Opened<T> {
        let blocks = (nodes as usize).saturating_sub(BLOCK_NODES).div_ceil(BLOCK_NODES);
        Opened {
            first: array::from_fn(|_| OnceLock::new()),
            blocks: (0..blocks).map(|_| OnceLock::new()).collect(),
            in_order: array::from_fn(|_| OnceLock::new()),
            count: AtomicU32::new(0),
        }
    }

    /// That of a node, if there is one.
    #[inline]
    pub(crate) fn of(&self, node: NodeId) -> Option<&T> {
        let node = node.0 as usize;
        let place = match self.first.get(node) {
            Some(place) => place,
            None => self.place_behind(node - BLOCK_NODES)?,
        };
        place.get().map(Arc::as_ref)
    }

    fn place_behind(&self, node: usize) -> Option<&OnceLock<Arc<T>>> {
        Some(&self.blocks[node / BLOCK_NODES].get()?[node % BLOCK_NODES])
    }

    /// Whether none was ever opened.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // PAIR count.
        self.count.load(Ordering::Acquire) == 0
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        // PAIR count.
        let count = self.count.load(Ordering::Acquire);
        let buckets = count.checked_ilog2().map_or(0, |last| last as usize + 1);
        let opened = self.in_order[..buckets].iter().filter_map(OnceLock::get).flatten();
        opened.filter_map(|opened| opened.get().map(Arc::as_ref))
    }

    /// That of a node, opened now if need be. Who goes through all of them may see it before it is found by its node.
    pub(crate) fn open(&self, node: NodeId, open: impl FnOnce() -> T) -> &T {
        let at = node.0 as usize;
        let new_block = || Box::new(array::from_fn(|_| OnceLock::new()));
        let place = match self.first.get(at) {
            Some(place) => place,
            None => {
                let at = at - BLOCK_NODES;
                &self.blocks[at / BLOCK_NODES].get_or_init(new_block)[at % BLOCK_NODES]
            }
        };
        place.get_or_init(|| {
            let opened = Arc::new(open());
            self.append(Arc::clone(&opened));
            opened
        })
    }

    fn append(&self, opened: Arc<T>) {
        // PAIR count. Nobody else has this place.
        let place = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        let bucket = place.ilog2();
        let room = 1 << bucket;
        let places = self.in_order[bucket as usize].get_or_init(|| (0..room).map(|_| OnceLock::new()).collect());
        assert!(places[place as usize - room].set(opened).is_ok(), "a place is taken once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_opened_once_and_all_are_found() {
        let opened: Opened<u32> = Opened::new(130);
        assert!([0, 63, 64, 127, 128].iter().all(|node| opened.of(NodeId(*node)).is_none()));
        assert!(opened.of(NodeId(129)).is_none() && opened.iter().next().is_none() && opened.is_empty());
        for node in [129, 3, 64, 3] {
            assert_eq!(*opened.open(NodeId(node), || node), node);
        }
        assert_eq!(opened.iter().copied().collect::<Vec<_>>(), [129, 3, 64], "in their order, and each once");
        assert!(!opened.is_empty());
        assert_eq!(opened.open(NodeId(3), || unreachable!("it is open")), &3);
        assert_eq!((opened.of(NodeId(64)), opened.of(NodeId(65))), (Some(&64), None));
    }

    #[test]
    fn threads_that_open_at_once_lose_none() {
        let (opened, barrier) = (Opened::<u32>::new(400), std::sync::Barrier::new(4));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (opened, barrier) = (&opened, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for node in 0..400 {
                        // Each node by two of them.
                        if node % 4 == thread || (node + 1) % 4 == thread {
                            assert_eq!(*opened.open(NodeId(node), || node), node);
                        }
                    }
                });
            }
        });
        let mut found: Vec<u32> = opened.iter().copied().collect();
        found.sort_unstable();
        assert!(found.into_iter().eq(0..400));
    }

    #[test]
    fn very_many_are_found_in_their_order() {
        let opened: Opened<u32> = Opened::new(200_000);
        for count in 0..20_000 {
            assert_eq!(*opened.open(NodeId(10 * count), || count), count);
            if count.is_power_of_two() {
                assert!(opened.iter().copied().eq(0..=count));
            }
        }
        assert!(opened.iter().copied().eq(0..20_000));
    }
}
