//! Builds columns of values from decoded batches of a segment, run by run.
//!
//! Must stay true: the dictionary of a run has exactly the values of its rows, so that caching a run does not
//! retain values of others.

use std::sync::Arc;

use arrow_array::RecordBatch;
use pennon_analytics::scan::{Column, MISSING};
use serde_json::{Map, Value};

use super::compiled_request::{ColumnSource, GROUPS, group_key};
use crate::error::EventStoreError;
use crate::memory::{MemoryLease, value_bytes};
use crate::segments::Footer;
use crate::segments::property_values::{self, DictionaryColumn};
use crate::segments::reader::texts;

/// The columns of a segment that hold these values.
pub(crate) fn projection<'a>(
    footer: &Footer,
    requested: impl Iterator<Item = &'a ColumnSource>,
) -> Vec<String> {
    let mut columns = Vec::new();
    for origin in requested {
        match origin {
            ColumnSource::DistinctId => columns.push("distinct_id".to_owned()),
            ColumnSource::AllProperties => columns.extend(property_values::all_places(footer)),
            ColumnSource::Property(key) => columns.extend(property_values::places(footer, key)),
            ColumnSource::Group { own, .. } => {
                columns.extend(property_values::places(footer, GROUPS));
                columns.extend(property_values::places(footer, own));
            }
        }
    }
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// Builds the requested columns of each run. `batches` hold all rows of the runs, one run after the other, with
/// the given lengths. The values are reserved in `taken` on the way; objects of all properties are built
/// elsewhere (`property_objects`).
pub(crate) fn of_runs(
    batches: &[RecordBatch],
    footer: &Footer,
    rows: &[usize],
    requested: &[Arc<ColumnSource>],
    taken: &mut MemoryLease,
) -> Result<Vec<Vec<Column>>, EventStoreError> {
    let decoded = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    if decoded != rows.iter().sum::<usize>() {
        return Err(EventStoreError::corrupt("columns of different lengths"));
    }
    let mut columns = rows
        .iter()
        .map(|rows| requested.iter().map(|_| GatheredColumn::with_rows(*rows)).collect::<Vec<_>>())
        .collect::<Vec<_>>();
    let (mut run, mut done) = (0, 0);
    for batch in batches {
        let overflow = property_values::overflow(batch)?;
        let coded = requested.iter().map(|origin| of_origin(batch, footer, &overflow, origin));
        let coded = coded.collect::<Result<Vec<_>, _>>()?;
        let mut translations = coded.iter().map(CodeMap::of).collect::<Vec<_>>();
        let mut at = 0;
        while at < batch.num_rows() {
            let more = (rows[run] - done).min(batch.num_rows() - at);
            for (column, (coded, translation)) in
                columns[run].iter_mut().zip(coded.iter().zip(&mut translations))
            {
                taken.add(column.add(coded, at..at + more, translation))?;
            }
            (at, done) = (at + more, done + more);
            if done == rows[run] {
                (run, done) = (run + 1, 0);
            }
        }
    }
    Ok(columns.into_iter().map(|of_run| of_run.into_iter().map(GatheredColumn::column).collect()).collect())
}

/// A column builder.
#[derive(Debug, Default)]
pub(crate) struct GatheredColumn {
    codes: Vec<u32>,
    values: Vec<Value>,
}

/// Maps codes of a dictionary to new codes; used ones are reset quickly.
#[derive(Debug)]
pub(crate) struct CodeMap {
    new: Vec<u32>,
    given: Vec<u32>,
}

impl CodeMap {
    fn of(coded: &DictionaryColumn) -> CodeMap {
        CodeMap { new: vec![MISSING; coded.values.len()], given: Vec::new() }
    }
}

impl GatheredColumn {
    fn with_rows(rows: usize) -> GatheredColumn {
        GatheredColumn { codes: Vec::with_capacity(rows), values: Vec::new() }
    }

    /// Returns the bytes of new values.
    fn add(
        &mut self,
        from: &DictionaryColumn,
        rows: std::ops::Range<usize>,
        translation: &mut CodeMap,
    ) -> u64 {
        let CodeMap { new, given } = translation;
        let before = self.values.len();
        for code in &from.codes[rows] {
            let translated = match new.get_mut(*code as usize) {
                Some(known) if *known != MISSING => *known,
                Some(unknown) => {
                    *unknown = self.values.len() as u32;
                    self.values.push(from.values[*code as usize].clone());
                    given.push(*code);
                    *unknown
                }
                None => MISSING,
            };
            self.codes.push(translated);
        }
        given.drain(..).for_each(|code| new[code as usize] = MISSING);
        self.values[before..].iter().map(value_bytes).sum()
    }

    fn column(mut self) -> Column {
        self.values.shrink_to_fit();
        Column::new(self.codes, self.values)
    }
}

fn of_origin(
    batch: &RecordBatch,
    footer: &Footer,
    overflow: &[Option<Map<String, Value>>],
    origin: &ColumnSource,
) -> Result<DictionaryColumn, EventStoreError> {
    match origin {
        ColumnSource::AllProperties => Err(EventStoreError::corrupt("all properties are no column")),
        ColumnSource::DistinctId => {
            let texts = texts(batch, "distinct_id")?;
            let codes = texts.codes.into_iter().map(|code| code.unwrap_or(MISSING)).collect();
            Ok(DictionaryColumn { codes, values: texts.values.into_iter().map(Value::from).collect() })
        }
        ColumnSource::Property(key) => property_values::property(batch, footer, overflow, key),
        ColumnSource::Group { type_name, own } => {
            let groups = property_values::property(batch, footer, overflow, GROUPS)?;
            let keys = groups.values.iter().map(|value| group_key(value, type_name)).collect::<Vec<_>>();
            let mut column = property_values::property(batch, footer, overflow, own)?;
            let shift = column.values.len() as u32;
            for (code, group) in column.codes.iter_mut().zip(&groups.codes) {
                if keys.get(*group as usize).is_some_and(Option::is_some) {
                    *code = shift + group;
                }
            }
            column.values.extend(keys.into_iter().map(Option::unwrap_or_default));
            Ok(column)
        }
    }
}
