//! Fast path of trends: event counts broken down by one property, the most frequent breakdown.
//!
//! Must stay true: the counts equal those of [`super::dense`].

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::CompiledTrend;
use super::breakdown_values::TrendBreakdown;
use super::partial_result::PartialResult;
use super::series_counter::SeriesCounter;
use super::text_counts::TextCounts;
use crate::kinds::trends::limits;
use crate::query::Math;
use crate::scan::{Column, Partition};

/// Maximum count cells per row of a run.
const MAX_CELLS_PER_ROW: usize = 8;
/// Count cells that are always allowed, however few rows there are.
const MIN_RUN_CELLS: usize = 1 << 12;
/// Maximum count cells of a run.
const MAX_RUN_CELLS: usize = 1 << 20;

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
