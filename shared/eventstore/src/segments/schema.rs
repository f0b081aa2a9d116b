//! Arrow and Parquet schema of a segment, and the encoding of each column.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::column_ids::{TableColumnType, base_id, property_id};
use super::property_columns::PropertyColumnKind;
use super::{PAGE_ROWS, PROPERTY, VALUE_PAGE_ROWS};
use crate::error::EventStoreError;
use crate::segments::uuids::uuid_columns::{SOURCE_BYTES, UUID, UUID_SOURCE};

/// Largest dictionary of a column of a row group; above it, values are stored plain.
const DICTIONARY_BYTES_MAX: usize = 32 << 20;
/// Columns that the writer adds, each after the named one.
const MADE: [(&str, &str); 2] = [("person_code", "person"), ("tie", "timestamp")];

/// Dictionary-encoded texts.
pub(super) fn dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The input columns of the writer, property columns last.
pub(super) fn input_schema<'a>(
    columns: impl IntoIterator<Item = (&'a str, PropertyColumnKind)>,
) -> SchemaRef {
    let mut fields = vec![
        Field::new("event", dictionary(), false),
        Field::new("person", DataType::FixedSizeBinary(16), false),
        Field::new("distinct_id", dictionary(), false),
        Field::new("timestamp", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false),
        Field::new("seq_high", DataType::UInt64, false),
        Field::new("seq_low", DataType::UInt64, false),
        Field::new(UUID, DataType::FixedSizeBinary(16), false),
        Field::new("properties", DataType::Utf8, true),
    ];
    fields.extend(
        columns.into_iter().map(|(key, kind)| Field::new(format!("{PROPERTY}{key}"), data_type(kind), true)),
    );
    Arc::new(Schema::new(fields))
}

/// The columns of the file: the input columns and the added ones, with field ids.
pub(super) fn written(input_schema: &Schema, columns: &[(String, PropertyColumnKind)]) -> SchemaRef {
    let fields = file_fields(input_schema).into_iter().map(|field| {
        let property = field.name().strip_prefix(PROPERTY);
        let property = property.and_then(|key| columns.iter().find(|(own, _)| own == key));
        let id = match property {
            Some((key, kind)) => Some(property_id(key, TableColumnType::of(*kind))),
            None => base_id(field.name()),
        };
        let id = id.map(|id| (PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string()));
        field.with_metadata(id.into_iter().collect::<HashMap<_, _>>())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn file_fields(input_schema: &Schema) -> Vec<Field> {
    let mut fields = Vec::new();
    for field in input_schema.fields() {
        if field.name() == UUID {
            fields.push(Field::new(UUID, DataType::FixedSizeBinary(16), true));
            fields.push(Field::new(UUID_SOURCE, DataType::FixedSizeBinary(SOURCE_BYTES), true));
            continue;
        }
        fields.push(field.as_ref().clone());
        let made = MADE.iter().filter(|(_, behind)| behind == field.name());
        fields.extend(made.map(|(name, _)| Field::new(*name, DataType::UInt32, false)));
    }
    fields
}

/// The Arrow type of a property column.
fn data_type(kind: PropertyColumnKind) -> DataType {
    match kind {
        PropertyColumnKind::Text | PropertyColumnKind::Json => dictionary(),
        PropertyColumnKind::Integer => DataType::Int64,
        PropertyColumnKind::Float | PropertyColumnKind::Number => DataType::Float64,
        PropertyColumnKind::Boolean => DataType::Boolean,
    }
}

/// Writer properties.
pub(super) fn properties() -> Result<WriterProperties, EventStoreError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_data_page_row_count_limit(VALUE_PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        // A range is one row group, of any size.
        .set_max_row_group_row_count(None)
        // Every person and distinct id of a range once, in any number.
        .set_dictionary_page_size_limit(DICTIONARY_BYTES_MAX)
        .set_column_dictionary_enabled(UUID.into(), false)
        .set_column_statistics_enabled(UUID.into(), EnabledStatistics::None)
        .set_column_statistics_enabled("properties".into(), EnabledStatistics::None);
    for column in ["person_code", "timestamp", "seq_high", "seq_low"] {
        properties = properties
            .set_column_dictionary_enabled(column.into(), false)
            .set_column_encoding(column.into(), Encoding::DELTA_BINARY_PACKED);
    }
    for column in ["person_code", "timestamp", "tie"] {
        properties = properties.set_column_data_page_row_count_limit(column.into(), PAGE_ROWS);
    }
    // Columns that every query reads are packed already; compressing them saves less than one percent of the
    // file.
    for column in ["person_code", "timestamp"] {
        properties = properties.set_column_compression(column.into(), Compression::UNCOMPRESSED);
    }
    Ok(properties.build())
}
