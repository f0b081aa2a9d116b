//! Reads property values from the columns of a segment.
//!
//! Must stay true: a value is restored exactly, whether it is in its column or in `properties`.

use std::collections::HashMap;
use std::hash::Hash;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use pennon_analytics::scan::MISSING;
use serde_json::{Map, Value};

use super::property_columns::PropertyColumnKind;
use super::reader::{ids, seqs, texts, times};
use super::{Footer, PROPERTY};
use crate::error::EventStoreError;
use crate::event::{Event, PersonEvent};

/// A dictionary column under construction.
#[derive(Debug, Default)]
pub(crate) struct DictionaryColumn {
    /// One code per row, or [`MISSING`].
    pub codes: Vec<u32>,
    pub values: Vec<Value>,
}

/// Columns that may hold values of a property, for a projection.
pub(crate) fn places(footer: &Footer, key: &str) -> Vec<String> {
    let own = footer.columns.iter().find(|column| column.key == key).map(|_| format!("{PROPERTY}{key}"));
    let overflow = in_overflow(footer, key).then(|| "properties".to_owned());
    own.into_iter().chain(overflow).collect()
}

/// Columns that may hold any property, for a projection.
pub(crate) fn all_places(footer: &Footer) -> Vec<String> {
    let own = footer.columns.iter().map(|column| format!("{PROPERTY}{}", column.key));
    own.chain(has_overflow(footer).then(|| "properties".to_owned())).collect()
}

/// Whether any value may be in `properties`.
fn has_overflow(footer: &Footer) -> bool {
    footer.overflow_keys.as_ref().is_none_or(|keys| !keys.is_empty())
        || footer.columns.iter().any(|column| column.exceptions)
}

/// Whether a value of the key may be in `properties`.
pub(crate) fn in_overflow(footer: &Footer, key: &str) -> bool {
    match footer.columns.iter().find(|column| column.key == key) {
        Some(column) => column.exceptions,
        None => footer.overflow_keys.as_ref().is_none_or(|keys| keys.iter().any(|listed| listed == key)),
    }
}

/// The parsed `properties` of the rows; empty when the column was not read.
pub(crate) fn overflow(batch: &RecordBatch) -> Result<Vec<Option<Map<String, Value>>>, EventStoreError> {
    let Some(array) = batch.column_by_name("properties") else { return Ok(Vec::new()) };
    let array =
        array.as_string_opt::<i32>().ok_or_else(|| EventStoreError::corrupt("properties is no text"))?;
    array.iter().map(|text| text.map(serde_json::from_str).transpose().map_err(Into::into)).collect()
}

/// The values of property `key`, one code per row of the batch.
pub(crate) fn property(
    batch: &RecordBatch,
    footer: &Footer,
    overflow: &[Option<Map<String, Value>>],
    key: &str,
) -> Result<DictionaryColumn, EventStoreError> {
    let own = footer.columns.iter().find(|column| column.key == key);
    let mut column = match own {
        Some(own) => typed(batch, &format!("{PROPERTY}{key}"), own.kind)?,
        None => DictionaryColumn { codes: vec![MISSING; batch.num_rows()], values: Vec::new() },
    };
    if in_overflow(footer, key) {
        for (code, map) in column.codes.iter_mut().zip(overflow) {
            if let Some(value) = map.as_ref().and_then(|map| map.get(key)) {
                *code = column.values.len() as u32;
                column.values.push(value.clone());
            }
        }
    }
    Ok(column)
}

/// All properties of these rows of the batch, one object per row.
pub(crate) fn objects(
    batch: &RecordBatch,
    footer: &Footer,
    overflow: &[Option<Map<String, Value>>],
    rows: &[usize],
) -> Result<Vec<Map<String, Value>>, EventStoreError> {
    let object = |row: &usize| overflow.get(*row).cloned().flatten().unwrap_or_default();
    let mut objects: Vec<Map<String, Value>> = rows.iter().map(object).collect();
    for own in &footer.columns {
        let column = typed(batch, &format!("{PROPERTY}{}", own.key), own.kind)?;
        for (row, object) in rows.iter().zip(&mut objects) {
            let code = column.codes.get(*row).and_then(|code| usize::try_from(*code).ok());
            if let Some(value) = code.and_then(|code| column.values.get(code)) {
                object.insert(own.key.clone(), value.clone());
            }
        }
    }
    Ok(objects)
}

/// The column `name` of this kind, one code per row.
pub(crate) fn typed(
    batch: &RecordBatch,
    name: &str,
    kind: PropertyColumnKind,
) -> Result<DictionaryColumn, EventStoreError> {
    let array =
        batch.column_by_name(name).ok_or_else(|| EventStoreError::Corrupt(format!("no column {name}")))?;
    let wrong = || EventStoreError::Corrupt(format!("column {name} has an unexpected type"));
    Ok(match kind {
        PropertyColumnKind::Text => dictionary(batch, name, |text| Ok(Value::from(text)))?,
        PropertyColumnKind::Json => dictionary(batch, name, |text| Ok(serde_json::from_str(text)?))?,
        PropertyColumnKind::Integer => {
            coded(array.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?.iter(), Value::from)
        }
        PropertyColumnKind::Boolean => coded(array.as_boolean_opt().ok_or_else(wrong)?.iter(), Value::from),
        PropertyColumnKind::Float => {
            floats(array.as_primitive_opt::<Float64Type>().ok_or_else(wrong)?.iter(), Value::from)
        }
        PropertyColumnKind::Number => floats(
            array.as_primitive_opt::<Float64Type>().ok_or_else(wrong)?.iter(),
            PropertyColumnKind::number,
        ),
    })
}

fn dictionary(
    batch: &RecordBatch,
    name: &str,
    value: impl Fn(&str) -> Result<Value, EventStoreError>,
) -> Result<DictionaryColumn, EventStoreError> {
    let texts = texts(batch, name)?;
    // If no row of a row group has a value, the decoder returns a dictionary with an empty text that was never
    // stored.
    let mut used = vec![false; texts.values.len()];
    texts.codes.iter().flatten().for_each(|code| used[*code as usize] = true);
    let values = texts.values.iter().zip(used);
    let values = values.map(|(text, used)| if used { value(text) } else { Ok(Value::Null) });
    Ok(DictionaryColumn {
        values: values.collect::<Result<_, _>>()?,
        codes: texts.codes.into_iter().map(|code| code.unwrap_or(MISSING)).collect(),
    })
}

fn floats(items: impl Iterator<Item = Option<f64>>, value: impl Fn(f64) -> Value) -> DictionaryColumn {
    coded(items.map(|item| item.map(f64::to_bits)), |bits| value(f64::from_bits(bits)))
}

/// Codes in order of first appearance.
fn coded<T: Copy + Eq + Hash>(
    items: impl Iterator<Item = Option<T>>,
    value: impl Fn(T) -> Value,
) -> DictionaryColumn {
    let mut column = DictionaryColumn::default();
    let mut known = HashMap::new();
    for item in items {
        let code = item.map_or(MISSING, |item| {
            *known.entry(item).or_insert_with(|| {
                column.values.push(value(item));
                (column.values.len() - 1) as u32
            })
        });
        column.codes.push(code);
    }
    column
}

/// All events of a batch with all columns.
pub(crate) fn rows(batch: &RecordBatch, footer: &Footer) -> Result<Vec<PersonEvent>, EventStoreError> {
    let names = texts(batch, "event")?;
    let distinct_ids = texts(batch, "distinct_id")?;
    let (persons, uuids) = (ids(batch, "person")?, ids(batch, "uuid")?);
    let (times, seqs) = (times(batch)?, seqs(batch)?);
    let overflow = overflow(batch)?;
    let text = |texts: &super::reader::DecodedTextColumn<'_>, row: usize| {
        let code = texts.codes[row]
            .ok_or_else(|| EventStoreError::corrupt("an event without a name or distinct id"))?;
        Ok::<_, EventStoreError>(texts.values[code as usize].to_owned())
    };
    let mut rows = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let event = Event {
            uuid: uuids[row],
            event: text(&names, row)?,
            distinct_id: text(&distinct_ids, row)?,
            timestamp: times[row],
            properties: overflow.get(row).cloned().flatten().unwrap_or_default(),
        };
        rows.push(PersonEvent { seq: seqs[row], person: persons[row], event });
    }
    for own in &footer.columns {
        let column = typed(batch, &format!("{PROPERTY}{}", own.key), own.kind)?;
        for (row, code) in rows.iter_mut().zip(column.codes) {
            if code != MISSING {
                row.event.properties.insert(own.key.clone(), column.values[code as usize].clone());
            }
        }
    }
    Ok(rows)
}
