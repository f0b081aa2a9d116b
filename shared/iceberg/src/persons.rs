//! The data files of the persons table: a row for each distinct id.
//!
//! `person` is the id that the distinct id has without merges. Events have the id that was current when their file was written,
//! which is that of some distinct id of the same person, so `events.person = persons.person` finds one row, with the
//! current id. Must stay true: memory holds the ids of all persons, one page of their data, and one encoded file.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::builder::{FixedSizeBinaryBuilder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field as ArrowField, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{EventStore, EventStoreError, PersonDetails, derive_person_id};
use uuid::Uuid;

use crate::columns::{Field, TableSchema};

/// Encoded bytes after which a file ends.
const FILE_BYTES: usize = 32 << 20;
/// Bytes that the writer holds after which a row group ends.
const ROW_GROUP_BYTES: usize = 16 << 20;
/// Bytes of texts of a batch. The properties of a person are repeated for each of its distinct ids.
const BATCH_BYTES: usize = 4 << 20;

/// The schema of the table.
pub(crate) fn persons_schema() -> TableSchema {
    let fields = vec![
        Field::new(1, "person", true, "fixed[16]"),
        Field::new(2, "current_person", true, "fixed[16]"),
        Field::new(3, "distinct_id", true, "string"),
        Field::new(4, "properties", true, "string"),
    ];
    TableSchema { fields, name_mapping: None }
}

fn file_schema() -> SchemaRef {
    let types =
        [DataType::FixedSizeBinary(16), DataType::FixedSizeBinary(16), DataType::Utf8, DataType::Utf8];
    let fields = persons_schema().fields.into_iter().zip(types).map(|(field, data_type)| {
        let id = (PARQUET_FIELD_ID_META_KEY.to_owned(), field.id.to_string());
        ArrowField::new(field.name, data_type, false).with_metadata(HashMap::from([id]))
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// An encoded data file.
pub(crate) struct PersonsFile {
    pub bytes: Bytes,
    pub rows: u64,
}

/// Encodes the persons of a project, one file after the other; `store` is called with each.
pub(crate) async fn write_persons<F>(
    events: &EventStore,
    project: ProjectId,
    mut store: impl FnMut(PersonsFile) -> F,
) -> Result<(), EventStoreError>
where
    F: Future<Output = Result<(), EventStoreError>>,
{
    let mut scan = events.scan_all_persons(project).await?;
    let mut writer = FileWriter::new()?;
    loop {
        let page = events.next_person_page(&mut scan).await?;
        if page.is_empty() {
            break;
        }
        let mut rows = PersonRows::new(project, page);
        loop {
            let filled = move || writer.fill(&mut rows).map(|is_full| (writer, rows, is_full));
            let is_full;
            (writer, rows, is_full) = tokio::task::spawn_blocking(filled).await??;
            if !is_full {
                break;
            }
            store(writer.finish()?).await?;
            writer = FileWriter::new()?;
        }
    }
    match writer.rows {
        0 => Ok(()),
        _ => store(writer.finish()?).await,
    }
}

/// The rows of a page of persons.
struct PersonRows {
    project: ProjectId,
    persons: std::vec::IntoIter<PersonDetails>,
    current: Option<PersonRow>,
}

/// A person whose rows are being written.
struct PersonRow {
    id: Uuid,
    properties: String,
    /// The remaining distinct ids, with the ids that they have without merges.
    distinct_ids: std::vec::IntoIter<(Uuid, String)>,
}

impl PersonRows {
    fn new(project: ProjectId, page: Vec<PersonDetails>) -> PersonRows {
        PersonRows { project, persons: page.into_iter(), current: None }
    }

    /// The next rows, with little more than [`BATCH_BYTES`] of texts; none at the end.
    fn next_batch(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>, EventStoreError> {
        let (mut persons, mut current) = (FixedSizeBinaryBuilder::new(16), FixedSizeBinaryBuilder::new(16));
        let (mut distinct_ids, mut properties) = (StringBuilder::new(), StringBuilder::new());
        let mut bytes = 0;
        while bytes < BATCH_BYTES {
            let Some(person) = &mut self.current else {
                let Some(next) = self.persons.next() else { break };
                self.current = Some(PersonRow::new(self.project, next)?);
                continue;
            };
            let Some((id, distinct_id)) = person.distinct_ids.next() else {
                self.current = None;
                continue;
            };
            persons.append_value(id.as_bytes())?;
            current.append_value(person.id.as_bytes())?;
            distinct_ids.append_value(&distinct_id);
            properties.append_value(&person.properties);
            bytes += distinct_id.len() + person.properties.len() + 2 * id.as_bytes().len();
        }
        if bytes == 0 {
            return Ok(None);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(persons.finish()),
            Arc::new(current.finish()),
            Arc::new(distinct_ids.finish()),
            Arc::new(properties.finish()),
        ];
        Ok(Some(RecordBatch::try_new(schema.clone(), columns)?))
    }
}

impl PersonRow {
    fn new(project: ProjectId, person: PersonDetails) -> Result<PersonRow, EventStoreError> {
        let mut known = HashSet::new();
        let ids = person.distinct_ids.into_iter().map(|text| (derive_person_id(project, &text), text));
        let ids = ids.filter(|(id, _)| known.insert(*id)).collect::<Vec<_>>();
        let properties = serde_json::to_string(&person.properties)?;
        Ok(PersonRow { id: person.id, properties, distinct_ids: ids.into_iter() })
    }
}

struct FileWriter {
    schema: SchemaRef,
    writer: ArrowWriter<Vec<u8>>,
    rows: u64,
}

impl FileWriter {
    fn new() -> Result<FileWriter, EventStoreError> {
        let schema = file_schema();
        let compression = Compression::ZSTD(ZstdLevel::try_new(3)?);
        let properties = WriterProperties::builder().set_compression(compression).build();
        // Readers take the types from Parquet's schema.
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), schema.clone(), options)?;
        Ok(FileWriter { schema, writer, rows: 0 })
    }

    /// Writes rows until there are no more, or the file is full: then it returns true.
    fn fill(&mut self, rows: &mut PersonRows) -> Result<bool, EventStoreError> {
        while self.writer.bytes_written() + self.writer.in_progress_size() < FILE_BYTES {
            let Some(batch) = rows.next_batch(&self.schema)? else { return Ok(false) };
            self.rows += batch.num_rows() as u64;
            self.writer.write(&batch)?;
            if self.writer.memory_size() >= ROW_GROUP_BYTES {
                self.writer.flush()?;
            }
        }
        Ok(true)
    }

    fn finish(self) -> Result<PersonsFile, EventStoreError> {
        Ok(PersonsFile { bytes: self.writer.into_inner()?.into(), rows: self.rows })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn properties_that_are_repeated_are_written_in_small_batches() {
        let properties = json!({"text": "x".repeat(1 << 20)}).as_object().unwrap().clone();
        let distinct_ids = (0..100).map(|number| number.to_string()).chain(["0".to_owned()]).collect();
        let person = PersonDetails { distinct_ids, properties, ..PersonDetails::default() };
        let last = PersonDetails { distinct_ids: vec!["last".to_owned()], ..PersonDetails::default() };
        let mut rows = PersonRows::new(1, vec![PersonDetails::default(), person, last]);
        let schema = file_schema();
        let mut batches = Vec::new();
        while let Some(batch) = rows.next_batch(&schema).unwrap() {
            batches.push(batch.num_rows());
        }
        assert_eq!(batches.iter().sum::<usize>(), 101, "each distinct id once");
        assert!(batches.iter().all(|rows| *rows <= 5), "{batches:?}");
    }
}
