//! The partial result of a retention query: the cells of each breakdown value.
//!
//! Must stay true: partial results merge in any order to the same result. A row of cells exists only where an actor started,
//! so values with few starts take little memory; a result over the memory limit drops its data and sets `over_budget`.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::history::CountedStart;
use crate::kinds::retention::limits;
use crate::numbers::ExactSum;

/// The cells of all breakdown values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RetentionCounts {
    /// Codes of the values with cells.
    codes: HashMap<String, u32>,
    pub(super) cells: CellTable,
    /// The memory limit was exceeded and the data dropped.
    pub(super) over_budget: bool,
}

/// Rows of cells by the code of the breakdown value and period.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CellTable {
    /// Cells in a row.
    columns: usize,
    /// By value and period: the number of its row of cells, counted from 1; 0 for none.
    rows: Vec<Vec<u32>>,
    counts: Vec<u32>,
    /// As many as `counts`, or none if nothing is added up.
    sums: Vec<ExactSum>,
    adds_up: bool,
    bytes: usize,
}

/// The cells of one value and period.
pub(super) struct CellRow<'a> {
    pub(super) counts: &'a [u32],
    pub(super) sums: &'a [ExactSum],
}

impl CellTable {
    pub(super) fn new(columns: usize, adds_up: bool) -> Self {
        Self { columns, adds_up, ..Self::default() }
    }

    /// The index of the first cell of a value and period, which is added if needed; `None` over the memory limit.
    #[inline]
    fn row_start(&mut self, value: u32, period: u32) -> Option<usize> {
        let known = self.rows.get(value as usize).and_then(|rows| rows.get(period as usize)).copied();
        match known {
            Some(row) if row > 0 => Some((row as usize - 1) * self.columns),
            _ => self.add_row(value as usize, period as usize),
        }
    }

    #[cold]
    fn add_row(&mut self, value: usize, period: usize) -> Option<usize> {
        let new_values = (value + 1).saturating_sub(self.rows.len());
        let new_periods = (period + 1).saturating_sub(self.rows.get(value).map_or(0, Vec::len));
        let cell_bytes = size_of::<u32>() + if self.adds_up { size_of::<ExactSum>() } else { 0 };
        self.bytes +=
            new_values * size_of::<Vec<u32>>() + new_periods * size_of::<u32>() + self.columns * cell_bytes;
        if self.bytes > limits::RETENTION_MEMORY_BYTES {
            return None;
        }
        if new_values > 0 {
            self.rows.resize(value + 1, Vec::new());
        }
        let start = self.counts.len();
        let row = u32::try_from(start / self.columns.max(1) + 1).ok()?;
        let rows = self.rows.get_mut(value)?;
        if new_periods > 0 {
            rows.resize(period + 1, 0);
        }
        *rows.get_mut(period)? = row;
        self.counts.resize(start + self.columns, 0);
        if self.adds_up {
            self.sums.resize(start + self.columns, ExactSum::default());
        }
        Some(start)
    }

    /// Counts an actor in its columns; false over the memory limit.
    #[inline]
    pub(super) fn count(&mut self, start: &CountedStart<'_>) -> bool {
        let Some(first) = self.row_start(start.value, start.period) else { return false };
        let counts = &mut self.counts[first..first + self.columns];
        counts[0] += 1;
        for column in start.columns {
            counts[*column as usize] += 1;
        }
        if let Some((own, sums)) = start.sums.split_first() {
            self.sums[first].add(*own);
            for (column, sum) in start.columns.iter().zip(sums) {
                self.sums[first + *column as usize].add(*sum);
            }
        }
        true
    }

    /// The cells of a value and period; none if no actor started there.
    pub(super) fn row(&self, value: u32, period: usize) -> Option<CellRow<'_>> {
        let row = self.rows.get(value as usize)?.get(period)?.checked_sub(1)?;
        let first = row as usize * self.columns;
        let sums = self.sums.get(first..first + self.columns).unwrap_or_default();
        Some(CellRow { counts: self.counts.get(first..first + self.columns)?, sums })
    }

    /// The periods of a value with cells.
    pub(super) fn periods(&self, value: u32) -> impl Iterator<Item = usize> {
        let rows = self.rows.get(value as usize).map_or(&[][..], Vec::as_slice);
        rows.iter().enumerate().filter(|(_, row)| **row > 0).map(|(period, _)| period)
    }

    /// Adds the cells of a value of another table; false over the memory limit.
    fn add_value(&mut self, value: u32, other: &Self, other_value: u32) -> bool {
        for period in other.periods(other_value) {
            let (Some(row), Ok(at)) = (other.row(other_value, period), u32::try_from(period)) else {
                continue;
            };
            let Some(first) = self.row_start(value, at) else { return false };
            for (count, more) in self.counts.get_mut(first..).unwrap_or_default().iter_mut().zip(row.counts) {
                *count = count.saturating_add(*more);
            }
            for (sum, more) in self.sums.get_mut(first..).unwrap_or_default().iter_mut().zip(row.sums) {
                sum.merge(more.clone());
            }
        }
        true
    }
}

impl RetentionCounts {
    /// The cells of a partition, by the texts of its values.
    pub(super) fn new(texts: Vec<String>, cells: CellTable) -> Self {
        let codes = (0..).zip(texts).filter(|(code, _)| cells.periods(*code).next().is_some());
        Self { codes: codes.map(|(code, text)| (text, code)).collect(), cells, over_budget: false }
    }

    /// The values with cells and their codes, in no particular order.
    pub(super) fn values(&self) -> impl Iterator<Item = (&str, u32)> {
        self.codes.iter().map(|(text, code)| (text.as_str(), *code))
    }

    /// Merges two partial results.
    pub(crate) fn merge(mut self, mut other: Self) -> Self {
        if self.codes.len() < other.codes.len() {
            std::mem::swap(&mut self, &mut other);
        }
        if self.over_budget || other.over_budget {
            return Self { over_budget: true, ..Self::default() };
        }
        for (text, other_code) in other.codes {
            let next = u32::try_from(self.cells.rows.len()).unwrap_or(u32::MAX);
            let code = *self.codes.entry(text).or_insert(next);
            if !self.cells.add_value(code, &other.cells, other_code) {
                return Self { over_budget: true, ..Self::default() };
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part_format::decoded;

    fn of(starts: &[(u32, u32, &[u32])]) -> RetentionCounts {
        let mut cells = CellTable::new(3, false);
        for (value, period, columns) in starts {
            assert!(cells.count(&CountedStart {
                value: *value,
                period: *period,
                time: 0,
                columns,
                sums: &[]
            }));
        }
        RetentionCounts::new(["a", "b", "c"].map(str::to_owned).to_vec(), cells)
    }

    fn counts(result: &RetentionCounts, text: &str, period: usize) -> Option<Vec<u32>> {
        let code = result.values().find(|(known, _)| *known == text)?.1;
        result.cells.row(code, period).map(|row| row.counts.to_vec())
    }

    #[test]
    fn partial_results_merge_by_the_text_of_the_value() {
        let (left, right) =
            (of(&[(0, 1, &[1]), (0, 1, &[2])]), of(&[(2, 0, &[]), (0, 1, &[1, 2]), (1, 4, &[])]));
        for merged in [left.clone().merge(right.clone()), right.merge(left), RetentionCounts::default()] {
            if merged == RetentionCounts::default() {
                continue;
            }
            assert_eq!(counts(&merged, "a", 1), Some(vec![3, 2, 2]));
            assert_eq!(counts(&merged, "c", 0), Some(vec![1, 0, 0]));
            assert_eq!(counts(&merged, "b", 4), Some(vec![1, 0, 0]));
            assert_eq!(counts(&merged, "b", 1), None);
        }
        let one = of(&[(0, 0, &[1])]);
        assert_eq!(RetentionCounts::default().merge(one.clone()), one);
    }

    #[test]
    fn exceeding_the_memory_limit_drops_the_data() {
        let mut cells = CellTable::new(limits::RETENTION_MEMORY_BYTES / 4 - 9, false);
        let start = |period| CountedStart { value: 0, period, time: 0, columns: &[], sums: &[] };
        // 24 bytes for the value, 4 for its period.
        assert!(cells.count(&start(0)));
        assert!(!cells.count(&start(1)));
        let full = RetentionCounts { over_budget: true, ..RetentionCounts::default() };
        assert_eq!(decoded(&full), full);
        assert!(decoded(&full).merge(RetentionCounts::default()).over_budget);
    }
    /// Rows of cells that are not there, which no process writes.
    #[test]
    fn cells_outside_of_the_table_are_left_out() {
        let mut strange = of(&[(0, 0, &[1])]);
        strange.cells.rows = vec![vec![7, u32::MAX]];
        strange.cells.adds_up = true;
        let strange = decoded(&strange);
        assert!(!of(&[(0, 0, &[1]), (1, 1, &[])]).merge(strange.clone()).over_budget);
        assert!(!strange.merge(of(&[(0, 0, &[1])])).over_budget);
    }
}
