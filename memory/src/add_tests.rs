use super::*;

/// Numbers whose sums and products are rounded, so that another order of operations shows.
fn number(index: usize) -> f64 {
    (index as f64 * 0.37 - 5.0) * if index.is_multiple_of(3) { 1e3 } else { 0.1 }
}

/// Kinds, the adder that makes them, and the plain answer for one element.
struct Case {
    kind: Kind,
    adder: Adder,
    plain: fn(&[f64; 2], &[f64; 2]) -> [f64; 2],
    floats: usize,
    float_bytes: usize,
}

const REAL: f64 = -1.7;
const IMAGINARY: f64 = 0.3;

fn cases() -> Vec<Case> {
    let (real_32, imaginary_32) = (REAL as f32, IMAGINARY as f32);
    let case = |kind, adder, plain, floats, float_bytes| Case { kind, adder, plain, floats, float_bytes };
    vec![
        case(Kind::SumF64, Adder::f64(1.0), |to, from| [to[0] + from[0], 0.0], 1, 8),
        case(Kind::ScaledF64, Adder::f64(REAL), |to, from| [to[0] + REAL * from[0], 0.0], 1, 8),
        case(Kind::SumF64, Adder::c64([1.0, 0.0]), |to, from| [to[0] + from[0], to[1] + from[1]], 2, 8),
        case(
            Kind::ComplexF64,
            Adder::c64([REAL, IMAGINARY]),
            |to, from| [to[0] + (REAL * from[0] - IMAGINARY * from[1]), to[1] + (REAL * from[1] + IMAGINARY * from[0])],
            2,
            8,
        ),
        case(Kind::SumF32, Adder::f32(1.0), |to, from| single(to, from, |to, from| [to[0] + from[0], 0.0]), 1, 4),
        case(
            Kind::ScaledF32,
            Adder::f32(real_32),
            |to, from| single(to, from, |to, from| [to[0] + REAL as f32 * from[0], 0.0]),
            1,
            4,
        ),
        case(
            Kind::SumF32,
            Adder::c32([1.0, 0.0]),
            |to, from| single(to, from, |to, from| [to[0] + from[0], to[1] + from[1]]),
            2,
            4,
        ),
        case(
            Kind::ComplexF32,
            Adder::c32([real_32, imaginary_32]),
            |to, from| {
                single(to, from, |to, from| {
                    let (real, imaginary) = (REAL as f32, IMAGINARY as f32);
                    [to[0] + (real * from[0] - imaginary * from[1]), to[1] + (real * from[1] + imaginary * from[0])]
                })
            },
            2,
            4,
        ),
    ]
}

fn single(to: &[f64; 2], from: &[f64; 2], add: fn([f32; 2], [f32; 2]) -> [f32; 2]) -> [f64; 2] {
    add(to.map(|part| part as f32), from.map(|part| part as f32)).map(f64::from)
}

/// The elements' parts, whichever their size, as f64.
fn parts(bytes: &[u8], float_bytes: usize) -> [f64; 2] {
    let mut parts = [0.0; 2];
    for (part, bytes) in parts.iter_mut().zip(bytes.chunks_exact(float_bytes)) {
        *part = match float_bytes {
            4 => f64::from(f32::from_ne_bytes(bytes.try_into().unwrap())),
            _ => f64::from_ne_bytes(bytes.try_into().unwrap()),
        };
    }
    parts
}

fn bytes_of(number: f64, float_bytes: usize) -> Vec<u8> {
    if float_bytes == 4 { (number as f32).to_ne_bytes().to_vec() } else { number.to_ne_bytes().to_vec() }
}

fn check(case: &Case, adder: Adder, count: usize, (to, from): (usize, usize)) {
    const MARGIN: usize = 48;
    let element_bytes = case.floats * case.float_bytes;
    let bytes = count * element_bytes;
    let mut target = vec![0xA5; bytes + 2 * MARGIN];
    let mut source = vec![0x5A; bytes + 2 * MARGIN];
    for index in 0..count * case.floats {
        let at = index * case.float_bytes;
        target[to + at..][..case.float_bytes].copy_from_slice(&bytes_of(number(index * 7 + 1), case.float_bytes));
        source[from + at..][..case.float_bytes].copy_from_slice(&bytes_of(number(index * 5 + 2), case.float_bytes));
    }
    let mut expected = target.clone();
    for index in 0..count {
        let at = index * element_bytes;
        let [old, new] = [&target[to + at..], &source[from + at..]].map(|side| &side[..element_bytes]);
        let sums = (case.plain)(&parts(old, case.float_bytes), &parts(new, case.float_bytes));
        let sums = sums[..case.floats].iter().flat_map(|&sum| bytes_of(sum, case.float_bytes));
        sums.zip(&mut expected[to + at..]).for_each(|(byte, place)| *place = byte);
    }
    let there = RegionMut::from_slice(&mut target).slice(to, bytes);
    adder.add(there, Region::from_slice(&source).slice(from, bytes));
    assert!(target == expected, "{:?}, {count} elements from {from} to {to}", case.kind);
}

#[test]
fn every_type_length_and_alignment_gives_the_plain_sum_and_touches_nothing_else() {
    let counts: Vec<usize> = if cfg!(miri) { vec![0, 1, 9, 37] } else { (0..=300).collect() };
    for case in cases() {
        for &count in &counts {
            for shifts in [(0, 0), (8, 0), (4, 16), (16, 8), (24, 12), (1, 3), (31, 32)] {
                check(&case, case.adder, count, shifts);
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(any(miri, longarm_portable))))]
#[test]
fn vectors_of_every_width_give_the_same_sums() {
    for case in cases() {
        for adder in adders(&case) {
            for count in 0..=300 {
                for shifts in [(0, 0), (8, 4), (5, 0), (16, 24), (32, 16), (40, 48)] {
                    check(&case, adder, count, shifts);
                }
            }
        }
    }
}

/// The adders of a case: for each width of vectors that this processor has.
fn adders(case: &Case) -> Vec<Adder> {
    #[cfg(all(target_arch = "x86_64", not(any(miri, longarm_portable))))]
    {
        use machine::Vectors;
        let here = [Vectors::Sse, Vectors::Avx, Vectors::Avx512].into_iter().filter(|vectors| {
            if !vectors.are_here() {
                eprintln!("this processor has no {vectors:?}: not tested");
            }
            vectors.are_here()
        });
        here.map(|vectors| Adder { add: machine::pick_for(vectors, case.kind), ..case.adder }).collect()
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, longarm_portable)))))]
    vec![case.adder]
}

#[test]
fn rows_are_added_as_their_runs_one_by_one() {
    let lengths: &[usize] = if cfg!(miri) { &[2, 5] } else { &[1, 2, 3, 4, 7, 8, 9, 16, 33, 70] };
    for (case, &count) in cases().iter().flat_map(|case| lengths.iter().map(move |count| (case, count))) {
        let bytes = count * case.floats * case.float_bytes;
        // Apart, one behind the other, all at one place, backwards.
        for target_stride in [bytes as isize + 24, bytes as isize, 0, -(bytes as isize) - 8] {
            let step = Step { count: 7, target_stride, source_stride: bytes as isize + 8 };
            let mut grid =
                crate::Grid::new(bytes, if target_stride < 0 { 6 * target_stride.unsigned_abs() } else { 0 }, 3);
            assert!(grid.repeat(step));
            let numbers = (0..7 * (bytes + 8) / case.float_bytes).map(number);
            let source = [vec![0; 3], numbers.flat_map(|number| bytes_of(number, case.float_bytes)).collect()].concat();
            let before: Vec<u8> = (0..7 * (bytes + 24) / case.float_bytes + 1)
                .flat_map(|index| bytes_of(number(3 * index + 1), case.float_bytes))
                .collect();
            let mut expected = before.clone();
            let from = Region::from_slice(&source);
            grid.for_each(RegionMut::from_slice(&mut expected), from, |to, from| case.adder.add(to, from));
            for adder in adders(case) {
                let mut target = before.clone();
                grid.for_each_rows(RegionMut::from_slice(&mut target), from, |rows| adder.add_rows(rows));
                assert!(target == expected, "{:?}, rows of {count} elements, {target_stride} bytes apart", case.kind);
            }
        }
    }
}

#[test]
#[should_panic(expected = "not whole elements")]
fn rows_of_a_part_of_an_element_panic() {
    let (mut target, source) = ([0; 24], [0; 24]);
    let grid = crate::Grid::new(12, 0, 0);
    grid.for_each_rows(RegionMut::from_slice(&mut target), Region::from_slice(&source), |rows| {
        Adder::f64(1.0).add_rows(rows);
    });
}

#[test]
fn a_source_that_is_the_target_is_added_to_itself() {
    let mut numbers: Vec<u8> = (0..100).flat_map(|index| number(index).to_ne_bytes()).collect();
    let region = RegionMut::from_slice(&mut numbers);
    Adder::f64(2.0).add(region, region.as_region());
    let expected: Vec<u8> = (0..100).flat_map(|index| (number(index) + 2.0 * number(index)).to_ne_bytes()).collect();
    assert!(numbers == expected);
}

#[test]
#[should_panic(expected = "not whole elements")]
fn a_part_of_an_element_panics() {
    let (mut target, source) = ([0; 12], [0; 12]);
    Adder::f64(1.0).add(RegionMut::from_slice(&mut target), Region::from_slice(&source));
}

#[test]
fn one_number_is_added_as_many_are() {
    let (to, from) = (0.1_f64, -7.3_f64);
    for scale in [1.0, 0.0, REAL, f64::INFINITY] {
        let mut target = [0; 11];
        target[3..].copy_from_slice(&to.to_ne_bytes());
        let source = from.to_ne_bytes();
        add_one_f64(RegionMut::from_slice(&mut target[3..]), Region::from_slice(&source), scale);
        assert_eq!(target[3..], (to + scale * from).to_ne_bytes());
        assert_eq!(target[..3], [0; 3]);
    }
}

#[test]
#[should_panic(expected = "cannot copy 16 bytes into a region of 8 bytes")]
fn more_than_one_number_is_not_one() {
    let mut target = [0; 8];
    add_one_f64(RegionMut::from_slice(&mut target), Region::from_slice(&[0; 16]), 1.0);
}
