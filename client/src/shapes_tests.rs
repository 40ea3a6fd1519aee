use super::*;
use longarm_memory::{Region, RegionMut};
use longarm_proto::Strided;

/// A small generator, so that the cases are many and always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// A patch of these counts, with or without gaps, said in one way or another.
    fn side(&mut self, run_bytes: u64, counts: &[u64]) -> Shape {
        let mut packed = run_bytes;
        let mut offset = 3;
        let mut levels = Vec::new();
        for &count in counts {
            let stride = match self.below(4) {
                0 => packed as i64,
                1 => (packed + self.below(20)) as i64,
                2 => self.below(40) as i64,
                _ => -(self.below(30) as i64),
            };
            offset += if stride < 0 { stride.unsigned_abs() * (count - 1) } else { 0 };
            levels.push(Level { count, stride });
            packed *= count;
        }
        let shape = match self.below(3) {
            0 => return Shape::contiguous(5, packed),
            _ => Shape::Strided(Strided::new(offset, run_bytes, &levels).unwrap()),
        };
        if self.below(2) == 0 { shape.collapsed() } else { shape }
    }
}

/// What the target holds after a transfer, done one way.
fn transferred(shapes: &Shapes, source: &[u8], copy: impl FnOnce(RegionMut<'_>, Region<'_>)) -> Vec<u8> {
    let mut target = vec![0xEE; shapes.target.end() as usize + 7];
    copy(RegionMut::from_slice(&mut target), Region::from_slice(source));
    target
}

/// Compares the grid with the walk of two cursors. False: there is no grid.
fn check(shapes: &Shapes) -> bool {
    let Some(grid) = shapes.grid() else { return false };
    let source: Vec<u8> = (0..shapes.origin.end()).map(|index| (index * 131 + index / 251 + 7) as u8).collect();
    let expected = transferred(shapes, &source, |target, source| {
        shapes.pairs(|here, there| {
            let source = source.slice(here.offset as usize, here.bytes as usize);
            target.slice(there.offset as usize, there.bytes as usize).copy_from(source);
        });
    });
    let found = transferred(shapes, &source, |target, source| grid.copy(target, source));
    assert_eq!(grid.reversed().reversed(), grid);
    assert!(found == expected, "{shapes:?} as {grid:?}");
    true
}

#[test]
fn sides_of_the_same_counts_are_one_grid_that_moves_what_two_cursors_move() {
    let mut numbers = Numbers(1);
    for _ in 0..20_000 {
        let run_bytes = 1 + numbers.below(20);
        let counts: Vec<u64> = (0..numbers.below(5)).map(|_| 1 + numbers.below(4)).collect();
        let shapes = Shapes { target: numbers.side(run_bytes, &counts), origin: numbers.side(run_bytes, &counts) };
        assert!(check(&shapes), "{shapes:?} have no grid");
    }
}

#[test]
fn sides_of_other_counts_are_a_grid_only_where_that_is_right() {
    let mut numbers = Numbers(2);
    let mut grids = 0;
    for _ in 0..20_000 {
        // The same bytes, cut in another way: the factors of one side are put together differently at the other.
        let factors: Vec<u64> = (0..5).map(|_| 1 + numbers.below(4)).collect();
        let cut = |numbers: &mut Numbers| {
            let mut counts = vec![1];
            for &factor in &factors {
                match numbers.below(2) {
                    0 => counts.push(factor),
                    _ => *counts.last_mut().unwrap() *= factor,
                }
            }
            if numbers.below(3) == 0 {
                let (one, other) = (numbers.below(counts.len() as u64), numbers.below(counts.len() as u64));
                counts.swap(one as usize, other as usize);
            }
            numbers.side(counts[0], &counts[1..])
        };
        let shapes = Shapes { target: cut(&mut numbers), origin: cut(&mut numbers) };
        grids += u32::from(check(&shapes));
    }
    assert!((10_000..20_000).contains(&grids), "{grids}");
}

#[test]
fn lists_are_paired_with_what_they_are_cut_from_and_empty_runs_are_skipped() {
    let run = |offset, bytes| Run { offset, bytes };
    let list = Shape::Vector(vec![run(9, 0), run(50, 4), run(40, 0), run(0, 8), run(20, 3), run(7, 0)]);
    let patch = Strided::new(10, 5, &[Level { count: 3, stride: 20 }]).unwrap();
    let pairs = |target: Shape, origin: Shape| {
        let mut pairs = Vec::new();
        Shapes { target, origin }.pairs(|here, there| pairs.push((here.offset, there.offset, here.bytes)));
        pairs
    };
    let expected = [(50, 10, 4), (0, 14, 1), (1, 30, 5), (6, 50, 2), (20, 52, 3)];
    assert_eq!(pairs(patch.into(), list.clone()), expected);
    let turned = expected.map(|(here, there, bytes)| (there, here, bytes));
    assert_eq!(pairs(list.clone(), patch.into()), turned);
    assert_eq!(pairs(list.clone(), list), [(50, 50, 4), (0, 0, 8), (20, 20, 3)]);
    assert_eq!(pairs(Shape::Vector(Vec::new()), run(3, 0).into()), []);
}

#[test]
fn lists_of_runs_and_nothing_at_all_are_no_grid() {
    let run = Run { offset: 0, bytes: 8 };
    for (target, origin) in [(Shape::Vector(vec![run]), run.into()), (Shape::contiguous(8, 0), Shape::contiguous(8, 0))]
    {
        assert!(Shapes { target, origin }.grid().is_none());
    }
}

#[test]
fn what_one_request_takes_is_long_and_made_of_few_pieces() {
    let run = |offset, bytes| Run { offset, bytes };
    let request = |there, here: &[Run]| {
        let here = if let [piece] = here { Pieces::One(*piece) } else { Pieces::Several(here.to_vec()) };
        RunRequest { there, here }
    };
    let whole = Shapes::contiguous(run(7, 1 << 40));
    assert_eq!(whole.run_requests().as_deref(), Some(&[request(run(7, 1 << 40), &[run(0, 1 << 40)])][..]));
    let one = Shapes::contiguous(run(7, 8));
    assert_eq!(one.run_requests().as_deref(), Some(&[request(run(7, 8), &[run(0, 8)])][..]), "one run may be short");
    let two = Shape::Vector(vec![run(0, 8192), run(100_000, 4096)]);
    let spread = Shapes { target: two.clone(), origin: Shape::Contiguous(run(5, 12_288)) };
    let expected = [request(run(0, 8192), &[run(5, 8192)]), request(run(100_000, 4096), &[run(8197, 4096)])];
    assert_eq!(spread.run_requests().as_deref(), Some(&expected[..]), "one request for each run of the target");
    let coalesced = Shapes { target: Shape::Contiguous(run(5, 12_288)), origin: two };
    let expected = [request(run(5, 12_288), &[run(0, 8192), run(100_000, 4096)])];
    assert_eq!(coalesced.run_requests().as_deref(), Some(&expected[..]), "one for all pieces of the origin");
    let touching = Shape::Vector(vec![run(0, 100), run(100, 5000)]);
    let touching = Shapes { target: touching, origin: Shape::Contiguous(run(0, 5100)) };
    assert_eq!(
        touching.run_requests().as_deref(),
        Some(&[request(run(0, 5100), &[run(0, 5100)])][..]),
        "runs that touch are one"
    );
    let short = Shape::Vector(vec![run(0, 8192), run(100_000, 4095)]);
    let origin = Shape::Contiguous(run(0, 8192 + 4095));
    assert_eq!(Shapes { target: short, origin }.run_requests(), None, "one is too short");
    let pieces = |count, bytes| Shapes {
        target: Shape::Contiguous(run(0, count * bytes)),
        origin: Shape::Vector((0..count).map(|index| run(index * 8192, bytes)).collect()),
    };
    assert_eq!(
        pieces(256, 512).run_requests().map(|requests| (requests.len(), requests[0].here.len())),
        Some((1, 256))
    );
    assert_eq!(pieces(257, 512).run_requests(), None, "there are too many pieces");
    assert_eq!(pieces(64, 511).run_requests(), None, "they are too short");
    let many = Shape::Vector((0..33).map(|index| run(index * 8192, 4096)).collect());
    let origin = Shape::Contiguous(run(0, 33 * 4096));
    assert_eq!(Shapes { target: many, origin }.run_requests(), None, "there are too many");
}
