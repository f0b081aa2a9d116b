//! Feature flag rules: validation of writes, the record, edit permissions, list filters, evaluation.
//!
//! Must stay true: everything here is a pure function. The caller loads the records that a body refers to
//! ([`flag::body_references`]), passes them in ([`References`], [`ValidationContext`]) and stores the result; the time
//! and new ids are arguments. Nothing here knows analytics.
//!
//! Write path: [`flag::body_references::collect`] → load the references → [`FlagInput::parse`] → [`Flag::create`] or
//! [`Flag::apply`] → [`flag::transition::check`] → [`flag::conflict::detect`] → store the flag, its [`FlagRow`] and an
//! activity entry from [`flag::changes::kind`] and [`flag::changes::between`].
//!
//! Read path: [`evaluate`] computes a flag's value for a person or a group, [`definitions`] the document for local
//! evaluation in SDKs, [`blast_radius`] which persons or groups a condition matches.

pub mod blast_radius;
pub mod calls;
pub mod conditions;
pub mod definitions;
pub mod evaluate;
pub mod flag;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod hash;
pub mod limits;
pub mod relations;

#[cfg(test)]
mod robustness;
#[cfg(test)]
mod testing;

pub use calls::CallTimes;
pub use flag::{
    Flag, FlagInput, FlagRow, FlagTemplate, FlagViewer, UserAccessLevel, UserRef, ValidationContext,
    WriteKind, is_possible_key, stamp,
};
pub use relations::{CohortReference, FlagReference, References};
