//! Random choices that a seed repeats.

use proptest::prelude::RngExt;
use proptest::test_runner::{RngAlgorithm, TestRng};

pub struct Dice(TestRng);

impl Dice {
    pub fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    /// Both ends included.
    pub fn within(&mut self, low: i64, high: i64) -> i64 {
        self.0.random_range(low..=high)
    }

    pub fn count(&mut self, low: usize, high: usize) -> usize {
        self.0.random_range(low..=high)
    }

    pub fn percent(&mut self, chance: i64) -> bool {
        self.within(0, 99) < chance
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.0.random_range(0..of.len())].clone()
    }
}
