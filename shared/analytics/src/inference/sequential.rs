//! Inference that is valid at any time, however often the numbers are looked at: the mixture sequential probability ratio
//! test with a normal mixture (R. Johari, L. Pekelis, D. Walsh, "Always valid inference", 2015).
//!
//! Must stay true: the mixture variance is a fixed multiple of the variance of one person's numbers, which does not depend
//! on the observed difference.

use super::{Interval, float};

/// The number of persons of both variants at which the interval is narrowest in relation to that of a fixed sample size.
pub const TUNED_PERSONS: u64 = 5_000;

/// An estimated difference between two variants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EstimatedDifference {
    /// The difference, treatment minus control.
    pub difference: f64,
    /// Its variance; more than 0.
    pub variance: f64,
    /// Persons of both variants.
    pub persons: u64,
}

impl EstimatedDifference {
    /// The mixture variance for a test at `level`: the variance of one person's numbers, times the factor by I.
    /// Waudby-Smith et al., "Time-uniform central limit theory and asymptotic confidence sequences" (2021), that makes the
    /// interval narrowest at [`TUNED_PERSONS`].
    pub fn mixture_variance(self, level: f64) -> f64 {
        let twice_log = -2.0 * (1.0 - level).ln();
        let factor = (twice_log + (twice_log + 1.0).ln()) / float(TUNED_PERSONS);
        self.variance * float(self.persons) * factor
    }

    /// The always-valid p-value of no difference: the reciprocal of the mixture likelihood ratio, at most 1.
    pub fn p_value(self, level: f64) -> f64 {
        let mixture = self.mixture_variance(level);
        let total = self.variance + mixture;
        let exponent = mixture * self.difference * self.difference / (2.0 * self.variance * total);
        (0.5 * (total / self.variance).ln() - exponent).exp().min(1.0)
    }

    /// The confidence sequence at this time: the differences that the test does not reject.
    pub fn interval(self, level: f64) -> Interval {
        let mixture = self.mixture_variance(level);
        let total = self.variance + mixture;
        let logarithm = (total / self.variance).ln() - 2.0 * (1.0 - level).ln();
        let half = (self.variance * total / mixture * logarithm).sqrt();
        (self.difference - half, self.difference + half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_has_the_differences_that_the_test_does_not_reject() {
        for persons in [100, 5_000, 1_000_000] {
            let of =
                |difference: f64| EstimatedDifference { difference, variance: 0.2 / float(persons), persons };
            for level in [0.9, 0.95, 0.999] {
                let (low, high) = of(0.0).interval(level);
                assert!(low < 0.0 && (low + high).abs() < 1e-15);
                let alpha = 1.0 - level;
                assert!((of(high).p_value(level) - alpha).abs() < 1e-12);
                assert!(of(1.01 * high).p_value(level) < alpha && of(0.99 * high).p_value(level) > alpha);
            }
            assert_eq!(of(0.0).p_value(0.95), 1.0);
        }
    }

    #[test]
    fn the_interval_is_wider_than_that_of_a_fixed_sample_size() {
        for persons in [200, 5_000, 200_000] {
            let one = EstimatedDifference { difference: 0.01, variance: 0.2 / float(persons), persons };
            let (low, high) = one.interval(0.95);
            let ratio = (high - low) / (2.0 * 1.959_964 * one.variance.sqrt());
            assert!(ratio > 1.3 && ratio < 3.0, "{persons}: {ratio}");
        }
    }
}
