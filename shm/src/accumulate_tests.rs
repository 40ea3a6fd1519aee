use super::*;
use crate::stripe::{STRIPE_COUNT, StripeWord};
use crate::sync::{AtomicU32, Ordering};
use crate::window::Window;
use longarm_memory::Step;
use longarm_proto::{Rmw, RmwOp, RmwWidth};

fn words() -> Vec<StripeWord> {
    std::iter::repeat_with(StripeWord::default).take(STRIPE_COUNT).collect()
}

/// Memory of a window for a test, aligned as a page would be.
#[repr(C, align(4096))]
struct Memory([u8; 3 * 4096]);

impl Memory {
    fn new() -> Box<Self> {
        let mut memory = Box::new(Memory([0; 3 * 4096]));
        memory.0.iter_mut().enumerate().for_each(|(index, byte)| *byte = pattern(index));
        memory
    }
}

/// Where the windows of these tests start in their memfd: a block ends with their first page.
const PLACE_BYTES: u64 = 5 * BLOCK_BYTES as u64 - BLOCK_END;
/// Bytes from the start of the window to the end of its first block.
const BLOCK_END: u64 = 4096;

fn pattern(index: usize) -> u8 {
    (index * 167 + index / 97 + 13) as u8
}

/// Numbers as a program has them: small ones for the floating-point types, any bits for the others.
fn value_bytes(element: ElementType, index: usize) -> Vec<u8> {
    let number = |index: usize| ((index * 37) % 201) as f64 / 4.0 - 25.0;
    match element {
        ElementType::F32 => (number(index) as f32).to_le_bytes().to_vec(),
        ElementType::F64 => number(index).to_le_bytes().to_vec(),
        ElementType::C32 => [number(index) as f32, number(index + 7) as f32].map(f32::to_le_bytes).concat(),
        ElementType::C64 => [number(index), number(index + 7)].map(f64::to_le_bytes).concat(),
        _ => (0..element.bytes()).map(|byte| pattern(index * 8 + byte)).collect(),
    }
}

macro_rules! naive_integer {
    ($integer:ty, $op:expr, $scale:expr, $target:expr, $source:expr) => {{
        let number = |bytes: &[u8]| <$integer>::from_le_bytes(bytes[..size_of::<$integer>()].try_into().unwrap());
        let (target, source, scale) = (number($target), number($source), number(&$scale.0));
        let result = match $op {
            AccumulateOp::Sum => target.wrapping_add(scale.wrapping_mul(source)),
            AccumulateOp::Min => std::cmp::min(target, source),
            AccumulateOp::Max => std::cmp::max(target, source),
            AccumulateOp::And => target & source,
            AccumulateOp::Or => target | source,
            AccumulateOp::Xor => target ^ source,
            AccumulateOp::Replace => source,
        };
        result.to_le_bytes().to_vec()
    }};
}

macro_rules! naive_float {
    ($float:ty, $op:expr, $scale:expr, $target:expr, $source:expr) => {{
        let number = |bytes: &[u8]| <$float>::from_le_bytes(bytes[..size_of::<$float>()].try_into().unwrap());
        let (target, source, scale) = (number($target), number($source), number(&$scale.0));
        let result = match $op {
            AccumulateOp::Sum => target + scale * source,
            AccumulateOp::Min if source < target => source,
            AccumulateOp::Max if source > target => source,
            AccumulateOp::Min | AccumulateOp::Max => target,
            _ => source,
        };
        result.to_le_bytes().to_vec()
    }};
}

macro_rules! naive_complex {
    ($float:ty, $op:expr, $scale:expr, $target:expr, $source:expr) => {{
        let bytes = size_of::<$float>();
        let number = |of: &[u8], at: usize| <$float>::from_le_bytes(of[at..at + bytes].try_into().unwrap());
        let pair = |of: &[u8]| (number(of, 0), number(of, bytes));
        let ((tr, ti), (sr, si), (r, i)) = (pair($target), pair($source), pair(&$scale.0));
        let result = if $op == AccumulateOp::Sum { [tr + (r * sr - i * si), ti + (r * si + i * sr)] } else { [sr, si] };
        result.map(<$float>::to_le_bytes).concat()
    }};
}

fn naive(kernel: Kernel, scale: Scale, target: &[u8], source: &[u8]) -> Vec<u8> {
    match kernel.element() {
        ElementType::I32 => naive_integer!(i32, kernel.op(), scale, target, source),
        ElementType::I64 => naive_integer!(i64, kernel.op(), scale, target, source),
        ElementType::U32 => naive_integer!(u32, kernel.op(), scale, target, source),
        ElementType::U64 => naive_integer!(u64, kernel.op(), scale, target, source),
        ElementType::F32 => naive_float!(f32, kernel.op(), scale, target, source),
        ElementType::F64 => naive_float!(f64, kernel.op(), scale, target, source),
        ElementType::C32 => naive_complex!(f32, kernel.op(), scale, target, source),
        ElementType::C64 => naive_complex!(f64, kernel.op(), scale, target, source),
    }
}

fn scales(element: ElementType) -> [Scale; 2] {
    let other = match element {
        ElementType::I32 => Scale::from(-3_i32),
        ElementType::I64 => Scale::from(-3_i64),
        ElementType::U32 => Scale::from(7_u32),
        ElementType::U64 => Scale::from(u64::MAX / 3),
        ElementType::F32 => Scale::from(-2.5_f32),
        ElementType::F64 => Scale::from(0.25_f64),
        ElementType::C32 => Scale::from((0.5_f32, -2.0_f32)),
        ElementType::C64 => Scale::from((-1.0_f64, 3.0_f64)),
    };
    [Scale::one(element), other]
}

fn kernels() -> impl Iterator<Item = Kernel> {
    let pairs = ElementType::ALL.iter().flat_map(|&element| AccumulateOp::ALL.iter().map(move |&op| (element, op)));
    pairs.filter_map(|(element, op)| Kernel::new(element, op))
}

/// One accumulate against the naive answer, all other bytes of the window included.
fn check(kernel: Kernel, scale: Scale, offset: usize, count: usize, source_shift: usize) {
    let size = kernel.element().bytes();
    let mut memory = Memory::new();
    for index in 0..count {
        let at = offset + index * size;
        memory.0[at..at + size].copy_from_slice(&value_bytes(kernel.element(), index * 3 + 1));
    }
    let mut source = vec![0; source_shift];
    (0..count).for_each(|index| source.extend(value_bytes(kernel.element(), index * 5 + 2)));
    let source = &source[source_shift..];
    let mut expected = memory.0.to_vec();
    for index in 0..count {
        let at = offset + index * size;
        let result = naive(kernel, scale, &memory.0[at..at + size], &source[index * size..(index + 1) * size]);
        expected[at..at + size].copy_from_slice(&result);
    }
    let words = words();
    let window = Window::from_region(RegionMut::from_slice(&mut memory.0), PLACE_BYTES);
    let stripes = Stripes::new(&words);
    window.accumulate(offset as u64, kernel, &scale, Region::from_slice(source), &stripes, Rank(3)).unwrap();
    assert!(memory.0[..] == expected[..], "{kernel:?} {scale:?} at {offset}, {count} elements, shift {source_shift}");
    assert_eq!(stripes.release_of_dead(Rank(3)), 0, "all locks are free again");
}

#[test]
fn every_kernel_at_every_alignment_and_length_gives_the_naive_answer() {
    let counts: &[usize] = if cfg!(miri) {
        &[1, 67]
    } else {
        &[0, 1, 2, 3, 4, 5, 7, 8, 15, 31, 32, 33, 63, 64, 65, 127, 128, 129, 300, 511]
    };
    let offsets: &[usize] =
        if cfg!(miri) { &[8, 4093] } else { &[0, 1, 2, 4, 8, 12, 16, 31, 4080, 4088, 4090, 4092, 4095, 4096] };
    for kernel in kernels() {
        let scales = scales(kernel.element());
        let scales = if kernel.op() == AccumulateOp::Sum { &scales[..] } else { &scales[..1] };
        for &scale in scales {
            for &offset in offsets {
                for &count in counts {
                    check(kernel, scale, offset, count, (offset + count) % 5);
                }
            }
        }
    }
}

/// What the memory of a window is after some accumulates, whose locks are free again then.
fn combined(kernel: Kernel, scale: Scale, combine: impl FnOnce(&mut Accumulator<'_>)) -> Box<Memory> {
    let (words, mut memory) = (words(), Memory::new());
    let stripes = Stripes::new(&words);
    let window = Window::from_region(RegionMut::from_slice(&mut memory.0), PLACE_BYTES);
    let mut accumulator = window.accumulator((kernel, scale), stripes, Rank(3));
    combine(&mut accumulator);
    drop(accumulator);
    assert_eq!(stripes.release_of_dead(Rank(3)), 0, "all locks are free again");
    memory
}

#[test]
fn a_grid_of_runs_is_combined_like_its_runs_one_by_one() {
    let size_steps = if cfg!(miri) { 2 } else { 6 };
    for kernel in kernels().step_by(if cfg!(miri) { 7 } else { 1 }) {
        let size = kernel.element().bytes();
        let scale = scales(kernel.element())[usize::from(kernel.op() == AccumulateOp::Sum)];
        for (run, shift) in (0..size_steps).flat_map(|step| [(1 << step, 0), ((1 << step) + 1, 3)]) {
            let (run_bytes, offset) = (run * size, 64 + shift);
            // Rows that go over the end of a block, in three levels, one of them backwards at the source.
            let steps = [
                Step { count: 3, target_stride: (run_bytes + size) as isize, source_stride: run_bytes as isize },
                Step { count: 2, target_stride: 2000, source_stride: -3 * run_bytes as isize },
                Step { count: 2, target_stride: 4090 / size as isize * size as isize, source_stride: 0 },
            ];
            let source: Vec<u8> = (0..run * 9).flat_map(|index| value_bytes(kernel.element(), index * 5 + 2)).collect();
            let source_offset = 3 * run_bytes;
            let together = combined(kernel, scale, |accumulator| {
                let mut grid = Grid::new(run_bytes, offset, source_offset);
                assert!(steps.iter().all(|&step| grid.repeat(step)));
                accumulator.grid(&grid, Region::from_slice(&source)).unwrap();
            });
            let one_by_one = combined(kernel, scale, |accumulator| {
                let all =
                    (0..2).flat_map(|high| (0..2).flat_map(move |middle| (0..3).map(move |low| [low, middle, high])));
                for indices in all {
                    let at = |stride: fn(&Step) -> isize| {
                        steps.iter().zip(indices).map(|(step, index)| stride(step) * index).sum::<isize>()
                    };
                    let to = (offset as isize + at(|step| step.target_stride)) as u64;
                    let from = (source_offset as isize + at(|step| step.source_stride)) as usize;
                    accumulator.run(to, Region::from_slice(&source).slice(from, run_bytes)).unwrap();
                }
            });
            assert!(together.0 == one_by_one.0, "{kernel:?}, runs of {run_bytes} bytes");
        }
    }
}

#[test]
fn rows_that_come_to_the_end_of_a_block_are_combined_like_runs() {
    let sums = kernels().filter(|kernel| kernel.op() == AccumulateOp::Sum && !kernel.element().is_integer());
    for (kernel, count) in sums.flat_map(|kernel| [1, 2, 20].map(|count| (kernel, count))) {
        let size = kernel.element().bytes();
        let scale = scales(kernel.element())[1];
        for (run, gap, shift) in
            [(1, 0, 0), (1, 3, 3), (8, 8, 0), (8, 8, 5), (3, -1, 0), (5, -5, 2), (8, -16, 0), (2, -20, 4)]
        {
            let (run_bytes, stride) = (run * size, (run as isize + gap) * size as isize);
            // Some before the end of the block, some behind it, and perhaps one on it.
            let first = BLOCK_END as isize - count / 2 * stride + shift;
            let source: Vec<u8> =
                (0..run * count as usize).flat_map(|index| value_bytes(kernel.element(), index * 5 + 2)).collect();
            let together = combined(kernel, scale, |accumulator| {
                let mut grid = Grid::new(run_bytes, first as usize, 0);
                let step = Step { count: count as usize, target_stride: stride, source_stride: run_bytes as isize };
                assert!(grid.repeat(step));
                accumulator.grid(&grid, Region::from_slice(&source)).unwrap();
            });
            let one_by_one = combined(kernel, scale, |accumulator| {
                for row in 0..count {
                    let from = Region::from_slice(&source).slice(row as usize * run_bytes, run_bytes);
                    accumulator.run((first + row * stride) as u64, from).unwrap();
                }
            });
            assert!(
                together.0 == one_by_one.0,
                "{kernel:?}, {count} rows of {run_bytes} bytes, {stride} apart, {shift} over"
            );
        }
    }
}

#[test]
fn sums_of_rows_are_made_under_the_lock_of_their_block() {
    let kernel = Kernel::new(ElementType::F64, AccumulateOp::Sum).unwrap();
    combined(kernel, Scale::one(ElementType::F64), |accumulator| {
        let source = [0; 64 * 8];
        for (offset, block) in [(0, PLACE_BYTES >> BLOCK_BITS), (BLOCK_END, (PLACE_BYTES >> BLOCK_BITS) + 1)] {
            let mut grid = Grid::new(64, offset as usize, 0);
            assert!(grid.repeat(Step { count: 8, target_stride: 128, source_stride: 64 }));
            accumulator.grid(&grid, Region::from_slice(&source)).unwrap();
            let held = accumulator.held.as_ref().map(|held| (held.block, held.bytes_left));
            assert_eq!(held, Some((block, BLOCK_BYTES + 8 - 8 * 64)));
            accumulator.release();
        }
        // How many begin, with their last elements too, before the end: of runs of 64 bytes, 128 apart unless said otherwise.
        for (offset, stride, expected) in [
            (0, 128, 32),
            (3, 128, 32),
            (71, 128, 32),
            (72, 128, 31),
            (4039, 128, 1),
            (4040, 128, 0),
            (4088, 128, 0),
            (0, 64, 40),
            (0, 56, 0),
            (0, 16_384, 1),
            (0, 0, 0),
            (0, -128, 0),
        ] {
            let mut grid = Grid::new(64, if stride < 0 { 39 * 128 } else { 0 }, 0);
            assert!(grid.repeat(Step { count: 40, target_stride: stride, source_stride: 0 }));
            let mut room = vec![0; 64 + 39 * stride.unsigned_abs()];
            grid.for_each_rows(RegionMut::from_slice(&mut room), Region::from_slice(&source), |rows| {
                assert_eq!(accumulator.rows_in_block(PLACE_BYTES + offset, &rows), expected, "{offset}, {stride}");
            });
        }
    });
}

#[test]
fn sums_of_rows_wait_for_the_lock_of_their_block() {
    let words = words();
    let stripes = Stripes::new(&words);
    let mut memory = Memory::new();
    memory.0.fill(0);
    let window = Window::from_region(RegionMut::from_slice(&mut memory.0), PLACE_BYTES);
    let kernel = Kernel::new(ElementType::F64, AccumulateOp::Sum).unwrap();
    let source = 1_f64.to_le_bytes().repeat(16);
    let mut grid = Grid::new(16, 0, 0);
    assert!(grid.repeat(Step { count: 8, target_stride: 128, source_stride: 16 }));
    let held = stripes.lock(PLACE_BYTES >> BLOCK_BITS, Rank(9));
    let begun = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut accumulator = window.accumulator((kernel, Scale::one(ElementType::F64)), stripes, Rank(3));
            begun.store(1, Ordering::Release);
            accumulator.grid(&grid, Region::from_slice(&source)).unwrap();
        });
        while begun.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        // It has time to do what it must not. A right one never does.
        (0..2000).for_each(|_| std::thread::yield_now());
        assert_eq!(window.load_u64(0), Ok(0));
        drop(held);
    });
    assert_eq!(window.load_u64(7 * 128), Ok(1_f64.to_bits()));
    assert_eq!(stripes.release_of_dead(Rank(3)), 0, "all locks are free again");
}

#[test]
fn one_lock_is_held_while_runs_stay_in_a_block_but_not_for_ever() {
    let kernel = Kernel::new(ElementType::F64, AccumulateOp::Sum).unwrap();
    combined(kernel, Scale::one(ElementType::F64), |accumulator| {
        let source = [0; 2048];
        let mut bytes_left = BLOCK_BYTES + 8;
        for round in 0..40 {
            accumulator.run(round % 3 * 8, Region::from_slice(&source)).unwrap();
            bytes_left = if bytes_left >= 2048 { bytes_left } else { BLOCK_BYTES + 8 } - 2048;
            assert_eq!(accumulator.held.as_ref().map(|held| held.bytes_left), Some(bytes_left));
        }
        accumulator.run(2 * 4096, Region::from_slice(&source)).unwrap();
    });
}

#[test]
fn a_not_a_number_loses_against_every_number() {
    let words = words();
    for (op, expected) in [(AccumulateOp::Min, [1.0, 2.0, -4.0]), (AccumulateOp::Max, [1.0, 2.0, 5.0])] {
        let mut memory = Memory::new();
        let targets = [f64::NAN, 2.0, 5.0].map(f64::to_le_bytes).concat();
        memory.0[..24].copy_from_slice(&targets);
        let source = [1.0, f64::NAN, -4.0].map(f64::to_le_bytes).concat();
        let window = Window::from_region(RegionMut::from_slice(&mut memory.0), 0);
        let kernel = Kernel::new(ElementType::F64, op).unwrap();
        let scale = Scale::one(ElementType::F64);
        window.accumulate(0, kernel, &scale, Region::from_slice(&source), &Stripes::new(&words), Rank(0)).unwrap();
        assert_eq!(memory.0[..24], expected.map(f64::to_le_bytes).concat());
    }
}

#[test]
fn what_is_outside_or_half_an_element_is_refused_and_untouched() {
    let words = words();
    let stripes = Stripes::new(&words);
    let mut memory = Memory::new();
    let before = memory.0;
    let window = Window::from_region(RegionMut::from_slice(&mut memory.0), 0);
    let kernel = Kernel::new(ElementType::F64, AccumulateOp::Sum).unwrap();
    let accumulate = |offset: u64, bytes: usize| {
        let source = vec![1; bytes];
        window.accumulate(offset, kernel, &Scale::one(ElementType::F64), Region::from_slice(&source), &stripes, Rank(0))
    };
    let window_bytes = 3 * 4096;
    let outside = OutsideWindow { offset: window_bytes - 8, bytes: 16, window_bytes };
    assert_eq!(accumulate(window_bytes - 8, 16), Err(AccumulateError::OutsideWindow(outside)));
    assert!(matches!(accumulate(u64::MAX, 8), Err(AccumulateError::OutsideWindow(_))));
    assert_eq!(accumulate(0, 12), Err(AccumulateError::PartOfAnElement { bytes: 12, element_bytes: 8 }));
    assert_eq!(accumulate(window_bytes, 0), Ok(()));
    assert!(memory.0 == before);
}

#[test]
fn threads_that_add_to_the_same_elements_lose_nothing() {
    let rounds = if cfg!(miri) { 3 } else { 300 };
    // 1, 4093 and 5 misalign the elements, so that some straddle two blocks.
    for (element, offset) in
        [(ElementType::F64, 0), (ElementType::F64, 4093), (ElementType::C32, 1), (ElementType::I64, 5)]
    {
        let size = element.bytes();
        let count = 900;
        let mut memory = Box::new(Memory([0; 3 * 4096]));
        let words = words();
        let stripes = Stripes::new(&words);
        let window = Window::from_region(RegionMut::from_slice(&mut memory.0), PLACE_BYTES);
        let one = match element {
            ElementType::F64 => 1_f64.to_le_bytes().to_vec(),
            ElementType::I64 => 1_i64.to_le_bytes().to_vec(),
            _ => [1_f32, 2_f32].map(f32::to_le_bytes).concat(),
        };
        let source = one.repeat(count);
        let kernel = Kernel::new(element, AccumulateOp::Sum).unwrap();
        std::thread::scope(|scope| {
            for who in 0..2 {
                let source = &source;
                scope.spawn(move || {
                    for round in 0..rounds {
                        // The ranges of the two differ, the elements are the same ones.
                        let skip = if who == 0 { round % 3 } else { 0 };
                        for (first, last) in [(0, skip), (skip, count)] {
                            let part = Region::from_slice(&source[first * size..last * size]);
                            let at = offset + first * size;
                            let scale = Scale::one(element);
                            if who == 0 {
                                window.accumulate(at as u64, kernel, &scale, part, &stripes, Rank(who)).unwrap();
                                continue;
                            }
                            // All even elements, and then all odd ones.
                            let mut accumulator = window.accumulator((kernel, scale), stripes, Rank(who));
                            for odd in [0, 1] {
                                let (count, both) = ((last - first) / 2, 2 * size as isize);
                                let mut grid = Grid::new(size, at + odd * size, odd * size);
                                assert!(grid.repeat(Step { count, target_stride: both, source_stride: both }));
                                accumulator.grid(&grid, part).unwrap();
                            }
                        }
                    }
                });
            }
        });
        let total = 2 * rounds as u64;
        let expected = match element {
            ElementType::F64 => (total as f64).to_le_bytes().to_vec(),
            ElementType::I64 => total.to_le_bytes().to_vec(),
            _ => [total as f32, 2.0 * total as f32].map(f32::to_le_bytes).concat(),
        };
        assert!(memory.0[offset..offset + count * size] == expected.repeat(count)[..], "{element:?}");
    }
}

#[test]
fn integer_accumulates_and_read_modify_writes_of_one_word_are_all_counted() {
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let mut memory = Box::new(Memory([0; 3 * 4096]));
    let words = words();
    let stripes = Stripes::new(&words);
    let window = Window::from_region(RegionMut::from_slice(&mut memory.0), 0);
    let kernel = Kernel::new(ElementType::I64, AccumulateOp::Sum).unwrap();
    let source = [1_i64, 10, 100].map(i64::to_le_bytes).concat();
    std::thread::scope(|scope| {
        let source = &source;
        scope.spawn(move || {
            for _ in 0..rounds {
                let source = Region::from_slice(source);
                window.accumulate(8, kernel, &Scale::from(2_i64), source, &stripes, Rank(0)).unwrap();
            }
        });
        scope.spawn(move || {
            let rmw = Rmw { op: RmwOp::FetchAdd, width: RmwWidth::W64, operand: 1, compare: 0 };
            for _ in 0..rounds {
                (0..3).for_each(|word| _ = window.rmw(8 + word * 8, rmw).unwrap());
            }
        });
    });
    let found: Vec<u64> = (0..3).map(|word| window.load_u64(8 + word * 8).unwrap()).collect();
    assert_eq!(found, [3 * rounds, 21 * rounds, 201 * rounds]);
}
