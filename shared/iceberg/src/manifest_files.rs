//! The two lists of a snapshot: the manifest, which names the data files, and the manifest list, which names the manifest.
//!
//! A snapshot has one manifest with all data files. A project has at most a few hundred segments, so writing the list again
//! takes one request and a few kilobytes, and nothing of an earlier version is needed. Must stay true: the field ids and the
//! order of fields are those of Iceberg's specification, version 2.

use bytes::Bytes;
use pennon_analytics::scan::Micros;

use crate::avro::{AvroRecord, container_file};

/// Schema of the entries of a manifest. The optional fields that no entry has are there because some readers expect them.
const MANIFEST_SCHEMA: &str = include_str!("manifest.avsc.json");
/// Schema of the entries of a manifest list.
const MANIFEST_LIST_SCHEMA: &str = include_str!("manifest_list.avsc.json");

/// Field ids of the columns with bounds.
const EVENT_ID: i64 = 1;
const TIMESTAMP_ID: i64 = 4;
/// Longest name of an event that becomes a bound.
const BOUND_BYTES_MAX: usize = 64;
/// An entry of a manifest: the file was added by this snapshot.
const ADDED: i64 = 1;
/// Data, not deletions.
const DATA: i64 = 0;

/// A data file of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataFile {
    pub location: String,
    pub bytes: u64,
    pub rows: u64,
    /// Times of the first and the last event.
    pub times: Option<(Micros, Micros)>,
    /// The first and the last name of events.
    pub event_names: Option<(String, String)>,
}

/// The snapshot that the lists belong to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SnapshotIds {
    pub snapshot: i64,
    pub sequence: i64,
}

/// Encodes the manifest of a snapshot. `schema` is the schema of the table, as JSON with the id `schema_id`.
pub(crate) fn manifest(
    ids: SnapshotIds,
    (schema_id, schema): (i64, &str),
    files: &[DataFile],
    sync: [u8; 16],
) -> Bytes {
    let records = files.iter().map(|file| manifest_entry(ids, file)).collect::<Vec<_>>();
    let schema_id = schema_id.to_string();
    let metadata = [
        ("schema", schema),
        ("schema-id", schema_id.as_str()),
        ("partition-spec", "[]"),
        ("partition-spec-id", "0"),
        ("format-version", "2"),
        ("content", "data"),
    ];
    container_file(MANIFEST_SCHEMA, &metadata, &records, sync)
}

fn manifest_entry(ids: SnapshotIds, file: &DataFile) -> AvroRecord {
    let mut entry = AvroRecord::default();
    // Both sequence numbers are inherited from the manifest list.
    entry.long(ADDED).some().long(ids.snapshot).null().null();
    // The partition is a record without fields, which takes no bytes.
    entry.long(DATA).text(&file.location).text("PARQUET");
    entry.count(file.rows).count(file.bytes);
    // Sizes of columns, counts of values, of nulls and of NaN.
    entry.null().null().null().null();
    bounds(&mut entry, file, |(first, _)| first, |(first, _)| first);
    bounds(&mut entry, file, |(_, last)| last, |(_, last)| last);
    // Key metadata, split offsets, equality ids, sort order.
    entry.null().null().null().null();
    entry
}

fn bounds(
    entry: &mut AvroRecord,
    file: &DataFile,
    name: impl Fn(&(String, String)) -> &String,
    time: impl Fn((Micros, Micros)) -> Micros,
) {
    let names = file.event_names.as_ref().map(name).filter(|name| name.len() <= BOUND_BYTES_MAX);
    let times = file.times.map(time);
    let count = usize::from(names.is_some()) + usize::from(times.is_some());
    if count == 0 {
        entry.null();
        return;
    }
    entry.some().count(count as u64);
    if let Some(name) = names {
        entry.long(EVENT_ID).text(name);
    }
    if let Some(time) = times {
        entry.long(TIMESTAMP_ID).bytes(&time.to_le_bytes());
    }
    entry.long(0);
}

/// Encodes the manifest list of a snapshot: the location and the size of its manifest, if it has files.
pub(crate) fn manifest_list(
    ids: SnapshotIds,
    manifest: Option<(&str, u64)>,
    files: &[DataFile],
    sync: [u8; 16],
) -> Bytes {
    let rows = files.iter().map(|file| file.rows).sum();
    let records = manifest.map(|(location, bytes)| {
        let mut entry = AvroRecord::default();
        entry.text(location).count(bytes).long(0).long(DATA);
        entry.long(ids.sequence).long(ids.sequence).long(ids.snapshot);
        entry.count(files.len() as u64).long(0).long(0);
        entry.count(rows).long(0).long(0);
        entry.null().null();
        entry
    });
    let (snapshot, sequence) = (ids.snapshot.to_string(), ids.sequence.to_string());
    let metadata = [
        ("snapshot-id", snapshot.as_str()),
        ("parent-snapshot-id", "null"),
        ("sequence-number", sequence.as_str()),
        ("format-version", "2"),
    ];
    let records = records.into_iter().collect::<Vec<_>>();
    container_file(MANIFEST_LIST_SCHEMA, &metadata, &records, sync)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::Value;

    /// The field ids of a schema, in the order of the fields.
    fn field_ids(schema: &Value) -> Vec<i64> {
        let fields = schema["fields"].as_array().unwrap();
        fields.iter().map(|field| field["field-id"].as_i64().unwrap()).collect()
    }

    #[test]
    fn schemas_have_the_field_ids_of_the_specification() {
        let manifest: Value = serde_json::from_str(MANIFEST_SCHEMA).unwrap();
        assert_eq!(field_ids(&manifest), [0, 1, 3, 4, 2]);
        let data_file = &manifest["fields"][4]["type"];
        let expected = [134, 100, 101, 102, 103, 104, 108, 109, 110, 137, 125, 128, 131, 132, 135, 140];
        assert_eq!(field_ids(data_file), expected);
        let list: Value = serde_json::from_str(MANIFEST_LIST_SCHEMA).unwrap();
        let expected = [500, 501, 502, 517, 515, 516, 503, 504, 505, 506, 512, 513, 514, 507, 519];
        assert_eq!(field_ids(&list), expected);
    }

    #[test]
    fn long_names_are_no_bounds() {
        let file = |name: &str| DataFile {
            location: "f".to_owned(),
            bytes: 1,
            rows: 1,
            times: None,
            event_names: Some((name.to_owned(), name.to_owned())),
        };
        let ids = SnapshotIds { snapshot: 1, sequence: 1 };
        let size = |name: &str| manifest(ids, (0, "{}"), &[file(name)], [0; 16]).len();
        assert!(size("a") > size(&"a".repeat(BOUND_BYTES_MAX + 1)));
    }
}
