//! The statistics of one variant, and of its comparison with the control.

use super::counts::VariantCounts;
use crate::inference::Interval;
use crate::inference::means::{SampleMean, WelchDifference, ratio_interval};
use crate::inference::posterior::Posterior;
use crate::inference::proportions::{katz_interval, newcombe_interval, z_test};
use crate::inference::sequential::EstimatedDifference;
use crate::kinds::flag_impact::query::InferenceMethod;

/// How the number of a variant is estimated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimation {
    /// Whether it is a rate; else a mean.
    pub(super) is_rate: bool,
    pub(super) method: InferenceMethod,
    pub(super) level: f64,
}

/// A variant compared with the control.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Comparison {
    pub(super) difference: f64,
    /// Of the method: confidence interval or credible interval.
    pub(super) difference_interval: Option<Interval>,
    /// The difference divided by the control's number; `None` if that is not above 0.
    pub(super) relative_difference: Option<f64>,
    pub(super) relative_interval: Option<Interval>,
    /// Frequentist: two-sided, for a sample size that was fixed in advance.
    pub(super) p_value: Option<f64>,
    pub(super) always_valid_p_value: Option<f64>,
    pub(super) always_valid_interval: Option<Interval>,
    /// Bayesian: the probability that the variant's number is larger than the control's.
    pub(super) chance_to_win: Option<f64>,
}

impl Estimation {
    /// The rate or mean of a variant; `None` without persons.
    pub(super) fn estimate(self, counts: &VariantCounts) -> Option<f64> {
        let number = || if self.is_rate { counts.proportion().rate() } else { counts.numbers.mean() };
        (counts.exposed > 0).then(number)
    }

    /// The interval of the rate or mean.
    pub(super) fn interval(self, counts: &VariantCounts) -> Option<Interval> {
        match (self.method, self.is_rate) {
            _ if counts.exposed == 0 => None,
            (InferenceMethod::Bayesian, _) => {
                self.posterior(counts).map(|posterior| posterior.interval(self.level))
            }
            (InferenceMethod::Frequentist, true) => Some(counts.proportion().wilson_interval(self.level)),
            (InferenceMethod::Frequentist, false) => {
                sample_mean(counts).map(|mean| mean.interval(self.level))
            }
        }
    }

    /// The posterior distribution of the rate or mean; `None` without persons, or for numbers that do not vary.
    pub(super) fn posterior(self, counts: &VariantCounts) -> Option<Posterior> {
        if counts.exposed == 0 {
            None
        } else if self.is_rate {
            Some(Posterior::of_rate(counts.proportion()))
        } else {
            sample_mean(counts).and_then(Posterior::of_mean)
        }
    }

    /// Compares a variant with the control; `None` if one of them has no persons.
    pub(super) fn compare(self, treatment: &VariantCounts, control: &VariantCounts) -> Option<Comparison> {
        let (number, control_number) = (self.estimate(treatment)?, self.estimate(control)?);
        let difference = number - control_number;
        let relative_difference = (control_number > 0.0).then(|| difference / control_number);
        let compared = Comparison { difference, relative_difference, ..Comparison::default() };
        let compared = self.with_always_valid(compared, treatment, control);
        let compared = match self.method {
            InferenceMethod::Bayesian => self.with_posterior(compared, treatment, control),
            InferenceMethod::Frequentist => self.with_confidence(compared, treatment, control),
        };
        Some(compared)
    }

    fn with_posterior(
        self,
        compared: Comparison,
        treatment: &VariantCounts,
        control: &VariantCounts,
    ) -> Comparison {
        let (Some(treatment), Some(control)) = (self.posterior(treatment), self.posterior(control)) else {
            return compared;
        };
        Comparison {
            difference_interval: Some(control.difference_interval(&treatment, self.level)),
            relative_interval: control.ratio_interval(&treatment, self.level).map(less_one),
            chance_to_win: Some(control.chance_below(&treatment)),
            ..compared
        }
    }

    fn with_confidence(
        self,
        compared: Comparison,
        treatment: &VariantCounts,
        control: &VariantCounts,
    ) -> Comparison {
        if self.is_rate {
            let (treatment, control) = (treatment.proportion(), control.proportion());
            return Comparison {
                difference_interval: Some(newcombe_interval(treatment, control, self.level)),
                relative_interval: katz_interval(treatment, control, self.level).map(less_one),
                p_value: Some(z_test(treatment, control)),
                ..compared
            };
        }
        let (Some(treatment), Some(control)) = (sample_mean(treatment), sample_mean(control)) else {
            return compared;
        };
        let welch = WelchDifference::new(treatment, control);
        Comparison {
            difference_interval: welch.map(|welch| welch.interval(self.level)),
            relative_interval: ratio_interval(treatment, control, self.level).map(less_one),
            p_value: welch.map(WelchDifference::p_value),
            ..compared
        }
    }

    fn with_always_valid(
        self,
        compared: Comparison,
        treatment: &VariantCounts,
        control: &VariantCounts,
    ) -> Comparison {
        let variance = if self.is_rate {
            treatment.proportion().variance() + control.proportion().variance()
        } else {
            match (sample_mean(treatment), sample_mean(control)) {
                (Some(one), Some(other)) => one.variance_of_mean() + other.variance_of_mean(),
                _ => 0.0,
            }
        };
        if variance <= 0.0 || !variance.is_finite() {
            return compared;
        }
        let persons = treatment.exposed + control.exposed;
        let estimated = EstimatedDifference { difference: compared.difference, variance, persons };
        Comparison {
            always_valid_p_value: Some(estimated.p_value(self.level)),
            always_valid_interval: Some(estimated.interval(self.level)),
            ..compared
        }
    }
}

impl Comparison {
    /// The interval that decides about the verdict: the credible interval, or the confidence sequence, which may be looked at
    /// any number of times.
    pub(super) fn deciding_interval(&self, method: InferenceMethod) -> Option<Interval> {
        match method {
            InferenceMethod::Bayesian => self.difference_interval,
            InferenceMethod::Frequentist => self.always_valid_interval,
        }
    }
}

/// The mean of a variant; `None` for fewer than two persons.
fn sample_mean(counts: &VariantCounts) -> Option<SampleMean> {
    let numbers = &counts.numbers;
    let mean = || SampleMean { count: numbers.count(), mean: numbers.mean(), variance: numbers.variance() };
    (numbers.count() > 1).then(mean)
}

/// The interval of a relative difference from that of a ratio.
fn less_one((low, high): Interval) -> Interval {
    (low - 1.0, high - 1.0)
}
