//! Persons and groups: which distinct ids are one person, and which properties persons and groups have.
//!
//! [`merge_log`] stores captured merges, [`imports`] stores imported records, [`person_merges`] is the union-find over both,
//! [`profiles`] holds what events change, [`lookup`] looks persons up, [`cohort_lists`] and [`continuity`] hold what is stored
//! by person id. Merges are only ever added, except by an erasure; nothing here reads events of segments row by row. The
//! public types are [`PersonIndex`] (which ids are one person), [`PersonLookup`] (persons and groups with properties),
//! [`ImportedRecords`] (imports), [`MergeLog`] (captured merges) and [`profiles::ProfileReader`] (changes beside a segment).

pub mod cohort_lists;
pub mod continuity;
mod erasure_filter;
pub(crate) mod imports;
pub(crate) mod lookup;
pub(crate) mod merge_log;
mod person_index;
mod person_merge_state;
mod person_merges;
pub(crate) mod profiles;

pub(crate) use erasure_filter::ErasureFilter;
pub(crate) use imports::ImportedRecords;
pub use imports::records::{GroupRecord, PersonRecord};
pub use imports::{GroupColumns, PersonColumns};
pub(crate) use lookup::PersonLookup;
pub use lookup::{
    EvaluationSubject, GROUPS_MAX, Group, GroupType, PEOPLE_MAX, People, PeoplePage, Person, PersonDetails,
    PersonScan, VALUES_BYTES_MAX, WaitingBlocks,
};
pub use merge_log::MERGES_MAX;
pub(crate) use merge_log::MergeLog;
pub(crate) use person_index::PersonIndex;
pub(crate) use person_merge_state::{PersonMergeState, PersonMergeStates};
pub(crate) use person_merges::PersonMerges;
