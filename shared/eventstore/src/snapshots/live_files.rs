//! The live files of a project, for engines that read Parquet without this store.
//!
//! Must stay true: the result names exactly the files that the manifest lists as live, and reports what the
//! files alone lack: the number of events waiting in blocks, and person ids that were merged since.

use std::collections::BTreeMap;

use bytes::Bytes;
use pennon_analytics::clickhouse::{ColumnType as Value, SqlColumn, SqlSegment};
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::{SnapshotOutline, SnapshotReader};
use crate::error::EventStoreError;
use crate::manifest::SegmentEntry;
use crate::persons::PersonMerges;
use crate::segments::Footer;
use crate::segments::property_columns::PropertyColumnKind;

/// The live files of a project, and what they lack.
#[derive(Debug, Clone, Default)]
pub struct LiveFiles {
    /// The segments.
    pub segments: Vec<SqlSegment>,
    /// Events that count but are in no segment yet.
    pub waiting: u64,
    /// Person ids in the files that were merged, with their canonical ids.
    pub merged: Vec<(Uuid, Uuid)>,
}

impl SnapshotReader {
    /// Lists the live files of a project.
    pub(crate) async fn live_files(&self, project: ProjectId) -> Result<LiveFiles, EventStoreError> {
        let SnapshotOutline { manifest, merge_state, waiting_events } = self.outline(project).await?;
        let waiting = self.duplicates.headers_not_in_segments(&manifest, waiting_events).await?.len() as u64;
        let mut files = LiveFiles { waiting, ..LiveFiles::default() };
        let mut merged = BTreeMap::new();
        for entry in manifest.segments.iter().filter(|entry| entry.rows > 0) {
            let file = self.segments.open(entry).await?;
            files.segments.push(segment(entry, &file.footer));
            if !merge_state.person_merges.is_empty()
                && let Some(persons) = self.segments.person_ids(entry).await?
            {
                collect_merged(&persons, &merge_state.person_merges, &mut merged);
            }
        }
        files.merged = merged.into_iter().collect();
        Ok(files)
    }
}

/// Collects the merged persons of a file of 16-byte ids.
fn collect_merged(persons: &Bytes, person_merges: &PersonMerges, merged: &mut BTreeMap<Uuid, Uuid>) {
    for id in persons.as_chunks::<16>().0 {
        let id = Uuid::from_bytes(*id);
        let now = person_merges.person(id);
        if now != id {
            merged.insert(id, now);
        }
    }
}

fn segment(entry: &SegmentEntry, footer: &Footer) -> SqlSegment {
    let column = |kind, exceptions| {
        let kind = match kind {
            PropertyColumnKind::Text => Value::Text,
            PropertyColumnKind::Integer => Value::Integer,
            PropertyColumnKind::Float | PropertyColumnKind::Number => Value::Float,
            PropertyColumnKind::Boolean => Value::Boolean,
            PropertyColumnKind::Json => Value::Json,
        };
        SqlColumn { kind, exceptions }
    };
    let columns = footer.columns.iter().map(|own| (own.key.clone(), column(own.kind, own.exceptions)));
    SqlSegment {
        object: entry.object.clone().unwrap_or_default(),
        columns: columns.collect(),
        rest: footer.overflow_keys.clone(),
        times: (entry.min_time, entry.max_time),
        events: entry.events.clone(),
    }
}
