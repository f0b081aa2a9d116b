//! Seeded random numbers, so that a simulation has the same result everywhere and always.

/// A sequence of random numbers (SplitMix64).
#[derive(Debug)]
pub(super) struct SeededRandom(u64);

impl SeededRandom {
    pub(super) fn new(seed: u64) -> SeededRandom {
        SeededRandom(seed)
    }

    /// A number above 0 and at most 1.
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = u32::try_from((bits ^ (bits >> 31)) >> 32).unwrap_or(u32::MAX);
        (f64::from(high) + 1.0) / 4_294_967_296.0
    }

    /// A log-normal factor with median 1; `spread` is the standard deviation of its logarithm.
    pub(super) fn factor(&mut self, spread: f64) -> f64 {
        let (radius, angle) = (self.fraction(), self.fraction());
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        (spread * normal).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_and_the_logarithm_has_the_spread() {
        let mut random = SeededRandom::new(1);
        let mut logarithms = (0..10_001).map(|_| random.factor(0.2).ln()).collect::<Vec<_>>();
        logarithms.sort_by(f64::total_cmp);
        assert!(logarithms[5_000].abs() < 0.01, "{}", logarithms[5_000]);
        // A normal distribution has 15.87 % below one deviation under its mean, and above one over it.
        assert!((logarithms[1_587] + 0.2).abs() < 0.01, "{}", logarithms[1_587]);
        assert!((logarithms[8_413] - 0.2).abs() < 0.01, "{}", logarithms[8_413]);
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_no_spread_gives_one() {
        let numbers = |seed| {
            let mut random = SeededRandom::new(seed);
            [random.factor(1.0), random.factor(1.0)]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert_eq!(SeededRandom::new(7).factor(0.0), 1.0);
    }
}
