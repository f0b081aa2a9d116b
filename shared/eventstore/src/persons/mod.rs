//! Persons and groups: which distinct ids are one person, and which properties persons and groups have.
//!
//! [`merge_log`] stores captured merges, [`imports`] stores imported
//! records, [`person_merges`] is the union-find over both, [`profiles`] holds what events change, [`lookup`] answers
//! queries. Merges are only ever added, except by an erasure; nothing here reads events of segments row by row. The doors
//! are [`person_merges::PersonMerges`] for ids and [`lookup`] for properties.

pub mod cohort_lists;
pub mod continuity;
mod erasure_filter;
pub(crate) mod imports;
pub(crate) mod lookup;
pub(crate) mod merge_log;
mod person_merge_cache;
mod person_merges;
pub(crate) mod profiles;

pub(crate) use erasure_filter::ErasureFilter;
pub use imports::records::{GroupRecord, PersonRecord};
pub use imports::{GroupColumns, PersonColumns};
pub use lookup::{
    GROUPS_MAX, Group, GroupType, PEOPLE_MAX, People, PeoplePage, Person, PersonDetails, PersonScan, Subject,
    VALUES_BYTES_MAX, WaitingBlocks,
};
pub use merge_log::MERGES_MAX;
pub(crate) use person_merge_cache::PersonMergeState;
pub(crate) use person_merges::PersonMerges;
