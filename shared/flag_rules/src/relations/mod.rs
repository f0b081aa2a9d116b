//! The records that a flag refers to: cohorts and other flags.
//!
//! Must stay true: the caller loads the records.

pub mod cohort;
pub mod cohort_rules;
pub mod dependencies;
pub mod references;

pub use references::{CohortReference, FlagReference, References};
