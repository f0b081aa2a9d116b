//! The rules and the arithmetic of Pennon: flag rules, filters, dates, funnels and trends.
//!
//! Everything here is a pure function of its arguments: no I/O, no clock, no randomness, no cloud types. The event
//! store hands over columns ([`scan`]), a calculation gives back numbers in the shapes that the HTTP contract has:
//! [`query`] parses a question, [`plan`] makes it ready and merges its parts.

mod action;
mod between;
mod breakdown;
mod check;
pub mod clickhouse;
mod codes;
mod cohort;
mod compiler;
mod correlation;
pub mod dates;
pub mod definitions;
mod dictionary;
mod element;
pub mod error;
pub mod facts;
pub mod filter;
pub mod flag;
mod funnel;
pub mod limits;
mod matcher;
mod membership;
mod mentions;
mod pattern;
pub mod people;
pub mod plan;
pub mod query;
mod regex_bounds;
mod regroup;
pub mod scan;
mod semver;
mod sessions;
pub mod spelling;
pub mod sql;
mod text;
mod trends;
mod url;
mod work;

pub use codes::Codes;
pub use definitions::{Action, Cohort, Definitions, Mentions};
pub use error::{CalcError, CalcResult, ErrorKind};
pub use facts::{Facts, Needs, Properties};
pub use funnel::unbox_breakdown;
pub use membership::Membership;
pub use plan::{Answer, Partial, Plan, ProjectContext};
pub use query::{Parsed, Query};
pub use regroup::ActorKind;
pub use sessions::{SessionValue, session_properties};
pub use text::text_of;
pub use work::{CancelOnDrop, CancellationToken};
