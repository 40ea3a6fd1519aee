//! Lengths and offsets that 32 bits cannot count.

use longarm::{Patch, Update, World};

use super::support::{assert_same, barrier, ranks};

/// One put and one get of 4 GiB and 5 bytes. Selected places are compared: those where a length that was cut, or an
/// offset that wrapped around, would show.
pub fn transfers(world: &World) {
    const BYTES: usize = (4 << 30) + 5;
    const START: usize = 3;
    const PLACES: [usize; 9] =
        [0, 1, (1 << 20) + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 3, BYTES - 1];
    let window = world.allocate_collective::<u8>(BYTES + 10).expect("a sparse window");
    if world.rank() == 0 {
        let mut buffer = vec![0; BYTES];
        for (number, place) in PLACES.into_iter().enumerate() {
            buffer[place] = 100 + number as u8;
        }
        window.put(1, START, &buffer).expect("a put of more than 4 GiB");
        world.quiet_rank(1).expect("quiet");
        for place in PLACES {
            buffer[place] = 1;
        }
        buffer = window.start_get(1, START, buffer).expect("a get").wait().expect("a get of more than 4 GiB");
        for (number, place) in PLACES.into_iter().enumerate() {
            assert_eq!(buffer[place], 100 + number as u8, "byte {place} that came back");
            assert!(PLACES.contains(&(place + 2)) || buffer.get(place + 2).is_none_or(|byte| *byte == 0));
        }
    }
    barrier(world);
    if world.rank() == 1 {
        for (number, place) in PLACES.into_iter().enumerate() {
            assert_eq!(window.get_one(1, START + place), Ok(100 + number as u8), "byte {place} at the target");
        }
        let margins = [window.get_vec(1, 0..START), window.get_vec(1, START + BYTES..START + BYTES + 7)]
            .map(Result::unwrap)
            .concat();
        assert_same(&margins, &[0; START + 7], "in front and behind");
    }
    barrier(world);
    window.free_collective().expect("it is freed");
}

/// Small operations far out, and strides of gibibytes.
pub fn offsets(world: &World) {
    const COUNT: usize = 5 << 27; // 5 GiB of words.
    let window = world.allocate_collective::<u64>(COUNT).expect("a sparse window");
    let me = world.rank() as usize;
    let near = |place: usize| place + 8 * me;
    for target in ranks(world) {
        for place in [0, 1 << 29, (1 << 29) - 1000, COUNT - 1000] {
            let value = (place + me) as u64;
            window.put(target, near(place), &[value, value + 1]).expect("a put");
            window.accumulate(target, near(place) + 1, Update::Sum, &[5]).expect("an accumulate");
            assert_eq!(window.fetch_add(target, near(place), 1), Ok(value));
            assert_eq!(window.get_vec(target, near(place)..near(place) + 3), Ok(vec![value + 1, value + 6, 0]));
        }
        // One element each GiB, backwards.
        let gibibyte = 1 << 27;
        let far = Patch::new(near(4 * gibibyte + 500), &[5], &[-(gibibyte as isize)]);
        window.put(target, far.with_buffer(&Patch::packed(&[5])), &[1, 2, 3, 4, 5]).expect("a patch");
        let mut found = [0; 5];
        window.get(target, far.with_buffer(&Patch::new(4, &[5], &[-1])), &mut found).expect("a patch");
        assert_eq!(found, [5, 4, 3, 2, 1]);
        assert_eq!(window.get_one(target, near(500)), Ok(5));
    }
    barrier(world);
    window.free_collective().expect("it is freed");
}
