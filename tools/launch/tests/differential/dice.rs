//! Numbers that follow from a seed: the same on every rank and in every run.

/// SplitMix64 (Steele, Lea, Flood).
#[derive(Clone)]
pub struct Dice(u64);

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// One number from several.
pub fn key(parts: &[u64]) -> u64 {
    parts.iter().fold(0x5eed, |key, part| mix(key ^ part.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

impl Dice {
    /// The dice of one place in the program.
    pub fn new(parts: &[u64]) -> Dice {
        Dice(key(parts))
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// `0..end`; 0 if there is nothing to choose from.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.word() % end as u64) as usize }
    }

    /// From the range, both ends included.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.word() % 100 < percent
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }

    /// A number of bytes: mostly few, sometimes up to 300 KB, often just around where the ways to the target change.
    pub fn size(&mut self) -> usize {
        const EDGES: [usize; 9] = [64, 512, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
        match self.below(1000) {
            0..=4 => self.within(64 << 10, 300 << 10),
            5..=29 => self.within(4 << 10, 64 << 10),
            30..=69 => {
                let edge = EDGES[self.below(EDGES.len()).min(self.below(EDGES.len()))];
                self.within(edge - 9, edge + 9)
            }
            70..=249 => self.within(128, 4 << 10),
            _ => self.within(1, 128),
        }
    }
}

/// Fills bytes with what follows from the key.
pub fn fill(bytes: &mut [u8], key: u64) {
    let mut dice = Dice(key);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = dice.word().to_le_bytes();
    }
    let last = dice.word().to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

/// So many bytes that follow from the key.
pub fn filled(bytes: usize, key: u64) -> Vec<u8> {
    let mut filled = vec![0; bytes];
    fill(&mut filled, key);
    filled
}
