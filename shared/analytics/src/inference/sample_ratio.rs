//! The check of the sample ratio: whether the variants have as many persons as the flag's split gives them (A. Fabijan et
//! al., "Diagnosing sample ratio mismatch in online controlled experiments", KDD 2019).

use super::distributions::chi_square_tail;
use super::float;

/// The least expected number of persons of a variant: below it, the chi-square distribution is not a good approximation.
pub const EXPECTED_PERSONS_MIN: f64 = 5.0;
/// A p-value below this is a mismatch.
pub const MISMATCH_P_VALUE: f64 = 0.001;

/// The result of the check.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleRatioTest {
    /// The expected number of persons of each variant.
    pub expected: Vec<f64>,
    /// Pearson's statistic.
    pub chi_square: f64,
    /// Variants less one.
    pub freedom: u64,
    /// Probability of a statistic at least as large, if persons are split as expected.
    pub p_value: f64,
}

impl SampleRatioTest {
    /// Compares persons with shares, which are above 0 and need not add up to 1. `None` for fewer than two variants, or if
    /// one of them is expected to have fewer than [`EXPECTED_PERSONS_MIN`] persons.
    pub fn new(observed: &[u64], shares: &[f64]) -> Option<Self> {
        let (total, shares_sum) = (float(observed.iter().sum()), shares.iter().sum::<f64>());
        let expected: Vec<f64> = shares.iter().map(|share| total * share / shares_sum).collect();
        if observed.len() < 2 || expected.iter().any(|persons| *persons < EXPECTED_PERSONS_MIN) {
            return None;
        }
        let terms = observed.iter().zip(&expected).map(|(persons, expected)| {
            let difference = float(*persons) - expected;
            difference * difference / expected
        });
        let chi_square = terms.sum();
        let freedom = u64::try_from(observed.len()).unwrap_or(u64::MAX) - 1;
        let p_value = chi_square_tail(chi_square, float(freedom));
        Some(Self { expected, chi_square, freedom, p_value })
    }

    /// Whether persons are missing from a variant, or counted in the wrong one.
    pub fn is_mismatch(&self) -> bool {
        self.p_value < MISMATCH_P_VALUE
    }
}
