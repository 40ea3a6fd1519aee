use super::*;

/// A small generator, so that the cases are many and always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Where every run starts, by the definition.
fn starts(offset: usize, steps: &[Step], stride: fn(&Step) -> isize) -> Vec<isize> {
    let mut starts = vec![offset as isize];
    for step in steps {
        starts =
            (0..step.count as isize).flat_map(|at| starts.iter().map(move |start| start + at * stride(step))).collect();
    }
    starts
}

fn check(run_bytes: usize, steps: &[Step]) {
    let lowest = |stride: fn(&Step) -> isize| {
        let reaches = steps.iter().map(|step| stride(step) * (step.count as isize - 1).max(0));
        (-reaches.filter(|reach| *reach < 0).sum::<isize>()) as usize
    };
    let (target_offset, source_offset) = (lowest(|step| step.target_stride) + 3, lowest(|step| step.source_stride) + 5);
    let targets = starts(target_offset, steps, |step| step.target_stride);
    let sources = starts(source_offset, steps, |step| step.source_stride);
    let bytes = |starts: &[isize], least: usize| starts.iter().max().map_or(least, |start| *start as usize) + run_bytes;
    let source: Vec<u8> =
        (0..bytes(&sources, source_offset)).map(|index| (index * 131 + index / 251 + 7) as u8).collect();
    let mut expected = vec![0xEE; bytes(&targets, target_offset) + 9];
    for (&to, &from) in targets.iter().zip(&sources) {
        expected[to as usize..][..run_bytes].copy_from_slice(&source[from as usize..][..run_bytes]);
    }
    let mut grid = Grid::new(run_bytes, target_offset, source_offset);
    assert!(steps.iter().all(|&step| grid.repeat(step)));
    let mut copied = vec![0xEE; expected.len()];
    grid.copy(RegionMut::from_slice(&mut copied), Region::from_slice(&source));
    assert!(copied == expected, "{run_bytes} bytes, {steps:?}");
    let mut called = vec![0xEE; expected.len()];
    grid.for_each(RegionMut::from_slice(&mut called), Region::from_slice(&source), |to, from| to.copy_from(from));
    assert!(called == expected, "{run_bytes} bytes, {steps:?}, one by one");
    let mut together = vec![0xEE; expected.len()];
    grid.for_each_rows(RegionMut::from_slice(&mut together), Region::from_slice(&source), |rows| {
        // In two parts, which may be empty.
        let (some, others) = rows.split(rows.count() / 2);
        for mut rows in [some, others] {
            while let Some((to, from, behind)) = rows.first() {
                assert_eq!((rows.run_bytes(), rows.target_start()), (to.len(), to.as_ptr()));
                to.copy_from(from);
                rows = behind;
            }
        }
    });
    assert!(together == expected, "{run_bytes} bytes, {steps:?}, in rows");
    // Back again: what the runs of the source hold then is what those of the target held.
    let mut back = source.clone();
    grid.reversed().copy(RegionMut::from_slice(&mut back), Region::from_slice(&copied));
    for (&to, &from) in targets.iter().zip(&sources).rev().take(1) {
        assert_eq!(back[from as usize..][..run_bytes], copied[to as usize..][..run_bytes]);
    }
}

#[test]
fn every_grid_copies_what_its_definition_says() {
    let mut numbers = Numbers(1);
    let lengths = [0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 100, 128, 129, 200, 256, 257, 700];
    let rounds = if cfg!(miri) { 1 } else { 40 };
    for run_bytes in lengths {
        for step_count in 0..5 {
            for _ in 0..rounds {
                let stride = |numbers: &mut Numbers| {
                    let bytes = match numbers.below(5) {
                        0 => run_bytes,
                        1 => 0,
                        2 => 3 * run_bytes,
                        _ => numbers.below(3 * run_bytes + 20),
                    } as isize;
                    if numbers.below(4) == 0 { -bytes } else { bytes }
                };
                let steps: Vec<Step> = (0..step_count)
                    .map(|_| Step {
                        target_stride: stride(&mut numbers),
                        source_stride: stride(&mut numbers),
                        count: if numbers.below(20) == 0 { 0 } else { 1 + numbers.below(4) },
                    })
                    .collect();
                check(run_bytes, &steps);
            }
        }
    }
}

#[test]
fn a_grid_without_gaps_becomes_one_run() {
    let mut grid = Grid::new(8, 0, 0);
    assert!(grid.repeat(Step { count: 4, target_stride: 8, source_stride: 8 }));
    assert!(grid.repeat(Step { count: 1, target_stride: -77, source_stride: 5 }));
    assert!(grid.repeat(Step { count: 3, target_stride: 32, source_stride: 32 }));
    assert_eq!(grid, Grid::new(96, 0, 0));
    assert!(grid.repeat(Step { count: 5, target_stride: 100, source_stride: 96 }));
    assert!(grid.repeat(Step { count: 2, target_stride: 500, source_stride: 480 }));
    assert_eq!((grid.run_bytes(), grid.step_count, grid.steps[0].count), (96, 1, 10));
}

#[test]
fn more_steps_than_there_is_room_for_are_refused() {
    let mut grid = Grid::new(8, 0, 0);
    for at in 0..STEPS_MAX {
        assert!(grid.repeat(Step { count: 2, target_stride: 100 << (2 * at), source_stride: 8 << at }));
    }
    let before = grid;
    assert!(!grid.repeat(Step { count: 2, target_stride: 7, source_stride: 7 }));
    assert_eq!(grid, before);
}

#[test]
fn a_run_outside_of_its_region_panics_and_nothing_is_copied() {
    let far = Step { count: 3, target_stride: 10, source_stride: 0 };
    let before = Step { count: 2, target_stride: -9, source_stride: 0 };
    let wrapping = Step { count: usize::MAX, target_stride: isize::MAX, source_stride: 0 };
    let source = [1; 64];
    for (step, room) in [(far, 35), (before, 64), (wrapping, 64)] {
        let mut target = [0; 64];
        let mut grid = Grid::new(8, 8, 0);
        assert!(grid.repeat(step));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            grid.copy(RegionMut::from_slice(&mut target[..room]), Region::from_slice(&source));
        }));
        assert!(result.is_err() && target == [0; 64], "{step:?}");
    }
}
