//! A feature flag: its record, the input of a write, its views, and the rules about one write.
//!
//! Must stay true: a record changes only through [`Flag::create`], [`Flag::apply`] and [`usage`]; every rule of a write is
//! checked before the record is built.

pub mod body_references;
pub mod changes;
pub mod conflict;
pub mod display;
pub mod edit_permission;
pub mod field_table;
mod filters;
pub mod input;
mod known_fields;
pub mod listing;
pub mod record;
pub mod row;
pub mod status;
pub mod transition;
pub mod usage;

pub use display::{FlagTemplate, FlagViewer, UserAccessLevel};
pub use input::{FlagInput, ValidationContext, WriteKind, is_possible_key};
pub use record::{Flag, UserRef};
pub use row::{FlagRow, stamp};
