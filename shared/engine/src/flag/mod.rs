//! Feature flag rules: validation of writes, the record, edit permissions, list filters, evaluation.
//!
//! Must stay true: everything here is a pure function. The caller loads the records that a body refers to
//! ([`body_references`]), passes them in ([`References`], [`ValidationContext`]) and stores the result; the time and
//! new ids are arguments.
//!
//! Write path: [`body_references::collect`] → load the references → [`FlagInput::parse`] → [`Flag::create`] or
//! [`Flag::apply`] → [`transition::check`] → [`conflict::detect`] → store the flag, its [`FlagRow`] and an activity
//! entry from [`changes::kind`] and [`changes::between`].
//!
//! Read path: [`evaluate`] computes a flag's value for a person or a group, [`definitions`] the document for local
//! evaluation in SDKs, [`blast_radius`] which persons or groups a condition matches.

pub mod blast_radius;
pub mod body_references;
pub mod calls;
pub mod changes;
pub mod cohort;
pub mod conflict;
pub mod date_value;
pub mod definitions;
pub mod dependencies;
pub mod display;
pub mod edit_permission;
pub mod error;
pub mod evaluate;
pub mod fields;
pub mod filter_view;
pub mod filters;
pub mod hash;
pub mod input;
pub mod json;
mod known_fields;
pub mod limits;
pub mod listing;
pub mod pattern;
pub mod payloads;
pub mod properties;
pub mod python;
pub mod record;
pub mod references;
pub mod row;
pub mod shape;
pub mod status;
pub mod timestamp;
pub mod transition;
pub mod usage;

#[cfg(test)]
mod robustness;
#[cfg(test)]
mod testing;

pub use calls::CallTimes;
pub use display::{AccessLevel, FlagTemplate, Viewer};
pub use error::FieldError;
pub use input::{FlagInput, ValidationContext, WriteKind, is_possible_key};
pub use record::{Flag, UserRef};
pub use references::{CohortReference, FlagReference, References};
pub use row::{FlagRow, stamp};
