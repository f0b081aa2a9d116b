//! What tables of a project are made of: the live segments with their columns, and a digest of what decides about persons.
//!
//! Must stay true: everything comes from one manifest and the merges read with it, so a publisher that reads them after a
//! published version never publishes an earlier state than that version has.

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use sha2::{Digest, Sha256};

use super::SnapshotReader;
use crate::error::EventStoreError;
use crate::manifest::SegmentEntry;
use crate::segments::{TableColumn, TableColumnType};

/// The live segments of a project, and digests of its persons.
#[derive(Debug, Clone, Default)]
pub struct TableInputs {
    /// Segments with events, in order of writing.
    pub segments: Vec<TableSegment>,
    /// Changes with every change of these segments.
    pub live: String,
    /// Changes with every merge, import of persons, and erasure of merges.
    pub merges: String,
    /// Changes with every file of distinct ids.
    pub distinct_ids: String,
}

/// A live segment.
#[derive(Debug, Clone)]
pub struct TableSegment {
    entry: SegmentEntry,
}

/// What the footer of a segment adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentColumns {
    /// Its property columns.
    pub columns: Vec<TableColumn>,
    /// Whether the file has field ids. Earlier releases wrote none.
    pub has_field_ids: bool,
    /// The first and the last name of its events in the order of bytes.
    pub event_names: Option<(String, String)>,
}

impl TableSegment {
    /// The name of its Parquet object.
    pub fn object(&self) -> &str {
        self.entry.object.as_deref().unwrap_or_default()
    }

    /// The size of its Parquet object.
    pub fn bytes(&self) -> u64 {
        self.entry.bytes
    }

    /// Number of its events.
    pub fn rows(&self) -> u64 {
        self.entry.rows
    }

    /// Times of its first and last event.
    pub fn times(&self) -> (Micros, Micros) {
        (self.entry.min_time, self.entry.max_time)
    }
}

impl SnapshotReader {
    /// Reads the manifest and the merges of a project.
    pub(crate) async fn table_inputs(&self, project: ProjectId) -> Result<TableInputs, EventStoreError> {
        let (manifest, merge_state) = self.index.manifest_and_persons(project).await?;
        let live = manifest.segments.iter().filter(|entry| entry.rows > 0);
        let segments = live.map(|entry| TableSegment { entry: entry.clone() }).collect::<Vec<_>>();
        let erasures = manifest.erasures().to_string();
        let rows = merge_state.through.to_string();
        let imports = manifest.persons.iter().map(|entry| entry.object.as_str());
        let merges = digest([erasures.as_str(), rows.as_str()].into_iter().chain(imports));
        let ids = manifest.segments.iter().filter_map(|entry| Some(entry.ids.as_ref()?.object.as_str()));
        let live = digest(segments.iter().map(TableSegment::object));
        Ok(TableInputs { segments, live, merges, distinct_ids: digest(ids) })
    }

    /// Reads the columns of a segment from its footer.
    pub(crate) async fn segment_columns(
        &self,
        segment: &TableSegment,
    ) -> Result<SegmentColumns, EventStoreError> {
        let file = self.segments.open(&segment.entry).await?;
        let column =
            |key: &String, kind| TableColumn { key: key.clone(), column_type: TableColumnType::of(kind) };
        let columns = file.footer.columns.iter().map(|own| column(&own.key, own.kind)).collect();
        let fields = file.metadata().file_metadata().schema_descr();
        let has_field_ids =
            fields.columns().first().is_some_and(|field| field.self_type().get_basic_info().has_id());
        let names = file.footer.names.first().zip(file.footer.names.last());
        let event_names = names.map(|(first, last)| (first.clone(), last.clone()));
        Ok(SegmentColumns { columns, has_field_ids, event_names })
    }
}

/// A digest of texts.
fn digest<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update(text.as_bytes());
        digest.update([0]);
    }
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_separates_texts() {
        assert_ne!(digest(["ab", "c"].into_iter()), digest(["a", "bc"].into_iter()));
        assert_eq!(digest(["a"].into_iter()).len(), 32);
    }
}
