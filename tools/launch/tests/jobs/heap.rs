//! The symmetric heap: blocks at the same offset everywhere, until there is no room.

use longarm::error::{CollectiveError, HeapError, TransferError};
use longarm::{HEAP_ALIGNMENT, World};

use super::support::{Dice, ahead, arbitrary, assert_same, barrier};

/// What the job's configuration gives each rank.
const HEAP_BYTES: usize = 1 << 20;

pub fn life(world: &World) {
    let heap = world.heap_collective().expect("a heap");
    let again = world.heap_collective().expect("the same heap");
    assert!(std::sync::Arc::ptr_eq(&heap, &again));
    assert_eq!(heap.free_bytes(), HEAP_BYTES);
    let (me, right) = (world.rank(), ahead(world, 1));
    let bytes = heap.window::<u8>();
    // Blocks do not overlap, have the same offset everywhere, and hold what is put there.
    let mut blocks: Vec<longarm::HeapBlock> = Vec::new();
    for size in [0, 1, 100, 64, 65, 40_000, 3] {
        let block = heap.allocate_collective(size).expect("a block");
        assert_eq!(block.bytes(), size);
        assert!(block.offset().is_multiple_of(HEAP_ALIGNMENT));
        let all = world.allgather_collective(&[block.offset() as u64]).expect("all offsets");
        assert!(all.iter().all(|offset| *offset == block.offset() as u64), "one offset for all: {all:?}");
        for other in &blocks {
            let apart = block.offset() + size <= other.offset() || other.offset() + other.bytes() <= block.offset();
            assert!(apart && block.offset() != other.offset());
        }
        blocks.push(block);
    }
    let contents = |rank: u32, number: usize, size: usize| {
        arbitrary::<u8>(&mut Dice::new(&[u64::from(rank), number as u64]), size)
    };
    for (number, block) in blocks.iter().enumerate() {
        bytes.put(right, block.offset(), &contents(right, number, block.bytes())).expect("a put");
    }
    barrier(world);
    let check = |number: usize, block: &longarm::HeapBlock, size: usize| {
        let found = bytes.get_vec(me, block.offset()..block.offset() + size).expect("mine");
        assert_same(&found, &contents(me, number, block.bytes())[..size], format_args!("block {number}"));
    };
    blocks.iter().enumerate().for_each(|(number, block)| check(number, block, block.bytes()));
    // As elements of other types.
    let word = heap.index_of::<u64>(&blocks[3]);
    assert_eq!(word * 8, blocks[3].offset());
    heap.window::<u64>().fetch_add(me, word, 0).expect("a word of the heap");
    aligned(&heap);
    // A block that grows and shrinks keeps what fits. Number 5 is the large one.
    let large = blocks.remove(5);
    let grown = heap.reallocate_collective(large, 70_000).expect("a larger block");
    assert_eq!(grown.bytes(), 70_000);
    let kept = bytes.get_vec(me, grown.offset()..grown.offset() + 40_000).expect("mine");
    assert_same(&kept, &contents(me, 5, 40_000), "a block that grew");
    let place = grown.offset();
    let shrunk = heap.reallocate_collective(grown, 10).expect("a smaller block");
    assert_eq!(shrunk.offset(), place, "it stays where it is");
    let kept = bytes.get_vec(me, shrunk.offset()..shrunk.offset() + 10).expect("mine");
    assert_same(&kept, &contents(me, 5, 40_000)[..10], "a block that shrank");
    blocks.push(shrunk);
    exhausted(&heap, &mut blocks);
    for block in blocks {
        heap.free_collective(block).expect("a block goes back");
    }
    assert_eq!(heap.free_bytes(), HEAP_BYTES, "all is whole again");
    let whole = heap.allocate_collective(HEAP_BYTES).expect("the whole heap");
    assert_eq!((whole.offset(), heap.free_bytes()), (0, 0));
    heap.free_collective(whole).expect("the whole heap");
    if world.size() > 1 {
        let mismatch = heap.allocate_collective(if me == 0 { 100 } else { 200 });
        assert!(matches!(mismatch, Err(HeapError::Collective(CollectiveError::Mismatch { .. }))), "{mismatch:?}");
        let aligned = heap.allocate_aligned_collective(if me == 0 { 64 } else { 128 }, 100);
        let Err(HeapError::Collective(error @ CollectiveError::Mismatch { .. })) = aligned else {
            panic!("other alignments gave {aligned:?}");
        };
        let said = error.to_string();
        assert!(said.contains("100 bytes at a multiple of 64") && said.contains("at a multiple of 128"), "{said}");
        assert_eq!(heap.free_bytes(), HEAP_BYTES, "a refused call takes nothing");
    }
    not_moved(&heap);
    barrier(world);
}

/// A block whose contents cannot be moved, for the heap's window is freed, stays where it is, and no other one is taken.
fn not_moved(heap: &longarm::Heap) {
    let blocks = [100, 100].map(|bytes| heap.allocate_collective(bytes).expect("a block"));
    let free = heap.free_bytes();
    heap.window::<u8>().free_collective().expect("all live");
    let [first, second] = blocks;
    let offset = first.offset();
    let Err((HeapError::Transfer(TransferError::FreedWindow { .. }), first)) = heap.reallocate_collective(first, 1000)
    else {
        panic!("a freed window gives nothing");
    };
    assert_eq!((first.offset(), heap.free_bytes()), (offset, free));
    [first, second].into_iter().for_each(|block| heap.free_collective(block).expect("a block goes back"));
    assert_eq!(heap.free_bytes(), HEAP_BYTES, "all is whole again");
}

fn aligned(heap: &longarm::Heap) {
    let mut taken = Vec::new();
    for alignment in [1, 2, 64, 128, 4096, 65_536] {
        let block = heap.allocate_aligned_collective(alignment, 10).expect("an aligned block");
        assert!(block.offset().is_multiple_of(alignment.max(HEAP_ALIGNMENT)));
        taken.push(block);
    }
    for wrong in [0, 3, 96, usize::MAX] {
        let refusal = heap.allocate_aligned_collective(wrong, 10);
        assert_eq!(refusal, Err(HeapError::BadAlignment { alignment: wrong }));
    }
    taken.into_iter().for_each(|block| heap.free_collective(block).expect("a block goes back"));
}

fn exhausted(heap: &longarm::Heap, blocks: &mut Vec<longarm::HeapBlock>) {
    let free = heap.free_bytes();
    for bytes in [HEAP_BYTES, HEAP_BYTES + 1, usize::MAX, usize::MAX - 100] {
        let refusal = heap.allocate_collective(bytes);
        assert_eq!(refusal, Err(HeapError::Exhausted { bytes, heap_bytes: HEAP_BYTES as u64 }));
    }
    // A block that cannot grow is given back as it was.
    let block = blocks.pop().expect("a block");
    let offset = block.offset();
    let Err((HeapError::Exhausted { .. }, block)) = heap.reallocate_collective(block, HEAP_BYTES) else {
        panic!("it cannot grow that much");
    };
    assert_eq!((block.offset(), heap.free_bytes()), (offset, free));
    blocks.push(block);
    // Until nothing is left, and again.
    for _ in 0..2 {
        let mut taken = Vec::new();
        while let Ok(block) = heap.allocate_collective(100_000) {
            taken.push(block);
        }
        assert!(!taken.is_empty() && heap.free_bytes() < free);
        taken.into_iter().for_each(|block| heap.free_collective(block).expect("a block goes back"));
        assert_eq!(heap.free_bytes(), free);
    }
}
