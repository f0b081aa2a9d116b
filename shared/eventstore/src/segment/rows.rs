//! Rows of events into the batches that the writer takes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, FixedSizeBinaryBuilder, Float64Builder, Int64Builder, RecordBatch,
    StringBuilder, StringDictionaryBuilder, TimestampMicrosecondArray, UInt64Array,
};
use arrow::datatypes::{Int32Type, SchemaRef};
use serde_json::{Map, Value};

use super::RANGE_ROWS;
use super::columns::{Kind, PropertyColumn, plan};
use super::write::{Replaces, SegmentWriter, Written, range_bits, range_of};
use crate::error::EventStoreError;
use crate::event::Row;

/// The files with `rows`, which are put in order first.
pub(crate) fn encode(rows: &mut [Row], replaces: &Replaces) -> Result<Written, EventStoreError> {
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
    let mut writer =
        SegmentWriter::new(columns.iter().map(|column| (column.key.clone(), column.kind)).collect(), bits)?;
    for group in rows.chunk_by(|a, b| range_of(a.person, bits) == range_of(b.person, bits)) {
        writer.write(&batch(group, &columns, &kinds, writer.schema())?)?;
    }
    writer.finish(replaces)
}

fn batch(
    rows: &[Row],
    columns: &[PropertyColumn],
    kinds: &HashMap<&str, Kind>,
    schema: &SchemaRef,
) -> Result<RecordBatch, EventStoreError> {
    let times = rows.iter().map(|row| row.event.timestamp).collect::<Vec<_>>();
    let mut arrays: Vec<ArrayRef> = vec![
        texts(rows.iter().map(|row| Some(row.event.event.as_str()))),
        ids(rows.iter().map(|row| row.person))?,
        texts(rows.iter().map(|row| Some(row.event.distinct_id.as_str()))),
        Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")),
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
