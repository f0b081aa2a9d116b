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
    let mut file: Option<FileWriter> = None;
    loop {
        let page = events.next_person_page(&mut scan).await?;
        if page.is_empty() {
            break;
        }
        let mut writer = file.take().map_or_else(FileWriter::new, Ok)?;
        writer = tokio::task::spawn_blocking(move || writer.write(project, &page).map(|()| writer)).await??;
        if writer.writer.bytes_written() >= FILE_BYTES {
            store(writer.finish()?).await?;
        } else {
            file = Some(writer);
        }
    }
    match file {
        Some(writer) => store(writer.finish()?).await,
        None => Ok(()),
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

    /// Writes the rows of a page, as a row group.
    fn write(&mut self, project: ProjectId, page: &[PersonDetails]) -> Result<(), EventStoreError> {
        let (mut persons, mut current) = (FixedSizeBinaryBuilder::new(16), FixedSizeBinaryBuilder::new(16));
        let (mut distinct_ids, mut properties) = (StringBuilder::new(), StringBuilder::new());
        for person in page {
            let json = serde_json::to_string(&person.properties)?;
            for (id, distinct_id) in ids_of(project, person) {
                persons.append_value(id.as_bytes())?;
                current.append_value(person.id.as_bytes())?;
                distinct_ids.append_value(distinct_id);
                properties.append_value(&json);
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(persons.finish()),
            Arc::new(current.finish()),
            Arc::new(distinct_ids.finish()),
            Arc::new(properties.finish()),
        ];
        let rows = RecordBatch::try_new(self.schema.clone(), columns)?;
        self.rows += rows.num_rows() as u64;
        self.writer.write(&rows)?;
        Ok(self.writer.flush()?)
    }

    fn finish(self) -> Result<PersonsFile, EventStoreError> {
        Ok(PersonsFile { bytes: self.writer.into_inner()?.into(), rows: self.rows })
    }
}

/// The distinct ids of a person, each once, with the ids that they have without merges.
fn ids_of(project: ProjectId, person: &PersonDetails) -> impl Iterator<Item = (Uuid, &str)> {
    let mut known = HashSet::new();
    let ids = person.distinct_ids.iter().map(move |text| (derive_person_id(project, text), text.as_str()));
    ids.filter(move |(id, _)| known.insert(*id))
}
