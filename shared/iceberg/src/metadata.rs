//! The metadata file of a table: its schema, its one snapshot, and what the publisher has to know of the version before.
//!
//! Must stay true: every version stands alone, with one snapshot; the id of the table stays, sequence numbers ascend, and an
//! unchanged schema keeps its id; the names of all files that a version needs or replaced are in its properties, so that
//! nothing has to be listed to delete them.

use bytes::Bytes;
use pennon_analytics::scan::Micros;
use pennon_eventstore::GRACE_MICROS;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::columns::{Field, TableSchema};

/// Raised when a release publishes the same data in another form.
pub(crate) const LAYOUT: u32 = 1;

const STATE: &str = "pennon.state";
const FILES: &str = "pennon.files";
const NAME_MAPPING: &str = "schema.name-mapping.default";

/// What the data of a version was made from. Versions of equal state have equal data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableState {
    pub layout: u32,
    /// Where the table is; its files have absolute locations.
    pub location: String,
    /// Digest of the merges of persons.
    pub merges: String,
    /// The data files, or a digest of what they are made from.
    pub data: String,
}

/// The files of a version below the folder of tables, the metadata file excepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionFiles {
    /// Files that the version needs.
    pub own: Vec<String>,
    /// Files of former versions that readers may still use.
    pub replaced: Vec<ReplacedFile>,
}

/// A file of a former version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplacedFile {
    pub name: String,
    /// When it was replaced.
    pub at: Micros,
}

impl ReplacedFile {
    /// Whether readers of its version have had ten minutes.
    pub(crate) fn is_due(&self, now: Micros) -> bool {
        self.at.saturating_add(GRACE_MICROS) <= now
    }
}

/// A published version.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableVersion {
    pub number: u64,
    pub uuid: Uuid,
    pub sequence: i64,
    pub schema_id: i64,
    pub fields: Vec<Field>,
    pub state: TableState,
    pub files: VersionFiles,
    /// When it was published, in milliseconds.
    pub updated_ms: i64,
}

/// The snapshot of a new version.
#[derive(Debug, Clone)]
pub(crate) struct NewSnapshot {
    pub id: i64,
    pub manifest_list: String,
    pub files: usize,
    pub rows: u64,
    pub bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct StoredMetadata {
    table_uuid: Uuid,
    last_sequence_number: i64,
    last_updated_ms: i64,
    current_schema_id: i64,
    schemas: Vec<StoredSchema>,
    properties: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct StoredSchema {
    schema_id: i64,
    fields: Vec<Field>,
}

impl TableVersion {
    /// Parses the metadata file of version `number`.
    pub(crate) fn parse(number: u64, body: &[u8]) -> Result<TableVersion, serde_json::Error> {
        let stored: StoredMetadata = serde_json::from_slice(body)?;
        let schema = stored.schemas.into_iter().find(|schema| schema.schema_id == stored.current_schema_id);
        let property = |name: &str| stored.properties.get(name).map_or("{}", String::as_str);
        Ok(TableVersion {
            number,
            uuid: stored.table_uuid,
            sequence: stored.last_sequence_number,
            schema_id: stored.current_schema_id,
            fields: schema.map(|schema| schema.fields).unwrap_or_default(),
            // A table of another writer has neither, and is replaced.
            state: serde_json::from_str(property(STATE)).unwrap_or_default(),
            files: serde_json::from_str(property(FILES)).unwrap_or_default(),
            updated_ms: stored.last_updated_ms,
        })
    }

    /// A version whose metadata file cannot be read. The next one starts a table of its own.
    pub(crate) fn unreadable(number: u64) -> TableVersion {
        let mut version = TableVersion::next(None, &[], TableState::default(), 0);
        version.number = number;
        version
    }

    /// The version after `former`, without files.
    pub(crate) fn next(
        former: Option<&TableVersion>,
        fields: &[Field],
        state: TableState,
        now: Micros,
    ) -> TableVersion {
        let schema_id = match former {
            None => 0,
            Some(former) if former.fields == fields => former.schema_id,
            Some(former) => former.schema_id + 1,
        };
        let updated_ms = former.map_or(0, |former| former.updated_ms).max(now / 1000);
        TableVersion {
            number: former.map_or(0, |former| former.number) + 1,
            uuid: former.map_or_else(Uuid::new_v4, |former| former.uuid),
            sequence: former.map_or(0, |former| former.sequence) + 1,
            schema_id,
            fields: fields.to_vec(),
            state,
            files: VersionFiles::default(),
            updated_ms,
        }
    }

    /// Whether this version, or one between them, replaced `other` less than ten minutes before it was published.
    pub(crate) fn follows(&self, other: &TableVersion) -> bool {
        self.files.replaced.iter().any(|file| other.files.own.contains(&file.name))
    }

    /// The schema with its id, as in the header of manifests.
    pub(crate) fn schema_json(&self) -> Value {
        json!({"type": "struct", "schema-id": self.schema_id, "fields": self.fields})
    }

    /// The metadata file.
    pub(crate) fn encode(&self, schema: &TableSchema, snapshot: &NewSnapshot) -> serde_json::Result<Bytes> {
        let mut properties = json!({
            STATE: serde_json::to_string(&self.state)?,
            FILES: serde_json::to_string(&self.files)?,
        });
        if let Some(mapping) = &schema.name_mapping {
            properties[NAME_MAPPING] = mapping.to_string().into();
        }
        let summary = json!({
            "operation": "overwrite", "total-data-files": snapshot.files.to_string(),
            "total-records": snapshot.rows.to_string(), "total-files-size": snapshot.bytes.to_string(),
            "total-delete-files": "0", "total-position-deletes": "0", "total-equality-deletes": "0",
        });
        let metadata = json!({
            "format-version": 2, "table-uuid": self.uuid, "location": self.state.location,
            "last-sequence-number": self.sequence, "last-updated-ms": self.updated_ms,
            "last-column-id": self.fields.iter().map(|field| field.id).max(),
            "current-schema-id": self.schema_id, "schemas": [self.schema_json()],
            "default-spec-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}], "last-partition-id": 999,
            "default-sort-order-id": 0, "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": properties,
            "current-snapshot-id": snapshot.id,
            "refs": {"main": {"snapshot-id": snapshot.id, "type": "branch"}},
            "snapshots": [{
                "snapshot-id": snapshot.id, "sequence-number": self.sequence, "timestamp-ms": self.updated_ms,
                "manifest-list": snapshot.manifest_list, "summary": summary, "schema-id": self.schema_id,
            }],
            "snapshot-log": [{"snapshot-id": snapshot.id, "timestamp-ms": self.updated_ms}],
            "metadata-log": [],
        });
        Ok(serde_json::to_vec(&metadata)?.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn snapshot() -> NewSnapshot {
        NewSnapshot { id: 5, manifest_list: "file:///l".to_owned(), files: 1, rows: 2, bytes: 3 }
    }

    #[test]
    fn a_version_is_parsed_as_it_was_written() {
        let schema = TableSchema {
            fields: vec![Field { doc: Some("k".to_owned()), ..Field::new(7, "p_k_long", false, "long") }],
            name_mapping: Some(json!([{"field-id": 7, "names": ["p.k"]}])),
        };
        let state = TableState { layout: LAYOUT, location: "file:///t".to_owned(), ..TableState::default() };
        let mut first = TableVersion::next(None, &schema.fields, state.clone(), 1_000_000);
        first.files.own = vec!["a".to_owned()];
        first.files.replaced = vec![ReplacedFile { name: "b".to_owned(), at: 9 }];
        let body = first.encode(&schema, &snapshot()).unwrap();
        assert_eq!(TableVersion::parse(1, &body).unwrap(), first);
        let stored: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(stored["last-column-id"], 7);
        assert_eq!(stored["properties"][NAME_MAPPING], r#"[{"field-id":7,"names":["p.k"]}]"#);
        let same = TableVersion::next(Some(&first), &schema.fields, state.clone(), 0);
        assert_eq!((same.number, same.sequence, same.schema_id, same.uuid), (2, 2, 0, first.uuid));
        assert_eq!(same.updated_ms, first.updated_ms, "a clock that went back");
        assert_eq!(TableVersion::next(Some(&first), &[], state, 0).schema_id, 1);
    }
}
