//! The rules and the arithmetic of Pennon: flag rules, filters, dates, funnels and trends.
//!
//! Everything here is a pure function of its arguments: no I/O, no clock, no randomness, no cloud types. The event
//! store hands over columns ([`scan`]), a calculation gives back numbers in the shapes that the HTTP contract has:
//! [`query`] parses a question, [`plan`] makes it ready and merges its parts.

mod action;
mod breakdown;
pub mod clickhouse;
mod cohort;
mod cohort_count;
mod compiler;
mod correlation;
pub mod dates;
pub mod definitions;
mod dictionary;
mod dictionary_encoder;
mod element;
pub mod error;
pub mod filter;
pub mod flag;
mod funnel;
mod interpolate;
mod join;
pub mod limits;
mod matcher;
pub mod people;
pub mod plan;
pub mod query;
mod re2;
mod references;
mod regex_bounds;
mod repartition;
pub mod scan;
mod semver;
mod sessions;
pub mod spelling;
pub mod sql;
mod text;
mod trends;
mod url;
mod validation;
mod work;

pub use cohort_count::Membership;
pub use definitions::{Action, Cohort, Definitions, Mentions};
pub use dictionary_encoder::Codes;
pub use error::{CalcError, CalcResult, ErrorKind};
pub use funnel::unbox_breakdown;
pub use join::{Facts, Needs, Properties};
pub use plan::{Answer, Partial, Plan, ProjectContext};
pub use query::{Parsed, Query};
pub use repartition::ActorKind;
pub use sessions::{SessionValue, session_properties};
pub use text::text_of;
pub use work::{CancelOnDrop, CancellationToken};
