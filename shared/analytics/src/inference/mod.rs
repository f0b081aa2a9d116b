//! Statistical inference about two or more samples: intervals, p-values and posterior probabilities of rates and means.
//!
//! `special` has the special functions, `distributions` the normal, Student and chi-square distributions, `quadrature` and
//! `root` numerical integration and root finding. Built on these: `proportions` and `means` (fixed sample size),
//! `sequential` (valid at any time), `posterior` (Bayesian) and `sample_ratio`. docs/impact.md has the formulas and their
//! sources.
//!
//! Must stay true: pure arithmetic without randomness, accurate to 1e-9; `tests/impact/golden.json` has values of other
//! libraries for 1,000 random tables. Nothing here knows queries or events.

pub mod distributions;
pub mod means;
pub mod moments;
pub mod posterior;
pub mod proportions;
mod quadrature;
mod root;
pub mod sample_ratio;
pub mod sequential;
pub mod special;

/// The lower and the upper end of an interval.
pub type Interval = (f64, f64);

/// A count as a float. Counts of persons are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts of persons are far below 2^53")]
pub fn float(count: u64) -> f64 {
    count as f64
}
