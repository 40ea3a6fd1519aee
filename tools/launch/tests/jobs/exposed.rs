//! Memory that is in no window: exposed, read and written by the ranks of its node, and taken back.

use longarm::World;
use longarm::error::TransferError;

use super::support::{barrier, ranks};

/// Rank `rank` exposes this many elements, more than one call of the system would have to move at once.
fn length(rank: u32) -> usize {
    400_000 + 1000 * rank as usize
}

fn value(rank: u32, index: usize) -> u64 {
    u64::from(rank) << 32 | index as u64
}

/// What every rank of the node reads is what the owner has there, and what it writes is there when the owner takes its memory
/// back; ranks of other nodes are told to use a window.
pub fn exposed(world: &World) {
    let me = world.rank();
    let mine: Vec<u64> = (0..length(me)).map(|index| value(me, index)).collect();
    let address = mine.as_ptr().addr();
    let exposed = world.expose_collective(mine).expect("memory can be exposed");
    for rank in ranks(world) {
        assert_eq!(exposed.len_at(rank), Some(length(rank)));
        let mut all = vec![0; length(rank)];
        let got = exposed.get(rank, 0, &mut all);
        if world.node_of(rank) != Some(world.node()) {
            assert!(matches!(got, Err(TransferError::OtherNode { rank: other, .. }) if other.0 == rank), "{got:?}");
            assert!(all.iter().all(|element| *element == 0));
            continue;
        }
        got.expect("the ranks of a node reach each other's memory");
        assert!((0..).zip(&all).all(|(index, element)| *element == value(rank, index)));
        let mut two = [0; 2];
        exposed.get(rank, length(rank) - 2, &mut two).expect("the last ones");
        assert_eq!(two, [length(rank) - 2, length(rank) - 1].map(|index| value(rank, index)));
        let outside = exposed.get(rank, length(rank) - 1, &mut two);
        assert!(matches!(outside, Err(TransferError::OutsideExposed { .. })), "{outside:?}");
        let outside = exposed.put(rank, usize::MAX, &[1]);
        assert!(matches!(outside, Err(TransferError::OutsideExposed { .. })), "{outside:?}");
        exposed.get(rank, length(rank), &mut []).expect("nothing at the end");
    }
    let nobody = exposed.put(world.size(), 0, &[1]);
    assert!(matches!(nobody, Err(TransferError::NoSuchRank { .. })), "{nobody:?}");
    // Everybody has read: now each rank writes a place of its own at every neighbour, its own part included.
    barrier(world);
    let neighbours: Vec<u32> = ranks(world).filter(|rank| world.node_of(*rank) == Some(world.node())).collect();
    for rank in &neighbours {
        let block: Vec<u64> = (0..5000).map(|index| value(me + 1, index + 7)).collect();
        exposed.put(*rank, 5000 * me as usize, &block).expect("a neighbour's memory");
    }
    let mine = exposed.withdraw_collective().expect("all of them have written");
    assert_eq!((mine.len(), mine.as_ptr().addr()), (length(me), address));
    for (index, element) in mine.iter().enumerate() {
        let writer = (index / 5000) as u32;
        let expected =
            if neighbours.contains(&writer) { value(writer + 1, index % 5000 + 7) } else { value(me, index) };
        assert_eq!(*element, expected, "element {index} of rank {me}");
    }
    // Nothing at all can be exposed, by some or by all.
    let few = world.expose_collective(vec![me; me as usize]).expect("rank 0 has none");
    assert_eq!((few.len_at(0), few.len_at(world.size())), (Some(0), None));
    assert_eq!(few.withdraw_collective().expect("nobody uses it").len(), me as usize);
}
