//! Accumulate: every type, update, form and shape, compared with a model; and from all ranks at once.

use longarm::error::TransferError;
use longarm::{Complex32, Complex64, Number, Update, Word, World};

use super::form::{Form, Target};
use super::shape::Shape;
use super::support::{Dice, Said, arbitrary, assert_same, barrier, ranks};
use super::transfers::{Areas, Expected, extent, is_mine, window_of_areas, with_buffers};

/// Values whose sums are exact in any order, and the arithmetic done the plain way.
pub trait Sample: Number {
    fn sample(dice: &mut Dice) -> Self;
    fn factor(dice: &mut Dice) -> Self;
    /// `None` where the type has no such update.
    fn updated(self, update: Update<Self>, source: Self) -> Option<Self>;
}

macro_rules! integer_sample {
    ($($type:ty)*) => {$(
        impl Sample for $type {
            fn sample(dice: &mut Dice) -> $type {
                dice.roll() as $type
            }

            fn factor(dice: &mut Dice) -> $type {
                dice.roll() as $type
            }

            fn updated(self, update: Update<$type>, source: $type) -> Option<$type> {
                // Wide arithmetic, cut down: not the wrapping operations that the library uses.
                let wide = |value: $type| value as i128;
                Some(match update {
                    Update::Sum => (wide(self) + wide(source)) as $type,
                    Update::Scaled(factor) => wide(factor).wrapping_mul(wide(source)).wrapping_add(wide(self)) as $type,
                    Update::Min => if source < self { source } else { self },
                    Update::Max => if source > self { source } else { self },
                    Update::And => !(!self | !source),
                    Update::Or => !(!self & !source),
                    Update::Xor => (self | source) & !(self & source),
                    Update::Replace => source,
                })
            }
        }
    )*};
}

integer_sample!(i32 u32 i64 u64);

macro_rules! float_sample {
    ($($type:ident)*) => {$(
        impl Sample for $type {
            fn sample(dice: &mut Dice) -> $type {
                dice.below(2001) as $type - 1000.0
            }

            fn factor(dice: &mut Dice) -> $type {
                [2.0, -1.0, 0.5, 3.0][dice.below(4)]
            }

            fn updated(self, update: Update<$type>, source: $type) -> Option<$type> {
                Some(match update {
                    Update::Sum => self + source,
                    Update::Scaled(factor) => self + factor * source,
                    Update::Min => if source < self { source } else { self },
                    Update::Max => if source > self { source } else { self },
                    Update::Replace => source,
                    Update::And | Update::Or | Update::Xor => return None,
                })
            }
        }
    )*};
}

float_sample!(f32 f64);

macro_rules! complex_sample {
    ($($type:ident)*) => {$(
        impl Sample for $type {
            fn sample(dice: &mut Dice) -> $type {
                $type { re: dice.below(2001) as _, im: -(dice.below(1001) as i32) as _ }
            }

            fn factor(dice: &mut Dice) -> $type {
                [$type { re: 2.0, im: -1.0 }, $type { re: 0.0, im: 1.0 }, $type { re: -0.5, im: 0.0 }][dice.below(3)]
            }

            fn updated(self, update: Update<$type>, source: $type) -> Option<$type> {
                let product = |left: $type, right: $type| $type {
                    re: left.re * right.re - left.im * right.im,
                    im: left.re * right.im + left.im * right.re,
                };
                let sum = |left: $type, right: $type| $type { re: left.re + right.re, im: left.im + right.im };
                Some(match update {
                    Update::Sum => sum(self, source),
                    Update::Scaled(factor) => sum(self, product(factor, source)),
                    Update::Replace => source,
                    _ => return None,
                })
            }
        }
    )*};
}

complex_sample!(Complex32 Complex64);

pub fn integers(world: &World) {
    every::<i32>(world);
    every::<u32>(world);
    every::<i64>(world);
    every::<u64>(world);
}

pub fn floats(world: &World) {
    every::<f32>(world);
    every::<f64>(world);
}

pub fn complex(world: &World) {
    every::<Complex32>(world);
    every::<Complex64>(world);
}

fn updates<T: Sample>(dice: &mut Dice) -> Vec<Update<T>> {
    let all = [
        Update::Sum,
        Update::Scaled(T::factor(dice)),
        Update::Min,
        Update::Max,
        Update::And,
        Update::Or,
        Update::Xor,
        Update::Replace,
    ];
    all.into_iter().filter(|update| T::default().updated(*update, T::default()).is_some()).collect()
}

fn samples<T: Sample>(dice: &mut Dice, count: usize) -> Vec<T> {
    (0..count).map(|_| T::sample(dice)).collect()
}

fn every<T: Sample>(world: &World) {
    let window = window_of_areas::<T>(world);
    let mut areas = Areas::new(world);
    let mut case = 0;
    for form in Form::EVERY {
        let mut dice = Dice::new(&[T::TYPE as u64, form as u64, u64::from(world.rank())]);
        for (number, update) in updates::<T>(&mut dice).into_iter().enumerate() {
            // The largest shapes with one form each, and another one at every rank.
            let large = (number + world.rank() as usize) % Form::EVERY.len() == form as usize;
            for shapes in Shape::every(&mut dice, large) {
                case += 1;
                let rank = dice.below(world.size() as usize) as u32;
                if is_mine(world, case) {
                    let target = Target { world, window: &window, rank, base: areas.base() };
                    one(&target, form, update, &shapes, &mut dice, &mut areas);
                }
            }
        }
    }
    areas.compare_at_targets(world, &window);
    window.free_collective().expect("the window can be freed");
}

fn one<T: Sample>(
    target: &Target<'_, T>,
    form: Form,
    update: Update<T>,
    shapes: &[Shape],
    dice: &mut Dice,
    areas: &mut Areas<T>,
) {
    let mut expected = Expected::new(samples::<T>(dice, extent(shapes)));
    target.window.put(target.rank, target.base, &expected.elements).expect("the area is filled");
    let parts = with_buffers(shapes, |count| samples::<T>(dice, count));
    for (shape, source) in &parts {
        if update == Update::Replace {
            expected.write(shape.pairs().into_iter().map(|(to, from)| (to, source[from])).collect());
            continue;
        }
        // Places that are met several times are updated several times.
        for (to, from) in shape.pairs() {
            expected.elements[to] = expected.elements[to].updated(update, source[from]).expect("it exists");
        }
    }
    let what = || format!("accumulate {update:?} to rank {} as {form:?} of {shapes:?}", target.rank);
    let returned = target.accumulate(form, update, parts.clone());
    for (buffer, (_, source)) in returned.iter().flatten().zip(&parts) {
        assert_same(buffer, source, Said(|| format!("the source of an {}", what())));
    }
    let found = target
        .window
        .get_vec(target.rank, target.base..target.base + expected.elements.len())
        .expect("the area is read");
    expected.check(&found, &what);
    areas.note(target.rank, &found);
}

/// All ranks update the same elements of every rank, in every shape that has them.
pub fn concurrent(world: &World) {
    sums::<i32>(world);
    sums::<u64>(world);
    sums::<f32>(world);
    sums::<f64>(world);
    sums::<Complex32>(world);
    sums::<Complex64>(world);
    bits::<u32>(world);
    bits::<i64>(world);
    extremes(world);
    large_sums(world);
}

/// Rounds for each rank, fewer where there are many of them.
fn rounds(world: &World) -> usize {
    if world.size() > 4 { 30 } else { 100 }
}

fn sums<T: Sample>(world: &World) {
    const ELEMENTS: usize = 64;
    let window = world.allocate_collective::<T>(ELEMENTS).expect("a window");
    let one = |dice: &mut Dice| samples::<T>(dice, ELEMENTS);
    let dice_of = |rank: u32| Dice::new(&[u64::from(rank), 17]);
    let mut dice = dice_of(world.rank());
    // Small enough that all sums of 16 ranks are exact in an `f32`.
    let bound = rounds(world);
    for round in 0..bound {
        for target in ranks(world) {
            let source = one(&mut dice);
            match round % 3 {
                0 => window.accumulate(target, 0, Update::Sum, &source).expect("a sum"),
                1 => drop(window.start_accumulate(target, 0, Update::Sum, source).expect("a sum")),
                _ => {
                    world.scope(|scope| scope.accumulate(&window, target, 0, Update::Sum, &source)).expect("a scope");
                }
            }
        }
    }
    barrier(world);
    let mut expected = vec![T::default(); ELEMENTS];
    for origin in ranks(world) {
        let mut dice = dice_of(origin);
        for _ in 0..bound {
            for target in ranks(world) {
                let source = one(&mut dice);
                if target == world.rank() {
                    for (sum, source) in expected.iter_mut().zip(source) {
                        *sum = sum.updated(Update::Sum, source).expect("it exists");
                    }
                }
            }
        }
    }
    let found = window.get_vec(world.rank(), 0..ELEMENTS).expect("one's own part");
    assert_same(&found, &expected, "sums of all ranks");
    barrier(world);
}

/// Every rank flips, sets and clears bits; the outcome of all of them together is known.
fn bits<T: Sample + Word>(world: &World) {
    let window = world.allocate_collective::<T>(3).expect("a window");
    let full = u64::MAX;
    window.put(world.rank(), 2, &[T::from_bits(full)]).expect("all bits");
    barrier(world);
    let mine = 1_u64 << (world.rank() % 32);
    for round in 0..=rounds(world) * 2 {
        for target in ranks(world) {
            window.accumulate(target, 0, Update::Xor, &[T::from_bits(mine)]).expect("xor");
            if round == 7 {
                window.accumulate(target, 1, Update::Or, &[T::from_bits(mine)]).expect("or");
                window.accumulate(target, 2, Update::And, &[T::from_bits(full & !mine)]).expect("and");
            }
        }
    }
    barrier(world);
    let all = ranks(world).fold(0_u64, |bits, rank| bits | 1 << (rank % 32));
    let expected = [all, all, full & !all].map(T::from_bits);
    assert_same(&window.get_vec(world.rank(), 0..3).expect("mine"), &expected, "bits of all ranks");
    barrier(world);
}

fn extremes(world: &World) {
    let window = world.allocate_collective::<f64>(2).expect("a window");
    let mut dice = Dice::new(&[u64::from(world.rank()), 5]);
    let (mut least, mut most) = (0.0_f64, 0.0_f64);
    for _ in 0..rounds(world) {
        let value = dice.below(1 << 30) as f64 - f64::from(1 << 29);
        (least, most) = (least.min(value), most.max(value));
        for target in ranks(world) {
            window.accumulate(target, 0, Update::Min, &[value]).expect("min");
            window.accumulate(target, 1, Update::Max, &[value]).expect("max");
        }
    }
    barrier(world);
    let mut all = [-least, most];
    world.allreduce_collective(longarm::Reduction::Max, &mut all).expect("the extremes of all");
    let found = window.get_vec(world.rank(), 0..2).expect("mine");
    assert_same(&found, &[-all[0], all[1]], "extremes of all ranks");
    barrier(world);
}

/// Accumulates that are longer than a chunk, so that those of several ranks are applied in pieces.
fn large_sums(world: &World) {
    const ELEMENTS: usize = 150_001;
    let window = world.allocate_collective::<f64>(ELEMENTS).expect("a window");
    let source = vec![f64::from(world.rank() + 1); ELEMENTS];
    let targets = ranks(world).filter(|target| *target < 4);
    for target in targets.clone() {
        window.accumulate(target, 0, Update::Scaled(2.0), &source).expect("a large sum");
        drop(window.start_accumulate(target, 0, Update::Sum, source.clone()).expect("a large sum"));
    }
    barrier(world);
    if targets.clone().any(|target| target == world.rank()) {
        let sum: f64 = ranks(world).map(|rank| 3.0 * f64::from(rank + 1)).sum();
        let found = window.get_vec(world.rank(), 0..ELEMENTS).expect("mine");
        assert_same(&found, &vec![sum; ELEMENTS], "large sums");
    }
    barrier(world);
}

/// An update that makes no sense for a type is an error, and changes nothing.
pub fn refused(world: &World) {
    fn refuse<T: Number>(world: &World, updates: &[Update<T>]) {
        let window = world.allocate_collective::<T>(4).expect("a window");
        let before = arbitrary::<T>(&mut Dice::new(&[9]), 4);
        window.put(world.rank(), 0, &before).expect("contents");
        barrier(world);
        let source = vec![T::default(); 2];
        for target in ranks(world) {
            for update in updates {
                let refusal = Err(TransferError::NoSuchKernel { rank: longarm::error::Rank(target) });
                assert_eq!(window.accumulate(target, 1, *update, &source), refusal);
                assert!(window.start_accumulate(target, 1, *update, source.clone()).is_err());
                let scoped = world.scope(|scope| scope.accumulate(&window, target, 1, *update, &source));
                assert_eq!(scoped, refusal);
            }
        }
        barrier(world);
        assert_same(&window.get_vec(world.rank(), 0..4).expect("mine"), &before, "after refusals");
        barrier(world);
    }
    refuse::<f32>(world, &[Update::And, Update::Or, Update::Xor]);
    refuse::<f64>(world, &[Update::And, Update::Or, Update::Xor]);
    refuse::<Complex32>(world, &[Update::And, Update::Or, Update::Xor, Update::Min, Update::Max]);
    refuse::<Complex64>(world, &[Update::And, Update::Or, Update::Xor, Update::Min, Update::Max]);
}
