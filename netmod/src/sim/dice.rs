//! Seeded luck: SplitMix64 (Steele, Lea and Flood, 2014). Written out, so that a seed in an old bug report means the
//! same run for ever, whatever random number library is in fashion.

/// A stream of numbers that follows from its seed.
pub(crate) struct Dice {
    state: u64,
}

impl Dice {
    fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Dice for the thing called `name` under `seed`: independent of all others, whoever is made first.
    pub(crate) fn of(seed: u64, name: &str) -> Self {
        let mut dice = Self::new(seed);
        for byte in name.bytes() {
            dice = Self::new(dice.roll() ^ u64::from(byte));
        }
        dice
    }

    /// Dice whose luck follows from ours and has nothing more to do with it.
    pub(super) fn fork(&mut self) -> Self {
        Self::new(self.roll())
    }

    /// The next number.
    pub(crate) fn roll(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..end`. The bias of the remainder is far below what any test could see.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is no number below 0");
        self.roll() % end
    }

    /// How many of `most` things to move: nothing, all, or some, each about as often.
    pub(super) fn part_of(&mut self, most: usize) -> usize {
        match self.below(3) {
            0 => 0,
            1 => most,
            _ => usize::try_from(self.below(most as u64 + 1)).expect("at most `most`, which is a usize"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_the_published_generator() {
        let mut dice = Dice::new(1_234_567);
        let rolled: Vec<u64> = (0..3).map(|_| dice.roll()).collect();
        assert_eq!(rolled, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn parts_are_nothing_all_and_something_between() {
        let mut dice = Dice::new(1);
        let parts: Vec<usize> = (0..100).map(|_| dice.part_of(10)).collect();
        assert!(parts.iter().all(|&part| part <= 10));
        assert!(parts.contains(&0) && parts.contains(&10) && parts.iter().any(|&part| (1..10).contains(&part)));
    }
}
