//! Merges rows of several segments, one person range at a time, column by column.
//!
//! From each source come the rows of one range of the new segment, decoded in its columns; they are sorted, and
//! each new column is gathered from the source columns. Property columns of equal kind stay so. If the kinds of
//! a key conflict, the kind is chosen by the rule for new segments over all values, and values that do not fit
//! go to `properties`. Must stay true: every value is preserved exactly, whether it was or is in a column or in
//! `properties`; rows are written under their canonical persons, in segment order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, new_null_array,
};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::interleave::interleave;
use pennon_analytics::scan::{MISSING, Micros, Seq};
use serde_json::{Map, Value};

use super::property_columns::{COLUMNS_MAX, PropertyColumnKind, TypeCounts};
use super::property_values::{self, DictionaryColumn};
use super::reader::{seqs, texts, times};
use super::{Footer, PROPERTY};
use crate::error::EventStoreError;

/// Columns that are recomputed.
pub(crate) const RECOMPUTED_COLUMNS: [&str; 2] = ["person", "tie"];
/// Target of a person whose rows are dropped.
pub(crate) const DROPPED_PERSON: u32 = u32::MAX;

/// Rows of one range of the new segment from one source batch.
pub(crate) struct SourceRows {
    pub batch: RecordBatch,
    pub footer: Arc<Footer>,
    /// Canonical persons of the source range, by person code.
    pub finals: Arc<Vec<u128>>,
    /// Events before this instant are dropped.
    pub from: Micros,
}

/// The ranges of rows whose persons go to range `requested`. `targets` is by person code.
pub(crate) fn rows_for(codes: &[u32], targets: &[u32], requested: u32) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (row, code) in codes.iter().enumerate() {
        if targets.get(*code as usize) == Some(&requested) {
            match ranges.last_mut() {
                Some(last) if last.end == row => last.end = row + 1,
                _ => ranges.push(row..row + 1),
            }
        }
    }
    ranges
}

/// Number of values of each property column of a source.
pub(crate) type PropertyValueCounts = HashMap<String, u64>;

/// The keys with columns of different kinds in the sources, if they may get a column.
pub(crate) fn conflicting_keys<'a>(footers: impl Iterator<Item = &'a Footer>) -> BTreeSet<String> {
    let mut kinds: HashMap<&str, PropertyColumnKind> = HashMap::new();
    let mut conflicting_keys = BTreeSet::new();
    for column in footers.flat_map(|footer| &footer.columns) {
        if *kinds.entry(&column.key).or_insert(column.kind) != column.kind {
            conflicting_keys.insert(column.key.clone());
        }
    }
    conflicting_keys
}

/// Adds the values of property `key` in a batch to the statistics.
pub(crate) fn count_types(
    count_types: &mut TypeCounts,
    batch: &RecordBatch,
    footer: &Footer,
    key: &str,
) -> Result<(), EventStoreError> {
    let Some(own) = footer.columns.iter().find(|column| column.key == key) else { return Ok(()) };
    let column = property_values::typed(batch, &format!("{PROPERTY}{key}"), own.kind)?;
    let mut times = vec![0; column.values.len()];
    for code in column.codes.iter().filter(|code| **code != MISSING) {
        times[*code as usize] += 1;
    }
    for (value, times) in column.values.iter().zip(times) {
        count_types.add(value, times);
    }
    Ok(())
}

/// Chooses the property columns of the new segment, sorted by key.
pub(crate) fn plan(
    sources: &[(Arc<Footer>, PropertyValueCounts)],
    tallies: &BTreeMap<String, TypeCounts>,
) -> Vec<(String, PropertyColumnKind)> {
    let mut found: HashMap<&str, (PropertyColumnKind, u64)> = HashMap::new();
    for (footer, counts) in sources {
        for column in &footer.columns {
            let of_key = found.entry(&column.key).or_insert((column.kind, 0));
            of_key.1 += counts.get(&column.key).copied().unwrap_or(0);
        }
    }
    let mut columns = found.into_iter().collect::<Vec<_>>();
    // The most frequent keys, as in a new segment.
    columns.sort_by(|(a, left), (b, right)| right.1.cmp(&left.1).then(a.cmp(b)));
    columns.truncate(COLUMNS_MAX);
    columns.sort_by_key(|(key, _)| *key);
    let kind = |key: &str, own: PropertyColumnKind| tallies.get(key).map_or(own, TypeCounts::kind);
    columns.into_iter().map(|(key, (own, _))| (key.to_owned(), kind(key, own))).collect()
}

/// Merges all parts into one batch of the new segment, without rows before their `from`.
pub(crate) fn merge_sources(
    parts: &[SourceRows],
    columns: &[(String, PropertyColumnKind)],
    schema: &SchemaRef,
) -> Result<RecordBatch, EventStoreError> {
    let mut names: BTreeMap<&str, i32> = BTreeMap::new();
    let events = parts.iter().map(|part| texts(&part.batch, "event")).collect::<Result<Vec<_>, _>>()?;
    for text in &events {
        names.extend(text.values.iter().map(|name| (*name, 0)));
    }
    (0..).zip(names.values_mut()).for_each(|(rank, name)| *name = rank);
    let mut places = Vec::new();
    for (at, (part, events)) in parts.iter().zip(&events).enumerate() {
        let ranks = events.values.iter().map(|name| names[name]).collect::<Vec<_>>();
        place(&mut places, at, part, &events.codes, &ranks)?;
    }
    // Source rows are sorted except for merged persons: the sort merges them.
    places.sort_by_key(|place| (place.event, place.person, place.time, place.seq));
    let order = places.iter().map(|place| (place.part as usize, place.row as usize)).collect::<Vec<_>>();
    let normal =
        parts.iter().map(|part| NormalizedProperties::of(part, columns)).collect::<Result<Vec<_>, _>>()?;
    let mut persons = FixedSizeBinaryBuilder::with_capacity(places.len(), 16);
    for place in &places {
        persons.append_value(place.person.to_be_bytes())?;
    }
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    let mut property = 0;
    for field in schema.fields() {
        arrays.push(match field.name().as_str() {
            "event" => {
                let ranks = Int32Array::from_iter_values(places.iter().map(|place| place.event));
                Arc::new(DictionaryArray::new(ranks, Arc::new(StringArray::from_iter_values(names.keys()))))
            }
            "person" => Arc::new(persons.finish()),
            "properties" => gather_column(normal.iter().map(|part| part.overflow.clone()), &order)?,
            name if name.starts_with(PROPERTY) => {
                property += 1;
                gather_column(normal.iter().map(|part| part.columns[property - 1].clone()), &order)?
            }
            name => {
                let arrays = parts.iter().map(|part| column(&part.batch, name).cloned());
                gather_column(arrays.collect::<Result<Vec<_>, _>>()?.into_iter(), &order)?
            }
        });
    }
    Ok(RecordBatch::try_new(schema.clone(), arrays)?)
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, EventStoreError> {
    batch.column_by_name(name).ok_or_else(|| EventStoreError::Corrupt(format!("no column {name}")))
}

/// Position and sort key of a row.
struct RowOrder {
    event: i32,
    person: u128,
    time: Micros,
    seq: Seq,
    part: u32,
    row: u32,
}

fn place(
    places: &mut Vec<RowOrder>,
    at: usize,
    part: &SourceRows,
    codes: &[Option<u32>],
    ranks: &[i32],
) -> Result<(), EventStoreError> {
    let wrong = || EventStoreError::corrupt("a row without its event or person");
    let persons = column(&part.batch, "person_code")?.as_primitive_opt::<UInt32Type>().ok_or_else(wrong)?;
    let (times, seqs) = (times(&part.batch)?, seqs(&part.batch)?);
    places.reserve(times.len());
    for (row, time) in times.iter().enumerate().filter(|(_, time)| **time >= part.from) {
        places.push(RowOrder {
            event: ranks[codes[row].ok_or_else(wrong)? as usize],
            person: *part.finals.get(persons.value(row) as usize).ok_or_else(wrong)?,
            time: *time,
            seq: seqs[row],
            part: at as u32,
            row: row as u32,
        });
    }
    Ok(())
}

/// Gathers rows, given as (array, index), into one array.
fn gather_column(
    arrays: impl Iterator<Item = ArrayRef>,
    order: &[(usize, usize)],
) -> Result<ArrayRef, EventStoreError> {
    let arrays = arrays.collect::<Vec<_>>();
    if matches!(arrays.first().map(|array| array.data_type()), Some(DataType::Dictionary(_, _))) {
        return gather_texts(&arrays, order);
    }
    let arrays = arrays.iter().map(|array| &**array).collect::<Vec<_>>();
    Ok(interleave(&arrays, order)?)
}

/// As above for dictionary columns: each used value is once in the new dictionary.
fn gather_texts(arrays: &[ArrayRef], order: &[(usize, usize)]) -> Result<ArrayRef, EventStoreError> {
    let wrong = || EventStoreError::corrupt("a dictionary of an unexpected type");
    let mut sources = Vec::with_capacity(arrays.len());
    for array in arrays {
        let array = array.as_dictionary_opt::<Int32Type>().ok_or_else(wrong)?;
        let values = array.values().as_string_opt::<i32>().ok_or_else(wrong)?;
        sources.push((array, values, vec![-1; values.len()]));
    }
    let mut known: HashMap<&str, i32> = HashMap::new();
    let mut used = Vec::new();
    let mut keys = Vec::with_capacity(order.len());
    for (at, row) in order {
        let (array, values, codes) = &mut sources[*at];
        let Some(code) = array.key(*row) else {
            keys.push(None);
            continue;
        };
        let own = codes.get_mut(code).ok_or_else(wrong)?;
        if *own < 0 {
            let value = values.value(code);
            *own = *known.entry(value).or_insert_with(|| {
                used.push(value);
                (used.len() - 1) as i32
            });
        }
        keys.push(Some(*own));
    }
    let values = Arc::new(StringArray::from_iter_values(used));
    Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(Int32Array::from(keys), values)?))
}

/// The properties of a part in the columns of the new segment.
struct NormalizedProperties {
    columns: Vec<ArrayRef>,
    overflow: ArrayRef,
}

impl NormalizedProperties {
    fn of(
        part: &SourceRows,
        columns: &[(String, PropertyColumnKind)],
    ) -> Result<NormalizedProperties, EventStoreError> {
        let (batch, footer) = (&part.batch, &*part.footer);
        let own = |key: &str| footer.columns.iter().find(|column| column.key == key);
        let stays = |key: &str, kind: PropertyColumnKind| own(key).is_some_and(|own| own.kind == kind);
        let nothing = |key: &str| own(key).is_none() && !property_values::in_overflow(footer, key);
        let is_kept = |key: &str| columns.binary_search_by(|(kept, _)| kept.as_str().cmp(key)).is_ok();
        let dropped = footer.columns.iter().filter(|column| !is_kept(&column.key)).collect::<Vec<_>>();
        let as_it_is =
            columns.iter().all(|(key, kind)| stays(key, *kind) || nothing(key)) && dropped.is_empty();
        let mut overflow =
            if as_it_is { Vec::new() } else { padded(property_values::overflow(batch)?, batch.num_rows()) };
        let mut arrays = Vec::with_capacity(columns.len());
        for (key, kind) in columns {
            arrays.push(if stays(key, *kind) {
                column(batch, &format!("{PROPERTY}{key}"))?.clone()
            } else if nothing(key) {
                new_null_array(&data_type(*kind), batch.num_rows())
            } else {
                let mut values = match own(key) {
                    Some(own) => property_values::typed(batch, &format!("{PROPERTY}{key}"), own.kind)?,
                    None => DictionaryColumn { codes: vec![MISSING; batch.num_rows()], values: Vec::new() },
                };
                move_unfitting(&mut values, &mut overflow, key, *kind);
                array(*kind, &values)?
            });
        }
        for column in dropped {
            let values = property_values::typed(batch, &format!("{PROPERTY}{}", column.key), column.kind)?;
            for (row, code) in values.codes.iter().enumerate().filter(|(_, code)| **code != MISSING) {
                let value = values.values[*code as usize].clone();
                overflow[row].get_or_insert_default().insert(column.key.clone(), value);
            }
        }
        let overflow = if as_it_is { column(batch, "properties")?.clone() } else { packed(&overflow)? };
        Ok(NormalizedProperties { columns: arrays, overflow })
    }
}

fn padded(mut overflow: Vec<Option<Map<String, Value>>>, rows: usize) -> Vec<Option<Map<String, Value>>> {
    overflow.resize(rows, None);
    overflow
}

fn packed(overflow: &[Option<Map<String, Value>>]) -> Result<ArrayRef, EventStoreError> {
    let texts = overflow.iter().map(|map| match map {
        Some(map) if !map.is_empty() => serde_json::to_string(map).map(Some),
        _ => Ok(None),
    });
    Ok(Arc::new(StringArray::from(texts.collect::<Result<Vec<_>, _>>()?)))
}

/// Moves values that do not fit a column of `kind` to `properties`, and those that fit from there into the
/// column.
fn move_unfitting(
    column: &mut DictionaryColumn,
    overflow: &mut [Option<Map<String, Value>>],
    key: &str,
    kind: PropertyColumnKind,
) {
    let fits = column.values.iter().map(|value| kind.fits(value)).collect::<Vec<_>>();
    for (code, map) in column.codes.iter_mut().zip(overflow) {
        if *code == MISSING {
            let found = map.as_mut().filter(|map| map.get(key).is_some_and(|value| kind.fits(value)));
            if let Some(value) = found.and_then(|map| map.remove(key)) {
                *code = column.values.len() as u32;
                column.values.push(value);
            }
        } else if !fits[*code as usize] {
            let value = column.values[*code as usize].clone();
            map.get_or_insert_default().insert(key.to_owned(), value);
            *code = MISSING;
        }
    }
}

fn data_type(kind: PropertyColumnKind) -> DataType {
    match kind {
        PropertyColumnKind::Text | PropertyColumnKind::Json => {
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
        }
        PropertyColumnKind::Integer => DataType::Int64,
        PropertyColumnKind::Float | PropertyColumnKind::Number => DataType::Float64,
        PropertyColumnKind::Boolean => DataType::Boolean,
    }
}

/// Builds a property column; all its values fit `kind`.
fn array(kind: PropertyColumnKind, column: &DictionaryColumn) -> Result<ArrayRef, EventStoreError> {
    let rows = || column.codes.iter().map(|code| column.values.get(*code as usize));
    Ok(match kind {
        PropertyColumnKind::Integer => {
            Arc::new(Int64Array::from_iter(rows().map(|value| value.and_then(Value::as_i64))))
        }
        PropertyColumnKind::Float | PropertyColumnKind::Number => {
            Arc::new(Float64Array::from_iter(rows().map(|value| value.and_then(Value::as_f64))))
        }
        PropertyColumnKind::Boolean => {
            Arc::new(rows().map(|value| value.and_then(Value::as_bool)).collect::<BooleanArray>())
        }
        PropertyColumnKind::Text | PropertyColumnKind::Json => {
            let text = |value: &Value| match (kind, value) {
                (PropertyColumnKind::Text, Value::String(text)) => Ok(text.clone()),
                _ => serde_json::to_string(value),
            };
            let values = column.values.iter().map(text).collect::<Result<Vec<_>, _>>()?;
            let keys = column.codes.iter().map(|code| (*code != MISSING).then_some(*code as i32));
            let values = Arc::new(StringArray::from(values));
            Arc::new(DictionaryArray::<Int32Type>::try_new(keys.collect::<Int32Array>(), values)?)
        }
    })
}
