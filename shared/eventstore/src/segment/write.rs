//! Writing a segment.
//!
//! Must stay true: the order of rows is that of the module above; the file depends on nothing but the rows and what
//! they replace.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, FixedSizeBinaryBuilder, Float64Builder, Int64Builder, RecordBatch,
    StringBuilder, StringDictionaryBuilder, TimestampMicrosecondArray, UInt32Array, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde_json::{Map, Value};

use super::columns::{Kind, PropertyColumn, plan};
use super::{FOOTER, FORMAT, Footer, PAGE_ROWS, PROPERTY, RANGE_ROWS, Range, RunEntry};
use crate::error::EventStoreError;
use crate::event::Row;

/// Most keys of `properties` that the footer lists.
const OVERFLOW_KEYS_MAX: usize = 2000;

/// Largest dictionary of a column of a row group; above, values are written out.
const DICTIONARY_BYTES_MAX: usize = 32 << 20;

/// What a segment to be written replaces.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replaces {
    pub blocks: Vec<String>,
    pub segments: Vec<String>,
}

/// Which of `2^bits` person ranges a person is in.
pub(crate) fn range_of(person: uuid::Uuid, bits: u32) -> u64 {
    if bits == 0 { 0 } else { person.as_u64_pair().0 >> (64 - bits) }
}

/// How many bits of a person id tell its range, for so many rows.
pub(crate) fn range_bits(rows: usize, rows_per_range: usize) -> u32 {
    rows.div_ceil(rows_per_range).max(1).next_power_of_two().trailing_zeros().min(16)
}

/// A segment's file, and the one of its persons.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub segment: Bytes,
    pub persons: Bytes,
}

/// The files with `rows`, which are put in order first.
pub(crate) fn encode(rows: &mut [Row], replaces: &Replaces) -> Result<Encoded, EventStoreError> {
    let bits = range_bits(rows.len(), RANGE_ROWS);
    rows.sort_by(|a, b| {
        let place = |row: &Row| (row.person, row.event.timestamp, row.seq);
        let range = |row: &Row| range_of(row.person, bits);
        range(a)
            .cmp(&range(b))
            .then_with(|| a.event.event.cmp(&b.event.event))
            .then_with(|| place(a).cmp(&place(b)))
    });
    let columns = plan(rows.iter().map(|row| &row.event.properties));
    let kinds = columns.iter().map(|column| (column.key.as_str(), column.kind)).collect::<HashMap<_, _>>();
    let names: Vec<String> = rows
        .iter()
        .map(|row| row.event.event.as_str())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(str::to_owned)
        .collect();
    let groups = || rows.chunk_by(|a, b| range_of(a.person, bits) == range_of(b.person, bits));
    let placed = groups().map(Placed::of).collect::<Vec<_>>();
    let ranges = groups().zip(&placed).map(|(rows, placed)| range(rows, placed, bits, &names)).collect();
    let footer = Footer {
        format: FORMAT,
        bits,
        names,
        ranges,
        overflow_keys: overflow_keys(rows, &kinds),
        columns: columns.clone(),
        replaces_blocks: replaces.blocks.clone(),
        replaces_segments: replaces.segments.clone(),
    };
    let schema = schema(&columns);
    let mut writer = ArrowWriter::try_new(Vec::new(), schema.clone(), Some(properties(&footer)?))?;
    for (group, placed) in groups().zip(&placed) {
        writer.write(&batch(group, placed, &columns, &kinds, &schema)?)?;
        writer.flush()?;
    }
    let persons = placed.iter().flat_map(|placed| &placed.persons).flat_map(|person| *person.as_bytes());
    Ok(Encoded { persons: persons.collect::<Vec<_>>().into(), segment: writer.into_inner()?.into() })
}

/// Where the rows of a range stand among its persons and in time.
struct Placed {
    /// Ascending.
    persons: Vec<uuid::Uuid>,
    /// By row: index into the persons.
    codes: Vec<u32>,
    /// By row: which of the person's events of this time.
    ties: Vec<u32>,
}

impl Placed {
    fn of(rows: &[Row]) -> Placed {
        let mut persons = rows.iter().map(|row| row.person).collect::<Vec<_>>();
        persons.sort_unstable();
        persons.dedup();
        let code = |row: &Row| persons.partition_point(|person| *person < row.person) as u32;
        let codes = rows.iter().map(code).collect::<Vec<_>>();
        let mut order = (0..rows.len()).collect::<Vec<_>>();
        order.sort_unstable_by_key(|at| (codes[*at], rows[*at].event.timestamp, rows[*at].seq));
        let mut ties = vec![0; rows.len()];
        for pair in order.windows(2) {
            if codes[pair[0]] == codes[pair[1]]
                && rows[pair[0]].event.timestamp == rows[pair[1]].event.timestamp
            {
                ties[pair[1]] = ties[pair[0]] + 1;
            }
        }
        Placed { persons, codes, ties }
    }
}

fn range(rows: &[Row], placed: &Placed, bits: u32, names: &[String]) -> Range {
    let run = |rows: &[Row]| RunEntry {
        name: rows.first().map_or(0, |row| names.partition_point(|name| *name < row.event.event)) as u32,
        rows: rows.len() as u32,
        min_time: rows.iter().map(|row| row.event.timestamp).min().unwrap_or(0),
        max_time: rows.iter().map(|row| row.event.timestamp).max().unwrap_or(0),
    };
    Range {
        number: rows.first().map_or(0, |row| range_of(row.person, bits)),
        persons: placed.persons.len() as u32,
        ties: placed.ties.iter().any(|tie| *tie > 0),
        runs: rows.chunk_by(|a, b| a.event.event == b.event.event).map(run).collect(),
    }
}

fn properties(footer: &Footer) -> Result<WriterProperties, EventStoreError> {
    let entry = KeyValue::new(FOOTER.to_owned(), serde_json::to_string(footer)?);
    Ok(WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .set_column_dictionary_enabled("person_code".into(), false)
        .set_column_encoding("person_code".into(), Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled("timestamp".into(), false)
        .set_column_encoding("timestamp".into(), Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled("seq_high".into(), false)
        .set_column_encoding("seq_high".into(), Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled("seq_low".into(), false)
        .set_column_encoding("seq_low".into(), Encoding::DELTA_BINARY_PACKED)
        // Every person and distinct id of a range once, however many.
        .set_dictionary_page_size_limit(DICTIONARY_BYTES_MAX)
        .set_column_dictionary_enabled("uuid".into(), false)
        .set_column_statistics_enabled("uuid".into(), EnabledStatistics::None)
        .set_column_statistics_enabled("properties".into(), EnabledStatistics::None)
        .set_key_value_metadata(Some(vec![entry]))
        .build())
}

fn overflow_keys(rows: &[Row], kinds: &HashMap<&str, Kind>) -> Option<Vec<String>> {
    let mut keys = BTreeSet::new();
    for (key, value) in rows.iter().flat_map(|row| &row.event.properties) {
        if !kinds.get(key.as_str()).is_some_and(|kind| kind.fits(value)) && !keys.contains(key.as_str()) {
            keys.insert(key.as_str());
            if keys.len() > OVERFLOW_KEYS_MAX {
                return None;
            }
        }
    }
    Some(keys.into_iter().map(str::to_owned).collect())
}

fn dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

fn schema(columns: &[PropertyColumn]) -> SchemaRef {
    let mut fields = vec![
        Field::new("event", dictionary(), false),
        Field::new("person", DataType::FixedSizeBinary(16), false),
        Field::new("person_code", DataType::UInt32, false),
        Field::new("distinct_id", dictionary(), false),
        Field::new("timestamp", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false),
        Field::new("tie", DataType::UInt32, false),
        Field::new("seq_high", DataType::UInt64, false),
        Field::new("seq_low", DataType::UInt64, false),
        Field::new("uuid", DataType::FixedSizeBinary(16), false),
        Field::new("properties", DataType::Utf8, true),
    ];
    fields.extend(columns.iter().map(|column| {
        let data_type = match column.kind {
            Kind::Text | Kind::Json => dictionary(),
            Kind::Integer => DataType::Int64,
            Kind::Float | Kind::Number => DataType::Float64,
            Kind::Boolean => DataType::Boolean,
        };
        Field::new(format!("{PROPERTY}{}", column.key), data_type, true)
    }));
    Arc::new(Schema::new(fields))
}

fn batch(
    rows: &[Row],
    placed: &Placed,
    columns: &[PropertyColumn],
    kinds: &HashMap<&str, Kind>,
    schema: &SchemaRef,
) -> Result<RecordBatch, EventStoreError> {
    let times = rows.iter().map(|row| row.event.timestamp).collect::<Vec<_>>();
    let mut arrays: Vec<ArrayRef> = vec![
        texts(rows.iter().map(|row| Some(row.event.event.as_str()))),
        ids(rows.iter().map(|row| row.person))?,
        Arc::new(UInt32Array::from(placed.codes.clone())),
        texts(rows.iter().map(|row| Some(row.event.distinct_id.as_str()))),
        Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")),
        Arc::new(UInt32Array::from(placed.ties.clone())),
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| (row.seq >> 64) as u64))),
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.seq as u64))),
        ids(rows.iter().map(|row| row.event.uuid))?,
        overflow(rows, kinds)?,
    ];
    for column in columns {
        let values =
            rows.iter().map(|row| row.event.properties.get(&column.key).filter(|v| column.kind.fits(v)));
        arrays.push(property(column.kind, values)?);
    }
    Ok(RecordBatch::try_new(schema.clone(), arrays)?)
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    let mut builder = StringDictionaryBuilder::<Int32Type>::new();
    values.for_each(|value| builder.append_option(value));
    Arc::new(builder.finish())
}

fn ids(values: impl Iterator<Item = uuid::Uuid>) -> Result<ArrayRef, EventStoreError> {
    let mut builder = FixedSizeBinaryBuilder::new(16);
    for value in values {
        builder.append_value(value.as_bytes())?;
    }
    Ok(Arc::new(builder.finish()))
}

/// The properties that have no column, or do not fit theirs.
fn overflow(rows: &[Row], kinds: &HashMap<&str, Kind>) -> Result<ArrayRef, EventStoreError> {
    let mut builder = StringBuilder::new();
    for row in rows {
        let left = row
            .event
            .properties
            .iter()
            .filter(|(key, value)| !kinds.get(key.as_str()).is_some_and(|kind| kind.fits(value)));
        let left = left.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>();
        builder.append_option(if left.is_empty() { None } else { Some(serde_json::to_string(&left)?) });
    }
    Ok(Arc::new(builder.finish()))
}

fn property<'a>(
    kind: Kind,
    values: impl Iterator<Item = Option<&'a Value>>,
) -> Result<ArrayRef, EventStoreError> {
    Ok(match kind {
        Kind::Text => texts(values.map(|value| value.and_then(Value::as_str))),
        Kind::Integer => {
            let mut builder = Int64Builder::new();
            values.for_each(|value| builder.append_option(value.and_then(Value::as_i64)));
            Arc::new(builder.finish())
        }
        Kind::Float | Kind::Number => {
            let mut builder = Float64Builder::new();
            values.for_each(|value| builder.append_option(value.and_then(Value::as_f64)));
            Arc::new(builder.finish())
        }
        Kind::Boolean => {
            let mut builder = BooleanBuilder::new();
            values.for_each(|value| builder.append_option(value.and_then(Value::as_bool)));
            Arc::new(builder.finish())
        }
        Kind::Json => {
            let mut builder = StringDictionaryBuilder::<Int32Type>::new();
            for value in values {
                builder.append_option(value.map(serde_json::to_string).transpose()?);
            }
            Arc::new(builder.finish())
        }
    })
}
