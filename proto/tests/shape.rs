//! Shapes, cursors and pieces against plain lists of runs.

mod common;

use common::{naive_bytes, naive_runs, shape, strided, wild_shape};
use longarm_proto::*;
use proptest::prelude::*;

fn all_runs(cursor: &Cursor) -> Vec<Run> {
    let mut runs = Vec::new();
    cursor.upcoming(usize::MAX, &mut runs);
    runs
}

fn level(count: u64, stride: i64) -> Level {
    Level { count, stride }
}

#[test]
fn more_levels_than_a_frame_holds_are_refused() {
    assert!(Strided::new(0, 1, &[level(1, 1); LEVELS_MAX]).is_ok());
    let error = Strided::new(0, 1, &[level(1, 1); LEVELS_MAX + 1]).unwrap_err();
    assert_eq!(error, ShapeError::TooManyLevels { found: 9 });
}

#[test]
fn a_patch_that_starts_before_the_window_says_by_how_much() {
    assert!(Strided::new(20, 4, &[level(3, -10)]).is_ok());
    let error = Strided::new(19, 4, &[level(3, -10)]).unwrap_err();
    assert_eq!(error, ShapeError::BeforeStart { bytes_before: 1 });
}

#[test]
fn the_last_possible_byte_is_possible_and_the_next_one_is_not() {
    let top = u64::MAX - 8;
    assert_eq!(Strided::new(top, 8, &[]).unwrap().end(), u64::MAX);
    assert_eq!(Strided::new(top + 1, 8, &[]), Err(ShapeError::EndOverflow));
    assert_eq!(Strided::new(top - 8, 8, &[level(2, 8)]).unwrap().end(), u64::MAX);
    assert_eq!(Strided::new(top - 7, 8, &[level(2, 8)]), Err(ShapeError::EndOverflow));
}

#[test]
fn totals_that_cannot_be_counted_are_refused_whatever_the_strides() {
    let half = 1 << 63;
    assert_eq!(Strided::new(0, 1, &[level(half, 0)]).unwrap().bytes(), half);
    assert_eq!(Strided::new(0, 2, &[level(half, 0)]), Err(ShapeError::BytesOverflow));
    assert_eq!(Strided::new(0, 1, &[level(half, 0), level(2, 0)]), Err(ShapeError::BytesOverflow));
    // The largest step backwards as often as can be is still computed exactly.
    assert!(matches!(Strided::new(0, 1, &[level(u64::MAX, i64::MIN)]), Err(ShapeError::BeforeStart { .. })));
    assert_eq!(Strided::new(0, 1, &[level(u64::MAX, i64::MAX)]), Err(ShapeError::EndOverflow));
}

#[test]
fn a_patch_of_no_bytes_ends_where_it_starts_whatever_its_strides() {
    let shape = Strided::new(7, 4, &[level(u64::MAX, i64::MIN), level(0, i64::MIN)]).unwrap();
    assert_eq!((shape.bytes(), shape.start(), shape.end()), (0, 7, 7));
    assert!(shape.is_empty());
    assert_eq!(shape.pieces(1).count(), 0);
    assert_eq!(Cursor::new(shape.into()).peek(), None);
    assert_eq!(Strided::new(7, 0, &[level(3, -100)]).unwrap().end(), 7);
}

#[test]
fn a_whole_matrix_collapses_to_one_run() {
    let matrix = Strided::new(64, 8, &[level(10, 8), level(1, 12345), level(5, 80)]).unwrap();
    assert_eq!(Shape::Strided(matrix).collapsed(), Shape::contiguous(64, 400));
    // Columns of a matrix stay a patch, of one level.
    let columns = Strided::new(64, 16, &[level(5, 80), level(2, 400)]).unwrap().collapsed();
    assert_eq!((columns.run_bytes(), columns.levels()), (16, &[level(10, 80)][..]));
}

#[test]
fn a_huge_patch_is_cut_without_walking_it() {
    let shape = Strided::new(0, 8, &[level(1 << 20, 16), level(1 << 20, 1 << 24)]).unwrap();
    let pieces: Vec<Strided> = shape.pieces(CHUNK_BYTES).take(3).collect();
    assert_eq!(pieces[0].levels(), [level(1 << 17, 16)]);
    assert_eq!(pieces[1].offset(), 16 << 17);
    let mut cursor = Cursor::new(shape.into());
    cursor.advance(8 * 3 + 1);
    assert_eq!(cursor.peek(), Some(Run { offset: 49, bytes: 7 }));
}

#[test]
fn an_end_beyond_all_offsets_is_outside_of_every_window() {
    assert_eq!(Shape::contiguous(u64::MAX, 2).end(), u64::MAX);
    let runs = vec![Run { offset: u64::MAX, bytes: u64::MAX }, Run { offset: 0, bytes: 1 }];
    assert_eq!(Shape::Vector(runs.clone()).end(), u64::MAX);
    assert_eq!(Shape::Vector(runs).bytes(), u64::MAX);
    assert_eq!(Shape::Vector(Vec::new()).end(), 0);
}

#[test]
fn a_broken_run_is_found_in_every_kind_of_shape() {
    assert_eq!(Shape::contiguous(1, 16).broken_run_bytes(8), None);
    assert_eq!(Shape::contiguous(0, 12).broken_run_bytes(8), Some(12));
    let rows = |run_bytes, count| Shape::Strided(Strided::new(0, run_bytes, &[level(count, 64)]).unwrap());
    assert_eq!(rows(16, 4).broken_run_bytes(8), None);
    assert_eq!(rows(12, 4).broken_run_bytes(8), Some(12));
    assert_eq!(rows(12, 0).broken_run_bytes(8), None);
    let runs = vec![Run { offset: 3, bytes: 8 }, Run { offset: 30, bytes: 4 }];
    assert_eq!(Shape::Vector(runs).broken_run_bytes(8), Some(4));
}

#[test]
#[should_panic(expected = "with 3 left")]
fn a_cursor_does_not_pass_its_end() {
    let mut cursor = Cursor::new(Shape::contiguous(0, 5));
    cursor.advance(2);
    cursor.advance(4);
}

proptest! {
    #[test]
    fn a_shape_counts_and_ends_like_its_list_of_runs(shape in shape()) {
        let runs = naive_runs(&shape);
        let bytes: u64 = runs.iter().map(|run| run.bytes).sum();
        prop_assert_eq!(shape.bytes(), bytes);
        prop_assert_eq!(shape.is_empty(), bytes == 0);
        if let Some(end) = runs.iter().map(|run| run.offset + run.bytes).max() {
            if let Shape::Strided(strided) = &shape {
                prop_assert_eq!(strided.start(), runs.iter().map(|run| run.offset).min().unwrap());
                prop_assert_eq!(shape.end(), end);
            } else {
                prop_assert!(shape.end() >= end);
            }
        }
    }

    #[test]
    fn a_cursor_gives_every_byte_once_whatever_the_steps(
        shape in shape(),
        steps in prop::collection::vec(0_u64..30, 1..40),
    ) {
        let expected = naive_bytes(&shape);
        let mut cursor = Cursor::new(shape.clone());
        let mut found = Vec::new();
        let mut steps = steps.iter().cycle();
        let mut stuck = 0;
        while let Some(run) = cursor.peek() {
            prop_assert!(run.bytes > 0);
            // What lies ahead is exactly what the list says.
            let ahead: Vec<u64> = all_runs(&cursor).into_iter().flat_map(|run| run.offset..run.end()).collect();
            prop_assert_eq!(&ahead, &expected[found.len()..]);
            prop_assert_eq!(cursor.remaining(), ahead.len() as u64);
            let step = (*steps.next().unwrap()).min(cursor.remaining()).max(u64::from(stuck > 40));
            found.extend_from_slice(&ahead[..step as usize]);
            cursor.advance(step);
            stuck = if step == 0 { stuck + 1 } else { 0 };
        }
        prop_assert_eq!(found, expected);
        prop_assert!(cursor.is_finished());
        cursor.advance(0);
        prop_assert_eq!(all_runs(&cursor), vec![]);
    }

    #[test]
    fn peeking_run_by_run_gives_the_list(shape in shape()) {
        let mut cursor = Cursor::new(shape.clone());
        let mut runs = Vec::new();
        while let Some(run) = cursor.peek() {
            runs.push(run);
            cursor.advance(run.bytes);
        }
        prop_assert_eq!(runs, naive_runs(&shape));
    }

    #[test]
    fn rows_give_the_same_runs_and_stay_in_their_span(
        shape in shape(),
        rows_max in proptest::collection::vec(1_u64..100, 1..8),
    ) {
        let mut cursor = Cursor::new(shape.clone());
        let mut offsets = Vec::new();
        for bytes_max in rows_max.iter().cycle() {
            let Some(row) = cursor.row(*bytes_max) else { break };
            prop_assert!(row.count >= 1 && row.run.bytes >= 1 && row.bytes() <= *bytes_max);
            let (span, first) = row.span();
            prop_assert_eq!(span.offset + first, row.run.offset);
            for number in 0..row.count {
                let offset = row.run.offset.wrapping_add_signed(row.stride * number as i64);
                prop_assert!(offset >= span.offset && offset + row.run.bytes <= span.end());
                offsets.extend(offset..offset + row.run.bytes);
            }
            let before = cursor.remaining();
            cursor.pass(&row);
            prop_assert_eq!(cursor.remaining(), before - row.bytes());
        }
        prop_assert_eq!(offsets, naive_bytes(&shape));
    }

    #[test]
    fn upcoming_appends_no_more_than_it_is_asked_for(shape in shape(), runs_max in 0_usize..10, passed in 0_u64..20) {
        let mut cursor = Cursor::new(shape);
        cursor.advance(passed.min(cursor.remaining()));
        let mut runs = vec![Run { offset: 1, bytes: 2 }];
        cursor.upcoming(runs_max, &mut runs);
        let all = all_runs(&cursor);
        prop_assert_eq!(&runs[1..], &all[..runs_max.min(all.len())]);
    }

    #[test]
    fn collapsing_changes_no_byte_and_finishes_in_one_go(strided in strided()) {
        let simple = strided.collapsed();
        prop_assert_eq!(naive_bytes(&simple.into()), naive_bytes(&strided.into()));
        prop_assert_eq!(simple.collapsed(), simple);
        prop_assert!(simple.levels().len() <= strided.levels().len());
        prop_assert!(simple.levels().iter().all(|level| level.count > 1));
        prop_assert_eq!((simple.bytes(), simple.end()), (strided.bytes(), strided.end()));
    }

    #[test]
    fn pieces_are_short_enough_and_together_the_whole(strided in strided(), bytes_max in 0_u64..200) {
        let whole = naive_bytes(&strided.into());
        let mut together = Vec::new();
        for piece in strided.pieces(bytes_max) {
            prop_assert!(!piece.is_empty());
            prop_assert!(piece.bytes() <= bytes_max.max(strided.run_bytes()));
            prop_assert!(piece.start() >= strided.start() && piece.end() <= strided.end());
            together.extend(naive_bytes(&piece.into()));
        }
        prop_assert_eq!(together, whole);
    }

    #[test]
    fn pieces_are_no_more_than_the_rows_ask_for(strided in strided(), bytes_max in 1_u64..200) {
        let pieces = strided.pieces(bytes_max).count() as u64;
        if strided.bytes() <= bytes_max {
            prop_assert_eq!(pieces, u64::from(!strided.is_empty()));
        }
        // Level 0 alone: as many runs in each piece as fit.
        if let [row] = *strided.levels() {
            let runs_per_piece = bytes_max.checked_div(strided.run_bytes()).unwrap_or(1).max(1);
            let expected = if strided.is_empty() { 0 } else { row.count.div_ceil(runs_per_piece) };
            prop_assert_eq!(pieces, expected);
        }
    }

    #[test]
    fn a_patch_is_accepted_exactly_if_all_its_corners_are_offsets(
        offset in prop_oneof![0_u64..200, any::<u64>(), u64::MAX - 200..=u64::MAX],
        run_bytes in prop_oneof![0_u64..4, any::<u64>()],
        levels in prop::collection::vec(
            (
                prop_oneof![0_u64..4, Just(1 << 32), any::<u64>()],
                prop_oneof![-70_i64..70, Just(i64::MIN), Just(i64::MAX), any::<i64>()],
            ),
            0..=LEVELS_MAX,
        ),
    ) {
        let levels: Vec<Level> = levels.into_iter().map(|(count, stride)| level(count, stride)).collect();
        let found = Strided::new(offset, run_bytes, &levels);
        if run_bytes == 0 || levels.iter().any(|level| level.count == 0) {
            prop_assert_eq!(found.map(|shape| (shape.bytes(), shape.end())), Ok((0, offset)));
            return Ok(());
        }
        let bytes = levels.iter().try_fold(u128::from(run_bytes), |bytes, level| {
            bytes.checked_mul(level.count.into()).filter(|&bytes| bytes <= u64::MAX.into())
        });
        let Some(bytes) = bytes else {
            prop_assert_eq!(found, Err(ShapeError::BytesOverflow));
            return Ok(());
        };
        // All corners, one by one: every level is at its first or at its last index.
        let corners = (0..1_u32 << levels.len()).map(|corner| {
            let steps = levels.iter().enumerate().map(|(index, level)| {
                let at = if corner >> index & 1 == 1 { level.count - 1 } else { 0 };
                i128::from(at) * i128::from(level.stride)
            });
            i128::from(offset) + steps.sum::<i128>()
        });
        let (low, high) = corners.fold((i128::MAX, i128::MIN), |(low, high), at| (low.min(at), high.max(at)));
        let end = high + i128::from(run_bytes);
        if low < 0 {
            let bytes_before = u64::try_from(-low).unwrap_or(u64::MAX);
            prop_assert_eq!(found, Err(ShapeError::BeforeStart { bytes_before }));
        } else if end > u64::MAX.into() {
            prop_assert_eq!(found, Err(ShapeError::EndOverflow));
        } else {
            let shape = found.unwrap();
            prop_assert_eq!(u128::from(shape.bytes()), bytes);
            prop_assert_eq!((i128::from(shape.start()), i128::from(shape.end())), (low, end));
        }
    }

    #[test]
    fn large_shapes_are_walked_at_their_start_without_overflow(
        shape in wild_shape(),
        steps in prop::collection::vec(any::<u64>(), 0..6),
    ) {
        let (bytes, end) = (shape.bytes(), shape.end());
        let mut cursor = Cursor::new(shape);
        let mut passed = 0;
        for step in steps {
            let Some(run) = cursor.peek() else { break };
            prop_assert!(run.end() <= end);
            let step = (step % 1000).min(cursor.remaining());
            cursor.advance(step);
            passed += step;
            prop_assert_eq!(cursor.remaining(), bytes - passed);
        }
    }
}
