//! The rules of feature flags: what may be written, what a record looks like, who may edit it, how lists are filtered.
//!
//! Must stay true: everything here is a pure function. The caller looks up what a body mentions ([`mentions`]), hands the
//! answers over ([`References`], [`Surroundings`]) and stores what comes back; the time and the ids are arguments.
//!
//! The way of a write: [`mentions::of_body`] → look-ups → [`FlagInput::parse`] → [`Flag::create`] or [`Flag::apply`] →
//! [`transition::check`] → [`conflict::overlap`] → store the flag, its [`FlagRow`] and an activity entry made of
//! [`changes::kind`] and [`changes::between`].
//!
//! What a stored flag is worth: [`evaluate`] gives its value for a person or a group, [`definitions`] the document from
//! which clients find out the same themselves, [`blast`] whom a condition reaches.

pub mod blast;
pub mod calls;
pub mod changes;
pub mod cohort;
pub mod conflict;
pub mod date_value;
pub mod definitions;
pub mod dependencies;
pub mod display;
pub mod edit_right;
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
pub mod mentions;
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
pub use display::{AccessLevel, Prepared, Viewer};
pub use error::FieldError;
pub use input::{FlagInput, Surroundings, Write, is_possible_key};
pub use record::{Flag, UserRef};
pub use references::{CohortReference, FlagReference, References};
pub use row::{FlagRow, stamp};
