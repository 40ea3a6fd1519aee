//! Seeded luck: SplitMix64 (Steele, Lea and Flood, 2014), written out, so that a seed means the same run for ever.

/// A stream of numbers that follows from its seed.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

/// Spreads a number over all bits.
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl Dice {
    /// Dice for thing number `number` of the kind `kind` under `seed`: independent of all others, whoever is made first.
    pub fn of(seed: u64, kind: u64, number: u64) -> Dice {
        Dice { state: mix(mix(mix(seed) ^ kind) ^ number) }
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        let rolled = mix(self.state);
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        rolled
    }

    /// A number in `0..end`. The bias is far below what any test could see.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is no number below 0");
        // The upper half of a product is cheaper than a remainder.
        ((u128::from(self.roll()) * u128::from(end)) >> 64) as u64
    }

    /// A number in `from..=to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of some things.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_rolls_the_same_and_another_thing_rolls_otherwise() {
        let rolled = |kind, number| -> Vec<u64> {
            let mut dice = Dice::of(7, kind, number);
            (0..4).map(|_| dice.roll()).collect()
        };
        assert_eq!(rolled(1, 2), rolled(1, 2));
        assert_ne!(rolled(1, 2), rolled(2, 1));
        assert_ne!(rolled(1, 2), rolled(1, 3));
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut dice = Dice::of(1, 1, 1);
        let rolled: Vec<u64> = (0..1000).map(|_| dice.between(3, 7)).collect();
        assert!(rolled.iter().all(|number| (3..=7).contains(number)));
        assert!(rolled.contains(&3) && rolled.contains(&7));
    }
}
