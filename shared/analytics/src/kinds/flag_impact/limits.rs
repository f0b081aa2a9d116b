//! The limits of flag impact, with their error texts, beside those of all queries.

use pennon_filters::error::CalcError;

pub(crate) use crate::limits::*;

/// Different variants that exposures of one query may have.
pub const SEEN_VARIANTS: usize = 20;
/// Bytes of one variant's name.
pub const VARIANT_BYTES: usize = 1_600;
/// Least value of `minimum_sample`: a variance needs two persons.
pub const MINIMUM_SAMPLE_MIN: u64 = 2;
/// Largest value of `minimum_sample`.
pub const MINIMUM_SAMPLE_MAX: u64 = 1_000_000_000;
/// Default of `minimum_sample`.
pub const MINIMUM_SAMPLE_DEFAULT: u64 = 100;
/// Least value of `confidence_level`.
pub const CONFIDENCE_LEVEL_MIN: f64 = 0.5;
/// Largest value of `confidence_level`.
pub const CONFIDENCE_LEVEL_MAX: f64 = 0.9999;
/// Default of `confidence_level`.
pub const CONFIDENCE_LEVEL_DEFAULT: f64 = 0.95;

/// The error for exposures with too many different variants.
pub fn too_many_variants() -> CalcError {
    CalcError::invalid(
        "exposure",
        format!(
            "The exposures have more than {SEEN_VARIANTS} different variants. Narrow the dates, or correct the events that \
             have other values than the flag's variants."
        ),
    )
}
