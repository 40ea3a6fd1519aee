//! Windows and blocks of the heap in huge pages.

use longarm::World;
use longarm::topology::Machine;

use super::support::{ahead, barrier};

pub const VARIABLES: &[(&str, &str)] = &[("LONGARM_HUGE_PAGES", "yes"), ("LONGARM_HEAP_BYTES", "64m")];

const BYTES: usize = 32 << 20;

/// Memory of this process in huge pages that it shares, in bytes.
fn huge_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
    let lines = maps.lines().filter_map(|line| line.strip_prefix("ShmemPmdMapped:"));
    lines.map(|line| line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024).sum()
}

/// They are had where the system gives them, and what others write there is what is read.
pub fn had(world: &World) {
    let (me, next) = (world.rank(), ahead(world, 1));
    let window = world.allocate_collective::<u32>(BYTES / 4).expect("a window");
    check_huge(world, BYTES / 2);
    let places = [0, 1, (2 << 20) / 4 - 1, (2 << 20) / 4, BYTES / 4 - 1];
    for place in places {
        assert_eq!(window.get_one(me, place), Ok(0), "a new window is zeros");
    }
    barrier(world);
    places.iter().for_each(|place| window.put_one(next, *place, 7 + *place as u32).expect("a put"));
    barrier(world);
    for place in places {
        assert_eq!(window.get_one(me, place), Ok(7 + place as u32));
    }

    let heap = world.heap_collective().expect("a heap");
    let block = heap.allocate_aligned_collective(2 << 20, BYTES).expect("a block");
    check_huge(world, BYTES + BYTES / 2);
    let bytes = heap.window::<u8>();
    bytes.put_one(next, block.offset() + BYTES - 1, 9).expect("a put");
    barrier(world);
    assert_eq!(bytes.get_one(me, block.offset() + BYTES - 1), Ok(9));
    barrier(world);
    heap.free_collective(block).expect("it is freed");
    window.free_collective().expect("it is freed");

    // Another window in place of the first one, as empty.
    let window = world.allocate_collective::<u32>(BYTES / 4).expect("a window");
    places.iter().for_each(|place| assert_eq!(window.get_one(me, *place), Ok(0)));
    window.free_collective().expect("it is freed");
}

/// More than so many bytes are in huge pages, if the system makes them: a few may be missing where memory is in small pieces.
fn check_huge(world: &World, bytes: usize) {
    if !Machine::probe().huge_pages.on_request {
        if world.rank() == 0 {
            println!("not checked: this system makes no huge pages on request");
        }
        return;
    }
    let huge = huge_bytes();
    assert!(huge > bytes as u64, "{huge} bytes are in huge pages, not {bytes}");
}
