//! The parsed flag impact query.

use super::flag::FlagUnderTest;
use super::metric::Metric;

/// Compares a metric between the persons that saw the variants of a flag.
#[derive(Debug, Clone, PartialEq)]
pub struct FlagImpactQuery {
    /// The flag.
    pub flag: FlagUnderTest,
    /// What counts as exposure.
    pub exposure: Exposure,
    /// What is compared.
    pub metric: Metric,
    /// How uncertainty is calculated.
    pub method: InferenceMethod,
    /// The level of intervals.
    pub confidence_level: f64,
    /// Persons that a variant and the control need for a verdict.
    pub minimum_sample: u64,
    /// The variant that the others are compared with; `None` chooses one.
    pub control: Option<String>,
}

/// What counts as exposure to a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exposure {
    /// An event `$feature_flag_called` of the flag.
    FlagCalled,
    /// An event with the property `$feature/<key>`.
    Property {
        /// The event's name; `None` for every event.
        event: Option<String>,
    },
}

/// How uncertainty is calculated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InferenceMethod {
    /// Posterior distributions and credible intervals.
    Bayesian,
    /// Confidence intervals and p-values.
    Frequentist,
}

impl InferenceMethod {
    /// The names in requests.
    pub const NAMES: [(&'static str, Self); 2] =
        [("bayesian", Self::Bayesian), ("frequentist", Self::Frequentist)];

    /// The name in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bayesian => "bayesian",
            Self::Frequentist => "frequentist",
        }
    }
}

impl Exposure {
    /// The names in requests.
    pub const NAMES: [&'static str; 2] = ["feature_flag_called", "property"];

    /// The name in requests.
    pub fn name(&self) -> &'static str {
        match self {
            Self::FlagCalled => "feature_flag_called",
            Self::Property { .. } => "property",
        }
    }

    /// The event, where a request can name one.
    pub fn event(&self) -> Option<&str> {
        match self {
            Self::FlagCalled => None,
            Self::Property { event } => event.as_deref(),
        }
    }
}
