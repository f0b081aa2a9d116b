//! Imported persons and groups: immutable Parquet objects with records, and sidecar files with the ids alone.
//!
//! [`records`] reads and writes the Parquet objects, [`ids_sidecar`] holds the person ids of each record,
//! [`merge_table_object`] holds the merges of all imports in one object, [`entry`] is the row in the manifest. An object is
//! never changed; an erasure writes a new one. The public interface is [`ImportedRecords`].

pub(crate) mod ids_sidecar;
mod merge_table_object;
mod record_columns;
pub(crate) mod records;

pub(crate) use ids_sidecar::{LegacyIdsReader, RecordIds};
pub use record_columns::{GroupColumns, PersonColumns};

use std::sync::Arc;

use crate::cache::Cache;
use crate::manifest::{ManifestStore, ProjectList};
use crate::objects::Objects;
use crate::persons::person_merge_state::PersonMergeStates;
use crate::settings::Settings;
use records::PersonsObject;

/// Cached objects with imported persons.
const OBJECTS_CACHED: usize = 32;

/// Imported persons and groups of all projects.
#[derive(Debug)]
pub(crate) struct ImportedRecords {
    manifests: Arc<ManifestStore>,
    projects: Arc<ProjectList>,
    objects: Objects,
    settings: Settings,
    /// By object.
    person_objects: Cache<Arc<PersonsObject>>,
    /// By object.
    record_ids: Cache<Arc<RecordIds>>,
    read_legacy_ids: Option<LegacyIdsReader>,
    states: Arc<PersonMergeStates>,
}

impl ImportedRecords {
    pub(crate) fn new(
        manifests: Arc<ManifestStore>,
        projects: Arc<ProjectList>,
        objects: Objects,
        settings: Settings,
        read_legacy_ids: Option<LegacyIdsReader>,
        states: Arc<PersonMergeStates>,
    ) -> ImportedRecords {
        let (person_objects, record_ids) = (Cache::new(OBJECTS_CACHED), Cache::new(OBJECTS_CACHED));
        ImportedRecords {
            manifests,
            projects,
            objects,
            settings,
            person_objects,
            record_ids,
            read_legacy_ids,
            states,
        }
    }
}
