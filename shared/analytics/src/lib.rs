//! Analytics calculations: filters on events, cohorts, funnels, trends and correlations.
//!
//! All functions are pure: no I/O, no clock, no randomness, no cloud types. [`kinds`] parses a request, [`plan`] compiles
//! it, computes a partial result for each partition and merges them. The input is columns from the event store ([`scan`])
//! and data joined to them ([`join`]); the output is JSON in the shapes of the HTTP contract. Nothing here knows the rules of
//! flags.

mod actor_blocks;
mod breakdown;
pub mod clickhouse;
mod cohort_count;
mod compiler;
mod creation;
pub mod definitions;
mod dictionary;
mod dictionary_encoder;
mod element;
pub mod filter;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod inference;
mod interpolate;
mod join;
mod join_derived;
mod join_parts;
pub mod kinds;
pub mod limits;
mod mask;
mod numbers;
pub mod part_format;
pub mod people;
mod people_links;
mod person_range;
mod project;
pub mod query;
mod references;
pub mod refresh;
mod repartition;
pub mod scan;
mod sessions;
pub mod sql;
mod url;
mod validation;

pub use cohort_count::CohortCount;
pub use compiler::action::MATCH_MODES as ACTION_MATCH_MODES;
pub use compiler::cohort::{BEHAVIOUR_UNITS, BEHAVIOURS};
pub use creation::{CreationRequest, PersonTimes};
pub use definitions::{Action, Cohort, DefinitionIds, Definitions};
pub use dictionary_encoder::DictionaryEncoder;
pub use element::{EXACT_KEYS as ELEMENT_EXACT_KEYS, TEXT_KEYS as ELEMENT_TEXT_KEYS};
pub use join::{DataRequirements, JoinData, PropertyTable};
pub use join_parts::{InvalidJoinData, StoredJoinData};
pub use kinds::{DataPoint, InsightKind, ParsedQuery, PartitionResult, Plan, Query, QueryOutput};
pub use person_range::PersonRange;
pub use project::ProjectContext;
pub use references::COHORT_TYPES;
pub use scan::ActorKind;
pub use sessions::{DURATION as SESSION_DURATION, DURATION_OPERATORS, SessionFieldType, session_fields};
