//! Imported persons and groups: immutable Parquet objects with records, and sidecar files with the ids alone.
//!
//! [`records`] reads and writes the Parquet objects, [`ids_sidecar`] holds the person ids of each record,
//! [`merge_table_object`] holds the merges of all imports in one object, [`entry`] is the row in the manifest. An object is
//! never changed; an erasure writes a new one. The door is [`records::PersonsObject`].

mod ids_sidecar;
mod merge_table_object;
mod record_columns;
pub(crate) mod records;

pub(crate) use ids_sidecar::{LegacyIdsReader, RecordIds};
pub use record_columns::{GroupColumns, PersonColumns};
