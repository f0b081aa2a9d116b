//! Posterior distributions of rates and means, and comparisons of them.
//!
//! A rate has the prior Beta(1/2, 1/2) of H. Jeffreys. A mean has the flat reference prior for mean and logarithm of the
//! variance, which gives a scaled Student distribution. Both are integrated over an angle, in which their densities have no
//! singular ends: the rate is sin^2 of it, the mean's t statistic its tangent.
//!
//! Must stay true: probabilities are integrals by quadrature, never random samples.

use std::f64::consts::FRAC_PI_2;

use super::distributions::student_cdf;
use super::means::SampleMean;
use super::proportions::Proportion;
use super::quadrature::integrate;
use super::root::find_root;
use super::special::{beta_term, incomplete_beta};
use super::{Interval, float};

/// Parameters of Jeffreys' prior.
const JEFFREYS: f64 = 0.5;

/// Distances from the centre at which integrals are split, in standard deviations.
const SPLITS: [f64; 7] = [0.0, 1.0, 2.5, 5.0, 9.0, 15.0, 40.0];

/// The posterior distribution of a variant's rate or mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Posterior {
    /// A rate: Beta(a, b).
    Rate {
        /// Conversions and the prior's 1/2.
        a: f64,
        /// Persons that did not convert and the prior's 1/2.
        b: f64,
    },
    /// A mean: location + scale * t.
    Mean {
        /// The sample mean.
        location: f64,
        /// The standard error; more than 0.
        scale: f64,
        /// Degrees of freedom.
        freedom: f64,
    },
}

impl Posterior {
    /// The posterior of a rate.
    pub fn of_rate(proportion: Proportion) -> Self {
        let failed = proportion.persons - proportion.converted;
        Self::Rate { a: float(proportion.converted) + JEFFREYS, b: float(failed) + JEFFREYS }
    }

    /// The posterior of a mean; `None` if the sample does not vary.
    pub fn of_mean(sample: SampleMean) -> Option<Self> {
        let scale = sample.variance_of_mean().sqrt();
        let is_defined = scale > 0.0 && scale.is_finite() && sample.count > 1;
        is_defined.then_some(Self::Mean { location: sample.mean, scale, freedom: sample.freedom() })
    }

    /// The probability of a value of at most `x`.
    pub fn cdf(&self, x: f64) -> f64 {
        match *self {
            Self::Rate { a, b } => incomplete_beta(a, b, x, 1.0 - x),
            Self::Mean { location, scale, freedom } => student_cdf((x - location) / scale, freedom),
        }
    }

    /// The equal-tailed credible interval.
    pub fn interval(&self, level: f64) -> Interval {
        let tail = 0.5 * (1.0 - level);
        let quantile = |probability: f64| match *self {
            Self::Rate { .. } => find_root(|x| self.cdf(x) - probability, 0.0..=1.0, 0.0),
            Self::Mean { .. } => find_quantile(|x| self.cdf(x), probability, self.centre(), self.spread()),
        };
        (quantile(tail), quantile(1.0 - tail))
    }

    /// The mean, or the location.
    fn centre(&self) -> f64 {
        match *self {
            Self::Rate { a, b } => a / (a + b),
            Self::Mean { location, .. } => location,
        }
    }

    /// The standard deviation, or the scale.
    fn spread(&self) -> f64 {
        match *self {
            Self::Rate { a, b } => (a * b / (a + b + 1.0)).sqrt() / (a + b),
            Self::Mean { scale, .. } => scale,
        }
    }

    /// Values between which most of the distribution is.
    fn splits(&self) -> impl Iterator<Item = f64> {
        let (centre, spread) = (self.centre(), self.spread());
        SPLITS.into_iter().flat_map(move |count| [centre - count * spread, centre + count * spread])
    }

    /// The angle of a value.
    fn angle(&self, x: f64) -> f64 {
        match *self {
            Self::Rate { .. } => x.clamp(0.0, 1.0).sqrt().asin(),
            Self::Mean { location, scale, freedom } => ((x - location) / (scale * freedom.sqrt())).atan(),
        }
    }

    /// The value at an angle, and the density there in terms of the angle.
    fn at_angle(&self, angle: f64) -> (f64, f64) {
        let (sine, cosine) = angle.sin_cos();
        match *self {
            Self::Rate { a, b } => {
                let (x, y) = (sine * sine, cosine * cosine);
                (x, 2.0 * beta_term(a, b, x, y) / (sine * cosine))
            }
            Self::Mean { location, scale, freedom } => {
                let value = location + scale * freedom.sqrt() * sine / cosine;
                let term = beta_term(0.5, 0.5 * freedom, sine * sine, cosine * cosine);
                (value, term / (sine * cosine).abs())
            }
        }
    }

    /// The expected value of a function whose values change around `points`.
    fn expectation(&self, function: impl Fn(f64) -> f64, points: impl Iterator<Item = f64>) -> f64 {
        let (low, high) = match self {
            Self::Rate { .. } => (0.0, FRAC_PI_2),
            Self::Mean { .. } => (-FRAC_PI_2, FRAC_PI_2),
        };
        let inner = self.splits().chain(points).filter(|point| point.is_finite());
        let inner = inner.map(|point| self.angle(point)).filter(|angle| *angle > low && *angle < high);
        let mut angles: Vec<f64> = [low, high].into_iter().chain(inner).collect();
        angles.sort_by(f64::total_cmp);
        let weighted = |angle: f64| {
            let (value, density) = self.at_angle(angle);
            if density > 0.0 && density.is_finite() { density * function(value) } else { 0.0 }
        };
        integrate(&weighted, &angles)
    }

    /// The probability that `treatment` is larger than this one.
    pub fn chance_below(&self, treatment: &Self) -> f64 {
        let below = self.expectation(|x| 1.0 - treatment.cdf(x), treatment.splits());
        below.clamp(0.0, 1.0)
    }

    /// The equal-tailed credible interval of the difference, `treatment` minus this one.
    pub fn difference_interval(&self, treatment: &Self, level: f64) -> Interval {
        let cdf = |difference: f64| {
            let ends = [-difference, 1.0 - difference];
            let points = treatment.splits().map(|point| point - difference).chain(ends);
            self.expectation(|x| treatment.cdf(x + difference), points)
        };
        let centre = treatment.centre() - self.centre();
        let spread = treatment.spread().hypot(self.spread());
        let tail = 0.5 * (1.0 - level);
        (find_quantile(cdf, tail, centre, spread), find_quantile(cdf, 1.0 - tail, centre, spread))
    }

    /// The equal-tailed credible interval of the ratio, `treatment` to this one. `None` for a mean whose own interval is not
    /// above 0.
    pub fn ratio_interval(&self, treatment: &Self, level: f64) -> Option<Interval> {
        let is_positive = matches!(self, Self::Rate { .. }) || self.interval(level).0 > 0.0;
        if !is_positive {
            return None;
        }
        let cdf = |ratio: f64| {
            let points = treatment.splits().map(|point| point / ratio).chain([0.0, 1.0 / ratio]);
            let below = |x: f64| {
                let below = treatment.cdf(ratio * x);
                if x < 0.0 { 1.0 - below } else { below }
            };
            self.expectation(below, points)
        };
        let centre = treatment.centre() / self.centre();
        let spread = treatment.spread().hypot(centre * self.spread()) / self.centre();
        let tail = 0.5 * (1.0 - level);
        let quantile = |probability: f64| match self {
            Self::Rate { .. } => find_positive_quantile(cdf, probability, centre),
            Self::Mean { .. } => find_quantile(cdf, probability, centre, spread),
        };
        Some((quantile(tail), quantile(1.0 - tail)))
    }
}

/// The probability that the posterior at `index` is the largest of all.
pub fn chance_to_be_largest(posteriors: &[Posterior], index: usize) -> f64 {
    let Some(posterior) = posteriors.get(index) else { return 0.0 };
    let others = || posteriors.iter().enumerate().filter(move |(other, _)| *other != index);
    let product = |x: f64| {
        let mut product = 1.0;
        for (_, other) in others() {
            product *= other.cdf(x);
            if product == 0.0 {
                break;
            }
        }
        product
    };
    let points = others().map(|(_, other)| other.centre());
    posterior.expectation(product, points).clamp(0.0, 1.0)
}

/// The quantile of a distribution around `centre`.
fn find_quantile(cdf: impl Fn(f64) -> f64, probability: f64, centre: f64, spread: f64) -> f64 {
    let (mut below, mut above) = (centre - spread, centre + spread);
    let mut step = spread;
    while cdf(below) > probability && step < 1e300 {
        step *= 2.0;
        below = centre - step;
    }
    step = spread;
    while cdf(above) < probability && step < 1e300 {
        step *= 2.0;
        above = centre + step;
    }
    find_root(|x| cdf(x) - probability, below..=above, 1e-13 * spread)
}

/// The quantile of a distribution of positive numbers, some of which are near to `centre`.
fn find_positive_quantile(cdf: impl Fn(f64) -> f64, probability: f64, centre: f64) -> f64 {
    let (mut below, mut above) = (0.5 * centre, 2.0 * centre);
    while cdf(below) > probability && below > 1e-300 {
        below *= 0.25;
    }
    while cdf(above) < probability && above < 1e300 {
        above *= 4.0;
    }
    find_root(|x| cdf(x) - probability, below..=above, 0.0)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::*;

    fn rate(persons: u64, converted: u64) -> Posterior {
        Posterior::of_rate(Proportion { persons, converted })
    }

    #[test]
    fn densities_integrate_to_one() {
        for posterior in [
            rate(1, 0),
            rate(10, 10),
            rate(1_000, 37),
            rate(10_000_000, 3_000_000),
            Posterior::Mean { location: 3.0, scale: 0.1, freedom: 1.0 },
            Posterior::Mean { location: -3e6, scale: 2.5, freedom: 1e6 },
        ] {
            let total = posterior.expectation(|_| 1.0, std::iter::empty());
            assert!((total - 1.0).abs() < 1e-10, "{posterior:?}: {total}");
        }
    }

    #[test]
    fn equal_posteriors_are_equally_likely_to_be_the_largest() {
        let one = rate(500, 41);
        assert!((one.chance_below(&one) - 0.5).abs() < 1e-10);
        let chance = chance_to_be_largest(&[one, one, one, one], 2);
        assert!((chance - 0.25).abs() < 1e-10, "{chance}");
        let (low, high) = one.difference_interval(&one, 0.9);
        assert!((low + high).abs() < 1e-10);
        let (low, high) = one.ratio_interval(&one, 0.9).unwrap_or_default();
        assert!((low * high - 1.0).abs() < 1e-8);
    }

    #[test]
    fn a_chance_has_a_closed_form_for_arcsine_and_cauchy() {
        // Two arcsine distributions are symmetric to one half; a Cauchy difference is a Cauchy of both scales.
        let arcsine = Posterior::Rate { a: 0.5, b: 0.5 };
        assert!((arcsine.chance_below(&arcsine) - 0.5).abs() < 1e-10);
        let cauchy = |location, scale| Posterior::Mean { location, scale, freedom: 1.0 };
        let chance = cauchy(0.0, 1.0).chance_below(&cauchy(2.0, 3.0));
        assert!((chance - (0.5 + (2.0_f64 / 4.0).atan() / PI)).abs() < 1e-10, "{chance}");
    }
}
