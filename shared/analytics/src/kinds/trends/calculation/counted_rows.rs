//! The rows of a series that are counted, in the buckets of their times and under their breakdown values.
//!
//! Must stay true: an event counts only under its breakdown value and in the buckets of its time.

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::breakdown_values::{BreakdownLayer, ValueCodes};
use super::bucket_mapping::{BucketLookup, BucketMapping, BucketSpan};
use crate::mask::Mask;
use crate::scan::{EventRun, Micros};

/// The rows of one series in one partition.
pub(super) struct SeriesRows<'a> {
    /// Runs, the rows that pass the filters, and the breakdown layers.
    pub(super) list: Vec<(&'a EventRun, Mask, &'a [BreakdownLayer])>,
    /// Number of actors in the partition.
    pub(super) actors: usize,
}

impl SeriesRows<'_> {
    /// The code of the breakdown value of all rows, if it is one value.
    pub(super) fn only_value(&self) -> Option<u32> {
        let mut values = self.list.iter().map(|(.., layers)| match layers {
            [BreakdownLayer { mask: Mask::Every, codes: ValueCodes::Same(value) }] => Some(*value),
            _ => None,
        });
        let first = values.next()??;
        if values.all(|value| value == Some(first)) { Some(first) } else { None }
    }
}

/// A counted row in one of its layers.
pub(super) struct CountedRow {
    /// Index of its run in the list, and of the row in the run.
    pub(super) position: (usize, usize),
    pub(super) actor: u32,
    pub(super) time: Micros,
    pub(super) span: BucketSpan,
    pub(super) value_code: u32,
}

/// Calls back with the indexes of the rows that pass a mask.
#[inline]
pub(super) fn for_each_passing(
    run: &EventRun,
    mask: &Mask,
    work: &WorkBudget<'_>,
    mut callback: impl FnMut(usize),
) -> CalcResult<()> {
    let rows = run.actors.len();
    for start in (0..rows).step_by(ROWS_PER_CHECK) {
        let chunk = start..rows.min(start + ROWS_PER_CHECK);
        work.consume(ROWS_PER_CHECK)?;
        match mask {
            Mask::Nothing => return Ok(()),
            Mask::Every => chunk.for_each(&mut callback),
            Mask::Rows(passes) => {
                let passes = passes.get(chunk.clone()).unwrap_or_default();
                chunk.zip(passes).filter(|(_, passes)| **passes).for_each(|(row, _)| callback(row));
            }
        }
    }
    Ok(())
}

/// Rows per work unit consumption and check for cancellation.
const ROWS_PER_CHECK: usize = 1 << 14;

/// Calls back with the key and the bucket of every row; rows that do not count have the bucket `outside`. Each row counts in
/// one bucket at most (see [`BucketMapping::is_one_to_one`]).
#[inline]
pub(super) fn for_each_bucket(
    keys: &[u32],
    (run, mask): (&EventRun, &Mask),
    mapping: &BucketMapping<'_>,
    outside: usize,
    mut callback: impl FnMut(u32, usize),
) {
    if *mask == Mask::Nothing || mapping.bounds.0 > mapping.bounds.1 {
        return;
    }
    let bucket_lookup = BucketLookup::new(mapping.buckets, mapping.bounds, outside);
    let rows = keys.iter().zip(&run.times);
    match mask {
        Mask::Rows(passes) => {
            for ((key, time), passes) in rows.zip(passes) {
                callback(*key, if *passes { bucket_lookup.bucket_of(*time) } else { outside });
            }
        }
        _ => rows.for_each(|(key, time)| callback(*key, bucket_lookup.bucket_of(*time))),
    }
}

/// Calls back with every row that counts in some bucket, once per layer.
#[inline]
pub(super) fn for_each_row(
    rows: &SeriesRows<'_>,
    mapping: &BucketMapping<'_>,
    work: &WorkBudget<'_>,
    mut callback: impl FnMut(CountedRow),
) -> CalcResult<()> {
    for (run_index, (run, mask, layers)) in rows.list.iter().enumerate() {
        for layer in *layers {
            let members;
            let mask = match &layer.mask {
                Mask::Every => mask,
                layer => {
                    members = mask.clone().and(layer.clone());
                    &members
                }
            };
            let mut count = |row: usize, span: BucketSpan| {
                let (actor, time) = (run.actors[row], run.times[row]);
                let value_code = layer.codes.code_of(row);
                callback(CountedRow { position: (run_index, row), actor, time, span, value_code });
            };
            if let Some(lookup) = mapping.lookup() {
                for_each_passing(run, mask, work, |row| {
                    if let Some(span) = lookup.span_of(run.times[row]) {
                        count(row, span);
                    }
                })?;
            } else {
                for_each_passing(run, mask, work, |row| {
                    if let Some(span) = mapping.span_at(run.times[row]) {
                        count(row, span);
                    }
                })?;
            }
        }
    }
    Ok(())
}
