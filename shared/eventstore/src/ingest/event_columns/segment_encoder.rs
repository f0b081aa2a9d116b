//! Encodes event columns as the files of a segment.
//!
//! Must stay true: rows are sorted by (person range, event, person, time, seq); dictionaries are in order of
//! appearance; memory holds the arrays of one range besides the columns and the encoded output.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, PrimitiveBuilder, StringBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, FixedSizeBinaryArray, Int32Array, RecordBatch, StringArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::SchemaRef;
use uuid::Uuid;

use super::EventColumns;
use super::interner::Interner;
use super::property_column::{PropertyValues, StoredValue, ValueRows};
use crate::error::EventStoreError;
use crate::segments::RANGE_BYTES;
use crate::segments::property_columns::{PropertyColumnKind, chosen};
use crate::segments::writer::{ReplacedInputs, SegmentWriter, WrittenSegment, range_bits, range_of};

/// Most bytes of a text array.
const OFFSET_MAX: usize = i32::MAX as usize;
/// No code.
const NONE: u32 = u32::MAX;

/// The rows of a segment, and their persons.
pub(super) struct SegmentRows {
    /// Rows, in any order.
    pub rows: Vec<u32>,
    /// Canonical persons by distinct id code.
    pub persons: Vec<Uuid>,
}

/// Encodes the selected rows in ranges of about `range_rows`.
pub(super) fn encode(
    events: &EventColumns,
    segment_rows: SegmentRows,
    range_rows: usize,
    replaces: &ReplacedInputs,
) -> Result<WrittenSegment, EventStoreError> {
    let bits =
        range_bits(segment_rows.rows.len(), range_rows).max(range_bits(events.text_bytes(), RANGE_BYTES));
    let keys = (0..).zip(&events.columns).map(|(key, column)| (events.keys.text(key), &column.tally));
    let own = chosen(keys);
    let own = own.into_iter().filter_map(|(key, kind)| {
        let number = events.keys.known(&key)?;
        let column = &events.columns[number as usize];
        Some(OwnColumn { key, number, kind, column, places: column.places(events.len()) })
    });
    let own = own.collect::<Vec<_>>();
    let overflow = Overflow::of(events, &own);
    let mut writer = SegmentWriter::new(own.iter().map(|own| (own.key.clone(), own.kind)).collect(), bits)?;
    let mut dictionary = Dictionary::default();
    for rows in ordered(events, &segment_rows, bits) {
        let batch = batch(events, &segment_rows, &rows, &own, &overflow, &mut dictionary, writer.schema())?;
        drop(rows);
        writer.write(&batch)?;
    }
    writer.finish(replaces)
}

/// A key with its own column.
struct OwnColumn<'a> {
    key: String,
    number: u32,
    kind: PropertyColumnKind,
    column: &'a PropertyValues,
    places: ValueRows,
}

impl OwnColumn<'_> {
    /// The value of a row, if the column holds it.
    fn value(&self, row: u32) -> Option<StoredValue> {
        self.places.of(row).map(|place| self.column.at(place)).filter(|value| value.fits(self.kind))
    }
}

/// The rows of each non-empty range, sorted.
fn ordered(events: &EventColumns, segment_rows: &SegmentRows, bits: u32) -> impl Iterator<Item = Vec<u32>> {
    let mut names = (0..events.names.len() as u32).collect::<Vec<_>>();
    names.sort_unstable_by_key(|name| events.names.text(*name));
    let mut name_ranks = vec![0_u64; names.len()];
    (0..).zip(names).for_each(|(rank, name)| name_ranks[name as usize] = rank);
    let mut sorted = segment_rows.persons.clone();
    sorted.sort_unstable();
    sorted.dedup();
    // Rank of the person, which sorts like the person itself.
    let rank = |person: &Uuid| sorted.partition_point(|before| before < person) as u64;
    let ranks = segment_rows.persons.iter().map(rank).collect::<Vec<_>>();
    let mut counts = vec![0; 1 << bits];
    let range = |row: &u32| {
        range_of(segment_rows.persons[events.distinct_id_codes[*row as usize] as usize], bits) as usize
    };
    segment_rows.rows.iter().for_each(|row| counts[range(row)] += 1);
    let mut ranges = counts.into_iter().map(Vec::with_capacity).collect::<Vec<_>>();
    for row in &segment_rows.rows {
        let who = events.distinct_id_codes[*row as usize] as usize;
        let name = name_ranks[events.events[*row as usize] as usize];
        let place = (name << 32) | ranks[who];
        ranges[range(row)].push((place, events.times[*row as usize], *row));
    }
    ranges.into_iter().filter(|rows| !rows.is_empty()).map(|mut rows| {
        let seq = |row: u32| events.seqs[row as usize];
        rows.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| seq(a.2).cmp(&seq(b.2))));
        rows.into_iter().map(|(_, _, row)| row).collect()
    })
}

fn batch(
    events: &EventColumns,
    segment_rows: &SegmentRows,
    rows: &[u32],
    own: &[OwnColumn<'_>],
    overflow: &Overflow,
    dictionary: &mut Dictionary,
    schema: &SchemaRef,
) -> Result<RecordBatch, EventStoreError> {
    let at = |row: &u32| *row as usize;
    let names = rows.iter().map(|row| Some(events.events[at(row)]));
    let names = dictionary.array(names, &events.names);
    let distinct_id_codes = rows.iter().map(|row| Some(events.distinct_id_codes[at(row)]));
    let distinct_id_codes = dictionary.array(distinct_id_codes, &events.distinct_ids);
    let times = rows.iter().map(|row| events.times[at(row)]).collect::<Vec<_>>();
    let mut arrays: Vec<ArrayRef> = vec![
        names,
        ids(rows.iter().map(|row| segment_rows.persons[events.distinct_id_codes[at(row)] as usize]))?,
        distinct_id_codes,
        Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")),
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| (events.seqs[at(row)] >> 64) as u64))),
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| events.seqs[at(row)] as u64))),
        ids(rows.iter().map(|row| events.uuids[at(row)]))?,
        overflow.array(events, rows)?,
    ];
    arrays.extend(own.iter().map(|own| property(own, rows, &events.texts, dictionary)));
    Ok(RecordBatch::try_new(schema.clone(), arrays)?)
}

fn ids(ids: impl ExactSizeIterator<Item = Uuid>) -> Result<ArrayRef, EventStoreError> {
    let mut bytes = Vec::with_capacity(ids.len() * 16);
    ids.for_each(|id| bytes.extend_from_slice(id.as_bytes()));
    Ok(Arc::new(FixedSizeBinaryArray::try_new(16, bytes.into(), None)?))
}

fn property(own: &OwnColumn<'_>, rows: &[u32], texts: &Interner, dictionary: &mut Dictionary) -> ArrayRef {
    let values = rows.iter().map(|row| own.value(*row));
    match own.kind {
        PropertyColumnKind::Text => {
            dictionary.array(values.map(|value| value.map(|value| value.bits as u32)), texts)
        }
        PropertyColumnKind::Integer => {
            let mut builder = Int64Builder::with_capacity(rows.len());
            values.for_each(|value| builder.append_option(value.map(|value| value.bits as i64)));
            Arc::new(builder.finish())
        }
        PropertyColumnKind::Float | PropertyColumnKind::Number => {
            let mut builder = Float64Builder::with_capacity(rows.len());
            values.for_each(|value| builder.append_option(value.map(StoredValue::as_float)));
            Arc::new(builder.finish())
        }
        PropertyColumnKind::Boolean => {
            let mut builder = BooleanBuilder::with_capacity(rows.len());
            values.for_each(|value| builder.append_option(value.map(|value| value.bits != 0)));
            Arc::new(builder.finish())
        }
        PropertyColumnKind::Json => jsons(values, texts),
    }
}

/// A column of values as JSON.
fn jsons(values: impl Iterator<Item = Option<StoredValue>>, texts: &Interner) -> ArrayRef {
    let mut known: HashMap<StoredValue, i32> = HashMap::new();
    let (mut codes, mut written) = (PrimitiveBuilder::<Int32Type>::new(), StringBuilder::new());
    let mut text = String::new();
    for value in values {
        codes.append_option(value.map(|value| {
            let next = known.len() as i32;
            *known.entry(value).or_insert_with(|| {
                text.clear();
                value.write_json(texts, &mut text);
                written.append_value(&text);
                next
            })
        }));
    }
    dictionary_array(codes.finish(), written.finish())
}

fn dictionary_array(codes: Int32Array, values: StringArray) -> ArrayRef {
    Arc::new(DictionaryArray::new(codes, Arc::new(values)))
}

/// Maps interned numbers to dictionary codes.
#[derive(Default)]
struct Dictionary {
    /// The code of each number, or none.
    codes: Vec<u32>,
}

impl Dictionary {
    fn array(&mut self, numbers: impl Iterator<Item = Option<u32>>, texts: &Interner) -> ArrayRef {
        self.codes.resize(self.codes.len().max(texts.len()), NONE);
        let mut used = Vec::new();
        let (mut codes, mut values) = (PrimitiveBuilder::<Int32Type>::new(), StringBuilder::new());
        for number in numbers {
            codes.append_option(number.map(|number| {
                let code = &mut self.codes[number as usize];
                if *code == NONE {
                    *code = used.len() as u32;
                    used.push(number);
                    values.append_value(texts.text(number));
                }
                *code as i32
            }));
        }
        used.into_iter().for_each(|number| self.codes[number as usize] = NONE);
        dictionary_array(codes.finish(), values.finish())
    }
}

/// Values without a column or that do not fit it, ascending by row.
struct Overflow {
    values: Vec<(u32, u32, StoredValue)>,
}

impl Overflow {
    fn of(events: &EventColumns, own: &[OwnColumn<'_>]) -> Overflow {
        let mut kinds = vec![None; events.columns.len()];
        own.iter().for_each(|own| kinds[own.number as usize] = Some(own.kind));
        let mut values = events.rest.clone();
        for (key, (column, kind)) in (0..).zip(events.columns.iter().zip(kinds)) {
            if kind.is_some_and(|kind| column.tally.all_fit(kind)) {
                continue;
            }
            let all = (0..column.len()).map(|place| (column.row(place), key, column.at(place)));
            values.extend(all.filter(|(_, _, value)| !kind.is_some_and(|kind| value.fits(kind))));
        }
        // Stable sort: the last value of a key stays last, which wins on reading.
        values.sort_by_key(|(row, key, _)| (*row, *key));
        values.dedup_by(|later, before| {
            let same = (later.0, later.1) == (before.0, before.1);
            if same {
                before.2 = later.2;
            }
            same
        });
        Overflow { values }
    }

    fn array(&self, events: &EventColumns, rows: &[u32]) -> Result<ArrayRef, EventStoreError> {
        let mut builder = StringBuilder::new();
        let mut text = String::new();
        let mut bytes = 0;
        for row in rows {
            let start = self.values.partition_point(|(before, _, _)| before < row);
            let of_row = self.values[start..].iter().take_while(|(found, _, _)| found == row);
            text.clear();
            for (_, key, value) in of_row {
                text.push(if text.is_empty() { '{' } else { ',' });
                let key = events.keys.text(*key);
                text.push_str(&serde_json::Value::from(key).to_string());
                text.push(':');
                value.write_json(&events.texts, &mut text);
            }
            if text.is_empty() {
                builder.append_null();
            } else {
                text.push('}');
                bytes += text.len();
                if bytes > OFFSET_MAX {
                    let what = "the properties of one range of persons take more than 2 GiB";
                    return Err(EventStoreError::TooLarge(what.to_owned()));
                }
                builder.append_value(&text);
            }
        }
        Ok(Arc::new(builder.finish()))
    }
}
