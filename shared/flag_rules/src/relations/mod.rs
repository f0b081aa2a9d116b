//! The records that a flag refers to: cohorts, other flags, dashboards.
//!
//! Must stay true: the caller loads the records; collecting the ids of a body never fails and is bounded.

pub mod body_references;
pub mod cohort;
pub mod dependencies;
pub mod references;

pub use references::{CohortReference, FlagReference, References};
