//! The partial result of a funnel: counts and durations by breakdown value.
//!
//! Must stay true: partial results merge in any order; a row exists only if an actor counts in it.

use std::collections::BTreeMap;

use pennon_filters::dates::buckets::Buckets;
use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};

use super::breakdown::ValueDictionary;
use super::{CompiledFunnel, Outcome};
use crate::kinds::funnels::limits;
use crate::scan::{Micros, Partition};

/// Rows by breakdown value. Without a breakdown there is a single row with an empty key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunnelRows(pub(super) BTreeMap<Vec<String>, FunnelRow>);

/// The numbers of one breakdown value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FunnelRow {
    /// For steps: the number of actors that reached each. Over time: entries per period, then conversions per period.
    pub(super) counts: Vec<u64>,
    /// For steps: by step, the microseconds since the step before, without zeros. For conversion times: all of them in one
    /// list.
    pub(super) durations: Vec<Vec<Micros>>,
}

impl FunnelRows {
    /// Merges two partial results.
    #[must_use]
    pub(crate) fn merge(mut self, other: Self) -> Self {
        for (key, row) in other.0 {
            self.0.entry(key).or_default().merge(row);
        }
        self
    }
}

impl FunnelRow {
    /// Adds another row to this one.
    pub(super) fn merge(&mut self, other: Self) {
        self.resize_to(other.counts.len(), other.durations.len());
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, more)| *sum += more);
        for (sum, more) in self.durations.iter_mut().zip(other.durations) {
            if sum.is_empty() {
                *sum = more;
            } else {
                sum.extend(more);
            }
        }
    }

    /// Extends the row to at least this many counts and lists of durations.
    pub(super) fn resize_to(&mut self, counts: usize, durations: usize) {
        if self.counts.len() < counts {
            self.counts.resize(counts, 0);
        }
        if self.durations.len() < durations {
            self.durations.resize_with(durations, Vec::new);
        }
    }
}

/// The rows of a partition by code of the breakdown value, all of one size, within a memory limit.
struct RowTable {
    rows: Vec<FunnelRow>,
    counts: usize,
    durations: usize,
    /// Remaining number of counts that may be allocated.
    remaining: usize,
    over_budget: bool,
}

impl RowTable {
    fn new(counts: usize, durations: usize) -> Self {
        Self { rows: Vec::new(), counts, durations, remaining: limits::FUNNEL_NUMBERS, over_budget: false }
    }

    /// The row of a value; `None` over the memory limit.
    fn row(&mut self, value: u32) -> Option<&mut FunnelRow> {
        let index = value as usize;
        if self.rows.len() <= index {
            self.rows.resize_with(index + 1, FunnelRow::default);
        }
        let row = self.rows.get_mut(index)?;
        if row.counts.is_empty() {
            // A list takes as much memory as about four counts.
            let size = self.counts + 4 * self.durations;
            match self.remaining.checked_sub(size) {
                Some(remaining) => self.remaining = remaining,
                None => self.over_budget = true,
            }
            if self.over_budget {
                return None;
            }
            row.resize_to(self.counts, self.durations);
        }
        Some(row)
    }

    fn into_rows(self, funnel: &CompiledFunnel, values: &ValueDictionary) -> CalcResult<FunnelRows> {
        if self.over_budget {
            let text = "The breakdown has too many values for so many steps or periods.";
            return Err(CalcError::invalid("breakdown", text));
        }
        let rows = (0..).zip(self.rows).filter(|(_, row)| !row.counts.is_empty());
        Ok(FunnelRows(rows.map(|(value, row)| (funnel.breakdown.key(value, values), row)).collect()))
    }
}

impl CompiledFunnel {
    /// Counts the actors that reached each step, and collects the steps' durations.
    pub(super) fn count_steps(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<FunnelRows> {
        let steps = self.query.series.len();
        let optional = self.rules().optional;
        let mut table = RowTable::new(steps, steps);
        let values = self.outcomes(partition, work, |Outcome { value, times, steps: reached, .. }| {
            let Some(row) = table.row(value) else { return };
            let (mut left, mut before) = (reached, None);
            let mut times = times.iter();
            while left != 0 {
                let step = left.trailing_zeros() as usize;
                left &= left - 1;
                row.counts[step] += 1;
                if optional >> step & 1 != 0 {
                    continue;
                }
                let Some(time) = times.next() else { continue };
                // Steps at the same instant have no duration; averages leave them out.
                if let Some(before) = before.replace(*time)
                    && *time > before
                {
                    row.durations[step].push(*time - before);
                }
            }
        })?;
        table.into_rows(self, &values)
    }

    /// Collects the conversion times from the first to the last step of the range.
    pub(super) fn collect_conversion_times(
        &self,
        partition: &Partition,
        work: &WorkBudget<'_>,
    ) -> CalcResult<FunnelRows> {
        let (from, to) = self.query.step_range();
        let mut table = RowTable::new(1, 1);
        let values = self.outcomes(partition, work, |outcome| {
            if let (Some(first), Some(last)) = (outcome.times.get(from), outcome.times.get(to))
                && let Some(row) = table.row(outcome.value)
            {
                row.counts[0] += 1;
                row.durations[0].push(last - first);
            }
        })?;
        table.into_rows(self, &values)
    }

    /// Counts entries and conversions per period.
    pub(super) fn count_periods(
        &self,
        buckets: &Buckets,
        partition: &Partition,
        work: &WorkBudget<'_>,
    ) -> CalcResult<FunnelRows> {
        let periods = buckets.len();
        let mut table = RowTable::new(2 * periods, 0);
        let values = self.entries(buckets, partition, work, |_, value, entries| {
            for entry in entries {
                let Some(row) = table.row(value) else { return };
                row.counts[entry.period] += 1;
                if entry.converted {
                    row.counts[periods + entry.period] += 1;
                }
            }
        })?;
        table.into_rows(self, &values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_over_the_memory_limit_are_rejected() {
        let mut table = RowTable::new(limits::FUNNEL_NUMBERS / 4, 0);
        for value in [0, 3, 5, 9, 3, 0] {
            assert!(table.row(value).is_some());
        }
        assert!(!table.over_budget);
        assert!(table.row(7).is_none());
        assert!(table.over_budget);
    }
}
