//! Selections: each means the elements that it says, in every form of every transfer.

use longarm::error::{Operation, TransferError};
use longarm::prelude::*;

use super::support::{ahead, barrier};

/// Elements of a part, a square.
const SIDE: usize = 10;
const PART: usize = SIDE * SIDE;
/// What is put: more than most selections take.
const SOURCE: [i64; 6] = [1, 2, 3, 4, 5, 6];

/// One way to put, get and accumulate by a selection.
struct Selecting<'a> {
    window: &'a Window<i64>,
    world: &'a World,
    rank: u32,
    form: u32,
}

impl Selecting<'_> {
    fn put(&self, selection: impl Selection, source: &[i64]) -> Result<(), TransferError> {
        match self.form {
            0 => self.window.put(self.rank, selection, source),
            1 => self.window.start_put(self.rank, selection, source.to_vec())?.wait().map(drop),
            _ => self.world.scope(|scope| scope.put(self.window, self.rank, selection, source)),
        }
    }

    fn get(&self, selection: impl Selection, target: &mut [i64]) -> Result<(), TransferError> {
        match self.form {
            0 => self.window.get(self.rank, selection, target),
            1 => {
                let got = self.window.start_get(self.rank, selection, target.to_vec())?.wait()?;
                target.copy_from_slice(&got);
                Ok(())
            }
            _ => self.world.scope(|scope| scope.get(self.window, self.rank, selection, target)),
        }
    }

    fn accumulate(&self, selection: impl Selection, source: &[i64]) -> Result<(), TransferError> {
        let update = Update::Scaled(10);
        match self.form {
            0 => self.window.accumulate(self.rank, selection, update, source),
            1 => self.window.start_accumulate(self.rank, selection, update, source.to_vec())?.wait().map(drop),
            _ => self.world.scope(|scope| scope.accumulate(self.window, self.rank, selection, update, source)),
        }
    }

    /// Puts, adds and gets by a selection; `pairs` are the places in the part and in the buffer.
    fn try_all(&self, selection: impl Selection + Clone, count: usize, pairs: &[(usize, usize)]) {
        let source = &SOURCE[..count];
        self.window.put(self.rank, 0, &[0; PART]).expect("a put of nothing but zeros");
        self.put(selection.clone(), source).expect("a put");
        self.accumulate(selection.clone(), source).expect("an accumulate");
        self.world.quiet().expect("quiet");
        let mut expected = [0; PART];
        pairs.iter().for_each(|(there, here)| expected[*there] = 11 * source[*here]);
        assert_eq!(self.window.get_vec(self.rank, 0..PART).expect("all"), expected, "{pairs:?}");
        let mut found = vec![-1; count];
        self.get(selection, &mut found).expect("a get");
        let mut expected = vec![-1; count];
        pairs.iter().for_each(|(there, here)| {
            expected[*here] = 11 * source[*here];
            assert!(*there < PART);
        });
        assert_eq!(found, expected, "{pairs:?}");
    }
}

/// Each selection against a list of places.
pub fn every(world: &World) {
    let window = world.allocate_collective::<i64>(PART).expect("a window");
    let rank = ahead(world, 1);
    let (block, row) = (Patch::block(&[2, 3], &[4, 5], &[SIDE]), Patch::new(5, &[6], &[-1]));
    let block_places = [45, 46, 47, 55, 56, 57];
    let pieces = [Segment { target: 90, origin: 4, count: 2 }, Segment { target: 3, origin: 0, count: 1 }];
    for form in 0..3 {
        let way = Selecting { window: &window, world, rank, form };
        way.try_all(7, 2, &[(7, 0), (8, 1)]);
        way.try_all(7.., 2, &[(7, 0), (8, 1)]);
        way.try_all(7..10, 3, &[(7, 0), (8, 1), (9, 2)]);
        way.try_all(99..100, 1, &[(99, 0)]);
        way.try_all(50..50, 0, &[]);
        let in_order: Vec<_> = block_places.into_iter().zip(0..6).collect();
        way.try_all(&block, 6, &in_order);
        let backwards: Vec<_> = block_places.into_iter().zip((0..6).rev()).collect();
        way.try_all(block.with_buffer(&row), 6, &backwards);
        way.try_all(&pieces, 6, &[(90, 4), (91, 5), (3, 0)]);
        way.try_all(&pieces.to_vec(), 6, &[(90, 4), (91, 5), (3, 0)]);
        way.try_all(&pieces[1..], 1, &[(3, 0)]);
        refused(&way, &block);
    }
    barrier(world);
    window.free_collective().expect("the window goes");
}

/// A selection that says how many elements it means is not given others.
fn refused(way: &Selecting<'_>, block: &Patch) {
    let is_mismatch = |outcome: Result<(), TransferError>, wanted: Operation, remote: u64| match outcome {
        Err(TransferError::LengthMismatch { operation, rank, local_bytes: 32, remote_bytes }) => {
            assert_eq!((operation, rank.0, remote_bytes), (wanted, way.rank, remote));
        }
        other => panic!("{other:?}"),
    };
    let four = &SOURCE[..4];
    is_mismatch(way.put(0..3, four), Operation::Put, 24);
    is_mismatch(way.get(0..5, &mut [0; 4]), Operation::Get, 40);
    is_mismatch(way.accumulate(5..5, four), Operation::Accumulate, 0);
    is_mismatch(way.put(block, four), Operation::Put, 48);
    is_mismatch(way.get(block, &mut [0; 4]), Operation::Get, 48);
    is_mismatch(way.accumulate(block, four), Operation::Accumulate, 48);
    let outside = |outcome| assert!(matches!(outcome, Err(TransferError::OutsideWindow { .. })));
    outside(way.put(97..101, four));
    outside(way.put(97, four));
    outside(way.window.get_vec(way.rank, 97..101).map(drop));
    outside(way.window.get_vec(way.rank, 0..usize::MAX).map(drop));
    outside(way.window.get_vec(way.rank, &Patch::new(96, &[2], &[4])).map(drop));
}
