//! Means with a fixed sample size: Welch's interval and test.

use super::distributions::{student_critical, student_two_sided};
use super::{Interval, float};

/// The mean of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleMean {
    /// Its numbers; at least 2.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Their variance, with the divisor n - 1.
    pub variance: f64,
}

impl SampleMean {
    /// The variance of the mean.
    pub fn variance_of_mean(self) -> f64 {
        self.variance / float(self.count)
    }

    /// Degrees of freedom.
    pub fn freedom(self) -> f64 {
        float(self.count) - 1.0
    }

    /// Student's interval for the mean.
    pub fn interval(self, level: f64) -> Interval {
        let half = student_critical(level, self.freedom()) * self.variance_of_mean().sqrt();
        (self.mean - half, self.mean + half)
    }
}

/// The difference of two means, treatment minus control, by B. L. Welch (1947).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WelchDifference {
    /// The difference.
    pub difference: f64,
    /// Its variance; more than 0.
    pub variance: f64,
    /// Degrees of freedom by Welch and Satterthwaite.
    pub freedom: f64,
}

impl WelchDifference {
    /// `None` if neither sample varies.
    pub fn new(treatment: SampleMean, control: SampleMean) -> Option<Self> {
        let (one, other) = (treatment.variance_of_mean(), control.variance_of_mean());
        let variance = one + other;
        // Shares, so that tiny variances have no tinier squares.
        let (one, other) = (one / variance, other / variance);
        let freedom = 1.0 / (one * one / treatment.freedom() + other * other / control.freedom());
        let is_defined = variance > 0.0 && variance.is_finite() && freedom.is_finite();
        is_defined.then_some(Self { difference: treatment.mean - control.mean, variance, freedom })
    }

    /// The interval of the difference.
    pub fn interval(self, level: f64) -> Interval {
        let half = student_critical(level, self.freedom) * self.variance.sqrt();
        (self.difference - half, self.difference + half)
    }

    /// The two-sided p-value of equal means.
    pub fn p_value(self) -> f64 {
        student_two_sided(self.difference / self.variance.sqrt(), self.freedom)
    }
}

/// The interval of the ratio of two means by the delta method, with Welch's degrees of freedom. `None` if neither sample
/// varies, or if the control's own interval is not above 0.
pub fn ratio_interval(treatment: SampleMean, control: SampleMean, level: f64) -> Option<Interval> {
    let welch = WelchDifference::new(treatment, control)?;
    if control.mean <= 0.0 || control.interval(level).0 <= 0.0 {
        return None;
    }
    let ratio = treatment.mean / control.mean;
    let variance = (treatment.variance_of_mean() + ratio * ratio * control.variance_of_mean())
        / (control.mean * control.mean);
    let half = student_critical(level, welch.freedom) * variance.sqrt();
    Some((ratio - half, ratio + half))
}
