//! The `filters` of a flag: validation on write, and access to stored ones.
//!
//! Must stay true: evaluation understands everything that passes validation; reading stored filters never fails.

pub mod date_value;
pub mod filter_view;
pub mod filters;
pub mod pattern;
pub mod payloads;
pub mod properties;
pub mod record_ids;
pub mod shape;
