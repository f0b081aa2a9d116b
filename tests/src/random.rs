//! Random choices that a seed repeats.

/// A sequence of numbers that its seed determines (SplitMix64).
#[derive(Debug, Clone, Default)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// One of `items`, which are not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[usize::try_from(self.below(items.len() as u64)).unwrap_or(0)]
    }
}

/// A text of printable characters that need no escape in JSON, which deflates to some four fifths.
pub fn noise(seed: u64, length: usize) -> String {
    let alphabet: Vec<char> = ('!'..='~').filter(|it| !matches!(it, '"' | '\\')).collect();
    let mut random = Random::new(seed);
    (0..length).map(|_| *random.pick(&alphabet)).collect()
}
