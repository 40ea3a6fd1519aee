//! Put and get: every type, form and shape, compared with a model at the origin and again at the target.
//!
//! Each rank owns an area in every part. It fills a piece of it, does the operation, and reads the piece back with a
//! margin on both sides. At the end the target compares its part with what the owners say should stand there.

use longarm::{Complex32, Complex64, Element, Handle, Segment, Update, Window, World, wait_all};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::form::{Form, Operand, Target, finish};
use super::shape::{Grid, MARGIN, Shape};
use super::support::{Dice, Said, ahead, arbitrary, assert_same, barrier, ranks};

/// Elements of a rank's area in every part.
const AREA: usize = 24_000;

/// A record as programs have them: of several fields, and no power of two in size.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Particle {
    id: u64,
    place: [f32; 3],
    kind: [u8; 4],
}

pub fn words(world: &World) {
    put_and_get::<i32>(world);
    put_and_get::<u32>(world);
    put_and_get::<i64>(world);
    put_and_get::<u64>(world);
}

pub fn floats(world: &World) {
    put_and_get::<f32>(world);
    put_and_get::<f64>(world);
    put_and_get::<Complex32>(world);
    put_and_get::<Complex64>(world);
}

pub fn structs(world: &World) {
    put_and_get::<Particle>(world);
    put_and_get::<u8>(world);
    put_and_get::<[u8; 3]>(world);
    put_and_get::<u16>(world);
}

/// What elements are to be. Where one operation writes a place several times, any of its values may be there.
#[derive(Clone)]
pub struct Expected<T> {
    pub elements: Vec<T>,
    open: Vec<(usize, Vec<T>)>,
}

impl<T: Element> Expected<T> {
    pub fn new(elements: Vec<T>) -> Expected<T> {
        Expected { elements, open: Vec::new() }
    }

    /// One operation that writes these places.
    pub fn write(&mut self, mut writes: Vec<(usize, T)>) {
        writes.sort_by_key(|write| write.0);
        for same in writes.chunk_by(|left, right| left.0 == right.0) {
            let place = same[0].0;
            self.open.retain(|open| open.0 != place);
            self.elements[place] = same[0].1;
            if same.len() > 1 {
                self.open.push((place, same.iter().map(|write| write.1).collect()));
            }
        }
    }

    /// Compares; afterwards the elements are those that were found.
    #[track_caller]
    pub fn check(&mut self, found: &[T], what: &dyn Fn() -> String) {
        for (place, values) in self.open.drain(..) {
            if let Some(value) = values.iter().find(|value| value.as_bytes() == found[place].as_bytes()) {
                self.elements[place] = *value;
            }
        }
        if found.as_bytes() != self.elements.as_bytes() {
            assert_same(found, &self.elements, what());
        }
    }
}

/// What the areas of this rank at all targets hold, to be compared at the targets in the end.
pub struct Areas<T> {
    base: usize,
    expected: Vec<Vec<T>>,
}

impl<T: Element> Areas<T> {
    pub fn new(world: &World) -> Areas<T> {
        let expected = ranks(world).map(|_| Vec::new()).collect();
        Areas { base: world.rank() as usize * AREA, expected }
    }

    pub fn base(&self) -> usize {
        self.base
    }

    /// The start of the area at a rank is this now.
    pub fn note(&mut self, rank: u32, elements: &[T]) {
        let known = &mut self.expected[rank as usize];
        let overwritten = known.len().min(elements.len());
        known[..overwritten].copy_from_slice(&elements[..overwritten]);
        known.extend_from_slice(&elements[overwritten..]);
    }

    /// All ranks compare their own parts.
    pub fn compare_at_targets(self, world: &World, window: &Window<T>) {
        barrier(world);
        let told = world.alltoallv_collective(&self.expected).expect("an exchange");
        for (owner, elements) in told.iter().enumerate() {
            let found =
                window.get_vec(world.rank(), owner * AREA..owner * AREA + elements.len()).expect("one's own part");
            assert_same(&found, elements, format_args!("at the target, area of rank {owner}"));
        }
        barrier(world);
    }
}

/// With more ranks each does a smaller share of the cases, so that all together do as many.
pub fn is_mine(world: &World, case: usize) -> bool {
    let share = (world.size() as usize / 4).max(1);
    (case + world.rank() as usize).is_multiple_of(share)
}

pub fn window_of_areas<T: Element>(world: &World) -> Window<T> {
    world.allocate_collective(AREA * world.size() as usize).expect("a window")
}

fn put_and_get<T: Element>(world: &World) {
    let window = window_of_areas::<T>(world);
    let mut areas = Areas::new(world);
    let mut case = 0;
    for form in Form::EVERY {
        let mut dice = Dice::new(&[size_of::<T>() as u64, form as u64, u64::from(world.rank())]);
        for shapes in Shape::every(&mut dice, true) {
            case += 1;
            let rank = dice.below(world.size() as usize) as u32;
            if is_mine(world, case) {
                let target = Target { world, window: &window, rank, base: areas.base() };
                put_case(&target, form, &shapes, &mut dice, &mut areas);
                get_case(&target, form, &shapes, &mut dice, &mut areas);
            }
        }
    }
    areas.compare_at_targets(world, &window);
    window.free_collective().expect("the window can be freed");
}

/// How many elements of the area the shapes reach, with a margin.
pub fn extent(shapes: &[Shape]) -> usize {
    let end = shapes.iter().map(Shape::target_end).max().unwrap_or(0);
    assert!(end + MARGIN <= AREA, "the area is too small");
    end + MARGIN
}

/// Buffers of the right length for all shapes. That of a run is all of it.
pub fn with_buffers<T>(shapes: &[Shape], mut make: impl FnMut(usize) -> Vec<T>) -> Vec<Operand<T>> {
    let margin = |shape: &Shape| if matches!(shape, Shape::Run { .. }) { 0 } else { MARGIN };
    shapes.iter().map(|shape| (shape.clone(), make(shape.origin_end() + margin(shape)))).collect()
}

fn put_case<T: Element>(target: &Target<'_, T>, form: Form, shapes: &[Shape], dice: &mut Dice, areas: &mut Areas<T>) {
    let mut expected = Expected::new(arbitrary::<T>(dice, extent(shapes)));
    target.window.put(target.rank, target.base, &expected.elements).expect("the area is filled");
    let parts = with_buffers(shapes, |count| arbitrary::<T>(dice, count));
    for (shape, source) in &parts {
        expected.write(shape.pairs().into_iter().map(|(to, from)| (to, source[from])).collect());
    }
    let what = || format!("put to rank {} as {form:?} of {shapes:?}", target.rank);
    let returned = target.put(form, parts.clone());
    for (buffer, (_, source)) in returned.iter().flatten().zip(&parts) {
        assert_same(buffer, source, Said(|| format!("the source of a {}", what())));
    }
    let found = target
        .window
        .get_vec(target.rank, target.base..target.base + expected.elements.len())
        .expect("the area is read");
    expected.check(&found, &what);
    areas.note(target.rank, &found);
}

fn get_case<T: Element>(target: &Target<'_, T>, form: Form, shapes: &[Shape], dice: &mut Dice, areas: &mut Areas<T>) {
    let there = arbitrary::<T>(dice, extent(shapes));
    target.window.put(target.rank, target.base, &there).expect("the area is filled");
    areas.note(target.rank, &there);
    let parts = with_buffers(shapes, |count| arbitrary::<T>(dice, count));
    let Some(returned) = target.get(form, parts.clone()) else { return };
    for (buffer, (shape, before)) in returned.iter().zip(parts) {
        let mut expected = Expected::new(before);
        expected.write(shape.pairs().into_iter().map(|(from, to)| (to, there[from])).collect());
        expected.check(buffer, &|| format!("get from rank {} as {form:?} of {shape:?}", target.rank));
    }
}

/// Lengths at and around the eager limit, the chunk, pages and lines, at odd offsets, in all forms.
pub fn lengths(world: &World) {
    const LENGTHS: [usize; 16] = [
        63,
        64,
        65,
        4095,
        4096,
        4097,
        16 * 1024 - 1,
        16 * 1024,
        16 * 1024 + 1,
        65_536,
        (1 << 20) - 1,
        1 << 20,
        (1 << 20) + 1,
        (2 << 20) + 7,
        (3 << 20) - 5,
        5 << 20,
    ];
    let room = (5 << 20) + 64;
    let window = world.allocate_collective::<u8>(room).expect("a window");
    let mut dice = Dice::new(&[u64::from(world.rank())]);
    for (round, length) in LENGTHS.into_iter().enumerate() {
        for distance in 0..world.size() {
            // One origin a target at a time; with many ranks each distance has some of the lengths.
            if !(round + distance as usize).is_multiple_of((world.size() as usize / 2).max(1)) {
                continue;
            }
            let target = ahead(world, distance);
            let form = Form::EVERY[(round * 7 + distance as usize) % Form::EVERY.len()];
            let start = dice.below(32);
            let frame = arbitrary::<u8>(&mut dice, length + 2 * MARGIN);
            let source = arbitrary::<u8>(&mut dice, length);
            window.put(target, start, &frame).expect("a frame");
            let mut expected = frame;
            expected[MARGIN..MARGIN + length].copy_from_slice(&source);
            let place = Target { world, window: &window, rank: target, base: start };
            let shape = Shape::Run { target: MARGIN, count: length };
            place.put(form, vec![(shape.clone(), source)]);
            let found = window.get_vec(target, start..start + expected.len()).expect("what was put");
            assert_same(&found, &expected, format_args!("{length} bytes to rank {target} as {form:?}"));
            if let Some(got) = place.get(form, vec![(shape, vec![0; length])]) {
                assert_same(&got[0], &expected[MARGIN..MARGIN + length], format_args!("{length} bytes back, {form:?}"));
            }
            world.sync_collective().expect("the next one");
        }
    }
    barrier(world);
}

/// Patches and lists of segments of several megabytes: many frames, many chunks, long runs and short ones.
pub fn large_shapes(world: &World) {
    let window = world.allocate_collective::<f64>(900_000).expect("a window");
    let rows = |start: usize, stride: isize| Grid { start, counts: vec![500, 600], strides: vec![stride, 1] };
    let columns = |start: usize| Grid { start, counts: vec![500, 600], strides: vec![1, 500] };
    let pieces = |count: usize, length: usize, gap: usize| {
        let piece =
            |at: usize| Segment { target: 3 + at * (length + gap), origin: (count - 1 - at) * length, count: length };
        Shape::Vector((0..count).map(piece).collect())
    };
    let shapes = [
        Shape::Strided { target: rows(7, 700), origin: rows(1, 600) },
        Shape::Strided {
            target: rows(400_000, -650),
            origin: Grid { start: 0, counts: vec![300_000], strides: vec![1] },
        },
        // Single elements at the target, and on both sides.
        Shape::Strided { target: columns(5), origin: rows(0, 601) },
        Shape::Strided { target: columns(5), origin: columns(2) },
        pieces(5000, 60, 1),
        pieces(300, 2000, 3),
        pieces(3, 150_000, 1),
    ];
    let forms = [Form::Blocking, Form::Wait, Form::Scope, Form::Dropped, Form::Test, Form::Forgotten, Form::Await];
    let mut dice = Dice::new(&[u64::from(world.rank()), 31]);
    for (round, shape) in shapes.iter().enumerate() {
        // One origin a target at a time, and four at most: they move megabytes.
        for distance in [1, [world.size() - 1, 0][round % 2]] {
            let rank = ahead(world, distance);
            if world.rank() < 4 {
                let form = forms[(round + distance as usize + world.rank() as usize) % forms.len()];
                large_shape(&Target { world, window: &window, rank, base: 0 }, form, shape, &mut dice);
            }
            barrier(world);
        }
    }
}

fn large_shape(target: &Target<'_, f64>, form: Form, shape: &Shape, dice: &mut Dice) {
    let mut expected: Vec<f64> = (0..shape.target_end() + MARGIN).map(|_| dice.below(1000) as f64).collect();
    let (window, rank) = (target.window, target.rank);
    window.put(rank, 0, &expected).expect("contents");
    let source: Vec<f64> = (0..shape.origin_end() + MARGIN).map(|_| dice.below(1000) as f64).collect();
    let pairs = shape.pairs();
    let what = |operation: &str| format!("{operation} of a large shape to rank {rank} as {form:?}");
    let mut check = |operation: &str, update: &dyn Fn(&mut f64, f64)| {
        pairs.iter().for_each(|(to, from)| update(&mut expected[*to], source[*from]));
        let found = window.get_vec(rank, 0..expected.len()).expect("what was written");
        assert_same(&found, &expected, what(operation));
    };
    target.accumulate(form, Update::Scaled(3.0), vec![(shape.clone(), source.clone())]);
    check("accumulate", &|to, from| *to += 3.0 * from);
    target.put(form, vec![(shape.clone(), source.clone())]);
    check("put", &|to, from| *to = from);
    // What comes back is what was put, with the gaps of the buffer as they were.
    let mut gaps = vec![-1.0; source.len()];
    let got = target.get(form, vec![(shape.clone(), gaps.clone())]);
    pairs.iter().for_each(|(_, from)| gaps[*from] = source[*from]);
    for buffer in got.iter().flatten() {
        assert_same(buffer, &gaps, what("get"));
    }
}

/// Hundreds of operations towards all ranks are in progress together, and complete in any order.
pub fn many_handles(world: &World) {
    const COUNT: usize = 40;
    const ELEMENTS: usize = 3000;
    let me = world.rank() as usize;
    let rounds = if world.size() > 4 { 1 } else { 4 };
    let window = world.allocate_collective::<u64>(world.size() as usize * COUNT * ELEMENTS).expect("a window");
    let contents = |origin: usize, target: u32, place: usize, round: usize| -> Vec<u64> {
        let mut dice = Dice::new(&[origin as u64, u64::from(target), place as u64, round as u64]);
        let count = [1, 10, 3000][place % 3];
        arbitrary(&mut dice, count)
    };
    for round in 0..rounds {
        let index = |origin: usize, place: usize| (origin * COUNT + place) * ELEMENTS;
        let mut puts: Vec<Handle<Vec<u64>>> = Vec::new();
        for place in 0..COUNT {
            for target in ranks(world) {
                let source = contents(me, target, place, round);
                puts.push(window.start_put(target, index(me, place), source).expect("a start"));
            }
        }
        // Gets behind the puts see them, although nobody has waited.
        let gets: Vec<Handle<Vec<u64>>> = (0..COUNT)
            .flat_map(|place| ranks(world).map(move |target| (place, target)))
            .map(|(place, target)| {
                let room = vec![0; [1, 10, 3000][place % 3]];
                window.start_get(target, index(me, place), room).expect("a start")
            })
            .collect();
        let form = [Form::WaitAll, Form::WaitSome, Form::Await, Form::WaitAny][round % 4];
        let got = finish(world, form, gets).expect("all gets");
        wait_all(puts).expect("all puts");
        let mut got = got.into_iter();
        for place in 0..COUNT {
            for target in ranks(world) {
                let (found, expected) = (got.next().expect("each"), contents(me, target, place, round));
                assert_same(&found, &expected, format_args!("round {round}, place {place} at rank {target}"));
            }
        }
        barrier(world);
        for origin in 0..world.size() as usize {
            for place in 0..COUNT {
                let expected = contents(origin, world.rank(), place, round);
                let found = window
                    .get_vec(world.rank(), index(origin, place)..index(origin, place) + expected.len())
                    .expect("mine");
                assert_same(&found, &expected, format_args!("round {round}, place {place} of rank {origin}"));
            }
        }
        barrier(world);
    }
}
