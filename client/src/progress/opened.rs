//! The connections that were ever opened: found by node, and one after the other, at a cost that follows from how many they are. Of a large job's
//! nodes a rank talks to few, and whoever waits looks at all of its connections again and again.

use std::array;
use std::sync::{Arc, OnceLock};

use longarm_proto::NodeId;

use crate::endpoint::Endpoint;

/// Nodes of a block.
const BLOCK_NODES: usize = 64;

type Block<T> = Box<[OnceLock<Arc<T>>; BLOCK_NODES]>;

/// See the module. What was opened stays.
pub(crate) struct Opened<T = Endpoint> {
    /// By node, in blocks: those in which one was opened.
    blocks: Box<[OnceLock<Block<T>>]>,
    /// In the order in which they were opened.
    first: OnceLock<Box<Entry<T>>>,
}

struct Entry<T> {
    opened: Arc<T>,
    next: OnceLock<Box<Entry<T>>>,
}

impl<T> Opened<T> {
    pub(crate) fn new(nodes: u32) -> Opened<T> {
        let blocks = (nodes as usize).div_ceil(BLOCK_NODES);
        Opened { blocks: (0..blocks).map(|_| OnceLock::new()).collect(), first: OnceLock::new() }
    }

    /// That of a node, if there is one.
    #[inline]
    pub(crate) fn of(&self, node: NodeId) -> Option<&T> {
        let node = node.0 as usize;
        self.blocks[node / BLOCK_NODES].get()?[node % BLOCK_NODES].get().map(Arc::as_ref)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::successors(self.first.get(), |entry| entry.next.get()).map(|entry| &*entry.opened)
    }

    /// That of a node, opened now if need be. Who goes through all of them may see it before it is found by its node.
    pub(crate) fn open(&self, node: NodeId, open: impl FnOnce() -> T) -> &T {
        let at = node.0 as usize;
        let block = self.blocks[at / BLOCK_NODES].get_or_init(|| Box::new(array::from_fn(|_| OnceLock::new())));
        block[at % BLOCK_NODES].get_or_init(|| {
            let opened = Arc::new(open());
            self.append(Arc::clone(&opened));
            opened
        })
    }

    fn append(&self, opened: Arc<T>) {
        let mut entry = Box::new(Entry { opened, next: OnceLock::new() });
        let mut end = &self.first;
        // Walks to the end. Another thread may be first there: the client opens one connection at a time, but this does not rely on it.
        while let Err(kept) = end.set(entry) {
            entry = kept;
            end = &end.get().expect("it was set by another one").next;
        }
    }
}

/// One after the other: they may be more than a stack has room for.
impl<T> Drop for Opened<T> {
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(mut entry) = next {
            next = entry.next.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_opened_once_and_all_are_found() {
        let opened: Opened<u32> = Opened::new(130);
        assert!(opened.of(NodeId(129)).is_none() && opened.iter().next().is_none());
        for node in [129, 3, 64, 3] {
            assert_eq!(*opened.open(NodeId(node), || node), node);
        }
        assert_eq!(opened.iter().copied().collect::<Vec<_>>(), [129, 3, 64], "in their order, and each once");
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
    fn very_many_go_without_much_stack() {
        let many = || {
            let opened: Opened<u32> = Opened::new(200_000);
            (0..20_000).for_each(|node| assert_eq!(*opened.open(NodeId(10 * node), || node), node));
        };
        let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(many).expect("a thread");
        thread.join().expect("its stack is enough");
    }
}
