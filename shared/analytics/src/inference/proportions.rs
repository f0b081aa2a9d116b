//! Rates with a fixed sample size: intervals and the p-value of a difference.

use super::distributions::{normal_critical, normal_two_sided};
use super::{Interval, float};

/// Persons, and how many of them converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proportion {
    /// The persons; more than 0.
    pub persons: u64,
    /// Those that converted.
    pub converted: u64,
}

impl Proportion {
    /// The share of persons that converted.
    pub fn rate(self) -> f64 {
        float(self.converted) / float(self.persons)
    }

    /// The estimated variance of the rate.
    pub fn variance(self) -> f64 {
        self.rate() * (1.0 - self.rate()) / float(self.persons)
    }

    /// The interval of E. B. Wilson (1927) for the rate.
    pub fn wilson_interval(self, level: f64) -> Interval {
        let (n, k, z) = (float(self.persons), float(self.converted), normal_critical(level));
        let centre = (k + 0.5 * z * z) / (n + z * z);
        let half = z / (n + z * z) * (k * (n - k) / n + 0.25 * z * z).sqrt();
        // At the ends, exactly: the square root is rounded.
        let low = if self.converted == 0 { 0.0 } else { centre - half };
        let high = if self.converted == self.persons { 1.0 } else { centre + half };
        (low, high)
    }
}

/// The interval of R. G. Newcombe (1998, method 10) for the difference of two rates, treatment minus control.
pub fn newcombe_interval(treatment: Proportion, control: Proportion, level: f64) -> Interval {
    let (rate, control_rate) = (treatment.rate(), control.rate());
    let (low, high) = treatment.wilson_interval(level);
    let (control_low, control_high) = control.wilson_interval(level);
    let difference = rate - control_rate;
    (
        difference - (rate - low).hypot(control_high - control_rate),
        difference + (high - rate).hypot(control_rate - control_low),
    )
}

/// The interval of D. Katz et al. (1978) for the ratio of two rates. `None` if no person converted in one of them.
pub fn katz_interval(treatment: Proportion, control: Proportion, level: f64) -> Option<Interval> {
    if treatment.converted == 0 || control.converted == 0 {
        return None;
    }
    let part = |it: Proportion| 1.0 / float(it.converted) - 1.0 / float(it.persons);
    let half = normal_critical(level) * (part(treatment) + part(control)).sqrt();
    let ratio = (treatment.rate() / control.rate()).ln();
    Some(((ratio - half).exp(), (ratio + half).exp()))
}

/// The two-sided p-value of equal rates: the z-test with the pooled rate.
pub fn z_test(treatment: Proportion, control: Proportion) -> f64 {
    let (n, m) = (float(treatment.persons), float(control.persons));
    let pooled = float(treatment.converted + control.converted) / (n + m);
    let variance = pooled * (1.0 - pooled) * (1.0 / n + 1.0 / m);
    if variance <= 0.0 {
        return 1.0;
    }
    normal_two_sided((treatment.rate() - control.rate()) / variance.sqrt())
}
