//! Fast path of trends: event counts broken down by one property, the most frequent breakdown.
//!
//! Rows are counted by the dictionary codes of their column. The counts of a code then go to its text, identified by the
//! text's 128-bit id; the text itself is read only for the result. Must stay true: the counts equal those of
//! [`super::dense`]; a text without a row in the range has no entry.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use pennon_filters::error::CalcResult;
use pennon_filters::text::text_of;
use pennon_filters::work_budget::WorkBudget;

use super::breakdown_values::{BreakdownValue, TrendBreakdown};
use super::bucket_mapping::BucketMapping;
use super::partial_result::PartialResult;
use super::series_counter::SeriesCounter;
use super::unsplit::BucketLookup;
use super::{CompiledTrend, Mask};
use crate::dictionary::{Dictionary, NO_TEXT};
use crate::kinds::trends::limits;
use crate::query::Math;
use crate::scan::{Column, EventRun, Partition};

/// Maximum count cells per row of a run.
const MAX_CELLS_PER_ROW: usize = 8;
/// Count cells that are always allowed, however few rows there are.
const MIN_RUN_CELLS: usize = 1 << 12;
/// Maximum count cells of a run.
const MAX_RUN_CELLS: usize = 1 << 20;

/// Counts by text and bucket.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TextCounts {
    width: usize,
    /// By text id: the index of its counts.
    indexes: HashMap<u128, usize, BuildHasherDefault<IdHasher>>,
    /// By index: the text id.
    ids: Vec<u128>,
    /// By index: dictionary and code of the text; `None` for rows without a text.
    texts: Vec<Option<(Arc<Dictionary>, usize)>>,
    counts: Vec<u64>,
}

/// Uses the text id itself as the hash, because it is one.
#[derive(Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut half = [0; 8];
        half.iter_mut().zip(bytes).for_each(|(half, byte)| *half = *byte);
        self.0 = u64::from_ne_bytes(half);
    }

    fn write_u128(&mut self, id: u128) {
        self.0 = id as u64;
    }
}

impl TextCounts {
    pub(super) fn new(width: usize) -> Self {
        Self { width, indexes: HashMap::default(), ids: Vec::new(), texts: Vec::new(), counts: Vec::new() }
    }

    /// Number of texts.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The counts of a text by bucket.
    fn counts_of(&mut self, id: u128, text: impl FnOnce() -> Option<(Arc<Dictionary>, usize)>) -> &mut [u64] {
        let index = *self.indexes.entry(id).or_insert_with(|| {
            self.ids.push(id);
            self.texts.push(text());
            self.counts.resize(self.texts.len() * self.width, 0);
            self.texts.len() - 1
        });
        &mut self.counts[index * self.width..][..self.width]
    }

    /// Adds the rows of a run. Rows that do not count go to an extra bucket behind the last one.
    fn add_run(&mut self, run: &EventRun, column: &Column, mask: &Mask, mapping: &BucketMapping<'_>) {
        let (stride, missing) = (self.width + 1, column.values.len());
        let mut cells = vec![0_u32; (missing + 1) * stride];
        let bucket_lookup = BucketLookup::new(mapping.buckets, mapping.bounds, self.width);
        let block = |code: u32| (code as usize).min(missing) * stride;
        let rows = column.codes.iter().zip(&run.times);
        match mask {
            Mask::Nothing => {}
            Mask::Every => {
                for (code, time) in rows {
                    cells[block(*code) + bucket_lookup.bucket_of(*time)] += 1;
                }
            }
            Mask::Rows(passes) => {
                for ((code, time), passes) in rows.zip(passes) {
                    let bucket = if *passes { bucket_lookup.bucket_of(*time) } else { self.width };
                    cells[block(*code) + bucket] += 1;
                }
            }
        }
        let ids = column.values.text_hashes();
        for (code, cells) in cells.chunks_exact(stride).enumerate() {
            let cells = &cells[..self.width];
            // A fold over all cells is vectorized; an early exit would not be.
            if cells.iter().fold(0, |any, count| any | count) == 0 {
                continue;
            }
            let id = ids.get(code).copied().unwrap_or(NO_TEXT);
            let counts = self.counts_of(id, || (id != NO_TEXT).then(|| (column.values.clone(), code)));
            counts.iter_mut().zip(cells).for_each(|(count, more)| *count += u64::from(*more));
        }
    }

    /// Merges other counts.
    pub(super) fn merge(&mut self, mut other: Self) {
        if self.len() < other.len() {
            std::mem::swap(self, &mut other);
        }
        let Self { width, ids, mut texts, counts, .. } = other;
        for (index, id) in ids.into_iter().enumerate() {
            let sum = self.counts_of(id, || texts.get_mut(index).and_then(Option::take));
            let more = &counts[index * width..][..width];
            sum.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
    }

    /// Converts to counts by breakdown value.
    pub(super) fn into_values(self) -> impl Iterator<Item = (BreakdownValue, Vec<u64>)> {
        let Self { width, texts, counts, .. } = self;
        texts.into_iter().enumerate().map(move |(index, text)| {
            let text = text.as_ref().and_then(|(dictionary, code)| dictionary.get(*code)).and_then(text_of);
            let key = BreakdownValue::Texts(vec![text.map(std::borrow::Cow::into_owned)]);
            (key, counts[index * width..][..width].to_vec())
        })
    }
}

impl CompiledTrend {
    /// The counts of a partition. `None` if the query needs the general path, or has too many values for its rows.
    pub(super) fn count_by_text(
        &self,
        partition: &Partition,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<PartialResult>> {
        let Some(columns) = self.get_text_columns(partition) else { return Ok(None) };
        let mut sum = PartialResult::default();
        let shared = self.shared_masks(partition, work)?;
        for (series, counter) in self.counters.iter().enumerate() {
            let Some(counter) = counter else { continue };
            let masks = self.series_masks(counter, partition, &shared, work)?;
            for (index, period) in self.periods.iter().enumerate() {
                if period.width() == 0 {
                    continue;
                }
                let mut counts = TextCounts::new(period.width());
                for (run, mask) in &masks {
                    work.check()?;
                    let mapping = period.bucket_mapping(&counter.math);
                    work.consume(partition.runs[*run].times.len())?;
                    counts.add_run(&partition.runs[*run], columns[*run], mask, &mapping);
                }
                sum.add_texts(self.period_series(index, series), counts);
            }
        }
        Ok(Some(sum))
    }

    /// By run: the column of the breakdown. `None` if the fast path does not apply.
    fn get_text_columns<'a>(&self, partition: &'a Partition) -> Option<Vec<&'a Column>> {
        let TrendBreakdown::Properties(reader) = &self.breakdown else { return None };
        let key = reader.plain_column()?;
        let is_total = |counter: &SeriesCounter| matches!(counter.math, Math::Total);
        if !self.counters.iter().flatten().all(is_total) {
            return None;
        }
        let mut width = 0;
        for period in &self.periods {
            let mapping = period.bucket_mapping(&Math::Total);
            if !mapping.is_one_to_one() || mapping.bounds.0 > mapping.bounds.1 {
                return None;
            }
            width = width.max(period.width());
        }
        let mut values = 0;
        let columns = partition.runs.iter().map(|run| {
            let column = run.column(key)?;
            let cells = (column.values.len() + 1).checked_mul(width + 1)?;
            values += column.values.len() + 1;
            let max_cells =
                run.times.len().saturating_mul(MAX_CELLS_PER_ROW).clamp(MIN_RUN_CELLS, MAX_RUN_CELLS);
            (cells <= max_cells && column.codes.len() == run.times.len()).then_some(column)
        });
        let columns = columns.collect::<Option<Vec<_>>>()?;
        // Beyond the limit of values the general path decides which error to return.
        (values <= limits::BREAKDOWN_VALUES).then_some(columns)
    }
}
