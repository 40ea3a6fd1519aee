//! What all jobs use: dice that roll the same everywhere, contents, and comparisons that say where they differ.

use std::fmt::{Display, Formatter};

use longarm::{Element, World};

/// Numbers that look random and are the same in every run (SplitMix64).
pub struct Dice(u64);

impl Dice {
    /// Dice of their own for these words.
    pub fn new(words: &[u64]) -> Dice {
        let mut dice = Dice(0x6c6f_6e67_6172_6d00);
        for word in words {
            dice.0 = dice.roll() ^ word;
        }
        dice
    }

    /// Any 64 bits.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound as u64) as usize
    }
}

/// Elements of any bits.
pub fn arbitrary<T: Element>(dice: &mut Dice, count: usize) -> Vec<T> {
    let mut elements = vec![T::new_zeroed(); count];
    // Most of what jobs do themselves is this: words are written whole.
    let (words, rest) = elements.as_mut_slice().as_mut_bytes().as_chunks_mut::<8>();
    for word in words {
        *word = dice.roll().to_le_bytes();
    }
    if !rest.is_empty() {
        rest.copy_from_slice(&dice.roll().to_le_bytes()[..rest.len()]);
    }
    elements
}

/// Compares bit by bit, and says where the first difference is.
#[track_caller]
pub fn assert_same<T: Element>(found: &[T], expected: &[T], what: impl Display) {
    assert_eq!(found.len(), expected.len(), "{what}: lengths differ");
    if found.as_bytes() == expected.as_bytes() {
        return;
    }
    let differs = |at: &usize| found[*at].as_bytes() != expected[*at].as_bytes();
    let at = (0..found.len()).find(differs).expect("some element differs");
    let count = (0..found.len()).filter(differs).count();
    panic!(
        "{what}: element {at} of {} is {:?}, not {:?}; {count} differ",
        found.len(),
        found[at].as_bytes(),
        expected[at].as_bytes()
    );
}

/// Words that are only made where they are said, which for most comparisons is never.
pub struct Said<F>(pub F);

impl<F: Fn() -> String> Display for Said<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&(self.0)())
    }
}

/// All meet, and what was issued is complete.
#[track_caller]
pub fn barrier(world: &World) {
    world.barrier_collective().expect("the barrier holds");
}

/// The ranks of the world.
pub fn ranks(world: &World) -> std::ops::Range<u32> {
    0..world.size()
}

/// The rank `distance` places ahead, around.
pub fn ahead(world: &World, distance: u32) -> u32 {
    (world.rank() + distance) % world.size()
}

/// Computes for a moment without a call of longarm.
pub fn compute(rounds: u64) -> u64 {
    let mut dice = Dice::new(&[rounds]);
    (0..rounds).fold(0, |sum, _| sum ^ std::hint::black_box(dice.roll()))
}

pub use zerocopy::IntoBytes;
